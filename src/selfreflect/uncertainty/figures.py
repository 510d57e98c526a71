"""Figures of calibration, discrimination and selection, from bins with counts."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from selfreflect.errors import DataError
from selfreflect.plots import (
    CHOICE,
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
from selfreflect.stats import CONFIDENCE, Floats
from selfreflect.uncertainty.guarantee import upper_bound
from selfreflect.uncertainty.prediction import BINS, bin_of

_CLEAR = 1.96


@dataclass(frozen=True)
class ReliabilityBin:
    """The answers whose confidence lies in one bin; a bin without answers has no means."""

    low: float
    high: float
    n: int
    confidence: float | None
    """Mean confidence."""
    accuracy: float | None
    """Share of correct answers, with its 95% Wilson interval."""
    accuracy_low: float | None
    accuracy_high: float | None

    @property
    def name(self) -> str:
        """The bin as an interval; the last one also contains 1."""
        return f"[{self.low:g}, {self.high:g}{']' if self.high == 1 else ')'}"


def reliability(
    confidences: Sequence[float] | Floats, correct: Sequence[bool] | Floats, bins: int = BINS
) -> list[ReliabilityBin]:
    """Count answers in bins of equal width, ``[low, high)``: those of the measure ``ece_10_left``.

    Args:
        confidences: in [0, 1], shape (n,).
        correct: 0 or 1, shape (n,).

    Raises:
        DataError: a confidence is outside [0, 1].
    """
    values = np.asarray(confidences, dtype=np.float64)
    labels = np.asarray(correct, dtype=np.float64)
    if not ((values >= 0) & (values <= 1)).all():
        raise DataError("a reliability diagram needs confidences in [0, 1]")
    bin_numbers = bin_of(values, bins)
    result = []
    for number in range(bins):
        inside = bin_numbers == number
        low, high = number / bins, (number + 1) / bins
        count = int(inside.sum())
        if not count:
            result.append(ReliabilityBin(low, high, 0, None, None, None, None))
            continue
        accuracy = float(labels[inside].mean())
        ends = wilson(accuracy, count)
        result.append(ReliabilityBin(low, high, count, float(values[inside].mean()), accuracy, *ends))
    return result


def wilson(share: float, n: int) -> tuple[float, float]:
    """Compute the 95% score interval of a share of n (Wilson 1927, J. Am. Stat. Assoc. 22, 209-212).

    Unlike mean and standard error it stays in [0, 1] and has a width for shares of 0 and 1.
    """
    square = _CLEAR**2 / n
    middle = (share + square / 2) / (1 + square)
    half = _CLEAR * math.sqrt(share * (1 - share) / n + square / (4 * n)) / (1 + square)
    return max(0.0, middle - half), min(1.0, middle + half)


_COLOURS = (MARK, QUIET)
_CURVE_POINTS = 200
_BOUND_POINTS = 40


def reliability_figure(
    name: str, versions: Mapping[str, Sequence[ReliabilityBin]], style: Style = "page"
) -> str:
    """Draw accuracy with intervals against mean confidence, above the answers per bin.

    Args:
        versions: up to two ways to calibrate, by name.
    """
    with drawing(name, style, 4.4) as figure:
        above, below = figure.subplots(2, 1, sharex=True, height_ratios=(3, 1))
        above.plot([0, 1], [0, 1], color=QUIET, linewidth=0.8)
        for index, (label, bins) in enumerate(versions.items()):
            points = [
                (entry.confidence, entry.accuracy, entry.accuracy_low, entry.accuracy_high)
                for entry in bins
                if entry.n
            ]
            x, accuracy, low, high = np.array(points, dtype=np.float64).reshape(-1, 4).T
            above.vlines(x, low, high, color=_COLOURS[index], linewidth=1.2)
            above.plot(
                x,
                accuracy,
                MARKERS[index],
                color=_COLOURS[index],
                markersize=5,
                label=short_name(label),
            )
            width = 0.08 / len(versions)
            low, counts = np.array([(entry.low, entry.n) for entry in bins]).T
            starts = low + 0.01 + index * width
            below.bar(starts, counts, width=width, align="edge", color=_COLOURS[index], linewidth=0)
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
    name: str,
    risks: Sequence[float],
    best: Sequence[float],
    accuracy: float,
    style: Style = "page",
    *,
    guaranteed: Mapping[float, tuple[float, float]] | None = None,
) -> str:
    """Draw the errors of the k most confident answers, beside random and best order, with their bound.

    Args:
        risks, best: for k = 1, …, n.
        guaranteed: by risk the share answered and the bound of the risk there.
    """
    n = len(risks)
    step = max(1, n // _CURVE_POINTS)
    indices = np.array([*range(0, n - 1, step), n - 1])
    coverage = (indices + 1) / n
    with drawing(name, style, 3.2) as figure:
        axes = figure.subplots()
        axes.plot([0, 1], [1 - accuracy] * 2, "--", color=QUIET, linewidth=1, label="random order")
        axes.plot(coverage, np.asarray(best)[indices], ":", color=INK, linewidth=1.2, label="best order")
        axes.plot(coverage, np.asarray(risks)[indices], "-", color=MARK, linewidth=1.6, label="estimator")
        counts = np.unique(np.linspace(1, n, min(n, _BOUND_POINTS)).astype(int))
        bounds = [upper_bound(round(risks[count - 1] * count), int(count), CONFIDENCE) for count in counts]
        risk_values = np.asarray(risks)[counts - 1]
        axes.fill_between(counts / n, risk_values, bounds, color=MARK, alpha=0.15, linewidth=0)
        for risk, (share, bound) in (guaranteed or {}).items():
            mark = axes.plot([share], [bound], "D", color=INK, markersize=6, gid=f"{CHOICE}{risk:g}")
            mark[0].set_clip_on(False)  # a share of 1 lies on the edge
        axes.set(xlim=(0, 1), ylim=(-0.02, None), xlabel="share of questions answered", ylabel="share wrong")
        axes.grid(color=LINE, linewidth=0.6)
        axes.set_axisbelow(True)
        figure.legend(loc="outside upper center", frameon=False, ncols=3, fontsize="small")
        return svg(figure, style)
