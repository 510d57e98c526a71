"""Curves on common axes, for papers: what a study or a benchmark found, as lines with intervals or as
dots."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import fill
from typing import TYPE_CHECKING, Protocol

from selfreflect.render.plots import DOT, LINE, MARK, drawing, short_name, svg

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_COLOURS = (MARK, "#b5533c", "#c99a2e", "#2f7d5b", "#7a4fa0", "#4f5761")
_MARKERS = ("o", "s", "^", "D", "v", "P")
_DASHES = ("-", "--", ":")
"""Curves beyond the sixth repeat its colour and marker with another line, and are still told apart."""
_HEIGHT, _LINE_HEIGHT = 2.8, 0.17
"""Inches: of a figure, and of one line of its legend."""
_LABEL = 44
"""Characters that fit beside the axes from top to bottom."""


class Points(Protocol):
    """One curve. ``low`` and ``high`` are the ends of intervals, both empty where there are none; all have
    the length of ``x``."""

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
    """The SVG of one figure. ``points`` draws dots that no line joins. Every text may be untrusted.

    Raises:
        MissingExtraError: matplotlib is not installed.
    """
    legend = len(curves) > 1
    with drawing(
        name, "paper", max(_HEIGHT, 0.6 + _LINE_HEIGHT * len(curves)) if legend else _HEIGHT
    ) as figure:
        axes = figure.subplots()
        draw_curves(axes, curves, points=points)
        axes.set_title(short_name(title, limit=90))
        axes.set_xlabel(short_name(x_label, limit=90))
        axes.set_ylabel(fill(short_name(y_label, limit=3 * _LABEL), _LABEL))
        axes.grid(color=LINE, linewidth=0.6)
        axes.set_axisbelow(True)
        if legend:  # beside the axes, since any number of names must fit
            figure.legend(loc="outside right upper", frameon=False)
        return svg(figure, "paper")


def draw_curves(axes: Axes, curves: Sequence[Points], *, points: bool = False) -> None:
    """Every curve with its interval, in the order of the legend."""
    for place, curve in enumerate(curves):
        colour, marker = _COLOURS[place % len(_COLOURS)], _MARKERS[place % len(_MARKERS)]
        dashes = "" if points else _DASHES[place // len(_COLOURS) % len(_DASHES)]
        axes.plot(
            curve.x,
            curve.y,
            linestyle=dashes or "none",
            linewidth=1.2,
            marker=marker,
            markersize=DOT if points else 1.2 * DOT,
            markeredgewidth=0,
            color=colour,
            label=short_name(curve.label),
        )
        if curve.low and points:
            axes.vlines(curve.x, curve.low, curve.high, color=colour, linewidth=0.8)
        elif curve.low:
            axes.fill_between(curve.x, curve.low, curve.high, color=colour, alpha=0.15, linewidth=0)
