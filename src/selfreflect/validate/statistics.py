"""Statistics that studies share: win rates and their tests, rank correlations, and what a number of pairs can
show. NumPy only.

What is undefined for the values at hand is None, never NaN.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from selfreflect.report.length import rank_correlation, ranks
from selfreflect.stats import Estimate, Floats, mean_interval

Kind = Literal["spearman", "kendall", "pearson"]
Numbers = Sequence[float] | Floats
Indices = NDArray[np.intp]

ALPHA, POWER = 0.05, 0.8
RESAMPLES = 2_000
FEWEST = 5
"""Of fewer units a bootstrap knows nothing: four have only 35 different resamples."""
_RELATIVE_DIGITS = 9
"""Smaller parts of the largest value are taken to be rounding."""


def win_rate(wins: Sequence[bool], *, confidence: float = 0.95, seed: int = 0) -> Estimate:
    """The share of wins with its interval, see :func:`bounded_mean`. ``wins`` holds one entry per item, so
    that they are independent."""
    return _rate(sum(map(bool, wins)), len(wins), confidence, seed)


@lru_cache(maxsize=4096)
def _rate(wins: int, n: int, confidence: float, seed: int) -> Estimate:
    return bounded_mean([1.0] * wins + [0.0] * (n - wins), 0, 1, confidence=confidence, seed=seed)


def bounded_mean(
    values: Sequence[float], lowest: float, highest: float, *, confidence: float = 0.95, seed: int = 0
) -> Estimate:
    """Mean of values between two bounds, with a BCa bootstrap interval over them.

    Where all n values are equal to c a bootstrap would be certain. There the ends are exact instead: with the
    given confidence other values have a share below s = 1 - ((1 - confidence) / 2)^(1/n) (Clopper and Pearson
    1934, Biometrika 26, 404-413), and those would lie at the bounds. Sixty wins of sixty thus give 94 % to
    100 %.

    Raises:
        ValueError: a value is not finite, or confidence is out of range.
    """
    n = len(values)
    found = mean_interval(values, n, confidence=confidence, seed=seed)
    if found.mean is None or found.low is None or found.high is None:
        return found
    if min(values) != max(values):
        # rounding may step over a bound
        return replace(found, low=max(lowest, found.low), high=min(highest, found.high))
    other = 1 - ((1 - confidence) / 2) ** (1 / n)
    low, high = found.mean - other * (found.mean - lowest), found.mean + other * (highest - found.mean)
    return Estimate(found.mean, low, high, n, n, confidence)


def win_difference(
    a: Sequence[bool], b: Sequence[bool], *, confidence: float = 0.95, seed: int = 0
) -> Estimate:
    """The win rate of ``a`` less that of ``b`` on the same pairs, with its interval.

    Raises:
        ValueError: the two differ in length.
    """
    differences = [float(one) - float(other) for one, other in zip(a, b, strict=True)]
    return bounded_mean(differences, -1, 1, confidence=confidence, seed=seed)


def paired_win_test(a: Sequence[bool], b: Sequence[bool]) -> float | None:
    """Two-sided exact p of McNemar's test: of the pairs that one of two metrics gets right alone, each is as
    likely to have half.

    None where there is no such pair (McNemar 1947, Psychometrika 12, 153-157; exact by the binomial
    distribution).

    Raises:
        ValueError: the two differ in length.
    """
    alone = [bool(one) for one, other in zip(a, b, strict=True) if bool(one) != bool(other)]
    n, fewer = len(alone), min(sum(alone), len(alone) - sum(alone))
    return min(1.0, 2 * sum(math.comb(n, k) for k in range(fewer + 1)) / 2**n) if n else None


def holm(p_values: Sequence[float | None]) -> list[float | None]:
    """P-values adjusted for all that are given (Holm 1979, Scand. J. Statist. 6, 65-70); None is no test and
    stays None."""
    tested = sorted((p, place) for place, p in enumerate(p_values) if p is not None)
    adjusted: list[float | None] = [None] * len(p_values)
    worst = 0.0
    for done, (p, place) in enumerate(tested):
        worst = max(worst, min(1.0, (len(tested) - done) * p))
        adjusted[place] = worst
    return adjusted


def pearson(x: Numbers, y: Numbers) -> float | None:
    """The product-moment correlation; None for fewer than 3 points or where one side is constant.

    Raises:
        ValueError: the two differ in length.
    """
    a, b = _sides(x, y)
    if len(a) < 3 or a.min() == a.max() or b.min() == b.max():
        return None
    # squares of very large or small numbers leave the range of floats
    a, b = a / np.abs(a).max(), b / np.abs(b).max()
    a, b = a - a.mean(), b - b.mean()
    scale = math.sqrt(float(a @ a)) * math.sqrt(float(b @ b))
    return max(-1.0, min(1.0, float(a @ b) / scale)) if scale else None


def spearman(x: Numbers, y: Numbers) -> float | None:
    """Spearman's rho with ties at their mean rank; None and ValueError as :func:`pearson`."""
    a, b = _sides(x, y)
    return rank_correlation(a.tolist(), b.tolist()).rho if len(a) > 2 else None


