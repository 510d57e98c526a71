"""Remove parts of scores, to make a large run or page smaller."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from types import MappingProxyType

from msgspec.structs import replace

from selfreflect.records import Score

PARTS: Mapping[str, str] = MappingProxyType(
    {
        "guesses": "what the judge expected in place of a word",
        "words": "the distances of words, and so what the judge expected",
    }
)
"""Removable parts of a score and what they hold."""


def lean(score: Score, parts: Collection[str]) -> Score:
    """Remove ``parts`` from a score. Removing words removes their guesses."""
    if "words" in parts:
        return replace(score, words=())
    if "guesses" in parts:
        return replace(score, words=tuple(replace(word, guesses=()) for word in score.words))
    return score


def removable_parts(scores: Iterable[Score]) -> list[str]:
    """List the ``PARTS`` that these scores have."""
    parts = set()
    for score in scores:
        if score.words:
            parts.add("words")
        if any(word.guesses for word in score.words):
            parts.add("guesses")
    return [name for name in PARTS if name in parts]
