"""The length audit: does a metric judge longer summaries to be better?"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from selfreflect.errors import DataError
from selfreflect.render.table import Cell, Column, Table
from selfreflect.sources.items import Item
from selfreflect.stats import Estimate
from selfreflect.validate.base import MetricInfo, Value
from selfreflect.validate.statistics import FEWEST, bounded_mean, correlation_interval, somers
from selfreflect.validate.study import Finding, counted, dot_plot, joined, values_by_metric, with_interval

_CORRELATION = "+z.2f"
COLUMNS = (
    Column("metric"),
    Column("within items", _CORRELATION),
    Column("95% low", _CORRELATION),
    Column("95% high", _CORRELATION),
    Column("items", "d"),
    Column("over all", _CORRELATION),
    Column("over all low", _CORRELATION),
    Column("over all high", _CORRELATION),
    Column("summaries", "d"),
    Column("undefined", "d"),
)
NOTES = (
    "above 0 where longer summaries are judged better; length in words",
    "within items: mean over items of Somers' D, how much more often the longer of two summaries is judged better than worse; "
    "interval: 95% BCa bootstrap over items",
    "over all: Spearman's rank correlation over all summaries; interval: 95% percentile bootstrap over items; it mixes the length of "
    "summaries with the difficulty of questions",
)

Key = tuple[str, str]


@dataclass(frozen=True)
class Audit:
    """How one metric's values go with length; above 0 where longer is judged better."""

    metric: MetricInfo
    within: Estimate
    """Over items. Somers' D rather than Spearman's rho within an item, because it is defined for two
    summaries too."""
    overall: Estimate
    """Over summaries."""
    undefined: int


class LengthStudy:
    """The summaries at hand against their lengths.

    Raises:
        DataError: no item has two summaries of different length.
    """

    name = "length"

    def __init__(self, items: Sequence[Item]) -> None:
        self.items = items
        self._words = {
            (item.id, name): len(text.split()) for item in items for name, text in item.summaries.items()
        }
        if not any(len({self._words[item.id, name] for name in item.summaries}) > 1 for item in items):
            raise DataError("no item has two summaries of different length, so there is nothing to audit")

    def finding(self, values: Sequence[Value], metrics: Sequence[MetricInfo]) -> Finding:
        known = values_by_metric(values)
        audits = [self._audit(metric, known.get(metric.name, {})) for metric in metrics]
        rows: tuple[tuple[Cell, ...], ...] = tuple(
            (
                *(one.metric.name, one.within.mean, one.within.low, one.within.high, one.within.n),
                *(one.overall.mean, one.overall.low, one.overall.high, one.overall.n, one.undefined),
            )
            for one in audits
        )
        plots = dot_plot(
            "length",
            "Longer summaries judged better within items",
            "Somers' D (0: no preference)",
            [(one.metric.name, one.within) for one in audits],
            against=0,
        )
        return Finding(
            self.name,
            (Table("Values against length of the summary", COLUMNS, rows, NOTES),),
            tuple(self._says(audits)),
            plots,
        )

    def _audit(self, metric: MetricInfo, values: Mapping[Key, float]) -> Audit:
        sign = 1 if metric.better == "higher" else -1
        points: dict[str, list[tuple[int, float]]] = defaultdict(list)
        for key, words in self._words.items():
            if key in values:
                points[key[0]].append((words, sign * values[key]))
        own = [somers(*_sides(of_item)) for of_item in points.values()]
        x, y = _sides([point for of_item in points.values() for point in of_item])
        groups = [item for item, of_item in points.items() for _ in of_item]
        within = bounded_mean([one for one in own if one is not None], -1, 1)
        return Audit(metric, within, correlation_interval(x, y, groups=groups), len(self._words) - len(x))

    def _says(self, audits: Sequence[Audit]) -> Iterator[str]:
        most = max((one.within.n for one in audits), default=0)
        yield f"Summaries: {len(self._words)}, of {counted(len(self.items), 'item')}."
        if most < FEWEST:
            yield f"{counted(most, 'item')} with values for summaries of different length is too small a number for any conclusion."
            return
        for side, preference in ((1, "longer"), (-1, "shorter")):
            if found := [
                f"{one.metric.name} ({with_interval(one.within, _CORRELATION)})"
                for one in audits
                if _side(one) == side
            ]:
                yield f"Judge the {preference} of two summaries of one item to be better: {joined(found)}."
        if unclear := [one.metric.name for one in audits if _side(one) == 0]:
            yield f"No clear preference for longer or shorter summaries: {joined(unclear)}."
        if nothing := [one.metric.name for one in audits if one.within.mean is None]:
            yield f"Without values to compare with length: {joined(nothing)}."
        yield (
            "A correlation alone is no bias: where the better summaries happen to be longer, a metric that is right prefers them too. "
            "Ranked sets tell the two apart, by pairs of equal length and pairs whose better summary is the shorter one."
        )


def _sides(points: Sequence[tuple[int, float]]) -> tuple[list[float], list[float]]:
    return [float(words) for words, _ in points], [value for _, value in points]


def _side(one: Audit) -> int | None:
    """1 where longer is clearly judged better, -1 where shorter is, 0 where neither is clear, None without a
    correlation."""
    if one.within.mean is None:
        return None
    if one.within.low is None or one.within.high is None or one.within.n < FEWEST:
        return 0
    return 1 if one.within.low > 0 else -1 if one.within.high < 0 else 0
