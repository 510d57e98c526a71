"""Rankings of strategies, and what they would have been with fewer questions, masked-out answers or masked words.

Everything is drawn from existing scores; nothing is scored. Shapes: Q questions, S summaries (strategies), U
units of one question (answers or words), R random draws.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np

from selfreflect.stats import Floats
from selfreflect.validate.base import MetricInfo, Parts, Value

DRAWS = 500
STABLE = 0.95
"""A ranking is stable if at least this share of draws gives it."""
_TIE = 1e-12
"""Means closer than this differ by rounding alone."""


@dataclass(frozen=True)
class Ranking:
    """The questions on which one metric scored every strategy."""

    metric: MetricInfo
    strategies: tuple[str, ...]
    questions: tuple[str, ...]
    values: Floats
    """(Q, S)"""
    parts: Mapping[str, tuple[Parts, ...]]
    """By question, if it has parts: one entry per strategy."""

    @property
    def order(self) -> list[int]:
        """Indices of the strategies, the best first."""
        sign = 1 if self.metric.better == "lower" else -1
        means = sign * self.values.mean(axis=0)
        return list(map(int, np.argsort(means, kind="stable")))


def rank(
    values: Sequence[Value], metric: MetricInfo, questions: Sequence[str], strategies: tuple[str, ...]
) -> Ranking:
    """Keep the questions for which ``metric`` has a value of every strategy."""
    of_metric = {(value.item, value.summary): value for value in values if value.metric == metric.name}
    rows: dict[str, list[float]] = {}
    parts: dict[str, tuple[Parts, ...]] = {}
    for question in questions:
        own = [of_metric[question, name] for name in strategies if (question, name) in of_metric]
        row = [value.value for value in own if value.value is not None]
        if len(row) == len(strategies):
            rows[question] = row
            if all(value.parts for value in own):
                parts[question] = tuple(value.parts for value in own)
    table = np.array(list(rows.values()), dtype=np.float64)
    return Ranking(metric, strategies, tuple(rows), table, parts)


@dataclass(frozen=True)
class Step:
    """Mean scores from ``count`` questions, answers or words."""

    count: int
    means: tuple[float, ...]
    """For each summary: the mean over draws of its mean over questions."""
    sds: tuple[float, ...]
    """Standard deviation over draws of the same."""
    same: float | None
    """Share of draws that give the reference ranking; None if the reference ranks nothing."""


def make_step(count: int, means: Floats, reference: Floats) -> Step:
    """Summarise the draws ``means`` (R, S) against the ranking by ``reference`` (S,)."""
    means_over_draws = tuple(means.mean(axis=0).tolist())
    sds = tuple(means.std(axis=0, ddof=1).tolist())
    return Step(count, means_over_draws, sds, same_ranking(means, reference))


def same_ranking(means: Floats, reference: Floats) -> float | None:
    """Share of the rows of ``means`` (R, S) that order all summaries as ``reference`` (S,) does.

    Summaries that tie in the reference are not ranked; None if all do. A tie in a row is another order.
    """
    first, second = np.triu_indices(len(reference), 1)
    gaps = reference[first] - reference[second]
    differ = np.abs(gaps) > _TIE
    if not differ.any():
        return None
    draw_gaps = (means[:, first] - means[:, second]) * np.sign(gaps)
    same = (draw_gaps[:, differ] > _TIE).all(axis=1)
    return float(same.mean())


def stable_from(steps: Sequence[Step]) -> int | None:
    """The smallest count from which on the ranking is stable; None if it is not, even at the largest."""
    stable = None
    for step in reversed(steps):
        if step.same is None or step.same < STABLE:
            break
        stable = step.count
    return stable


def counts_up_to(most: int) -> tuple[int, ...]:
    """1, 2, 5, 10, 20, 50, … below ``most``, then ``most``."""
    counts: list[int] = []
    power = 1
    while power < most:
        counts += [count for count in (power, 2 * power, 5 * power) if count < most]
        power *= 10
    return (*counts, most)


def fewer_questions(values: Floats, counts: Sequence[int], seed: int) -> list[Step]:
    """Score on ``count`` questions, drawn with replacement from ``values`` (Q, S).

    With replacement, because the questions stand for all that might have been asked: even Q draws do not
    always give the ranking of these Q.
    """
    reference = values.mean(axis=0)
    return [make_step(count, resampled_means(values, count, seed), reference) for count in counts]


def resampled_means(values: Floats, count: int, seed: int) -> Floats:
    """(R, S): means over ``count`` questions, drawn with replacement from ``values`` (Q, S)."""
    rng = np.random.default_rng([seed, count])
    equal = np.full(len(values), 1 / len(values))
    counts = rng.multinomial(count, equal, size=DRAWS)
    means: Floats = counts / count @ values
    return means


@dataclass(frozen=True)
class Units:
    """The units of one question that may be drawn, the same for all summaries."""

    sums: Floats
    """(U, S): summed distances of each unit."""
    sizes: Floats
    """(U,): token tasks of each unit, at least one."""

    @property
    def scores(self) -> Floats:
        """(S,)"""
        scores: Floats = self.sums.sum(axis=0) / self.sizes.sum()
        return scores


def answer_units(parts: Sequence[Parts]) -> Units:
    """The masked-out answers of one question that have words; ``parts`` has one entry per summary.

    Raises:
        ValueError: the summaries were not scored on the same words, or on none.
    """
    return _units([_by_answer(answers) for answers in parts])


def _by_answer(answers: Parts) -> list[list[float]]:
    return [list(chain.from_iterable(words)) for words in answers if words]


def word_units(parts: Sequence[Parts]) -> Units:
    """The masked words of one question; arguments and errors as :func:`answer_units`."""
    return _units([list(chain.from_iterable(answers)) for answers in parts])


def _units(distances: Sequence[Sequence[Sequence[float]]]) -> Units:
    """From the distances of each unit, by summary."""
    sizes = [list(map(len, units)) for units in distances]
    if not sizes or not sizes[0] or any(other != sizes[0] for other in sizes):
        raise ValueError("the summaries of a question need the distances of the same words, at least one")
    sums = np.array([list(map(math.fsum, units)) for units in distances])
    return Units(sums.T, np.array(sizes[0], dtype=np.float64))


def fewer_units(questions: Sequence[Units], counts: Sequence[int], seed: int) -> list[Step]:
    """Score each question on ``count`` random units (all, if it has fewer), drawn without replacement.

    The reference is the ranking by all units. A question's score is the flat mean over the token tasks of the
    units drawn: a ratio, slightly biased for few and unequal units.
    """
    rng = np.random.default_rng(seed)
    totals = np.zeros((len(counts), DRAWS, questions[0].sums.shape[1]))
    for units in questions:
        ranks = np.argsort(rng.random((DRAWS, len(units.sizes))), axis=1)
        for total, count in zip(totals, counts, strict=True):
            inside = (ranks < count).astype(np.float64)
            total += (inside @ units.sums) / (inside @ units.sizes)[:, None]
    reference = np.mean([units.scores for units in questions], axis=0)
    means = totals / len(questions)
    return [make_step(count, draws, reference) for count, draws in zip(counts, means, strict=True)]
