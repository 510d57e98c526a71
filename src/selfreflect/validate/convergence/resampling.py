"""What a ranking of strategies would be with fewer questions, masked-out answers or masked words, and how
many questions separate two strategies.

Everything is drawn from existing scores. Shapes: Q questions, S strategies, T token tasks and U units
(answers or words) of one question, R random draws.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from statistics import NormalDist, fmean, variance

import numpy as np

from selfreflect.stats import FEWEST_TESTED, Floats, clustered_mean
from selfreflect.validate.base import MetricInfo, Parts, Value
from selfreflect.validate.statistics import Indices

DRAWS = 500
STABLE = 0.95
"""A ranking is stable if at least this share of draws gives it."""
_TIE = 1e-12
"""Means closer than this differ by rounding alone."""


@dataclass(frozen=True)
class Tasks:
    """The token tasks of one question, the same for all strategies."""

    distances: Floats
    """(T, S)"""
    answers: Indices
    """(T,): the masked-out answer of each task."""
    words: Indices
    """(T,): the masked word of each task."""

    @classmethod
    def of(cls, parts: Sequence[Parts]) -> Tasks:
        """Flatten the parts of the question's values, one entry per strategy."""
        answers: list[int] = []
        words: list[int] = []
        word = 0
        for answer, of_answer in enumerate(parts[0]):
            for distances in of_answer:
                answers += [answer] * len(distances)
                words += [word] * len(distances)
                word += 1
        columns = [list(chain.from_iterable(chain.from_iterable(one))) for one in parts]
        return cls(np.array(columns).T, np.array(answers), np.array(words))


@dataclass(frozen=True)
class Ranking:
    """The questions on which one metric scored every strategy."""

    metric: MetricInfo
    strategies: tuple[str, ...]
    values: dict[str, list[float]]
    """By question, for each strategy."""
    tasks: Mapping[str, Tasks]
    """By question, if its values have parts."""

    @property
    def table(self) -> Floats:
        """The values, (Q, S)."""
        return np.array(list(self.values.values()), dtype=np.float64)

    @property
    def order(self) -> list[int]:
        """Indices of the strategies, the best first."""
        badness = list(map(self.metric.badness, self.table.mean(axis=0)))
        return sorted(range(len(badness)), key=badness.__getitem__)


def rank(
    values: Sequence[Value], metric: MetricInfo, questions: Sequence[str], strategies: tuple[str, ...]
) -> Ranking:
    """Keep the questions for which ``metric`` has a value of every strategy."""
    of_metric = {(value.item, value.summary): value for value in values if value.metric == metric.name}
    rows: dict[str, list[float]] = {}
    tasks: dict[str, Tasks] = {}
    for question in questions:
        own = [of_metric[question, name] for name in strategies if (question, name) in of_metric]
        row = [value.value for value in own if value.value is not None]
        if len(row) == len(strategies):
            rows[question] = row
            if all(value.parts for value in own):
                tasks[question] = Tasks.of([value.parts for value in own])
    return Ranking(metric, strategies, rows, tasks)


@dataclass(frozen=True)
class Step:
    """Scores from ``count`` questions, answers or words."""

    count: int
    draws: Floats
    """(R, S): means over questions."""
    reference: Floats
    """(S,): the scores to compare the ranking with."""

    @property
    def same(self) -> float | None:
        """Share of draws that give the reference ranking, see :func:`same_ranking`."""
        return same_ranking(self.draws, self.reference)


def same_ranking(means: Floats, reference: Floats) -> float | None:
    """Share of the rows of ``means`` (R, S) that order all strategies as ``reference`` (S,) does.

    Strategies that tie in the reference are not ranked; None if all do. A tie in a row is another order.
    """
    first, second = np.triu_indices(len(reference), 1)
    gaps = reference[first] - reference[second]
    differ = np.abs(gaps) > _TIE
    if not differ.any():
        return None
    draw_gaps = (means[:, first] - means[:, second]) * np.sign(gaps)
    same = (draw_gaps[:, differ] > _TIE).all(axis=1)
    return float(same.mean())


def stable_from(same: Mapping[int, float | None]) -> int | None:
    """The smallest count from which on the ranking is stable; None if it is not, even at the largest."""
    stable = None
    for count in sorted(same, reverse=True):
        share = same[count]
        if share is None or share < STABLE:
            break
        stable = count
    return stable


