"""Statistics for scores, with NumPy alone. Undefined values are None, never NaN."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from itertools import chain
from statistics import NormalDist
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

CONFIDENCE = 0.95
"""Confidence level of every interval, and complement of every test's level."""

TIE = 1e-6
"""Largest difference that counts as a tie, since the batch size changes the eighth digit."""

FEWEST_TESTED = 6
"""Minimum number of differences for a sign-flip test; with fewer, p < 0.05 is impossible, as the most extreme
of 2^5 patterns and its mirror have 2/32."""

FEWEST_CORRELATED = 5
"""Minimum number of pairs for a rank correlation; four pairs agree perfectly by chance in one of 12 cases."""

EXACT_SIGN_FLIPS = 16
"""Maximum number of non-zero differences for enumerating all 2**n sign patterns."""

CLEAR = NormalDist().inv_cdf((1 + CONFIDENCE) / 2)
"""Half-width of a 95 % interval of normal values, in standard errors."""

# Random numbers drawn at a time, so that each temporary array takes about 2 MB.
_BLOCK = 2**18


T = TypeVar("T")


@dataclass(frozen=True)
class Estimate:
    """Mean of ``n`` values with its interval, out of ``total`` questions.

    ``mean`` is None without values, ``low`` and ``high`` with fewer than two.
    """

    mean: float | None
    low: float | None
    high: float | None
    n: int
    total: int

    @property
    def coverage(self) -> float | None:
        """Share of questions that have a value; None without questions."""
        return self.n / self.total if self.total else None

    def side_of(self, value: float) -> int:
        """Return 1 if the whole interval lies above ``value``, -1 if below, else 0."""
        if self.low is None or self.high is None:
            return 0
        return int(self.low > value) - int(self.high < value)

    def mirrored(self) -> Estimate:
        """Negate the mean and its interval."""
        # no -0.0, which is printed with its sign
        mean, low, high = (None if end is None else -end or 0.0 for end in (self.mean, self.high, self.low))
        return replace(self, mean=mean, low=low, high=high)

    def without_interval(self) -> Estimate:
        return replace(self, low=None, high=None)


@dataclass(frozen=True)
class PairedEstimate:
    """Difference ``b - a`` on the shared questions. A win is a question where ``b`` is better."""

    difference: Estimate
    """Estimate with ``n`` as the number of shared questions."""
    wins: int
    ties: int
    losses: int
    p_value: float | None
    """Two-sided p-value, under random signs of the differences. None without shared questions."""

    @property
    def is_testable(self) -> bool:
        """Whether enough questions differ for a test to reach significance."""
        return self.wins + self.losses >= FEWEST_TESTED


def clear_sign(estimate: Estimate, p_value: float | None) -> int:
    """Return 1 if the mean is clearly above 0, -1 if clearly below, else 0.

    Clear means that the interval excludes 0 and the sign-flip test (:func:`sign_flip_p`) agrees: for a few
    values the bootstrap alone is overconfident.
    """
    if p_value is None or p_value > 1 - CONFIDENCE:
        return 0
    return estimate.side_of(0)


def mean_interval(values: Sequence[float], total: int, *, resamples: int = 10_000, seed: int = 0) -> Estimate:
    """Compute the mean with its BCa bootstrap interval (bias-corrected and accelerated; Efron 1987, JASA 82,
    171-185).

    BCa rather than plain percentiles because scores are skewed (bounded by 0, long right tail): it moves both
    ends towards the longer tail, and its coverage error shrinks as 1/n instead of 1/sqrt(n). The order of the
    values makes no difference.

    Args:
        values: one finite number for each question that has one.
        total: number of questions that could have one.

    Raises:
        ValueError: NaN or infinite values.
    """
    # sorted, because resamples are drawn by position and the order must not matter
    ascending = np.sort(finite_array(values))
    n = len(ascending)
    if n == 0:
        return Estimate(None, None, None, 0, total)
    # all resamples of equal values have their mean, and the acceleration would be 0 / 0
    if ascending[0] == ascending[-1]:
        mean = float(ascending[0])
        low, high = (mean, mean) if n > 1 else (None, None)
        return Estimate(mean, low, high, n, total)
    mean = math.fsum(ascending) / n
    low, high = _bca(ascending - mean, resamples, seed)
    return Estimate(mean, mean + low, mean + high, n, total)


