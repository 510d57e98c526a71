"""Estimators that read the likely tokens at each token of one answer.

Entropies are of lists with the largest probabilities, p_1 >= ... >= p_k, at each token. A list leaves out the
rest r = 1 - p_1 - ... - p_k, so no list gives the entropy of the prediction; but it gives an interval that
holds it. All values are in nats.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from selfreflect.stats import Floats

LARGEST_VOCABULARY = 2**18
"""Tokens that a vocabulary has at most, where it is not known: as many as the largest in use."""
GROUP = 32
"""Neighbouring tokens whose confidence is averaged, unless an answer has fewer."""
_ROUNDING = 1e-9


class EntropyBounds(NamedTuple):
    """An interval that holds the entropy of each prediction, shape (T,) each."""

    low: Floats
    high: Floats


def probabilities(top: Floats | Sequence[Sequence[float]]) -> Floats:
    """Compute the probabilities of lists of equal length in falling order, shape (T, K)."""
    falling: Floats = -np.sort(-np.exp(np.asarray(top, dtype=np.float64)), axis=1)
    return falling


def truncated_entropy(shares: Floats) -> Floats:
    """Sum -p ln p over each list, shape (T,). Its mean is EPR (arXiv 2509.04492)."""
    entropies: Floats = -_p_log_p(shares).sum(axis=1)
    return entropies


def renormalised_entropy(shares: Floats) -> Floats:
    """Compute the entropy of each list as if nothing else were possible, shape (T,)."""
    return truncated_entropy(shares / shares.sum(axis=1, keepdims=True))


def rest_bucket_entropy(shares: Floats) -> Floats:
    """Compute the entropy of each list with all other tokens as one, shape (T,). A lower bound."""
    return truncated_entropy(shares) - _p_log_p(_rest(shares))


def entropy_interval(shares: Floats, vocabulary: int = LARGEST_VOCABULARY) -> EntropyBounds:
    """Bound the entropy of each prediction by its list.

    Each probability that is left out is at most min(r, p_k), and the entropy is largest if they are even.

    Args:
        vocabulary: tokens that there are, at most.
    """
    rest, least = _rest(shares), shares[:, -1]
    truncated = truncated_entropy(shares)
    with np.errstate(divide="ignore", invalid="ignore"):
        low = truncated - np.where(rest > 0, rest * np.log(np.minimum(rest, least)), 0.0)
        even = rest / max(1, vocabulary - shares.shape[1])
        high = truncated - np.where(rest > 0, rest * np.log(even), 0.0)
    return EntropyBounds(low, np.maximum(low, high))


def margins(shares: Floats) -> Floats:
    """Subtract the second probability of each list from the first, shape (T,)."""
    differences: Floats = shares[:, 0] - shares[:, 1]
    return differences


def token_confidences(top: Floats | Sequence[Sequence[float]]) -> Floats:
    """Average -ln p over each list, shape (T,); depends on its length (Fu et al. 2025, arXiv 2508.15260)."""
    confidences: Floats = -np.asarray(top, dtype=np.float64).mean(axis=1)
    return confidences


def group_confidence(confidences: Floats, window: int = GROUP) -> float:
    """Find the lowest mean of ``window`` neighbouring tokens; the plain mean where there are fewer tokens."""
    if len(confidences) <= window:
        return float(confidences.mean())
    sums = np.cumsum(np.concatenate([[0.0], confidences]))
    return float((sums[window:] - sums[:-window]).min() / window)


def _rest(shares: Floats) -> Floats:
    rest = 1 - shares.sum(axis=1)
    return np.where(rest < _ROUNDING, 0.0, rest)


def _p_log_p(shares: Floats) -> Floats:
    """Compute p ln p, which is 0 at 0."""
    logs: Floats = np.log(shares, out=np.zeros_like(shares), where=shares > 0)
    return shares * logs
