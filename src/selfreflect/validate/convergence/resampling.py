"""Rankings of strategies, what they would have been with fewer questions, masked-out answers or masked words,
and how many questions separate two strategies.

Everything is drawn from existing scores; nothing is scored. Shapes: Q questions, S summaries (strategies), U
units of one question (answers or words), R random draws.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, combinations
from statistics import NormalDist, fmean, variance

import numpy as np

from selfreflect.errors import excerpt
from selfreflect.render.table import Approximate, Cell, Table
from selfreflect.stats import Estimate, Floats, clustered_mean, mean_interval
from selfreflect.validate.base import MetricInfo, Parts, Value
from selfreflect.validate.study import interval, make_table, with_interval
from selfreflect.validate.worsening import FEWEST

CONFIDENCE, POWER = 0.95, 0.8
ANSWERS = 10
"""Masked-out answers per question that the advice assumes: the published quick setting."""
_NEEDED = f"needed x {ANSWERS} answers"
_NOTES = (
    "difference: how much worse, paired over questions; intervals: 95% BCa bootstrap over questions",
    f"questions needed: ((1.96 + 0.84) sd / difference)^2, at least {FEWEST}: the 95% interval then "
    "excludes 0 with 80% power, if the difference is as large as observed; with the answers each question "
    f"has, and for {ANSWERS} masked-out ones by the spread between these",
    "sd of a question: of its difference, with the answers it has; between questions: what more masked-out "
    "answers would leave of it",
    "answers are masked-out ones, and the conditioning ones stay as they are; not adjusted for several pairs",
)
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


@dataclass(frozen=True)
class Separation:
    """How two summaries differ, question by question."""

    difference: Estimate
    """Mean over questions."""
    spread: float | None
    """Standard deviation of the difference between questions, with the answers they have. None for fewer than
    two questions."""
    between: float | None
    """The same with endlessly many masked-out answers per question; None if parts are unknown."""
    within: float | None
    """Standard deviation of a question's difference from one single answer."""

    def sd(self, answers: int | None = None) -> float | None:
        """Standard deviation of one question's difference with ``answers`` masked-out answers; by default
        with those it has. None if unknown."""
        if answers is None:
            return self.spread
        if self.between is None or self.within is None:
            return None
        return math.hypot(self.between, self.within / math.sqrt(answers))

    def questions(self, answers: int | None = None, difference: float | None = None) -> int | None:
        """Questions that separate the two, see :func:`questions_needed`; by default for the observed
        difference. ``answers`` as in :meth:`sd`."""
        size = self.difference.mean if difference is None else difference
        sd = self.sd(answers)
        return None if size is None or sd is None else questions_needed(size, sd)


def questions_needed(difference: float, sd: float) -> int | None:
    """Paired questions with which the 95% interval of their mean difference excludes 0 with 80% power:
    ((z_.975 + z_.8) sd / |d|)^2.

    The normal approximation of a paired test (Cohen, Statistical Power Analysis, 2nd ed. 1988, chapter 2), at
    least ``FEWEST``. None if there is no difference to find.
    """
    if not difference:
        return None
    normal = NormalDist()
    z = normal.inv_cdf((1 + CONFIDENCE) / 2) + normal.inv_cdf(POWER)
    count = (z * sd / difference) ** 2
    return max(FEWEST, math.ceil(count)) if math.isfinite(count) else None


def separate(
    differences: Sequence[float], by_answer: Sequence[Sequence[Sequence[float]]] = (), *, seed: int = 0
) -> Separation:
    """Estimate how two summaries differ, from the difference of each question and, if known, the differences
    of each token task by question and masked-out answer.

    The variance between questions is the observed one less the mean squared standard error of a question's
    difference (a ratio with answers as clusters, see :func:`selfreflect.stats.clustered_mean`), at least 0. A
    question with one answer says nothing about that error and is left out of its mean.
    """
    difference = mean_interval(differences, len(differences), confidence=CONFIDENCE, seed=seed)
    if len(differences) < 2:
        return Separation(difference, None, None, None)
    observed = variance(differences)
    noise = []
    single = []
    for answers in by_answer:
        _, error = clustered_mean(answers)
        if error is not None:
            noise.append(error**2)
            single.append(error**2 * sum(1 for answer in answers if answer))
    if not noise:
        return Separation(difference, math.sqrt(observed), None, None)
    between = math.sqrt(max(0.0, observed - fmean(noise)))
    return Separation(difference, math.sqrt(observed), between, math.sqrt(fmean(single)))


