"""Draw the figures of a report as SVG, each from a table whose CSV holds the numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from selfreflect.render.charts import Interval, intervals_figure
from selfreflect.render.plots import DOT, MARK, Style, drawing, short_name, svg
from selfreflect.render.table import Cell, Table, to_csv
from selfreflect.report.comparison import Contender, comparison, contender
from selfreflect.report.length import LengthAudit, length_audit, point_table
from selfreflect.report.overview import joined, overview
from selfreflect.report.run_records import RunRecords

_COLUMNS: dict[Style, int] = {"paper": 4, "page": 2}
_MARGIN = 1.06
"""Length of an axis relative to its largest value, so that the dot there is not clipped."""


def paper_figures(runs: Sequence[RunRecords], baseline: str | None = None) -> dict[str, str]:
    """Draw every figure in the style of a paper; return SVG and CSV texts by file name.

    Raises:
        DataError: the first run has no strategy ``baseline``.
        MissingExtraError: matplotlib is not installed.
    """
    overviews = {run.label: overview(run) for run in runs}
    files = {"means.svg": means_figure(overviews), "means.csv": to_csv(joined(overviews))}
    sides = contenders(runs, baseline)
    if len(sides) > 1:
        table = comparison(sides[0], sides[1:])
        files["differences.svg"] = differences_figure("differences", table)
        files["differences.csv"] = to_csv(table)
    for number, run in enumerate(runs, start=1):
        name = f"length-{number}" if len(runs) > 1 else "length"
        audits = length_audit(run)
        files[f"{name}.svg"] = length_figure(name, audits)
        files[f"{name}.csv"] = to_csv(point_table(audits))
    return files


def contenders(runs: Sequence[RunRecords], baseline: str | None) -> list[Contender]:
    """List all strategies of all runs, the baseline first: a strategy of the first run, by default its first.

    Raises:
        DataError: the first run has no such strategy.
    """
    if baseline is None:
        if not runs[0].strategies:
            return []
        baseline = runs[0].strategies[0]
    first = runs[0]
    sides = [contender(first, baseline)]
    sides += [contender(first, name) for name in first.strategies if name != baseline]
    for run in runs[1:]:
        sides += [contender(run, name) for name in run.strategies]
    return sides


def means_figure(overviews: Mapping[str, Table], style: Style = "paper") -> str:
    """Draw the mean score and interval of every strategy, from the overview of each run by its label."""
    intervals = []
    for label, table in overviews.items():
        for row in table.rows:
            name = short_name(str(row[0]), label if len(overviews) > 1 else "")
            intervals.append(_interval(name, table, row, "mean score"))
    return intervals_figure("means", intervals, "SelfReflect score (0 is perfect, lower is better)", style)


def differences_figure(name: str, table: Table, style: Style = "paper") -> str:
    """Draw paired differences from one baseline, from a table of
    :func:`selfreflect.report.comparison.comparison`."""
    several_runs = len({row[0] for row in table.rows}) > 1
    intervals = []
    for row in table.rows:
        label = short_name(str(row[1]), str(row[0]) if several_runs else "")
        intervals.append(_interval(label, table, row, "difference"))
    axis = "difference in score from the baseline (below 0 is better)"
    return intervals_figure(name, intervals, axis, style, mark=0)


def _interval(name: str, table: Table, row: Sequence[Cell], mean: str) -> Interval:
    cells = dict(zip((column.heading for column in table.columns), row, strict=True))
    return Interval(name, _number(cells[mean]), _number(cells["95% low"]), _number(cells["95% high"]))


def _number(cell: Cell) -> float | None:
    return None if cell is None or isinstance(cell, str) else float(cell)


def length_figure(name: str, audits: Sequence[LengthAudit], style: Style = "paper") -> str:
    """Draw score against length of every summary, one panel per strategy on common axes."""
    audits = [audit for audit in audits if audit.words]
    columns = min(_COLUMNS[style], max(1, len(audits)))
    lines = max(1, -(-len(audits) // columns))
    with drawing(name, style, 0.4 + 1.75 * lines) as figure:
        panels = list(figure.subplots(lines, columns, sharex=True, sharey=True, squeeze=False).flat)
        for panel, audit in zip(panels, audits, strict=False):
            panel.plot(audit.words, audit.scores, "o", color=MARK, markersize=DOT, markeredgewidth=0)
            rho = audit.correlation.rho
            value = "undefined" if rho is None else format(rho, "+z.2f").replace("-", "−")
            panel.set_title(f"{short_name(audit.strategy, limit=20)}\nρ = {value}")
        for panel in panels[len(audits) :]:
            panel.set_visible(False)
        longest = max((max(audit.words) for audit in audits), default=0) or 1
        worst = max((max(audit.scores) for audit in audits), default=0) or 1
        panels[0].set(xlim=(0, _MARGIN * longest), ylim=(0, _MARGIN * worst))  # shared by all panels
        figure.supxlabel("words in the summary")
        figure.supylabel("score (lower is better)")
        return svg(figure, style)