def kendall(x: Numbers, y: Numbers) -> float | None:
    """Kendall's tau-b, which allows for ties (Kendall 1945, Biometrika 33, 239-251); None and ValueError as
    :func:`pearson`."""
    a, b = _sides(x, y)
    if len(a) < 3:
        return None
    one, other = _signs(a), _signs(b)
    pairs = math.sqrt(float(np.count_nonzero(one))) * math.sqrt(float(np.count_nonzero(other)))
    return max(-1.0, min(1.0, float((one * other).sum(dtype=np.int64)) / pairs)) if pairs else None


def somers(x: Numbers, y: Numbers) -> float | None:
    """Somers' D of y given x: over all pairs that differ in x, how much more often y moves with x than
    against it, -1 to 1.

    Defined from 2 points on, unlike the correlations; None where all of x is equal (Somers 1962, Am. Sociol.
    Rev. 27, 799-811).

    Raises:
        ValueError: the two differ in length.
    """
    a, b = _sides(x, y)
    one = _signs(a)
    pairs = int(np.count_nonzero(one))
    return float((one * _signs(b)).sum(dtype=np.int64)) / pairs if pairs else None


def interaction(values: Numbers, rows: Sequence[Hashable], columns: Sequence[Hashable]) -> list[float]:
    """What is left of the values of a two-way layout when the level of each row and that of each column are
    taken out, by least squares.

    Of a full layout it is value - mean of its row - mean of its column + mean of all. What is left by
    rounding alone becomes 0.

    Raises:
        ValueError: the three differ in length.
    """
    y = np.asarray(values, dtype=np.float64)
    if not len(y) == len(rows) == len(columns):
        raise ValueError(f"{len(y)} values, {len(rows)} rows and {len(columns)} columns are no layout")
    largest = float(np.abs(y).max(initial=0))
    if not largest:
        return [0.0] * len(y)
    levels = np.hstack(
        [np.equal.outer(_codes(keys), np.unique(_codes(keys))) for keys in (rows, columns)]
    ).astype(np.float64)
    y = y / largest
    left = y - levels @ np.linalg.lstsq(levels, y, rcond=None)[0]
    return [largest * round(float(one), _RELATIVE_DIGITS) + 0.0 for one in left]


def _codes(keys: Sequence[Hashable]) -> Indices:
    places: dict[Hashable, int] = {}
    return np.asarray([places.setdefault(key, len(places)) for key in keys], dtype=np.intp)


def column_shuffle_p(
    x: Numbers,
    y: Numbers,
    rows: Sequence[Hashable],
    columns: Sequence[Hashable],
    blocks: Sequence[Hashable],
    *,
    seed: int = 0,
) -> float | None:
    """Two-sided p of the correlation of x and y, cells of two-way layouts, when the columns of y change
    places within their blocks.

    Unlike a bootstrap over rows it allows for what cells of one column have in common. It counts the observed
    order as one of the draws (Phipson and Smyth 2010, Stat. Appl. Genet. Mol. Biol. 9, 39). None where there
    is no correlation.

    Raises:
        ValueError: the arguments differ in length.
    """
    a, b = _sides(x, y)
    observed = pearson(a, b)
    layouts: dict[Hashable, dict[tuple[Hashable, Hashable], int]] = {}
    for place, (row, column, block) in enumerate(zip(rows, columns, blocks, strict=True)):
        layouts.setdefault(block, {})[row, column] = place
    if observed is None:
        return None
    rng = np.random.default_rng(seed)
    as_far = 1
    tables = [_table(cells) for cells in layouts.values()]
    for _ in range(RESAMPLES):
        drawn = [
            np.stack([table, table[:, rng.permutation(table.shape[1])]]).reshape(2, -1) for table in tables
        ]
        here, there = (pair := np.hstack(drawn))[:, (pair >= 0).all(axis=0)]
        found = pearson(a[here], b[there])
        as_far += found is not None and abs(found) >= abs(observed) - 1e-12  # equal but for rounding
    return as_far / (RESAMPLES + 1)


def _table(cells: Mapping[tuple[Hashable, Hashable], int]) -> Indices:
    """Places by row and column; -1 where there is none."""
    rows, columns = _codes([row for row, _ in cells]), _codes([column for _, column in cells])
    found = np.full((rows.max() + 1, columns.max() + 1), -1, dtype=np.intp)
    found[rows, columns] = list(cells.values())
    return found


