"""Do people agree with one another on which summaries are faithful, and does a metric agree with them?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean

from selfreflect.errors import DataError
from selfreflect.render.table import Cell, Table
from selfreflect.sources.files import listed
from selfreflect.sources.items import Item
from selfreflect.stats import Estimate
from selfreflect.validate.base import MetricInfo, Value
from selfreflect.validate.raters.agreement import (
    Level,
    alpha_estimate,
    krippendorff_package,
    order_units,
    paired_units,
    rating_units,
)
from selfreflect.validate.raters.ratings import Pair, Ratings, summary_orders
from selfreflect.validate.statistics import FEWEST, bounded_mean, side_of_chance
from selfreflect.validate.study import (
    Finding,
    dot_plot,
    interval,
    listing,
    make_table,
    one_judge,
    values_by_metric,
    with_interval,
)

_ALPHA = "+z.3f"
RATER_NOTES = (
    "Krippendorff's alpha: 1 is perfect agreement, 0 chance; intervals: 95% percentile bootstrap over items",
    f"there is no interval with fewer than {FEWEST} items; ratings that take very many different values have "
    "none either, or no alpha",
    "order of two summaries: which of the two a rater puts first, or neither, whatever the rater's scale; "
    "two opposite orders disagree four times as much as a tie and a preference",
)
ALPHA_NOTES = (
    "alpha with a rater: metric and one rater at a time, on the order of two summaries; comparable with that "
    "row among raters",
    "alpha with all raters: the metric as one more rater, so that the raters' agreement with one another "
    "counts as well",
    "intervals: 95% percentile bootstrap over items",
)
MAJORITY_NOTES = (
    "share of pairs with a summary that most raters prefer where the metric prefers it too, ties being "
    "disagreements; mean over items",
    "of: pairs with a majority, pairs: those of them that the metric has values for",
    "intervals: 95% BCa bootstrap over items; exact where all items agree",
)

Orders = Mapping[Pair, int]
LEVELS: tuple[Level, ...] = ("interval", "ordinal")
"""How ratings are read: as numbers, or as an order only."""


class HumanAgreement:
    """Study ``raters``. Ratings of items that are not among ``items`` are ignored.

    Raises:
        DataError: none of the items is rated.
        MissingExtraError: the package for alpha is not installed.
    """

    name = "raters"

    def __init__(self, items: Sequence[Item], ratings: Ratings, seed: int = 0) -> None:
        krippendorff_package()
        self._ratings = ratings
        self._seed = seed
        item_ids: set[str] = set()
        for orders in ratings.orders.values():
            item_ids.update(item for item, _, _ in orders)
        self.items: Sequence[Item] = [item for item in items if item.id in item_ids]
        if not self.items:
            raise DataError(
                f"none of the {len(items)} items has two summaries that a rater compared; ratings of one "
                "summary order nothing"
            )
        self._texts = {item.id: item.summaries for item in self.items}

    def finding(self, values: Sequence[Value], metrics: Sequence[MetricInfo]) -> Finding:
        values, other_judges = one_judge(values)
        numbers = values_by_metric(values)
        raters = [self._comparable(orders) for orders in self._ratings.orders.values()]
        majority = _majority(raters)
        alphas: list[dict[str, Cell]] = []
        shares: list[dict[str, Cell]] = []
        agreements: dict[str, Estimate] = {}
        for metric in metrics:
            goodness = {key: -metric.badness(value) for key, value in numbers.get(metric.name, {}).items()}
            own = self._comparable(summary_orders(goodness))
            with_one = alpha_estimate(paired_units(own, raters), "interval", seed=self._seed)
            everyone = order_units([*raters, own]) if own else []
            with_all = alpha_estimate(everyone, "interval", seed=self._seed)
            row: dict[str, Cell] = {"metric": metric.name}
            row |= interval("alpha with a rater", with_one, "95% low (a rater)", "95% high (a rater)")
            row |= interval(
                "alpha with all raters", with_all, "95% low (all raters)", "95% high (all raters)"
            )
            alphas.append(row)
            share = _agreement(own, majority, self._seed)
            agreements[metric.name] = share
            counts = {"items": share.n, "pairs": len(own.keys() & majority.keys()), "of": len(majority)}
            shares.append({"metric": metric.name, **interval("agrees with majority", share), **counts})
        orders = alpha_estimate(order_units(raters), "interval", seed=self._seed)
        tables = (
            self._rater_table(orders),
            make_table("Agreement of metrics with raters", alphas, _ALPHA, ALPHA_NOTES),
            make_table("Agreement of metrics with the majority of raters", shares, ".1%", MAJORITY_NOTES),
        )
        says = [self._data(raters, majority), _raters_say(orders), *_metrics_say(agreements)]
        if other_judges:
            says.append(f"Ignored values by {listed(other_judges)}: this study is about one judge at a time.")
        plots = dot_plot(
            "raters",
            "Agreement with the majority of raters",
            "share of pairs (0.5: chance)",
            list(agreements.items()),
            against=0.5,
        )
        return Finding(self.name, tables, tuple(says), plots)

    def _comparable(self, orders: Orders) -> Orders:
        """Leave out pairs of other items and of the same text: no metric could order these."""
        comparable: dict[Pair, int] = {}
        for pair, order in orders.items():
            item, one, other = pair
            texts = self._texts.get(item, {})
            if one in texts and other in texts and texts[one] != texts[other]:
                comparable[pair] = order
        return comparable

    def _rater_table(self, orders: Estimate) -> Table:
        rows = []
        if self._ratings.rated:
            units = rating_units(list(self._ratings.rated.values()))
            units = [unit for unit in units if unit[0] in self._texts]
            alphas = {level: alpha_estimate(units, level, seed=self._seed) for level in LEVELS}
            rows = [_rater_row("ratings as given", level, alpha) for level, alpha in alphas.items()]
        rows.append(_rater_row("order of two summaries", "interval", orders))
        return make_table("Agreement among raters", rows, _ALPHA, RATER_NOTES)

    def _data(self, raters: Sequence[Orders], majority: Orders) -> str:
        pairs = set().union(*raters)
        all_pairs = set().union(*self._ratings.orders.values())
        identical = len({pair for pair in all_pairs if pair[0] in self._texts}) - len(pairs)
        undecided = len(pairs) - len(majority)
        summary = f"Raters: {len(self._ratings.raters)}; items: {len(self.items)}"
        sentences = [f"{summary}; pairs of summaries compared: {len(pairs)}."]
        if self._ratings.missing:
            sentences.append(f"Ratings missing from the file: {self._ratings.missing}.")
        if identical:
            sentences.append(f"Pairs left out because both texts are the same: {identical}.")
        if undecided:
            sentences.append(
                f"Pairs without a majority, because the raters are divided or undecided: {undecided}."
            )
        return " ".join(sentences)


def _majority(raters: Sequence[Orders]) -> dict[Pair, int]:
    """Which summary of each pair more raters put first, as in :attr:`Ratings.preferred`, without pairs in
    which as many put the other first."""
    votes: Counter[Pair] = Counter()
    for orders in raters:
        votes.update(orders)
    return {pair: 1 if vote > 0 else -1 for pair, vote in votes.items() if vote}


def _agreement(own: Orders, majority: Orders, seed: int) -> Estimate:
    """The share of pairs on which a metric's order is that of the majority: mean over items."""
    by_item: dict[str, list[bool]] = {}
    for pair, order in majority.items():
        if pair in own:
            by_item.setdefault(pair[0], []).append(own[pair] == order)
    return bounded_mean([fmean(agreed) for agreed in by_item.values()], 0, 1, seed=seed)


