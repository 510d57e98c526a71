"""Records with less in them, where a whole run would be too large."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import MappingProxyType

from msgspec.structs import replace

from selfreflect.records import Score

PARTS: Mapping[str, str] = MappingProxyType(
    {
        "guesses": "what the judge expected in place of a word",
        "words": "the distances of words, and so what the judge expected",
    }
)
"""What a page can do without, by the name that leaves it out."""


def lean(score: Score, parts: Collection[str]) -> Score:
    """The score without these ``PARTS``."""
    if "words" in parts:
        return replace(score, words=())
    return replace(score, words=tuple(replace(word, guesses=()) for word in score.words))
