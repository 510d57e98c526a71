"""How many floating-point operations a prefix tree costs where nothing is computed twice. A multiplication
and an addition are two.

Only what grows with the size of the model is counted: matrix products and attention. Norms, rotary embeddings
and softmaxes are not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from selfreflect.metric.engine.tree import PrefixTree

COUNTED = ("llama", "mistral", "qwen2", "qwen3")
"""Model types whose layers have the matrices of :class:`Shape` and nothing else."""


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
    def key_value(self) -> tuple[tuple[int, int], ...]:
        """(in, out) of the matrices that every node needs in every layer."""
        return ((self.hidden, self.kv_heads * self.head_dim),) * 2

    @property
    def rest(self) -> tuple[tuple[int, int], ...]:
        """(in, out) of the other matrices of a layer: query, output, gate, up, down."""
        attention = self.heads * self.head_dim
        return (
            (self.hidden, attention),
            (attention, self.hidden),
            *((self.hidden, self.ffn),) * 2,
            (self.ffn, self.hidden),
        )

    @property
    def head(self) -> tuple[int, int]:
        """(in, out) of the vocabulary projection."""
        return (self.hidden, self.vocabulary)


@dataclass(frozen=True)
class Flops:
    """What trees cost."""

    decoder: int
    head: int

    @property
    def total(self) -> int:
        return self.decoder + self.head


def read_shape(config: Any) -> Shape | None:
    """The shape that a (text) configuration describes; None for architectures whose operations are not
    counted here."""
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


def tree_flops(plan: PrefixTree, shape: Shape) -> Flops:
    """One context: every node once in all layers but the last.

    There, every node gives keys and values, and only the wanted ones go on. A node sees itself and all before
    it on its path; each key that it sees costs a product with the query and one with the weight, so ``4 *
    heads * head_dim``.
    """
    prefix, wanted = len(plan.prefix), len(plan.wanted)
    seen = prefix * (prefix + 1) // 2 + int(np.sum(prefix + plan.depth + 1))
    seen_by_wanted = int(np.sum(prefix + plan.depth[plan.wanted] + 1))
    nodes, earlier = plan.computed_tokens, shape.layers - 1
    key_value, rest = _weights(shape.key_value), _weights(shape.rest)
    matrices = 2 * (nodes * shape.layers * key_value + (nodes * earlier + wanted) * rest)
    attention = 4 * shape.heads * shape.head_dim * (seen * earlier + seen_by_wanted)
    return Flops(decoder=matrices + attention, head=2 * wanted * _weights([shape.head]))


def trees_flops(plans: Sequence[PrefixTree], shape: Shape) -> Flops:
    """All contexts of an item. Each keeps its own head rows: those of the reference count once, whatever the
    number of summaries."""
    parts = [tree_flops(plan, shape) for plan in plans]
    return Flops(decoder=sum(part.decoder for part in parts), head=sum(part.head for part in parts))


def _weights(matrices: Sequence[tuple[int, int]]) -> int:
    return sum(rows * columns for rows, columns in matrices)
