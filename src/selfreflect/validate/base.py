"""Metrics of summaries: what is known of one, its values, and families that compute several together."""

from __future__ import annotations

import hashlib
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from msgspec import convert

from selfreflect.records import FailureKind, NothingToTell, Record, dump_line
from selfreflect.sources.items import Item

if TYPE_CHECKING:
    from selfreflect.metric.prompts import CannotScoreError

Better = Literal["lower", "higher"]
Need = Literal["judge", "generator", "embedder"]
"""A judge is a local model with full logits; a generator is any model that answers, local or behind an
API."""
Group = Literal["selfreflect", "information", "ablation", "competitor", "control"]
Reason = (
    FailureKind
    | NothingToTell
    | Literal[
        "blank",  # a text that the metric needs is blank
        "unparsed",  # the model's reply does not have the requested form
        "undefined",  # a measure of the package has no value, as the message says
        "no_claims",  # of earlier versions, whose values stay readable
    ]
)


class MetricInfo(Record, frozen=True, kw_only=True):
    """Name, direction and needs of a metric."""

    name: str
    better: Better
    group: Group
    about: str
    """One line."""
    needs: tuple[Need, ...] = ()

    def wins(self, value: float, rival: float) -> bool:
        """Return whether ``value`` is the better one. Of two values that tie none is."""
        from selfreflect.stats import is_tie  # loads NumPy, which the catalogue does without

        return self.badness(value) < self.badness(rival) and not is_tie(value, rival)

    def badness(self, value: float) -> float:
        """Negate the value where higher is better, so that lower is better for every metric."""
        return value if self.better == "lower" else -value


class Undefined(Record, frozen=True, kw_only=True):
    """Reason why a metric has no value for a summary."""

    reason: Reason
    message: str


class Value(Record, frozen=True, kw_only=True, omit_defaults=True):
    """Value of one summary by one metric."""

    metric: str
    item: str
    summary: str
    digest: str
    """Of everything the value depends on but the model, see :func:`digest`."""
    by: str = ""
    """The model that computed it, its revision, its server, and what else matters about it, such as prompts;
    empty for a metric without a model."""
    value: float | None = None
    undefined: Undefined | None = None
    """Present exactly if there is no value."""
    parts: tuple[Any, ...] = ()
    """Written by earlier versions; not read."""

    def __post_init__(self) -> None:
        if (self.value is None) == (self.undefined is None):
            raise ValueError("a value is either a number or undefined for a reason")
        if self.value is not None and not math.isfinite(self.value):
            raise ValueError(f"{self.metric} of {self.summary!r} is {self.value}, not a finite number")


def digest(item: Item, summary: str) -> str:
    """Hash the question, the answers and the text of one summary: 16 hex digits of the SHA-256."""
    line = dump_line([item.question, item.masked_out, item.conditioning, item.summaries[summary]])
    return hashlib.sha256(line.encode()).hexdigest()[:16]


Result = float | Undefined
"""A number, or why there is none."""
Results = Mapping[str, Result]
"""By metric."""


class Family(ABC):
    """Metrics that share their work, such as several distances of the same predictions."""

    by = ""
    """The model, see :attr:`Value.by`."""

    def __init__(self, metrics: Sequence[MetricInfo]) -> None:
        self.metrics = tuple(metrics)

    @abstractmethod
    def measure(self, item: Item) -> Mapping[str, Results]:
        """Compute all metrics by text of the summaries.

        Raises:
            CannotScoreError: no summary of the item can have a value.
            BackendError: the model has stopped working.
        """

    def score(self, item: Item) -> list[Value]:
        """Compute a value for each metric and each summary of the item. A summary that cannot be scored does
        not affect the others.

        Raises:
            BackendError: the model has stopped working, so that no other item could be scored either.
        """
        from selfreflect.metric.prompts import CannotScoreError  # loads NumPy

        try:
            results = self.measure(item)
        except CannotScoreError as error:
            nothing = {info.name: undefined(error) for info in self.metrics}
            results = dict.fromkeys(item.summaries.values(), nothing)
        values = []
        for name, text in item.summaries.items():
            facts = {"item": item.id, "summary": name, "digest": digest(item, name), "by": self.by}
            for info in self.metrics:
                result = results[text][info.name]
                kind = "undefined" if isinstance(result, Undefined) else "value"
                values.append(convert({"metric": info.name, **facts, kind: result}, Value))
        return values


def undefined(error: CannotScoreError) -> Undefined:
    """Record why a summary has no value."""
    return Undefined(reason=error.kind, message=str(error))


def model_name(name: str, revision: str, facts: Mapping[str, Any]) -> str:
    """Name a model and its server, if any: two may call different models the same. ``facts`` hold no
    credentials."""
    revision = f"@{revision}" if revision else ""
    url = facts.get("base_url")
    return f"{name}{revision} at {url}" if url else f"{name}{revision}"
