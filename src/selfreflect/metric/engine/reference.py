"""What a judge predicts after the conditioning answers, compared with summaries one token task at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from selfreflect.metric.engine.logits import Floats, Guesses, Head, PairedStates, distances, guesses
from selfreflect.metric.engine.tree import Ints, PrefixTree

if TYPE_CHECKING:
    import torch

    from selfreflect.metric.distance import Formula
    from selfreflect.metric.engine.choose import Engine
    from selfreflect.metric.engine.reference_cache import ReferenceCache


@dataclass(frozen=True)
class SummaryStates:
    """Token tasks of some summaries, each paired with the reference's; equal ones are compared once."""

    head: Head
    reference: torch.Tensor
    contexts: list[PairedStates]
    tasks: list[list[Ints]]
    """For each summary and each of its words the indices of its token tasks among the distinct ones."""

    def distances(self, temperature: float, formulas: Sequence[Formula] | None = None) -> list[Floats]:
        """For each summary a row for each distinct token task and a column for each formula; see
        :func:`~selfreflect.metric.engine.logits.distances`."""
        return distances(self.head, self.reference, self.contexts, temperature, formulas)

    def guesses(self, temperature: float, count: int) -> list[Guesses]:
        """For each summary the likeliest tokens of each distinct token task."""
        return guesses(self.head, self.reference, self.contexts, temperature, count)


class Reference:
    """The states after the conditioning answers: computed with the first summaries, kept for later ones.

    Args:
        tree: of the prompts after the conditioning answers.
        cache: keeps the states on disk, and may have them.
    """

    def __init__(self, engine: Engine, tree: PrefixTree, cache: ReferenceCache | None = None) -> None:
        self._engine = engine
        self._tree = tree
        self._cache = cache
        self._states: torch.Tensor | None = None

    def compare(self, trees: Sequence[PrefixTree]) -> SummaryStates:
        """Run the judge for the contexts of some summaries.

        Args:
            trees: at least one, each with the words of the reference in their order.
        """
        if self._states is None and self._cache is not None:
            self._states = self._cache.get(self._tree)
        if self._states is None:
            self._states, *states = self._engine.states([self._tree, *trees])  # they share batches
            if self._cache is not None:
                self._cache.put(self._tree, self._states)
        else:
            states = self._engine.states(trees)
            self._states = self._states.to(states[0].device)
        contexts: list[PairedStates] = []
        tasks = []
        for tree, rows in zip(trees, states, strict=True):
            pairs = np.column_stack([np.concatenate(tree.rows), np.concatenate(self._tree.rows)])
            distinct, task_of = np.unique(pairs, axis=0, return_inverse=True)
            contexts.append((rows, distinct))
            ends = np.cumsum([len(word) for word in tree.rows])
            tasks.append(np.split(task_of.reshape(-1), ends[:-1]))
        return SummaryStates(self._engine.head, self._states, contexts, tasks)
