"""What a study is: items whose summaries are to be measured, and a finding from the values."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Protocol

from selfreflect.errors import ConfigError, excerpt
from selfreflect.plots import Curve, Plot
from selfreflect.sources.items import Item
from selfreflect.stats import Estimate, is_tie
from selfreflect.table import Cell, Column, Table
from selfreflect.text import listed
from selfreflect.validate.base import MetricInfo, Value


class Study(Protocol):
    """Made from what it studies. A constructor raises DataError or ConfigError for input that makes no sense,
    before any model is loaded."""

    @property
    def name(self) -> str: ...

    @property
    def items(self) -> Sequence[Item]:
        """The items to measure: those of the user, or others made from them."""

    def finding(self, values: Sequence[Value], metrics: Sequence[MetricInfo]) -> Finding:
        """Turn values into tables and sentences, in the order of ``metrics``. Values of other items are
        ignored."""


def summary_names(items: Iterable[Item]) -> list[str]:
    """List the names of all summaries, in the order of the items."""
    return list(dict.fromkeys(chain.from_iterable(item.summaries for item in items)))


Numbers = Mapping[tuple[str, str], float]
"""The values of one metric by item and summary."""


def values_by_metric(values: Sequence[Value]) -> Mapping[str, Numbers]:
    """Sort values by metric, leaving out undefined ones.

    Raises:
        ConfigError: one metric has values by several models, of which one would hide the other.
    """
    numbers: dict[str, dict[tuple[str, str], float]] = defaultdict(dict)
    models: dict[str, str] = {}
    for value in values:
        model = models.setdefault(value.metric, value.by)
        if model != value.by:
            raise ConfigError(
                f"{value.metric} has values by {excerpt(model)} and by {excerpt(value.by)}; "
                "this study takes one model at a time"
            )
        if value.value is not None:
            numbers[value.metric][value.item, value.summary] = value.value
    return numbers


def each_metric(
    values: Sequence[Value], metrics: Sequence[MetricInfo]
) -> Iterator[tuple[MetricInfo, Numbers]]:
    """Go through the metrics with their values, as :func:`values_by_metric`."""
    numbers = values_by_metric(values)
    for metric in metrics:
        yield metric, numbers.get(metric.name, {})


def worsenings(
    metric: MetricInfo, numbers: Numbers, edits: Iterable[tuple[str, str, str]]
) -> dict[str, list[float]]:
    """By item, how much worse the metric finds each text after an edit than before.

    Args:
        edits: an item, and the names of its summaries before and after. Those without both values are left
            out.
    """
    changes: dict[str, list[float]] = defaultdict(list)
    for item, before, after in edits:
        if (item, before) in numbers and (item, after) in numbers:
            after_value, before_value = numbers[item, after], numbers[item, before]
            change = metric.badness(after_value) - metric.badness(before_value)
            changes[item].append(0.0 if is_tie(after_value, before_value) else change)
    return changes


Row = Mapping[str, Cell]
"""Cells by heading."""


@dataclass(frozen=True, eq=False)
class Layout:
    """A table without its rows."""

    title: str
    form: str
    """Display format of numbers. Columns of whole numbers are shown as such."""
    notes: Sequence[str] = ()
    forms: Mapping[str, str] = field(default_factory=dict)
    """Headings with a format of their own."""

    def table(self, rows: Sequence[Row]) -> Table:
        """Fill the table with rows that have the same headings."""
        columns: list[Column] = []
        for heading in rows[0] if rows else ():
            cells = [row[heading] for row in rows if row[heading] is not None]
            form = self.form
            if any(isinstance(cell, str) for cell in cells):
                form = ""
            elif cells and all(isinstance(cell, int) for cell in cells):
                form = "d"
            columns.append(Column(heading, self.forms.get(heading, form)))
        return Table(
            self.title, tuple(columns), tuple(tuple(row.values()) for row in rows), tuple(self.notes)
        )


class Finding:
    """The tables of a study, and in ``says`` plain paragraphs on what can and cannot be concluded from them.

    A study fills it, mostly one metric after the other. Names and texts in it may come from files and models.
    Rendering makes them safe.

    Args:
        layouts: tables that are shown even without rows. Others come behind them, in the order of their first
            rows.
    """

    def __init__(self, study: str, *layouts: Layout) -> None:
        self.study = study
        self.says: list[str] = []
        self.plots: list[Plot] = []
        self._rows: dict[Layout, list[Row]] = {layout: [] for layout in layouts}

    @property
    def tables(self) -> list[Table]:
        return [layout.table(rows) for layout, rows in self._rows.items()]

    def add(self, layout: Layout, *rows: Row) -> None:
        """Add rows to a table."""
        self._rows.setdefault(layout, []).extend(rows)

    def tally(self, counts: Mapping[str, int]) -> None:
        """Say ``Pairs: 9; items: 3.``; without counts of zero."""
        self.says.append("; ".join(f"{what}: {count}" for what, count in counts.items() if count) + ".")

    def list_names(self, start: str, names: Sequence[str]) -> None:
        """Say ``start a, b and c.``; nothing without names."""
        if names:
            self.says.append(f"{start} {listed(names)}.")

    def give_verdicts(self, sides: Mapping[str, int | None], verdicts: Mapping[int | None, str]) -> None:
        """Say each verdict of the names whose side it is about."""
        for side, verdict in verdicts.items():
            self.list_names(f"{verdict}:", [name for name, own in sides.items() if own == side])

    def draw_dots(
        self, name: str, title: str, label: str, estimates: Iterable[tuple[str, Estimate]], against: float
    ) -> None:
        """Plot one named dot with its interval for each estimate that has a mean; no plot if none has."""
        curves: list[Curve] = []
        for of, estimate in estimates:
            curves += dot(of, len(curves) + 1.0, estimate)
        if curves:
            self.plots.append(Plot(name, title, "place", label, tuple(curves), points=True, against=against))


def dot(name: str, x: float, estimate: Estimate) -> Iterator[Curve]:
    """A point with its interval, if the estimate has a mean."""
    if estimate.mean is not None:
        low = () if estimate.low is None else (estimate.low,)
        high = () if estimate.high is None else (estimate.high,)
        yield Curve(name, (x,), (estimate.mean,), low, high)


def interval(
    heading: str, estimate: Estimate, low: str = "95% low", high: str = "95% high"
) -> dict[str, Cell]:
    """The cells of an estimate by heading: its mean and the ends of its interval."""
    return {heading: estimate.mean, low: estimate.low, high: estimate.high}


def with_interval(estimate: Estimate, form: str) -> str:
    """The estimate in words, with its interval if it has one."""
    if estimate.mean is None:
        return "undefined"
    if estimate.low is None or estimate.high is None:
        return format(estimate.mean, form)
    return f"{estimate.mean:{form}} [{estimate.low:{form}}, {estimate.high:{form}}]"
