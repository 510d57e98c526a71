"""Agreement on which summaries are faithful: among people, of a metric with people, and of several judges.

Agreement of raters is Krippendorff's alpha: 1 minus the observed disagreement over the one expected by
chance. 1 is perfect, 0 is chance, below 0 is systematic disagreement (Krippendorff, Content Analysis, 4th ed.
2018, chapter 12).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from typing import Literal

import numpy as np

from selfreflect.errors import ConfigError, DataError
from selfreflect.plots import Curve, Plot
from selfreflect.sources.items import Item
from selfreflect.stats import Estimate, Floats
from selfreflect.text import counted
from selfreflect.validate.base import MetricInfo, Value
from selfreflect.validate.ratings import Orders, Pair, Ratings, summary_orders
from selfreflect.validate.statistics import (
    FEWEST_RESAMPLED,
    Indices,
    bootstrap,
    correlation_interval,
    kendall,
    scipy_stats,
    share_by_item,
    side_of_chance,
)
from selfreflect.validate.study import Finding, Layout, Row, each_metric, interval, with_interval

_PERCENTILE = "intervals: 95% percentile bootstrap over items"
RATER_NOTES = (
    "Krippendorff's alpha: 1 is perfect agreement, 0 chance; intervals: 95% percentile bootstrap over items",
    f"there is no interval with fewer than {FEWEST_RESAMPLED} items",
    "order of two summaries: which of the two a rater puts first, or neither, whatever the rater's scale; "
    "two opposite orders disagree four times as much as a tie and a preference",
)
METRIC_NOTES = (
    "alpha with a rater: metric and one rater at a time, on the order of two summaries; comparable with that "
    "row among raters",
    _PERCENTILE,
)
MAJORITY_NOTES = (
    "share of pairs with a summary that most raters prefer where the metric prefers it too, ties being "
    "disagreements; mean over items",
    "of: pairs with a majority, pairs: those of them that the metric has values for",
    "intervals: 95% BCa bootstrap over items; exact where all items agree",
)
_RATERS = Layout("Agreement among raters", "+z.3f", RATER_NOTES)
_METRICS = Layout("Agreement of metrics with raters", "+z.3f", METRIC_NOTES)
_MAJORITY = Layout("Agreement of metrics with the majority of raters", ".1%", MAJORITY_NOTES)
_VERDICTS: dict[int | None, str] = {
    None: "No value for two summaries that raters compared",
    1: "Agree with the majority of raters more often than a coin would",
    -1: "Agree with the majority of raters less often than a coin would",
    0: "Not shown, with this number of items, to agree more often than a coin",
}
Level = Literal["interval", "ordinal"]
"""How ratings are read: as numbers, or as an order only."""
Units = list[tuple[str, list[float]]]
"""What is rated: the item it belongs to, and the values that raters gave it."""


class HumanAgreement:
    """Study ``raters``. Ratings of items that are not among ``items`` are ignored.

    Raises:
        DataError: none of the items is rated.
    """

    name = "raters"

    def __init__(self, items: Sequence[Item], ratings: Ratings, seed: int = 0) -> None:
        self._ratings = ratings
        self._seed = seed
        rated = {item for orders in ratings.orders.values() for item, _, _ in orders}
        self.items: Sequence[Item] = [item for item in items if item.id in rated]
        if not self.items:
            raise DataError(
                f"none of the {len(items)} items has two summaries that a rater compared; ratings of one "
                "summary order nothing"
            )
        self._texts = {item.id: item.summaries for item in self.items}

    def finding(self, values: Sequence[Value], metrics: Sequence[MetricInfo]) -> Finding:
        finding = Finding(self.name, _RATERS, _METRICS, _MAJORITY)
        raters = list(map(self._comparable, self._ratings.orders.values()))
        majority = _majority(raters)
        among = alpha_estimate(order_units(raters), seed=self._seed)
        for level, rating in self._ratings_as_given():
            cells = {"compared": "ratings as given", "level": level, **interval("alpha", rating)}
            finding.add(_RATERS, {**cells, "n items": rating.n})
        cells = {"compared": "order of two summaries", "level": "interval", **interval("alpha", among)}
        finding.add(_RATERS, {**cells, "n items": among.n})
        self._tally(finding, raters, majority)
        finding.says.append(_among_raters(among))
        agreements: list[tuple[str, Estimate]] = []
        for metric, numbers in each_metric(values, metrics):
            goodness = {key: -metric.badness(value) for key, value in numbers.items()}
            own = self._comparable(summary_orders(goodness))
            with_one = alpha_estimate(paired_units(own, raters), seed=self._seed)
            finding.add(_METRICS, {"metric": metric.name, **interval("alpha with a rater", with_one)})
            share = same_order(majority, own, seed=self._seed)
            agreements.append((metric.name, share))
            counts = {"items": share.n, "pairs": len(own.keys() & majority), "of": len(majority)}
            finding.add(
                _MAJORITY, {"metric": metric.name, **interval("agrees with majority", share), **counts}
            )
        sides = {name: side_of_chance(share) if share.n else None for name, share in agreements}
        finding.give_verdicts(sides, _VERDICTS)
        title = "Agreement with the majority of raters"
        finding.draw_dots("raters", title, "share of pairs (0.5: chance)", agreements, against=0.5)
        return finding

    def _ratings_as_given(self) -> Iterator[tuple[Level, Estimate]]:
        units = [unit for unit in rating_units(self._ratings.rated.values()) if unit[0] in self._texts]
        levels: tuple[Level, ...] = ("interval", "ordinal")
        for level in levels if self._ratings.rated else ():
            yield level, alpha_estimate(units, level, seed=self._seed)

    def _comparable(self, orders: Orders) -> Orders:
        """Leave out pairs of other items and of the same text: no metric could order these."""
        comparable: dict[Pair, int] = {}
        for pair, order in orders.items():
            item, one, other = pair
            texts = self._texts.get(item, {})
            if one in texts and other in texts and texts[one] != texts[other]:
                comparable[pair] = order
        return comparable

    def _tally(self, finding: Finding, raters: Sequence[Orders], majority: Orders) -> None:
        pairs = set().union(*raters)
        all_pairs = set().union(*self._ratings.orders.values())
        identical = len([pair for pair in all_pairs if pair[0] in self._texts]) - len(pairs)
        counts = {
            "Raters": len(self._ratings.raters),
            "items": len(self.items),
            "pairs of summaries compared": len(pairs),
            "ratings missing from the file": self._ratings.missing,
            "pairs left out because both texts are the same": identical,
            "pairs on which the raters have no majority": len(pairs) - len(majority),
        }
        finding.tally(counts)


def same_order(orders: Orders, other: Orders, *, seed: int = 0) -> Estimate:
    """The share of two summaries of one item, among those that both sides order, that they order alike."""
    alike = [(pair[0], order == other[pair]) for pair, order in orders.items() if pair in other]
    return share_by_item(alike, seed=seed)


def _majority(raters: Sequence[Orders]) -> dict[Pair, int]:
    """Which summary of each pair more raters put first, without pairs in which as many put the other
    first."""
    votes: Counter[Pair] = Counter()
    for orders in raters:
        votes.update(orders)
    return {pair: 1 if vote > 0 else -1 for pair, vote in votes.items() if vote}


def _among_raters(orders: Estimate) -> str:
    if orders.mean is None:
        return (
            "Agreement among raters is not defined: no two compared the same summaries, or all said the same "
            "of every pair."
        )
    alpha = f"{with_interval(orders, '.3f')} on the order of two summaries (n = {orders.n} items)"
    unclear = orders.low is not None and orders.low <= 0
    hint = " The raters cannot be shown to agree, so agreement with them says little." if unclear else ""
    return f"Among raters alpha is {alpha}.{hint}"


def alpha_estimate(units: Units, level: Level = "interval", *, seed: int = 0) -> Estimate:
    """Krippendorff's alpha with a percentile interval over items, whose units depend on each other. ``n``
    counts the items with a unit that two have rated; None if all ratings are equal."""
    by_item: dict[str, list[list[float]]] = {}
    for item, ratings in units:
        if len(ratings) > 1:
            by_item.setdefault(item, []).append(ratings)
    values = [np.concatenate(own) for own in by_item.values()]
    sizes = [np.array(list(map(len, own))) for own in by_item.values()]

    def of_items(items: Indices) -> float | None:
        if not len(items):
            return None
        ratings = np.concatenate([values[item] for item in items])
        return _alpha(ratings, np.concatenate([sizes[item] for item in items]), level)

    total = len({item for item, _ in units})
    return replace(bootstrap(of_items, len(by_item), seed=seed), total=total)


def _alpha(ratings: Floats, sizes: Indices, level: Level) -> float | None:
    """Alpha from the ratings of one unit after the other, of which each has two or more. Both levels compare
    squared differences, of ratings or of ranks, so that sums of squares suffice."""
    if ratings.min() == ratings.max():
        return None
    scale = scipy_stats().rankdata(ratings) if level == "ordinal" else ratings
    scale = scale - scale.mean()
    starts = np.cumsum(sizes) - sizes
    sums, squares = np.add.reduceat(scale, starts), np.add.reduceat(scale**2, starts)
    disagreement = float(((sizes * squares - sums**2) / (sizes - 1)).sum()) / len(scale)
    by_chance = float(squares.sum()) / (len(scale) - 1)
    return 1 - disagreement / by_chance


def rating_units(raters: Iterable[Mapping[tuple[str, str], float]]) -> Units:
    """One unit for each summary."""
    by_summary: dict[tuple[str, str], list[float]] = defaultdict(list)
    for ratings in raters:
        for key, rating in ratings.items():
            by_summary[key].append(rating)
    return [(item, ratings) for (item, _), ratings in by_summary.items()]


def order_units(raters: Iterable[Orders]) -> Units:
    """Two units for each pair of summaries: the pair and its mirror image.

    Without the mirror image alpha would depend on which of two summaries is named first. With it, the alpha
    of two raters without ties is Kendall's tau of their orders within items, but for the correction for small
    samples.
    """
    by_pair: dict[Pair, list[float]] = defaultdict(list)
    for orders in raters:
        for pair, order in orders.items():
            by_pair[pair].append(order)
    units: Units = []
    for (item, _, _), orders_of_pair in by_pair.items():
        units += [(item, orders_of_pair), (item, [-order for order in orders_of_pair])]
    return units


def paired_units(metric: Orders, raters: Sequence[Orders]) -> Units:
    """As :func:`order_units`, with separate units for each rater, rated only by this rater and the metric.

    The alpha of these units is how the metric agrees with the raters, however much they agree among
    themselves.
    """
    units: Units = []
    for orders in raters:
        units += order_units([orders, metric])
    return sorted(units, key=lambda unit: unit[0])


_STRATEGY_NOTE = (
    "Kendall's tau-b between the two judges' means of the summaries of one name (a strategy), over those "
    f"that both have values for; n: strategies; {_PERCENTILE}"
)
_SUMMARY_NOTE = f"Spearman's rank correlation; n: summaries; {_PERCENTILE}"
_ORDER_NOTE = (
    "mean over items of the share of two summaries that both judges put in the same order; if one sees a tie "
    "the other must too; n: items; intervals: 95% BCa bootstrap over items"
)
# a table for each way to agree: next to each other they are too wide for a terminal
_STRATEGIES = Layout("Agreement on the ranking of strategies", "+z.2f", (_STRATEGY_NOTE,))
_SUMMARIES = Layout("Agreement on single summaries", "+z.2f", (_SUMMARY_NOTE,))
_ORDERS = Layout("Agreement on two summaries of one item", ".1%", (_ORDER_NOTE,))
Key = tuple[str, str]
"""An item and a summary."""
Points = Mapping[Key, tuple[float, float]]
"""The values by two judges, of summaries that both have values for."""


class JudgeAgreement:
    """Study ``judges``: the items' summaries under several judges, which :attr:`Value.by` names."""

    name = "judges"

    def __init__(self, items: Sequence[Item]) -> None:
        self.items = items
        self._keys = [(item.id, name) for item in items for name in item.summaries]

    def finding(self, values: Sequence[Value], metrics: Sequence[MetricInfo]) -> Finding:
        """
        Raises:
            ConfigError: no metric was computed by more than one judge.
        """
        by_metric = self._by_judge(values)
        several = [metric.name for metric in metrics if len(by_metric[metric.name]) > 1]
        if not several:
            raise ConfigError(
                "agreement between judges needs two or more of them on the same metric; name another judge"
            )
        finding = Finding(self.name, _STRATEGIES, _SUMMARIES, _ORDERS)
        for metric in several:
            for (judge, first), (other, second) in combinations(by_metric[metric].items(), 2):
                both = [key for key in self._keys if key in first and key in second]
                points = {key: (first[key], second[key]) for key in both}
                tau = _strategy_agreement(points)
                sides = [first[key] for key in both], [second[key] for key in both]
                rho = correlation_interval(*sides, groups=[item for item, _ in both])
                orders = summary_orders({key: first[key] for key in both})
                share = same_order(orders, summary_orders({key: second[key] for key in both}))
                names: Row = {"metric": metric, "judge": judge, "other judge": other}
                finding.add(_STRATEGIES, {**names, **interval("tau", tau), "n": tau.n})
                finding.add(_SUMMARIES, {**names, **interval("rho", rho), "n": rho.n})
                finding.add(_ORDERS, {**names, **interval("same order", share), "n": share.n})
                finding.says.append(f"{metric} by {judge} and by {other}: {_verdict(share, tau)}")
                if points:
                    title = f"{metric}: the same summaries by two judges"
                    plot = Plot(f"judges-{metric}", title, judge, other, _curves(points), points=True)
                    finding.plots.append(plot)
        alone = [metric.name for metric in metrics if metric.name not in several]
        finding.list_names("Left out, because fewer than two judges computed them:", alone)
        finding.says.append(
            f"{counted(len(self.items), 'item')}. Agreement is not truth: judges of one family may share "
            "their errors. Correlations over single summaries also rise where some questions are harder for "
            "every judge; the share of pairs in the same order does not."
        )
        return finding

    def _by_judge(self, values: Sequence[Value]) -> dict[str, dict[str, dict[Key, float]]]:
        """Metric -> judge -> (item, summary) -> value. A judge without any defined value is listed too."""
        keys = set(self._keys)
        by_metric: dict[str, dict[str, dict[Key, float]]] = defaultdict(lambda: defaultdict(dict))
        for value in values:
            if value.by and (value.item, value.summary) in keys:
                numbers = by_metric[value.metric][value.by]
                if value.value is not None:
                    numbers[value.item, value.summary] = value.value
        return by_metric


