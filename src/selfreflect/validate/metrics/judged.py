"""What the metrics of a judge share: summaries in groups, and what it predicts. It needs NumPy and a judge, so it is imported when
something is measured."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import numpy.typing as npt

from selfreflect.metric.contexts import CannotScoreError
from selfreflect.metric.plan import Plan, Prompt, build_plan
from selfreflect.validate.base import Undefined

if TYPE_CHECKING:
    import torch

    from selfreflect.metric.distance import Formula
    from selfreflect.metric.engine import Engine
    from selfreflect.models.judge import Judge

GROUP = 6
"""Summaries whose prompts and states exist at once. A study may give thirty of an item; each projects the reference anew, so not fewer."""

Floats = npt.NDArray[np.float64]
T = TypeVar("T")


def undefined(error: CannotScoreError) -> Undefined:
    return Undefined(reason=error.kind, message=str(error))


def finite(judge: Judge, value: float) -> float | Undefined:
    """The value of a metric, if it is a number."""
    if math.isfinite(value):
        return value
    return Undefined(reason="backend", message=f"the predictions of judge {judge.name!r} give {value}, which is not a finite number")


def grouped(summaries: Mapping[str, str], encode: Callable[[str, str], T]) -> Iterator[dict[str, T | Undefined]]:
    """Text -> what ``encode(name, text)`` made of it, or why it could not; a few summaries at a time. Equal texts are taken once."""
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


class Reference:
    """What a judge predicts for masked words after the conditioning answers. It is computed once, with the first group of summaries."""

    def __init__(self, engine: Engine, prompts: Sequence[Prompt]) -> None:
        self._engine = engine
        self._plan = build_plan(prompts)
        self._states: torch.Tensor | None = None

    def distances(self, contexts: Sequence[Sequence[Prompt]], temperature: float, formulas: Sequence[Formula]) -> list[list[Floats]]:
        """For each context and each of its prompts the distances of the word from those of the reference, shape (tokens, formulas).

        Args:
            contexts: prompts in the order of the reference's; a context may end before it does.
        """
        from selfreflect.metric.engine import distances

        plans = [build_plan(prompts) for prompts in contexts]
        if self._states is None:
            self._states, *states = self._engine.states([self._plan, *plans])
        else:
            states = self._engine.states(plans)
        distinct = [np.unique(self._pairs(plan), axis=0, return_inverse=True) for plan in plans]
        others = [(rows, pairs) for rows, (pairs, _) in zip(states, distinct, strict=True)]
        found = distances(self._engine.head, self._states, others, temperature, formulas)
        return [_by_word(values[back.reshape(-1)], plan) for values, (_, back), plan in zip(found, distinct, plans, strict=True)]

    def _pairs(self, plan: Plan) -> npt.NDArray[np.int64]:
        rows = self._plan.rows[: len(plan.rows)]
        return np.array([pair for both in zip(plan.rows, rows, strict=True) for pair in zip(*both, strict=True)])


def _by_word(values: Floats, plan: Plan) -> list[Floats]:
    ends = accumulate(len(rows) for rows in plan.rows)
    return [values[end - len(rows) : end] for end, rows in zip(ends, plan.rows, strict=True)]


@dataclass(frozen=True)
class Query:
    """Events whose probabilities are asked for after one prompt."""

    prompt: Prompt
    events: tuple[tuple[int, tuple[int, ...]], ...]
    """Each: a token of the prompt's word, counted from its first, and the ids of which any may stand there."""


def log_probabilities(engine: Engine, contexts: Sequence[Sequence[Query]]) -> list[list[list[float]]]:
    """For each context, query and event the natural logarithm of its probability."""
    from selfreflect.metric import engine as tensors

    plans = [build_plan([query.prompt for query in queries]) for queries in contexts]
    found = []
    for states, plan, queries in zip(engine.states(plans), plans, contexts, strict=True):
        wanted = [
            (rows[at], token) for rows, query in zip(plan.rows, queries, strict=True) for at, tokens in query.events for token in tokens
        ]
        logs = iter(tensors.log_probabilities(engine.head, states, np.array(wanted)).tolist())
        found.append([[_any_of([next(logs) for _ in tokens]) for _, tokens in query.events] for query in queries])
    return found


def _any_of(logs: Sequence[float]) -> float:
    """The logarithm of the sum of probabilities."""
    with np.errstate(invalid="ignore"):  # what is no number stays none, and is found in the result
        return float(np.logaddexp.reduce(logs))
