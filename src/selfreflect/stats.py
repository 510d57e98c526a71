"""Means with intervals, paired differences, clustered standard errors, and means of random subsets of words.
NumPy only.

What cannot be computed from the values at hand is None, never NaN.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
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

    def side_of(self, value: float) -> int:
        """1 if the whole interval lies above ``value``, -1 if below, 0 if it covers ``value`` or is
        missing."""
        if self.low is None or self.high is None:
            return 0
        return int(self.low > value) - int(self.high < value)


@dataclass(frozen=True)
class PairedEstimate:
    """How ``b`` differs from ``a`` on the questions they share. A win is a question where ``b`` is lower,
    which is better."""

    difference: Estimate
    """Mean of b - a; its ``n`` is the number of shared questions."""
    wins: int
    ties: int
    losses: int
    p_value: float | None
    """Two-sided, for the hypothesis that the sign of every difference is a coin toss. None without shared
    questions."""

    @property
    def clear_sign(self) -> int:
        """As :func:`clear_sign`."""
        return clear_sign(self.difference, self.p_value)


def clear_sign(estimate: Estimate, p_value: float | None) -> int:
    """1 if the mean is clearly above 0, -1 if clearly below, else 0.

    A mean is clear when its interval excludes 0 and the sign-flip test (:func:`sign_flip_p`) agrees: on a
    handful of values the bootstrap alone is overconfident, the test never is.
    """
    if p_value is None or p_value > 1 - estimate.confidence:
        return 0
    return estimate.side_of(0)


def mean_interval(
    values: Sequence[float], total: int, *, confidence: float = 0.95, resamples: int = 10_000, seed: int = 0
) -> Estimate:
    """Mean over questions with a BCa bootstrap interval: bias-corrected and accelerated (Efron 1987, JASA 82,
    171-185).

    BCa rather than plain percentiles because scores are skewed (bounded by 0, long to the right): it moves
    both ends to the longer tail, so that its coverage error shrinks as 1/n instead of 1/sqrt(n). The result
    does not depend on the order of the values.

    Args:
        values: one finite number per question that has one.
        total: how many questions could have had one.

    Raises:
        ValueError: for NaN or infinite values, more values than ``total``, or settings out of range.
    """
    if not 0 < confidence < 1 or resamples < 1:
        raise ValueError(
            f"confidence must lie between 0 and 1 and resamples be positive; got {confidence} and {resamples}"
        )
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
    """Two-sided p-value of the mean difference under random signs: the share of sign patterns at least as
    extreme.

    Exact for up to ``EXACT_SIGN_FLIPS`` differences other than zero. Beyond that it is sampled, counting the
    observed pattern as one of the draws, so that it is a valid p-value and never 0 (Phipson and Smyth 2010,
    Stat. Appl. Genet. Mol. Biol. 9, 39).

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

    The mean is a ratio of two sums over answers (distances D_a, token tasks n_a), so its error is that of the
    ratio estimator,
    linearised: sqrt(m/(m-1) * sum_a (D_a - mean * n_a)^2) / sum_a n_a over the m answers that have token
    tasks (Cochran, Sampling Techniques, 3rd ed. 1977, chapters 6 and 9A). None for fewer than two such
    answers.

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


@dataclass(frozen=True)
class WordSample:
    """Words drawn from one masked-out answer without replacement, each with probability proportional to its
    size among those left."""

    total_size: int
    """Token tasks of all words of the answer."""
    count: int
    """All words of the answer."""
    copies: int
    """How often the answer occurs."""
    sizes: tuple[int, ...]
    """Token tasks of the words that were drawn, in the order of the draws."""
    values: tuple[float, ...]
    """Their summed distances (or differences of them)."""

    @property
    def complete(self) -> bool:
        return len(self.values) == self.count

    @property
    def weight(self) -> int:
        """Token tasks of all copies."""
        return self.copies * self.total_size

    @property
    def rates(self) -> list[float]:
        """Distance per token task of each drawn word."""
        return [value / size for value, size in zip(self.values, self.sizes, strict=True)]


@dataclass(frozen=True)
class SampledMean:
    """A flat mean over token tasks, estimated from some of the words."""

    mean: float
    sampling_error: float | None
    """Standard error against the mean over all words of these answers; None where one word tells nothing of
    the spread."""
    stderr: float | None
    """Standard error for answers drawn anew: the same, and the spread between answers. None for one
    answer."""
    degrees: float
    """Degrees of freedom of ``sampling_error``; infinite where it is 0 because nothing is left to draw."""


