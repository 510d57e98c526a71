"""What a study is: items whose summaries are to be measured, and a finding from the values."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from selfreflect.errors import ConfigError, excerpt
from selfreflect.render.plots import Curve, Plot
from selfreflect.render.table import Cell, Column, Table
from selfreflect.sources.items import Item
from selfreflect.stats import Estimate
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


@dataclass(frozen=True)
class Finding:
    """The tables of a study, and in ``says`` plain paragraphs on what can and cannot be concluded from them.

    Names and texts in it may come from files and models. Rendering makes them safe.
    """

    study: str
    tables: tuple[Table, ...]
    says: tuple[str, ...]
    plots: tuple[Plot, ...] = ()


ByMetric = Mapping[str, Mapping[tuple[str, str], float]]


def values_by_metric(values: Sequence[Value]) -> ByMetric:
    """Map metric -> (item, summary) -> value, leaving out undefined values.

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


def dot_plot(
    name: str, title: str, label: str, estimates: Sequence[tuple[str, Estimate]], against: float
) -> tuple[Plot, ...]:
    """Plot one named dot with its interval for each estimate that has a mean; no plot if none has."""
    curves: list[Curve] = []
    for of, estimate in estimates:
        curves += dot(of, len(curves) + 1.0, estimate)
    plot = Plot(name, title, "place", label, tuple(curves), points=True, against=against)
    return (plot,) if curves else ()


def dot(name: str, x: float, estimate: Estimate) -> Iterator[Curve]:
    """A point with its interval, if the estimate has a mean."""
    if estimate.mean is not None:
        low = () if estimate.low is None else (estimate.low,)
        high = () if estimate.high is None else (estimate.high,)
        yield Curve(name, (x,), (estimate.mean,), low, high)


def make_table(
    title: str,
    rows: Sequence[Mapping[str, Cell]],
    form: str,
    notes: Sequence[str],
    forms: Mapping[str, str] | None = None,
) -> Table:
    """Make a table from rows that map each heading to its cell, with the same headings in every row.

    A heading in ``forms`` has its own format. Else whole numbers are shown as such, other numbers in
    ``form``.
    """
    columns: list[Column] = []
    for heading in rows[0] if rows else ():
        cells = [row[heading] for row in rows if row[heading] is not None]
        own_form = form
        if any(isinstance(cell, str) for cell in cells):
            own_form = ""
        elif cells and all(isinstance(cell, int) for cell in cells):
            own_form = "d"
        columns.append(Column(heading, (forms or {}).get(heading, own_form)))
    return Table(title, tuple(columns), tuple(tuple(row.values()) for row in rows), tuple(notes))


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


def counted(number: int, noun: str) -> str:
    """``1 item``, ``2 items``."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def joined(names: Sequence[str]) -> str:
    """``a``, ``a and b``, ``a, b and c``."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def listing(start: str, names: Sequence[str]) -> Iterator[str]:
    """``start a, b and c.``; nothing without names."""
    if names:
        yield f"{start} {joined(names)}."


def by_side(sides: Mapping[str, int | None], verdicts: Mapping[int | None, str]) -> Iterator[str]:
    """One sentence for each verdict on the names whose side it is about."""
    for side, verdict in verdicts.items():
        yield from listing(f"{verdict}:", [name for name, own in sides.items() if own == side])


def tallied(counts: Mapping[str, int]) -> str:
    """``Pairs: 9; items: 3.``; without counts of zero."""
    return "; ".join(f"{what}: {count}" for what, count in counts.items() if count) + "."
