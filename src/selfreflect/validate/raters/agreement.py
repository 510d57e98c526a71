"""Krippendorff's alpha, by the package of that name, with a bootstrap over items.

Alpha is 1 less the observed disagreement over the one expected by chance: 1 is perfect, 0 is chance, below 0
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
from selfreflect.validate.statistics import bootstrap

Level = Literal["nominal", "ordinal", "interval"]
Counts = NDArray[np.int64]
"""(units, values): how many raters gave each of the values to each unit."""

ORDERS = (-1.0, 0.0, 1.0)
_AFFORDABLE = 500_000
"""Numbers that one computation of alpha may hold at a time for a bootstrap, which takes two thousand of
them."""
_POSSIBLE = 20_000_000
"""And for a single one: the package holds units x values x values, 8 bytes each, several times."""


def library() -> Any:
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
    """Krippendorff's alpha; None where no unit has two ratings, or all that can be compared are equal and
    nothing is left to chance."""
    compared = counts[counts.sum(axis=1) > 1]
    used = compared.any(axis=0)
    if used.sum() < 2:
        return None
    domain = np.asarray(values, dtype=np.float64)[used]
    return float(
        library().alpha(value_counts=compared[:, used], value_domain=domain, level_of_measurement=level)
    )


def alpha_estimate(
    by_item: Mapping[str, Counts], values: Sequence[float], level: Level, *, seed: int = 0
) -> Estimate:
    """Alpha as the ``mean`` of the estimate, with a percentile interval over items, whose units depend on
    each other.

    There is no interval where :func:`selfreflect.validate.statistics.bootstrap` has none, or where so many
    units take so many values that it would take minutes; and no alpha where that would take gigabytes. ``n``
    counts the items with a unit that two have rated.
    """
    compared = [counts for counts in by_item.values() if (counts.sum(axis=1) > 1).any()]
    n, total = len(compared), len(by_item)
    size = sum(map(len, compared)) * len(values) ** 2
    found = alpha(np.concatenate(compared), values, level) if 0 < size <= _POSSIBLE else None
    if found is None or size > _AFFORDABLE:
        return Estimate(found, None, None, n, total)
    low, high = bootstrap(
        lambda drawn: alpha(np.concatenate([compared[place] for place in drawn]), values, level), n, seed=seed
    )
    return Estimate(found, low, high, n, total)


def rating_counts(
    rated: Sequence[Mapping[tuple[str, str], float]],
) -> tuple[dict[str, Counts], tuple[float, ...]]:
    """By item, one unit for each summary; and the different ratings, sorted."""
    values = tuple(sorted({value for one in rated for value in one.values()}))
    place = {value: number for number, value in enumerate(values)}
    units: dict[tuple[str, str], list[int]] = {}
    for one in rated:
        for unit, value in one.items():
            units.setdefault(unit, [0] * len(values))[place[value]] += 1
    rows: dict[str, list[list[int]]] = {}
    for (item, _), row in units.items():
        rows.setdefault(item, []).append(row)
    return {item: np.array(found, dtype=np.int64) for item, found in rows.items()}, values


def order_counts(raters: Sequence[Mapping[Pair, int]]) -> dict[str, Counts]:
    """By item, two units for each pair of summaries: the pair and its mirror image, with the values
    ``ORDERS``.

    Without the mirror image alpha would depend on which of two summaries is named first. With it, the alpha
    of two raters without ties is Kendall's tau of their orders within items, but for the correction for small
    samples.
    """
    units: dict[Pair, list[int]] = {}
    for rater in raters:
        for pair, order in rater.items():
            units.setdefault(pair, [0, 0, 0])[order + 1] += 1
    return _mirrored([(pair[0], row) for pair, row in units.items()])


def paired_counts(metric: Mapping[Pair, int], raters: Sequence[Mapping[Pair, int]]) -> dict[str, Counts]:
    """As :func:`order_counts`, but for each rater a unit of its own, which only this rater and the metric
    have rated.

    The alpha of these units is how the metric agrees with the raters, whatever they agree on among
    themselves.
    """
    units = []
    for rater in raters:
        for pair in rater.keys() & metric.keys():
            row = [0, 0, 0]
            row[rater[pair] + 1] += 1
            row[metric[pair] + 1] += 1
            units.append((pair, row))
    return _mirrored([(pair[0], row) for pair, row in sorted(units)])


def _mirrored(units: Sequence[tuple[str, list[int]]]) -> dict[str, Counts]:
    rows: dict[str, list[list[int]]] = {}
    for item, row in units:
        rows.setdefault(item, []).extend((row, row[::-1]))
    return {item: np.array(found, dtype=np.int64) for item, found in rows.items()}
