"""Judge agreement: do several judges rank the same summaries alike?"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations

import numpy as np

from selfreflect.errors import ConfigError
from selfreflect.render.plots import Curve, Plot
from selfreflect.sources.items import Item
from selfreflect.stats import Estimate
from selfreflect.text import counted
from selfreflect.validate.base import MetricInfo, Value
from selfreflect.validate.raters.ratings import summary_orders
from selfreflect.validate.statistics import (
    FEWEST_RESAMPLED,
    Indices,
    bootstrap,
    correlation_interval,
    kendall,
    share_by_item,
)
from selfreflect.validate.study import Draft, Finding, Layout, Row, interval, with_interval

_CORRELATION = "+z.2f"
_PERCENTILE = "intervals: 95% percentile bootstrap over items"
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
_STRATEGIES = Layout("Agreement on the ranking of strategies", _CORRELATION, (_STRATEGY_NOTE,))
_SUMMARIES = Layout("Agreement on single summaries", _CORRELATION, (_SUMMARY_NOTE,))
_ORDERS = Layout("Agreement on two summaries of one item", ".1%", (_ORDER_NOTE,))

Key = tuple[str, str]
"""An item and a summary."""
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
        draft = Draft(self.name, _STRATEGIES, _SUMMARIES, _ORDERS)
        for metric in several:
            for (judge, first), (other, second) in combinations(by_metric[metric].items(), 2):
                points: dict[Key, tuple[float, float]] = {}
                for key in self._keys:
                    if key in first and key in second:
                        points[key] = first[key], second[key]
                sides = [x for x, _ in points.values()], [y for _, y in points.values()]
                tau = _strategy_agreement(points)
                rho = correlation_interval(*sides, groups=[item for item, _ in points])
                share = _same_order(points)
                names: Row = {"metric": metric, "judge": judge, "other judge": other}
                draft.add(_STRATEGIES, {**names, **interval("tau", tau), "n": tau.n})
                draft.add(_SUMMARIES, {**names, **interval("rho", rho), "n": rho.n})
                draft.add(_ORDERS, {**names, **interval("same order", share), "n": share.n})
                draft.says.append(f"{metric} by {judge} and by {other}: {_verdict(share, tau)}")
                if points:
                    title = f"{metric}: the same summaries by two judges"
                    plot = Plot(f"judges-{metric}", title, judge, other, _curves(points), points=True)
                    draft.plots.append(plot)
        alone = [metric.name for metric in metrics if metric.name not in several]
        draft.list_names("Left out, because fewer than two judges computed them:", alone)
        draft.says.append(
            f"{counted(len(self.items), 'item')}. Agreement is not truth: judges of one family may share "
            "their errors. Correlations over single summaries also rise where some questions are harder for "
            "every judge; the share of pairs in the same order does not."
        )
        return draft.finding()

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


def _same_order(points: Points) -> Estimate:
    """The share of two summaries of one item that both judges put in the same order."""
    first, second = (summary_orders({key: point[side] for key, point in points.items()}) for side in (0, 1))
    return share_by_item((pair[0], order == second[pair]) for pair, order in first.items())


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
