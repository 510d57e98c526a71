"""Remove parts of scores and information, to make a large run or page smaller."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from types import MappingProxyType
from typing import TypeVar

from msgspec.structs import replace

from selfreflect.records import Information, Record, Score

R = TypeVar("R", bound=Record)

PARTS: Mapping[str, str] = MappingProxyType(
    {
        "guesses": "what the judge expected in place of a word",
        "words": "the distances and bits of words, and so what the judge expected",
    }
)
"""Removable parts of a score and what they hold."""


def lean(record: R, parts: Collection[str]) -> R:
    """Remove ``parts`` from a score or information. Removing words removes their guesses and bits."""
    if isinstance(record, Information) and "words" in parts:
        return replace(record, answers=())
    if isinstance(record, Score) and "words" in parts:
        return replace(record, words=())
    if isinstance(record, Score) and "guesses" in parts:
        return replace(record, words=tuple(replace(word, guesses=()) for word in record.words))
    return record


def removable_parts(records: Iterable[Score | Information]) -> list[str]:
    """List the ``PARTS`` that these records have."""
    parts = set()
    for record in records:
        words = record.words if isinstance(record, Score) else ()
        if words or (isinstance(record, Information) and record.answers):
            parts.add("words")
        if any(word.guesses for word in words):
            parts.add("guesses")
    return [name for name in PARTS if name in parts]
