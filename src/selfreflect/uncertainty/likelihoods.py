"""Estimators that need log-probabilities of the sampled tokens, in nats.

Three formulas in use are called semantic entropy, and they differ on the same numbers, so each has its own
name.
``sequence`` holds the sum over the tokens of each answer, ``mean`` their mean; shapes (M,).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from selfreflect.stats import Floats
from selfreflect.uncertainty.classes import Labels

SAR_TEMPERATURE = 0.001


def predictive_entropy(sequence: Floats) -> float:
    """Mean negative log-likelihood of the answers (Malinin and Gales 2021, arXiv 2002.07650). The same of
    ``mean`` is length-normalised."""
    return -float(sequence.mean())


def semantic_entropy(mean: Floats, labels: Labels) -> float:
    """Entropy of class masses exp(mean log-probability), normalised over the samples (Farquhar et al. 2024,
    Nature 630)."""
    masses = _class_log_masses(mean, labels)
    logs = masses - np.logaddexp.reduce(masses)
    return abs(float((np.exp(logs) * logs).sum()))


def semantic_entropy_monte_carlo(sequence: Floats, labels: Labels) -> float:
    """Mean over samples of the negative log mass of their class, where masses are sums of whole-sequence
    probabilities and are not normalised, as lm-polygraph computes it."""
    return -float(_class_log_masses(sequence, labels)[labels].mean())


def semantic_entropy_direct(sequence: Floats, labels: Labels) -> float:
    """Sum over samples, not over classes, of -p log p of their class: a class counts once for each member.
    Kept for comparison with tools that compute it so."""
    logs = _class_log_masses(sequence, labels)[labels]
    return -float((np.exp(logs) * logs).sum())


def sentence_sar(sequence: Floats, similarities: Floats, temperature: float = SAR_TEMPERATURE) -> float:
    """Sentence SAR: mean negative log of each answer's probability plus that of similar answers, weighted by
    similarity / temperature (Duan et al. 2024, arXiv 2307.01379). May be negative."""
    with np.errstate(divide="ignore"):
        weights = np.log(similarities / temperature)
    np.fill_diagonal(weights, 0)
    return -float(np.logaddexp.reduce(weights + sequence, axis=1).mean())


def token_sar(logprobs: Floats, relevance: Floats) -> float:
    """Token SAR of one answer: negative log-probabilities weighted by how much each token matters.

    Args:
        logprobs: shape (T,).
        relevance: 1 - similarity of the answer with and without the token; shape (T,). All 0 weighs equally.
    """
    total = relevance.sum()
    weights = relevance / total if total > 0 else np.full(len(relevance), 1 / len(relevance))
    return -float((weights * logprobs).sum())


def sar(token_sars: Sequence[float] | Floats, similarities: Floats) -> float:
    """Sentence SAR of probabilities exp(-token SAR)."""
    return sentence_sar(-np.asarray(token_sars, dtype=np.float64), similarities)


def _class_log_masses(logs: Floats, labels: Labels) -> Floats:
    """The log of the sum of exp(logs) in each class; shape (K,)."""
    masses = np.full(int(labels.max()) + 1, -np.inf)
    np.logaddexp.at(masses, labels, logs)
    return masses
