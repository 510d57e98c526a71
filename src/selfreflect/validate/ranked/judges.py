"""Judge agreement: do several judges rank the same summaries alike?"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from selfreflect.errors import ConfigError
from selfreflect.render.table import Cell, Table
from selfreflect.sources.items import Item
from selfreflect.stats import Estimate, mean_interval
from selfreflect.validate.base import MetricInfo, Value
from selfreflect.validate.statistics import (
    FEWEST,
    Indices,
    bootstrap,
    bounded_mean,
    correlation_interval,
    kendall,
)
from selfreflect.validate.study import (
    Curve,
    Finding,
    Plot,
    counted,
    interval,
    listing,
    make_table,
    with_interval,
)

_CORRELATION = "+z.2f"
STRATEGY_NOTE = (
    "Kendall's tau-b between the two judges' means of the summaries of one name (a strategy), over those "
    "that both have values for; n: strategies; intervals: 95% percentile bootstrap over items"
)
SUMMARY_NOTE = "Spearman's rank correlation; n: summaries; intervals: 95% percentile bootstrap over items"
ORDER_NOTE = (
    "mean over items of the share of two summaries that both judges put in the same order; if one sees a tie "
    "the other must too; n: items; intervals: 95% BCa bootstrap over items"
)

Key = tuple[str, str]
"""An item and a summary."""
ByJudge = Mapping[str, Mapping[Key, float]]


@dataclass(frozen=True)
class Agreement:
    """Two judges on the summaries that both have values for."""

    metric: MetricInfo
    judges: tuple[str, str]
    strategies: Estimate
    summaries: Estimate
    same_order: Estimate
    """Over items with two or more summaries."""


class JudgeAgreement:
    """The items' summaries under several judges, which :attr:`Value.by` names."""

    name = "judges"

    def __init__(self, items: Sequence[Item]) -> None:
        self.items = items
        self._keys = {(item.id, name): None for item in items for name in item.summaries}

    def finding(self, values: Sequence[Value], metrics: Sequence[MetricInfo]) -> Finding:
        """
        Raises:
            ConfigError: no metric was computed by more than one judge.
        """
        by_metric = self._by_judge(values)
        several = [metric for metric in metrics if len(by_metric[metric.name]) > 1]
        if not several:
            raise ConfigError(
                "agreement between judges needs two or more of them on the same metric; name another judge"
            )
        agreements, plots = [], []
        for metric in several:
            by_judge = by_metric[metric.name]
            for judges in combinations(by_judge, 2):
                agreement = self._agreement(metric, judges, by_judge)
                agreements.append(agreement)
                if agreement.summaries.n:
                    plots.append(_plot(agreement, by_judge))
        means = self._mean_table({metric.name: by_metric[metric.name] for metric in several})
        alone = [metric.name for metric in metrics if metric not in several]
        says = (
            *(
                f"{one.metric.name} by {one.judges[0]} and by {one.judges[1]}: {_agree(one)}"
                for one in agreements
            ),
            *listing("Left out, because fewer than two judges computed them:", alone),
            f"{counted(len(self.items), 'item')}. Agreement is not truth: judges of one family may share "
            "their errors. Correlations over single summaries also rise where some questions are harder than "
            "others for every judge; the share of pairs in the same order does not.",
        )
        return Finding(self.name, (*_agreement_tables(agreements), means), says, tuple(plots))

    def _by_judge(self, values: Sequence[Value]) -> dict[str, dict[str, dict[Key, float]]]:
        """Metric -> judge -> (item, summary) -> value. A judge without any defined value is listed too."""
        by_metric: dict[str, dict[str, dict[Key, float]]] = defaultdict(lambda: defaultdict(dict))
        for value in values:
            key = (value.item, value.summary)
            if value.by and key in self._keys:
                numbers = by_metric[value.metric][value.by]
                if value.value is not None:
                    numbers[key] = value.value
        return by_metric

    def _agreement(self, metric: MetricInfo, judges: tuple[str, str], by_judge: ByJudge) -> Agreement:
        first, second = (by_judge[judge] for judge in judges)
        keys = [key for key in self._keys if key in first and key in second]
        a, b = [first[key] for key in keys], [second[key] for key in keys]
        items = [item for item, _ in keys]
        strategies = _strategy_agreement(keys, a, b)
        summaries = correlation_interval(a, b, groups=items)
        return Agreement(metric, judges, strategies, summaries, _same_order(items, a, b))

    def _mean_table(self, by_metric: Mapping[str, ByJudge]) -> Table:
        rows: list[dict[str, Cell]] = []
        for metric, by_judge in by_metric.items():
            for judge, numbers in by_judge.items():
                by_name: dict[str, list[float]] = {name: [] for _, name in self._keys}
                for key in self._keys:
                    if key in numbers:
                        by_name[key[1]].append(numbers[key])
                for name, own in by_name.items():
                    mean = mean_interval(own, len(own))
                    names = {"metric": metric, "judge": judge, "summary": name}
                    rows.append({**names, **interval("mean", mean), "n": mean.n})
        return make_table("Means by judge", rows, ".4f", ("intervals: 95% BCa bootstrap over items",))


