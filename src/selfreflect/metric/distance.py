"""How far apart two predicted distributions are. Pure tensor functions.

All compare p = softmax(logits / T), predicted after the summary, with q = softmax(reference / T), predicted
after the conditioning answers. The metric is the total variation; ``validate`` compares it with the others.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch

Formula = Callable[[torch.Tensor, torch.Tensor, float], torch.Tensor]
"""(logits, reference, temperature) -> distances: float32 of shape (tasks, vocabulary), twice, to shape
(tasks,). Inputs are left alone."""


def total_variation(logits: torch.Tensor, reference: torch.Tensor, temperature: float) -> torch.Tensor:
    """Total variation distance ``1/2 * sum_v |p(v) - q(v)|``, in [0, 1].

    The paper writes it as the 1-Wasserstein distance; under the 0/1 ground metric on tokens the two are the
    same number.
    """
    p = torch.softmax(logits / temperature, dim=-1)
    q = torch.softmax(reference / temperature, dim=-1)
    # rounding over a large vocabulary exceeds 1 by some 1e-7
    return p.sub_(q).abs_().sum(dim=-1).mul_(0.5).clamp_(max=1.0)


def kl_divergence(logits: torch.Tensor, reference: torch.Tensor, temperature: float) -> torch.Tensor:
    """Kullback-Leibler divergence KL(q || p) = ``sum_v q(v) ln(q(v) / p(v))``, in nats, 0 to infinity: what a
    reader of the summary loses in log-likelihood when words come from the reference (Kullback and Leibler
    1951, Ann. Math. Stat. 22, 79-86)."""
    log_p, log_q = _log_softmax(logits, temperature), _log_softmax(reference, temperature)
    return _expected(log_q, log_q - log_p).clamp_(min=0.0)


def jensen_shannon(logits: torch.Tensor, reference: torch.Tensor, temperature: float) -> torch.Tensor:
    """Jensen-Shannon divergence ``KL(p || m) / 2 + KL(q || m) / 2`` with m = (p + q) / 2, in bits, in [0, 1].
    Its square root is the distance (Lin 1991, IEEE Trans. Inf. Theory 37, 145-151)."""
    log_p, log_q = _log_softmax(logits, temperature), _log_softmax(reference, temperature)
    nats = (_to_middle(log_p, log_q) + _to_middle(log_q, log_p)) / 2
    return nats.div_(math.log(2)).clamp_(0.0, 1.0)


def _to_middle(log_p: torch.Tensor, log_q: torch.Tensor) -> torch.Tensor:
    """KL(p || (p + q) / 2) in nats, from log((p + q) / 2p) = log(1 + (exp(d) - 1) / 2) with d = log(q / p),
    which is exact where d is 0."""
    d = (log_q - log_p).clamp_(max=80.0)  # before exp overflows; beyond it p < exp(-80)
    return -_expected(log_p, d.expm1_().div_(2).log1p_())


def hellinger(logits: torch.Tensor, reference: torch.Tensor, temperature: float) -> torch.Tensor:
    """Hellinger distance ``sqrt(1/2 * sum_v (sqrt(p(v)) - sqrt(q(v)))^2)``, in [0, 1], with H^2 <= TV <=
    sqrt(2) * H (Le Cam and Yang, Asymptotics in Statistics, 2nd ed. 2000, chapter 3)."""
    # a sum of squares, since one minus the overlap of two nearly equal distributions would cancel
    root_p = _log_softmax(logits, temperature).div_(2).exp_()
    root_q = _log_softmax(reference, temperature).div_(2).exp_()
    return root_p.sub_(root_q).square_().sum(dim=-1).div_(2).sqrt_().clamp_(max=1.0)


def top1_disagreement(logits: torch.Tensor, reference: torch.Tensor, temperature: float) -> torch.Tensor:
    """1 where the likeliest token differs, else 0; of equally likely ones the first counts."""
    differs = (logits.argmax(dim=-1) != reference.argmax(dim=-1)).float()
    peaks = logits.amax(dim=-1) + reference.amax(dim=-1)
    return torch.where(peaks.isfinite(), differs, torch.nan)  # damaged logits have a likeliest token too


def _log_softmax(logits: torch.Tensor, temperature: float) -> torch.Tensor:
    return torch.log_softmax(logits / temperature, dim=-1)


def _expected(log_weights: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """``sum_v exp(log_weights) * values``, where tokens without weight count for nothing."""
    weights = log_weights.exp()
    return torch.where(weights == 0, 0.0, weights * values).sum(dim=-1)
