"""Ranked sets at equal length by padding: which pairs a metric still gets right, and what the filler does on
its own."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from selfreflect.render.table import Cell, Column, Table
from selfreflect.validate.base import MetricInfo
from selfreflect.validate.ranked.outcomes import Outcomes, outcomes
from selfreflect.validate.ranked.padding import Padding
from selfreflect.validate.study import ByMetric, interval_cells, joined
from selfreflect.validate.worsening import Worsening

WORSE, BETTER = "worse", "better"

PADDED = "padded: all pairs whose texts have words, the shorter text continued with filler to as many words as the longer one has"
_CHANGE = "+z.4f"
_COLUMNS = (
    Column("metric"),
    Column("padded"),
    Column("change", _CHANGE),
    Column("95% low", _CHANGE),
    Column("95% high", _CHANGE),
    Column("items", "d"),
    Column("of", "d"),
)
_NOTES = (
    "change: value of the padded text less that of the text as it is, its sign turned where higher is better, so that above 0 is worse for "
    "every metric; mean over items, each by the mean of its padded texts",
    "padded: which text of its pair was the shorter one. Where filler makes worse texts worse still, wins after padding may be owed to it",
    "intervals: 95% BCa bootstrap over items",
)


@dataclass(frozen=True)
class PaddedResult:
    """What one metric makes of padded pairs."""

    outcomes: Outcomes
    filler: Mapping[str, Worsening]
    """By what was padded, the better or the worse summary of a pair: the change by filler alone."""


def padded_results(padding: Padding, metrics: Sequence[MetricInfo], known: ByMetric) -> list[PaddedResult]:
    return [
        PaddedResult(
            outcomes(metric, known.get(metric.name, {}), list(padding.standing), padding.standing),
            {role: _filler(padding, metric, known.get(metric.name, {}), role) for role in (WORSE, BETTER)},
        )
        for metric in metrics
    ]


def _filler(
    padding: Padding, metric: MetricInfo, values: Mapping[tuple[str, str], float], role: str
) -> Worsening:
    """One change for each item: the mean over its padded texts of that role, each text once."""
    texts = {
        (pair.item, *names)
        for pair, names in padding.padded.items()
        if (names[0] == pair.better) == (role == BETTER)
    }
    changes: dict[str, list[float]] = defaultdict(list)
    for item, before, after in sorted(texts):
        if (item, before) in values and (item, after) in values:
            changes[item].append(metric.badness(values[item, after]) - metric.badness(values[item, before]))
    return Worsening([fmean(own) for own in changes.values()], len({item for item, _, _ in texts}))


def filler_table(results: Sequence[PaddedResult]) -> Table:
    rows: list[tuple[Cell, ...]] = [
        (one.outcomes.metric.name, role, *interval_cells(change.mean), change.mean.n, change.total)
        for one in results
        for role, change in one.filler.items()
        if change.total
    ]
    return Table("What filler alone changes", _COLUMNS, tuple(rows), _NOTES)


def filler_says(results: Sequence[PaddedResult]) -> Iterator[str]:
    """Which way filler pulls, as far as it is clear; it is for or against a metric after padding according to
    what was padded."""
    for role in (WORSE, BETTER):
        for direction, said in ((1, "worse"), (-1, "better")):
            names = [
                f"{one.outcomes.metric.name} ({one.filler[role].mean.mean:+z.4f})"
                for one in results
                if one.filler[role].direction == direction and one.outcomes.metric.group != "control"
            ]
            if names:
                flatters = (role == WORSE) == (direction == 1)
                owed = (
                    "wins after padding may be owed to that"
                    if flatters
                    else "wins after padding are in spite of that"
                )
                yield f"Filler alone makes the padded {role} summaries clearly {said} for {joined(names)}: {owed}."
