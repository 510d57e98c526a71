"""Compare two scores on the same answers."""

from __future__ import annotations

import numpy as np

from selfreflect.stats import Estimate, Floats
from selfreflect.uncertainty.discrimination import auroc
from selfreflect.uncertainty.measures import FEWEST_RESAMPLED, RESAMPLES, least_share, percentile_interval
from selfreflect.uncertainty.tally import Tally


def auroc_difference(one: Floats, other: Floats, correct: Floats, *, seed: int = 0) -> Estimate | None:
    """AUROC of one score minus that of another, in the same resamples of the answers.

    Args:
        one, other, correct: shape (n,); a higher score means more confidence.

    Returns:
        The difference with its 95% bootstrap interval, whose ends are None where there are too few answers.
        None where AUROC is undefined: all answers are correct, or all are wrong.
    """
    n = len(correct)
    columns = [np.unique(scores, return_inverse=True) for scores in (one, other)]

    def difference(weights: Floats) -> float:
        """Of a resample, in which each answer occurs so often."""
        areas = []
        for values, group in columns:
            counts: Floats = np.bincount(group, weights, minlength=len(values)).astype(np.float64)
            right: Floats = np.bincount(group, weights * correct, minlength=len(values)).astype(np.float64)
            areas.append(float(auroc(Tally(values, counts, right))))
        return areas[0] - areas[1]

    value = difference(np.ones(n))
    if np.isnan(value):
        return None
    rng = np.random.default_rng(seed)
    differences = []
    smallest = min(float(correct.sum()), n - float(correct.sum()))
    if smallest >= FEWEST_RESAMPLED:
        for _ in range(RESAMPLES):
            rows = rng.integers(0, n, n)
            differences.append(difference(np.bincount(rows, minlength=n).astype(np.float64)))
    low, high = percentile_interval([np.array(differences)] if differences else [], value)
    if differences and abs(value) == 1:  # so are all resamples
        least = 2 * least_share(smallest) - 1
        low, high = (least, 1.0) if value > 0 else (-1.0, -least)
    return Estimate(value, low, high, n, n)
