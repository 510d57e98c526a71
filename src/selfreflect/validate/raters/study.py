"""Do people agree with one another on which summaries are faithful, and does a metric agree with them?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from selfreflect.errors import DataError
from selfreflect.render.table import Cell, Column, Table
from selfreflect.sources.files import listed
from selfreflect.sources.items import Item
from selfreflect.stats import Estimate
from selfreflect.validate.base import MetricInfo, Value
from selfreflect.validate.raters.agreement import (
    ORDERS,
    Level,
    alpha_estimate,
    library,
    order_counts,
    paired_counts,
    rating_counts,
)
from selfreflect.validate.raters.ratings import Pair, Ratings, summary_orders
from selfreflect.validate.statistics import FEWEST, bounded_mean, detectable_rate
from selfreflect.validate.study import Finding, Plot, dot_plot, interval_cells, one_judge, values_by_metric

_ALPHA, _SHARE = "+z.3f", ".1%"
Orders = Mapping[Pair, int]


class HumanAgreement:
    """Study ``raters``. Ratings of items that are not among ``items`` are passed over.

    Raises:
        DataError: no item at hand is rated.
        MissingExtraError: the package for alpha is not installed.
    """

    name = "raters"

    def __init__(self, items: Sequence[Item], ratings: Ratings, seed: int = 0) -> None:
        library()
        self._ratings = ratings
        self._seed = seed
        spoken = {pair[0] for orders in ratings.orders.values() for pair in orders}
        self._items = [item for item in items if item.id in spoken]
        if not self._items:
            raise DataError(
                f"none of the {len(items)} items has two summaries that a rater compared; ratings of one summary order nothing"
            )
        self._texts = {item.id: item.summaries for item in self._items}

    @property
    def items(self) -> Sequence[Item]:
        """Those that are rated."""
        return self._items

    def finding(self, values: Sequence[Value], metrics: Sequence[MetricInfo]) -> Finding:
        kept, others = one_judge(values)
        raters = [self._comparable(orders) for orders in self._ratings.orders.values()]
        known = values_by_metric(kept)
        found = [self._metric(metric, known.get(metric.name, {}), raters) for metric in metrics]
        among = self._among(raters)
        passed = (
            [f"Values by {listed(others)} were passed over: this study is about one judge at a time."]
            if others
            else []
        )
        says = (self._data(raters), _among_says(among), *_metrics_say(found), *passed)
        return Finding(
            self.name, (_rater_table(among), _alpha_table(found), _majority_table(found)), says, _plot(found)
        )

    def _comparable(self, orders: Orders) -> Orders:
        """Of the items at hand, without pairs of the same text: no metric could order these."""
        return {
            (item, one, other): order
            for (item, one, other), order in orders.items()
            if {one, other} <= self._texts.get(item, {}).keys()
            and self._texts[item][one] != self._texts[item][other]
        }

    def _among(self, raters: Sequence[Orders]) -> list[_Among]:
        rows = []
        if self._ratings.rated:
            rated = [
                {unit: value for unit, value in one.items() if unit[0] in self._texts}
                for one in self._ratings.rated.values()
            ]
            counts, different = rating_counts(rated)
            levels: tuple[Level, ...] = ("interval", "ordinal")
            rows = [
                _Among("ratings as given", level, alpha_estimate(counts, different, level, seed=self._seed))
                for level in levels
            ]
        orders = alpha_estimate(order_counts(raters), ORDERS, "interval", seed=self._seed)
        return [*rows, _Among("order of two summaries", "interval", orders)]

    def _metric(
        self, metric: MetricInfo, known: Mapping[tuple[str, str], float], raters: Sequence[Orders]
    ) -> _Agreement:
        sign = -1 if metric.better == "lower" else 1
        mine = (
            {pair: sign * order for pair, order in self._comparable(summary_orders(known)).items()}
            if known
            else {}
        )
        majority = _majority(raters)
        judged = [pair for pair in majority if pair in mine]
        by_item: dict[str, list[bool]] = {}
        for pair in judged:
            by_item.setdefault(pair[0], []).append(mine[pair] == majority[pair])
        return _Agreement(
            metric,
            alpha_estimate(paired_counts(mine, raters), ORDERS, "interval", seed=self._seed),
            alpha_estimate(
                order_counts([*raters, mine] if mine else []), ORDERS, "interval", seed=self._seed
            ),
            bounded_mean([fmean(agreed) for agreed in by_item.values()], 0, 1, seed=self._seed),
            len(judged),
            len(majority),
        )

    def _data(self, raters: Sequence[Orders]) -> str:
        compared = {pair for one in raters for pair in one}
        whole = {pair for one in self._ratings.orders.values() for pair in one if pair[0] in self._texts}
        undecided = len(compared) - len(_majority(raters))
        said = f"Raters: {len(self._ratings.raters)}; items: {len(self._items)}; pairs of summaries compared: {len(compared)}."
        if self._ratings.missing:
            said += f" Ratings missing from the file: {self._ratings.missing}."
        if len(whole) > len(compared):
            said += f" Pairs of identical texts, which no metric can order, were left out: {len(whole) - len(compared)}."
        if undecided:
            said += f" Pairs on which the raters are divided or undecided, so that there is no majority to agree with: {undecided}."
        return said


def _majority(raters: Sequence[Orders]) -> dict[Pair, int]:
    """Which summary of each pair more raters put first, as in :attr:`Ratings.preferred`; without the pairs
    where as many put the other."""
    votes: dict[Pair, int] = {}
    for orders in raters:
        for pair, order in orders.items():
            votes[pair] = votes.get(pair, 0) + order
    return {pair: 1 if vote > 0 else -1 for pair, vote in votes.items() if vote}


@dataclass(frozen=True)
class _Among:
    what: str
    level: Level
    alpha: Estimate


@dataclass(frozen=True)
class _Agreement:
    metric: MetricInfo
    each: Estimate
    """Alpha of the metric with one rater at a time."""
    joined: Estimate
    """Alpha of all raters and the metric."""
    agreement: Estimate
    """With the majority: mean over items."""
    judged: int
    """Pairs behind it."""
    decided: int
    """Pairs with a majority."""


def _rater_table(rows: Sequence[_Among]) -> Table:
    columns = (
        Column("compared"),
        Column("level"),
        Column("alpha", _ALPHA),
        *_ends(_ALPHA),
        Column("n items", "d"),
    )
    cells: list[tuple[Cell, ...]] = [
        (row.what, row.level, row.alpha.mean, row.alpha.low, row.alpha.high, row.alpha.n) for row in rows
    ]
    notes = (
        "Krippendorff's alpha: 1 is perfect agreement, 0 chance; intervals: 95% percentile bootstrap over items",
        f"there is no interval with fewer than {FEWEST} items; ratings that take very many different values have none either, or no alpha",
        "order of two summaries: which of the two a rater puts first, or neither, whatever the rater's scale; two opposite orders disagree "
        "four times as much as a tie and a preference",
    )
    return Table("Agreement among raters", columns, tuple(cells), notes)


def _alpha_table(found: Sequence[_Agreement]) -> Table:
    columns = (
        Column("metric"),
        Column("alpha with a rater", _ALPHA),
        *_ends(_ALPHA, " (a rater)"),
        Column("alpha with all raters", _ALPHA),
        *_ends(_ALPHA, " (all raters)"),
    )
    cells = tuple((one.metric.name, *interval_cells(one.each), *interval_cells(one.joined)) for one in found)
    notes = (
        "alpha with a rater: metric and one rater at a time, on the order of two summaries; comparable with that row among raters",
        "alpha with all raters: the metric as one more rater beside the others, so that their agreement with one another counts as well",
        "intervals: 95% percentile bootstrap over items",
    )
    return Table("Agreement of metrics with raters", columns, cells, notes)


def _majority_table(found: Sequence[_Agreement]) -> Table:
    columns = (
        Column("metric"),
        Column("agrees with majority", _SHARE),
        *_ends(_SHARE),
        Column("items", "d"),
        Column("pairs", "d"),
        Column("of", "d"),
    )
    cells = tuple(
        (one.metric.name, *interval_cells(one.agreement), one.agreement.n, one.judged, one.decided)
        for one in found
    )
    notes = (
        "share of pairs with a summary that most raters prefer where the metric prefers it too, ties being disagreements; mean over items",
        "of: pairs with a majority, pairs: those that the metric has values for",
        "intervals: 95% BCa bootstrap over items; exact where all items agree",
    )
    return Table("Agreement of metrics with the majority of raters", columns, cells, notes)


def _plot(found: Sequence[_Agreement]) -> tuple[Plot, ...]:
    return dot_plot(
        "raters",
        "Agreement with the majority of raters",
        "share of pairs (0.5: chance)",
        [(one.metric.name, one.agreement) for one in found],
        against=0.5,
    )


def _ends(form: str, of: str = "") -> tuple[Column, Column]:
    return Column(f"95% low{of}", form), Column(f"95% high{of}", form)


def _among_says(rows: Sequence[_Among]) -> str:
    orders = rows[-1].alpha
    if orders.mean is None:
        return (
            "Agreement among raters is not defined: no pair of summaries was compared by two raters, or all of them said the same of every "
            "pair, so that nothing tells agreement from chance."
        )
    if orders.low is None or orders.high is None:
        return f"Among raters alpha is {orders.mean:.3f} on the order of two summaries, without an interval (n = {orders.n} items)."
    interval = f"{orders.mean:.3f} [{orders.low:.3f}, {orders.high:.3f}]"
    said = f"Among raters alpha is {interval} on the order of two summaries (n = {orders.n} items)."
    return said + (
        " This includes 0: the raters cannot be shown to agree, so agreement with them says little."
        if orders.low <= 0
        else ""
    )


def _metrics_say(found: Sequence[_Agreement]) -> list[str]:
    said = []
    unknown = [one.metric.name for one in found if not one.judged]
    if unknown:
        said.append(f"No value for two summaries that raters compared: {listed(unknown)}.")
    above = [one.metric.name for one in found if _side(one.agreement) == 1]
    below = [one.metric.name for one in found if _side(one.agreement) == -1]
    rest = [one.metric.name for one in found if one.judged and _side(one.agreement) == 0]
    if above:
        said.append(f"Agree with the majority of raters more often than a coin would: {listed(above)}.")
    if below:
        said.append(f"Agree with the majority of raters less often than a coin would: {listed(below)}.")
    if rest:
        said.append(
            f"With so many items these cannot be shown to agree with the majority more often than a coin would: {listed(rest)}."
        )
    return said


def _side(rate: Estimate) -> int:
    """On which side of one half the interval lies; 0 where it holds one half or where a coin could have won
    so few items."""
    if rate.low is None or rate.high is None or detectable_rate(rate.n) is None:
        return 0
    return (rate.low > 0.5) - (rate.high < 0.5)
