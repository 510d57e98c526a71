"""Statistics that studies share: means and their tests, correlations with intervals, and what a number of
pairs can show. What is undefined is None, never NaN."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import replace
from functools import lru_cache
from statistics import fmean
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from selfreflect.errors import MissingExtraError
from selfreflect.stats import (
    FEWEST_CORRELATED,
    TIE,
    Estimate,
    Floats,
    clear_sign,
    defined,
    mean_interval,
    sign_flip_p,
)

Kind = Literal["spearman", "pearson"]
Numbers = Sequence[float] | Floats
Indices = NDArray[np.intp]

ALPHA, POWER = 0.05, 0.8
RESAMPLES = 2_000
FEWEST_RESAMPLED = 5
"""Fewer units allow no bootstrap: four have only 35 different resamples."""
_RELATIVE_DIGITS = 9
"""Smaller parts of the largest value are taken to be rounding."""


def scipy_stats() -> Any:
    """``scipy.stats``, or a MissingExtraError."""
    try:
        from scipy import stats
    except ImportError:
        raise MissingExtraError("validating a metric", "validate") from None
    return stats


def bounded_mean(values: Sequence[float], lowest: float, highest: float, *, seed: int = 0) -> Estimate:
    """Mean of finite values between two bounds, with a 95% BCa bootstrap interval.

    If all n values are equal, a bootstrap would be certain. The ends are exact then: with 95% confidence
    other values have a share below 1 - 0.025^(1/n) (Clopper and Pearson 1934, Biometrika 26, 404-413), and
    those could lie at the bounds. Sixty wins of sixty thus give 94% to 100%.
    """
    n = len(values)
    estimate = mean_interval(values, n, seed=seed)
    mean, low, high = estimate.mean, estimate.low, estimate.high
    if mean is None or low is None or high is None:
        return estimate
    if low == high:
        others = 1 - 0.025 ** (1 / n)
        low = mean - others * (mean - lowest)
        high = mean + others * (highest - mean)
    # rounding may step over a bound
    return replace(estimate, low=max(float(lowest), low), high=min(float(highest), high))


def share_by_item(outcomes: Iterable[tuple[str, bool]], *, seed: int = 0) -> Estimate:
    """Mean over items of the share of an item's pairs that are won (agreed on, …), because pairs of one item
    depend on each other; interval as :func:`bounded_mean`."""
    by_item: dict[str, list[bool]] = {}
    for item, success in outcomes:
        by_item.setdefault(item, []).append(success)
    return _mean_share(tuple(sorted(map(fmean, by_item.values()))), seed)


@lru_cache(maxsize=4096)  # tables ask for the same few shares again and again
def _mean_share(shares: tuple[float, ...], seed: int) -> Estimate:
    return bounded_mean(shares, 0, 1, seed=seed)


def side_of_chance(rate: Estimate) -> int:
    """1 if a win rate is clearly above one half, -1 if clearly below, else 0, as for too few pairs."""
    return 0 if detectable_rate(rate.n) is None else rate.side_of(0.5)


def direction(mean: Estimate, differences: Sequence[float]) -> int:
    """1 if the mean of differences is clearly above 0, by its interval and a sign-flip test, -1 if clearly
    below, else 0."""
    return clear_sign(mean, sign_flip_p(differences) if differences else None)


def mcnemar(only_a: int, only_b: int) -> float | None:
    """Two-sided exact p of McNemar's test, from the numbers of pairs that only one of two metrics gets right;
    None without such pairs (McNemar 1947, Psychometrika 12, 153-157)."""
    n = only_a + only_b
    return float(scipy_stats().binomtest(only_a, n).pvalue) if n else None


def holm(p_values: Sequence[float | None]) -> list[float | None]:
    """Adjust p-values for multiple tests (Holm 1979, Scand. J. Statist. 6, 65-70). None is no test."""
    order = sorted((p, index) for index, p in enumerate(p_values) if p is not None)
    adjusted: list[float | None] = [None] * len(p_values)
    largest = 0.0
    for rank, (p, index) in enumerate(order):
        largest = max(largest, min(1.0, (len(order) - rank) * p))
        adjusted[index] = largest
    return adjusted


def detectable_rate(n: int) -> float | None:
    """The smallest win rate that n pairs tell from one half with a power of 80%, by the two-sided exact
    binomial test at 5%; None if not even n wins of n would show it."""
    wins = int(scipy_stats().binom.isf(ALPHA / 2, n, 0.5)) + 1
    return _rate_for(wins, n) if wins <= n else None


def detectable_difference(n: int) -> float | None:
    """The smallest difference in win rate between two metrics that n pairs show with a power of 80% in
    McNemar's exact test at 5%, if the worse metric is never right alone; None if n pairs can show none."""
    wins = math.ceil(1 - math.log2(ALPHA))  # k pairs, all on one side, have p = 2 * 0.5^k
    return _rate_for(wins, n) if wins <= n else None


