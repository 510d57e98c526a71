"""What families of metrics share: records of their results, summaries in groups, and names of models."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from selfreflect.metric.prompts import CannotScoreError
from selfreflect.sources.items import Item
from selfreflect.validate.base import MetricInfo, Parts, Undefined, Value, digest

if TYPE_CHECKING:
    from selfreflect.models.judge import Judge


class Parted(NamedTuple):
    """A value with what it is the mean of."""

    value: float
    parts: Parts


Result = float | Parted | Undefined
"""A number, or why there is none."""
Results = Mapping[str, Result]
"""By metric."""

GROUP = 6
"""Summaries whose prompts and states exist at once. A study may give thirty per item; each group projects the
reference again, so not fewer."""

T = TypeVar("T")


class MetricFamily(ABC):
    """Metrics that share their work. A subclass measures texts, and records are made here."""

    by = ""

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
        """One value for each metric and summary."""
        try:
            results = self.measure(item)
        except CannotScoreError as error:
            nothing = {info.name: undefined(error) for info in self.metrics}
            results = dict.fromkeys(item.summaries.values(), nothing)
        values = []
        for name, text in item.summaries.items():
            for info in self.metrics:
                result = results[text][info.name]
                value, parts = result if isinstance(result, Parted) else (result, ())
                record = Value(
                    metric=info.name,
                    item=item.id,
                    summary=name,
                    digest=digest(item, name),
                    by=self.by,
                    value=None if isinstance(value, Undefined) else float(value),
                    undefined=value if isinstance(value, Undefined) else None,
                    parts=parts,
                )
                values.append(record)
        return values


class JudgeMetrics(MetricFamily):
    """Metrics that a judge computes, and the engine that they share."""

    def __init__(self, judge: Judge, metrics: Sequence[MetricInfo]) -> None:
        from selfreflect.metric.engine.engines import engine_for  # loads torch, which no other metric needs

        super().__init__(metrics)
        self.by = judge_name(judge)
        self.judge = judge
        self.engine = engine_for(judge)


class TextMetrics(MetricFamily):
    """Metrics that hold no answers out: both halves count. Blank texts have no value."""

    def measure(self, item: Item) -> Mapping[str, Results]:
        answers = [answer for answer in (*item.masked_out, *item.conditioning) if answer.strip()]
        if not answers:
            raise CannotScoreError("no_answers", "every answer is blank, or there is none")
        why = Undefined(reason="blank", message="the summary is blank")
        blank: Results = {info.name: why for info in self.metrics}
        results = dict.fromkeys(item.summaries.values(), blank)
        summaries = [text for text in results if text.strip()]
        if summaries:
            results |= zip(summaries, self.compare(item.question, answers, summaries), strict=True)
        return results

    @abstractmethod
    def compare(self, question: str, answers: Sequence[str], summaries: Sequence[str]) -> Iterator[Results]:
        """Compute all metrics of each summary. There are answers and summaries, none of them blank."""


def in_groups(
    item: Item, encode: Callable[[str], T], failures: MutableMapping[str, Any]
) -> Iterator[dict[str, T]]:
    """Encode the distinct summaries, ``GROUP`` at a time, so that memory does not grow with their number.

    Args:
        failures: receives, by text, why a summary cannot be encoded.
    """
    texts = list(dict.fromkeys(item.summaries.values()))
    for start in range(0, len(texts), GROUP):
        group = {}
        for text in texts[start : start + GROUP]:
            try:
                group[text] = encode(text)
            except CannotScoreError as error:
                failures[text] = undefined(error)
        if group:
            yield group


def undefined(error: CannotScoreError) -> Undefined:
    return Undefined(reason=error.kind, message=str(error))


def finite(judge: Judge, number: float) -> Result:
    if math.isfinite(number):
        return number
    message = f"the predictions of judge {judge.name!r} give {number}, which is not a finite number"
    return Undefined(reason="backend", message=message)


def judge_name(judge: Judge) -> str:
    """Everything about a judge that moves its predictions, as values name it."""
    name = f"{model_name(judge.name, judge.lm.revision, judge.facts)}, {judge.lm.dtype}"
    return f"{name}, compat {judge.compat}" if judge.compat else name


def model_name(name: str, revision: str, facts: Mapping[str, Any]) -> str:
    """A model and its server, if any: two may call different models the same. ``facts`` hold no
    credentials."""
    revision = f"@{revision}" if revision else ""
    url = facts.get("base_url")
    return f"{name}{revision} at {url}" if url else f"{name}{revision}"
