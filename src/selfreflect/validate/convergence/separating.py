"""Which strategies the scores at hand separate, and how many questions would separate the others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise

from selfreflect.errors import excerpt
from selfreflect.render.table import Approximate, Cell, Column, Table
from selfreflect.validate.base import Parts
from selfreflect.validate.convergence.power import FEWEST, Separation, separation
from selfreflect.validate.convergence.ranking import Scored
from selfreflect.validate.convergence.subsampling import fewer_questions

ANSWERS = 10
"""Masked-out answers that the advice speaks of: the published quick setting."""
_SIZE, _COUNT = ".4f", ".0f"
_SIZES = ("difference", "95% low", "95% high", "sd of a question", "between questions", "within, one answer")


@dataclass(frozen=True)
class StrategyPair:
    better: str
    worse: str
    adjacent: bool
    """In the ranking."""
    found: Separation
    kept: float | None
    """Share of draws of as many questions with replacement that order the two alike."""


def pairs(main: Scored, seed: int) -> list[StrategyPair]:
    """All pairs of strategies, in the order of the ranking, by a metric of which lower values are better."""
    neighbours = set(pairwise(main.ranking))
    made = []
    for better, worse in combinations(main.ranking, 2):
        differences = main.values[:, worse] - main.values[:, better]
        by_answer = [answer_differences(parts[better], parts[worse]) for parts in main.parts.values()]
        found = separation(differences.tolist(), by_answer, seed=seed)
        step = fewer_questions(main.values[:, [better, worse]], [len(main.questions)], seed)[0]
        made.append(
            StrategyPair(
                main.strategies[better],
                main.strategies[worse],
                (better, worse) in neighbours,
                found,
                step.same,
            )
        )
    return made


def answer_differences(better: Parts, worse: Parts) -> list[list[float]]:
    """The differences of all token tasks, by masked-out answer.

    Raises:
        ValueError: the two were not scored on the same words.
    """
    return [
        [b - a for word, other in zip(words, others, strict=True) for a, b in zip(word, other, strict=True)]
        for words, others in zip(better, worse, strict=True)
    ]


def pair_table(main: Scored, made: Sequence[StrategyPair]) -> Table:
    columns = (
        Column("better"),
        Column("worse"),
        *(Column(name, _SIZE) for name in _SIZES),
        Column("same order", ".0%"),
        Column("questions needed", _COUNT),
        Column(f"needed x {ANSWERS} answers", _COUNT),
        Column("n", "d"),
    )
    rows: list[tuple[Cell, ...]] = []
    for pair in made:
        found, estimate = pair.found, pair.found.difference
        needed = [
            None if count is None else Approximate(count)
            for count in (found.questions(), found.questions(ANSWERS))
        ]
        sizes = (estimate.mean, estimate.low, estimate.high, found.spread, found.between, found.within)
        rows.append((pair.better, pair.worse, *sizes, pair.kept, *needed, estimate.n))
    notes = (
        "difference: how much worse, paired over questions; intervals: 95% BCa bootstrap over questions",
        f"questions needed: ((1.96 + 0.84) sd / difference)^2, at least {FEWEST}: the 95% interval then excludes 0 with 80% power, if the "
        f"difference is as large as observed; with the answers at hand, and for {ANSWERS} masked-out ones by the spread between these",
        "sd of a question: of its difference, with the answers at hand; between questions: what more masked-out answers would leave of it",
        "answers are masked-out ones, and the conditioning ones stay as they are; not adjusted for several pairs",
    )
    return Table(f"What separates two strategies ({main.metric.name})", columns, tuple(rows), notes)


def advice(main: Scored, made: Sequence[StrategyPair]) -> str:
    """One sentence for each pair of neighbours in the ranking: whoever separates these has the ranking."""
    at_hand = max((len(answers) for parts in main.parts.values() for answers in parts), default=0)
    return " ".join(_sentence(pair, len(main.questions), at_hand) for pair in made if pair.adjacent)


def _sentence(pair: StrategyPair, n: int, at_hand: int) -> str:
    """``at_hand``: masked-out answers that a question has, at most; 0 where that is unknown."""
    better, worse, estimate = excerpt(pair.better), excerpt(pair.worse), pair.found.difference
    answers = None if pair.found.sd(ANSWERS) is None else ANSWERS
    needed = pair.found.questions(answers)
    if needed is None or estimate.mean is None or estimate.low is None or estimate.high is None:
        return f"{better} and {worse} have the same mean score: no number of questions is known to separate them."
    budget = f"{needed} questions" + ("" if answers is None else f" x {answers} answers")
    size = f"{estimate.mean:.4f} [{estimate.low:.4f}, {estimate.high:.4f}]"
    if n < FEWEST:
        return f"{n} questions are too few for advice on {better} and {worse}, which differ by {size}."
    if estimate.low <= 0:
        return (
            f"The {n} questions at hand do not separate {better} from {worse}: they differ by {size}. If the difference is as large as "
            f"observed, it needs about {budget}; if it is smaller, more."
        )
    fewest, most = (pair.found.questions(answers, end) for end in (estimate.high, estimate.low))
    over = "" if fewest == most else f" ({fewest} to {most} questions over that interval)"
    have = str(n) if answers is None else f"{n} x {at_hand}"
    return f"With this judge, about {budget} separate {better} from {worse}, which differ by {size}{over}; you have {have}."
