"""Study ``convergence``: how many questions, conditioning answers, masked-out answers and masked words does a
ranking of strategies need?

Fewer questions, masked-out answers and masked words are drawn from existing scores. Fewer conditioning
answers, or another order of them, change what the judge reads, so variants of the first items are scored.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, combinations
from statistics import fmean
from typing import NamedTuple

import msgspec
import numpy as np

from selfreflect.errors import ConfigError, DataError
from selfreflect.render.table import Cell, Table
from selfreflect.sources.files import listed
from selfreflect.sources.items import Item
from selfreflect.validate.base import MetricInfo, Value
from selfreflect.validate.convergence.resampling import (
    DRAWS,
    STABLE,
    Ranking,
    Step,
    StrategyPair,
    advise,
    answer_units,
    counts_up_to,
    fewer_questions,
    fewer_units,
    make_step,
    pair_table,
    rank,
    resampled_means,
    stable_from,
    strategy_pairs,
    word_units,
)
from selfreflect.validate.study import Curve, Finding, Plot, make_table, one_judge, values_by_metric
from selfreflect.validate.worsening import FEWEST

MAIN = "selfreflect"
"""The metric whose values have parts."""
CONDITIONING = (1, 2, 5, 10)
SHUFFLES = 2
RESCORED = 10
"""Items with variants: each variant costs as much as an item, the other axes cost nothing."""
_REVERSED = 3
"""Items whose masked-out answers are also scored in reverse: a check, not an estimate."""
_TRIES = 20
"""Draws after which another order is assumed not to exist: few answers have few orders."""

_RESAMPLED = "questions drawn with replacement"
_SUBSAMPLED = "drawn without replacement from each question; compared with the ranking by all of them"
_TRUNCATED = "the first ones, rescored questions drawn with replacement; compared with the ranking by all"
_LIMITS = (
    "Each ranking is compared with the ranking by everything that was scored, which need not be the true "
    "one: other questions, or more answers, may change it."
)


class Variant(NamedTuple):
    """An item with fewer answers, or with its answers in another order."""

    original: Item
    item: Item


class Convergence:
    """Rank the strategies (the names of summaries) from less than everything that was scored.

    Args:
        conditioning: numbers of conditioning answers to try, besides all.
        shuffles: other orders of the conditioning answers to try.
        rescored: how many items get such variants, from the first.

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
        rescored: int = RESCORED,
    ) -> None:
        if min((*conditioning, 1)) < 1 or shuffles < 0 or rescored < 0:
            raise ConfigError(
                "conditioning must be counts of 1 or more, shuffles and rescored 0 or more; "
                f"got {list(conditioning)}, {shuffles} and {rescored}"
            )
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
        self._ids = {item.id for item in items}
        self._variants: list[Variant] = []
        for index, item in enumerate(self._complete[:rescored]):
            for count in sorted(set(conditioning)):
                if count < len(item.conditioning):
                    self._vary(item, f"{count} conditioning", conditioning=item.conditioning[:count])
            for number, order in enumerate(_other_orders(item, shuffles, seed), 1):
                self._vary(item, f"conditioning order {number}", conditioning=order)
            reverse = item.masked_out[::-1]
            if index < _REVERSED and reverse != item.masked_out:
                self._vary(item, "masked-out reversed", masked_out=reverse)

    def _vary(self, original: Item, change: str, **answers: tuple[str, ...]) -> None:
        name = f"{original.id} [{change}]"
        while name in self._ids:
            name += "*"
        self._ids.add(name)
        self._variants.append(Variant(original, msgspec.structs.replace(original, id=name, **answers)))

    @property
    def items(self) -> Sequence[Item]:
        """The items that hold all summaries, then the variants."""
        return [*self._complete, *(variant.item for variant in self._variants)]

    def finding(self, values: Sequence[Value], metrics: Sequence[MetricInfo]) -> Finding:
        values, other_judges = one_judge(values)
        ids = [item.id for item in self._complete]
        rankings = [rank(values, metric, ids, self._strategies) for metric in metrics]
        says = [self._coverage(rankings, other_judges)]
        rankings = [ranking for ranking in rankings if len(ranking.questions) > 1]
        steps: dict[str, list[Step]] = {}
        for ranking in rankings:
            counts = counts_up_to(len(ranking.questions))
            steps[ranking.metric.name] = fewer_questions(ranking.values, counts, self._seed)
        tables = [_ranking_table(rankings, steps)]
        plots = [_ranking_plot(steps)]
        main = next((ranking for ranking in rankings if ranking.metric.name == MAIN), None)
        if main is None:
            says.append(f"There is no advice: {MAIN} did not score every strategy on two questions or more.")
        else:
            pairs = strategy_pairs(main, self._seed)
            axes = [_Axis(main, "questions", steps[MAIN], _RESAMPLED, len(main.questions))]
            axes += self._axes(main, values)
            tables += [pair_table(pairs, MAIN), *(axis.table() for axis in axes)]
            plots += [axis.plot() for axis in axes]
            says += [self._advice(main, pairs), *(axis.sentence() for axis in axes)]
        if self._variants:
            changes = [_order_changes(metric, self._variants, values) for metric in metrics]
            tables.append(_order_table(changes))
            for change in changes:
                if change.metric.name == MAIN:
                    says += change.sentences()
        return Finding(self.name, tuple(tables), (*says, _LIMITS, *self._cost()), tuple(plots))

    def _axes(self, main: Ranking, values: Sequence[Value]) -> Iterator[_Axis]:
        steps, questions = self._fewer_conditioning(main, values)
        if steps:
            yield _Axis(main, "conditioning answers", steps, _TRUNCATED, questions)
        if main.parts:
            for of, make_units in (("masked-out answers", answer_units), ("masked words", word_units)):
                units = [make_units(parts) for parts in main.parts.values()]
                counts = counts_up_to(max(len(question.sizes) for question in units))
                yield _Axis(main, of, fewer_units(units, counts, self._seed), _SUBSAMPLED, len(units))

    def _fewer_conditioning(self, main: Ranking, values: Sequence[Value]) -> tuple[list[Step], int]:
        """Steps by number of conditioning answers, each against the ranking of the same items by all of them,
        and the smallest number of items behind a step."""
        numbers = values_by_metric(values)[MAIN]
        complete = dict(zip(main.questions, main.values.tolist(), strict=True))
        rows: dict[int, dict[str, list[float]]] = {}
        for original, item in self._variants:
            row = [numbers[item.id, name] for name in self._strategies if (item.id, name) in numbers]
            count = len(item.conditioning)
            whole = original.id in complete and len(row) == len(self._strategies)
            if whole and count < len(original.conditioning):
                rows.setdefault(count, {})[original.id] = row
        by_count = [(count, rows[count]) for count in sorted(rows) if len(rows[count]) > 1]
        if not by_count:
            return [], 0
        _, first = by_count[0]
        most = max(len(item.conditioning) for item in self._complete if item.id in first)
        by_count.append((most, {question: complete[question] for question in first}))
        steps = []
        for count, by_question in by_count:
            reference = np.mean([complete[question] for question in by_question], axis=0)
            values_of_count = np.array(list(by_question.values()))
            means = resampled_means(values_of_count, len(by_question), self._seed)
            steps.append(make_step(count, means, reference))
        return steps, min(len(by_question) for _, by_question in by_count)

    def _advice(self, main: Ranking, pairs: Sequence[StrategyPair]) -> str:
        """One sentence for each two neighbours in the ranking: separating these gives the whole ranking."""
        parts = chain.from_iterable(main.parts.values())
        answers = max(map(len, parts), default=0)
        return " ".join(advise(pair, len(main.questions), answers) for pair in pairs if pair.adjacent)

    def _coverage(self, rankings: Sequence[Ranking], other_judges: Sequence[str]) -> str:
        total = len(self._complete)
        sentence = (
            f"{total} questions with {len(self._strategies)} strategies each: {listed(self._strategies)}."
        )
        if self._left_out:
            sentence += f" Items that do not hold all of them were left out: {self._left_out}."
        short = [ranking for ranking in rankings if len(ranking.questions) < total]
        if short:
            counts = ", ".join(f"{ranking.metric.name} has {len(ranking.questions)}" for ranking in short)
            sentence += f" Questions without a value for every strategy were left out: {counts}."
        if other_judges:
            sentence += (
                f" Values by {listed(other_judges)} were ignored: this study takes one judge at a time."
            )
        return sentence

    def _cost(self) -> list[str]:
        if not self._variants:
            return []
        questions = len({variant.original.id for variant in self._variants})
        return [
            "Fewer conditioning answers, or another order, had to be scored, on the first "
            f"{questions} questions only ({len(self._variants)} more items), so these results are rougher."
        ]