def sampled_mean(answers: Sequence[WordSample]) -> SampledMean:
    """Unbiased flat mean over all token tasks from words drawn in answers, which are given in the order in
    which answers are drawn.

    With a word of every answer, each answer's sum is estimated by :func:`drawn_sum` and the mean is their
    total over all token tasks (stratified sampling, Cochran, Sampling Techniques, 3rd ed. 1977, chapter 5).
    An answer with one word of several borrows the variance of the rates of all drawn words; since that also
    holds the differences between answers it overstates (collapsed strata, 5A.12). ``stderr`` adds the spread
    of answers as in :func:`clustered_mean`, less what sampling words adds to it.

    With fewer words than answers, the first answers have one word each (two-stage sampling, chapter 11). The
    mean is Des Raj's estimator over answers, and both standard errors are those of draws with replacement,
    which overstate (9A.3).

    Raises:
        ValueError: no word was drawn, or a value is not finite.
    """
    rates = _finite([rate for answer in answers for rate in answer.rates])
    if not len(rates):
        raise ValueError("no word was drawn: an estimate needs at least one")
    whole = sum(answer.weight for answer in answers)
    spread = float(rates.var(ddof=1)) if len(rates) > 1 else None
    if not all(answer.values for answer in answers):
        error = None if spread is None else math.sqrt(spread / len(rates))
        return SampledMean(_first_answers(answers) / whole, error, error, max(1, len(rates) - 1))
    sums = [drawn_sum(answer) for answer in answers]
    mean = math.fsum(answer.copies * total for answer, total in zip(answers, sums, strict=True)) / whole
    variances, degrees = _sum_variances(answers, sums, spread)
    if variances is None:
        return SampledMean(mean, None, None, degrees)
    words = math.fsum(
        answer.copies**2 * variance for answer, variance in zip(answers, variances, strict=True)
    )
    error = math.sqrt(words) / whole
    m = sum(answer.copies for answer in answers)
    if m < 2:
        return SampledMean(mean, error, None, degrees)
    squares = math.fsum(
        answer.copies * (total - mean * answer.total_size) ** 2
        for answer, total in zip(answers, sums, strict=True)
    )
    noise = math.fsum(answer.copies * variance for answer, variance in zip(answers, variances, strict=True))
    between = max(0.0, m / (m - 1) * squares - noise)
    return SampledMean(mean, error, math.sqrt(between + words) / whole, degrees)


def drawn_sum(answer: WordSample) -> float:
    """Unbiased estimate of the sum of an answer's values from its draws (Des Raj 1956, J. Am. Stat. Assoc.
    51, 269-284).

    Draw i estimates the sum by what was drawn before it plus its own rate times the size that was left; given
    those before, this is unbiased. The i-th of N gets the weight 1/((N-i)(N-i+1)), the inverse of its
    variance where sizes are equal, which makes the estimate as precise there as the mean of a simple random
    sample. All words drawn give their sum.
    """
    if answer.complete:
        return math.fsum(answer.values)
    estimates, weights = _draws(answer)
    return float(np.average(estimates, weights=weights))


def student_p(t: float, degrees: float) -> float:
    """Two-sided p-value of Student's t; degrees of freedom are rounded down (Abramowitz and Stegun 1964,
    26.7.3 and 26.7.4)."""
    if math.isinf(degrees):
        return 2 * NormalDist().cdf(-abs(t))
    n = max(1, math.floor(degrees))
    angle = math.atan(abs(t) / math.sqrt(n))
    square, term, total = math.cos(angle) ** 2, 1.0, 0.0
    for k in range(2 + n % 2, n + 1, 2):
        total += term
        term *= square * (k - 1) / k
    inside = (
        2 / math.pi * (angle + math.sin(angle) * math.cos(angle) * total)
        if n % 2
        else math.sin(angle) * total
    )
    return max(0.0, 1 - inside)


@cache
def student_quantile(probability: float, degrees: int) -> float:
    """Quantile of Student's t for a ``probability`` above 0.5, found by bisection of :func:`student_p`."""
    tails = 2 * (1 - probability)
    low, high = 0.0, 1.0
    while student_p(high, degrees) > tails:
        low, high = high, 2 * high
    while high - low > 1e-12 * high:
        middle = (low + high) / 2
        if student_p(middle, degrees) > tails:
            low = middle
        else:
            high = middle
    return high


def _draws(answer: WordSample) -> tuple[Floats, Floats]:
    """What each draw says of the sum of an answer's values, and its weight."""
    values, sizes = np.array(answer.values), np.array(answer.sizes, dtype=np.float64)
    left = answer.total_size - (np.cumsum(sizes) - sizes)
    rest = answer.count - np.arange(1, len(values) + 1)
    return np.cumsum(values) - values + values / sizes * left, 1 / (rest * (rest + 1.0))


def _sum_variances(
    answers: Sequence[WordSample], sums: Sequence[float], spread: float | None
) -> tuple[list[float] | None, float]:
    """Variance of each answer's :func:`drawn_sum`, and their degrees of freedom together (Satterthwaite 1946,
    Biometrics Bull. 2, 110)."""
    variances: list[float] = []
    own = borrowed = 0.0
    for answer, total in zip(answers, sums, strict=True):
        n = len(answer.values)
        if answer.complete:
            variance = 0.0
        elif n > 1:
            estimates, weights = _draws(answer)
            variance = float(np.average((estimates - total) ** 2, weights=weights)) / (n - 1)
            own += (answer.copies**2 * variance) ** 2 / (n - 1)
        elif spread is None:
            return None, 1
        else:
            variance = answer.total_size**2 * spread * (1 - 1 / answer.count)
            borrowed += answer.copies**2 * variance
        variances.append(variance)
    words = sum(len(answer.values) for answer in answers)
    squares = own + (borrowed**2 / (words - 1) if borrowed else 0.0)
    together = sum(answer.copies**2 * variance for answer, variance in zip(answers, variances, strict=True))
    return variances, together**2 / squares if squares else math.inf


def _first_answers(answers: Sequence[WordSample]) -> float:
    """Des Raj's estimate of the sum over all answers from one word in each of the first, drawn by their token
    tasks."""
    left, before, estimates = sum(answer.weight for answer in answers), 0.0, []
    for answer in answers:
        if answer.values:
            estimates.append(before + answer.rates[0] * left)
            before += answer.rates[0] * answer.weight
            left -= answer.weight
    return math.fsum(estimates) / len(estimates)


def _finite(values: Sequence[float]) -> Floats:
    array = np.asarray(values, dtype=np.float64)
    if not np.isfinite(array).all():
        raise ValueError(
            "NaN or infinite value: leave out what is undefined and let n and the coverage show it"
        )
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
    means = np.concatenate(
        [deviations[rng.integers(0, n, size=(rows, n))].mean(axis=1) for rows in _blocks(resamples, n)]
    )
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
