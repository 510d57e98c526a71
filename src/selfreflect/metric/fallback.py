"""The same hidden states without tree attention: for architectures whose attention (if they have any) cannot be replaced.

Every root-to-leaf path runs as an ordinary sequence, batched by length with padding on the right, which a causal model never looks at.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from selfreflect.metric.plan import Ints, Plan


class SequenceEngine:
    """Runs plans on a whole model, one sequence per leaf of the tree; its states are the logits themselves."""

    def __init__(self, model: Any, *, budget: int = 4096) -> None:
        self.model = model
        self.device = next(model.parameters()).device
        self.budget = budget

    @torch.inference_mode()
    def states(self, plan: Plan) -> torch.Tensor:
        """Logits in float32 at the wanted nodes, shape (W, vocabulary)."""
        rows: dict[int, torch.Tensor] = {}
        for paths in self._batches([np.append(plan.ancestors(leaf), leaf) for leaf in _leaves(plan)], len(plan.prefix)):
            self._run(plan, paths, rows)
        return torch.stack([rows[int(node)] for node in plan.wanted])

    def head(self, states: torch.Tensor) -> torch.Tensor:
        return states

    def _batches(self, paths: list[Ints], prefix: int) -> list[list[Ints]]:
        """Paths of similar length together, at most ``budget`` tokens a batch."""
        batches: list[list[Ints]] = []
        for path in sorted(paths, key=len, reverse=True):
            if not batches or (len(batches[-1]) + 1) * (prefix + len(batches[-1][0])) > self.budget:
                batches.append([])
            batches[-1].append(path)
        return batches

    def _run(self, plan: Plan, paths: list[Ints], rows: dict[int, torch.Tensor]) -> None:
        length = len(plan.prefix) + max(len(path) for path in paths)
        ids = np.zeros((len(paths), length), dtype=np.int64)
        for row, path in enumerate(paths):
            sequence = [*plan.prefix, *plan.tokens[path]]
            ids[row, : len(sequence)] = sequence
        logits = self.model(input_ids=torch.from_numpy(ids).to(self.device), use_cache=False).logits
        wanted = set(plan.wanted.tolist())
        for row, path in enumerate(paths):
            for at, node in enumerate(path.tolist()):
                if node in wanted and node not in rows:
                    rows[node] = logits[row, len(plan.prefix) + at].float().clone()


def _leaves(plan: Plan) -> list[int]:
    return [node for node in range(len(plan.tokens)) if plan.end[node] == node + 1]
