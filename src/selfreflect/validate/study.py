"""What a study is to its command: items whose summaries are to be measured, and a finding from the values."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Protocol

from selfreflect.errors import ConfigError, excerpt
from selfreflect.sources.items import Item
from selfreflect.stats import Estimate
from selfreflect.validate.base import MetricInfo, Value
from selfreflect.validate.finding import Curve, Finding, Plot


class Study(Protocol):
    """Made from what it studies; a constructor raises DataError or ConfigError where that makes no sense,
    before any model is loaded."""

    @property
    def name(self) -> str: ...

    @property
    def items(self) -> Sequence[Item]:
        """What has to be measured: the items at hand, or others made from them."""

    def finding(self, values: Sequence[Value], metrics: Sequence[MetricInfo]) -> Finding:
        """Tables and sentences from the values of the metrics, in the order of ``metrics``. Values of other
        items are passed over."""


ByMetric = Mapping[str, Mapping[tuple[str, str], float]]


def defined(values: Sequence[Value]) -> ByMetric:
    """Metric -> (item, summary) -> value, for those that are defined.

    Raises:
        ConfigError: one metric has values by several models, of which one would hide the other.
    """
    found: dict[str, dict[tuple[str, str], float]] = defaultdict(dict)
    models: dict[str, str] = {}
    for value in values:
        if models.setdefault(value.metric, value.by) != value.by:
            both = f"{excerpt(models[value.metric])} and by {excerpt(value.by)}"
            raise ConfigError(f"{value.metric} has values by {both}; this study takes one model at a time")
        if value.value is not None:
            found[value.metric][value.item, value.summary] = value.value
    return found


def dots(
    name: str, title: str, label: str, estimates: Sequence[tuple[str, Estimate]], against: float
) -> tuple[Plot, ...]:
    """One named dot with its interval for each estimate that has a mean, in their order; no plot where none
    has."""
    known = [(of, one, one.mean) for of, one in estimates if one.mean is not None]
    curves = []
    for place, (of, one, mean) in enumerate(known, 1):
        low, high = ((), ()) if one.low is None or one.high is None else ((one.low,), (one.high,))
        curves.append(Curve(of, (float(place),), (mean,), low, high))
    return (Plot(name, title, "place", label, tuple(curves), points=True, against=against),) if curves else ()
