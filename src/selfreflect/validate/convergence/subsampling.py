"""What scores and rankings would have been with fewer questions, masked-out answers or masked words. NumPy
only, nothing is scored.

Shapes: Q questions, S summaries (strategies), U units of one question (answers or words), R random draws.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from selfreflect.stats import Floats
from selfreflect.validate.base import Parts

DRAWS = 500
STABLE = 0.95
"""The share of draws that must give the same ranking for it to be called stable."""
_TIE = 1e-12
"""Means closer than this differ by rounding alone."""


@dataclass(frozen=True)
class Step:
    """Mean scores under one budget."""

    budget: int
    means: tuple[float, ...]
    """One for each summary: the mean over draws of its mean over questions."""
    sds: tuple[float, ...]
    """Standard deviation over draws of the same."""
    same: float | None
    """Share of draws whose ranking is the reference's; None where the reference ranks nothing."""


@dataclass(frozen=True)
class Units:
    """One question as units that may be drawn. All summaries share the units, so that they are compared on
    the same ones."""

    sums: Floats
    """(U, S): summed distances of each unit."""
    sizes: Floats
    """(U,): token tasks of each unit, at least one."""

    @property
    def scores(self) -> Floats:
        """(S,)"""
        mean: Floats = self.sums.sum(axis=0) / self.sizes.sum()
        return mean


def budgets(most: int) -> tuple[int, ...]:
    """1, 2, 5, 10, 20, 50, … below ``most``, then ``most``."""
    steps = [factor * 10**power for power in range(len(str(most))) for factor in (1, 2, 5)]
    return (*(step for step in steps if step < most), most)


def answer_units(parts: Sequence[Parts]) -> Units:
    """The masked-out answers of one question that have words; one of ``parts`` for each summary.

    Raises:
        ValueError: the summaries were not scored on the same words, or on none.
    """
    return _units(
        [[[sum(map(math.fsum, answer)), sum(map(len, answer))] for answer in one if answer] for one in parts]
    )


def word_units(parts: Sequence[Parts]) -> Units:
    """The masked words of one question; raises as :func:`answer_units` does."""
    return _units([[[math.fsum(word), len(word)] for answer in one for word in answer] for one in parts])


def _units(sums_and_sizes: Sequence[Sequence[Sequence[float]]]) -> Units:
    sizes = [[size for _, size in units] for units in sums_and_sizes]
    if not sizes or not sizes[0] or any(one != sizes[0] for one in sizes):
        raise ValueError("the summaries of a question need the distances of the same words, at least one")
    sums = np.array([[total for total, _ in units] for units in sums_and_sizes], dtype=np.float64)
    return Units(sums.T, np.array(sizes[0], dtype=np.float64))


def fewer_units(questions: Sequence[Units], steps: Sequence[int], seed: int) -> list[Step]:
    """Scores from so many random units of each question (all, where it has fewer), drawn without replacement,
    over the same questions.

    The reference is the ranking by all units. A question's score is the flat mean over the token tasks of the
    units drawn, a ratio, so that it is biased a little where units are few and unequal.
    """
    rng = np.random.default_rng(seed)
    totals = np.zeros((len(steps), DRAWS, questions[0].sums.shape[1]))
    for units in questions:
        places = np.argsort(rng.random((DRAWS, len(units.sizes))), axis=1)
        for total, step in zip(totals, steps, strict=True):
            drawn = (places < step).astype(np.float64)
            total += (drawn @ units.sums) / (drawn @ units.sizes)[:, None]
    reference = np.mean([units.scores for units in questions], axis=0)
    return [_step(step, total / len(questions), reference) for step, total in zip(steps, totals, strict=True)]


def fewer_questions(values: Floats, steps: Sequence[int], seed: int) -> list[Step]:
    """Scores over so many questions, drawn from ``values`` (Q, S) with replacement: they stand for all that
    might have been asked.

    Even as many as there are do not always give the ranking of those at hand, and that is the point.
    """
    return [_step(step, _resampled_means(values, step, seed), values.mean(axis=0)) for step in steps]


def resampled_step(values: Floats, reference: Floats, budget: int, seed: int) -> Step:
    """As many questions as there are, drawn with replacement, against a reference ranking from elsewhere."""
    return _step(budget, _resampled_means(values, len(values), seed), reference)


def _resampled_means(values: Floats, count: int, seed: int) -> Floats:
    rng = np.random.default_rng([seed, count])
    weights = rng.multinomial(count, np.full(len(values), 1 / len(values)), size=DRAWS) / count
    means: Floats = weights @ values
    return means


def _step(budget: int, means: Floats, reference: Floats) -> Step:
    spread = means.std(axis=0, ddof=1)
    return Step(
        budget, tuple(means.mean(axis=0).tolist()), tuple(spread.tolist()), same_ranking(means, reference)
    )


def same_ranking(means: Floats, reference: Floats) -> float | None:
    """Share of the rows of ``means`` (R, S) that order all summaries as ``reference`` (S,) does.

    Two that tie in the reference are not ranked; a tie in a row is another order. None where all tie in the
    reference.
    """
    upper = np.triu_indices(len(reference), 1)
    gaps = reference[upper[0]] - reference[upper[1]]
    ranked = np.abs(gaps) > _TIE
    if not ranked.any():
        return None
    drawn = (means[:, upper[0]] - means[:, upper[1]])[:, ranked] * np.sign(gaps[ranked])
    return float(np.mean((drawn > _TIE).all(axis=1)))


def stable_from(steps: Sequence[Step]) -> int | None:
    """The smallest budget from which on the ranking is stable; None where it is not even under the
    largest."""
    found = None
    for step in reversed(steps):
        if step.same is None or step.same < STABLE:
            break
        found = step.budget
    return found
