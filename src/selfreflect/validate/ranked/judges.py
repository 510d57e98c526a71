"""Judge agreement: do several judges rank the same summaries alike?"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from selfreflect.errors import ConfigError
from selfreflect.render.table import Cell, Column, Table
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
from selfreflect.validate.study import Curve, Finding, Plot, counted, interval_cells, joined, with_interval

_CORRELATION, _SHARE = "+z.2f", ".1%"
MEAN_COLUMNS = (
    Column("metric"),
    Column("judge"),
    Column("summary"),
    Column("mean", ".4f"),
    Column("95% low", ".4f"),
    Column("95% high", ".4f"),
    Column("n", "d"),
)
STRATEGY_NOTES = (
    "Kendall's tau-b between the two judges' means of the summaries of one name (a strategy), over those that both have values for; "
    "n: strategies; intervals: 95% percentile bootstrap over items",
)
SUMMARY_NOTES = ("Spearman's rank correlation; n: summaries; intervals: 95% percentile bootstrap over items",)
ORDER_NOTES = (
    "mean over items of the share of two summaries that both judges put in the same order; if one sees a tie the other must too; "
    "n: items; intervals: 95% BCa bootstrap over items",
)

Key = tuple[str, str]


@dataclass(frozen=True)
class Agreement:
    """Two judges on the summaries that both have values for."""

    metric: MetricInfo
    judges: tuple[str, str]
    names: Estimate
    summaries: Estimate
    same_order: Estimate
    """Over items with two or more summaries."""


class JudgeAgreement:
    """The items' summaries under several judges; which one a value is from stands in :attr:`Value.by`."""

    name = "judges"

    def __init__(self, items: Sequence[Item]) -> None:
        self.items = items

    def finding(self, values: Sequence[Value], metrics: Sequence[MetricInfo]) -> Finding:
        """
        Raises:
            ConfigError: no metric was computed by more than one judge.
        """
        known = self._by_judge(values)
        several = {metric.name: metric for metric in metrics if len(known.get(metric.name, {})) > 1}
        if not several:
            raise ConfigError(
                "agreement between judges needs two or more of them on the same metric; name another judge"
            )
        agreements = [
            self._agreement(metric, (one, other), known[metric.name])
            for metric in several.values()
            for one, other in combinations(known[metric.name], 2)
        ]
        tables = (*_agreement_tables(agreements), self._means({name: known[name] for name in several}))
        plots = tuple(_plot(one, known[one.metric.name]) for one in agreements if one.summaries.n)
        alone = [metric.name for metric in metrics if metric.name not in several]
        return Finding(self.name, tables, tuple(self._says(agreements, alone)), plots)

    def _by_judge(self, values: Sequence[Value]) -> Mapping[str, Mapping[str, Mapping[Key, float]]]:
        """Metric -> judge -> (item, summary) -> value, for judges that were asked, be their values defined or
        not."""
        ours = {(item.id, name) for item in self.items for name in item.summaries}
        found: dict[str, dict[str, dict[Key, float]]] = defaultdict(lambda: defaultdict(dict))
        for value in values:
            if value.by and (value.item, value.summary) in ours:
                of_judge = found[value.metric][value.by]
                if value.value is not None:
                    of_judge[value.item, value.summary] = value.value
        return found

    def _agreement(
        self, metric: MetricInfo, judges: tuple[str, str], known: Mapping[str, Mapping[Key, float]]
    ) -> Agreement:
        one, other = (known[judge] for judge in judges)
        keys = [
            (item.id, name)
            for item in self.items
            for name in item.summaries
            if (item.id, name) in one and (item.id, name) in other
        ]
        summaries = correlation_interval(
            [one[key] for key in keys], [other[key] for key in keys], groups=[item for item, _ in keys]
        )
        return Agreement(metric, judges, _names(one, other, keys), summaries, _same_order(one, other, keys))

    def _means(self, known: Mapping[str, Mapping[str, Mapping[Key, float]]]) -> Table:
        names = list(dict.fromkeys(name for item in self.items for name in item.summaries))
        rows: list[tuple[Cell, ...]] = []
        for metric, by_judge in known.items():
            for judge, values in by_judge.items():
                for name in names:
                    own = [values[item.id, name] for item in self.items if (item.id, name) in values]
                    mean = mean_interval(own, len(own))
                    rows.append((metric, judge, name, mean.mean, mean.low, mean.high, mean.n))
        return Table(
            "Means by judge", MEAN_COLUMNS, tuple(rows), ("intervals: 95% BCa bootstrap over items",)
        )

    def _says(self, agreements: Sequence[Agreement], alone: Sequence[str]) -> Iterator[str]:
        for one in agreements:
            yield f"{one.metric.name} by {one.judges[0]} and by {one.judges[1]}: {_agree(one)}"
        if alone:
            yield f"Left out, because fewer than two judges computed them: {joined(alone)}."
        yield (
            f"{counted(len(self.items), 'item')}. Agreement is not truth: judges of one family may share their errors. "
            "Correlations over single summaries also rise where some questions are harder than others for every judge; "
            "the share of pairs in the same order does not."
        )


