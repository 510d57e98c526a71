"""Times matrix products at SmolLM2's shapes: with torch's own choice of a kernel and with
``selfreflect.models.local.layers``."""

import time
from collections.abc import Callable

import torch

from selfreflect.models.local.layers import linear

ROWS, HIDDEN, HEADS, FFN, VOCABULARY = 1024, 576, 192, 1536, 49152


def best(product: Callable[[], torch.Tensor], seconds: float = 0.7) -> float:
    product()
    fastest = float("inf")
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        started = time.perf_counter()
        product()
        fastest = min(fastest, time.perf_counter() - started)
    return fastest


@torch.inference_mode()
def main() -> None:
    print(f"{torch.get_num_threads()} threads, GFLOP/s by torch and by us")
    shapes = (
        (ROWS, HIDDEN, HEADS),
        (ROWS, HIDDEN, HIDDEN),
        (ROWS, HIDDEN, FFN),
        (ROWS, FFN, HIDDEN),
        (64, HIDDEN, VOCABULARY),
    )
    for rows, inner, outer in shapes:
        x, weight = torch.randn(rows, inner), torch.randn(outer, inner)
        flops = 2e-9 * rows * inner * outer
        by_torch = best(lambda x=x, w=weight: torch.nn.functional.linear(x, w))
        by_us = best(lambda x=x, w=weight: linear(x, w))
        print(f"{rows} x {inner} x {outer}: {flops / by_torch:.0f} {flops / by_us:.0f}")


if __name__ == "__main__":
    main()
