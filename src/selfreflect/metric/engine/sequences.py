"""The same states without tree attention: for architectures whose attention (if they have any) cannot be
replaced.

Every root-to-leaf path runs as an ordinary sequence, batched by length with padding on the right, which a
causal model never looks at.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch

from selfreflect.metric.engine.tree import Ints, PrefixTree

Head = Callable[[torch.Tensor], torch.Tensor]
"""States (rows, width) -> logits (rows, vocabulary) in float32."""


class SequenceEngine:
    """Runs plans one sequence per leaf of the tree.

    Args:
        forward: token ids (rows, length) -> states (rows, length, width).
        head: see :data:`Head`.
        device: where ``forward`` wants its token ids.
        budget: tokens per batch.
    """

    def __init__(
        self,
        forward: Callable[[torch.Tensor], torch.Tensor],
        head: Head,
        device: torch.device,
        *,
        budget: int = 4096,
    ) -> None:
        self.forward = forward
        self.head = head
        self.device = device
        self.budget = budget

    @torch.inference_mode()
    def states(self, plans: Sequence[PrefixTree]) -> list[torch.Tensor]:
        """States at the wanted nodes, shape (W, width) for each plan."""
        return [self._states(plan) for plan in plans]

    def _states(self, plan: PrefixTree) -> torch.Tensor:
        rows: dict[int, torch.Tensor] = {}
        for paths in self._batches(
            [np.append(plan.ancestors(leaf), leaf) for leaf in _leaves(plan)], len(plan.prefix)
        ):
            self._run(plan, paths, rows)
        return torch.stack([rows[int(node)] for node in plan.wanted])

    def _batches(self, paths: list[Ints], prefix: int) -> list[list[Ints]]:
        """Paths of similar length together, at most ``budget`` tokens a batch."""
        batches: list[list[Ints]] = []
        for path in sorted(paths, key=len, reverse=True):
            if not batches or (len(batches[-1]) + 1) * (prefix + len(batches[-1][0])) > self.budget:
                batches.append([])
            batches[-1].append(path)
        return batches

    def _run(self, plan: PrefixTree, paths: list[Ints], rows: dict[int, torch.Tensor]) -> None:
        length = len(plan.prefix) + max(len(path) for path in paths)
        ids = np.zeros((len(paths), length), dtype=np.int64)
        for row, path in enumerate(paths):
            sequence = [*plan.prefix, *plan.tokens[path]]
            ids[row, : len(sequence)] = sequence
        states = self.forward(torch.from_numpy(ids).to(self.device))
        wanted = set(plan.wanted.tolist())
        for row, path in enumerate(paths):
            for at, node in enumerate(path.tolist()):
                if node in wanted and node not in rows:
                    rows[node] = states[row, len(plan.prefix) + at].clone()


def _leaves(plan: PrefixTree) -> list[int]:
    return [node for node in range(len(plan.tokens)) if plan.end[node] == node + 1]
