"""States without tree attention: for architectures that do not take it, and for remote judges."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch

from selfreflect.metric.engine.logits import Head
from selfreflect.metric.engine.tree import Ints, PrefixTree
from selfreflect.metric.engine.tree_engine import TreeEngine

if TYPE_CHECKING:
    from selfreflect.models.judge import LastStates


class SequenceEngine:
    """Runs each root-to-leaf path as an ordinary sequence, padded on the right, which a causal model ignores.

    Args:
        forward: token ids (rows, length) -> states (rows, length, width).
        device: where ``forward`` wants its token ids.
        max_rows: tokens per batch, unless a single sequence has more.
    """

    def __init__(
        self,
        forward: Callable[[torch.Tensor], torch.Tensor],
        head: Head,
        device: torch.device,
        *,
        max_rows: int = 4096,
    ) -> None:
        self.forward = forward
        self.head = head
        self.device = device
        self.max_rows = max_rows

    @torch.inference_mode()
    def states(self, trees: Sequence[PrefixTree]) -> list[torch.Tensor]:
        return [self._states(tree) for tree in trees]

    def _states(self, tree: PrefixTree) -> torch.Tensor:
        outputs = set(tree.outputs.tolist())
        rows: dict[int, torch.Tensor] = {}
        for paths in self._batches(tree):
            states = self._run(tree, paths)
            for i, path in enumerate(paths):
                for depth, node in enumerate(path.tolist()):
                    if node in outputs and node not in rows:
                        rows[node] = states[i, len(tree.prefix) + depth].clone()
        return torch.stack([rows[node] for node in tree.outputs.tolist()])

    def _batches(self, tree: PrefixTree) -> Iterator[list[Ints]]:
        """The paths to all leaves, those of similar length together."""
        leaves = np.flatnonzero(tree.end == np.arange(1, len(tree.end) + 1))
        paths = sorted(map(tree.path, leaves.tolist()), key=len, reverse=True)
        batch: list[Ints] = []
        for path in paths:
            if batch and (len(batch) + 1) * (len(tree.prefix) + len(batch[0])) > self.max_rows:
                yield batch
                batch = []
            batch.append(path)
        yield batch

    def _run(self, tree: PrefixTree, paths: Sequence[Ints]) -> torch.Tensor:
        length = len(tree.prefix) + len(paths[0])  # the first is the longest
        ids = np.zeros((len(paths), length), dtype=np.int64)
        for row, path in zip(ids, paths, strict=True):
            sequence = [*tree.prefix, *tree.tokens[path]]
            row[: len(sequence)] = sequence
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
        return [self._states(tree) for tree in trees]

    def _states(self, tree: PrefixTree) -> torch.Tensor:
        if tree.prefix:
            self.last_states([tree.prefix])
        paths = [tree.tokens[tree.path(node)].tolist() for node in tree.outputs.tolist()]
        return self.last_states([(*tree.prefix, *path) for path in paths])
