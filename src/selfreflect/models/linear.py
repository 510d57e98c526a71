"""Linear layers: oneDNN in float32 on a CPU, torch's own choice elsewhere.

torch calls MKL, which uses the widest vectors on Intel's processors only; with oneDNN, products took half the
time on an AMD Zen 5 (``benchmarks/products.py``). They differ by rounding alone. The choice depends on the
build of torch, never on a timing, so that scores can be repeated.
"""

from __future__ import annotations

from functools import cache

import torch
import torch.nn.functional as F


def linear(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None, *, silu: bool = False
) -> torch.Tensor:
    """``x @ weight.T + bias``, as :func:`torch.nn.functional.linear` but for rounding; without gradients.

    Shapes are x (rows, inner), weight (outer, inner), bias (outer,), and the result's (rows, outer). ``silu``
    applies SiLU to it, in the same kernel if possible.
    """
    product: torch.Tensor
    if len(x) and _use_onednn(x, weight):
        activation = "swish" if silu else "none"
        product = torch.ops.mkldnn._linear_pointwise(x, weight, bias, activation, [], "")
        return product
    product = F.linear(x, weight, bias)
    return F.silu(product, inplace=True) if silu else product


def add_linear(
    total: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None
) -> None:
    """``total += linear(x, weight, bias)``, in one kernel where that is faster."""
    if _use_onednn(x, weight):
        total += linear(x, weight, bias)
        return
    total.addmm_(x, weight.t())
    if bias is not None:
        total += bias


def _use_onednn(x: torch.Tensor, weight: torch.Tensor) -> bool:
    for tensor in (x, weight):
        if tensor.device.type != "cpu" or tensor.dtype != torch.float32:
            return False
        if tensor.requires_grad and torch.is_grad_enabled():
            return False
    return _has_onednn()


@cache
def _has_onednn() -> bool:
    return torch._C._has_mkldnn and hasattr(torch.ops.mkldnn, "_linear_pointwise")