def _other_orders(item: Item, orders: int, seed: int) -> Iterator[tuple[str, ...]]:
    """The conditioning answers in up to ``orders`` other orders, drawn at random; fewer if fewer exist."""
    rng = np.random.default_rng([seed, *item.id.encode("utf-8", "surrogatepass")])
    seen = {item.conditioning}
    for _ in range(orders):
        for _ in range(_TRIES):
            order = tuple(item.conditioning[index] for index in rng.permutation(len(item.conditioning)))
            if order not in seen:
                break
        else:
            return
        seen.add(order)
        yield order


def _ranking_table(rankings: Sequence[Ranking], steps: Mapping[str, Sequence[Step]]) -> Table:
    counts = sorted({step.count for step in chain.from_iterable(steps.values())})
    rows: list[dict[str, Cell]] = []
    for ranking in rankings:
        of_metric = steps[ranking.metric.name]
        same = {step.count: step.same for step in of_metric}
        row: dict[str, Cell] = {"metric": ranking.metric.name}
        row |= {str(count): same.get(count) for count in counts}
        row["stable from"] = stable_from(of_metric) if len(ranking.questions) >= FEWEST else None
        row["ranking, best first"] = " > ".join(ranking.strategies[index] for index in ranking.order)
        rows.append(row)
    notes = (
        f"share of {DRAWS} draws of this many questions, with replacement, that rank all strategies as all "
        "questions do; strategies with the same mean are not ranked",
        f"stable from: the number from which on that share is at least {STABLE:.0%}; a dash for fewer than "
        f"{FEWEST} questions",
    )
    title = "Same ranking by number of questions"
    return make_table(title, rows, ".0%", notes, {"stable from": "d"})


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

    ranking: Ranking
    of: str
    steps: Sequence[Step]
    method: str
    questions: int

    def table(self) -> Table:
        rows: list[dict[str, Cell]] = []
        for step in self.steps:
            for index in self.ranking.order:
                row: dict[str, Cell] = {
                    self.of: step.count,
                    "strategy": self.ranking.strategies[index],
                    "mean score": step.means[index],
                    "sd": step.sds[index],
                    "same ranking": step.same,
                }
                rows.append(row)
        note = f"{self.method}; mean, sd and same ranking: over {DRAWS} draws"
        return make_table(f"{MAIN} by number of {self.of}", rows, ".4f", (note,), {"same ranking": ".0%"})

    def plot(self) -> Plot:
        x = tuple(float(step.count) for step in self.steps)
        curves = []
        for index in self.ranking.order:
            means = tuple(step.means[index] for step in self.steps)
            low = tuple(step.means[index] - step.sds[index] for step in self.steps)
            high = tuple(step.means[index] + step.sds[index] for step in self.steps)
            curves.append(Curve(self.ranking.strategies[index], x, means, low, high))
        name = f"convergence_{self.of.replace(' ', '_').replace('-', '_')}"
        title = f"{MAIN}: mean score and its standard deviation"
        return Plot(name, title, self.of, "mean score", tuple(curves))

    def sentence(self) -> str:
        of = self.of if self.of == "questions" else f"{self.of} per question"
        return f"By number of {of} ({self.questions} questions): {self._verdict()}."

    def _verdict(self) -> str:
        last = self.steps[-1]
        stable = stable_from(self.steps)
        if last.same is None:
            return "all strategies have the same mean score, so there is no ranking"
        if self.questions < FEWEST:
            return "too few questions to tell a stable ranking from a chance one"
        if stable is None:
            return f"the ranking is not stable even with {last.count}, where {last.same:.0%} of draws give it"
        if self.method == _SUBSAMPLED and stable == last.count:
            # without replacement all of them always give their own ranking, which shows no stability
            return f"only all of them (up to {last.count}) give the ranking by all in {STABLE:.0%} of draws"
        return f"the ranking is stable from {stable} on, where at least {STABLE:.0%} of draws give it"


