"""Predictions from stored states: distances between contexts, likely tokens, log-probabilities.

Vocabularies are large, so logits exist only for a block of rows at a time, on the device.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
import torch

from selfreflect.metric.distance import Formula, total_variation
from selfreflect.metric.engine.tree import Ints, PrefixTree
from selfreflect.models.local.layers import on_device
from selfreflect.stats import Floats

if TYPE_CHECKING:
    from selfreflect.metric.engine.engines import Engine


Head = Callable[[torch.Tensor], torch.Tensor]
"""States (rows, width) -> logits (rows, vocabulary) in float32."""

PairedStates = tuple[torch.Tensor, Ints]
"""States of one context, (W, width), and its token tasks, (tasks, 2): pairs of rows here and in the
reference."""

ROWS_OF_LOGITS = 64
"""Number of rows of logits held at once: 64 x 150k x 4 bytes x 4 arrays is 150 MB for large vocabularies."""

ROWS_ON_GPU = 1024
"""Number of rows of logits held at once on a GPU; fewer would leave it waiting for weights."""

ROWS_IN_CACHE = 16
"""Number of rows of probabilities computed at once on a CPU, so that they stay in its caches."""


@dataclass(frozen=True)
class Guesses:
    """Likely tokens at a number of token tasks, under two contexts."""

    tokens: Ints
    """Token ids, shape (tasks, K), the likeliest in either context first."""
    probabilities: Floats
    """Probabilities, shape (tasks, K, 4), in the order of :class:`~selfreflect.records.Guess`."""


@dataclass(frozen=True)
class SummaryStates:
    """States of summaries paired with the reference's, with equal token tasks stored once."""

    head: Head
    reference: torch.Tensor
    """States of the reference context, shape (R, width)."""
    contexts: Sequence[PairedStates]
    tasks: Sequence[list[Ints]] = ()
    """Indices of each word's token tasks among the distinct ones, by summary."""

    @torch.inference_mode()
    def distances(self, temperature: float, formula: Formula | None = None) -> list[Floats]:
        """Compute each summary's distances of distinct token tasks, by default total variation."""
        device = self.reference.device
        formula = formula or _total_variation_on(device)
        # one that is not compiled into one kernel writes several more arrays of full vocabularies
        size = ROWS_OF_LOGITS if formula is total_variation else ROWS_ON_GPU
        states_of_contexts, pairs_of_contexts = zip(*self.contexts, strict=True)
        states = torch.cat(states_of_contexts)
        pairs = np.concatenate(pairs_of_contexts)
        # pairs count rows inside their own context; here all contexts' rows are one tensor
        rows = list(map(len, states_of_contexts))
        counts = list(map(len, pairs_of_contexts))
        pairs[:, 0] += np.repeat(np.cumsum(rows) - rows, counts)
        blocks: list[tuple[Ints, torch.Tensor]] = []
        # The tasks of all contexts that need the same rows of the reference fill blocks together: blocks of
        # one size, one after another, fit into the same memory, and products of many rows are faster.
        for start in range(0, len(self.reference), size):
            reference = self.head(self.reference[start : start + size])
            needs_block = (start <= pairs[:, 1]) & (pairs[:, 1] < start + size)
            tasks = np.flatnonzero(needs_block)
            for first in range(0, len(tasks), size):
                block = tasks[first : first + size]
                context_rows, reference_rows = on_device(pairs[block].T, device)
                # computed in the call, so that these logits are freed before the next ones come
                distances = _compare(
                    self.head(states[context_rows]), reference, reference_rows - start, temperature, formula
                )
                blocks.append((block, distances))
        result = np.zeros(len(pairs))
        for block, distances in blocks:  # read only now, so that the GPU is never waited for in between
            result[block] = distances.cpu().numpy()
        return np.split(result, np.cumsum(counts)[:-1])

    @torch.inference_mode()
    def guesses(self, temperature: float, count: int) -> list[Guesses]:
        """List for each summary the ``count`` likeliest tokens of both contexts at distinct token tasks. A
        token likely in both occurs twice. The projections are computed again, for few questions."""
        result = []
        for states, pairs in self.contexts:
            tokens, probabilities = [], []
            for rows in torch.split(torch.from_numpy(pairs).to(states.device), ROWS_OF_LOGITS):
                context_rows = self.head(states[rows[:, 0]])
                reference_rows = self.head(self.reference[rows[:, 1].to(self.reference.device)])
                top = min(count, context_rows.shape[1])
                # both contexts' likeliest tokens: a page shows where the two disagree
                likeliest = [logits.topk(top, dim=1).indices for logits in (context_rows, reference_rows)]
                likely = torch.cat(likeliest, dim=1)
                columns = []
                for logits in (context_rows, reference_rows):
                    for t in (1.0, temperature):
                        columns.append(torch.softmax(logits / t, dim=1).gather(1, likely))
                larger = torch.maximum(columns[0], columns[2])
                order = larger.argsort(dim=1, descending=True, stable=True)
                tokens.append(likely.gather(1, order).cpu().numpy())
                table = torch.stack(columns, dim=2).gather(1, order[:, :, None].expand(-1, -1, 4))
                probabilities.append(table.double().cpu().numpy())
            result.append(Guesses(np.concatenate(tokens), np.concatenate(probabilities)))
        return result