@dataclass(frozen=True)
class StrategyPair:
    better: str
    worse: str
    separation: Separation
    same_order: float | None
    """Share of draws of as many questions, with replacement, that order the two alike."""
    adjacent: bool
    """In the ranking."""


def strategy_pairs(ranking: Ranking, seed: int) -> list[StrategyPair]:
    """All pairs of strategies in the order of the ranking, for a metric of which lower values are better."""
    pairs = []
    for (place, better), (other_place, worse) in combinations(enumerate(ranking.order), 2):
        differences = ranking.values[:, worse] - ranking.values[:, better]
        by_answer = [answer_differences(parts[better], parts[worse]) for parts in ranking.parts.values()]
        [step] = fewer_questions(ranking.values[:, [better, worse]], [len(ranking.questions)], seed)
        pair = StrategyPair(
            ranking.strategies[better],
            ranking.strategies[worse],
            separate(differences.tolist(), by_answer, seed=seed),
            step.same,
            adjacent=other_place == place + 1,
        )
        pairs.append(pair)
    return pairs


def answer_differences(better: Parts, worse: Parts) -> list[list[float]]:
    """The differences of all token tasks, by masked-out answer.

    Raises:
        ValueError: the two were not scored on the same words.
    """
    by_answer = []
    for words, other_words in zip(better, worse, strict=True):
        differences: list[float] = []
        for word, other_word in zip(words, other_words, strict=True):
            differences += [b - a for a, b in zip(word, other_word, strict=True)]
        by_answer.append(differences)
    return by_answer


def pair_table(pairs: Sequence[StrategyPair], metric: str) -> Table:
    rows: list[dict[str, Cell]] = []
    for pair in pairs:
        apart = pair.separation
        row: dict[str, Cell] = {
            "better": pair.better,
            "worse": pair.worse,
            **interval("difference", apart.difference),
            "sd of a question": apart.spread,
            "between questions": apart.between,
            "within, one answer": apart.within,
            "same order": pair.same_order,
            "questions needed": _approximate(apart.questions()),
            _NEEDED: _approximate(apart.questions(ANSWERS)),
            "n": apart.difference.n,
        }
        rows.append(row)
    forms = {"same order": ".0%", "questions needed": ".0f", _NEEDED: ".0f"}
    return make_table(f"What separates two strategies ({metric})", rows, ".4f", _NOTES, forms)


def _approximate(count: int | None) -> Approximate | None:
    return None if count is None else Approximate(count)


def advise(pair: StrategyPair, questions: int, answers: int) -> str:
    """Say in one sentence how many questions separate the two.

    Args:
        questions: how many were scored.
        answers: the most masked-out answers that a question has.
    """
    better, worse = excerpt(pair.better), excerpt(pair.worse)
    found, difference = pair.separation, pair.separation.difference
    assumed, unit, have = None, "questions", str(questions)
    if found.within is not None:
        assumed, unit, have = ANSWERS, f"questions x {ANSWERS} answers", f"{questions} x {answers}"
    count = found.questions(assumed)
    if count is None or difference.low is None or difference.high is None:
        return f"{better} and {worse} have the same mean score: no number of questions separates them."
    size = with_interval(difference, ".4f")
    if questions < FEWEST:
        return (
            f"{questions} questions are too few for advice on {better} and {worse}, which differ by {size}."
        )
    if difference.low <= 0:
        return (
            f"Your {questions} questions do not separate {better} from {worse}, which differ by {size}. "
            f"About {count} {unit} would, if the difference is as large as observed; more, if it is smaller."
        )
    fewest, most = found.questions(assumed, difference.high), found.questions(assumed, difference.low)
    return (
        f"With this judge, about {count} {unit} separate {better} from {worse}, which differ by {size} "
        f"({fewest} to {most} questions over that interval); you have {have}."
    )
