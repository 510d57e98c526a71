"""Judge agreement: do several judges rank the same summaries alike?"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
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


class JudgeAgreement:
    """The items' summaries under several judges, which :attr:`Value.by` names."""

    name = "judges"

    def __init__(self, items: Sequence[Item]) -> None:
        self.items = items
        self._keys: dict[Key, None] = {}
        for item in items:
            self._keys |= dict.fromkeys((item.id, name) for name in item.summaries)

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
        strategies: list[dict[str, Cell]] = []
        summaries: list[dict[str, Cell]] = []
        orders: list[dict[str, Cell]] = []
        says, plots = [], []
        for metric in several:
            for (judge, first), (other, second) in combinations(by_metric[metric].items(), 2):
                keys = [key for key in self._keys if key in first and key in second]
                sides = [first[key] for key in keys], [second[key] for key in keys]
                tau = _strategy_agreement(keys, *sides)
                rho = correlation_interval(*sides, groups=[item for item, _ in keys])
                share = _same_order(keys, *sides)
                names = {"metric": metric, "judge": judge, "other judge": other}
                strategies.append({**names, **interval("tau", tau), "n": tau.n})
                summaries.append({**names, **interval("rho", rho), "n": rho.n})
                orders.append({**names, **interval("same order", share), "n": share.n})
                says.append(f"{metric} by {judge} and by {other}: {_verdict(share, tau)}")
                if keys:
                    plots.append(_plot(metric, judge, other, keys, *sides))
        # a table for each way to agree: next to each other they are too wide for a terminal
        tables = (
            make_table("Agreement on the ranking of strategies", strategies, _CORRELATION, (STRATEGY_NOTE,)),
            make_table("Agreement on single summaries", summaries, _CORRELATION, (SUMMARY_NOTE,)),
            make_table("Agreement on two summaries of one item", orders, ".1%", (ORDER_NOTE,)),
            self._mean_table({metric: by_metric[metric] for metric in several}),
        )
        alone = [metric.name for metric in metrics if metric.name not in several]
        says += listing("Left out, because fewer than two judges computed them:", alone)
        says.append(
            f"{counted(len(self.items), 'item')}. Agreement is not truth: judges of one family may share "
            "their errors. Correlations over single summaries also rise where some questions are harder than "
            "others for every judge; the share of pairs in the same order does not."
        )
        return Finding(self.name, tables, tuple(says), tuple(plots))

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


def _same_order(keys: Sequence[Key], a: Sequence[float], b: Sequence[float]) -> Estimate:
    """The share of two summaries of one item that both judges put in the same order."""
    by_item: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for (item, _), x, y in zip(keys, a, b, strict=True):
        by_item[item].append((x, y))
    shares = []
    for points in by_item.values():
        same = [np.sign(x - u) == np.sign(y - v) for (x, y), (u, v) in combinations(points, 2)]
        if same:
            shares.append(sum(same) / len(same))
    return bounded_mean(shares, 0, 1)


def _plot(
    metric: str, judge: str, other: str, keys: Sequence[Key], a: Sequence[float], b: Sequence[float]
) -> Plot:
    """One dot for each summary: its values by the two judges."""
    points: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for (_, name), x, y in zip(keys, a, b, strict=True):
        points[name].append((x, y))
    curves = [Curve(name, *zip(*own, strict=True)) for name, own in points.items()]
    title = f"{metric}: the same summaries by two judges"
    return Plot(f"judges-{metric}", title, judge, other, tuple(curves), points=True)


def _verdict(share: Estimate, tau: Estimate) -> str:
    if share.n < FEWEST:
        items = counted(share.n, "item")
        return (
            f"{items} with two summaries that both have values for is too small a number for any conclusion."
        )
    shown_share = with_interval(share, ".0%")
    sentence = f"they put two summaries of one item in the same order in {shown_share} of pairs"
    if share.low is not None and share.low <= 0.5:
        sentence += ", which cannot be told from a coin"
    if tau.mean is None:
        rest = "Fewer than three strategies differ in their means by both: there is no rank correlation."
        return f"{sentence}. {rest}"
    correlation = with_interval(tau, _CORRELATION)
    return f"{sentence}; the rank correlation of the means of {tau.n} strategies is {correlation}."
