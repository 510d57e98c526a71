"""Study ``convergence``: how many questions, conditioning answers, masked-out answers and masked words does a
ranking of strategies need?

Fewer questions, masked-out answers and masked words are drawn from existing scores. Fewer conditioning
answers, or another order of them, change what the judge reads, so variants of the first items are scored.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, combinations
from statistics import fmean

import msgspec
import numpy as np

from selfreflect.errors import DataError, excerpt
from selfreflect.render.plots import Curve, Plot
from selfreflect.render.table import Approximate
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
from selfreflect.validate.study import Draft, Finding, Layout, Row, interval, summary_names, with_interval

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
_PAIR_FORMS = {"same order": ".0%", "questions needed": ".0f", _NEEDED: ".0f"}
_RANKING = Layout("Same ranking by number of questions", ".0%", _RANKING_NOTES, {"stable from": "d"})
_PAIRS = Layout(f"What separates two strategies ({MAIN})", ".4f", _PAIR_NOTES, _PAIR_FORMS)
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
        rankings = [ranking for ranking in every if len(ranking.values) > 1]
        steps: dict[str, list[Step]] = {}
        for ranking in rankings:
            counts = counts_up_to(len(ranking.values))
            steps[ranking.metric.name] = [
                fewer_questions(ranking.table, count, self._seed) for count in counts
            ]
        draft = Draft(self.name, _RANKING)
        draft.says.append(self._coverage(every))
        draft.add(_RANKING, *_ranking_rows(rankings, steps))
        draft.plots.append(_ranking_plot(steps))
        main = next((ranking for ranking in rankings if ranking.metric.name == MAIN), None)
        if main is None:
            draft.says.append(
                f"There is no advice: {MAIN} did not score every strategy on two questions or more."
            )
        else:
            self._add_pairs(draft, main)
            _add_axis(draft, main, "questions", steps[MAIN], _RESAMPLED, len(main.values))
            self._add_conditioning(draft, main, values)
            self._add_units(draft, main)
        if self._shuffled:
            self._add_orders(draft, every, values)
        return draft.finding()

    def _add_pairs(self, draft: Draft, main: Ranking) -> None:
        """Say what separates each two strategies; separating any two neighbours gives the whole ranking."""
        for (place, better), (other_place, worse) in combinations(enumerate(main.order), 2):
            row, advice = self._pair(main, better, worse)
            draft.add(_PAIRS, row)
            if other_place == place + 1:
                draft.says.append(advice)

    def _pair(self, main: Ranking, better: int, worse: int) -> tuple[Row, str]:
        """What separates two strategies: a row, and how many questions do in words."""
        values = main.table
        differences = (values[:, worse] - values[:, better]).tolist()
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
            "same order": fewer_questions(values[:, [better, worse]], len(values), self._seed).same,
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

    def _add_units(self, draft: Draft, main: Ranking) -> None:
        """Add what fewer masked-out answers and masked words would give, if the values have parts."""
        answers = [(tasks.distances, tasks.answers) for tasks in main.tasks.values()]
        words = [(tasks.distances, tasks.words) for tasks in main.tasks.values()]
        for of, units in (("masked-out answers", answers), ("masked words", words)):
            if units:
                most = max(len(np.unique(keys)) for _, keys in units)
                steps = fewer_units(units, counts_up_to(most), self._seed)
                _add_axis(draft, main, of, steps, _SUBSAMPLED, len(units))

    def _add_conditioning(self, draft: Draft, main: Ranking, values: Sequence[Value]) -> None:
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
        steps = []
        for count in (*counts, most):
            by_question = by_count[count]
            reference = np.mean([main.values[question] for question in by_question], axis=0)
            table = np.array(list(by_question.values()))
            step = fewer_questions(table, len(table), self._seed, reference)
            steps.append(replace(step, count=count))
        fewest = min(len(by_count[count]) for count in counts)
        _add_axis(draft, main, "conditioning answers", steps, _TRUNCATED, fewest)

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

    def _add_orders(self, draft: Draft, rankings: Sequence[Ranking], values: Sequence[Value]) -> None:
        """Add how much a value changes when the conditioning answers come in another order."""
        questions = {original.id for original, _ in self._shuffled}
        more = len(self._shorter) + len(self._shuffled)
        notes = (
            "changes: absolute, of one value; order changed: share of pairs of summaries that change places",
            "other orders and fewer conditioning answers were scored on the first "
            f"{len(questions)} questions only ({more} more items)",
        )
        layout = Layout("The same answers in another order", ".2g", notes, {"order changed": ".0%"})
        draft.add(layout)
        shuffled = [item.id for _, item in self._shuffled]
        first, second = np.triu_indices(len(self._strategies), 1)
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
                row: Row = {
                    "metric": ranking.metric.name,
                    "answers in another order": "conditioning",
                    "mean change": fmean(changes),
                    "largest change": max(changes),
                    "order changed": fmean(flips),
                    "n": len(changes),
                }
                draft.add(layout, row)


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


def _ranking_rows(rankings: Sequence[Ranking], steps: Mapping[str, Sequence[Step]]) -> Iterator[Row]:
    counts = sorted({step.count for step in chain.from_iterable(steps.values())})
    for ranking in rankings:
        same = {step.count: step.same for step in steps[ranking.metric.name]}
        yield {
            "metric": ranking.metric.name,
            **{str(count): same.get(count) for count in counts},
            "stable from": stable_from(same) if len(ranking.values) >= FEWEST_TESTED else None,
            "ranking, best first": " > ".join(ranking.strategies[index] for index in ranking.order),
        }


def _ranking_plot(steps: Mapping[str, Sequence[Step]]) -> Plot:
    curves = []
    for metric, of_metric in steps.items():
        points = [(float(step.count), step.same) for step in of_metric if step.same is not None]
        if points:
            x, y = zip(*points, strict=True)
            curves.append(Curve(metric, x, y))
    title = "Same ranking of all strategies"
    return Plot("convergence_ranking", title, "questions", "share of draws", tuple(curves))


def _add_axis(
    draft: Draft, ranking: Ranking, of: str, steps: Sequence[Step], method: str, questions: int
) -> None:
    """Add scores of the main metric by the number of ``of``: a table, a plot and a sentence.

    Args:
        method: how the steps were drawn.
        questions: how many they rest on.
    """
    note = f"{method}; mean, sd and same ranking: over {DRAWS} draws"
    layout = Layout(f"{MAIN} by number of {of}", ".4f", (note,), {"same ranking": ".0%"})
    draws = np.array([step.draws for step in steps])
    means, sds = draws.mean(axis=1), draws.std(axis=1, ddof=1)
    for place, step in enumerate(steps):
        for index in ranking.order:
            row: Row = {
                of: step.count,
                "strategy": ranking.strategies[index],
                "mean score": float(means[place, index]),
                "sd": float(sds[place, index]),
                "same ranking": step.same,
            }
            draft.add(layout, row)
    counts = tuple(float(step.count) for step in steps)
    curves = []
    for index in ranking.order:
        mean, sd = means[:, index], sds[:, index]
        lines = mean.tolist(), (mean - sd).tolist(), (mean + sd).tolist()
        curves.append(Curve(ranking.strategies[index], counts, *map(tuple, lines)))
    name = f"convergence_{of.replace(' ', '_').replace('-', '_')}"
    title = f"{MAIN}: mean score and its standard deviation"
    draft.plots.append(Plot(name, title, of, "mean score", tuple(curves)))
    draft.says.append(f"Ranking by number of {of} ({questions} questions): {_stability(steps, questions)}.")


def _stability(steps: Sequence[Step], questions: int) -> str:
    stable = stable_from({step.count: step.same for step in steps})
    most = steps[-1].count
    if questions < FEWEST_TESTED:
        return "too few questions to tell"
    if steps[-1].same is None:
        return "all strategies have the same mean score, so there is no ranking"
    if stable is None:
        return f"not stable even with {most}"
    if stable == most:
        return f"stable only with all {most}"
    return f"stable from {stable} on"
