"""Values of a measure in a run, as reports compare them."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from selfreflect.metric.measure import DEFAULT_MEASURES, Measure, measures_of
from selfreflect.stats import (
    FEWEST_TESTED,
    Estimate,
    PairedEstimate,
    mean_interval,
    paired_difference,
    ratio_interval,
)
from selfreflect.table import Column

if TYPE_CHECKING:
    from selfreflect.report.run_records import RunRecords


@dataclass(frozen=True)
class Values:
    """Values of one measure for a strategy or control, by question id."""

    values: Mapping[str, float]
    scale: Mapping[str, float] | None = None
    """Denominators of the values, if these are shares. Reports then compare ratios of sums over questions,
    otherwise means."""

    def among(self, ids: Collection[str]) -> Values:
        """Keep only the questions ``ids``."""
        return Values({id_: value for id_, value in self.values.items() if id_ in ids}, self.scale)

    def of_question(self, id_: str) -> float | None:
        """Return the value or share of one question; None if it has none."""
        return self.mean([id_]) if id_ in self.values else None

    def mean(self, ids: Collection[str]) -> float | None:
        """Compute the mean or share over the questions ``ids``; None if none of them has a value."""
        if not ids:
            return None
        total = math.fsum(self.values[id_] for id_ in ids)
        return total / (len(ids) if self.scale is None else math.fsum(self.scale[id_] for id_ in ids))

    def estimate(self, total: int) -> Estimate:
        """Estimate the mean or share, with ``total`` eligible questions.

        Without an interval on fewer than ``FEWEST_TESTED`` questions, where it would be far too short.
        """
        if self.scale is None:
            estimate = mean_interval(list(self.values.values()), total)
        else:
            pairs = [(value, self.scale[id_]) for id_, value in self.values.items()]
            estimate = ratio_interval(pairs, total)
        return estimate if estimate.n >= FEWEST_TESTED else estimate.without_interval()


def records_of(measure: Measure, run: RunRecords, strategy: str) -> dict[str, Any]:
    """Map question ids to a strategy's records of a measure."""
    records = run.results(measure)
    return {id_: records[id_, strategy] for id_ in run.questions if (id_, strategy) in records}


def values_of(measure: Measure, run: RunRecords, strategy: str) -> Values:
    """Read a strategy's values, with numerator and denominator for a ratio."""
    values = {}
    scale = {}
    for id_, record in records_of(measure, run, strategy).items():
        measurement = measure.measurement(record)
        if measurement.value is None:
            continue
        values[id_] = measurement.value
        if measure.ratio is not None:
            values[id_], scale[id_] = (measurement.parts[part] or 0.0 for part in measure.ratio)
    return Values(values, None if measure.ratio is None else scale)


def undefined_of(measure: Measure, run: RunRecords, strategy: str) -> dict[str, str]:
    """Map questions without a value to the reason's code."""
    reasons = {}
    for id_, record in records_of(measure, run, strategy).items():
        measurement = measure.measurement(record)
        if measurement.value is None:
            reasons[id_] = measurement.undefined
    return reasons


def settings_of(measure: Measure, run: RunRecords, strategy: str) -> dict[str, str]:
    """Describe judge and settings by question, which must match between compared values."""
    records = records_of(measure, run, strategy)
    return {id_: measure.settings_text(record) for id_, record in records.items()}


def is_estimated(measure: Measure, run: RunRecords, strategy: str) -> bool:
    """Check whether any record of a strategy rests on a sample of words."""
    return any(measure.sampled(record) for record in records_of(measure, run, strategy).values())


def difference_of(measure: Measure, a: Values, b: Values, ids: Collection[str]) -> PairedEstimate:
    """Estimate the difference ``b - a`` on questions of ``ids`` with both values.

    Shares are of the mean of both scales, which is the same number if both summarise the same answers.
    Without an interval unless enough questions differ for a test.
    """
    first, second = a.among(ids), b.among(ids)
    scale = None
    if a.scale is not None and b.scale is not None:
        common = first.values.keys() & second.values.keys()
        scale = {id_: (a.scale[id_] + b.scale[id_]) / 2 for id_ in common}
    paired = paired_difference(
        first.values, second.values, len(ids), scale=scale, higher_is_better=measure.higher_is_better
    )
    if paired.is_testable:
        return paired
    return replace(paired, difference=paired.difference.without_interval())


def mean_columns(measure: Measure) -> list[Column]:
    """Make the columns of a mean and its interval."""
    ends = f"{measure.heading} 95% ".removeprefix("mean score ")
    mean = Column(measure.heading, measure.form, short=measure.heading.removeprefix("mean "))
    low = Column(f"{ends}low", measure.form, end="low")
    return [mean, low, Column(f"{ends}high", measure.form, end="high")]


def difference_column(measure: Measure, heading: str, end: Literal["", "low", "high"] = "") -> Column:
    """Make a column of differences, in points for shares."""
    if measure.is_share:
        return Column(heading, "+z.1f", 100, end=end)
    return Column(heading, f"+z{measure.form.lstrip('z')}", end=end)


def plain_measure() -> Measure:
    """Look up the default measure."""
    return next(measure for measure in bundled_measures() if measure.is_plain)


def bundled_measures() -> list[Measure]:
    """List the measures with their own keys and columns, in report order."""
    return _in_order(measures_of(DEFAULT_MEASURES))


def run_measures(run: RunRecords) -> list[Measure]:
    """List a run's measures, at least one, in report order."""
    return _in_order(run.measures) or [plain_measure()]


def any_measures(runs: Iterable[RunRecords]) -> list[Measure]:
    """List the measures of any of the runs."""
    return _in_order({measure for run in runs for measure in run_measures(run)})


def _in_order(measures: Iterable[Measure]) -> list[Measure]:
    return sorted(measures, key=lambda measure: (measure.rank, measure.name))
