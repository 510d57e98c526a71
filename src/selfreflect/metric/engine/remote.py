"""States from a decoder that runs elsewhere, behind a prefix cache: one prompt for each output node."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

    from selfreflect.metric.engine.logits import Head
    from selfreflect.metric.engine.tree import PrefixTree
    from selfreflect.models.judge import LastStates


class RemoteEngine:
    """An :class:`~selfreflect.metric.engine.choose.Engine` that sends prompts.

    It sends the prefix of each tree first, so that it is cached when the tree's prompts follow in
    depth-first order.

    Args:
        last_states: see :data:`~selfreflect.models.judge.LastStates`.
        head: see :data:`~selfreflect.metric.engine.logits.Head`.
    """

    def __init__(self, last_states: LastStates, head: Head) -> None:
        self.last_states = last_states
        self.head = head

    def states(self, trees: Sequence[PrefixTree]) -> list[torch.Tensor]:
        """States at the output nodes, shape (W, width) for each tree."""
        return [self._states(tree) for tree in trees]

    def _states(self, tree: PrefixTree) -> torch.Tensor:
        if tree.prefix:
            self.last_states([tree.prefix])
        paths = [tree.tokens[tree.path(node)].tolist() for node in tree.outputs.tolist()]
        return self.last_states([(*tree.prefix, *path) for path in paths])