def _names(one: Mapping[Key, float], other: Mapping[Key, float], keys: Sequence[Key]) -> Estimate:
    """Tau of the means of each name. Both means are over the same items, and items are what is resampled."""
    shared = set(keys)
    items = list(dict.fromkeys(item for item, _ in keys))
    names = list(dict.fromkeys(name for _, name in keys))
    present = np.array(
        [[(item, name) in shared for name in names] for item in items], dtype=np.float64
    ).reshape(len(items), len(names))
    sides = [
        np.array(
            [[side[item, name] if (item, name) in shared else 0.0 for name in names] for item in items]
        ).reshape(present.shape)
        for side in (one, other)
    ]

    def tau(drawn: Indices) -> float | None:
        counts = present[drawn].sum(axis=0)
        if not counts.all():
            return None
        return kendall(*(side[drawn].sum(axis=0) / counts for side in sides))

    found = tau(np.arange(len(items), dtype=np.intp))
    low, high = (None, None) if found is None else bootstrap(tau, len(items))
    return Estimate(found, low, high, len(names), len(names))


def _same_order(one: Mapping[Key, float], other: Mapping[Key, float], keys: Sequence[Key]) -> Estimate:
    of_item: dict[str, list[Key]] = defaultdict(list)
    for key in keys:
        of_item[key[0]].append(key)
    shares = []
    for own in of_item.values():
        same = [_sign(one[a] - one[b]) == _sign(other[a] - other[b]) for a, b in combinations(own, 2)]
        if same:
            shares.append(sum(same) / len(same))
    return bounded_mean(shares, 0, 1)


def _sign(difference: float) -> int:
    return (difference > 0) - (difference < 0)


def _agreement_tables(agreements: Sequence[Agreement]) -> Iterator[Table]:
    """One for each way to agree: side by side they are too wide for a terminal."""
    for title, what, form, of, notes in (
        (
            "Agreement on the ranking of strategies",
            "tau",
            _CORRELATION,
            [one.names for one in agreements],
            STRATEGY_NOTES,
        ),
        (
            "Agreement on single summaries",
            "rho",
            _CORRELATION,
            [one.summaries for one in agreements],
            SUMMARY_NOTES,
        ),
        (
            "Agreement on two summaries of one item",
            "same order",
            _SHARE,
            [one.same_order for one in agreements],
            ORDER_NOTES,
        ),
    ):
        texts = (Column("metric"), Column("judge"), Column("other judge"))
        columns = (
            *texts,
            Column(what, form),
            Column("95% low", form),
            Column("95% high", form),
            Column("n", "d"),
        )
        rows = tuple(
            (one.metric.name, *one.judges, *interval_cells(found), found.n)
            for one, found in zip(agreements, of, strict=True)
        )
        yield Table(title, columns, rows, notes)


def _plot(one: Agreement, known: Mapping[str, Mapping[Key, float]]) -> Plot:
    """One dot for each summary: its values by the two judges."""
    first, second = (known[judge] for judge in one.judges)
    shared = [key for key in first if key in second]
    curves = []
    for strategy in dict.fromkeys(name for _, name in shared):
        own = [key for key in shared if key[1] == strategy]
        curves.append(Curve(strategy, tuple(first[key] for key in own), tuple(second[key] for key in own)))
    return Plot(
        f"judges-{one.metric.name}",
        f"{one.metric.name}: the same summaries by two judges",
        *one.judges,
        tuple(curves),
        points=True,
    )


def _agree(one: Agreement) -> str:
    if one.same_order.n < FEWEST:
        return f"{counted(one.same_order.n, 'item')} with two summaries that both have values for is too small a number for any conclusion."
    said = f"they put two summaries of one item in the same order in {with_interval(one.same_order, '.0%')} of pairs"
    if one.same_order.low is not None and one.same_order.low <= 0.5:
        said += ", which cannot be told from a coin"
    if one.names.mean is None:
        return f"{said}. Fewer than three strategies differ in their means by both, so that no rank correlation of these is defined."
    return f"{said}; the rank correlation of the means of {one.names.n} strategies is {with_interval(one.names, _CORRELATION)}."
