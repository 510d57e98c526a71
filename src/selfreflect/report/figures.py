"""Figures of a report as SVG, each drawn from a table that is also written as CSV."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence

from selfreflect.metric.measure import Measure
from selfreflect.plots import (
    DOT,
    LINE,
    MARK,
    MARKERS,
    QUIET,
    Interval,
    Style,
    axis_name,
    drawing,
    intervals_figure,
    short_name,
    svg,
)
from selfreflect.report.compare import comparisons, contenders
from selfreflect.report.length import (
    PastedAnswers,
    Points,
    StrategyPoint,
    length_audit,
    length_correlation,
    pasted_table,
    point_table,
    run_pasted,
)
from selfreflect.report.measures import any_measures
from selfreflect.report.overview import CONTROL, INCOMPLETE, overview
from selfreflect.report.run_records import RunRecords
from selfreflect.stats import FEWEST_CORRELATED
from selfreflect.table import Cell, Table, joined, to_csv

_COLUMNS: dict[Style, int] = {"paper": 4, "page": 2}
# Length of an axis relative to its largest value, so that the dot there is not clipped.
_MARGIN = 1.06
# The same of an upright axis, where a dot should not touch the title.
_HEADROOM = 1.2


def paper_figures(runs: Sequence[RunRecords], baseline: str | None = None) -> dict[str, str]:
    """Draw every figure in the style of a paper, and return SVG and CSV texts by file name.

    Raises:
        DataError: the first run has no strategy ``baseline``.
    """
    overviews = {run.label: overview(run) for run in runs}
    files = {"means.csv": to_csv(joined(overviews))}
    for measure in any_measures(runs):
        files[f"{measure.figure}.svg"] = means_figure(measure.figure, overviews, measure)
    sides = contenders(runs, baseline)
    if len(sides) > 1:
        for table, measure in comparisons(sides[0], sides[1:]):
            name = difference_name(measure)
            files[f"{name}.svg"] = differences_figure(name, table, measure)
            files[f"{name}.csv"] = to_csv(table)
    for number, run in enumerate(runs, start=1):
        suffix = f"-{number}" if len(runs) > 1 else ""
        audits = length_audit(run)
        files[f"length{suffix}.svg"] = length_figure(f"length{suffix}", audits)
        files[f"length{suffix}.csv"] = to_csv(point_table(audits))
        pasted = run_pasted(run)
        if pasted is not None:
            files[f"pasted{suffix}.svg"] = pasted_figure(f"pasted{suffix}", *pasted)
            files[f"pasted{suffix}.csv"] = to_csv(pasted_table(*pasted))
    return files


def difference_name(measure: Measure) -> str:
    """Name the file of a measure's differences."""
    return "differences" if measure.is_plain else f"differences-{measure.figure}"


def mean_intervals(overviews: Mapping[str, Table], measure: Measure) -> list[Interval]:
    """List each strategy's mean and interval, then each control's, from the runs' overviews by label."""
    intervals = []
    lines: dict[str, set[tuple[Cell, ...]]] = defaultdict(set)
    for label, table in overviews.items():
        if measure.heading not in table.headings:
            continue
        first = table.headings.index(measure.heading)
        for row in table.rows:
            name, cells = str(row[0]), row[first : first + 3]
            # a strategy without a mean keeps its line, so that its absence is seen
            is_control = name.startswith(CONTROL)
            # runs that were given the same answers share their controls
            if is_control and (row[first] is None or cells in lines[name]):
                continue
            lines[name].add(cells)
            is_incomplete = str(row[table.headings.index("coverage")]).endswith(INCOMPLETE)
            intervals.append((is_control, name, " (incomplete)" if is_incomplete else "", label, cells))
    drawn = []
    for is_control, name, suffix, label, cells in sorted(intervals, key=lambda interval: interval[0]):
        is_named = len(overviews) == 1 or label == name or (is_control and len(lines[name]) == 1)
        drawn.append(_interval(axis_name(name, "" if is_named else label, suffix), cells))
    return drawn


def means_figure(name: str, overviews: Mapping[str, Table], measure: Measure, style: Style = "paper") -> str:
    """Draw the intervals of :func:`mean_intervals`."""
    intervals = mean_intervals(overviews, measure)
    if measure.is_share:
        return intervals_figure(name, intervals, measure.title, style, mark=0, percent=" %")
    return intervals_figure(name, intervals, measure.title, style)


