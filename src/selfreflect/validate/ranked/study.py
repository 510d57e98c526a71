"""Ranked sets: how often does a metric judge the better of two summaries to be the better one?"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from selfreflect.sources.items import Item
from selfreflect.validate.base import MetricInfo, Value
from selfreflect.validate.ranked.conclusions import conclusions
from selfreflect.validate.ranked.order import Pair, Relation, known_order
from selfreflect.validate.ranked.padding import filler_table, pad_items
from selfreflect.validate.ranked.results import MetricResult, RankedResults, decide_pairs, length_ratios
from selfreflect.validate.ranked.tables import tables
from selfreflect.validate.study import ByMetric, Finding, dot_plot, values_by_metric

QUESTION, EMPTY = "control: question repeated", "control: empty"


class RankedSets:
    """Items whose summaries have a known order, see :func:`selfreflect.validate.ranked.order.known_order`.

    Args:
        controls: also measure the repeated question and an empty text as summaries of each item. The item's
            best summary should beat both.
        pad: measure the shorter summary of each pair once more, padded to the length of the longer one.
        seed: decides on the filler.

    Raises:
        DataError, ConfigError: as ``known_order``.
    """

    name = "ranked"

    def __init__(
        self,
        items: Sequence[Item],
        order: str | None = None,
        controls: bool = True,
        *,
        pad: bool = False,
        seed: int = 0,
    ) -> None:
        self.order = known_order(items, order)
        best = _best_summaries(self.order.pairs)
        usable: Sequence[Item] = [item for item in items if item.id in best]
        self.padding = pad_items(usable, self.order.pairs, seed) if pad else None
        if self.padding is not None:
            usable = self.padding.items
        names: set[str] = set()
        for item in usable:
            names.update(item.summaries)
        self.controls = tuple(_unused(name, names) for name in (QUESTION, EMPTY)) if controls else ()
        self.items: Sequence[Item] = [self._with_controls(item) for item in usable]
        control_pairs = []
        for name in self.controls:
            for item in self.items:
                pair = Pair(item.id, best[item.id], name)
                if item.summaries[pair.better] != item.summaries[name]:
                    control_pairs.append(pair)
        self.control_pairs = tuple(control_pairs)

    def _with_controls(self, item: Item) -> Item:
        texts = dict(zip(self.controls, (item.question, ""), strict=False))
        return replace(item, summaries={**item.summaries, **texts})

    def finding(self, values: Sequence[Value], metrics: Sequence[MetricInfo]) -> Finding:
        results = self._results(values_by_metric(values), metrics)
        plots = dot_plot(
            "ranked",
            "How often the better summary wins",
            "win rate (0.5: chance)",
            [(result.metric.name, result.rate) for result in results.main],
            against=0.5,
        )
        return Finding(self.name, tuple(tables(results)), tuple(conclusions(results)), plots)

    def _results(self, numbers: ByMetric, metrics: Sequence[MetricInfo]) -> RankedResults:
        pairs = (*self.order.pairs, *self.control_pairs)
        in_order = set(self.order.pairs)
        ratios = length_ratios(self.items, pairs)

        def decide(names: Mapping[Pair, Relation]) -> list[MetricResult]:
            return [decide_pairs(metric, numbers.get(metric.name, {}), names, ratios) for metric in metrics]

        def rank(result: MetricResult) -> float:
            rate = result.among(in_order.__contains__).rate.mean
            return math.inf if rate is None else -rate

        with_controls = sorted(decide({pair: pair.kind for pair in pairs}), key=rank)
        main = [result.among(in_order.__contains__) for result in with_controls]
        metrics = [result.metric for result in main]
        padded: list[MetricResult] = []
        filler_tables = []
        if self.padding is not None:
            padded = decide(self.padding.names)
            filler_tables.append(filler_table(self.padding, metrics, numbers))
        return RankedResults(self.order, self.controls, ratios, main, with_controls, padded, filler_tables)


def _unused(name: str, names: set[str]) -> str:
    while name in names:
        name += "*"
    return name


def _best_summaries(pairs: Sequence[Pair]) -> dict[str, str]:
    """Item -> the first of its summaries that no other one is known to beat. An order has no cycles, so there
    is one."""
    beaten = {(pair.item, pair.worse) for pair in pairs}
    best: dict[str, str] = {}
    for pair in pairs:
        if (pair.item, pair.better) not in beaten:
            best.setdefault(pair.item, pair.better)
    return best