def _strategy_agreement(points: Points) -> Estimate:
    """Tau of the two judges' means of each name. Both means are over the same items, and items are what is
    resampled."""
    items: dict[str, int] = {}
    names: dict[str, int] = {}
    for item, name in points:
        items.setdefault(item, len(items))
        names.setdefault(name, len(names))
    # present or not, and the values by both judges: (items, names, 3), 0 without a value
    cells = np.zeros((len(items), len(names), 3))
    for (item, name), (x, y) in points.items():
        cells[items[item], names[name]] = 1, x, y

    def tau(resample: Indices) -> float | None:
        count, first, second = cells[resample].sum(axis=0).T
        return kendall(first / count, second / count) if count.all() else None

    return replace(bootstrap(tau, len(items)), n=len(names), total=len(names))


def _curves(points: Points) -> tuple[Curve, ...]:
    """One dot for each summary: its values by the two judges."""
    by_name: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for (_, name), point in points.items():
        by_name[name].append(point)
    return tuple(Curve(name, *zip(*own, strict=True)) for name, own in by_name.items())


def _verdict(share: Estimate, tau: Estimate) -> str:
    if share.n < FEWEST_RESAMPLED:
        return f"{counted(share.n, 'item')} with two summaries is too small a number for any conclusion."
    chance = ", which cannot be told from a coin" if share.low is not None and share.low <= 0.5 else ""
    return (
        f"they put two summaries of one item in the same order in {with_interval(share, '.0%')} of "
        f"pairs{chance}; the rank correlation of the means of {tau.n} strategies is "
        f"{with_interval(tau, '+z.2f')}."
    )