def _strategy_agreement(keys: Sequence[Key], a: Sequence[float], b: Sequence[float]) -> Estimate:
    """Tau of the two judges' means of each name. Both means are over the same items, and items are what is
    resampled."""
    items = {item: row for row, item in enumerate(dict.fromkeys(item for item, _ in keys))}
    names = {name: column for column, name in enumerate(dict.fromkeys(name for _, name in keys))}
    # present or not, and the values by both judges: (items, names) each, 0 without a value
    present, first, second = np.zeros((3, len(items), len(names)))
    for (item, name), x, y in zip(keys, a, b, strict=True):
        cell = items[item], names[name]
        present[cell] = 1
        first[cell] = x
        second[cell] = y

    def tau(resample: Indices) -> float | None:
        counts = present[resample].sum(axis=0)
        if not counts.all():
            return None
        return kendall(first[resample].sum(axis=0) / counts, second[resample].sum(axis=0) / counts)

    mean = tau(np.arange(len(items), dtype=np.intp))
    low, high = (None, None) if mean is None else bootstrap(tau, len(items))
    return Estimate(mean, low, high, len(names), len(names))


def _same_order(items: Sequence[str], a: Sequence[float], b: Sequence[float]) -> Estimate:
    by_item: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for item, x, y in zip(items, a, b, strict=True):
        by_item[item].append((x, y))
    shares = []
    for points in by_item.values():
        same = [np.sign(x - u) == np.sign(y - v) for (x, y), (u, v) in combinations(points, 2)]
        if same:
            shares.append(sum(same) / len(same))
    return bounded_mean(shares, 0, 1)


def _agreement_tables(agreements: Sequence[Agreement]) -> list[Table]:
    """One for each way to agree: next to each other they are too wide for a terminal."""
    strategies: list[dict[str, Cell]] = []
    summaries: list[dict[str, Cell]] = []
    orders: list[dict[str, Cell]] = []
    for one in agreements:
        names = {"metric": one.metric.name, "judge": one.judges[0], "other judge": one.judges[1]}
        strategies.append({**names, **interval("tau", one.strategies), "n": one.strategies.n})
        summaries.append({**names, **interval("rho", one.summaries), "n": one.summaries.n})
        orders.append({**names, **interval("same order", one.same_order), "n": one.same_order.n})
    return [
        make_table("Agreement on the ranking of strategies", strategies, _CORRELATION, (STRATEGY_NOTE,)),
        make_table("Agreement on single summaries", summaries, _CORRELATION, (SUMMARY_NOTE,)),
        make_table("Agreement on two summaries of one item", orders, ".1%", (ORDER_NOTE,)),
    ]


def _plot(agreement: Agreement, by_judge: ByJudge) -> Plot:
    """One dot for each summary: its values by the two judges."""
    first, second = (by_judge[judge] for judge in agreement.judges)
    points: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for key in first:
        if key in second:
            points[key[1]].append((first[key], second[key]))
    curves = [Curve(name, *zip(*own, strict=True)) for name, own in points.items()]
    metric = agreement.metric.name
    title = f"{metric}: the same summaries by two judges"
    return Plot(f"judges-{metric}", title, *agreement.judges, tuple(curves), points=True)


def _agree(one: Agreement) -> str:
    if one.same_order.n < FEWEST:
        items = counted(one.same_order.n, "item")
        return (
            f"{items} with two summaries that both have values for is too small a number for any conclusion."
        )
    share = with_interval(one.same_order, ".0%")
    sentence = f"they put two summaries of one item in the same order in {share} of pairs"
    if one.same_order.low is not None and one.same_order.low <= 0.5:
        sentence += ", which cannot be told from a coin"
    if one.strategies.mean is None:
        rest = "Fewer than three strategies differ in their means by both: there is no rank correlation."
        return f"{sentence}. {rest}"
    tau = with_interval(one.strategies, _CORRELATION)
    return f"{sentence}; the rank correlation of the means of {one.strategies.n} strategies is {tau}."
