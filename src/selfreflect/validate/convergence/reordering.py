"""By how much another order of the same answers moves the values of a metric."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import fmean

from selfreflect.render.table import Cell, Column, Table
from selfreflect.validate.base import MetricInfo, Value
from selfreflect.validate.convergence.variants import Variant
from selfreflect.validate.study import values_by_metric

_COLUMNS = (
    Column("metric"),
    Column("answers in another order"),
    Column("mean change", ".2g"),
    Column("largest change", ".2g"),
    Column("order changed", ".0%"),
    Column("n", "d"),
)


@dataclass(frozen=True)
class Moved:
    """Absolute changes of single scores."""

    metric: MetricInfo
    conditioning: Sequence[float]
    masked_out: Sequence[float]
    flips: Sequence[bool]
    """For each order of the conditioning answers and pair of summaries whether the two are ordered otherwise;
    a tie is an order."""

    @property
    def sentences(self) -> list[str]:
        name, said = self.metric.name, []
        if self.conditioning:
            flips = (
                f", and orders two summaries of one question otherwise in {fmean(self.flips):.0%} of cases"
                if self.flips
                else ""
            )
            said.append(
                f"Another order of the conditioning answers moves a value of {name} by {fmean(self.conditioning):.4f} on average and "
                f"{max(self.conditioning):.4f} at most (n = {len(self.conditioning)}){flips}."
            )
        if self.masked_out:
            said.append(
                "The order of the masked-out answers must not matter, but for rounding in the judge: "
                f"reversing it moves a value of {name} by {max(self.masked_out):.1e} at most (n = {len(self.masked_out)})."
            )
        return said


def moved(metric: MetricInfo, variants: Sequence[Variant], values: Sequence[Value]) -> Moved:
    """From the values of items and of their variants in another order; those with fewer answers are passed
    over."""
    known = values_by_metric(values).get(metric.name, {})
    changes: dict[bool, list[float]] = {True: [], False: []}
    flips: list[bool] = []
    for variant in variants:
        if variant.conditioning is not None:
            continue
        names = [
            name
            for name in variant.item.summaries
            if {(variant.original, name), (variant.item.id, name)} <= known.keys()
        ]
        both = [(known[variant.original, name], known[variant.item.id, name]) for name in names]
        changes[variant.masked_out] += [abs(after - before) for before, after in both]
        if not variant.masked_out:
            flips += [_sign(a[0] - b[0]) != _sign(a[1] - b[1]) for a, b in combinations(both, 2)]
    return Moved(metric, changes[False], changes[True], flips)


def _sign(number: float) -> int:
    return (number > 0) - (number < 0)


def moved_table(found: Sequence[Moved]) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for one in found:
        if one.conditioning:
            changed = fmean(one.flips) if one.flips else None
            rows.append(
                (
                    one.metric.name,
                    "conditioning",
                    fmean(one.conditioning),
                    max(one.conditioning),
                    changed,
                    len(one.conditioning),
                )
            )
        if one.masked_out:
            rows.append(
                (
                    one.metric.name,
                    "masked-out",
                    fmean(one.masked_out),
                    max(one.masked_out),
                    None,
                    len(one.masked_out),
                )
            )
    note = "changes: absolute, of one value; order changed: share of pairs of summaries of one question that are ordered otherwise"
    return Table("The same answers in another order", _COLUMNS, tuple(rows), (note,))