def _rate_for(k: int, n: int) -> float:
    """The chance per event at which k or more of n events happen with a probability of 80%."""
    return float(scipy_stats().beta.ppf(POWER, k, n - k + 1))


def pearson(x: Numbers, y: Numbers) -> float | None:
    """The product-moment correlation; None for fewer than 3 points or if one side is constant.

    Raises:
        ValueError: the two differ in length.
    """
    a, b = _sides(x, y)
    if len(a) < 3 or a.min() == a.max() or b.min() == b.max():
        return None
    # scaled first: squares of very small or very large numbers leave the range of floats
    return float(np.corrcoef(a / np.abs(a).max(), b / np.abs(b).max())[0, 1])


def spearman(x: Numbers, y: Numbers) -> float | None:
    """Spearman's rho with ties at their mean rank, as :func:`pearson`."""
    ranks = scipy_stats().rankdata
    return pearson(ranks(x), ranks(y))


def kendall(x: Numbers, y: Numbers) -> float | None:
    """Kendall's tau-b, which allows for ties (Kendall 1945, Biometrika 33, 239-251), as :func:`pearson`.

    NumPy, because ``scipy.stats.kendalltau`` takes 0.4 ms a call, too long for thousands of resamples.
    """
    a, b = map(_signs, _sides(x, y))
    pairs = math.sqrt(np.count_nonzero(a) * np.count_nonzero(b))
    return float((a * b).sum()) / pairs if len(x) > 2 and pairs else None


def somers(x: Numbers, y: Numbers) -> float | None:
    """Somers' D of y given x: over all pairs that differ in x, how much more often y moves with x than
    against it, -1 to 1 (Somers 1962, Am. Sociol. Rev. 27, 799-811); None if x is constant."""
    a, b = map(_signs, _sides(x, y))
    pairs = np.count_nonzero(a)
    return float((a * b).sum()) / pairs if pairs else None


def _signs(values: Floats) -> Floats:
    """For each two values whether the first is larger (1), equal (0) or smaller (-1)."""
    gaps = np.subtract.outer(values, values)
    signs: Floats = np.where(np.abs(gaps) < TIE, 0.0, np.sign(gaps))
    return signs


def _sides(x: Numbers, y: Numbers) -> tuple[Floats, Floats]:
    if len(x) != len(y):
        raise ValueError(f"{len(x)} and {len(y)} values are not pairs")
    return np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)


