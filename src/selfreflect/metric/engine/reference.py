"""What a judge predicts after the conditioning answers, and summaries compared with it token task by token
task."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from selfreflect.metric.engine.logits import Floats, Guesses, Head, PairedStates, distances, guesses
from selfreflect.metric.engine.tree import Ints, PrefixTree

if TYPE_CHECKING:
    import torch

    from selfreflect.metric.distance import Formula
    from selfreflect.metric.engine.choose import Engine
    from selfreflect.metric.engine.reference_cache import ReferenceCache


class Reference:
    """The states behind the conditioning answers: computed with the first summaries, kept for those that
    follow.

    Args:
        tree: of the prompts behind the conditioning answers.
        cache: keeps the states on disk, and may have them.
        context: the text before the masked words, by which the cache knows them.
    """

    def __init__(
        self, engine: Engine, tree: PrefixTree, cache: ReferenceCache | None = None, context: str = ""
    ) -> None:
        self._engine = engine
        self._tree = tree
        self._cache = cache
        self._context = context
        self._states: torch.Tensor | None = None

    def compare(self, trees: Sequence[PrefixTree]) -> SummaryStates:
        """Run the judge for the contexts of some summaries.

        Args:
            trees: at least one, of prompts in the order of the reference's; a context may end before it does.
        """
        if self._states is None and self._cache is not None:
            self._states = self._cache.get(self._context, self._tree)
        if self._states is None:
            self._states, *states = self._engine.states([self._tree, *trees])  # they share batches
            if self._cache is not None:
                self._cache.put(self._context, self._tree, self._states)
        else:
            states = self._engine.states(trees)
            self._states = self._states.to(states[0].device)
        return SummaryStates(self._engine.head, self._tree, self._states, trees, states)


class SummaryStates:
    """Token tasks of some summaries, each paired with the reference's; equal ones are compared once.

    Attributes:
        tasks: for each summary and each of its words the indices of its token tasks among the distinct ones.
    """

    def __init__(
        self,
        head: Head,
        reference_tree: PrefixTree,
        reference: torch.Tensor,
        trees: Sequence[PrefixTree],
        states: Sequence[torch.Tensor],
    ) -> None:
        self._head = head
        self._reference = reference
        self._contexts: list[PairedStates] = []
        self.tasks: list[list[Ints]] = []
        for tree, rows in zip(trees, states, strict=True):
            pairs, task_of = np.unique(_pairs(tree, reference_tree), axis=0, return_inverse=True)
            self._contexts.append((rows, pairs))
            ends = np.cumsum([len(word) for word in tree.rows])
            self.tasks.append(np.split(task_of.reshape(-1), ends[:-1]))

    def distances(self, temperature: float, formulas: Sequence[Formula] | None = None) -> list[Floats]:
        """For each summary a row for each distinct token task and a column for each formula; see
        :func:`~selfreflect.metric.engine.logits.distances`."""
        return distances(self._head, self._reference, self._contexts, temperature, formulas)

    def guesses(self, temperature: float, count: int) -> list[Guesses]:
        """For each summary the likeliest tokens of each distinct token task; see
        :func:`~selfreflect.metric.engine.logits.guesses`."""
        return guesses(self._head, self._reference, self._contexts, temperature, count)


def _pairs(tree: PrefixTree, reference: PrefixTree) -> Ints:
    """For each token task a row of the summary's states and a row of the reference's: shape (tasks, 2)."""
    pairs: list[tuple[int, int]] = []
    for own, other in zip(tree.rows, reference.rows[: len(tree.rows)], strict=True):
        pairs += zip(own, other, strict=True)
    return np.array(pairs)