def difference_intervals(table: Table) -> list[Interval]:
    """List paired differences from one baseline, from :func:`selfreflect.report.compare.comparison`'s
    table."""
    several_runs = len({row[0] for row in table.rows}) > 1
    intervals = []
    for row in table.rows:
        label = axis_name(str(row[1]), str(row[0]) if several_runs else "")
        intervals.append(_interval(label, row[2:5]))
    return intervals


def differences_figure(name: str, table: Table, measure: Measure, style: Style = "paper") -> str:
    """Draw the intervals of :func:`difference_intervals`."""
    percent = "" if measure.is_share else None  # in points
    quantity = "points" if measure.is_share else measure.short.rpartition(" ")[2]
    axis = f"{quantity}: difference from the baseline ({measure.better})"
    return intervals_figure(name, difference_intervals(table), axis, style, mark=0, percent=percent)


def _interval(name: str, cells: Sequence[Cell]) -> Interval:
    mean, low, high = (None if cell is None else float(cell) for cell in cells)
    return Interval(name, mean, low, high)


def pasted_figure(
    name: str, pasted: PastedAnswers, points: Sequence[StrategyPoint], style: Style = "paper"
) -> str:
    """Draw the bits of pasted answers against words as a line, and strategies as dots with intervals."""
    with drawing(name, style, 3.2 + 0.12 * len(points)) as figure:
        axes = figure.subplots()
        label = "pasted answers, by their number"
        axes.plot(pasted.words, pasted.bits, "-", color=QUIET, linewidth=1, label=label)
        for answers, words, height in zip(pasted.answers, pasted.words, pasted.bits, strict=True):
            axes.text(words, height, f"{round(answers, 1):g}", color=QUIET, ha="center", va="bottom")
        for index, point in enumerate(points):
            bits = point.bits
            if bits.mean is None:
                continue
            if bits.low is not None and bits.high is not None:
                axes.plot([point.words] * 2, [bits.low, bits.high], color=MARK, linewidth=1.2)
            marker = MARKERS[index % len(MARKERS)]
            name = short_name(point.strategy, limit=30)
            axes.plot(
                [point.words], [bits.mean], marker, color=MARK, markersize=5, label=name, linestyle="none"
            )
        axes.grid(color=LINE, linewidth=0.6)
        axes.set_axisbelow(True)
        axes.margins(x=0.08, y=0.12)
        axes.set_xlabel("words")
        axes.set_ylabel("bits per answer")
        figure.legend(loc="outside lower center", frameon=False, ncols=2, fontsize="small")
        return svg(figure, style)


def length_figure(name: str, audits: Mapping[str, Points], style: Style = "paper") -> str:
    """Draw score against summary length, one panel per strategy on common axes."""
    audits = {strategy: points for strategy, points in audits.items() if points}
    columns = min(_COLUMNS[style], max(1, len(audits)))
    lines = max(1, math.ceil(len(audits) / columns))
    longest = 0
    worst = 0.0
    with drawing(name, style, 0.4 + 1.75 * lines) as figure:
        panels = list(figure.subplots(lines, columns, sharex=True, sharey=True, squeeze=False).flat)
        for panel, (strategy, points) in zip(panels, audits.items(), strict=False):
            words, scores = zip(*points.values(), strict=True)
            longest = max(longest, *words)
            worst = max(worst, *scores)
            panel.plot(words, scores, "o", color=MARK, markersize=DOT, markeredgewidth=0)
            rho = length_correlation(points).mean
            value = "ρ undefined" if rho is None else f"ρ = {rho:+z.2f}"
            if len(points) < FEWEST_CORRELATED:
                value = f"n = {len(points)}, too few for ρ"
            panel.set_title(f"{short_name(strategy, limit=20)}\n{value}")
        for panel in panels[len(audits) :]:
            panel.set_visible(False)
        # shared by all panels
        panels[0].set(xlim=(0, _MARGIN * (longest or 1)), ylim=(0, _HEADROOM * (worst or 1)))
        figure.supxlabel("words in the summary")
        figure.supylabel("score (lower is better)")
        return svg(figure, style)
