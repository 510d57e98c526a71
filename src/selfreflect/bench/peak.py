"""How fast this machine multiplies matrices of the model's shapes: what an engine could reach at most."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

from selfreflect.bench.flops import Flops, Shape
from selfreflect.models.products import linear

ROWS_OF_HEAD = 64
"""Rows that meet the vocabulary projection together on a CPU, as in the metric's engine; sixteen times as many elsewhere."""

SECONDS = 0.2
"""How long each shape is tried."""


@dataclass(frozen=True)
class Peak:
    """Best rates in FLOP/s."""

    decoder: float
    """The matrices of one layer in turn, each as often as it occurs."""
    head: float

    def seconds(self, work: Flops) -> float:
        """How long the work takes at these rates; attention counts as matrix products."""
        return work.decoder / self.decoder + work.head / self.head


@torch.inference_mode()
def measure_peak(shape: Shape, rows: int, dtype: torch.dtype, device: torch.device) -> Peak:
    """Time products for ``rows`` tokens a pass, and keep the best repetition of each shape by the best kernel."""
    seconds: dict[tuple[int, int, int], float] = {}
    head_rows = ROWS_OF_HEAD if device.type == "cpu" else 16 * ROWS_OF_HEAD
    for size, count in ((rows, (*shape.key_value, *shape.rest)), (head_rows, (shape.head,))):
        for inner, outer in count:
            if (size, inner, outer) not in seconds:
                seconds[size, inner, outer] = min(_best(product, device) for product in _products(size, inner, outer, dtype, device))
    layer = (*shape.key_value, *shape.rest)
    flops = sum(2 * rows * inner * outer for inner, outer in layer)
    inner, outer = shape.head
    return Peak(
        decoder=flops / sum(seconds[rows, inner, outer] for inner, outer in layer),
        head=2 * head_rows * inner * outer / seconds[head_rows, inner, outer],
    )


def _products(rows: int, inner: int, outer: int, dtype: torch.dtype, device: torch.device) -> tuple[Callable[[], torch.Tensor], ...]:
    """``rows`` tokens times a weight that lies as a linear layer has it: torch's own choice of a kernel, and ours."""
    x = torch.randn(rows, inner, device=device).to(dtype)
    weight = torch.randn(outer, inner, device=device).to(dtype)
    out = torch.empty(rows, outer, device=device, dtype=dtype)
    return (lambda: torch.mm(x, weight.t(), out=out)), (lambda: linear(x, weight))


def _best(product: Callable[[], torch.Tensor], device: torch.device) -> float:
    """Seconds of the fastest repetition, after one that does not count."""
    product()
    best, end = float("inf"), time.perf_counter() + SECONDS
    while time.perf_counter() < end or best == float("inf"):
        synchronise(device)
        start = time.perf_counter()
        product()
        synchronise(device)
        best = min(best, time.perf_counter() - start)
    return best


def synchronise(device: torch.device) -> None:
    """Wait until a GPU has done what it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
