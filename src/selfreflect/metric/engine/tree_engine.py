"""Runs prefix trees through a judge's decoder, every node once, in packed batches of many rows."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from selfreflect.metric.engine.arena import mapped_empty
from selfreflect.metric.engine.attention import TreeAttention
from selfreflect.metric.engine.decoder import Decoder
from selfreflect.metric.engine.logits import Head
from selfreflect.metric.engine.packing import pack
from selfreflect.metric.engine.tree import PrefixTree


class TreeEngine:
    """Keeps of each context the final hidden states at its token tasks, a few KB each.

    Args:
        device: where ``head`` wants its states.
        max_rows: rows per forward pass.
        block, fused: see :class:`~selfreflect.metric.engine.attention.TreeAttention`.

    Attributes:
        windows: the sliding windows that the layers have asked for so far.
    """

    def __init__(
        self,
        decoder: Decoder,
        head: Head,
        device: torch.device,
        *,
        max_rows: int | None = None,
        block: int = 64,
        fused: bool = True,
    ) -> None:
        self.decoder = decoder
        self.head = head
        self.device = device
        self.max_rows = max_rows or (1024 if device.type == "cpu" else 8192)
        self.block = block
        self.fused = fused
        self.windows: set[int] = set()

    @torch.inference_mode()
    def states(self, trees: Sequence[PrefixTree]) -> list[torch.Tensor]:
        """Final normed hidden states at the output nodes, shape (W, hidden) for each tree."""
        attention = TreeAttention(block=self.block, fused=self.fused)
        counts = [len(tree.outputs) for tree in trees]
        states: torch.Tensor | None = None
        filled = 0
        for batch in pack(trees, self.max_rows):
            attention.begin(batch)
            rows = self.decoder.run(batch, attention)
            if states is None:
                states = mapped_empty((sum(counts), rows.shape[1]), rows)
            states[filled : filled + len(rows)] = rows
            filled += len(rows)
        self.windows |= attention.windows
        assert states is not None  # a tree has at least one node
        return list(torch.split(states.to(self.device), counts))
