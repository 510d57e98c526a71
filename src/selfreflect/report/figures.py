"""The figures of a report as SVG.

A figure is drawn from a table, and the table's CSV holds what is behind it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from selfreflect.render.plots import DOT, LINE, MARK, QUIET, SIZE, Style, drawing, short_name, svg
from selfreflect.render.table import Cell, Table, to_csv
from selfreflect.report.comparison import Contender, comparison, contender
from selfreflect.report.length import LengthAudit, length_audit, point_table
from selfreflect.report.overview import RunRecords, joined, overview

_COLUMNS: dict[Style, int] = {"paper": 4, "page": 2}
_TICKS: dict[Style, int] = {"paper": 8, "page": 5}


def paper_figures(runs: Sequence[RunRecords], baseline: str | None = None) -> dict[str, str]:
    """Every figure in the style of a paper, and the rows behind it, by file name.

    Raises:
        DataError: the first run has no strategy ``baseline``.
        MissingExtraError: matplotlib is not installed.
    """
    overviews = {run.label: overview(run) for run in runs}
    made = {"means.svg": means_figure(overviews), "means.csv": to_csv(joined(overviews))}
    sides = contenders(runs, baseline)
    if len(sides) > 1:
        table = comparison(sides[0], sides[1:])
        made |= {
            "differences.svg": differences_figure("differences", table),
            "differences.csv": to_csv(table),
        }
    for place, run in enumerate(runs, 1):
        name, audits = f"length-{place}" if len(runs) > 1 else "length", length_audit(run)
        made |= {f"{name}.svg": length_figure(name, audits), f"{name}.csv": to_csv(point_table(audits))}
    return made


def contenders(runs: Sequence[RunRecords], baseline: str | None) -> list[Contender]:
    """All strategies of all runs, the baseline first: a strategy of the first run, by default its first.

    Raises:
        DataError: the first run has no such strategy.
    """
    names = [(run, name) for run in runs for name in run.strategies]
    if baseline is None and not runs[0].strategies:
        return []
    chosen = contender(runs[0], baseline if baseline is not None else runs[0].strategies[0])
    return [
        chosen,
        *(contender(run, name) for run, name in names if run is not runs[0] or name != chosen.strategy),
    ]


Interval = tuple[str, float | None, float | None, float | None]
"""Name, middle, low, high"""


def means_figure(overviews: Mapping[str, Table], style: Style = "paper") -> str:
    """Mean score and interval of every strategy, from the overview of each run by its label."""
    several = len(overviews) > 1
    rows = [
        row
        for label, table in overviews.items()
        for row in _interval_rows(table, "mean score", label if several else "")
    ]
    return intervals_figure("means", rows, "SelfReflect score (0 is perfect, lower is better)", style)


def differences_figure(name: str, table: Table, style: Style = "paper") -> str:
    """Paired differences to one baseline with their intervals, from
    :func:`selfreflect.report.comparison.comparison`."""
    rows = _interval_rows(table, "difference", first=1)
    if len({row[0] for row in table.rows}) > 1:
        names = [short_name(str(row[1]), str(row[0])) for row in table.rows]
        rows = [(full, middle, low, high) for full, (_, middle, low, high) in zip(names, rows, strict=True)]
    return intervals_figure(
        name, rows, "difference in score to the baseline (below 0 is better)", style, mark=0
    )


def length_figure(name: str, audits: Sequence[LengthAudit], style: Style = "paper") -> str:
    """Score against length of every summary, one panel per strategy on common axes."""
    shown = [audit for audit in audits if audit.words]
    columns = min(_COLUMNS[style], max(1, len(shown)))
    lines = max(1, -(-len(shown) // columns))
    with drawing(name, style, 0.4 + 1.75 * lines) as figure:
        panels = list(figure.subplots(lines, columns, sharex=True, sharey=True, squeeze=False).flat)
        for panel, audit in zip(panels, shown, strict=False):
            rho = audit.correlation.rho
            panel.plot(audit.words, audit.scores, "o", color=MARK, markersize=DOT, markeredgewidth=0)
            shown_rho = "undefined" if rho is None else format(rho, "+z.2f").replace("-", "−")
            panel.set_title(f"{short_name(audit.strategy, limit=20)}\nρ = {shown_rho}")
        for panel in panels[len(shown) :]:
            panel.set_visible(False)
        panels[0].set(xlim=(0, None), ylim=(0, None))  # shared, so not before the last panel is drawn
        figure.supxlabel("words in the summary")
        figure.supylabel("score (lower is better)")
        return svg(figure, style)


def intervals_figure(
    name: str,
    rows: Sequence[Interval],
    axis: str,
    style: Style = "paper",
    *,
    mark: float | None = None,
    title: str = "",
) -> str:
    """Dots with intervals, one line for each row, the first on top, and a line across them at ``mark``. Names
    and title may be untrusted.

    Raises:
        MissingExtraError: matplotlib is not installed.
    """
    with drawing(name, style, 0.075 * SIZE[style] + 0.034 * SIZE[style] * max(1, len(rows))) as figure:
        axes = figure.subplots()
        if title:
            figure.suptitle(short_name(title, limit=90))
        for place, (_, middle, low, high) in enumerate(rows):
            if low is not None and high is not None:
                axes.plot([low, high], [place, place], color=MARK, linewidth=1.6, solid_capstyle="butt")
            if middle is not None:
                axes.plot([middle], [place], "o", color=MARK, markersize=4.5)
        if mark is not None:
            axes.axvline(mark, color=QUIET, linewidth=0.8)
        axes.set_yticks(range(len(rows)), [short_name(row[0]) for row in rows])
        axes.set_ylim(len(rows) - 0.4, -0.6)
        axes.tick_params(axis="y", length=0)
        axes.locator_params(axis="x", nbins=_TICKS[style])
        axes.spines["left"].set_visible(False)
        axes.grid(axis="x", color=LINE, linewidth=0.6)
        axes.set_axisbelow(True)
        axes.margins(x=0.08)
        figure.supxlabel(axis)
        return svg(figure, style)


def _interval_rows(table: Table, middle: str, label: str = "", first: int = 0) -> list[Interval]:
    """Name, mean and ends of every row of a table whose strategy stands in column ``first``."""
    headings = [column.heading for column in table.columns]
    places = [headings.index(heading) for heading in (middle, "95% low", "95% high")]
    rows = []
    for row in table.rows:
        mean, low, high = (_number(row[place]) for place in places)
        rows.append((short_name(str(row[first]), label), mean, low, high))
    return rows


def _number(cell: Cell) -> float | None:
    return None if cell is None or isinstance(cell, str) else float(cell)