def ratio_interval(
    pairs: Sequence[tuple[float, float]], total: int, *, resamples: int = 10_000, seed: int = 0
) -> Estimate:
    """Compute a ratio of sums, sum(x) / sum(y), with its BCa bootstrap interval over pairs (x, y).

    A mean is the case in which every y is 1. The acceleration comes from the influence of each pair, which is
    x - ratio * y up to a factor (Efron and Tibshirani 1993, An Introduction to the Bootstrap, 14.3 and 22.6).
    The order of the pairs makes no difference.

    Args:
        pairs: of each question that has one; every y is above 0.
        total: number of questions that could have one.

    Raises:
        ValueError: NaN or infinite values, or a y that is not above 0.
    """
    if not pairs:
        return Estimate(None, None, None, 0, total)
    x, y = finite_array(list(chain.from_iterable(sorted(pairs)))).reshape(-1, 2).T
    if y.min() <= 0:
        raise ValueError("a denominator is not above 0: leave out undefined ratios, so that n shows it")
    ratio = math.fsum(x) / math.fsum(y)
    deviations = x - ratio * y
    # all pairs have one ratio, up to rounding
    if np.abs(deviations).max() <= 1e-12 * np.abs(x).max():
        low, high = (ratio, ratio) if len(pairs) > 1 else (None, None)
        return Estimate(ratio, low, high, len(pairs), total)
    low, high = _bca(deviations, resamples, seed, y)
    return Estimate(ratio, ratio + low, ratio + high, len(pairs), total)


def is_tie(a: float, b: float) -> bool:
    """Check whether two scores or shares count as equal."""
    return abs(a - b) < TIE


def settled(values: Sequence[float]) -> list[float]:
    """Make ties exactly equal, by replacing each value with the lowest of its ties."""
    lowest = -math.inf
    by_value = {}
    for value in sorted(values):
        if not is_tie(value, lowest):
            lowest = value
        by_value[value] = lowest
    return [by_value[value] for value in values]


def paired_difference(
    a: Mapping[str, float],
    b: Mapping[str, float],
    total: int,
    *,
    scale: Mapping[str, float] | None = None,
    higher_is_better: bool = False,
) -> PairedEstimate:
    """Compute the mean of ``b - a`` over common keys, its BCa interval, and a sign-flip p-value.

    Ties differ by 0 exactly.

    Args:
        total: number of questions that could have a difference.
        scale: a number above 0 for each common key. With it the estimate is the sum of the differences as a
            share of the sum of these numbers.
        higher_is_better: a win is a question where ``b`` is higher, not lower.

    Raises:
        ValueError: NaN or infinite values.
    """
    keys = a.keys() & b.keys()
    scales = dict.fromkeys(keys, 1.0) if scale is None else scale
    # ties are exact zeros, so that the sign-flip test does not flip rounding
    differences = [
        0.0 if is_tie(a[key] / scales[key], b[key] / scales[key]) else b[key] - a[key] for key in keys
    ]
    lower = sum(difference < 0 for difference in differences)
    higher = sum(difference > 0 for difference in differences)
    wins, losses = (higher, lower) if higher_is_better else (lower, higher)
    # both directions draw the same resamples, so that the interval of a - b mirrors that of b - a
    mirrored = sorted(-difference for difference in differences)
    is_mirrored = (math.fsum(mirrored), mirrored) > (math.fsum(differences), sorted(differences))
    sign = -1.0 if is_mirrored else 1.0
    oriented = [sign * difference or 0.0 for difference in differences]
    if scale is None:
        estimate = mean_interval(oriented, total)
    else:
        estimate = ratio_interval(list(zip(oriented, map(scale.__getitem__, keys), strict=True)), total)
    if is_mirrored:
        estimate = estimate.mirrored()
    p_value = sign_flip_p(differences) if differences else None
    return PairedEstimate(estimate, wins, len(differences) - wins - losses, losses, p_value)


