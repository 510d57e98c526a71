"""How far apart two predicted distributions are. Pure tensor functions."""

from __future__ import annotations

import torch


def total_variation(logits: torch.Tensor, reference: torch.Tensor, temperature: float) -> torch.Tensor:
    """Total variation distance between softmax(logits / T) and softmax(reference / T), in [0, 1].

    The paper writes it as the 1-Wasserstein distance; under the 0/1 ground metric on tokens the two are the same number,
    ``1/2 * sum_v |p(v) - q(v)|``.

    Args:
        logits, reference: shape (tasks, vocabulary), float32.

    Returns:
        Shape (tasks,).
    """
    p = torch.softmax(logits / temperature, dim=-1)
    q = torch.softmax(reference / temperature, dim=-1)
    return p.sub_(q).abs_().sum(dim=-1).mul_(0.5).clamp_(max=1.0)  # rounding over a large vocabulary exceeds 1 by some 1e-7
