"""One question set for several jobs: part 3/16 holds every sixteenth question, from the third one on.

By position rather than by a hash of the id: parts then differ by one question at most, and a source that is
sorted by kind gives every part some of each. That they are disjoint and make up the whole rests on all jobs
reading the same content, which a run directory records and :mod:`selfreflect.store.merge` compares.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple, TypeVar

from selfreflect.errors import ConfigError, excerpt

T = TypeVar("T")

_FORM = re.compile(r"([1-9][0-9]{0,5})/([1-9][0-9]{0,5})", re.ASCII)


class Part(NamedTuple):
    number: int
    """From 1."""
    of: int

    def __str__(self) -> str:
        return f"{self.number}/{self.of}"

    def taken(self, everything: Sequence[T]) -> Sequence[T]:
        """What belongs to this part, in order."""
        return everything[self.number - 1 :: self.of]


def part_of(text: str) -> Part:
    """``"3/16"`` as a part.

    Raises:
        ConfigError: it is not written like that, or there is no such part.
    """
    found = _FORM.fullmatch(text)
    part = Part(int(found[1]), int(found[2])) if found else None
    if part is None or part.number > part.of:
        raise ConfigError(f"a part is written K/N with K from 1 to N, such as 3/16, and not {excerpt(text)}")
    return part
