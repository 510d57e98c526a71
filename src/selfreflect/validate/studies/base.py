"""What a study is to its command: items whose summaries are to be measured, and a finding from the values."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Protocol

from selfreflect.items import Item
from selfreflect.validate.base import MetricInfo, Value
from selfreflect.validate.finding import Finding


class Study(Protocol):
    """Made from what it studies; a constructor raises DataError or ConfigError where that makes no sense, before any model is loaded."""

    @property
    def name(self) -> str: ...

    @property
    def items(self) -> Sequence[Item]:
        """What has to be measured: the items at hand, or others made from them."""

    def finding(self, values: Sequence[Value], metrics: Sequence[MetricInfo]) -> Finding:
        """Tables and sentences from the values of the metrics, in the order of ``metrics``. Values of other items are passed over."""


ByMetric = Mapping[str, Mapping[tuple[str, str], float]]


def defined(values: Sequence[Value]) -> ByMetric:
    """Metric -> (item, summary) -> value, for those that are defined."""
    found: dict[str, dict[tuple[str, str], float]] = defaultdict(dict)
    for value in values:
        if value.value is not None:
            found[value.metric][value.item, value.summary] = value.value
    return found
