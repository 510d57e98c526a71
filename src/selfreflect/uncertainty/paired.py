"""Compare two scores on the same answers."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from selfreflect.stats import Floats
from selfreflect.uncertainty.discrimination import auroc
from selfreflect.uncertainty.measures import FEWEST_RESAMPLED, RESAMPLES
from selfreflect.uncertainty.tally import Tally


class Difference(NamedTuple):
    """A difference with its 95% bootstrap interval; the ends are None where too few resamples have one."""

    value: float
    low: float | None
    high: float | None


def auroc_difference(one: Floats, other: Floats, correct: Floats, *, seed: int = 0) -> Difference | None:
    """AUROC of one score minus that of another, in the same resamples of the answers.

    Args:
        one, other, correct: shape (n,); a higher score means more confidence.

    Returns:
        None where AUROC is undefined: all answers are correct, or all are wrong.
    """
    value = _difference(one, other, correct)
    if np.isnan(value):
        return None
    rng = np.random.default_rng(seed)
    drawn = []
    if len(correct) >= FEWEST_RESAMPLED:
        for _ in range(RESAMPLES):
            rows = rng.integers(0, len(correct), len(correct))
            drawn.append(_difference(one[rows], other[rows], correct[rows]))
    defined = np.array([difference for difference in drawn if not np.isnan(difference)])
    if len(defined) < 0.95 * RESAMPLES:
        return Difference(value, None, None)
    low, high = np.quantile(defined, [0.025, 0.975])
    return Difference(value, float(low), float(high))


def _difference(one: Floats, other: Floats, correct: Floats) -> float:
    return float(auroc(Tally.of(one, correct)) - auroc(Tally.of(other, correct)))
