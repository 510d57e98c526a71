"""The questions on which one metric scored every strategy, and the ranking of the strategies that follows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from selfreflect.stats import Floats
from selfreflect.validate.base import MetricInfo, Parts, Value


@dataclass(frozen=True)
class Scored:
    """Questions without a value of some strategy are not among them."""

    metric: MetricInfo
    strategies: tuple[str, ...]
    questions: tuple[str, ...]
    values: Floats
    """(questions, strategies)"""
    parts: Mapping[str, tuple[Parts, ...]]
    """Of the questions that have them: one for each strategy."""

    @property
    def ranking(self) -> list[int]:
        """Places of the strategies, the best first."""
        sign = 1 if self.metric.better == "lower" else -1
        return [int(place) for place in np.argsort(sign * self.values.mean(axis=0), kind="stable")]


def scored(
    values: Sequence[Value], metric: MetricInfo, items: Sequence[str], strategies: tuple[str, ...]
) -> Scored:
    """What ``metric`` says of the items with these ids."""
    mine = {(value.item, value.summary): value for value in values if value.metric == metric.name}
    numbers, parts = {}, {}
    for id_ in items:
        found = [mine[id_, name] for name in strategies if (id_, name) in mine]
        row = [value.value for value in found if value.value is not None]
        if len(row) == len(strategies):
            numbers[id_] = row
            if all(value.parts for value in found):
                parts[id_] = tuple(value.parts for value in found)
    return Scored(
        metric, strategies, tuple(numbers), np.array(list(numbers.values()), dtype=np.float64), parts
    )


def one_judge(values: Sequence[Value]) -> tuple[list[Value], list[str]]:
    """The values of each metric by the first model that it was computed with, and the names of the other
    models."""
    first: dict[str, str] = {}
    for value in values:
        first.setdefault(value.metric, value.by)
    kept = [value for value in values if value.by == first[value.metric]]
    return kept, sorted({value.by for value in values if value.by != first[value.metric]})
