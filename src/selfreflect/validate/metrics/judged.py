"""What the metrics of a judge share: summaries in groups, and what it predicts. It needs NumPy and a judge,
so it is imported when something is measured."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from selfreflect.metric.engine.tree import Prompt, build_tree
from selfreflect.metric.prompts import CannotScoreError
from selfreflect.validate.base import Undefined

if TYPE_CHECKING:
    from selfreflect.metric.engine.choose import Engine
    from selfreflect.models.judge import Judge

GROUP = 6
"""Summaries whose prompts and states exist at once. A study may give thirty of an item; each projects the
reference anew, so not fewer."""

T = TypeVar("T")


def undefined(error: CannotScoreError) -> Undefined:
    return Undefined(reason=error.kind, message=str(error))


def finite(judge: Judge, value: float) -> float | Undefined:
    """The value of a metric, if it is a number."""
    if math.isfinite(value):
        return value
    return Undefined(
        reason="backend",
        message=f"the predictions of judge {judge.name!r} give {value}, which is not a finite number",
    )


def grouped(
    summaries: Mapping[str, str], encode: Callable[[str, str], T]
) -> Iterator[dict[str, T | Undefined]]:
    """Text -> what ``encode(name, text)`` made of it, or why it could not; a few summaries at a time. Equal
    texts are taken once."""
    named: dict[str, str] = {}
    for name, text in summaries.items():
        named.setdefault(text, name)
    texts = list(named)
    for start in range(0, len(texts), GROUP):
        held: dict[str, T | Undefined] = {}
        for text in texts[start : start + GROUP]:
            try:
                held[text] = encode(named[text], text)
            except CannotScoreError as error:
                held[text] = undefined(error)
        yield held


@dataclass(frozen=True)
class Query:
    """Events whose probabilities are asked for after one prompt."""

    prompt: Prompt
    events: tuple[tuple[int, tuple[int, ...]], ...]
    """Each: a token of the prompt's word, counted from its first, and the ids of which any may stand
    there."""


def log_probabilities(engine: Engine, contexts: Sequence[Sequence[Query]]) -> list[list[list[float]]]:
    """For each context, query and event the natural logarithm of its probability."""
    from selfreflect.metric.engine import logits

    plans = [build_tree([query.prompt for query in queries]) for queries in contexts]
    found = []
    for states, plan, queries in zip(engine.states(plans), plans, contexts, strict=True):
        wanted = [
            (rows[at], token)
            for rows, query in zip(plan.rows, queries, strict=True)
            for at, tokens in query.events
            for token in tokens
        ]
        logs = iter(logits.log_probabilities(engine.head, states, np.array(wanted)).tolist())
        found.append(
            [[_any_of([next(logs) for _ in tokens]) for _, tokens in query.events] for query in queries]
        )
    return found


def _any_of(logs: Sequence[float]) -> float:
    """The logarithm of the sum of probabilities."""
    with np.errstate(invalid="ignore"):  # what is no number stays none, and is found in the result
        return float(np.logaddexp.reduce(logs))