def sign_flip_p(differences: Sequence[float], *, resamples: int = 10_000, seed: int = 0) -> float:
    """Compute the two-sided p-value of a mean difference: the share of sign patterns at least as extreme.

    Exact for up to ``EXACT_SIGN_FLIPS`` non-zero differences. Otherwise patterns are sampled and the observed
    one is counted as a draw, so that the p-value is valid and never 0 (Phipson and Smyth 2010, Stat. Appl.
    Genet. Mol. Biol. 9, 39).

    Raises:
        ValueError: NaN or infinite values.
    """
    values = finite_array(differences)
    sizes = np.sort(np.abs(values[values != 0]))  # flipping a zero changes nothing
    # The tolerance keeps rounding from excluding patterns that are exactly as extreme as the observed one.
    threshold = abs(math.fsum(values)) - 1e-12 * math.fsum(sizes)
    if len(sizes) <= EXACT_SIGN_FLIPS:
        sums = np.zeros(1)
        for size in sizes:
            # each value doubles the patterns: in the end there are 2**n
            sums = np.concatenate((sums - size, sums + size))
        return float(np.mean(np.abs(sums) >= threshold))
    return _drawn_sign_flip_p(sizes.tobytes(), threshold, resamples, seed)


@lru_cache(maxsize=2**6)
def _drawn_sign_flip_p(data: bytes, threshold: float, resamples: int, seed: int) -> float:
    # a page asks for the p-value of two strategies many times, in both directions
    sizes = np.frombuffer(data)
    rng = np.random.default_rng(seed)
    extreme = 0
    for rows in _blocks(resamples, len(sizes)):
        negative = rng.integers(0, 2, size=(rows, len(sizes)), dtype=np.int8).astype(np.float64)
        # the sum of all less twice those whose sign is flipped
        extreme += int(np.count_nonzero(np.abs(sizes.sum() - 2 * (negative @ sizes)) >= threshold))
    return (extreme + 1) / (resamples + 1)


def clustered_mean(per_answer: Sequence[Sequence[float]]) -> tuple[float, float | None]:
    """Compute the flat mean over all token tasks, and its standard error with answers as clusters.

    The mean is a ratio of two sums over answers (distances D_a, token tasks n_a). Its error is the linearised
    error of the ratio estimator, sqrt(m/(m-1) * sum_a (D_a - mean * n_a)^2) / sum_a n_a, over the m answers
    with token tasks (Cochran, Sampling Techniques, 3rd ed. 1977, chapters 6 and 9A); None if m < 2.

    Raises:
        ValueError: no values, or NaN or infinite ones.
    """
    clusters = [finite_array(values) for values in per_answer if len(values)]
    if not clusters:
        raise ValueError("no token tasks: a mean needs at least one value")
    sizes = list(map(len, clusters))
    sums = list(map(math.fsum, clusters))
    mean = math.fsum(sums) / sum(sizes)
    m = len(clusters)
    if m < 2:
        return mean, None
    squares = math.fsum((total - mean * size) ** 2 for total, size in zip(sums, sizes, strict=True))
    return mean, math.sqrt(m / (m - 1) * squares) / sum(sizes)


def rank_correlation(a: Sequence[float], b: Sequence[float]) -> Estimate:
    """Compute Spearman's rho with its 95% interval; ties share their mean rank.

    The mean is None if one side does not vary, or with fewer than ``FEWEST_CORRELATED`` pairs; the ends are
    None too if the correlation is perfect. The interval uses Fisher's z with the variance of Bonett and
    Wright (2000), Psychometrika 65, 23-28: (1 + rho^2 / 2) / (n - 3).
    """
    n, rho = len(a), spearman(a, b)
    if rho is None or n < FEWEST_CORRELATED:
        return Estimate(None, None, None, n, n)
    # 1 but for rounding, where atanh is not defined
    if math.isclose(abs(rho), 1, rel_tol=1e-12):
        return Estimate(float(round(rho)), None, None, n, n)
    half = CLEAR * math.sqrt((1 + rho**2 / 2) / (n - 3))
    return Estimate(rho, math.tanh(math.atanh(rho) - half), math.tanh(math.atanh(rho) + half), n, n)


def pearson(x: Sequence[float] | Floats, y: Sequence[float] | Floats) -> float | None:
    """Compute the product-moment correlation; None for fewer than 3 points or a constant side."""
    a, b = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    if len(a) < 3 or a.min() == a.max() or b.min() == b.max():
        return None
    # scaled first: squares of very small or very large numbers leave the range of floats
    return float(np.corrcoef(a / np.abs(a).max(), b / np.abs(b).max())[0, 1])


def spearman(x: Sequence[float] | Floats, y: Sequence[float] | Floats) -> float | None:
    """Compute Spearman's rho with ties at their mean rank; see :func:`pearson`."""
    return pearson(*(ranks(np.asarray(values, dtype=np.float64)) for values in (x, y)))


