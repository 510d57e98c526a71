"""Studies ``raters`` and ``judges``: agreement on which summaries are faithful, with people and of judges.

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

import numpy as np

from selfreflect.errors import ConfigError, DataError, excerpt, nearest
from selfreflect.sources.files import PARSERS, listed, parse_rows, read_content
from selfreflect.sources.files import Row as FileRow
from selfreflect.sources.items import Item
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
from selfreflect.validate.study import Finding, Row, TableLayout, each_metric, interval, with_interval

RATING, PREFERENCES, TIE = "rating", ("preferred", "preference"), "tie"

Pair = tuple[str, str, str]
"""An item and two of its summaries, whose names are in alphabetical order."""


Orders = Mapping[Pair, int]
"""1 where the first summary of a pair is put first, -1 where the second is, 0 for neither."""


@dataclass(frozen=True)
class Ratings:
    """Orders that people give summaries; ratings give orders, too, and a blank cell gives none."""

    raters: tuple[str, ...]
    """In the order of the file, those without a single rating too."""
    orders: Mapping[str, Orders]
    """By rater."""
    rated: Mapping[str, Mapping[tuple[str, str], float]] = field(default_factory=dict)
    """Rater -> (item, summary) -> rating, higher is more faithful; empty for preferences."""
    missing: int = 0
    """Rows whose rating is blank."""


def summary_orders(values: Mapping[tuple[str, str], float]) -> dict[Pair, int]:
    """Order each two summaries of an item by their values, the higher one first."""
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
    """Read ratings from a CSV file with the columns rater, item, summary and rating, or rater, item, summary,
    other and preferred.

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
    raters: dict[str, None] = {}
    lines: dict[tuple[str, ...], str] = {}
    rated: dict[str, dict[tuple[str, str], float]] = defaultdict(dict)
    preferred: dict[str, dict[Pair, int]] = defaultdict(dict)
    missing = 0
    for row in rows:
        rater, item = row.text("rater"), row.text("item")
        names = sorted(map(row.text, columns))
        _check_names(row, item, names, summaries)
        line = lines.setdefault((rater, item, *names), row.where)
        if line != row.where:
            raise row.error(
                f"rater {excerpt(rater)} has rated {excerpt(', '.join(names))} of item {excerpt(item)} "
                f"before, in {line}"
            )
        raters[rater] = None
        text = str(row.get(column)).strip()
        if not text:
            missing += 1
        elif column == RATING:
            rated[rater][item, names[0]] = _number(row, text)
        else:
            preferred[rater][item, names[0], names[1]] = _preference(row, column, text, names)
    if missing == len(rows):
        raise DataError(f"{content.name}: all ratings are blank")
    orders = {rater: summary_orders(values) for rater, values in rated.items()}
    return Ratings(tuple(raters), {**orders, **preferred}, rated, missing)


def _rating_column(row: FileRow) -> str:
    """Find the column with ratings or preferences, or raise DataError."""
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
            f"the fields 'summary' and 'other' both name {excerpt(names[0])}; a preference is between two"
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
            f"the field {column!r} must name {excerpt(first)} or {excerpt(second)}, or say {TIE!r}; "
            f"it is {excerpt(text)}"
        )
    return orders.get(text, 0)


_PERCENTILE = "intervals: 95 % percentile bootstrap over items"
RATER_NOTES = (
    "Krippendorff's alpha: 1 is perfect agreement, 0 chance; intervals: 95 % percentile bootstrap over items",
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
    "intervals: 95 % BCa bootstrap over items; exact where all items agree",
)
_RATERS = TableLayout("Agreement among raters", "+z.3f", RATER_NOTES)
_METRICS = TableLayout("Agreement of metrics with raters", "+z.3f", METRIC_NOTES)
_MAJORITY = TableLayout("Agreement of metrics with the majority of raters", ".1%", MAJORITY_NOTES)
_VERDICTS: dict[int | None, str] = {
    None: "No value for two summaries that raters compared",
    1: "Agree with the majority of raters more often than a coin would",
    -1: "Agree with the majority of raters less often than a coin would",
    0: "Not shown, with this number of items, to agree more often than a coin",
}
Units = list[tuple[str, list[float]]]
"""Rated objects: the item that each belongs to, and the values that raters gave it."""


