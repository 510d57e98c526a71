"""Divide one question set among several jobs: shard 3/16 is every sixteenth question, starting at the third.

Shards go by position rather than by a hash of the id: their sizes then differ by at most one question, and a
source sorted by kind gives every shard some of each. They are disjoint and complete only if all jobs read the
same content, so a run directory records its hash and :mod:`selfreflect.store.merge` compares the hashes.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple, TypeVar

from selfreflect.errors import ConfigError, excerpt

T = TypeVar("T")

_FORM = re.compile(r"([1-9][0-9]{0,5})/([1-9][0-9]{0,5})", re.ASCII)


class Shard(NamedTuple):
    number: int
    """From 1."""
    of: int

    def __str__(self) -> str:
        return f"{self.number}/{self.of}"

    def select(self, items: Sequence[T]) -> Sequence[T]:
        """Return the items of this shard, in order."""
        return items[self.number - 1 :: self.of]


def parse_shard(text: str) -> Shard:
    """Parse ``"3/16"``.

    Raises:
        ConfigError: malformed, or K is larger than N.
    """
    match = _FORM.fullmatch(text)
    if match:
        shard = Shard(int(match[1]), int(match[2]))
        if shard.number <= shard.of:
            return shard
    raise ConfigError(f"write a shard as K/N with K from 1 to N, such as 3/16, not {excerpt(text)}")
