"""Whether a score and a correctness label both follow the length of answers (arXiv 2504.13677).

Then the score may rank answers well for the label's bias alone: long answers get low overlap with a short
gold answer, and low likelihoods.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from selfreflect.stats import Floats, ranks
from selfreflect.uncertainty.discrimination import auroc
from selfreflect.uncertainty.partial_dependence import partial_dependence
from selfreflect.uncertainty.tally import Tally

_CLEAR = 1.96


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
    its 10th, at the length that each answer has (:mod:`selfreflect.uncertainty.partial_dependence`)."""
    length_effect: float | None
    """The same of the length, at the score that each answer has; below 0 if shorter answers are right."""

    @property
    def confounded(self) -> bool:
        """Whether score and correctness both clearly depend on length."""
        one, other = self.score_with_length, self.correct_with_length
        if one is None or other is None:
            return False
        return min(abs(one), abs(other)) >= _CLEAR / math.sqrt(self.n - 1)

    @property
    def warning(self) -> str:
        """A sentence if score and correctness both clearly depend on length, else empty."""
        one, other = self.score_with_length, self.correct_with_length
        if not self.confounded or one is None or other is None:
            return ""
        effect = "flatters" if one * other > 0 else "harms"
        return (
            f"Score and correctness both depend on length (rank correlations {one:+.2f} and {other:+.2f}), "
            f"which {effect} the score. Judge it at equal length."
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
    dependence = partial_dependence(score, label, length)
    return LengthAudit(
        n=len(length),
        auroc_of_length=None if math.isnan(area) else area,
        score_with_length=score_length,
        correct_with_length=correct_length,
        score_with_correct=score_correct,
        score_with_correct_at_length=_partial(score_correct, score_length, correct_length),
        score_effect=None if dependence is None else dependence.of_score[-1] - dependence.of_score[0],
        length_effect=None if dependence is None else dependence.of_length[-1] - dependence.of_length[0],
    )


def _partial(xy: float | None, xz: float | None, yz: float | None) -> float | None:
    """The correlation of x and y without what z explains of both."""
    if xy is None or xz is None or yz is None:
        return xy
    rest = (1 - xz**2) * (1 - yz**2)
    return (xy - xz * yz) / math.sqrt(rest) if rest > 1e-12 else None


def _spearman(one: Sequence[float] | Floats, other: Sequence[float] | Floats) -> float | None:
    a, b = (ranks(np.asarray(column, dtype=np.float64)) for column in (one, other))
    if len(a) < 3 or a.min() == a.max() or b.min() == b.max():
        return None
    return float(np.corrcoef(a, b)[0, 1])
