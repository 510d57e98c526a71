"""Statistics for studies: shares, correlations, intervals, and power.

What is undefined is None, never NaN.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any

import numpy as np
from numpy.typing import NDArray

from selfreflect.errors import optional
from selfreflect.stats import (
    FEWEST_CORRELATED,
    Estimate,
    Floats,
    defined,
    mean_interval,
    pearson,
    ranks,
    settled,
)

Numbers = Sequence[float] | Floats
Indices = NDArray[np.intp]

ALPHA, POWER = 0.05, 0.8
RESAMPLES = 2_000
# Fewer units allow no bootstrap: four have only 35 different resamples
FEWEST_RESAMPLED = 5
# Smaller parts of the largest value are taken to be rounding
_RELATIVE_DIGITS = 9


def scipy_stats() -> Any:
    """Import ``scipy.stats``, or raise MissingExtraError."""
    with optional("validating a metric", "validate"):
        from scipy import stats
    return stats


def bounded_mean(values: Sequence[float], lowest: float, highest: float) -> Estimate:
    """Compute the mean of values between two bounds, with a 95% BCa bootstrap interval.

    If all n values are equal, a bootstrap would be certain. The ends are exact then: with 95% confidence
    different values have a share below 1 - 0.025^(1/n) (Clopper and Pearson 1934, Biometrika 26, 404-413),
    and those could lie at the bounds. Sixty wins of sixty thus give 94% to 100%.
    """
    n = len(values)
    estimate = mean_interval(values, n)
    mean, low, high = estimate.mean, estimate.low, estimate.high
    if mean is None or low is None or high is None:
        return estimate
    if low == high:
        unseen = 1 - 0.025 ** (1 / n)
        low = mean - unseen * (mean - lowest)
        high = mean + unseen * (highest - mean)
    # rounding may step over a bound
    return replace(estimate, low=max(float(lowest), low), high=min(float(highest), high))


def share_by_item(outcomes: Iterable[tuple[str, bool]]) -> Estimate:
    """Average over items the share of an item's pairs that are won.

    Pairs of one item depend on each other, so they count together; interval as :func:`bounded_mean`.
    """
    by_item: dict[str, list[bool]] = {}
    for item, success in outcomes:
        by_item.setdefault(item, []).append(success)
    return bounded_mean(list(map(fmean, by_item.values())), 0, 1)


def side_of_chance(rate: Estimate) -> int:
    """Return 1 if a win rate is clearly above one half, -1 if clearly below, else 0."""
    return 0 if detectable_rate(rate.n) is None else rate.side_of(0.5)


def detectable_rate(n: int) -> float | None:
    """Compute the smallest win rate that n pairs distinguish from one half with 80% power.

    By the two-sided exact binomial test at 5%; None if not even n wins of n would show it.
    """
    stats = scipy_stats()
    # the fewest wins that a coin has in at most 2.5% of cases
    wins = int(stats.binom.isf(ALPHA / 2, n, 0.5)) + 1
    # the rate at which so many wins happen with a probability of 80%
    return float(stats.beta.ppf(POWER, wins, n - wins + 1)) if wins <= n else None


def kendall(x: Sequence[float], y: Sequence[float]) -> float | None:
    """Compute Kendall's tau-b with ties (1945, Biometrika 33, 239-251); see :func:`pearson`."""
    tau = scipy_stats().kendalltau(settled(x), settled(y)).statistic if len(x) > 2 else math.nan
    return None if math.isnan(tau) else float(tau)


def somers(x: Sequence[float], y: Sequence[float]) -> float | None:
    """Compute Somers' D of y given x, -1 to 1 (1962, Am. Sociol. Rev. 27, 799-811); None if x is constant.

    Over all pairs that differ in x: how much more often y moves with x than against it.
    """
    x, y = settled(x), settled(y)
    if len(set(x)) < 2:
        return None
    value = float(scipy_stats().somersd(x, y).statistic)
    return 0.0 if math.isnan(value) else value  # undefined in scipy where y is constant


def correlation_interval(x: Numbers, y: Numbers, *, groups: Sequence[Hashable] | None = None) -> Estimate:
    """Compute Spearman's rank correlation with a 95% interval by :func:`bootstrap`.

    Points of one group (such as the summaries of one item) depend on each other and are drawn together. Ranks
    are those among all points: ranked again in each resample, points drawn twice would be ties that the data
    do not have. At exactly 1 or -1 there is no interval, because every resample would agree. Fewer than
    ``FEWEST_CORRELATED`` points have no correlation.
    """
    a, b = (ranks(np.asarray(values, dtype=np.float64)) for values in (x, y))
    mean = pearson(a, b)
    if mean is None or len(a) < FEWEST_CORRELATED:
        return Estimate(None, None, None, len(a), len(a))
    if math.isclose(abs(mean), 1, rel_tol=1e-12):
        return Estimate(float(round(mean)), None, None, len(a), len(a))
    positions: dict[Hashable, list[int]] = {}
    for position, group in enumerate(range(len(a)) if groups is None else groups):
        positions.setdefault(group, []).append(position)
    members = [np.asarray(group, dtype=np.intp) for group in positions.values()]

    def correlate(resample: Indices) -> float | None:
        points = np.concatenate([members[group] for group in resample])
        return pearson(a[points], b[points])

    interval = bootstrap(correlate, len(members))
    return Estimate(mean, interval.low, interval.high, len(a), len(a))


def bootstrap(statistic: Callable[[Indices], float | None], n: int) -> Estimate:
    """Compute a statistic of ``n`` independent units with its 95% percentile interval (Efron and Tibshirani
    1993, chapter 13).

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
    rng = np.random.default_rng(0)
    values = defined([statistic(rng.integers(0, n, n)) for _ in range(RESAMPLES)])
    if len(values) < 0.95 * RESAMPLES:
        return no_interval
    low, high = np.quantile(values, [0.025, 0.975])
    return Estimate(mean, float(low), float(high), n, n)


def interaction(table: Floats) -> Floats:
    """Subtract the row and column levels from a table.

    Of each value, the mean of its row and that of its column are subtracted, and the mean of all is added.
    What is left by rounding alone becomes 0.
    """
    scale = np.abs(table).max(initial=0) or 1.0
    cells = table / scale
    cells = cells - cells.mean(axis=1, keepdims=True) - cells.mean(axis=0, keepdims=True) + cells.mean()
    rest: Floats = scale * np.round(cells, _RELATIVE_DIGITS) + 0.0
    return rest


def column_shuffle_p(x: Sequence[Floats], y: Sequence[Floats]) -> float | None:
    """Compute a correlation's p-value by exchanging columns within tables; None without a correlation.

    Unlike a bootstrap over rows it allows for what cells of one column have in common.

    Args:
        x, y: tables of the same shapes.
    """
    cells = np.concatenate([table.ravel() for table in x])

    def strength(*orders: Indices) -> float:
        tables = zip(y, orders, strict=True)
        return abs(pearson(cells, np.concatenate([table[:, order].ravel() for table, order in tables])) or 0)

    orders = [np.arange(table.shape[1]) for table in y]
    if not strength(*orders):
        return None
    test = scipy_stats().permutation_test(
        orders,
        strength,
        permutation_type="pairings",
        alternative="greater",
        n_resamples=RESAMPLES,
        vectorized=False,
        random_state=np.random.default_rng(0),
    )
    return float(test.pvalue)