def correlation_interval(
    x: Numbers, y: Numbers, kind: Kind = "spearman", *, groups: Sequence[Hashable] | None = None
) -> Estimate:
    """A correlation with its 95% bootstrap interval, see :func:`bootstrap`.

    Points of one group (such as the summaries of one item) depend on each other and are drawn together. Ranks
    are those among all points: ranked again in each resample, points drawn twice would be ties that the data
    do not have. At exactly 1 or -1 there is no interval, because every resample would agree. Fewer than
    ``FEWEST_CORRELATED`` points have no correlation.
    """
    a, b = _sides(x, y)
    if kind == "spearman":
        ranks = scipy_stats().rankdata
        a, b = ranks(a), ranks(b)
    mean = pearson(a, b)
    if mean is None or len(a) < FEWEST_CORRELATED:
        return Estimate(None, None, None, len(a), len(a))
    if math.isclose(abs(mean), 1, rel_tol=1e-12):
        return Estimate(float(round(mean)), None, None, len(a), len(a))
    positions: dict[Hashable, list[int]] = {}
    for position, group in enumerate(range(len(a)) if groups is None else groups):
        positions.setdefault(group, []).append(position)
    members = [np.asarray(group, dtype=np.intp) for group in positions.values()]

    def resampled(resample: Indices) -> float | None:
        points = np.concatenate([members[group] for group in resample])
        return pearson(a[points], b[points])

    interval = bootstrap(resampled, len(members))
    return Estimate(mean, interval.low, interval.high, len(a), len(a))


def bootstrap(statistic: Callable[[Indices], float | None], n: int, *, seed: int = 0) -> Estimate:
    """A statistic of ``n`` independent units with its 95% percentile interval (Efron and Tibshirani 1993,
    chapter 13).

    Percentiles suit correlations because they commute with any monotone transform, so that no end lies beyond
    1. There is no interval for fewer than ``FEWEST_RESAMPLED`` units, or if more than one in twenty resamples
    leaves the statistic undefined (``scipy.stats.bootstrap`` would give NaN if a single one does).

    Args:
        statistic: of units given as indices, which a resample repeats.
    """
    mean = statistic(np.arange(n))
    no_interval = Estimate(mean, None, None, n, n)
    if mean is None or n < FEWEST_RESAMPLED:
        return no_interval
    rng = np.random.default_rng(seed)
    resampled = [statistic(rng.integers(0, n, n)) for _ in range(RESAMPLES)]
    values = defined(resampled)
    if len(values) < 0.95 * RESAMPLES:
        return no_interval
    low, high = np.quantile(values, [0.025, 0.975])
    return Estimate(mean, float(low), float(high), n, n)


def interaction(table: Floats, *, columns: bool = True) -> Floats:
    """Take the level of each row and of each column out of a table, by least squares.

    For a full table the rest is value - mean of its row - mean of its column + mean of all. What is left by
    rounding alone becomes 0.

    Args:
        table: shape (R, C); NaN marks a cell that is missing, and stays.
        columns: whether columns have levels, too.
    """
    rest = np.full_like(table, np.nan)
    present = np.nonzero(~np.isnan(table))
    scale = np.abs(table[present]).max(initial=0) or 1.0
    cells = table[present] / scale
    levels = [np.eye(size)[codes] for size, codes in zip(table.shape, present, strict=True)]
    design = np.hstack(levels if columns else levels[:1])
    cells = cells - design @ np.linalg.lstsq(design, cells, rcond=None)[0]
    rest[present] = scale * np.round(cells, _RELATIVE_DIGITS) + 0.0
    return rest


def column_shuffle_p(x: Floats, y: Floats) -> float | None:
    """Two-sided p of the correlation of x and y when the columns of y change places within their table.

    Unlike a bootstrap over rows it allows for what cells of one column have in common. The observed order
    counts as one of the draws (Phipson and Smyth 2010, Stat. Appl. Genet. Mol. Biol. 9, 39). None without a
    correlation.

    Args:
        x, y: tables of the same shape (K, R, C); NaN marks cells that are missing.
    """
    observed = _table_correlation(x, y)
    if observed is None:
        return None
    rng = np.random.default_rng(0)
    as_far = 1
    for _ in range(RESAMPLES):
        shuffled = np.stack([table[:, rng.permutation(table.shape[1])] for table in y])
        correlation = _table_correlation(x, shuffled)
        # equal but for rounding counts as equal
        as_far += correlation is not None and abs(correlation) >= abs(observed) - 1e-12
    return as_far / (RESAMPLES + 1)


def _table_correlation(x: Floats, y: Floats) -> float | None:
    present = ~(np.isnan(x) | np.isnan(y))
    return pearson(x[present], y[present])
