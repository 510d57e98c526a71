"""A run with less in it, for a page that would be too large."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from msgspec.structs import replace as changed

from selfreflect.records import Score
from selfreflect.report.tables import RunRecords

PARTS: Mapping[str, str] = MappingProxyType(
    {"guesses": "what the judge expected in place of a word", "words": "the distances of words, and so what the judge expected"}
)
"""What a page can do without, by the name that leaves it out."""


def without(run: RunRecords, parts: Collection[str]) -> RunRecords:
    """The run without these ``PARTS``."""
    return replace(run, scores={key: lean(score, parts) for key, score in run.scores.items()}) if parts else run


def parts_of(runs: Sequence[RunRecords]) -> list[str]:
    """The ``PARTS`` that these runs have."""
    words = [word for run in runs for score in run.scores.values() for word in score.words]
    return [name for name, there in (("guesses", any(word.guesses for word in words)), ("words", bool(words))) if there]


def lean(score: Score, parts: Collection[str]) -> Score:
    """The score without these ``PARTS``."""
    if "words" in parts:
        return changed(score, words=())
    return changed(score, words=tuple(changed(word, guesses=()) for word in score.words))