def ranks(values: Floats) -> Floats:
    """Rank values from 1; equal values share the mean of their ranks."""
    _, groups, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    # the mean of the ranks from last - count + 1 to last
    means: Floats = last - (counts - 1) / 2
    return means[groups.reshape(-1)]


def wilson(share: float, n: int) -> tuple[float, float]:
    """Compute the 95% score interval of a share of n (Wilson 1927, J. Am. Stat. Assoc. 22, 209-212).

    Unlike mean and standard error it stays in [0, 1] and has a width for shares of 0 and 1.
    """
    square = CLEAR**2 / n
    middle = (share + square / 2) / (1 + square)
    half = CLEAR * math.sqrt(share * (1 - share) / n + square / (4 * n)) / (1 + square)
    return max(0.0, middle - half), min(1.0, middle + half)


def student_p(t: float, degrees: float) -> float:
    """Compute the two-sided p-value of Student's t (Abramowitz and Stegun 1964, 26.7.3 and 26.7.4).

    ``degrees`` of freedom are rounded down, to at least 1.
    """
    if math.isinf(degrees):
        return 2 * NormalDist().cdf(-abs(t))
    n = max(1, math.floor(degrees))
    angle = math.atan(abs(t) / math.sqrt(n))
    square = math.cos(angle) ** 2
    series = 0.0
    term = 1.0
    # the series of odd degrees begins at k = 3, that of even ones at 2
    for k in range(2 + n % 2, n + 1, 2):
        series += term
        term *= square * (k - 1) / k
    inside = math.sin(angle) * series
    if n % 2:
        inside = 2 / math.pi * (angle + math.cos(angle) * inside)
    return max(0.0, 1 - inside)


@cache
def student_quantile(probability: float, degrees: int) -> float:
    """Compute a quantile of Student's t for a ``probability`` above 0.5, by bisection of
    :func:`student_p`."""
    tails = 2 * (1 - probability)
    high = 1.0
    while student_p(high, degrees) > tails:
        high *= 2
    return end_of(lambda t: student_p(t, degrees) > tails, 0.0, high)


def half_width(values: Sequence[float], probability: float) -> float:
    """Compute the half-width of the mean's interval by Student's t; infinite for fewer than two values."""
    if len(values) < 2:
        return math.inf
    stderr = float(np.std(values, ddof=1)) / math.sqrt(len(values))
    return student_quantile(probability, len(values) - 1) * stderr


def share_interval(share: float, residuals: Sequence[float], mean: float) -> tuple[float, float] | None:
    """Compute the 95 % interval of a ratio of means by linearisation, with Student's t.

    (Cochran 1977, Sampling Techniques, 6.3.) None for fewer than two residuals, or equal ones.

    Args:
        residuals: x - share * y of each pair (x, y).
        mean: of y.
    """
    half = half_width(residuals, (1 + CONFIDENCE) / 2) / mean
    # equal residuals do not show how far others would differ
    return (share - half, share + half) if TIE < half < math.inf else None


def end_of(holds: Callable[[float], bool], low: float, high: float) -> float:
    """Find by bisection where a condition stops holding, between ``low`` and ``high``."""
    for _ in range(60):  # halvings beyond the digits of a float
        middle = (low + high) / 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return high


def defined(values: Iterable[T | None]) -> list[T]:
    """Leave out values that are None."""
    return [value for value in values if value is not None]


def finite_array(values: Sequence[float]) -> Floats:
    """Convert values to an array.

    Raises:
        ValueError: a value is NaN or infinite.
    """
    array = np.asarray(values, dtype=np.float64)
    if not np.isfinite(array).all():
        raise ValueError(
            "NaN or infinite value: leave out undefined values, so that n and coverage do not count them"
        )
    return array


