"""What families of metrics share: records of their results, summaries in groups, and names of models."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from selfreflect.metric.prompts import CannotScoreError
from selfreflect.sources.items import Item
from selfreflect.validate.base import Family, Undefined, Value, make_value

if TYPE_CHECKING:
    from selfreflect.models.judge import Judge

Result = float | Undefined
"""A number, or why there is none."""

GROUP = 6
"""Summaries whose prompts and states exist at once. A study may give thirty per item; each group projects the
reference again, so not fewer."""

T = TypeVar("T")


def make_values(family: Family, item: Item, results: Mapping[str, Mapping[str, Result]]) -> list[Value]:
    """Make a record for each summary and metric, from the results by the summary's text and the metric."""
    values: list[Value] = []
    for name, text in item.summaries.items():
        result = results[text]
        values += [make_value(family, info.name, item, name, result[info.name]) for info in family.metrics]
    return values


def score_texts(
    family: Family,
    item: Item,
    measure: Callable[[str, Sequence[str], Sequence[str]], Iterable[Mapping[str, Result]]],
) -> list[Value]:
    """Values of metrics that compare texts and hold no answers out.

    Args:
        measure: called with the question, the answers of both halves, and the distinct summaries, unless all
            answers or all summaries are blank; gives the results of each summary by metric.
    """
    answers = [answer for answer in (*item.masked_out, *item.conditioning) if answer.strip()]
    summaries = list(dict.fromkeys(text for text in item.summaries.values() if text.strip()))
    nothing = Undefined(reason="blank", message="the summary is blank")
    results: dict[str, Mapping[str, Result]] = {}
    if not answers:
        nothing = Undefined(reason="no_answers", message="every answer is blank, or there is none")
    elif summaries:
        results = dict(zip(summaries, measure(item.question, answers, summaries), strict=True))
    none: dict[str, Result] = {info.name: nothing for info in family.metrics}
    return make_values(family, item, {text: results.get(text, none) for text in item.summaries.values()})


def in_groups(
    item: Item, encode: Callable[[str, str], T], failures: MutableMapping[str, Any]
) -> Iterator[dict[str, T]]:
    """Encode the distinct summaries, ``GROUP`` at a time, so that memory does not grow with their number.

    Args:
        encode: called with the name and the text of a summary.
        failures: receives, by text, why a summary cannot be encoded.
    """
    name_of: dict[str, str] = {}
    for name, text in item.summaries.items():
        name_of.setdefault(text, name)
    texts = list(name_of)
    for start in range(0, len(texts), GROUP):
        group = {}
        for text in texts[start : start + GROUP]:
            try:
                group[text] = encode(name_of[text], text)
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
