"""Counts the floating-point operations of prefix trees when nothing is computed twice, and measures how fast
this machine does them at best. A multiplication and an addition are two operations.

Only what grows with the size of the model is counted: matrix products and attention, but not norms, rotary
embeddings and softmaxes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.utils.benchmark import Timer

from selfreflect.metric.engine.logits import ROWS_OF_LOGITS, ROWS_ON_GPU
from selfreflect.metric.engine.tree import PrefixTree
from selfreflect.models.local.layers import linear

COUNTED = ("llama", "mistral", "qwen2", "qwen3")
"""Model types whose layers have exactly the matrices of :class:`Shape`."""

SECONDS = 0.2
"""How long each product is timed."""

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


class Flops(NamedTuple):
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
    keeps them for all summaries.

    Every node passes through all layers but the last. There, every node gives keys and values, and only the
    outputs go on. A node sees itself and all before it on its path. Each key that it sees costs a product
    with the query and one with the attention weight: ``4 * heads * head_dim`` operations.
    """
    earlier = shape.layers - 1
    decoder = head = 0
    for tree in trees:
        prefix = len(tree.prefix)
        outputs = len(tree.outputs)
        nodes = tree.computed_tokens
        positions = prefix * (prefix + 1) // 2 + int(np.sum(prefix + tree.depth + 1))
        seen_by_outputs = int(np.sum(prefix + tree.depth[tree.outputs] + 1))
        decoder += _operations(nodes * shape.layers, shape.key_value)
        decoder += _operations(nodes * earlier + outputs, shape.rest)
        decoder += 4 * shape.heads * shape.head_dim * (positions * earlier + seen_by_outputs)
        head += _operations(outputs, [shape.head])
    return Flops(decoder, head)


def _operations(rows: int, matrices: Sequence[Matrix]) -> int:
    """Operations of ``rows`` tokens times each matrix."""
    return 2 * rows * sum(inner * outer for inner, outer in matrices)


@torch.inference_mode()
def peak_seconds(
    flops: Flops, shape: Shape, rows: int, dtype: torch.dtype, device: torch.device
) -> tuple[float, float]:
    """How long this machine needs for the operations at the rate of its matrix products, the most an engine
    can reach; attention counts as matrix products. The products have ``rows`` tokens.

    Returns:
        Seconds with the fastest kernel for each shape of matrix, and with the kernel that torch chooses.
    """
    layer = [*shape.key_value, *shape.rest]
    times = {matrix: _time_product(rows, matrix, dtype, device) for matrix in set(layer)}
    head_rows = ROWS_OF_LOGITS if device.type == "cpu" else ROWS_ON_GPU  # as the engine does it
    layer_times = np.sum([times[matrix] for matrix in layer], axis=0)
    head_times = np.array(_time_product(head_rows, shape.head, dtype, device))
    decoder = flops.decoder / _operations(rows, layer) * layer_times
    best, by_torch = decoder + flops.head / _operations(head_rows, [shape.head]) * head_times
    return float(best), float(by_torch)


def _time_product(rows: int, matrix: Matrix, dtype: torch.dtype, device: torch.device) -> tuple[float, float]:
    """Seconds of ``rows`` tokens times a weight stored as in a linear layer: with the faster of torch's and
    our kernel, and with torch's."""
    inner, outer = matrix
    x = torch.randn(rows, inner, device=device).to(dtype)
    weight = torch.randn(outer, inner, device=device).to(dtype)
    out = torch.empty(rows, outer, device=device, dtype=dtype)
    by_torch = _fastest(lambda: torch.mm(x, weight.t(), out=out), device)
    return min(by_torch, _fastest(lambda: linear(x, weight), device)), by_torch


def _fastest(product: Callable[[], torch.Tensor], device: torch.device) -> float:
    """Seconds of the fastest repetition."""

    def repetition() -> None:
        product()
        synchronise(device)

    timer = Timer("repetition()", globals={"repetition": repetition}, num_threads=torch.get_num_threads())
    return min(timer.blocked_autorange(min_run_time=SECONDS).times)


def synchronise(device: torch.device) -> None:
    """Wait until a GPU has finished its work."""
    if device.type != "cpu":
        torch.accelerator.synchronize(device)
