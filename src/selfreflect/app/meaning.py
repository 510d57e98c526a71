"""Groups answers by meaning, one request at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import cached_property

from selfreflect.errors import DataError
from selfreflect.grouping import group_indices
from selfreflect.models.embed import MeaningGroups, can_group_by_meaning
from selfreflect.report.page.view import Grouping

_MAX_CHARACTERS = 2000
"""Characters of an answer that are read; the embedding reads fewer."""

_MAX_SPELLINGS = 1000
"""Different answers that are grouped. Each is one pass through the embedding, and the distances grow with the
square of their number."""


class Meaning:
    """Groups answers in a thread, one request at a time. The first request calls ``load``."""

    def __init__(self, load: Callable[[], Grouping] = MeaningGroups) -> None:
        self._load = load
        self._lock = asyncio.Lock()

    @property
    def installed(self) -> bool:
        return self._load is not MeaningGroups or can_group_by_meaning()

    async def groups(self, read: Callable[[], tuple[str, Sequence[str]]]) -> tuple[int, list[list[int]]]:
        """Count and group the answers to the question that ``read`` returns. It is called in the thread,
        because it may read a file.

        Raises:
            MissingExtraError: the extra ``embed`` is not installed.
            DataError: there are too many different answers.
        """
        async with self._lock:
            return await asyncio.to_thread(self._group, read)

    @cached_property
    def _grouping(self) -> Grouping:
        return self._load()

    def _group(self, read: Callable[[], tuple[str, Sequence[str]]]) -> tuple[int, list[list[int]]]:
        question, answers = read()
        texts = [answer[:_MAX_CHARACTERS] for answer in answers]
        if len(group_indices(texts)) > _MAX_SPELLINGS:
            raise DataError(
                f"more than {_MAX_SPELLINGS:,} different answers are too many to group by meaning here; "
                "make a report page with: selfreflect report"
            )
        return len(texts), self._grouping(texts, question)
