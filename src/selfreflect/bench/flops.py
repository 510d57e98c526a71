"""Counts the floating-point operations of prefix trees when nothing is computed twice. A multiplication and
an addition are two operations.

Only what grows with the size of the model is counted: matrix products and attention, but not norms, rotary
embeddings and softmaxes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from selfreflect.metric.engine.tree import PrefixTree

COUNTED = ("llama", "mistral", "qwen2", "qwen3")
"""Model types whose layers have exactly the matrices of :class:`Shape`."""

Matrix = tuple[int, int]
"""(in, out) features."""


@dataclass(frozen=True)
class Shape:
    """The sizes of a decoder with grouped-query attention and a gated MLP."""

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    vocabulary: int

    @property
    def key_value(self) -> list[Matrix]:
        """The key and value matrices of a layer, which every node needs in every layer."""
        return [(self.hidden, self.kv_heads * self.head_dim)] * 2

    @property
    def rest(self) -> list[Matrix]:
        """The other matrices of a layer: query, output, gate, up, down."""
        attention = self.heads * self.head_dim
        up = (self.hidden, self.ffn)
        return [(self.hidden, attention), (attention, self.hidden), up, up, (self.ffn, self.hidden)]

    @property
    def head(self) -> Matrix:
        """The vocabulary projection."""
        return (self.hidden, self.vocabulary)


@dataclass(frozen=True)
class Flops:
    decoder: int
    head: int

    @property
    def total(self) -> int:
        return self.decoder + self.head


def read_shape(config: Any) -> Shape | None:
    """Read a (text) configuration; None for architectures whose operations are not counted."""
    if config.model_type not in COUNTED:
        return None
    heads = config.num_attention_heads
    return Shape(
        layers=config.num_hidden_layers,
        hidden=config.hidden_size,
        heads=heads,
        kv_heads=getattr(config, "num_key_value_heads", None) or heads,
        head_dim=getattr(config, "head_dim", None) or config.hidden_size // heads,
        ffn=config.intermediate_size,
        vocabulary=config.vocab_size,
    )


def count_flops(trees: Sequence[PrefixTree], shape: Shape) -> Flops:
    """Add up the operations of an item's contexts. The reference's head rows count once, because the engine
    keeps them for all summaries."""
    total = Flops(0, 0)
    for tree in trees:
        part = _tree_flops(tree, shape)
        total = Flops(total.decoder + part.decoder, total.head + part.head)
    return total


def _tree_flops(tree: PrefixTree, shape: Shape) -> Flops:
    """Every node passes through all layers but the last. There, every node gives keys and values, and only
    the outputs go on.

    A node sees itself and all before it on its path. Each key that it sees costs a product with the query and
    one with the attention weight: ``4 * heads * head_dim`` operations.
    """
    prefix = len(tree.prefix)
    outputs = len(tree.outputs)
    seen = prefix * (prefix + 1) // 2 + int(np.sum(prefix + tree.depth + 1))
    seen_by_outputs = int(np.sum(prefix + tree.depth[tree.outputs] + 1))
    nodes = tree.computed_tokens
    earlier = shape.layers - 1
    key_value = nodes * shape.layers * _weights(shape.key_value)
    rest = (nodes * earlier + outputs) * _weights(shape.rest)
    attention = 4 * shape.heads * shape.head_dim * (seen * earlier + seen_by_outputs)
    return Flops(decoder=2 * (key_value + rest) + attention, head=2 * outputs * _weights([shape.head]))


def _weights(matrices: Sequence[Matrix]) -> int:
    return sum(rows * columns for rows, columns in matrices)
