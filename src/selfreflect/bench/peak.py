"""Measures how fast this machine multiplies matrices of the model's shapes: the most an engine can reach."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

from selfreflect.bench.flops import Flops, Matrix, Shape
from selfreflect.metric.engine.logits import ROWS_OF_LOGITS
from selfreflect.models.linear import linear

SECONDS = 0.2
"""How long each shape is timed."""


@dataclass(frozen=True)
class Rates:
    """Operations per second."""

    decoder: float
    """Over the matrices of one layer, each as often as it occurs."""
    head: float

    def seconds(self, flops: Flops) -> float:
        """How long the operations take at these rates; attention counts as matrix products."""
        return flops.decoder / self.decoder + flops.head / self.head


@dataclass(frozen=True)
class Peak:
    best: Rates
    """Each shape with its fastest kernel."""
    torch_gemm: Rates
    """Each shape with the kernel that torch chooses."""


@torch.inference_mode()
def measure_peak(shape: Shape, rows: int, dtype: torch.dtype, device: torch.device) -> Peak:
    """Time products for ``rows`` tokens a pass. The fastest repetition of each shape counts."""
    layer = [*shape.key_value, *shape.rest]
    head_rows = ROWS_OF_LOGITS if device.type == "cpu" else 16 * ROWS_OF_LOGITS  # as the engine does it
    seconds = {matrix: _time_product(rows, matrix, dtype, device) for matrix in set(layer)}
    head_seconds = _time_product(head_rows, shape.head, dtype, device)

    def rates(choose: Callable[[tuple[float, float]], float]) -> Rates:
        operations = sum(_operations(rows, matrix) for matrix in layer)
        return Rates(
            decoder=operations / sum(choose(seconds[matrix]) for matrix in layer),
            head=_operations(head_rows, shape.head) / choose(head_seconds),
        )

    return Peak(best=rates(min), torch_gemm=rates(lambda pair: pair[0]))


def _operations(rows: int, matrix: Matrix) -> int:
    return 2 * rows * matrix[0] * matrix[1]


def _time_product(rows: int, matrix: Matrix, dtype: torch.dtype, device: torch.device) -> tuple[float, float]:
    """Seconds of ``rows`` tokens times a weight stored as in a linear layer: with torch's choice of a kernel,
    and with ours."""
    inner, outer = matrix
    x = torch.randn(rows, inner, device=device).to(dtype)
    weight = torch.randn(outer, inner, device=device).to(dtype)
    out = torch.empty(rows, outer, device=device, dtype=dtype)
    by_torch = _fastest(lambda: torch.mm(x, weight.t(), out=out), device)
    return by_torch, _fastest(lambda: linear(x, weight), device)


def _fastest(product: Callable[[], torch.Tensor], device: torch.device) -> float:
    """Seconds of the fastest repetition, after one that does not count."""
    product()
    best = float("inf")
    end = time.perf_counter() + SECONDS
    while time.perf_counter() < end or best == float("inf"):
        synchronise(device)
        start = time.perf_counter()
        product()
        synchronise(device)
        best = min(best, time.perf_counter() - start)
    return best


def synchronise(device: torch.device) -> None:
    """Wait until a GPU has finished its work."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    elif device.type == "mps":
        torch.mps.synchronize()
