"""Draw charts that reports and studies share: dots with intervals, and curves on common axes."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import fill
from typing import TYPE_CHECKING, NamedTuple, Protocol

from selfreflect.render.plots import DOT, LINE, MARK, QUIET, SIZE, Style, drawing, short_name, svg

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_COLOURS = (MARK, "#b5533c", "#c99a2e", "#2f7d5b", "#7a4fa0", "#4f5761")
_MARKERS = ("o", "s", "^", "D", "v", "P")
_DASHES = ("-", "--", ":")
"""From the seventh curve on, colours and markers repeat with another line style."""
_HEIGHT = 2.8
_LEGEND_LINE_HEIGHT = 0.17
"""Inches."""
_TITLE_LENGTH = 90
_Y_LABEL_LENGTH = 44
"""Characters that fit along the y axis."""
_TICKS: dict[Style, int] = {"paper": 8, "page": 5}


class Interval(NamedTuple):
    """One line of :func:`intervals_figure`. The name may be untrusted."""

    name: str
    mean: float | None
    low: float | None
    high: float | None


def intervals_figure(
    name: str,
    intervals: Sequence[Interval],
    axis: str,
    style: Style = "paper",
    *,
    mark: float | None = None,
    title: str = "",
) -> str:
    """Draw a dot with its interval on each line, the first on top, and a line across them at ``mark``.

    Raises:
        MissingExtraError: matplotlib is not installed.
    """
    height = SIZE[style] * (0.075 + 0.034 * max(1, len(intervals)))
    with drawing(name, style, height) as figure:
        axes = figure.subplots()
        if title:
            figure.suptitle(short_name(title, limit=_TITLE_LENGTH))
        for y, interval in enumerate(intervals):
            if interval.low is not None and interval.high is not None:
                ends = [interval.low, interval.high]
                axes.plot(ends, [y, y], color=MARK, linewidth=1.6, solid_capstyle="butt")
            if interval.mean is not None:
                axes.plot([interval.mean], [y], "o", color=MARK, markersize=4.5)
        if mark is not None:
            axes.axvline(mark, color=QUIET, linewidth=0.8)
        axes.set_yticks(range(len(intervals)), [short_name(interval.name) for interval in intervals])
        axes.set_ylim(len(intervals) - 0.4, -0.6)
        axes.tick_params(axis="y", length=0)
        axes.locator_params(axis="x", nbins=_TICKS[style])
        axes.spines["left"].set_visible(False)
        axes.grid(axis="x", color=LINE, linewidth=0.6)
        axes.set_axisbelow(True)
        axes.margins(x=0.08)
        figure.supxlabel(axis)
        return svg(figure, style)


class Points(Protocol):
    """One curve. ``low`` and ``high`` are ends of intervals, or empty; otherwise all have the length of
    ``x``."""

    @property
    def label(self) -> str: ...
    @property
    def x(self) -> Sequence[float]: ...
    @property
    def y(self) -> Sequence[float]: ...
    @property
    def low(self) -> Sequence[float]: ...
    @property
    def high(self) -> Sequence[float]: ...


def curves_figure(
    name: str, title: str, x_label: str, y_label: str, curves: Sequence[Points], *, points: bool = False
) -> str:
    """Draw curves with their intervals, or with ``points`` unconnected dots. Every text may be untrusted.

    Raises:
        MissingExtraError: matplotlib is not installed.
    """
    legend = len(curves) > 1
    height = _HEIGHT
    if legend:
        height = max(height, 0.6 + _LEGEND_LINE_HEIGHT * len(curves))
    with drawing(name, "paper", height) as figure:
        axes = figure.subplots()
        for index, curve in enumerate(curves):
            _draw_curve(axes, curve, index, points)
        axes.set_title(short_name(title, limit=_TITLE_LENGTH))
        axes.set_xlabel(short_name(x_label, limit=_TITLE_LENGTH))
        axes.set_ylabel(fill(short_name(y_label, limit=3 * _Y_LABEL_LENGTH), _Y_LABEL_LENGTH))
        axes.grid(color=LINE, linewidth=0.6)
        axes.set_axisbelow(True)
        if legend:  # outside the axes, because there may be any number of names
            figure.legend(loc="outside right upper", frameon=False)
        return svg(figure, "paper")


def _draw_curve(axes: Axes, curve: Points, index: int, points: bool) -> None:
    colour = _COLOURS[index % len(_COLOURS)]
    line = _DASHES[index // len(_COLOURS) % len(_DASHES)]
    axes.plot(
        curve.x,
        curve.y,
        linestyle="none" if points else line,
        linewidth=1.2,
        marker=_MARKERS[index % len(_MARKERS)],
        markersize=DOT if points else 1.2 * DOT,
        markeredgewidth=0,
        color=colour,
        label=short_name(curve.label),
    )
    if not curve.low:
        return
    if points:
        axes.vlines(curve.x, curve.low, curve.high, color=colour, linewidth=0.8)
    else:
        axes.fill_between(curve.x, curve.low, curve.high, color=colour, alpha=0.15, linewidth=0)
