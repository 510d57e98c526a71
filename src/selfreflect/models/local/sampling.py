"""From logits to one token per sequence, each with its own random numbers."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from selfreflect.models.base import Sampling


def random_source(seed: int, device: torch.device) -> torch.Generator:
    """A sequence's stream of random numbers. It depends on the seed alone, not on the batch."""
    return torch.Generator(device=device).manual_seed(seed)


def choose(logits: torch.Tensor, sampling: Sampling, sources: Sequence[torch.Generator]) -> torch.Tensor:
    """Choose one token per row by an exponential race: argmax of p / E with E ~ Exp(1), which samples from p
    (the Gumbel-max trick).

    Batch sizes change logits in their last bits. The race then changes its winner with a probability of the
    order of that rounding; inverting the cumulative distribution would change it for most tokens of the tail,
    because every boundary moves.

    Args:
        logits: (sequences, vocabulary).
        sources: one per sequence, on the device of the logits.

    Returns:
        Token ids, (sequences,).
    """
    if sampling.temperature == 0:
        return logits.argmax(dim=-1)
    probs = torch.softmax(logits.float() / sampling.temperature, dim=-1)
    if sampling.top_k or sampling.top_p < 1 or sampling.min_p > 0:
        probs = _filtered(probs, sampling)
    race = torch.empty_like(probs)
    for row, source in zip(race, sources, strict=True):
        row.exponential_(generator=source)
    return probs.div_(race).argmax(dim=-1)


def _filtered(probs: torch.Tensor, sampling: Sampling) -> torch.Tensor:
    """Zero what top-k, then nucleus (top-p), then min-p exclude; the rest keeps its proportions."""
    ordered, index = probs.sort(dim=-1, descending=True)
    keep = torch.ones_like(ordered, dtype=torch.bool)
    if sampling.top_k:
        keep[:, sampling.top_k :] = False
    if sampling.top_p < 1:
        kept = ordered * keep
        before = (kept.cumsum(dim=-1) - kept) / kept.sum(dim=-1, keepdim=True)
        keep &= before < sampling.top_p
    if sampling.min_p > 0:
        keep &= ordered >= sampling.min_p * ordered[:, :1]
    keep[:, 0] = True
    return torch.zeros_like(probs).scatter_(-1, index, ordered * keep)
