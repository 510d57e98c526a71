"""Studies of metrics: items whose summaries are measured, and a finding of tables and sentences."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Protocol

from selfreflect.errors import ConfigError, excerpt
from selfreflect.sources.items import Item
from selfreflect.stats import Estimate
from selfreflect.table import Cell, Column, Table, spaced_percent
from selfreflect.text import listed
from selfreflect.validate.base import MetricInfo, Value


class Study(Protocol):
    """Question about metrics, made from the items that it studies.

    A constructor raises DataError or ConfigError for input that makes no sense, before a model is loaded.
    """

    @property
    def name(self) -> str: ...

    @property
    def items(self) -> Sequence[Item]:
        """The items to measure: those of the user, or items made from them."""

    def finding(self, values: Sequence[Value], metrics: Sequence[MetricInfo]) -> Finding:
        """Turn values into tables and sentences, in the order of ``metrics``. Values of unknown items are
        ignored."""


def summary_names(items: Iterable[Item]) -> list[str]:
    """List the names of all summaries, in the order of the items."""
    return list(dict.fromkeys(chain.from_iterable(item.summaries for item in items)))


Numbers = Mapping[tuple[str, str], float]
"""The values of one metric by item and summary."""


def each_metric(
    values: Sequence[Value], metrics: Sequence[MetricInfo]
) -> Iterator[tuple[MetricInfo, Numbers]]:
    """Go through the metrics with their defined values.

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
                "this study takes one model at a time",
                code="two_models",
                metric=value.metric,
            )
        if value.value is not None:
            numbers[value.metric][value.item, value.summary] = value.value
    for metric in metrics:
        yield metric, numbers[metric.name]


Row = Mapping[str, Cell]
"""Cells by heading."""


@dataclass(frozen=True, eq=False)
class TableLayout:
    """Table without its rows."""

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
    """Tables of a study, and in ``says`` plain paragraphs on what they do and do not show.

    Names and texts in it may come from files and models. Rendering makes them safe.

    Args:
        layouts: tables that are shown even without rows. Further ones follow in the order of their first
            rows.
    """

    def __init__(self, study: str, *layouts: TableLayout) -> None:
        self.study = study
        self.says: list[str] = []
        self._rows: dict[TableLayout, list[Row]] = {layout: [] for layout in layouts}

    @property
    def tables(self) -> list[Table]:
        return [layout.table(rows) for layout, rows in self._rows.items()]

    def add(self, layout: TableLayout, *rows: Row) -> None:
        """Add rows to a table."""
        self._rows.setdefault(layout, []).extend(rows)

    def tally(self, counts: Mapping[str, int]) -> None:
        """Say ``Pairs: 9; items: 3.``; without counts of zero."""
        self.says.append("; ".join(f"{name}: {count}" for name, count in counts.items() if count) + ".")

    def list_names(self, start: str, names: Sequence[str]) -> None:
        """Say ``start a, b and c.``; nothing without names."""
        if names:
            self.says.append(f"{start} {listed(names)}.")

    def give_verdicts(self, sides: Mapping[str, int | None], verdicts: Mapping[int | None, str]) -> None:
        """Say each verdict of the names whose side it is about."""
        for verdict_side, verdict in verdicts.items():
            self.list_names(f"{verdict}:", [name for name, side in sides.items() if side == verdict_side])


def interval(
    heading: str, estimate: Estimate, low: str = "95% low", high: str = "95% high"
) -> dict[str, Cell]:
    """Make the cells of an estimate by heading: its mean and the ends of its interval."""
    return {heading: estimate.mean, low: estimate.low, high: estimate.high}


def with_interval(estimate: Estimate, form: str) -> str:
    """Put an estimate in words, with its interval if it has one."""
    if estimate.mean is None:
        return "undefined"
    if estimate.low is None or estimate.high is None:
        return spaced_percent(format(estimate.mean, form))
    return spaced_percent(f"{estimate.mean:{form}} [{estimate.low:{form}}, {estimate.high:{form}}]")