@dataclass(frozen=True)
class _OrderChanges:
    """Absolute changes of single scores when answers come in another order."""

    metric: MetricInfo
    conditioning: list[float] = field(default_factory=list)
    masked_out: list[float] = field(default_factory=list)
    flips: list[bool] = field(default_factory=list)
    """For each other order of the conditioning answers and each pair of summaries: are the two ordered
    otherwise? A tie is an order."""

    def sentences(self) -> Iterator[str]:
        if self.conditioning:
            flips = f"{fmean(self.flips):.0%}" if self.flips else "none"
            yield (
                f"Another order of the conditioning answers moves a value of {self.metric.name} by "
                f"{fmean(self.conditioning):.4f} on average and {max(self.conditioning):.4f} at most (n = "
                f"{len(self.conditioning)}), and reverses {flips} of the pairs of summaries of one question."
            )
        if self.masked_out:
            yield (
                "The order of the masked-out answers must not matter, except for rounding in the judge: "
                f"reversing it moves a value of {self.metric.name} by {max(self.masked_out):.1e} at most "
                f"(n = {len(self.masked_out)})."
            )


def _order_changes(metric: MetricInfo, variants: Sequence[Variant], values: Sequence[Value]) -> _OrderChanges:
    numbers = values_by_metric(values).get(metric.name, {})
    changes = _OrderChanges(metric)
    for original, item in variants:
        if len(item.conditioning) < len(original.conditioning):
            continue
        pairs = []
        for name in item.summaries:
            before, after = numbers.get((original.id, name)), numbers.get((item.id, name))
            if before is not None and after is not None:
                pairs.append((before, after))
        sizes = [abs(after - before) for before, after in pairs]
        if item.masked_out != original.masked_out:
            changes.masked_out.extend(sizes)
            continue
        changes.conditioning.extend(sizes)
        for (before, after), (other_before, other_after) in combinations(pairs, 2):
            order = np.sign(before - other_before)
            changes.flips.append(bool(order != np.sign(after - other_after)))
    return changes


def _order_table(changes: Sequence[_OrderChanges]) -> Table:
    rows: list[dict[str, Cell]] = []
    for change in changes:
        flips = fmean(change.flips) if change.flips else None
        for of, sizes in (("conditioning", change.conditioning), ("masked-out", change.masked_out)):
            if sizes:
                row: dict[str, Cell] = {
                    "metric": change.metric.name,
                    "answers in another order": of,
                    "mean change": fmean(sizes),
                    "largest change": max(sizes),
                    "order changed": flips if of == "conditioning" else None,
                    "n": len(sizes),
                }
                rows.append(row)
    note = (
        "changes: absolute, of one value; order changed: share of pairs of summaries of one question that "
        "are ordered otherwise"
    )
    return make_table("The same answers in another order", rows, ".2g", (note,), {"order changed": ".0%"})
