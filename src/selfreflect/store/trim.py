"""Drop details from scores, where a whole run would be too large."""

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
"""What can be left out of scores: name -> description."""


def lean(score: Score, parts: Collection[str]) -> Score:
    """Return the score without these ``PARTS``."""
    if "words" in parts:
        return replace(score, words=())
    return replace(score, words=tuple(replace(word, guesses=()) for word in score.words))