def _rater_row(what: str, level: str, alpha: Estimate) -> dict[str, Cell]:
    return {"compared": what, "level": level, **interval("alpha", alpha), "n items": alpha.n}


def _raters_say(orders: Estimate) -> str:
    if orders.mean is None:
        return (
            "Agreement among raters is not defined: no pair of summaries was compared by two raters, or all "
            "of them said the same of every pair, so that nothing tells agreement from chance."
        )
    alpha = with_interval(orders, ".3f")
    if orders.low is None:
        alpha += ", without an interval,"
    sentence = f"Among raters alpha is {alpha} on the order of two summaries (n = {orders.n} items)."
    if orders.low is not None and orders.low <= 0:
        sentence += (
            " This includes 0: the raters cannot be shown to agree, so agreement with them says little."
        )
    return sentence


def _metrics_say(agreements: Mapping[str, Estimate]) -> Iterator[str]:
    names: dict[int | None, list[str]] = {None: [], 1: [], -1: [], 0: []}
    for name, share in agreements.items():
        names[side_of_chance(share) if share.n else None].append(name)
    yield from listing("No value for two summaries that raters compared:", names[None])
    yield from listing("Agree with the majority of raters more often than a coin would:", names[1])
    yield from listing("Agree with the majority of raters less often than a coin would:", names[-1])
    yield from listing("Not shown, with this number of items, to agree more often than a coin:", names[0])
