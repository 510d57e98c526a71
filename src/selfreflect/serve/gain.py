"""How much the reply to a question is expected to tell about which hypothesis is right, in bits."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from selfreflect.stats import Floats


def entropy_bits(shares: ArrayLike) -> Floats:
    """Compute the entropy, in bits, of distributions in the last axis; shape (..., K) to (...)."""
    p = np.asarray(shares, dtype=np.float64)
    positive = np.where(p > 0, p, 1)
    bits: Floats = -(p * np.log2(positive)).sum(-1)
    return bits


def expected_information_gain(shares: ArrayLike, replies: ArrayLike) -> float:
    """Compute H(reply) - E_h H(reply | h), in bits.

    It is the mutual information of reply and hypothesis, which Bayesian experimental design maximises
    (Lindley 1956, Ann. Math. Stat. 27, 986-1005).

    Args:
        shares: of the hypotheses, not all 0; they need not add up to 1. Shape (H,).
        replies: how likely each reply is if a hypothesis is right; rows add up to 1. Shape (H, K).
    """
    weights = np.asarray(shares, dtype=np.float64)
    weights = weights / weights.sum()
    table = np.asarray(replies, dtype=np.float64)
    gain = entropy_bits(weights @ table) - weights @ entropy_bits(table)
    return max(0.0, float(gain))


def corrected_gain(shares: ArrayLike, replies: ArrayLike, predictions: int) -> float:
    """Compute the expected information gain where each row of ``replies`` is the shares of a few predictions.

    The entropy of ``n`` samples with ``m`` different values comes out too low by about (m - 1) / 2n nats
    (Miller 1955). That of a reply whose answer is known is raised by so much, which lowers the gain, to below
    0 for random predictions. The entropy of the reply stays as it is: too low, if anything.
    """
    weights = np.asarray(shares, dtype=np.float64)
    values = (np.asarray(replies) > 0).sum(-1)
    bias = weights @ (values - 1) / weights.sum() / (2 * predictions * math.log(2))
    return expected_information_gain(shares, replies) - float(bias)
