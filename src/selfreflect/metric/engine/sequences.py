"""Engines for judges whose attention cannot be replaced, or that run elsewhere: they read whole sequences."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch

from selfreflect.metric.engine.logits import Head
from selfreflect.metric.engine.tree import Ints, PrefixTree

if TYPE_CHECKING:
    from selfreflect.metric.engine.engines import TreeEngine
    from selfreflect.models.judge import LastStates


class SequenceEngine:
    """Runs each root-to-leaf path as an ordinary sequence, padded on the right, which a causal model ignores.

    Args:
        forward: token ids (rows, length) -> states (rows, length, width).
        device: where ``forward`` wants its token ids.
    """

    def __init__(
        self, forward: Callable[[torch.Tensor], torch.Tensor], head: Head, device: torch.device
    ) -> None:
        self.forward = forward
        self.head = head
        self.device = device
        self.max_rows = 4096
        """Tokens per batch, unless a single sequence has more."""

    @torch.inference_mode()
    def states(self, trees: Sequence[PrefixTree]) -> list[torch.Tensor]:
        return list(map(self._states, trees))

    def _states(self, tree: PrefixTree) -> torch.Tensor:
        result: torch.Tensor | None = None
        for paths in self._batches(tree):
            states = self._run(tree, paths)
            if result is None:
                result = states.new_empty(len(tree.outputs), states.shape[2])
            for path, path_states in zip(paths, states, strict=True):
                rows = np.flatnonzero(np.isin(tree.outputs, path))
                depth = tree.depth[tree.outputs[rows]]
                result[rows] = path_states[len(tree.prefix) + depth]
        assert result is not None  # a tree has at least one leaf
        return result

    def _batches(self, tree: PrefixTree) -> Iterator[list[Ints]]:
        """The paths to all leaves, those of similar length together."""
        leaves = np.flatnonzero(tree.end == np.arange(1, len(tree.end) + 1))
        paths = sorted(map(tree.path, leaves.tolist()), key=len, reverse=True)
        batch: list[Ints] = []
        for path in paths:
            longest = len(tree.prefix) + len(batch[0] if batch else path)
            if batch and (len(batch) + 1) * longest > self.max_rows:
                yield batch
                batch = []
            batch.append(path)
        yield batch

    def _run(self, tree: PrefixTree, paths: Sequence[Ints]) -> torch.Tensor:
        prefix = len(tree.prefix)
        longest = len(paths[0])
        ids = np.zeros((len(paths), prefix + longest), dtype=np.int64)
        ids[:, :prefix] = tree.prefix
        for row, path in zip(ids, paths, strict=True):
            row[prefix : prefix + len(path)] = tree.tokens[path]
        return self.forward(torch.from_numpy(ids).to(self.device))


class RotaryLimitEngine:
    """For rotary frequencies that change at all positions once a sequence exceeds ``limit`` (Phi-3's
    longrope): trees up to there, beyond it one sequence at a time, since no two lengths may share keys.
    """

    def __init__(self, tree: TreeEngine, sequences: SequenceEngine, limit: int) -> None:
        self.tree = tree
        self.sequences = sequences
        self.sequences.max_rows = 1
        self.head = tree.head
        self.limit = limit

    def states(self, trees: Sequence[PrefixTree]) -> list[torch.Tensor]:
        states = []
        for tree in trees:
            engine = self.tree if tree.longest <= self.limit else self.sequences
            states += engine.states([tree])
        return states


class RemoteEngine:
    """Asks a decoder that runs elsewhere for the state after each output node.

    Each tree's prefix goes first, so that a prefix cache has it when prompts follow in depth-first order.
    """

    def __init__(self, last_states: LastStates, head: Head) -> None:
        self.last_states = last_states
        self.head = head

    def states(self, trees: Sequence[PrefixTree]) -> list[torch.Tensor]:
        return list(map(self._states, trees))

    def _states(self, tree: PrefixTree) -> torch.Tensor:
        if tree.prefix:
            self.last_states([tree.prefix])
        prompts = []
        for node in tree.outputs.tolist():
            path = tree.tokens[tree.path(node)].tolist()
            prompts.append((*tree.prefix, *path))
        return self.last_states(prompts)
