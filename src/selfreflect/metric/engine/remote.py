"""The same states from a decoder that runs elsewhere, behind a prefix cache: one prompt for each wanted
node."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import torch

    from selfreflect.metric.engine.sequences import Head
    from selfreflect.metric.engine.tree import PrefixTree
    from selfreflect.models.judge import LastStates


class RemoteEngine:
    """Sends the prefix of each plan first, so that it is in the cache when its prompts come, and these in the
    order of the tree.

    Args:
        last_states: see :data:`~selfreflect.models.judge.LastStates`.
        head: see :data:`~selfreflect.metric.engine.sequences.Head`.
    """

    def __init__(self, last_states: LastStates, head: Head) -> None:
        self.last_states = last_states
        self.head = head

    def states(self, plans: Sequence[PrefixTree]) -> list[torch.Tensor]:
        """States at the wanted nodes, shape (W, width) for each plan."""
        return [self._states(plan) for plan in plans]

    def _states(self, plan: PrefixTree) -> torch.Tensor:
        if plan.prefix:
            self.last_states([plan.prefix])
        paths = [plan.tokens[np.append(plan.ancestors(node), node)] for node in plan.wanted.tolist()]
        return self.last_states([(*plan.prefix, *path.tolist()) for path in paths])
