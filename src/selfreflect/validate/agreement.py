"""Studies ``raters`` and ``judges``: agreement with people, and between judges, on faithfulness.

Agreement of raters is Krippendorff's alpha: 1 minus the observed disagreement over the one expected by
chance. 1 is perfect, 0 is chance, below 0 is systematic disagreement (Krippendorff, Content Analysis, 4th ed.
2018, chapter 12).
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from pathlib import Path
from typing import TypeVar

import numpy as np

from selfreflect.errors import ConfigError, DataError, excerpt, nearest
from selfreflect.sources.files import read_content
from selfreflect.sources.items import Item
from selfreflect.sources.parsers import PARSERS, parse_rows
from selfreflect.sources.rows import Row as FileRow
from selfreflect.sources.rows import listed
from selfreflect.stats import Estimate, Floats, is_tie
from selfreflect.text import counted
from selfreflect.validate.base import MetricInfo, Value
from selfreflect.validate.statistics import (
    FEWEST_RESAMPLED,
    Indices,
    bootstrap,
    correlation_interval,
    kendall,
    share_by_item,
    side_of_chance,
)
from selfreflect.validate.study import SIDES, Finding, Row, each_metric, interval, with_interval

RATING, PREFERENCES, TIE = "rating", ("preferred", "preference"), "tie"

Key = tuple[str, str]
"""Item and summary name."""
Pair = tuple[str, str, str]
"""Item and two of its summaries, names in alphabetical order."""
Orders = Mapping[Pair, int]
"""Orders: 1 if a pair's first summary is preferred, -1 if the second, 0 for neither."""


@dataclass(frozen=True)
class Ratings:
    """People's orders and ratings of summaries, without blank cells."""

    orders: Mapping[str, Orders]
    """Orders by rater, in file order, including raters without ratings."""
    rated: Mapping[str, Mapping[Key, float]] = field(default_factory=dict)
    """Ratings by rater, higher is more faithful; empty for preferences."""
    missing: int = 0
    """Number of rows with a blank rating."""


def summary_orders(values: Mapping[Key, float]) -> dict[Pair, int]:
    """Order each pair of an item's summaries by value, higher one first."""
    by_item: dict[str, dict[str, float]] = {}
    for (item, summary), value in values.items():
        by_item.setdefault(item, {})[summary] = value
    orders: dict[Pair, int] = {}
    for item, by_summary in by_item.items():
        for pair in combinations(sorted(by_summary), 2):
            first, second = (by_summary[name] for name in pair)
            orders[item, *pair] = 0 if is_tie(first, second) else 1 if first > second else -1
    return orders


def read_ratings(source: str | Path, items: Sequence[Item]) -> Ratings:
    """Read ratings from a CSV file with the columns ``rater``, ``item`` and ``summary``.

    It also has ``rating``, or both ``other`` and ``preferred``.

    ``preferred`` (or ``preference``) names one of the two summaries, or says ``tie``. A blank rating or
    preference is a missing one.

    Raises:
        DataError: the file is no such CSV, names items or summaries that ``items`` do not have, repeats a
            rating, or has none.
    """
    content = read_content(source, PARSERS)
    if content.suffix != ".csv":
        raise DataError(f"{content.name}: ratings come as CSV (.csv)")
    rows = parse_rows(content)
    column = _rating_column(rows[0])
    columns = ("summary",) if column == RATING else ("summary", "other")
    summaries = {item.id: item.summaries for item in items}
    lines: dict[tuple[str, ...], str] = {}
    rated: dict[str, dict[Key, float]] = {}
    preferred: dict[str, dict[Pair, int]] = {}
    missing = 0
    for row in rows:
        rater, item = row.text("rater"), row.text("item")
        names = sorted(map(row.text, columns))
        _check_names(row, item, names, summaries)
        line = lines.setdefault((rater, item, *names), row.where)
        if line != row.where:
            raise row.error(
                f"rater {excerpt(rater)} already rated {excerpt(', '.join(names))} of item {excerpt(item)} "
                f"before, in {line}"
            )
        ratings, preferences = rated.setdefault(rater, {}), preferred.setdefault(rater, {})
        text = str(row.get(column)).strip()
        if not text:
            missing += 1
        elif column == RATING:
            ratings[item, names[0]] = _number(row, text)
        else:
            preferences[item, names[0], names[1]] = _preference(row, column, text, names)
    if missing == len(rows):
        raise DataError(f"{content.name}: all ratings are blank")
    if column == RATING:
        return Ratings({rater: summary_orders(values) for rater, values in rated.items()}, rated, missing)
    return Ratings(preferred, {}, missing)


