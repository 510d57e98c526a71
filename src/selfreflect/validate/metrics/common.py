"""What families of metrics share: records of their results, summaries in groups, and names of models."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from selfreflect.metric.prompts import CannotScoreError
from selfreflect.sources.items import Item
from selfreflect.validate.base import MetricInfo, Parts, Undefined, Value, digest


class Parted(NamedTuple):
    """A value with what it is the mean of."""

    value: float
    parts: Parts


Result = float | Parted | Undefined
"""A number, or why there is none."""
Results = Mapping[str, Result]
"""By metric."""


class Family(ABC):
    """Metrics that share their work, such as several distances of the same predictions. A subclass measures
    texts, and records are made here."""

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


class TextMetrics(Family):
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


def undefined(error: CannotScoreError) -> Undefined:
    return Undefined(reason=error.kind, message=str(error))


def model_name(name: str, revision: str, facts: Mapping[str, Any]) -> str:
    """A model and its server, if any: two may call different models the same. ``facts`` hold no
    credentials."""
    revision = f"@{revision}" if revision else ""
    url = facts.get("base_url")
    return f"{name}{revision} at {url}" if url else f"{name}{revision}"
