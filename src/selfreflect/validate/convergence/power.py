"""How many questions separate two summaries, from the spread between questions and that between the answers
of a question."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist, fmean, variance

from selfreflect.stats import Estimate, clustered_mean, mean_interval

CONFIDENCE, POWER = 0.95, 0.8
FEWEST = 6
"""With fewer questions no sign-flip test can reach p < 0.05: the most extreme of 2^5 patterns and its mirror
have 2/32."""


@dataclass(frozen=True)
class Separation:
    """How two summaries differ, question by question."""

    difference: Estimate
    """Mean over questions."""
    spread: float | None
    """Standard deviation of the difference between questions, with the answers at hand. None with fewer than
    two questions."""
    between: float | None
    """The same without the noise of masking these answers rather than others: with endlessly many. None where
    parts are unknown."""
    within: float | None
    """Standard deviation of a question's difference from one single answer."""

    def sd(self, answers: int | None = None) -> float | None:
        """Standard deviation of one question's difference with so many masked-out answers, or with those at
        hand."""
        if answers is None:
            return self.spread
        if self.between is None or self.within is None:
            return None
        return math.sqrt(self.between**2 + self.within**2 / answers)

    def questions(self, answers: int | None = None, difference: float | None = None) -> int | None:
        """Questions that separate the two, see :func:`questions_needed`; for the observed difference unless
        another one is given."""
        size, sd = self.difference.mean if difference is None else difference, self.sd(answers)
        return None if size is None or sd is None else questions_needed(size, sd)


def questions_needed(difference: float, sd: float) -> int | None:
    """Paired questions with which the 95% interval of their mean difference excludes 0 with 80% power:
    ((z_.975 + z_.8) sd / |d|)^2.

    The normal approximation of a paired test (Cohen, Statistical Power Analysis, 2nd ed. 1988, chapter 2);
    never below ``FEWEST``. None where there is no difference to find.
    """
    if not difference:
        return None
    normal = NormalDist()
    z = normal.inv_cdf((1 + CONFIDENCE) / 2) + normal.inv_cdf(POWER)
    ratio = (z * sd / difference) ** 2
    return max(FEWEST, math.ceil(ratio)) if math.isfinite(ratio) else None


def separation(
    differences: Sequence[float], by_answer: Sequence[Sequence[Sequence[float]]] = (), *, seed: int = 0
) -> Separation:
    """From the difference of each question and, where known, the differences of each token task, by question
    and masked-out answer.

    The variance between questions is what is observed less the mean squared standard error of a question's
    difference, which is that of a ratio with answers as clusters, see
    :func:`selfreflect.stats.clustered_mean`; at least 0. A question with one answer tells nothing of that
    error and is passed over.
    """
    estimate = mean_interval(differences, len(differences), confidence=CONFIDENCE, seed=seed)
    if len(differences) < 2:
        return Separation(estimate, None, None, None)
    observed = variance(differences)
    noise, single = [], []
    for answers in by_answer:
        _, error = clustered_mean(answers)
        if error is not None:
            noise.append(error**2)
            single.append(error**2 * sum(1 for answer in answers if answer))
    if not noise:
        return Separation(estimate, math.sqrt(observed), None, None)
    return Separation(
        estimate, math.sqrt(observed), math.sqrt(max(0.0, observed - fmean(noise))), math.sqrt(fmean(single))
    )
