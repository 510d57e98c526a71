"""Judge agreement: do several judges rank the same summaries alike?"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import combinations

import numpy as np

from selfreflect.errors import ConfigError
from selfreflect.render.plots import Curve, Plot
from selfreflect.render.table import Cell, Table
from selfreflect.sources.items import Item
from selfreflect.stats import Estimate, mean_interval
from selfreflect.validate.base import MetricInfo, Value
from selfreflect.validate.statistics import (
    FEWEST_RESAMPLED,
    Indices,
    bootstrap,
    correlation_interval,
    kendall,
    share_by_item,
)
from selfreflect.validate.study import (
    Finding,
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
Points = Mapping[Key, tuple[float, float]]
"""The values by two judges, of summaries that both have values for."""


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
                points: dict[Key, tuple[float, float]] = {}
                for key in self._keys:
                    if key in first and key in second:
                        points[key] = first[key], second[key]
                sides = [point[0] for point in points.values()], [point[1] for point in points.values()]
                tau = _strategy_agreement(points)
                rho = correlation_interval(*sides, groups=[item for item, _ in points])
                share = _same_order(points)
                names = {"metric": metric, "judge": judge, "other judge": other}
                strategies.append({**names, **interval("tau", tau), "n": tau.n})
                summaries.append({**names, **interval("rho", rho), "n": rho.n})
                orders.append({**names, **interval("same order", share), "n": share.n})
                says.append(f"{metric} by {judge} and by {other}: {_verdict(share, tau)}")
                if points:
                    title = f"{metric}: the same summaries by two judges"
                    plots.append(Plot(f"judges-{metric}", title, judge, other, _curves(points), points=True))
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
            "their errors. Correlations over single summaries also rise where some questions are harder for "
            "every judge; the share of pairs in the same order does not."
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
                for name in dict.fromkeys(name for _, name in self._keys):
                    own = [value for (_, summary), value in numbers.items() if summary == name]
                    mean = mean_interval(own, len(own))
                    names = {"metric": metric, "judge": judge, "summary": name}
                    rows.append({**names, **interval("mean", mean), "n": mean.n})
        return make_table("Means by judge", rows, ".4f", ("intervals: 95% BCa bootstrap over items",))


def _strategy_agreement(points: Points) -> Estimate:
    """Tau of the two judges' means of each name. Both means are over the same items, and items are what is
    resampled."""
    items = {item: row for row, item in enumerate(dict.fromkeys(item for item, _ in points))}
    names = {name: column for column, name in enumerate(dict.fromkeys(name for _, name in points))}
    # present or not, and the values by both judges: (items, names, 3), 0 without a value
    cells = np.zeros((len(items), len(names), 3))
    for (item, name), (x, y) in points.items():
        cells[items[item], names[name]] = 1, x, y

    def tau(resample: Indices) -> float | None:
        count, first, second = cells[resample].sum(axis=0).T
        return kendall(first / count, second / count) if count.all() else None

    mean = tau(np.arange(len(items), dtype=np.intp))
    low, high = (None, None) if mean is None else bootstrap(tau, len(items))
    return Estimate(mean, low, high, len(names), len(names))


def _same_order(points: Points) -> Estimate:
    """The share of two summaries of one item that both judges put in the same order."""
    by_item: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for (item, _), point in points.items():
        by_item[item].append(point)
    agreed: list[tuple[str, bool]] = []
    for item, own in by_item.items():
        for (x, y), (u, v) in combinations(own, 2):
            agreed.append((item, bool(np.sign(x - u) == np.sign(y - v))))
    return share_by_item(agreed)


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
        f"pairs{chance}; "
        f"the rank correlation of the means of {tau.n} strategies is {with_interval(tau, _CORRELATION)}."
    )