def _blocks(resamples: int, n: int) -> list[int]:
    """Split ``resamples`` of ``n`` values into blocks of limited memory."""
    rows = max(1, _BLOCK // n)
    return [min(rows, resamples - start) for start in range(0, resamples, rows)]


def _bca(deviations: Floats, resamples: int, seed: int, weights: Floats | None = None) -> tuple[float, float]:
    """Compute the BCa interval's ends relative to the estimate, from deviations that are not all zero.

    The estimate is their mean, or with ``weights`` their sum as a share of the sum of these."""
    # a page asks for the interval of one strategy many times
    return _bca_of_bytes(
        deviations.tobytes(), None if weights is None else weights.tobytes(), resamples, seed
    )


@lru_cache(maxsize=2**6)
def _bca_of_bytes(data: bytes, weights_data: bytes | None, resamples: int, seed: int) -> tuple[float, float]:
    deviations = np.frombuffer(data)
    weights = None if weights_data is None else np.frombuffer(weights_data)
    n = len(deviations)
    rng = np.random.default_rng(seed)
    blocks = []
    for rows in _blocks(resamples, n):
        indices = rng.integers(0, n, size=(rows, n))
        means = deviations[indices].mean(axis=1)
        blocks.append(means if weights is None else means / weights[indices].mean(axis=1))
    means = np.concatenate(blocks)
    largest = np.abs(deviations).max()
    rounding = 1e-12 * float(largest)
    # a resample that equals the estimate counts half as below it
    below = np.mean(means < -rounding) + np.mean(np.abs(means) <= rounding) / 2
    edge = 0.5 / resamples  # resamples all on one side would make the correction infinite
    normal = NormalDist()
    bias = normal.inv_cdf(min(max(float(below), edge), 1 - edge))
    scaled = deviations / largest  # cubes of tiny deviations would underflow
    # from the deviations, the influence of each value, in place of jackknife values
    acceleration = float((scaled**3).sum() / (6 * (scaled**2).sum() ** 1.5))
    ends = []
    for quantile in ((1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2):
        shifted = bias + normal.inv_cdf(quantile)
        shrink = 1 - acceleration * shifted
        # beyond the pole of the formula the end is that of all resamples
        position = normal.cdf(bias + shifted / shrink) if shrink > 0 else float(shifted > 0)
        ends.append(float(np.quantile(means, position)))
    return ends[0], ends[1]


_DRAWN_SPLITS = 2000

FEW_EXACT = 1500
"""Maximum number of members for the exact test, which then takes about a second."""


def _halves_p_value_drawn(pairs: Sequence[tuple[int, int]]) -> float:
    """Estimate :func:`halves_p_value` from random splits, including the observed one."""
    sizes = np.array([sum(pair) for pair in pairs])
    half = sum(first for first, _ in pairs)
    random = np.random.default_rng(0)
    first = random.multivariate_hypergeometric(sizes, half, size=_DRAWN_SPLITS, method="marginals")
    overlaps = np.minimum(first, sizes - first).sum(axis=1)
    return float((1 + (overlaps <= sum(map(min, pairs))).sum()) / (1 + _DRAWN_SPLITS))


def halves_p_value(counts: Iterable[tuple[int, int]]) -> float:
    """Test whether two halves are a random split of their classes.

    Args:
        counts: of each class, its members in the first and in the second half.

    Returns:
        The exact p-value: the share of all splits of these sizes whose overlap, the sum over classes of the
        smaller count, is not larger. 1 if no class has two members.
    """
    return _halves_p_value(tuple(counts))


@lru_cache(maxsize=2**10)
def _halves_p_value(pairs: tuple[tuple[int, int], ...]) -> float:
    # many questions of a run have classes of the same sizes
    if sum(map(sum, pairs)) > FEW_EXACT:
        return _halves_p_value_drawn(pairs)
    taken = sum(first for first, _ in pairs)
    observed = sum(map(min, pairs))
    largest = sum(sum(pair) // 2 for pair in pairs)
    # chance, up to a factor, of each number of members in the first half (rows) and overlap (columns)
    chances = np.zeros((taken + 1, largest + 1))
    chances[0, 0] = 1.0
    for size in map(sum, pairs):
        longer = np.zeros_like(chances)
        for count in range(min(size, taken) + 1):
            overlap = min(count, size - count)
            # in proportion to the largest, since counts of large classes exceed a float
            ways = math.comb(size, count) / math.comb(size, size // 2)
            longer[count:, overlap:] += ways * chances[: taken + 1 - count, : largest + 1 - overlap]
        chances = longer / longer.max()
    whole = chances[taken]
    return min(1.0, float(whole[: observed + 1].sum() / whole.sum()))


def discoveries(p_values: Mapping[T, float]) -> list[T]:
    """Select the tests that are significant at a false discovery rate (Benjamini and Hochberg 1995)."""
    keys = sorted(p_values, key=lambda key: p_values[key])
    total = len(keys)
    last = 0
    for rank, key in enumerate(keys, start=1):
        # the last rank that passes takes all before it along
        if p_values[key] <= (1 - CONFIDENCE) * rank / total:
            last = rank
    return keys[:last]