_CORRELATIONS: dict[Kind, Callable[[Numbers, Numbers], float | None]] = {
    "spearman": spearman,
    "kendall": kendall,
    "pearson": pearson,
}


def correlation_interval(
    x: Numbers,
    y: Numbers,
    kind: Kind = "spearman",
    *,
    groups: Sequence[Hashable] | None = None,
    confidence: float = 0.95,
    seed: int = 0,
) -> Estimate:
    """A correlation as the ``mean`` of the estimate, with its bootstrap interval, see :func:`bootstrap`.

    Ranks are those among all points. Ranked anew, points drawn twice would be ties that the data do not have,
    and with groups the interval could then miss the correlation itself.

    Points of one group (such as the summaries of one item) depend on each other and are drawn together. At
    exactly 1 or -1 there is no
    interval: every resample would say the same.

    Raises:
        ValueError: the sides differ in length.
    """
    a, b = _sides(x, y)
    correlation = _CORRELATIONS[kind]
    found = correlation(a, b)
    if kind == "spearman":
        a, b, correlation = ranks(a), ranks(b), pearson
    if found is None or abs(found) == 1:
        return Estimate(found, None, None, len(a), len(a), confidence)
    places: dict[Hashable, list[int]] = {}
    for place, group in enumerate(range(len(a)) if groups is None else groups):
        places.setdefault(group, []).append(place)
    members = [np.asarray(group, dtype=np.intp) for group in places.values()]

    def resampled(drawn: Indices) -> float | None:
        points = np.concatenate([members[group] for group in drawn])
        return correlation(a[points], b[points])

    low, high = bootstrap(resampled, len(members), confidence=confidence, seed=seed)
    return Estimate(found, low, high, len(a), len(a), confidence)


def bootstrap(
    statistic: Callable[[Indices], float | None], n: int, *, confidence: float = 0.95, seed: int = 0
) -> tuple[float, float] | tuple[None, None]:
    """The ends of a percentile interval over ``n`` independent units (Efron and Tibshirani 1993, chapter 13).

    Percentiles suit correlations because they commute with any monotone transform, so that no end lies beyond
    1. There is no interval for fewer than ``FEWEST`` units, or where more than one in twenty resamples leaves
    the statistic undefined.

    Args:
        statistic: of the units drawn with replacement, given as indices.
    """
    if n < FEWEST:
        return None, None
    rng = np.random.default_rng(seed)
    found = [value for _ in range(RESAMPLES) if (value := statistic(rng.integers(0, n, n))) is not None]
    if len(found) < 0.95 * RESAMPLES:
        return None, None
    low, high = np.quantile(found, [(1 - confidence) / 2, (1 + confidence) / 2])
    return float(low), float(high)


def detectable_rate(n: int) -> float | None:
    """The smallest win rate that n pairs tell from one half with a power of 80 %, by the two-sided exact
    binomial test at 5 %.

    None where not even n wins of n would show it.
    """
    critical, tail = n + 1, 0.0
    while (tail := tail + _exactly(critical - 1, n, 0.5)) <= ALPHA / 2:
        critical -= 1
    return None if critical > n else _chance_of(critical, n)


def detectable_difference(n: int) -> float | None:
    """The smallest difference in win rate between two metrics that n pairs show with a power of 80 % in
    McNemar's exact test at 5 %.

    It is that of the most favourable case, where the worse metric is never right alone; each pair where it is
    makes the test weaker. None where n pairs can show no difference.
    """
    critical = math.ceil(1 - math.log2(ALPHA))  # as many that are all on one side have 2 * 0.5^k <= 5 %
    return _chance_of(critical, n) if critical <= n else None


def _chance_of(k: int, n: int) -> float:
    """The chance of each of n events at which k or more happen with a probability of 80 %."""
    low, high = 0.0, 1.0
    for _ in range(30):
        middle = (low + high) / 2
        low, high = (low, middle) if _at_least(k, n, middle) >= POWER else (middle, high)
    return high


def _at_least(k: int, n: int, chance: float) -> float:
    return math.fsum(_exactly(i, n, chance) for i in range(k, n + 1))


def _exactly(k: int, n: int, chance: float) -> float:
    """The probability of k of n events; by logarithms, because binomial coefficients outgrow floats."""
    ways = math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)
    return math.exp(ways + k * math.log(chance) + (n - k) * math.log1p(-chance))


def _sides(x: Numbers, y: Numbers) -> tuple[Floats, Floats]:
    if len(x) != len(y):
        raise ValueError(f"{len(x)} and {len(y)} values are not pairs")
    return np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)


def _signs(values: Floats) -> NDArray[np.int8]:
    """For each two values whether the first is larger (1), equal (0) or smaller (-1)."""
    return np.greater.outer(values, values).astype(np.int8) - np.less.outer(values, values).astype(np.int8)
