"""How correctness depends on a score at equal length of answers, and on length at an equal score."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from selfreflect.stats import Floats, ranks
from selfreflect.uncertainty.recalibrate import sigmoid

GRID = tuple(tenths / 10 for tenths in range(1, 10))
"""Quantiles of the score, or of the length, at which the dependence is computed."""
RIDGE = 0.1
"""Penalty of the squared slopes, which keeps them finite where a score separates right from wrong."""
FEWEST = 10


class Dependence(NamedTuple):
    """Chances of a correct answer, one for each quantile of ``GRID``."""

    of_score: tuple[float, ...]
    """At the length that each answer has, averaged over answers."""
    of_length: tuple[float, ...]
    """At the score that each answer has, averaged over answers."""


def partial_dependence(scores: Floats, correct: Floats, lengths: Floats) -> Dependence | None:
    """Compute the partial dependence of correctness on score and on length (Friedman 2001, Annals of
    Statistics 29, 1189-1232).

    A logistic regression predicts correctness from the ranks of both. The chance at a quantile of the score
    is the mean, over all answers, of its prediction with that score and each answer's own length. So it shows
    what the score tells beyond length, which a bias that both share would feign (Santilli et al. 2025, arXiv
    2504.13677).

    Returns:
        None for fewer than 10 answers, or where all are correct or wrong, or all scores or lengths are equal.
    """
    columns = (scores, correct, lengths)
    if len(correct) < FEWEST or any(column.min() == column.max() for column in columns):
        return None
    places = np.stack([2 * (ranks(column) - 0.5) / len(column) - 1 for column in (scores, lengths)])
    weights = _fit(np.vstack([np.ones(len(correct)), places]), correct)
    return Dependence(_averaged(weights, places, 0), _averaged(weights, places, 1))


def _fit(design: Floats, correct: Floats) -> Floats:
    """Intercept and slopes of the penalised logistic regression, by Newton's method."""
    penalty = RIDGE * np.array([0.0, 1.0, 1.0])
    weights = np.zeros(3)
    for _ in range(50):
        chance = sigmoid(weights @ design)
        gradient = design @ (chance - correct) + penalty * weights
        curvature = (design * (chance * (1 - chance) + 1e-12)) @ design.T + np.diag(penalty)
        step = np.linalg.solve(curvature, gradient)
        weights = weights - step
        if np.abs(step).max() < 1e-10:
            break
    return weights


def _averaged(weights: Floats, places: Floats, column: int) -> tuple[float, ...]:
    """Mean predictions with one column set to each quantile of the grid."""
    intercept, slopes = weights[0], weights[1:]
    other = 1 - column
    chances: Sequence[float] = [
        float(sigmoid(intercept + slopes[column] * (2 * quantile - 1) + slopes[other] * places[other]).mean())
        for quantile in GRID
    ]
    return tuple(chances)
