"""Summaries beside the conditioning answers: the states of both, and which token tasks of the one belong to
which of the other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from selfreflect.metric.engine.tree import Ints, PrefixTree
from selfreflect.metric.engine.tree_engine import Engine, Guesses, distances, guesses

if TYPE_CHECKING:
    import torch

    from selfreflect.metric.distance import Formula
    from selfreflect.metric.engine.reference_cache import ReferenceCache
    from selfreflect.metric.engine.sequences import Head


class Reference:
    """What a judge predicts for masked words after the conditioning answers: computed with the first
    summaries, kept for those that follow.

    Args:
        plan: of the prompts behind the conditioning answers.
        cache: keeps the states on disk, and may have them.
        context: the text before the masked words, by which the cache knows them.
    """

    def __init__(
        self, engine: Engine, plan: PrefixTree, cache: ReferenceCache | None = None, context: str = ""
    ) -> None:
        self._engine = engine
        self._plan = plan
        self._cache, self._context = cache, context
        self._states: torch.Tensor | None = None

    def compare(self, plans: Sequence[PrefixTree]) -> SummaryStates:
        """Run the judge for the contexts of some summaries.

        Args:
            plans: at least one, of prompts in the order of the reference's; a context may end before it does.
        """
        if self._states is None and self._cache is not None:
            self._states = self._cache.get(self._context, self._plan)
        if self._states is None:
            self._states, *states = self._engine.states([self._plan, *plans])  # they share passes
            if self._cache is not None:
                self._cache.put(self._context, self._plan, self._states)
        else:
            states = self._engine.states(plans)
            self._states = self._states.to(states[0].device)
        return SummaryStates(self._engine.head, self._plan, self._states, plans, states)


class SummaryStates:
    """Token tasks of some summaries beside those of the reference; equal ones are compared once.

    Attributes:
        tasks: for each summary and each of its words the indices of its token tasks among the distinct ones.
    """

    def __init__(
        self,
        head: Head,
        reference: PrefixTree,
        expected: torch.Tensor,
        plans: Sequence[PrefixTree],
        states: Sequence[torch.Tensor],
    ) -> None:
        self._head = head
        self._expected = expected
        self._others: list[tuple[torch.Tensor, Ints]] = []
        self.tasks: list[list[Ints]] = []
        for plan, rows in zip(plans, states, strict=True):
            pairs, back = np.unique(_pairs(plan, reference), axis=0, return_inverse=True)
            self._others.append((rows, pairs))
            self.tasks.append(
                np.split(back.reshape(-1), np.cumsum([len(tokens) for tokens in plan.rows])[:-1])
            )

    def distances(
        self, temperature: float, formulas: Sequence[Formula] = ()
    ) -> list[npt.NDArray[np.float64]]:
        """As :func:`~selfreflect.metric.engine.tree_engine.distances`: for each summary a row for each
        distinct token task."""
        return distances(self._head, self._expected, self._others, temperature, formulas)

    def guesses(self, temperature: float, count: int) -> list[Guesses]:
        """As :func:`~selfreflect.metric.engine.tree_engine.guesses`, likewise."""
        return guesses(self._head, self._expected, self._others, temperature, count)


def _pairs(plan: PrefixTree, reference: PrefixTree) -> Ints:
    """Rows of a summary's wanted nodes beside those of the reference, one pair per token task: shape (tasks,
    2)."""
    words = zip(plan.rows, reference.rows[: len(plan.rows)], strict=True)
    return np.array([pair for both in words for pair in zip(*both, strict=True)])
