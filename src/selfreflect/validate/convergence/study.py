"""How many questions, conditioning answers, masked-out answers and masked words a ranking of strategies
needs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from selfreflect.errors import ConfigError, DataError
from selfreflect.render.table import Cell, Column, Table
from selfreflect.sources.files import listed
from selfreflect.sources.items import Item
from selfreflect.validate.base import MetricInfo, Parts, Value
from selfreflect.validate.convergence.power import FEWEST
from selfreflect.validate.convergence.ranking import Scored, one_judge, scored
from selfreflect.validate.convergence.reordering import moved, moved_table
from selfreflect.validate.convergence.separating import advice, pair_table, pairs
from selfreflect.validate.convergence.subsampling import (
    DRAWS,
    STABLE,
    Step,
    Units,
    answer_units,
    budgets,
    fewer_questions,
    fewer_units,
    resampled_step,
    stable_from,
    word_units,
)
from selfreflect.validate.convergence.variants import Variant, Variants
from selfreflect.validate.study import Curve, Finding, Plot, counted, values_by_metric

MAIN = "selfreflect"
"""The metric that keeps the parts of its values."""
CONDITIONING = (1, 2, 5, 10)
SHUFFLES = 2
SCORED_ANEW = 10
"""Items with variants. Each costs as many new scores as it has variants, while the other axes cost none."""
_REVERSED = 3
"""Items whose masked-out answers are also scored in another order: a check, not an estimate."""
_SCORE, _SHARE = ".4f", ".0%"

RESAMPLED = "so many questions, drawn with replacement from those at hand"
SUBSAMPLED = "so many of each question, drawn without replacement; compared with the ranking by all of them on the same questions"
FEWER_SHOWN = "the first so many, on the questions scored anew, drawn with replacement; compared with the ranking by all these answers"


_LIMITS = (
    "Each ranking is compared with that by all there is at hand. This need not be the true one: other questions, or more answers than "
    "there are, may change it."
)


class Convergence:
    """Study ``convergence``.

    Args:
        conditioning: numbers of conditioning answers to try, beside all.
        shuffles: other orders of the conditioning answers.
        scored_anew: how many items get such variants, the first ones; every variant is scored anew.

    Raises:
        ConfigError: a number is out of range.
        DataError: fewer than two items hold all the summaries that any holds, or these are fewer than two.
    """

    name = "convergence"

    def __init__(
        self,
        items: Sequence[Item],
        seed: int = 0,
        conditioning: Sequence[int] = CONDITIONING,
        shuffles: int = SHUFFLES,
        scored_anew: int = SCORED_ANEW,
    ) -> None:
        if min((*conditioning, 1)) < 1 or shuffles < 0 or scored_anew < 0:
            given = f"{list(conditioning)}, {shuffles} and {scored_anew}"
            raise ConfigError(
                f"conditioning must be counts of 1 or more, shuffles and scored_anew 0 or more; got {given}"
            )
        self._seed = seed
        self._strategies = tuple(dict.fromkeys(name for item in items for name in item.summaries))
        self._base = [item for item in items if len(item.summaries) == len(self._strategies)]
        if len(self._strategies) < 2 or len(self._base) < 2:
            raise DataError(
                "convergence ranks strategies over questions: give it two items or more that all hold the same summaries, two or more; "
                f"{len(self._base)} of {len(items)} hold all of {listed(self._strategies) or 'none'}"
            )
        self._left_out = len(items) - len(self._base)
        made = Variants(items, seed)
        self._variants: list[Variant] = []
        for number, item in enumerate(self._base[:scored_anew]):
            self._variants += [
                *made.shorter(item, sorted(set(conditioning))),
                *made.reordered(item, shuffles),
            ]
            self._variants += made.reversed(item) if number < _REVERSED else ()

    @property
    def items(self) -> Sequence[Item]:
        """The items that hold all summaries, and the variants of the first of them."""
        return [*self._base, *(variant.item for variant in self._variants)]

    def finding(self, values: Sequence[Value], metrics: Sequence[MetricInfo]) -> Finding:
        kept, others = one_judge(values)
        found = [
            scored(kept, metric, [item.id for item in self._base], self._strategies) for metric in metrics
        ]
        usable = [one for one in found if len(one.questions) > 1]
        steps = {
            one.metric.name: fewer_questions(one.values, budgets(len(one.questions)), self._seed)
            for one in usable
        }
        tables, plots, says = (
            [_ranking_table(usable, steps)],
            [_ranking_plot(steps)],
            [self._coverage(found, others)],
        )
        main = next((one for one in usable if one.metric.name == MAIN), None)
        if main is None:
            says.append(f"There is no advice: {MAIN} did not score every strategy on two questions or more.")
        else:
            axes = [_Axis("questions", steps[MAIN], RESAMPLED, len(main.questions)), *self._axes(main, kept)]
            made = pairs(main, self._seed)
            tables += [pair_table(main, made), *(axis.table(main) for axis in axes)]
            plots += [axis.plot(main) for axis in axes]
            says += [advice(main, made), *(axis.sentence for axis in axes)]
        orders = [moved(metric, self._variants, kept) for metric in metrics]
        tables += [moved_table(orders)] if self._variants else []
        says += [sentence for one in orders if one.metric.name == MAIN for sentence in one.sentences]
        return Finding(self.name, tuple(tables), (*says, _LIMITS, *self._cost()), tuple(plots))

    def _axes(self, main: Scored, values: Sequence[Value]) -> list[_Axis]:
        shown, asked = self._fewer_shown(main, values)
        axes = [_Axis("conditioning answers", shown, FEWER_SHOWN, asked)] if shown else []
        if main.parts:
            for name, units in (("masked-out answers", answer_units), ("masked words", word_units)):
                axes.append(_Axis(name, _fewer(main, units, self._seed), SUBSAMPLED, len(main.parts)))
        return axes

    def _fewer_shown(self, main: Scored, values: Sequence[Value]) -> tuple[list[Step], int]:
        """Steps over the items with variants, each against the ranking of the same items by all conditioning
        answers; and the smallest number of items behind a step."""
        known = values_by_metric(values)[MAIN]
        full = dict(zip(main.questions, main.values, strict=True))
        rows: dict[int, dict[str, list[float]]] = {}
        for variant in self._variants:
            row = [
                known[variant.item.id, name] for name in self._strategies if (variant.item.id, name) in known
            ]
            if (
                variant.conditioning is not None
                and variant.original in full
                and len(row) == len(self._strategies)
            ):
                rows.setdefault(variant.conditioning, {})[variant.original] = row
        steps = []
        for count in sorted(count for count, found in rows.items() if len(found) > 1):
            reference = np.mean([full[id_] for id_ in rows[count]], axis=0)
            steps.append(resampled_step(np.array(list(rows[count].values())), reference, count, self._seed))
        if steps:
            most = {
                item.id: len(item.conditioning) for item in self._base if item.id in rows[steps[0].budget]
            }
            whole = np.array([full[id_] for id_ in most])
            steps.append(resampled_step(whole, whole.mean(axis=0), max(most.values()), self._seed))
        return steps, min((len(rows[step.budget]) for step in steps[:-1]), default=0)

    def _coverage(self, found: Sequence[Scored], others: Sequence[str]) -> str:
        total = len(self._base)
        short = [f"{one.metric.name} has {len(one.questions)}" for one in found if len(one.questions) < total]
        said = f"{total} questions with {len(self._strategies)} strategies each: {listed(self._strategies)}."
        if self._left_out:
            said += f" Items that do not hold all of them were left out: {self._left_out}."
        if short:
            said += f" Questions without a value for every strategy were left out: {', '.join(short)}."
        if others:
            said += f" Values by {listed(others)} were passed over: this study is about one judge at a time."
        return said

    def _cost(self) -> list[str]:
        if not self._variants:
            return []
        count = len({variant.original for variant in self._variants})
        return [
            "Questions, masked-out answers and masked words were taken from scores at hand. Fewer conditioning answers, or another order, "
            f"had to be scored anew, on the first {count} questions only ({len(self._variants)} more items): what they show is rougher."
        ]


@dataclass(frozen=True)
class _Axis:
    """One thing of which there may be fewer, with the scores of the main metric."""

    of: str
    steps: Sequence[Step]
    method: str
    questions: int
    """Behind each step, unless the questions are what there are fewer of."""

    def table(self, main: Scored) -> Table:
        sizes = (Column("mean score", _SCORE), Column("sd", _SCORE), Column("same ranking", _SHARE))
        rows: list[tuple[Cell, ...]] = [
            (step.budget, main.strategies[place], step.means[place], step.sds[place], step.same)
            for step in self.steps
            for place in main.ranking
        ]
        note = f"{self.method}; mean, sd and same ranking: over {DRAWS} draws"
        return Table(
            f"{MAIN} by number of {self.of}",
            (Column(self.of, "d"), Column("strategy"), *sizes),
            tuple(rows),
            (note,),
        )

    def plot(self, main: Scored) -> Plot:
        x = tuple(float(step.budget) for step in self.steps)
        curves = []
        for place in main.ranking:
            sizes = [(step.means[place], step.sds[place]) for step in self.steps]
            low, high = tuple(mean - sd for mean, sd in sizes), tuple(mean + sd for mean, sd in sizes)
            curves.append(Curve(main.strategies[place], x, tuple(mean for mean, _ in sizes), low, high))
        name = f"convergence_{self.of.replace(' ', '_').replace('-', '_')}"
        return Plot(
            name, f"{MAIN}: mean score and its standard deviation", self.of, "mean score", tuple(curves)
        )

    @property
    def sentence(self) -> str:
        last = self.steps[-1]
        of = (
            self.of
            if self.of == "questions"
            else f"{self.of} of each question, with {self.questions} questions"
        )
        if last.same is None:
            return f"By number of {of}: all strategies have the same mean score, so there is no ranking."
        if self.method == SUBSAMPLED:
            return f"By number of {of}: {self._within_all}."
        if self.questions < FEWEST:
            return f"By number of {self.of}: {counted(self.questions, 'question')} are too few to tell a stable ranking from a chance one."
        stable = stable_from(self.steps)
        if stable is None:
            return (
                f"By number of {of}: the ranking is not stable even with {last.budget}; {last.same:.0%} of draws give it, and "
                f"{STABLE:.0%} would be stable."
            )
        return f"By number of {of}: the ranking is stable from {stable} on, where at least {STABLE:.0%} of draws give it."

    @property
    def _within_all(self) -> str:
        """WordSample without replacement, all there is always gives its own ranking: that alone shows no
        stability."""
        most, stable = self.steps[-1].budget, stable_from(self.steps)
        if most == 1:
            return "there is only one, so fewer cannot be tried"
        if stable == most:
            return f"no fewer than all (up to {most}) give the ranking by all in {STABLE:.0%} of draws"
        return f"the ranking by all (up to {most}) is stable from {stable} on, where at least {STABLE:.0%} of draws give it"


def _fewer(main: Scored, units: Callable[[Sequence[Parts]], Units], seed: int) -> list[Step]:
    questions = [units(parts) for parts in main.parts.values()]
    return fewer_units(questions, budgets(max(len(one.sizes) for one in questions)), seed)


def _ranking_table(usable: Sequence[Scored], steps: Mapping[str, Sequence[Step]]) -> Table:
    counts = sorted({step.budget for found in steps.values() for step in found})
    rows: list[tuple[Cell, ...]] = []
    for one in usable:
        found = {step.budget: step.same for step in steps[one.metric.name]}
        ranking = " > ".join(one.strategies[place] for place in one.ranking)
        stable = stable_from(steps[one.metric.name]) if len(one.questions) >= FEWEST else None
        rows.append((one.metric.name, *(found.get(count) for count in counts), stable, ranking))
    shares = [Column(str(count), _SHARE) for count in counts]
    notes = (
        f"share of {DRAWS} draws in which so many questions, drawn with replacement, rank all strategies as all questions do",
        f"stable from: the number from which on that share is at least {STABLE:.0%}; a dash for fewer than {FEWEST} questions",
        "strategies with the same mean are not ranked",
    )
    columns = (Column("metric"), *shares, Column("stable from", "d"), Column("ranking, best first"))
    return Table("Same ranking by number of questions", columns, tuple(rows), notes)


def _ranking_plot(steps: Mapping[str, Sequence[Step]]) -> Plot:
    curves = []
    for metric, found in steps.items():
        known = [(float(step.budget), step.same) for step in found if step.same is not None]
        if known:
            curves.append(Curve(metric, tuple(x for x, _ in known), tuple(y for _, y in known)))
    return Plot(
        "convergence_ranking", "Same ranking of all strategies", "questions", "share of draws", tuple(curves)
    )