def counts_up_to(most: int) -> list[int]:
    """1, 2, 5, 10, 20, 50, … below ``most``, then ``most``."""
    counts: list[int] = []
    power = 1
    while power < most:
        counts += [count for count in (power, 2 * power, 5 * power) if count < most]
        power *= 10
    return [*counts, most]


def fewer_questions(values: Floats, count: int, seed: int, reference: Floats | None = None) -> Step:
    """Score on ``count`` questions, drawn with replacement from ``values`` (Q, S).

    With replacement, because the questions stand for all that might have been asked: even Q draws do not
    always give the ranking of these Q, which is the reference by default.
    """
    rng = np.random.default_rng([seed, count])
    equal = np.full(len(values), 1 / len(values))
    times = rng.multinomial(count, equal, size=DRAWS)
    return Step(count, times / count @ values, values.mean(axis=0) if reference is None else reference)


def fewer_units(questions: Sequence[tuple[Floats, Indices]], counts: Sequence[int], seed: int) -> list[Step]:
    """Score each question on ``count`` random units (all, if it has fewer), drawn without replacement.

    The reference is the ranking by all units. A question's score is the flat mean over the token tasks of the
    units drawn: a ratio, slightly biased for few and unequal units.

    Args:
        questions: distances (T, S), and the unit of each token task (T,).
    """
    rng = np.random.default_rng(seed)
    strategies = questions[0][0].shape[1]
    totals = np.zeros((len(counts), DRAWS, strategies))
    for distances, keys in questions:
        _, unit_of, sizes = np.unique(keys, return_inverse=True, return_counts=True)
        sums = np.zeros((len(sizes), strategies))
        np.add.at(sums, unit_of, distances)
        ranks = np.argsort(rng.random((DRAWS, len(sizes))), axis=1)
        for total, count in zip(totals, counts, strict=True):
            inside = (ranks < count).astype(np.float64)
            total += (inside @ sums) / (inside @ sizes)[:, None]
    reference = np.mean([distances.mean(axis=0) for distances, _ in questions], axis=0)
    draws = totals / len(questions)
    return [Step(count, of_count, reference) for count, of_count in zip(counts, draws, strict=True)]


def questions_needed(difference: float | None, sd: float | None) -> int | None:
    """Paired questions with which the 95% interval of their mean difference excludes 0 with 80% power:
    ((z_.975 + z_.8) sd / |d|)^2.

    The normal approximation of a paired test (Cohen, Statistical Power Analysis, 2nd ed. 1988, chapter 2), at
    least ``FEWEST_TESTED``. None if there is no difference to find.
    """
    if not difference or sd is None:
        return None
    z = NormalDist().inv_cdf(0.975) + NormalDist().inv_cdf(0.8)
    count = (z * sd / difference) ** 2
    return max(FEWEST_TESTED, math.ceil(count)) if math.isfinite(count) else None


def answer_differences(ranking: Ranking, better: int, worse: int) -> list[list[list[float]]]:
    """For each question and masked-out answer the differences of its token tasks between two strategies."""
    by_question = []
    for tasks in ranking.tasks.values():
        gaps = tasks.distances[:, worse] - tasks.distances[:, better]
        by_question.append([gaps[tasks.answers == answer].tolist() for answer in np.unique(tasks.answers)])
    return by_question


def spreads(
    differences: Sequence[float], by_answer: Sequence[Sequence[Sequence[float]]]
) -> tuple[float | None, float | None, float | None]:
    """Standard deviations of a question's difference: with the answers it has, with endlessly many masked-out
    answers, and from one single answer. The first is None for one question, the others without token tasks.

    The variance with endlessly many is the observed one less the mean squared standard error of a question's
    difference (a ratio with answers as clusters, see :func:`selfreflect.stats.clustered_mean`), at least 0. A
    question with one answer says nothing about that error and is left out of its mean.

    Args:
        by_answer: see :func:`answer_differences`.
    """
    if len(differences) < 2:
        return None, None, None
    observed = variance(differences)
    noise = []
    single = []
    for answers in by_answer:
        _, error = clustered_mean(answers)
        if error is not None:
            noise.append(error**2)
            single.append(error**2 * len(answers))
    if not noise:
        return math.sqrt(observed), None, None
    return math.sqrt(observed), math.sqrt(max(0.0, observed - fmean(noise))), math.sqrt(fmean(single))
