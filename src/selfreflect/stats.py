"""Means with intervals, paired differences and clustered standard errors, over questions. NumPy only.

What cannot be computed from the values at hand is None, never NaN.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

EXACT_SIGN_FLIPS = 16
"""Up to this many non-zero differences all 2**n sign patterns are enumerated."""

_BLOCK = 2**18
"""Numbers drawn at a time: about 2 MB for each temporary array, however many resamples are asked for."""


@dataclass(frozen=True)
class Estimate:
    """The mean of ``n`` values with its interval, and how many questions there were to have a value.

    ``mean`` is None without values; ``low`` and ``high`` are None with fewer than two.
    """

    mean: float | None
    low: float | None
    high: float | None
    n: int
    total: int
    confidence: float = 0.95

    @property
    def coverage(self) -> float | None:
        """The share of the questions that have a value; None where there are no questions."""
        return self.n / self.total if self.total else None


@dataclass(frozen=True)
class PairedEstimate:
    """How ``b`` differs from ``a`` on the questions they share. A win is a question where ``b`` is lower, which is better."""

    difference: Estimate
    """Mean of b - a; its ``n`` is the number of shared questions."""
    wins: int
    ties: int
    losses: int
    p_value: float | None
    """Two-sided, for the hypothesis that the sign of every difference is a coin toss. None without shared questions."""


def mean_interval(values: Sequence[float], total: int, *, confidence: float = 0.95, resamples: int = 10_000, seed: int = 0) -> Estimate:
    """Mean over questions with a BCa bootstrap interval: bias-corrected and accelerated (Efron 1987, JASA 82, 171-185).

    BCa rather than plain percentiles because scores are skewed (bounded by 0, long to the right): it moves both ends to the longer
    tail, so that its coverage error shrinks as 1/n instead of 1/sqrt(n). The result does not depend on the order of the values.

    Args:
        values: one finite number per question that has one.
        total: how many questions could have had one.

    Raises:
        ValueError: for NaN or infinite values, more values than ``total``, or settings out of range.
    """
    if not 0 < confidence < 1 or resamples < 1:
        raise ValueError(f"confidence must lie between 0 and 1 and resamples be positive; got {confidence} and {resamples}")
    if len(values) > total:
        raise ValueError(f"{len(values)} values for {total} questions")
    ordered = np.sort(_finite(values))
    n = len(ordered)
    if n == 0:
        return Estimate(None, None, None, 0, total, confidence)
    if ordered[0] == ordered[-1]:
        mean = float(ordered[0])
        low, high = (mean, mean) if n > 1 else (None, None)
        return Estimate(mean, low, high, n, total, confidence)
    mean = math.fsum(ordered) / n
    low, high = _bca(ordered - mean, confidence, resamples, seed)
    return Estimate(mean, mean + low, mean + high, n, total, confidence)


def paired_difference(
    a: Mapping[str, float],
    b: Mapping[str, float],
    total: int,
    *,
    confidence: float = 0.95,
    resamples: int = 10_000,
    seed: int = 0,
) -> PairedEstimate:
    """Mean of ``b - a`` over the keys in common, its BCa interval, and a sign-flip permutation p-value.

    Raises:
        ValueError: as :func:`mean_interval`.
    """
    differences = [float(b[key]) - float(a[key]) for key in a.keys() & b.keys()]
    estimate = mean_interval(differences, total, confidence=confidence, resamples=resamples, seed=seed)
    wins = sum(difference < 0 for difference in differences)
    losses = sum(difference > 0 for difference in differences)
    p_value = sign_flip_p(differences, resamples=resamples, seed=seed) if differences else None
    return PairedEstimate(estimate, wins, len(differences) - wins - losses, losses, p_value)


def sign_flip_p(differences: Sequence[float], *, resamples: int = 10_000, seed: int = 0) -> float:
    """Two-sided p-value of the mean difference under random signs: the share of sign patterns at least as extreme.

    Exact for up to ``EXACT_SIGN_FLIPS`` differences other than zero. Beyond that it is sampled, counting the observed pattern as one
    of the draws, so that it is a valid p-value and never 0 (Phipson and Smyth 2010, Stat. Appl. Genet. Mol. Biol. 9, 39).

    Raises:
        ValueError: for NaN or infinite values.
    """
    values = _finite(differences)
    sizes = np.sort(np.abs(values[values != 0]))  # flipping a zero changes nothing
    # Rounding must not decide whether a pattern that is as extreme as the observed one counts as such.
    threshold = abs(math.fsum(values)) - 1e-12 * math.fsum(sizes)
    if len(sizes) <= EXACT_SIGN_FLIPS:
        sums = np.zeros(1)
        for size in sizes:
            sums = np.concatenate((sums - size, sums + size))
        return float(np.mean(np.abs(sums) >= threshold))
    rng = np.random.default_rng(seed)
    extreme = 0
    for rows in _blocks(resamples, len(sizes)):
        negative = rng.integers(0, 2, size=(rows, len(sizes)), dtype=np.int8).astype(np.float64)
        extreme += int(np.count_nonzero(np.abs(sizes.sum() - 2 * (negative @ sizes)) >= threshold))
    return (extreme + 1) / (resamples + 1)


def clustered_mean(per_answer: Sequence[Sequence[float]]) -> tuple[float, float | None]:
    """Flat mean over all token tasks, and its standard error with answers as clusters.

    The mean is a ratio of two sums over answers (distances D_a, token tasks n_a), so its error is that of the ratio estimator,
    linearised: sqrt(m/(m-1) * sum_a (D_a - mean * n_a)^2) / sum_a n_a over the m answers that have token tasks (Cochran, Sampling
    Techniques, 3rd ed. 1977, chapters 6 and 9A). None for fewer than two such answers.

    Raises:
        ValueError: without any value, or for NaN or infinite ones.
    """
    clusters = [_finite(values) for values in per_answer if len(values)]
    if not clusters:
        raise ValueError("no token tasks: a mean needs at least one value")
    sizes = [len(cluster) for cluster in clusters]
    sums = [math.fsum(cluster) for cluster in clusters]
    mean = math.fsum(sums) / sum(sizes)
    m = len(clusters)
    if m < 2:
        return mean, None
    squares = math.fsum((total - mean * size) ** 2 for total, size in zip(sums, sizes, strict=True))
    return mean, math.sqrt(m / (m - 1) * squares) / sum(sizes)


def _finite(values: Sequence[float]) -> Floats:
    array = np.asarray(values, dtype=np.float64)
    if not np.isfinite(array).all():
        raise ValueError("NaN or infinite value: leave out what is undefined and let n and the coverage show it")
    return array


def _blocks(resamples: int, n: int) -> Iterator[int]:
    """How many resamples of ``n`` values to draw at a time."""
    rows = max(1, _BLOCK // n)
    for done in range(0, resamples, rows):
        yield min(rows, resamples - done)


def _bca(deviations: Floats, confidence: float, resamples: int, seed: int) -> tuple[float, float]:
    """Both ends of the interval, relative to the mean, for deviations from it that are not all zero."""
    n = len(deviations)
    rng = np.random.default_rng(seed)
    means = np.concatenate([deviations[rng.integers(0, n, size=(rows, n))].mean(axis=1) for rows in _blocks(resamples, n)])
    rounding = 1e-12 * float(np.abs(deviations).max())
    below = np.mean(means < -rounding) + np.mean(np.abs(means) <= rounding) / 2
    edge = 0.5 / resamples  # all resamples on one side would make the correction infinite
    normal = NormalDist()
    bias = normal.inv_cdf(min(max(float(below), edge), 1 - edge))
    scaled = deviations / np.abs(deviations).max()  # cubes of tiny deviations would underflow
    acceleration = float((scaled**3).sum() / (6 * (scaled**2).sum() ** 1.5))

    def end(quantile: float) -> float:
        shifted = bias + normal.inv_cdf(quantile)
        shrink = 1 - acceleration * shifted
        position = normal.cdf(bias + shifted / shrink) if shrink > 0 else float(shifted > 0)
        return float(np.quantile(means, position))

    return end((1 - confidence) / 2), end((1 + confidence) / 2)
