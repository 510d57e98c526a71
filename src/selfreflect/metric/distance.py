"""Distance between two predicted distributions.

The judge predicts p = softmax(logits / T) after the summary, and q = softmax(reference / T) after the
reference answers.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

Formula = Callable[[torch.Tensor, torch.Tensor, float], torch.Tensor]
"""Function (logits, reference, temperature) -> distances. The inputs are float32 of shape (tasks, vocabulary)
and stay unchanged; the distances have shape (tasks,)."""


def total_variation(logits: torch.Tensor, reference: torch.Tensor, temperature: float) -> torch.Tensor:
    """Compute the total variation distance ``1/2 * sum_v |p(v) - q(v)|``, in [0, 1].

    The paper writes it as the 1-Wasserstein distance; under the 0/1 ground metric on tokens the two are the
    same number.
    """
    p = torch.softmax(logits / temperature, dim=-1)
    q = torch.softmax(reference / temperature, dim=-1)
    # rounding over a large vocabulary exceeds 1 by some 1e-7
    return p.sub_(q).abs_().sum(dim=-1).mul_(0.5).clamp_(max=1.0)
