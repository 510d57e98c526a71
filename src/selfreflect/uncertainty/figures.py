"""Draw how an estimator relates to correctness: reliability, risk against coverage, and length."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from selfreflect.plots import (
    DOT,
    INK,
    LINE,
    MARK,
    MARKERS,
    QUIET,
    Style,
    drawing,
    short_name,
    svg,
)
from selfreflect.uncertainty.reliability import ReliabilityBin

DRAWN = 2_000
"""Maximum number of answers drawn as dots."""
_COLOURS = (MARK, QUIET)
_CURVE_POINTS = 200


def reliability_figure(
    name: str, versions: Mapping[str, Sequence[ReliabilityBin]], style: Style = "page"
) -> str:
    """Draw the accuracy of each bin with its interval against mean confidence, and below it the number of
    answers in the bin.

    Args:
        versions: up to two ways to calibrate, by name.
    """
    with drawing(name, style, 4.4) as figure:
        above, below = figure.subplots(2, 1, sharex=True, height_ratios=(3, 1))
        above.plot([0, 1], [0, 1], color=QUIET, linewidth=0.8)
        for place, (label, bins) in enumerate(versions.items()):
            points = [
                (one.confidence, one.accuracy, one.accuracy_low, one.accuracy_high) for one in bins if one.n
            ]
            x, accuracy, low, high = np.array(points, dtype=np.float64).reshape(-1, 4).T
            above.vlines(x, low, high, color=_COLOURS[place], linewidth=1.2)
            above.plot(
                x,
                accuracy,
                MARKERS[place],
                color=_COLOURS[place],
                markersize=5,
                label=short_name(label),
            )
            width = 0.08 / len(versions)
            low, counts = np.array([(one.low, one.n) for one in bins]).T
            starts = low + 0.01 + place * width
            below.bar(starts, counts, width=width, align="edge", color=_COLOURS[place], linewidth=0)
        above.set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.02), ylabel="share correct")
        below.set(xlabel="confidence", ylabel="answers")
        below.locator_params(axis="y", nbins=3, integer=True)
        for axes in (above, below):
            axes.grid(color=LINE, linewidth=0.6)
            axes.set_axisbelow(True)
        if len(versions) > 1:
            figure.legend(loc="outside upper center", frameon=False, ncols=2, fontsize="small")
        return svg(figure, style)


def coverage_figure(
    name: str, risks: Sequence[float], best: Sequence[float], accuracy: float, style: Style = "page"
) -> str:
    """Draw the share of wrong answers among the k most confident, beside a random and the best order.

    Args:
        risks, best: for k = 1, …, n.
    """
    n = len(risks)
    step = max(1, n // _CURVE_POINTS)
    places = np.array([*range(0, n - 1, step), n - 1])
    coverage = (places + 1) / n
    with drawing(name, style, 3.2) as figure:
        axes = figure.subplots()
        axes.plot([0, 1], [1 - accuracy] * 2, "--", color=QUIET, linewidth=1, label="random order")
        axes.plot(coverage, np.asarray(best)[places], ":", color=INK, linewidth=1.2, label="best order")
        axes.plot(coverage, np.asarray(risks)[places], "-", color=MARK, linewidth=1.6, label="estimator")
        axes.set(xlim=(0, 1), ylim=(-0.02, None), xlabel="share of questions answered", ylabel="share wrong")
        axes.grid(color=LINE, linewidth=0.6)
        axes.set_axisbelow(True)
        figure.legend(loc="outside upper center", frameon=False, ncols=3, fontsize="small")
        return svg(figure, style)


def dots_step(count: int) -> int:
    """Every how many answers one is drawn."""
    return max(1, -(-count // DRAWN))


def length_figure(
    name: str, values: Sequence[float], correct: Sequence[float], lengths: Sequence[float], label: str
) -> str:
    """Draw an estimator's value against the length of the judged answer, correct and wrong ones apart."""
    step = dots_step(len(values))
    with drawing(name, "page", 2.8) as figure:
        panels = figure.subplots(1, 2, sharex=True, sharey=True)
        for axes, outcome, title in zip(panels, (1, 0), ("correct", "wrong"), strict=True):
            places = np.flatnonzero(np.asarray(correct) == outcome)
            points = places[places % step == 0]
            x, y = np.asarray(lengths)[points], np.asarray(values)[points]
            axes.plot(x, y, "o", color=MARK, markersize=DOT, markeredgewidth=0)
            axes.set_title(f"{title} (n = {len(places)})")
            axes.grid(color=LINE, linewidth=0.6)
            axes.set_axisbelow(True)
            axes.locator_params(axis="x", nbins=4)
        figure.supxlabel("length of the answer")
        figure.supylabel(label)
        return svg(figure, "page")
