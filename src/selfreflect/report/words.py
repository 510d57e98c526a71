"""Which words of an answer a summary told the judge of, which it missed, and where it misled."""

from __future__ import annotations

from typing import Literal, NamedTuple

from selfreflect.records import WordBits

MarkKind = Literal["plain", "told", "missed", "misled"]

PLAIN_BELOW = 2.0
"""Bits below which a word stays plain: its probability has changed by less than a factor of 4."""

FULL = 8.0
"""Bits at which a mark has its full strength, a factor of 256. It is fixed, so that pages compare."""


class Mark(NamedTuple):
    """What a reader sees of a word."""

    kind: MarkKind
    bits: float
    """Told, missed or lost; at least 0."""

    @property
    def strength(self) -> float:
        """From 0 to 1."""
        return min(self.bits / FULL, 1.0)


def mark(word: WordBits) -> Mark:
    """Decide what one word says about the summary.

    A summary misleads where it makes a word less believable than the conditioning answers do: what they make
    unlikely too, such as a rare answer, is not its fault. This comes first, because a false statement is
    worse than a gap. Of a word that is told in part, the larger part counts.
    """
    loss = min(word.available, 0.0) - word.told
    if loss >= PLAIN_BELOW:
        return Mark("misled", loss)
    gained = max(word.told, 0.0)
    lacking = max(word.available - gained, 0.0)
    if max(gained, lacking) < PLAIN_BELOW:
        return Mark("plain", gained)
    return Mark("told", gained) if gained >= lacking else Mark("missed", lacking)
