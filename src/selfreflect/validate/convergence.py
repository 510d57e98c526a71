"""Study ``convergence``: how many questions, conditioning answers, masked-out answers and masked words does a
ranking of strategies need?

Fewer questions, masked-out answers and masked words are drawn from existing scores. Fewer conditioning
answers change what the judge reads, so variants of the first items are scored.

Shapes: Q questions, S strategies, U units (answers or words) of one question, R random draws.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, combinations
from statistics import NormalDist, fmean, variance

import msgspec
import numpy as np

from selfreflect.errors import DataError, excerpt
from selfreflect.plots import Curve, Plot
from selfreflect.sources.files import listed
from selfreflect.sources.items import Item
from selfreflect.stats import FEWEST_TESTED, TIE, Floats, clustered_mean, mean_interval
from selfreflect.table import Approximate
from selfreflect.validate.base import MetricInfo, Parts, Value
from selfreflect.validate.study import Finding, Layout, Row, interval, summary_names, with_interval

MAIN = "selfreflect"
"""The metric whose values have parts."""
CONDITIONING = (1, 2, 5, 10)
"""Numbers of conditioning answers to try, besides all."""
RESCORED = 10
"""Items with variants: each variant costs as much as an item, the other axes cost nothing."""
ANSWERS = 10
"""Masked-out answers per question that the advice assumes: the published quick setting."""
DRAWS = 500
STABLE = 0.95
"""A ranking is stable if at least this share of draws gives it."""

Units = tuple[Floats, Floats]
"""Of the units of one question: the sums over their token tasks, (U, S), and how many these are, (U,)."""
Shares = Mapping[int, float | None]
"""By number of questions, answers or words, the share of draws that give the ranking by all of them; see
:func:`same_ranking`."""

_NEEDED = f"needed x {ANSWERS} answers"
_RANKING_NOTES = (
    f"share of {DRAWS} draws of this many questions, with replacement, that rank all strategies as all "
    "questions do; strategies with the same mean are not ranked",
    f"stable from: the number from which on that share is at least {STABLE:.0%}; a dash for fewer than "
    f"{FEWEST_TESTED} questions",
)
_PAIR_NOTES = (
    "difference: how much worse, paired over questions; intervals: 95% BCa bootstrap over questions",
    f"questions needed: ((1.96 + 0.84) sd / difference)^2, at least {FEWEST_TESTED}, for 80% power if the "
    f"difference is as large as observed; with the masked-out answers a question has, and with {ANSWERS}",
    "between questions: what more masked-out answers would leave of the sd of a question's difference",
)
_PAIR_FORMS = {"same order": ".0%", "questions needed": ".0f", _NEEDED: ".0f"}
_RANKING = Layout("Same ranking by number of questions", ".0%", _RANKING_NOTES, {"stable from": "d"})
_PAIRS = Layout(f"What separates two strategies ({MAIN})", ".4f", _PAIR_NOTES, _PAIR_FORMS)
_LESS_NOTES = (
    f"share of {DRAWS} draws that rank all strategies as all of the answers or words do",
    "masked-out answers and masked words are drawn from each question; of the conditioning answers the first "
    "ones are taken, and the rescored questions are drawn with replacement",
)
_LESS = Layout(f"Same ranking with less of each question ({MAIN})", ".0%", _LESS_NOTES)


class Convergence:
    """Rank the strategies (the names of summaries) from less than everything that was scored.

    Args:
        rescored: how many items get variants, from the first.

    Raises:
        DataError: fewer than two items hold all the summaries that any holds, or these are fewer than two.
    """

    name = "convergence"

    def __init__(self, items: Sequence[Item], seed: int = 0, rescored: int = RESCORED) -> None:
        self._seed = seed
        self._strategies = tuple(summary_names(items))
        self._complete = [item for item in items if len(item.summaries) == len(self._strategies)]
        if len(self._strategies) < 2 or len(self._complete) < 2:
            raise DataError(
                "convergence ranks strategies over questions: give it at least two items that all hold the "
                f"same summaries, at least two; {len(self._complete)} of {len(items)} hold all of "
                f"{listed(self._strategies) or 'none'}"
            )
        self._left_out = len(items) - len(self._complete)
        self._shorter: list[tuple[Item, Item]] = []
        """Items, and each with fewer conditioning answers."""
        for item in self._complete[:rescored]:
            for count in CONDITIONING:
                if count < len(item.conditioning):
                    name = f"{item.id} [{count} conditioning]"
                    answers = item.conditioning[:count]
                    self._shorter.append((item, msgspec.structs.replace(item, id=name, conditioning=answers)))

    @property
    def items(self) -> Sequence[Item]:
        """The items that hold all summaries, then their variants."""
        return [*self._complete, *(variant for _, variant in self._shorter)]

    def finding(self, values: Sequence[Value], metrics: Sequence[MetricInfo]) -> Finding:
        ids = [item.id for item in self._complete]
        every = [rank(values, metric, ids, self._strategies) for metric in metrics]
        rankings = [ranking for ranking in every if len(ranking.values) > 1]
        finding = Finding(self.name, _RANKING)
        finding.says.append(self._coverage(every))
        same = {ranking.metric.name: self._by_questions(ranking) for ranking in rankings}
        finding.add(_RANKING, *_ranking_rows(rankings, same))
        finding.plots.append(_ranking_plot(same))
        main = next((ranking for ranking in rankings if ranking.metric.name == MAIN), None)
        if main is None:
            finding.says.append(
                f"There is no advice: {MAIN} did not score every strategy on two questions or more."
            )
            return finding
        for (place, better), (other_place, worse) in combinations(enumerate(main.order), 2):
            row, advice = self._pair(main, better, worse)
            finding.add(_PAIRS, row)
            if other_place == place + 1:  # separating any two neighbours gives the whole ranking
                finding.says.append(advice)
        finding.says.append(_stability("questions", same[MAIN], len(main.values)))
        self._add_conditioning(finding, main, values)
        self._add_units(finding, main)
        return finding

    def _by_questions(self, ranking: Ranking) -> Shares:
        """The shares of draws with the ranking of all questions."""
        same: dict[int, float | None] = {}
        for count in counts_up_to(len(ranking.values)):
            draws = draw_questions(ranking.table, count, self._seed)
            same[count] = same_ranking(draws, ranking.table.mean(axis=0))
        return same

    def _pair(self, main: Ranking, better: int, worse: int) -> tuple[Row, str]:
        """What separates two strategies: a row, and how many questions do in words."""
        two = main.table[:, [better, worse]]
        differences = (two[:, 1] - two[:, 0]).tolist()
        difference = mean_interval(differences, len(differences), seed=self._seed)
        sd, between, within = spreads(differences, answer_differences(main, better, worse))
        needed = count = questions_needed(difference.mean, sd)
        unit = "questions"
        needed_with_answers = None
        if between is not None and within is not None:
            sd_with_answers = math.hypot(between, within / math.sqrt(ANSWERS))
            needed_with_answers = count = questions_needed(difference.mean, sd_with_answers)
            unit = f"questions x {ANSWERS} answers"
        row = {
            "better": main.strategies[better],
            "worse": main.strategies[worse],
            **interval("difference", difference),
            "sd of a question": sd,
            "between questions": between,
            "within, one answer": within,
            "same order": same_ranking(draw_questions(two, len(two), self._seed), two.mean(axis=0)),
            "questions needed": None if needed is None else Approximate(needed),
            _NEEDED: None if needed_with_answers is None else Approximate(needed_with_answers),
            "n": len(differences),
        }
        names = [excerpt(main.strategies[index]) for index in (better, worse)]
        if count is None:
            return row, f"{names[0]} and {names[1]} have the same mean score, which no questions separate."
        size = f"which differ by {with_interval(difference, '.4f')} on {difference.n} questions"
        if difference.n < FEWEST_TESTED:
            return row, f"Too few questions for advice on {names[0]} and {names[1]}, {size}."
        if difference.side_of(0) < 1:
            start = f"These questions do not separate {names[0]} from {names[1]}, {size}."
            return row, f"{start} About {count} {unit} would, if the difference is as large as observed."
        return row, f"With this judge, about {count} {unit} separate {names[0]} from {names[1]}, {size}."

    def _add_units(self, finding: Finding, main: Ranking) -> None:
        """Add what fewer masked-out answers and masked words would give, if the values have parts."""
        questions = [unit_sums(parts) for parts in main.parts.values()]
        if not questions:
            return
        answers, words = zip(*questions, strict=True)
        for of, units in (("masked-out answers", answers), ("masked words", words)):
            counts = counts_up_to(max(len(sizes) for _, sizes in units))
            reference = np.mean([sums.sum(axis=0) / sizes.sum() for sums, sizes in units], axis=0)
            draws = draw_units(units, counts, self._seed)
            shares = [same_ranking(of_count, reference) for of_count in draws]
            _add_less(finding, of, dict(zip(counts, shares, strict=True)), len(units))

    def _add_conditioning(self, finding: Finding, main: Ranking, values: Sequence[Value]) -> None:
        """Add what fewer conditioning answers give, against the ranking of the same items by all of them."""
        shorter = [item.id for _, item in self._shorter]
        rows = rank(values, main.metric, shorter, self._strategies).values
        by_count: dict[int, dict[str, list[float]]] = defaultdict(dict)
        for original, item in self._shorter:
            if item.id in rows and original.id in main.values:
                by_count[len(item.conditioning)][original.id] = rows[item.id]
        counts = sorted(count for count, by_question in by_count.items() if len(by_question) > 1)
        if not counts:
            return
        first = by_count[counts[0]]
        most = max(len(item.conditioning) for item in self._complete if item.id in first)
        by_count[most] = {question: main.values[question] for question in first}
        same: dict[int, float | None] = {}
        for count in (*counts, most):
            by_question = by_count[count]
            reference = np.mean([main.values[question] for question in by_question], axis=0)
            table = np.array(list(by_question.values()))
            same[count] = same_ranking(draw_questions(table, len(table), self._seed), reference)
        fewest = min(len(by_count[count]) for count in counts)
        _add_less(finding, "conditioning answers", same, fewest)

    def _coverage(self, rankings: Sequence[Ranking]) -> str:
        total = len(self._complete)
        names = listed(self._strategies)
        sentence = f"{total} questions with {len(self._strategies)} strategies each: {names}."
        if self._left_out:
            sentence += f" Items that do not hold all of them were left out: {self._left_out}."
        for ranking in rankings:
            if len(ranking.values) < total:
                sentence += f" {ranking.metric.name} has values for {len(ranking.values)} of them."
        return sentence


def _ranking_rows(rankings: Sequence[Ranking], same: Mapping[str, Shares]) -> Iterator[Row]:
    counts = sorted({*chain.from_iterable(same.values())})
    for ranking in rankings:
        shares = same[ranking.metric.name]
        yield {
            "metric": ranking.metric.name,
            **{str(count): shares.get(count) for count in counts},
            "stable from": stable_from(shares) if len(ranking.values) >= FEWEST_TESTED else None,
            "ranking, best first": " > ".join(ranking.strategies[index] for index in ranking.order),
        }


def _ranking_plot(same: Mapping[str, Shares]) -> Plot:
    curves = []
    for metric, shares in same.items():
        points = {float(count): share for count, share in shares.items() if share is not None}
        if points:
            curves.append(Curve(metric, tuple(points), tuple(points.values())))
    title = "Same ranking of all strategies"
    return Plot("convergence_ranking", title, "questions", "share of draws", tuple(curves))


def _add_less(finding: Finding, of: str, same: Shares, questions: int) -> None:
    """Add the shares of draws with the same ranking by number of ``of``, which rest on so many questions."""
    for count, share in same.items():
        finding.add(_LESS, {"number of": of, "count": count, "same ranking": share, "questions": questions})
    finding.says.append(_stability(of, same, questions))


def _stability(of: str, same: Shares, questions: int) -> str:
    """Say how many ``of`` give the same ranking, by shares that rest on so many questions."""
    stable = stable_from(same)
    most = max(same)
    verdict = f"stable from {stable} on"
    if questions < FEWEST_TESTED:
        verdict = "too few questions to tell"
    elif same[most] is None:
        verdict = "all strategies have the same mean score, so there is no ranking"
    elif stable is None:
        verdict = f"not stable even with {most}"
    elif stable == most:
        verdict = f"stable only with all {most}"
    return f"Ranking by number of {of} ({questions} questions): {verdict}."


@dataclass(frozen=True)
class Ranking:
    """The questions on which one metric scored every strategy."""

    metric: MetricInfo
    strategies: tuple[str, ...]
    values: dict[str, list[float]]
    """By question, for each strategy."""
    parts: Mapping[str, Sequence[Parts]]
    """By question, for each strategy, if its values have parts."""

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
    parts: dict[str, Sequence[Parts]] = {}
    for question in questions:
        own = [of_metric[question, name] for name in strategies if (question, name) in of_metric]
        row = [value.value for value in own if value.value is not None]
        if len(row) == len(strategies):
            rows[question] = row
            if all(value.parts for value in own):
                parts[question] = [value.parts for value in own]
    return Ranking(metric, strategies, rows, parts)


def same_ranking(means: Floats, reference: Floats) -> float | None:
    """Share of the rows of ``means`` (R, S) that order all strategies as ``reference`` (S,) does.

    Strategies that tie in the reference are not ranked; None if all do. A tie in a row is another order.
    """
    first, second = np.triu_indices(len(reference), 1)
    gaps = reference[first] - reference[second]
    differ = np.abs(gaps) > TIE
    if not differ.any():
        return None
    draw_gaps = (means[:, first] - means[:, second]) * np.sign(gaps)
    same = (draw_gaps[:, differ] > TIE).all(axis=1)
    return float(same.mean())


def stable_from(same: Shares) -> int | None:
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


def draw_questions(values: Floats, count: int, seed: int) -> Floats:
    """Means of the strategies over ``count`` questions drawn with replacement from ``values`` (Q, S); (R, S).

    With replacement, because the questions stand for all that might have been asked: even Q draws do not
    always give the ranking of these Q.
    """
    rng = np.random.default_rng([seed, count])
    equal = np.full(len(values), 1 / len(values))
    times = rng.multinomial(count, equal, size=DRAWS)
    means: Floats = times / count @ values
    return means


def unit_sums(parts: Sequence[Parts]) -> tuple[Units, Units]:
    """Sum the distances of a question's masked-out answers, and of its masked words; those without token
    tasks are left out.

    Args:
        parts: of each strategy, for the same words.
    """
    answers: list[tuple[Floats, int]] = []
    words: list[tuple[Floats, int]] = []
    for of_answer in zip(*parts, strict=True):
        own = [(np.array(of_word).sum(axis=1), len(of_word[0])) for of_word in zip(*of_answer, strict=True)]
        if own:
            sums, sizes = zip(*own, strict=True)
            answers.append((np.sum(sums, axis=0), sum(sizes)))
            words += own
    return _stacked(answers), _stacked(words)


def _stacked(units: Sequence[tuple[Floats, int]]) -> Units:
    return np.array([sums for sums, _ in units]), np.array([size for _, size in units], dtype=np.float64)


def draw_units(questions: Sequence[Units], counts: Sequence[int], seed: int) -> Floats:
    """Means over questions, each scored on so many random units (all, if it has fewer), drawn without
    replacement; (counts, R, S).

    A question's score is the flat mean over the token tasks of the units drawn: a ratio, slightly biased for
    few and unequal units.
    """
    rng = np.random.default_rng(seed)
    strategies = questions[0][0].shape[1]
    totals = np.zeros((len(counts), DRAWS, strategies))
    for sums, sizes in questions:
        ranks = np.argsort(rng.random((DRAWS, len(sizes))), axis=1)
        for total, count in zip(totals, counts, strict=True):
            inside = (ranks < count).astype(np.float64)
            total += (inside @ sums) / (inside @ sizes)[:, None]
    return totals / len(questions)


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
    for parts in ranking.parts.values():
        answers = []
        for own, other in zip(parts[better], parts[worse], strict=True):
            pairs = zip(chain.from_iterable(own), chain.from_iterable(other), strict=True)
            gaps = [second - first for first, second in pairs]
            if gaps:
                answers.append(gaps)
        by_question.append(answers)
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