class HumanAgreement:
    """Study ``raters``: a metric beside people. Ratings of items that are not studied are ignored.

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
                f"none of the {len(items)} items has two summaries that a rater compared; ratings of one "
                "summary order nothing",
                code="nothing_compared",
            )
        self._texts = {item.id: item.summaries for item in self.items}

    def finding(self, values: Sequence[Value], metrics: Sequence[MetricInfo]) -> Finding:
        finding = Finding(self.name, _RATERS, _METRICS, _MAJORITY)
        raters = list(map(self._comparable, self._ratings.orders.values()))
        majority = _majority(raters)
        among = alpha_estimate(order_units(raters))
        if self._ratings.rated:
            units = [unit for unit in rating_units(self._ratings.rated.values()) if unit[0] in self._texts]
            rating = alpha_estimate(units)
            finding.add(_RATERS, {"compared": "ratings", **interval("alpha", rating), "n items": rating.n})
        compared = "order of two summaries"
        finding.add(_RATERS, {"compared": compared, **interval("alpha", among), "n items": among.n})
        self._tally(finding, raters, majority)
        finding.says.append(_among_raters(among))
        agreements: list[tuple[str, Estimate]] = []
        for metric, numbers in each_metric(values, metrics):
            goodness = {key: -metric.badness(value) for key, value in numbers.items()}
            orders = self._comparable(summary_orders(goodness))
            alpha = alpha_estimate(paired_units(orders, raters))
            finding.add(_METRICS, {"metric": metric.name, **interval("alpha with a rater", alpha)})
            share = same_order(majority, orders)
            agreements.append((metric.name, share))
            counts = {"items": share.n, "pairs": len(orders.keys() & majority), "of": len(majority)}
            finding.add(
                _MAJORITY, {"metric": metric.name, **interval("agrees with majority", share), **counts}
            )
        sides = {name: side_of_chance(share) if share.n else None for name, share in agreements}
        finding.give_verdicts(sides, _VERDICTS)
        return finding

    def _comparable(self, orders: Orders) -> Orders:
        """Leave out pairs of other items and of the same text: no metric could order these."""
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
            "Raters": len(self._ratings.raters),
            "items": len(self.items),
            "pairs of summaries compared": len(pairs),
            "ratings missing from the file": self._ratings.missing,
            "pairs left out because both texts are the same": identical,
            "pairs on which the raters have no majority": len(pairs) - len(majority),
        }
        finding.tally(counts)


def same_order(orders: Orders, reference: Orders) -> Estimate:
    """Compute the share of pairs of summaries, among those that both sides order, that they order alike."""
    common = orders.keys() & reference
    return share_by_item((pair[0], orders[pair] == reference[pair]) for pair in sorted(common))


def _majority(raters: Sequence[Orders]) -> dict[Pair, int]:
    """Find which summary of each pair more raters put first, without pairs that have as many votes for the
    other."""
    votes: Counter[Pair] = Counter()
    for orders in raters:
        votes.update(orders)
    return {pair: 1 if vote > 0 else -1 for pair, vote in votes.items() if vote}


def _among_raters(orders: Estimate) -> str:
    """Say how far raters agree, since a metric cannot be expected to agree with them more."""
    if orders.mean is None:
        return (
            "Agreement among raters is not defined: no two compared the same summaries, or all said the same "
            "of every pair."
        )
    alpha = f"{with_interval(orders, '.3f')} on the order of two summaries (n = {orders.n} items)"
    unclear = orders.low is not None and orders.low <= 0
    hint = " The raters cannot be shown to agree, so agreement with them says little." if unclear else ""
    return f"Among raters alpha is {alpha}.{hint}"


def alpha_estimate(units: Units) -> Estimate:
    """Compute Krippendorff's alpha with a percentile interval over items; None if all ratings are equal.

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
    """Compute alpha from the ratings of one unit after the other, of which each has two or more. Squared
    differences are compared, so that sums of squares suffice."""
    if ratings.min() == ratings.max():
        return None
    # centred, or sums of squares of large ratings would lose their small differences
    scale = ratings - ratings.mean()
    starts = np.cumsum(sizes) - sizes
    sums, squares = np.add.reduceat(scale, starts), np.add.reduceat(scale**2, starts)
    disagreement = float(((sizes * squares - sums**2) / (sizes - 1)).sum()) / len(scale)
    by_chance = float(squares.sum()) / (len(scale) - 1)
    return 1 - disagreement / by_chance