def _rating_column(row: FileRow) -> str:
    """Find the column of ratings or preferences, or raise DataError."""
    columns = [name for name in (RATING, *PREFERENCES) if name in row.fields]
    required = {"rater", "item", "summary"} if columns == [RATING] else {"rater", "item", "summary", "other"}
    if len(columns) != 1 or not required <= row.fields.keys():
        raise DataError(
            f"{row.source}: the columns must be rater, item, summary, rating, or rater, item, summary, "
            f"other, preferred; they are {listed(row.fields)}"
        )
    return columns[0]


def _check_names(
    row: FileRow, item: str, names: Sequence[str], summaries: Mapping[str, Mapping[str, str]]
) -> None:
    if item not in summaries:
        hint = nearest(item, list(summaries))
        raise row.error(f"there is no item {excerpt(item)}; the items are {listed(summaries, 5)}.{hint}")
    for name in names:
        if name not in summaries[item]:
            there = listed(summaries[item])
            raise row.error(f"item {excerpt(item)} has no summary {excerpt(name)}, only {there}")
    if len(set(names)) < len(names):
        raise row.error(
            f"the fields 'summary' and 'other' both name {excerpt(names[0])}; a preference needs two "
            "different summaries"
        )


def _number(row: FileRow, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise row.error(
            f"the field {RATING!r} must be a number such as 3 or 2.5, or blank if it is missing; "
            f"it is {excerpt(text)}"
        )
    return value


def _preference(row: FileRow, column: str, text: str, names: Sequence[str]) -> int:
    first, second = names
    orders = {TIE: 0, first: 1, second: -1}  # a summary may be called tie
    if text not in orders and text.lower() != TIE:
        raise row.error(
            f"the field {column!r} must name {excerpt(first)} or {excerpt(second)}, or be {TIE!r}; "
            f"it is {excerpt(text)}"
        )
    return orders.get(text, 0)


K = TypeVar("K", Key, Pair)
Units = list[tuple[str, list[float]]]
"""Rated objects: item and raters' values."""


class HumanAgreement:
    """Study ``raters``: a metric's agreement with people. Ratings of items that are not studied are ignored.

    Raises:
        DataError: none of the items is rated.
    """

    name = "raters"

    def __init__(self, items: Sequence[Item], ratings: Ratings) -> None:
        self._ratings = ratings
        rated = {item for orders in ratings.orders.values() for item, _, _ in orders}
        self.items: Sequence[Item] = [item for item in items if item.id in rated]
        if not self.items:
            raise DataError(
                f"none of the {len(items)} items has two summaries that the same rater compared or rated; a "
                "single rating gives no order",
                code="nothing_compared",
            )
        self._texts = {item.id: item.summaries for item in self.items}

    def finding(self, values: Sequence[Value], metrics: Sequence[MetricInfo]) -> Finding:
        finding = Finding(self.name, "raters", "metrics", "majority", fewest=FEWEST_RESAMPLED)
        raters = list(map(self._comparable, self._ratings.orders.values()))
        majority = _majority(raters)
        among = alpha_estimate(order_units(raters))
        if self._ratings.rated:
            units = [unit for unit in rating_units(self._ratings.rated.values()) if unit[0] in self._texts]
            rating = alpha_estimate(units)
            finding.add("raters", {"compared": "ratings", **interval("alpha", rating), "n items": rating.n})
        compared = "order of two summaries"
        finding.add("raters", {"compared": compared, **interval("alpha", among), "n items": among.n})
        self._tally(finding, raters, majority)
        if among.mean is None:
            finding.say("undefined")
        else:  # a metric cannot be expected to agree with raters more than they with each other
            key = "unclear_raters" if among.low is not None and among.low <= 0 else "among"
            finding.say(key, alpha=with_interval(among, ".3f"), n=among.n)
        sides: dict[str, str] = {}
        for metric, numbers in each_metric(values, metrics):
            goodness = {key: -metric.badness(value) for key, value in numbers.items()}
            orders = self._comparable(summary_orders(goodness))
            alpha = alpha_estimate(paired_units(orders, raters))
            finding.add("metrics", {"metric": metric.name, **interval("alpha with a rater", alpha)})
            share = same_order(majority, orders)
            counts = {"items": share.n, "pairs": len(orders.keys() & majority), "of": len(majority)}
            row = {"metric": metric.name, **interval("agrees with majority", share), **counts}
            finding.add("majority", row)
            sides[metric.name] = SIDES[side_of_chance(share)] if share.n else "none"
        finding.say_sides(sides, ("none", "above", "below", "unclear"))
        return finding

    def _comparable(self, orders: Orders) -> Orders:
        """Remove pairs of other items and pairs with equal text."""
        comparable: dict[Pair, int] = {}
        for pair, order in orders.items():
            item, *names = pair
            texts = {self._texts.get(item, {}).get(name) for name in names}
            if None not in texts and len(texts) == 2:
                comparable[pair] = order
        return comparable

    def _tally(self, finding: Finding, raters: Sequence[Orders], majority: Orders) -> None:
        pairs = set().union(*raters)
        all_pairs = set().union(*self._ratings.orders.values())
        identical = len([pair for pair in all_pairs if pair[0] in self._texts]) - len(pairs)
        counts = {
            "Raters": len(self._ratings.orders),
            "items": len(self.items),
            "pairs of summaries compared": len(pairs),
            "ratings missing from the file": self._ratings.missing,
            "pairs left out because both texts are the same": identical,
            "pairs on which the raters have no majority": len(pairs) - len(majority),
        }
        finding.tally(counts)


def same_order(orders: Orders, reference: Orders) -> Estimate:
    """Compute the share of pairs with the same order, among the summary pairs that both sides order."""
    common = orders.keys() & reference
    return share_by_item((pair[0], orders[pair] == reference[pair]) for pair in sorted(common))


def _majority(raters: Sequence[Orders]) -> dict[Pair, int]:
    """Find the majority order of each pair, leaving out ties."""
    votes: Counter[Pair] = Counter()
    for orders in raters:
        votes.update(orders)
    return {pair: 1 if vote > 0 else -1 for pair, vote in votes.items() if vote}


def alpha_estimate(units: Units) -> Estimate:
    """Compute Krippendorff's alpha with a percentile interval over items; None for constant ratings.

    Units of one item depend on each other. ``n`` counts the items with a unit that two have rated.
    """
    by_item: dict[str, list[list[float]]] = {}
    for item, ratings in units:
        if len(ratings) > 1:
            by_item.setdefault(item, []).append(ratings)
    values = [np.concatenate(units_of_item) for units_of_item in by_item.values()]
    sizes = [np.array(list(map(len, units_of_item))) for units_of_item in by_item.values()]

    def alpha(items: Indices) -> float | None:
        if not len(items):
            return None
        ratings = np.concatenate([values[item] for item in items])
        return _alpha(ratings, np.concatenate([sizes[item] for item in items]))

    total = len({item for item, _ in units})
    return replace(bootstrap(alpha, len(by_item)), total=total)


def _alpha(ratings: Floats, sizes: Indices) -> float | None:
    """Compute alpha from consecutive units with two or more ratings each. Squared differences are compared,
    so that sums of squares suffice."""
    if ratings.min() == ratings.max():
        return None
    # centred, or sums of squares of large ratings would lose their small differences
    scale = ratings - ratings.mean()
    starts = np.cumsum(sizes) - sizes
    sums, squares = np.add.reduceat(scale, starts), np.add.reduceat(scale**2, starts)
    # the sum of (a - b)^2 over the pairs of m ratings is m times their sum of squares less their squared
    # sum
    disagreement = float(((sizes * squares - sums**2) / (sizes - 1)).sum()) / len(scale)
    by_chance = float(squares.sum()) / (len(scale) - 1)
    return 1 - disagreement / by_chance


def rating_units(raters: Iterable[Mapping[Key, float]]) -> Units:
    """Make one unit per summary."""
    return [(key[0], ratings) for key, ratings in _joined(raters).items()]


def order_units(raters: Iterable[Orders]) -> Units:
    """Make two units per pair of summaries, mirrored.

    Without the mirror image alpha would depend on which of two summaries is named first. With it, the alpha
    of two raters without ties is Kendall's tau of their orders within items, but for the correction for small
    samples.
    """
    units: Units = []
    for (item, _, _), orders in _joined(raters).items():
        units += [(item, orders), (item, [-order for order in orders])]
    return units


def _joined(raters: Iterable[Mapping[K, float]]) -> dict[K, list[float]]:
    """Collect all raters' ratings by rated object."""
    ratings_of: dict[K, list[float]] = defaultdict(list)
    for ratings in raters:
        for key, rating in ratings.items():
            ratings_of[key].append(rating)
    return ratings_of


def paired_units(metric: Orders, raters: Sequence[Orders]) -> Units:
    """Make units as :func:`order_units`, for the metric with each rater alone.

    The alpha of these units is how the metric agrees with the raters, however much they agree among
    themselves.
    """
    units: Units = []
    for orders in raters:
        units += order_units([orders, metric])
    return sorted(units, key=lambda unit: unit[0])


class JudgeAgreement:
    """Study ``judges``: agreement of several judges, named by :attr:`Value.by`."""

    name = "judges"

    def __init__(self, items: Sequence[Item]) -> None:
        self.items = items
        self._keys = [(item.id, name) for item in items for name in item.summaries]

    def finding(self, values: Sequence[Value], metrics: Sequence[MetricInfo]) -> Finding:
        """Compare the judges' values.

        Raises:
            ConfigError: no metric was computed by more than one judge.
        """
        by_metric = self._by_judge(values)
        several = [metric.name for metric in metrics if len(by_metric[metric.name]) > 1]
        if not several:
            raise ConfigError(
                "agreement between judges needs two or more of them on the same metric; name another judge",
                code="one_judge",
            )
        # a table for each way to agree: next to each other they are too wide for a terminal
        finding = Finding(self.name, "strategies", "summaries", "orders")
        for metric in several:
            for (judge, first), (rival, second) in combinations(by_metric[metric].items(), 2):
                common = [key for key in self._keys if key in first and key in second]
                sides = [{key: side[key] for key in common} for side in (first, second)]
                tau = _strategy_agreement(*sides)
                groups = [item for item, _ in common]
                rho = correlation_interval(*(list(side.values()) for side in sides), groups=groups)
                share = same_order(*map(summary_orders, sides))
                names: Row = {"metric": metric, "judge": judge, "other judge": rival}
                finding.add("strategies", {**names, **interval("tau", tau), "n": tau.n})
                finding.add("summaries", {**names, **interval("rho", rho), "n": rho.n})
                finding.add("orders", {**names, **interval("same order", share), "n": share.n})
                key = "few"
                if share.n >= FEWEST_RESAMPLED:
                    key = "chance" if share.low is not None and share.low <= 0.5 else "agree"
                finding.say(
                    key,
                    **{"metric": metric, "judge": judge, "rival": rival},
                    items=counted(share.n, "item"),
                    share=with_interval(share, ".0%"),
                    n=tau.n,
                    tau=with_interval(tau, "+z.2f"),
                )
        alone = [metric.name for metric in metrics if metric.name not in several]
        finding.say_sides(dict.fromkeys(alone, "alone"), ["alone"])
        finding.say("limits", items=counted(len(self.items), "item"))
        return finding

    def _by_judge(self, values: Sequence[Value]) -> dict[str, dict[str, dict[Key, float]]]:
        """Group values by metric, judge and summary. A judge without any defined value is listed too."""
        keys = set(self._keys)
        by_metric: dict[str, dict[str, dict[Key, float]]] = defaultdict(lambda: defaultdict(dict))
        for value in values:
            if value.by and (value.item, value.summary) in keys:
                numbers = by_metric[value.metric][value.by]
                if value.value is not None:
                    numbers[value.item, value.summary] = value.value
        return by_metric


def _strategy_agreement(first: Mapping[Key, float], second: Mapping[Key, float]) -> Estimate:
    """Compute tau between two judges' strategy means over the same summaries, resampling items."""
    items = {item: index for index, item in enumerate(dict.fromkeys(item for item, _ in first))}
    names = {name: index for index, name in enumerate(dict.fromkeys(name for _, name in first))}
    # present or not, and the values by both judges: (items, names, 3), 0 without a value
    cells = np.zeros((len(items), len(names), 3))
    for (item, name), value in first.items():
        cells[items[item], names[name]] = 1, value, second[item, name]

    def tau(resample: Indices) -> float | None:
        count, *sums = cells[resample].sum(axis=0).T
        # a resample may hold no summary of some name
        return kendall(*(list(side / count) for side in sums)) if count.all() else None

    return replace(bootstrap(tau, len(items)), n=len(names), total=len(names))
