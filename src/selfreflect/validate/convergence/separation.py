"""What separates two strategies, and how many questions would: the pairs of a ranking, their table, and the
advice."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import NormalDist, fmean, variance

from selfreflect.errors import excerpt
from selfreflect.render.table import Approximate, Cell, Table
from selfreflect.stats import Estimate, clustered_mean, mean_interval
from selfreflect.validate.base import Parts
from selfreflect.validate.convergence.resampling import Ranking, fewer_questions
from selfreflect.validate.study import interval, make_table, with_interval
from selfreflect.validate.worsening import FEWEST

CONFIDENCE, POWER = 0.95, 0.8
ANSWERS = 10
"""Masked-out answers per question that the advice assumes: the published quick setting."""
_NEEDED = f"needed x {ANSWERS} answers"
_NOTES = (
    "difference: how much worse, paired over questions; intervals: 95% BCa bootstrap over questions",
    f"questions needed: ((1.96 + 0.84) sd / difference)^2, at least {FEWEST}: the 95% interval then excludes 0 "
    "with 80% power, if the difference is as large as observed; with the answers each question has, and for "
    f"{ANSWERS} masked-out ones by the spread between these",
    "sd of a question: of its difference, with the answers it has; between questions: what more masked-out "
    "answers would leave of it",
    "answers are masked-out ones, and the conditioning ones stay as they are; not adjusted for several pairs",
)


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
        return f"{better} and {worse} have the same mean score: no number of questions is known to separate them."
    size = with_interval(difference, ".4f")
    if questions < FEWEST:
        return (
            f"{questions} questions are too few for advice on {better} and {worse}, which differ by {size}."
        )
    if difference.low <= 0:
        return (
            f"Your {questions} questions do not separate {better} from {worse}, which differ by {size}. About "
            f"{count} {unit} would, if the difference is as large as observed; more, if it is smaller."
        )
    fewest, most = found.questions(assumed, difference.high), found.questions(assumed, difference.low)
    return (
        f"With this judge, about {count} {unit} separate {better} from {worse}, which differ by {size} ({fewest} "
        f"to {most} questions over that interval); you have {have}."
    )
