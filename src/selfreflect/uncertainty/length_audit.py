"""Audit of whether score and correctness both follow the length of answers (arXiv 2504.13677).

Then the score may rank answers well for the label's bias alone: long answers get low overlap with a short
gold answer, and low likelihoods.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from selfreflect.stats import Floats, ranks
from selfreflect.uncertainty.calibrators import sigmoid
from selfreflect.uncertainty.prediction import Tally, auroc

ENDS = (0.1, 0.9)
"""Quantiles of the score, or of the length, between which an effect is computed."""
RIDGE = 0.1
"""Penalty of the squared slopes, which keeps them finite where a score separates right from wrong."""
FEWEST = 10


class Effects(NamedTuple):
    """How much the chance of a correct answer rises between the quantiles of ``ENDS``."""

    of_score: float
    """At the length that each answer has, averaged over answers."""
    of_length: float
    """At the score that each answer has, averaged over answers."""


def partial_effects(scores: Floats, correct: Floats, lengths: Floats) -> Effects | None:
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
    scaled_ranks = np.stack([2 * (ranks(column) - 0.5) / len(column) - 1 for column in (scores, lengths)])
    intercept, *slopes = _fit(np.vstack([np.ones(len(correct)), scaled_ranks]), correct)
    effects = []
    for column in (0, 1):
        rest = intercept + slopes[1 - column] * scaled_ranks[1 - column]
        low, high = (sigmoid(rest + slopes[column] * (2 * end - 1)).mean() for end in ENDS)
        effects.append(float(high - low))
    return Effects(*effects)


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


_CLEAR = 1.96
GROUPS = 10
"""Most groups of answers by length, in which a dependence shows that rises and falls again."""
# Of a standard normal variable 1 in 100 values is above this.
_SURE = 2.326


@dataclass(frozen=True)
class LengthAudit:
    """Rank correlations between length, a score and correctness, and what the score tells at equal length.
    None where one of them is constant."""

    n: int
    auroc_of_length: float | None
    """Of the shorter answer being the correct one."""
    score_with_length: float | None
    """Spearman's rho."""
    correct_with_length: float | None
    score_with_correct: float | None
    score_with_correct_at_length: float | None
    """Partial rank correlation: what is left of the one above at equal length."""
    score_effect: float | None
    """Partial dependence on the score: the chance of a correct answer at its 90th percentile minus that at
    its 10th, at the length that each answer has (:mod:`selfreflect.uncertainty.length_audit`)."""
    length_effect: float | None
    """The same of the length, at the score that each answer has; below 0 if shorter answers are right."""
    score_between_lengths: float | None
    """Correlation ratio of the score's ranks over groups of answers by length: 0 if all groups have the same
    mean, 1 if the length decides it, in whatever shape."""
    correct_between_lengths: float | None
    score_with_correct_within_lengths: float | None
    """Rank correlation of what is left of both within these groups."""
    shaped: bool
    """Whether score and correctness both clearly differ between the groups (Kruskal and Wallis 1952)."""

    @property
    def confounded(self) -> bool:
        """Whether score and correctness both clearly depend on length."""
        return self._is_monotone or self.shaped

    @property
    def _is_monotone(self) -> bool:
        score_rho, label_rho = self.score_with_length, self.correct_with_length
        if score_rho is None or label_rho is None:
            return False
        return min(abs(score_rho), abs(label_rho)) >= _CLEAR / math.sqrt(self.n - 1)

    @property
    def warning(self) -> str:
        """A sentence if score and correctness both clearly depend on length, else empty."""
        score_rho, label_rho = self.score_with_length, self.correct_with_length
        if not self._is_monotone or score_rho is None or label_rho is None:
            if not self.shaped:
                return ""
            return (
                "Score and correctness both differ between short, middling and long answers (correlation "
                f"ratios {self.score_between_lengths:.2f} and {self.correct_between_lengths:.2f}). "
                "Judge it at equal length."
            )
        effect = "flatters" if score_rho * label_rho > 0 else "harms"
        return (
            "Score and correctness both depend on length (rank correlations "
            f"{score_rho:+.2f} and {label_rho:+.2f}), which {effect} the score. Judge it at equal length."
        )


