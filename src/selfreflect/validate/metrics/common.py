"""What families of metrics share: records of their results, summaries in groups, and names of models."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from selfreflect.metric.prompts import CannotScoreError
from selfreflect.sources.items import Item
from selfreflect.validate.base import Family, MetricInfo, Undefined, Value, make_value

if TYPE_CHECKING:
    from selfreflect.models.judge import Judge

Result = float | Undefined
"""A number, or why there is none."""
Results = Mapping[str, Result]
"""By metric."""
Measure = Callable[[str, Sequence[str], Sequence[str]], Iterable[Results]]
"""From the question, the answers and the distinct summaries to the results of each summary."""

GROUP = 6
"""Summaries whose prompts and states exist at once. A study may give thirty per item; each group projects the
reference again, so not fewer."""

T = TypeVar("T")


class JudgeMetrics:
    """Metrics that a judge computes, and the engine that they share."""

    def __init__(self, judge: Judge, metrics: Sequence[MetricInfo]) -> None:
        from selfreflect.metric.engine.engines import engine_for  # loads torch, which no other metric needs

        self.metrics = tuple(metrics)
        self.by = judge_name(judge)
        self.judge = judge
        self.engine = engine_for(judge)


def make_values(family: Family, item: Item, results: Mapping[str, Results]) -> list[Value]:
    """Make a record for each summary and metric. ``results`` are by the text of the summary."""
    values = []
    for name, text in item.summaries.items():
        for info in family.metrics:
            value = make_value(family, info.name, item, name, results[text][info.name])
            values.append(value)
    return values


def no_values(family: Family, item: Item, why: Undefined) -> list[Value]:
    """Records that no summary has any value."""
    nothing: Results = {info.name: why for info in family.metrics}
    return make_values(family, item, dict.fromkeys(item.summaries.values(), nothing))


def score_texts(family: Family, item: Item, measure: Measure) -> list[Value]:
    """Score texts that are not blank, by a metric that holds no answers out: both halves count.

    ``measure`` is not called without answers and summaries.
    """
    answers = [answer for answer in (*item.masked_out, *item.conditioning) if answer.strip()]
    if not answers:
        why = Undefined(reason="no_answers", message="every answer is blank, or there is none")
        return no_values(family, item, why)
    why = Undefined(reason="blank", message="the summary is blank")
    blank: Results = {info.name: why for info in family.metrics}
    results = dict.fromkeys(item.summaries.values(), blank)
    summaries = [text for text in results if text.strip()]
    if summaries:
        results |= zip(summaries, measure(item.question, answers, summaries), strict=True)
    return make_values(family, item, results)


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
