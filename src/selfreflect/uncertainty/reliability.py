"""Compare confidences with the share of correct answers, bin by bin."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from selfreflect.errors import DataError
from selfreflect.stats import Floats
from selfreflect.uncertainty.calibration import BINS, bin_of

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
    places = bin_of(values, bins)
    result = []
    for number in range(bins):
        inside = places == number
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
    """The 95% score interval of a share of n (Wilson 1927, J. Am. Stat. Assoc. 22, 209-212).

    Unlike mean and standard error it stays in [0, 1] and has a width for shares of 0 and 1.
    """
    square = _CLEAR**2 / n
    middle = (share + square / 2) / (1 + square)
    half = _CLEAR * math.sqrt(share * (1 - share) / n + square / (4 * n)) / (1 + square)
    return max(0.0, middle - half), min(1.0, middle + half)