def audit_length(
    scores: Sequence[float] | Floats, correct: Sequence[bool] | Floats, lengths: Sequence[float] | Floats
) -> LengthAudit:
    """Audit one score, where a higher one means more confidence, against one kind of label."""
    length = np.asarray(lengths, dtype=np.float64)
    area = float(auroc(Tally.of(-length, np.asarray(correct, dtype=np.float64))))
    score_length = _spearman(scores, length)
    correct_length = _spearman(correct, length)
    score_correct = _spearman(scores, correct)
    score, label = (np.asarray(column, dtype=np.float64) for column in (scores, correct))
    effects = partial_effects(score, label, length)
    groups = _groups(length)
    between = [_between(column, groups) for column in (score, label)]
    limit = _chi_square(int(groups.max())) / max(1, len(length) - 1)
    return LengthAudit(
        n=len(length),
        auroc_of_length=None if math.isnan(area) else area,
        score_with_length=score_length,
        correct_with_length=correct_length,
        score_with_correct=score_correct,
        score_with_correct_at_length=_partial(score_correct, score_length, correct_length),
        score_effect=None if effects is None else effects.of_score,
        length_effect=None if effects is None else effects.of_length,
        score_between_lengths=between[0],
        correct_between_lengths=between[1],
        score_with_correct_within_lengths=_within(score, label, groups),
        shaped=all(ratio is not None and ratio**2 >= limit for ratio in between),
    )


def _groups(lengths: Floats) -> NDArray[np.intp]:
    """Group answers by length, numbered without gaps; equal lengths share a group."""
    count = max(1, min(GROUPS, len(lengths) // 10))
    # equal lengths have equal ranks, so they fall into one band
    bands = np.minimum(count * (ranks(lengths) - 0.5) / len(lengths), count - 1).astype(np.intp)
    return np.unique(bands, return_inverse=True)[1].reshape(-1)


def _chi_square(degrees: int) -> float:
    """Compute the 99% quantile of chi-square (Wilson and Hilferty 1931); infinite for one group."""
    if not degrees:
        return math.inf
    part = 2 / (9 * degrees)
    return float(degrees * (1 - part + _SURE * math.sqrt(part)) ** 3)


def _residuals(column: Floats, groups: NDArray[np.intp]) -> tuple[Floats, Floats]:
    """Ranks around their mean, and around the mean of their group."""
    column_ranks = ranks(column)
    means = np.bincount(groups, column_ranks) / np.bincount(groups)
    return column_ranks - column_ranks.mean(), column_ranks - means[groups]


def _between(column: Floats, groups: NDArray[np.intp]) -> float | None:
    """Compute the correlation ratio of ranks; None for one group or equal values."""
    around, within = _residuals(column, groups)
    total = float(around @ around)
    if not groups.any() or not total:
        return None
    return math.sqrt(max(0.0, 1 - float(within @ within) / total))


def _within(x: Floats, y: Floats, groups: NDArray[np.intp]) -> float | None:
    a, b = (_residuals(column, groups)[1] for column in (x, y))
    scale = math.sqrt(float(a @ a) * float(b @ b))
    return float(a @ b) / scale if scale > 1e-9 else None


def _partial(xy: float | None, xz: float | None, yz: float | None) -> float | None:
    """Correlate x and y without what z explains of both."""
    if xy is None or xz is None or yz is None:
        return xy
    rest = (1 - xz**2) * (1 - yz**2)
    return (xy - xz * yz) / math.sqrt(rest) if rest > 1e-12 else None


def _spearman(x: Sequence[float] | Floats, y: Sequence[float] | Floats) -> float | None:
    a, b = (ranks(np.asarray(column, dtype=np.float64)) for column in (x, y))
    if len(a) < 3 or a.min() == a.max() or b.min() == b.max():
        return None
    return float(np.corrcoef(a, b)[0, 1])
