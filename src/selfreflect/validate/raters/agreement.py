"""Krippendorff's alpha, by the package of that name, with a bootstrap over items.

Alpha is 1 minus the observed disagreement over the one expected by chance: 1 is perfect, 0 is chance, below 0
is systematic disagreement (Krippendorff, Content Analysis, 4th ed. 2018, chapter 12). It allows for missing
ratings.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from selfreflect.errors import MissingExtraError
from selfreflect.stats import Estimate
from selfreflect.validate.raters.ratings import Pair
from selfreflect.validate.statistics import Indices, bootstrap

Level = Literal["nominal", "ordinal", "interval"]
Counts = NDArray[np.int64]
"""(units, values): how many raters gave each of the values to each unit."""
Units = list[tuple[str, list[float]]]
"""What is rated: the item it belongs to, and the values that raters gave it."""

_AFFORDABLE = 500_000
"""Largest array, in numbers, for which alpha is computed two thousand times for a bootstrap."""
_POSSIBLE = 20_000_000
"""And once: the package holds units x values x values, 8 bytes each, several times."""


def krippendorff_package() -> Any:
    """
    Raises:
        MissingExtraError: the package is not installed.
    """
    try:
        import krippendorff
    except ImportError:
        raise MissingExtraError("agreement with raters (Krippendorff's alpha)", "validate") from None
    return krippendorff


def alpha(counts: Counts, values: Sequence[float], level: Level) -> float | None:
    """Krippendorff's alpha; None if no unit has two ratings, or all that can be compared are equal and
    nothing is left to chance."""
    counts = counts[counts.sum(axis=1) > 1]
    in_use = counts.any(axis=0)
    if in_use.sum() < 2:
        return None
    domain = np.asarray(values, dtype=np.float64)[in_use]
    return float(
        krippendorff_package().alpha(
            value_counts=counts[:, in_use], value_domain=domain, level_of_measurement=level
        )
    )


def alpha_estimate(units: Units, level: Level, *, seed: int = 0) -> Estimate:
    """Alpha as the ``mean`` of the estimate, with a percentile interval over items, whose units depend on
    each other.

    There is no interval if :func:`selfreflect.validate.statistics.bootstrap` has none or would take minutes,
    and no alpha if it would take gigabytes, because many units take many values. ``n`` counts the items with
    a unit that two have rated.
    """
    by_item: dict[str, list[list[float]]] = {}
    for item, ratings in units:
        if len(ratings) > 1:
            by_item.setdefault(item, []).append(ratings)
    values: set[float] = set()
    for item_units in by_item.values():
        values.update(*item_units)
    n, total = len(by_item), len({item for item, _ in units})
    size = sum(map(len, by_item.values())) * len(values) ** 2
    if not 0 < size <= _POSSIBLE:
        return Estimate(None, None, None, n, total)
    domain = sorted(values)
    counts = [_counts(item_units, domain) for item_units in by_item.values()]
    mean = alpha(np.concatenate(counts), domain, level)
    if mean is None or size > _AFFORDABLE:
        return Estimate(mean, None, None, n, total)

    def resampled(resample: Indices) -> float | None:
        return alpha(np.concatenate([counts[index] for index in resample]), domain, level)

    low, high = bootstrap(resampled, n, seed=seed)
    return Estimate(mean, low, high, n, total)


def _counts(units: Sequence[Sequence[float]], domain: Sequence[float]) -> Counts:
    counts = np.zeros((len(units), len(domain)), dtype=np.int64)
    for row, ratings in enumerate(units):
        np.add.at(counts[row], np.searchsorted(domain, ratings), 1)
    return counts


def rating_units(raters: Sequence[Mapping[tuple[str, str], float]]) -> Units:
    """One unit for each summary."""
    by_summary: dict[tuple[str, str], list[float]] = {}
    for ratings in raters:
        for key, rating in ratings.items():
            by_summary.setdefault(key, []).append(rating)
    return [(item, ratings) for (item, _), ratings in by_summary.items()]


def order_units(raters: Sequence[Mapping[Pair, int]]) -> Units:
    """Two units for each pair of summaries: the pair and its mirror image.

    Without the mirror image alpha would depend on which of two summaries is named first. With it, the alpha
    of two raters without ties is Kendall's tau of their orders within items, but for the correction for small
    samples.
    """
    by_pair: dict[Pair, list[float]] = {}
    for orders in raters:
        for pair, order in orders.items():
            by_pair.setdefault(pair, []).append(order)
    units: Units = []
    for (item, _, _), orders_of_pair in by_pair.items():
        units += [(item, orders_of_pair), (item, [-order for order in orders_of_pair])]
    return units


def paired_units(metric: Mapping[Pair, int], raters: Sequence[Mapping[Pair, int]]) -> Units:
    """As :func:`order_units`, with separate units for each rater, rated only by this rater and the metric.

    The alpha of these units is how the metric agrees with the raters, however much they agree among
    themselves.
    """
    units: Units = []
    for orders in raters:
        units += order_units([orders, metric])
    return sorted(units, key=lambda unit: unit[0])
