"""A run with less in it, for a page that would be too large."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from selfreflect.report.overview import RunRecords
from selfreflect.store.trim import lean


def without(run: RunRecords, parts: Collection[str]) -> RunRecords:
    """The run without these ``PARTS``."""
    return (
        replace(run, scores={key: lean(score, parts) for key, score in run.scores.items()}) if parts else run
    )


def parts_of(runs: Sequence[RunRecords]) -> list[str]:
    """The ``PARTS`` that these runs have."""
    words = [word for run in runs for score in run.scores.values() for word in score.words]
    return [
        name
        for name, there in (("guesses", any(word.guesses for word in words)), ("words", bool(words)))
        if there
    ]
