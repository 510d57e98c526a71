"""Study ``convergence``: how many questions, conditioning answers, masked-out answers and masked words does a
ranking of strategies need?

Fewer questions, masked-out answers and masked words are drawn from existing scores. Fewer conditioning
answers, or another order of them, change what the judge reads, so variants of the first items are scored.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from statistics import fmean

import msgspec
import numpy as np

from selfreflect.errors import DataError, excerpt
from selfreflect.render.plots import Curve, Plot
from selfreflect.render.table import Approximate, Cell, Table
from selfreflect.sources.files import listed
from selfreflect.sources.items import Item
from selfreflect.stats import FEWEST_TESTED, mean_interval
from selfreflect.validate.base import MetricInfo, Value
from selfreflect.validate.convergence.resampling import (
    DRAWS,
    STABLE,
    Ranking,
    Step,
    answer_differences,
    counts_up_to,
    fewer_questions,
    fewer_units,
    questions_needed,
    rank,
    spreads,
    stable_from,
)
from selfreflect.validate.study import (
    Finding,
    interval,
    make_table,
    with_interval,
)

MAIN = "selfreflect"
"""The metric whose values have parts."""
CONDITIONING = (1, 2, 5, 10)
"""Numbers of conditioning answers to try, besides all."""
SHUFFLES = 2
"""Other orders of the conditioning answers to try."""
RESCORED = 10
"""Items with variants: each variant costs as much as an item, the other axes cost nothing."""
ANSWERS = 10
"""Masked-out answers per question that the advice assumes: the published quick setting."""
_TRIES = 20
"""Orders drawn at most: few answers have few."""

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
_RESAMPLED = "questions drawn with replacement"
_SUBSAMPLED = "drawn without replacement from each question; compared with the ranking by all of them"
_TRUNCATED = "the first ones, rescored questions drawn with replacement; compared with the ranking by all"


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
        self._strategies = tuple(dict.fromkeys(name for item in items for name in item.summaries))
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
        self._shuffled: list[tuple[Item, Item]] = []
        """Items, and each with its conditioning answers in another order."""
        for item in self._complete[:rescored]:
            for count in CONDITIONING:
                if count < len(item.conditioning):
                    shorter = _variant(item, f"{count} conditioning", item.conditioning[:count])
                    self._shorter.append((item, shorter))
            for number, order in enumerate(_other_orders(item, seed), 1):
                self._shuffled.append((item, _variant(item, f"conditioning order {number}", order)))

    @property
    def items(self) -> Sequence[Item]:
        """The items that hold all summaries, then their variants."""
        return [*self._complete, *(variant for _, variant in self._shorter + self._shuffled)]

    def finding(self, values: Sequence[Value], metrics: Sequence[MetricInfo]) -> Finding:
        ids = [item.id for item in self._complete]
        every = [rank(values, metric, ids, self._strategies) for metric in metrics]
        says = [self._coverage(every)]
        rankings = [ranking for ranking in every if len(ranking.values) > 1]
        steps: dict[str, list[Step]] = {}
        for ranking in rankings:
            counts = counts_up_to(len(ranking.values))
            steps[ranking.metric.name] = [
                fewer_questions(ranking.table, count, self._seed) for count in counts
            ]
        tables = [_ranking_table(rankings, steps)]
        plots = [_ranking_plot(steps)]
        main = next((ranking for ranking in rankings if ranking.metric.name == MAIN), None)
        if main is None:
            says.append(f"There is no advice: {MAIN} did not score every strategy on two questions or more.")
        else:
            pairs: list[dict[str, Cell]] = []
            for (place, better), (other_place, worse) in combinations(enumerate(main.order), 2):
                row, advice = self._pair(main, better, worse)
                pairs.append(row)
                if other_place == place + 1:  # separating any two neighbours gives the whole ranking
                    says.append(advice)
            title = f"What separates two strategies ({MAIN})"
            forms = {"same order": ".0%", "questions needed": ".0f", _NEEDED: ".0f"}
            tables.append(make_table(title, pairs, ".4f", _PAIR_NOTES, forms))
            for axis in (
                _Axis("questions", steps[MAIN], _RESAMPLED, len(main.values)),
                *self._axes(main, values),
            ):
                tables.append(axis.table(main))
                plots.append(axis.plot(main))
                says.append(axis.sentence())
        if self._shuffled:
            tables.append(self._order_table(every, values))
        return Finding(self.name, tuple(tables), tuple(says), tuple(plots))

    def _pair(self, main: Ranking, better: int, worse: int) -> tuple[dict[str, Cell], str]:
        """What separates two strategies: a row, and how many questions do in words."""
        values = main.table
        differences = (values[:, worse] - values[:, better]).tolist()
        difference = mean_interval(differences, len(differences), seed=self._seed)
        sd, between, within = spreads(differences, answer_differences(main, better, worse))
        unit, count = "questions", questions_needed(difference.mean, sd)
        row: dict[str, Cell] = {
            "better": main.strategies[better],
            "worse": main.strategies[worse],
            **interval("difference", difference),
            "sd of a question": sd,
            "between questions": between,
            "within, one answer": within,
            "same order": fewer_questions(values[:, [better, worse]], len(values), self._seed).same,
            "questions needed": None if count is None else Approximate(count),
            _NEEDED: None,
            "n": len(differences),
        }
        if between is not None and within is not None:
            sd_with_answers = math.hypot(between, within / math.sqrt(ANSWERS))
            unit, count = f"questions x {ANSWERS} answers", questions_needed(difference.mean, sd_with_answers)
            row[_NEEDED] = None if count is None else Approximate(count)
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

    def _axes(self, main: Ranking, values: Sequence[Value]) -> Iterator[_Axis]:
        steps, questions = self._fewer_conditioning(main, values)
        if steps:
            yield _Axis("conditioning answers", steps, _TRUNCATED, questions)
        if main.tasks:
            answers = [(tasks.distances, tasks.answers) for tasks in main.tasks.values()]
            words = [(tasks.distances, tasks.words) for tasks in main.tasks.values()]
            for of, units in (("masked-out answers", answers), ("masked words", words)):
                most = max(len(np.unique(keys)) for _, keys in units)
                yield _Axis(of, fewer_units(units, counts_up_to(most), self._seed), _SUBSAMPLED, len(units))

    def _fewer_conditioning(self, main: Ranking, values: Sequence[Value]) -> tuple[list[Step], int]:
        """Steps by number of conditioning answers, each against the ranking of the same items by all of them,
        and the smallest number of items behind a step."""
        shorter = [item.id for _, item in self._shorter]
        rows = rank(values, main.metric, shorter, self._strategies).values
        by_count: dict[int, dict[str, list[float]]] = {}
        for original, item in self._shorter:
            if item.id in rows and original.id in main.values:
                by_count.setdefault(len(item.conditioning), {})[original.id] = rows[item.id]
        counts = sorted(count for count, by_question in by_count.items() if len(by_question) > 1)
        if not counts:
            return [], 0
        first = by_count[counts[0]]
        most = max(len(item.conditioning) for item in self._complete if item.id in first)
        by_count[most] = {question: main.values[question] for question in first}
        steps = []
        for count in (*counts, most):
            by_question = by_count[count]
            reference = np.mean([main.values[question] for question in by_question], axis=0)
            table = np.array(list(by_question.values()))
            step = fewer_questions(table, len(table), self._seed, reference)
            steps.append(replace(step, count=count))
        return steps, min(len(by_count[count]) for count in counts)

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

    def _order_table(self, rankings: Sequence[Ranking], values: Sequence[Value]) -> Table:
        """How much a value changes when the conditioning answers come in another order."""
        shuffled = [item.id for _, item in self._shuffled]
        first, second = np.triu_indices(len(self._strategies), 1)
        rows: list[dict[str, Cell]] = []
        for ranking in rankings:
            other_values = rank(values, ranking.metric, shuffled, self._strategies).values
            changes: list[float] = []
            flips: list[bool] = []
            for original, item in self._shuffled:
                if original.id in ranking.values and item.id in other_values:
                    before, after = np.array([ranking.values[original.id], other_values[item.id]])
                    changes += np.abs(after - before).tolist()
                    orders = np.sign(before[first] - before[second]), np.sign(after[first] - after[second])
                    flips += (orders[0] != orders[1]).tolist()
            if changes:
                row: dict[str, Cell] = {
                    "metric": ranking.metric.name,
                    "answers in another order": "conditioning",
                    "mean change": fmean(changes),
                    "largest change": max(changes),
                    "order changed": fmean(flips),
                    "n": len(changes),
                }
                rows.append(row)
        questions = {original.id for original, _ in self._shuffled}
        more = len(self._shorter) + len(self._shuffled)
        notes = (
            "changes: absolute, of one value; order changed: share of pairs of summaries that change places",
            "other orders and fewer conditioning answers were scored on the first "
            f"{len(questions)} questions only ({more} more items)",
        )
        title = "The same answers in another order"
        return make_table(title, rows, ".2g", notes, {"order changed": ".0%"})


def _variant(item: Item, change: str, conditioning: tuple[str, ...]) -> Item:
    return msgspec.structs.replace(item, id=f"{item.id} [{change}]", conditioning=conditioning)


def _other_orders(item: Item, seed: int) -> list[tuple[str, ...]]:
    """The conditioning answers in up to ``SHUFFLES`` other orders, drawn at random; fewer if fewer exist."""
    rng = np.random.default_rng([seed, *item.id.encode("utf-8", "surrogatepass")])
    orders = [item.conditioning]
    for _ in range(_TRIES):
        order = tuple(item.conditioning[index] for index in rng.permutation(len(item.conditioning)))
        if order not in orders:
            orders.append(order)
        if len(orders) > SHUFFLES:
            break
    return orders[1:]


def _ranking_table(rankings: Sequence[Ranking], steps: Mapping[str, Sequence[Step]]) -> Table:
    counts = sorted({step.count for of_metric in steps.values() for step in of_metric})
    rows: list[dict[str, Cell]] = []
    for ranking in rankings:
        same = {step.count: step.same for step in steps[ranking.metric.name]}
        row: dict[str, Cell] = {"metric": ranking.metric.name}
        row |= {str(count): same.get(count) for count in counts}
        row["stable from"] = stable_from(same) if len(ranking.values) >= FEWEST_TESTED else None
        row["ranking, best first"] = " > ".join(ranking.strategies[index] for index in ranking.order)
        rows.append(row)
    title = "Same ranking by number of questions"
    return make_table(title, rows, ".0%", _RANKING_NOTES, {"stable from": "d"})


def _ranking_plot(steps: Mapping[str, Sequence[Step]]) -> Plot:
    curves = []
    for metric, of_metric in steps.items():
        points = [(float(step.count), step.same) for step in of_metric if step.same is not None]
        if points:
            x, y = zip(*points, strict=True)
            curves.append(Curve(metric, x, y))
    title = "Same ranking of all strategies"
    return Plot("convergence_ranking", title, "questions", "share of draws", tuple(curves))


@dataclass(frozen=True)
class _Axis:
    """Scores of the main metric by the number of questions, answers or words."""

    of: str
    steps: Sequence[Step]
    method: str
    questions: int

    def table(self, ranking: Ranking) -> Table:
        rows: list[dict[str, Cell]] = []
        for step in self.steps:
            means, sds = step.draws.mean(axis=0), step.draws.std(axis=0, ddof=1)
            for index in ranking.order:
                row: dict[str, Cell] = {
                    self.of: step.count,
                    "strategy": ranking.strategies[index],
                    "mean score": float(means[index]),
                    "sd": float(sds[index]),
                    "same ranking": step.same,
                }
                rows.append(row)
        note = f"{self.method}; mean, sd and same ranking: over {DRAWS} draws"
        return make_table(f"{MAIN} by number of {self.of}", rows, ".4f", (note,), {"same ranking": ".0%"})

    def plot(self, ranking: Ranking) -> Plot:
        x = tuple(float(step.count) for step in self.steps)
        draws = np.array([step.draws for step in self.steps])
        means, sds = draws.mean(axis=1), draws.std(axis=1, ddof=1)
        curves = []
        for index in ranking.order:
            mean, sd = means[:, index], sds[:, index]
            lines = mean.tolist(), (mean - sd).tolist(), (mean + sd).tolist()
            curves.append(Curve(ranking.strategies[index], x, *map(tuple, lines)))
        name = f"convergence_{self.of.replace(' ', '_').replace('-', '_')}"
        title = f"{MAIN}: mean score and its standard deviation"
        return Plot(name, title, self.of, "mean score", tuple(curves))

    def sentence(self) -> str:
        stable = stable_from({step.count: step.same for step in self.steps})
        most = self.steps[-1].count
        if self.questions < FEWEST_TESTED:
            verdict = "too few questions to tell"
        elif self.steps[-1].same is None:
            verdict = "all strategies have the same mean score, so there is no ranking"
        elif stable is None:
            verdict = f"not stable even with {most}"
        elif stable == most:
            verdict = f"stable only with all {most}"
        else:
            verdict = f"stable from {stable} on"
        return f"Ranking by number of {self.of} ({self.questions} questions): {verdict}."
