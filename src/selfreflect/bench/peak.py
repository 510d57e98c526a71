"""How fast this machine multiplies matrices of the model's shapes: what an engine could reach at most."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from operator import itemgetter

import torch

from selfreflect.bench.flops import Flops, Shape
from selfreflect.metric.engine.tree_engine import ROWS_OF_LOGITS
from selfreflect.models.linear import linear

SECONDS = 0.2
"""How long each shape is tried."""


@dataclass(frozen=True)
class Rates:
    """In FLOP/s."""

    decoder: float
    """The matrices of one layer in turn, each as often as it occurs."""
    head: float

    def seconds(self, work: Flops) -> float:
        """How long the work takes at these rates; attention counts as matrix products."""
        return work.decoder / self.decoder + work.head / self.head


@dataclass(frozen=True)
class Peak:
    """What the machine reached at most."""

    best: Rates
    """Each shape by the kernel that was fastest at it."""
    usual: Rates
    """By the kernel that torch chooses."""


@torch.inference_mode()
def measure_peak(shape: Shape, rows: int, dtype: torch.dtype, device: torch.device) -> Peak:
    """Time products for ``rows`` tokens a pass, and keep the best repetition of each shape."""
    layer = (*shape.key_value, *shape.rest)
    head_rows = ROWS_OF_LOGITS if device.type == "cpu" else 16 * ROWS_OF_LOGITS  # as the engine does it
    seconds: dict[tuple[int, int, int], tuple[float, ...]] = {}
    for key in {*((rows, *matrix) for matrix in layer), (head_rows, *shape.head)}:
        seconds[key] = tuple(_best(product, device) for product in _products(*key, dtype, device))

    def rates(choice: Callable[[tuple[float, ...]], float]) -> Rates:
        return Rates(
            decoder=sum(2 * rows * inner * outer for inner, outer in layer)
            / sum(choice(seconds[rows, *matrix]) for matrix in layer),
            head=2 * head_rows * shape.head[0] * shape.head[1] / choice(seconds[head_rows, *shape.head]),
        )

    return Peak(best=rates(min), usual=rates(itemgetter(0)))


def _products(
    rows: int, inner: int, outer: int, dtype: torch.dtype, device: torch.device
) -> tuple[Callable[[], torch.Tensor], ...]:
    """``rows`` tokens times a weight that lies as a linear layer has it: torch's own choice of a kernel, and
    ours."""
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
    elif device.type == "mps":
        torch.mps.synchronize()