def _compare(
    logits: torch.Tensor,
    reference: torch.Tensor,
    rows: torch.Tensor,
    temperature: float,
    formula: Formula,
) -> torch.Tensor:
    """Compare row i of ``logits`` with row ``rows[i]`` of ``reference``: shape (rows,), in float64."""
    size = ROWS_IN_CACHE if logits.device.type == "cpu" else len(logits)
    parts = []
    for start in range(0, len(logits), size):
        context_rows = logits[start : start + size]
        reference_rows = reference[rows[start : start + size]]
        parts.append(formula(context_rows, reference_rows, temperature))
    return torch.cat(parts).double()


@cache
def _total_variation_on(device: torch.device) -> Formula:
    """Compile total variation into one kernel on a GPU; elsewhere return the plain formula."""
    if device.type != "cuda":
        return total_variation
    fused: Formula = torch.compile(total_variation, dynamic=True)
    try:
        # Two tensors, and sizes like real ones: the compiler makes other code for equal arguments and for
        # small vocabularies.
        probe = torch.full((64, 2**16), 0.0, device=device)
        second = torch.full((64, 2**16), 1.0, device=device)
        fused(probe, second, 5.0)
    except Exception:
        # A missing or broken compiler raises nearly anything; the plain formula gives the same numbers.
        return total_variation
    return fused


class Reference:
    """The states after the reference answers, computed with the first summaries and then reused.

    ``tree`` is of the prompts after the conditioning answers.
    """

    def __init__(self, engine: Engine, tree: PrefixTree) -> None:
        self._engine = engine
        self._tree = tree
        self._states: torch.Tensor | None = None

    @property
    def to_compute(self) -> int:
        """Tokens that the judge still has to read."""
        return 0 if self._states is not None else self._tree.computed_tokens

    def compare(self, trees: Sequence[PrefixTree]) -> SummaryStates:
        """Run the judge on one or more summaries' trees, each with the reference's words in order."""
        if self._states is None:
            self._states, *states = self._engine.states([self._tree, *trees])  # they share batches
        else:
            states = self._engine.states(trees)
        contexts: list[PairedStates] = []
        tasks = []
        for tree, rows in zip(trees, states, strict=True):
            pairs = np.column_stack([np.concatenate(tree.rows), np.concatenate(self._tree.rows)])
            # copies of an answer share rows, so their tasks would be compared again
            distinct, task_of = np.unique(pairs, axis=0, return_inverse=True)
            contexts.append((rows, distinct))
            ends = np.cumsum(list(map(len, tree.rows)))
            tasks.append(np.split(task_of.reshape(-1), ends[:-1]))
        return SummaryStates(self._engine.head, self._states, contexts, tasks)


@torch.inference_mode()
def log_probabilities(head: Head, states: torch.Tensor, tokens: Ints) -> Floats:
    """Compute the natural log-probabilities of next tokens at temperature 1: shape (tokens,).

    Args:
        states: shape (W, width).
        tokens: pairs of a row of ``states`` and a token id, shape (tokens, 2).
    """
    result = np.zeros(len(tokens))
    size = ROWS_ON_GPU if states.is_cuda else ROWS_OF_LOGITS
    blocks: list[tuple[Ints, torch.Tensor]] = []
    for start in range(0, len(states), size):
        logits = head(states[start : start + size])
        in_block = (start <= tokens[:, 0]) & (tokens[:, 0] < start + size)
        block = np.flatnonzero(in_block)
        pairs = on_device(tokens[block], states.device)
        rows = pairs[:, 0] - start
        ids = pairs[:, 1]
        # the log-softmax of one token, without a table of all
        logs = logits[rows, ids] - logits.logsumexp(dim=-1)[rows]
        blocks.append((block, logs.double()))
    for block, logs in blocks:
        result[block] = logs.cpu().numpy()
    return result