def rating_units(raters: Iterable[Mapping[tuple[str, str], float]]) -> Units:
    """Make a unit for each summary."""
    by_summary: dict[tuple[str, str], list[float]] = defaultdict(list)
    for ratings in raters:
        for key, rating in ratings.items():
            by_summary[key].append(rating)
    return [(item, ratings) for (item, _), ratings in by_summary.items()]


def order_units(raters: Iterable[Orders]) -> Units:
    """Make two units for each pair of summaries: the pair and its mirror image.

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
    """Make units as :func:`order_units`, for each rater apart, rated by this rater and the metric alone.

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
    "the other must too; n: items; intervals: 95 % BCa bootstrap over items"
)
# a table for each way to agree: next to each other they are too wide for a terminal
_STRATEGIES = TableLayout("Agreement on the ranking of strategies", "+z.2f", (_STRATEGY_NOTE,))
_SUMMARIES = TableLayout("Agreement on single summaries", "+z.2f", (_SUMMARY_NOTE,))
_ORDERS = TableLayout("Agreement on two summaries of one item", ".1%", (_ORDER_NOTE,))
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
                "agreement between judges needs two or more of them on the same metric; name another judge",
                code="one_judge",
            )
        finding = Finding(self.name, _STRATEGIES, _SUMMARIES, _ORDERS)
        for metric in several:
            for (judge, first), (rival, second) in combinations(by_metric[metric].items(), 2):
                common = [key for key in self._keys if key in first and key in second]
                points = {key: (first[key], second[key]) for key in common}
                tau = _strategy_agreement(points)
                sides = [first[key] for key in common], [second[key] for key in common]
                rho = correlation_interval(*sides, groups=[item for item, _ in common])
                orders = summary_orders({key: first[key] for key in common})
                share = same_order(orders, summary_orders({key: second[key] for key in common}))
                names: Row = {"metric": metric, "judge": judge, "other judge": rival}
                finding.add(_STRATEGIES, {**names, **interval("tau", tau), "n": tau.n})
                finding.add(_SUMMARIES, {**names, **interval("rho", rho), "n": rho.n})
                finding.add(_ORDERS, {**names, **interval("same order", share), "n": share.n})
                finding.says.append(f"{metric} by {judge} and by {rival}: {_verdict(share, tau)}")
        alone = [metric.name for metric in metrics if metric.name not in several]
        finding.list_names("Left out, because fewer than two judges computed them:", alone)
        finding.says.append(
            f"{counted(len(self.items), 'item')}. Agreement is not truth: judges of one family may share "
            "their errors. Correlations over single summaries also rise where some questions are harder for "
            "every judge; the share of pairs in the same order does not."
        )
        return finding

    def _by_judge(self, values: Sequence[Value]) -> dict[str, dict[str, dict[Key, float]]]:
        """Sort values by metric, judge and summary. A judge without any defined value is listed too."""
        keys = set(self._keys)
        by_metric: dict[str, dict[str, dict[Key, float]]] = defaultdict(lambda: defaultdict(dict))
        for value in values:
            if value.by and (value.item, value.summary) in keys:
                numbers = by_metric[value.metric][value.by]
                if value.value is not None:
                    numbers[value.item, value.summary] = value.value
        return by_metric


def _strategy_agreement(points: Points) -> Estimate:
    """Compute tau of the two judges' means of each name, over the same items, which are resampled."""
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
        return kendall(list(first / count), list(second / count)) if count.all() else None

    return replace(bootstrap(tau, len(items)), n=len(names), total=len(names))


def _verdict(share: Estimate, tau: Estimate) -> str:
    """Say how far two judges agree."""
    if share.n < FEWEST_RESAMPLED:
        return f"{counted(share.n, 'item')} with two summaries is too small a number for any conclusion."
    chance = ", which cannot be told from a coin" if share.low is not None and share.low <= 0.5 else ""
    return (
        f"they put two summaries of one item in the same order in {with_interval(share, '.0%')} of "
        f"pairs{chance}; the rank correlation of the means of {tau.n} strategies is "
        f"{with_interval(tau, '+z.2f')}."
    )
