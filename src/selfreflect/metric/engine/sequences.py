"""States without tree attention, for architectures whose attention (if they have any) cannot be replaced.

Every root-to-leaf path runs as an ordinary sequence. Batches are padded on the right, which a causal model
never looks at.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch

from selfreflect.metric.engine.logits import Head
from selfreflect.metric.engine.tree import Ints, PrefixTree
from selfreflect.metric.engine.tree_engine import TreeEngine


class SequenceEngine:
    """An :class:`~selfreflect.metric.engine.choose.Engine` that runs one sequence per leaf of a tree.

    Args:
        forward: token ids (rows, length) -> states (rows, length, width).
        head: see :data:`~selfreflect.metric.engine.logits.Head`.
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
        """States at the output nodes, shape (W, width) for each tree."""
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
    """For models whose rotary frequencies change for all positions once a sequence is longer than ``limit``
    (Phi-3's longrope): up to there a tree, beyond it one sequence at a time, since no two lengths may share
    keys.
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
