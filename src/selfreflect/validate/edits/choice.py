"""Multiple choice, where the true distribution is known and a summary states another one: does a metric
follow the distance of the two?"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations, pairwise

import numpy as np

from selfreflect.errors import ConfigError, excerpt
from selfreflect.models.base import seed_for
from selfreflect.render.table import Cell, Column, Table
from selfreflect.report.length import ranks
from selfreflect.sources.items import Item
from selfreflect.stats import Estimate
from selfreflect.validate.base import MetricInfo, Value
from selfreflect.validate.edits.possibilities import Possibility, Statement, apportioned
from selfreflect.validate.statistics import (
    ALPHA,
    Kind,
    bounded_mean,
    column_shuffle_p,
    correlation_interval,
    interaction,
    pearson,
    spearman,
)
from selfreflect.validate.study import (
    Curve,
    Finding,
    Plot,
    interval_cells,
    percent,
    values_by_metric,
    with_interval,
)

Weights = tuple[int, ...]

STEPS = 10
"""Distributions are in steps of one tenth."""
_FEWEST = 2
_MOST_OPTIONS = 6  # eight would have 20,000 distributions


@dataclass(frozen=True)
class ChoiceQuestion:
    """``id`` names it in tables. The question ends where its options follow.

    An option is one word: of two, one would give the other away to a judge that fills in one of them,
    whatever the summary says. It should be a single token too, since later tokens are predicted from the
    first and not from what was stated; common short words mostly are.
    """

    id: str
    text: str
    options: tuple[str, ...]


QUESTIONS = (
    ChoiceQuestion(
        "colour", "Which colour would you paint the front door", ("red", "blue", "green", "white")
    ),
    ChoiceQuestion(
        "month", "In which month would you visit the island", ("March", "June", "August", "October")
    ),
)

_CORRELATION, _SHARE = "+z.2f", ".0%"
_COLUMNS = (
    Column("metric"),
    Column("Spearman", _CORRELATION),
    Column("Spearman low", _CORRELATION),
    Column("Spearman high", _CORRELATION),
    Column("Pearson", _CORRELATION),
    Column("Pearson low", _CORRELATION),
    Column("Pearson high", _CORRELATION),
    Column("n", "d"),
    Column("of", "d"),
)
NET_COLUMNS = (*_COLUMNS, Column("p", ".2g"), Column("form", _SHARE))
NET_NOTES = (
    "correlation of the value, its sign turned where higher is better, with the total variation between the true and the stated "
    "distribution, after what each statement and each true distribution has on average is taken out of both (two-way centring): a judge "
    "may like some numbers better than others, and that is no reading; 1 is best",
    "p: share of random exchanges of statements within a question that give a rank correlation at least as far from 0; the interval is too "
    "narrow where a statement is liked or disliked with some true distributions only",
    "form: share of the differences between statements about one true distribution that is the same whatever is true",
    "n: stated distributions that have a value; intervals: 95% percentile bootstrap over items, each with all that is stated of it",
)
OVERALL_NOTES = ("nothing is taken out; undefined where all values are equal",)
WITHIN_NOTES = (
    "mean over items of the correlation among what is stated of one true distribution; n: items that have one",
    "what a judge makes of the form of a statement is still in it: near truths tend to have other numbers in them than far ones",
    "intervals: 95% BCa bootstrap over items; where all items agree, they are exact",
)


@dataclass(frozen=True)
class ShiftedSummary:
    """One stated distribution and its total variation from that of the answers, 0 to 1."""

    question: str
    item: str
    summary: str
    distance: float


class MultipleChoice:
    """A few distributions over the options of each question. Each is true once, and each is stated of every
    true one.

    Both halves of the answers have the same composition, in an order of their own. Every statement names all
    options in their order, so that nothing but its percentages differs. Percentages differ in form too, in
    digits and in how even they are, and a judge may like one form better whatever it says. As each statement
    is right of one true distribution and wrong of all others, this can be taken out.

    Args:
        grid: how many distributions of each question, from certain to even; fewer where so few answers have
            fewer.
        answers: answers in each half. Where it is no multiple of 10 frequencies are rounded, and what is
            stated are the rounded ones.

    Raises:
        ConfigError: a number out of range, or a question that cannot be used.
    """

    name = "multiple_choice"

    def __init__(
        self,
        seed: int = 0,
        questions: Sequence[ChoiceQuestion] = QUESTIONS,
        *,
        grid: int = 8,
        answers: int = 10,
    ) -> None:
        _check(questions, grid, answers)
        self._seed, self._answers = seed, answers
        self.points: list[ShiftedSummary] = []
        self.items = [item for question in questions for item in self._of(question, grid)]

    def finding(self, values: Sequence[Value], metrics: Sequence[MetricInfo]) -> Finding:
        known = values_by_metric(values)
        results = [_ChoiceResult(metric, self.points, known.get(metric.name, {})) for metric in metrics]
        tables = (
            Table(
                "Stated against true distributions, net of form",
                NET_COLUMNS,
                tuple(result.net for result in results),
                NET_NOTES,
            ),
            Table(
                "The same as measured", _COLUMNS, tuple(result.overall for result in results), OVERALL_NOTES
            ),
            Table(
                "The same as measured, within one true distribution",
                _COLUMNS,
                tuple(result.within for result in results),
                WITHIN_NOTES,
            ),
        )
        plots = tuple(result.plot for result in results if result.found)
        return Finding(
            self.name, tables, (self._extent(), *(result.says for result in results), self._limits()), plots
        )

    def _of(self, question: ChoiceQuestion, grid: int) -> Iterator[Item]:
        """One item for each true distribution. The options take turns in being the likeliest."""
        options = question.options
        rng = random.Random(seed_for(self._seed, question.id))
        known = shapes(len(options), self._answers)
        true = [known[place] for place in evenly(min(grid, len(known)), len(known))]
        leading = rng.sample(range(len(options)), len(options))
        counts = [_placed(shape, leading[turn % len(options)], rng) for turn, shape in enumerate(true)]
        names = {
            _name(options, stated): Statement(tuple(map(Possibility, options, stated))).text()
            for stated in counts
        }
        for shape, own in zip(true, counts, strict=True):
            id_ = f"choice-{question.id}-{'-'.join(map(str, shape))}"
            self.points += [
                ShiftedSummary(question.id, id_, name, total_variation(own, stated))
                for name, stated in zip(names, counts, strict=True)
            ]
            drawn = [option for option, count in zip(options, own, strict=True) for _ in range(count)]
            yield Item(
                id=id_,
                question=f"{question.text}: {', '.join(options[:-1])} or {options[-1]}?",
                masked_out=tuple(rng.sample(drawn, len(drawn))),
                conditioning=tuple(rng.sample(drawn, len(drawn))),
                summaries=dict(names),
            )

    def _extent(self) -> str:
        return (
            f"{len(self.points)} statements: of {len(self.items)} true distributions, with {self._answers} answers in each half, every one "
            "is stated of all that belong to the same question. The frequencies of the answers are the true distribution, without sampling "
            "error."
        )

    def _limits(self) -> str:
        form = _form(self.points, [point.distance for point in self.points])
        return (
            f"Of the true distance itself {percent(form or 0)} is form in this sense: an even distribution is nearer to most others. The "
            "answers are made up and of one word each, so this shows whether a metric reads stated percentages, and nothing about free "
            "text. No clear relation may also come from a judge that is too weak to read percentages. Nothing is adjusted for the number "
            "of metrics."
        )


def distributions(options: int) -> list[Weights]:
    """Every way to share out ten tenths among the options, from certainty of the first to certainty of the
    last."""
    slots = STEPS + options - 1
    bars = [(-1, *chosen, slots) for chosen in combinations(range(slots), options - 1)]
    return sorted((tuple(b - a - 1 for a, b in pairwise(ends)) for ends in bars), reverse=True)


def evenly(count: int, size: int) -> list[int]:
    """``count`` different places of ``size``, from the first to the last."""
    return [place * (size - 1) // max(1, count - 1) for place in range(count)]


def total_variation(a: Sequence[int], b: Sequence[int]) -> float:
    """Half the sum of the absolute differences of two distributions, given as weights."""
    whole, other = sum(a), sum(b)
    return sum(abs(one * other - two * whole) for one, two in zip(a, b, strict=True)) / (2 * whole * other)


def shapes(options: int, answers: int) -> list[Weights]:
    """How answers can be shared out in steps of one tenth, rounded, the largest part first; from certain to
    even."""
    falling = [
        weights for weights in distributions(options) if list(weights) == sorted(weights, reverse=True)
    ]
    return list(dict.fromkeys(apportioned(weights, answers) for weights in falling))


def _placed(shape: Weights, leading: int, rng: random.Random) -> Weights:
    """The shape with its largest part at the place ``leading`` and the others in any order."""
    largest, *others = shape
    rng.shuffle(others)
    return (*others[:leading], largest, *others[leading:])


def _form(points: Sequence[ShiftedSummary], values: Sequence[float]) -> float | None:
    """The share of the variance of values within their items that their statements have on average. None
    where there is no variance."""
    within = math.fsum(
        value**2 for value in interaction(values, [point.item for point in points], [""] * len(points))
    )
    left = math.fsum(value**2 for value in _net(points, values))
    return max(0.0, 1 - left / within) if within else None


def _net(points: Sequence[ShiftedSummary], values: Sequence[float]) -> list[float]:
    return interaction(
        values, [point.item for point in points], [(point.question, point.summary) for point in points]
    )


class _ChoiceResult:
    """What one metric makes of the points."""

    def __init__(
        self, metric: MetricInfo, points: Sequence[ShiftedSummary], known: Mapping[tuple[str, str], float]
    ) -> None:
        self.metric, self.total = metric, len(points)
        self.items = len({point.item for point in points})
        self.found = [
            (point, metric.badness(known[point.item, point.summary]))
            for point in points
            if (point.item, point.summary) in known
        ]

        self._points, self._bad = [point for point, _ in self.found], [bad for _, bad in self.found]
        self._distances = [point.distance for point in self._points]

    @cached_property
    def sides(self) -> tuple[list[float], list[float]]:
        """Distances and values net of what each statement and each true distribution has on average."""
        return _net(self._points, self._distances), _net(self._points, self._bad)

    @cached_property
    def spearman(self) -> Estimate:
        return self._correlation(*self.sides, "spearman")

    @property
    def net(self) -> tuple[Cell, ...]:
        cells = (*interval_cells(self.spearman), *interval_cells(self._correlation(*self.sides, "pearson")))
        return (self.metric.name, *cells, len(self.found), self.total, self.p, self.form)

    @cached_property
    def p(self) -> float | None:
        x, y = (ranks(np.asarray(side)) for side in self.sides)
        labels = [(point.item, point.summary, point.question) for point in self._points]
        return (
            column_shuffle_p(x, y, *([label[place] for label in labels] for place in range(3)))
            if labels
            else None
        )

    @property
    def form(self) -> float | None:
        return _form(self._points, self._bad)

    @property
    def overall(self) -> tuple[Cell, ...]:
        sides = self._distances, self._bad
        cells = (
            *interval_cells(self._correlation(*sides, "spearman")),
            *interval_cells(self._correlation(*sides, "pearson")),
        )
        return (self.metric.name, *cells, len(self.found), self.total)

    @property
    def within(self) -> tuple[Cell, ...]:
        ranks = self._within(spearman)
        return (
            self.metric.name,
            *interval_cells(ranks),
            *interval_cells(self._within(pearson)),
            ranks.n,
            self.items,
        )

    @property
    def says(self) -> str:
        rho, name, form = self.spearman, self.metric.name, self.form
        if not self.found:
            return f"{name} has no value for any statement, so nothing can be said of it."
        if form is None:
            return (
                f"{name} gives all statements of one true distribution the same value, as a metric that reads "
                "only length or wording must."
            )
        if rho.mean is None:
            return f"{name} gives each statement the same value whatever is true, but for a level of each true distribution."
        shown = len({point.item for point in self._points})
        p = "" if self.p is None else f" (p = {self.p:.2g})"
        number = (
            f"rank correlation {with_interval(rho, _CORRELATION)}{p} over {rho.n} statements of {shown} true "
            "distributions, net of form"
        )
        if rho.low is None or rho.high is None:
            sure = abs(rho.mean) == 1 and self.p is not None and self.p <= ALPHA
            way = "follows" if rho.mean > 0 else "goes AGAINST"
            said = f"{way} the true distance without exception" if sure else "allows no conclusion"
        elif rho.low <= 0 <= rho.high or self.p is None or self.p > ALPHA:
            said = "shows no clear relation to the true distance"
        else:
            said = (
                "gets worse with the true distance, as it must"
                if rho.mean > 0
                else "gets BETTER with the true distance"
            )
        return f"{name} {said}: {number}. {percent(form)} of what it tells apart within one true distribution is form."

    @property
    def plot(self) -> Plot:
        name, turned = self.metric.name, "" if self.metric.better == "lower" else " (negative)"
        x, y = (tuple(side) for side in self.sides)
        title, label = (
            f"{name}: stated against true distributions, net of form",
            "total variation, net of form",
        )
        return Plot(
            f"choice-{name}", title, label, f"{name}{turned}, net of form", (Curve(name, x, y),), points=True
        )

    def _correlation(self, x: Sequence[float], y: Sequence[float], kind: Kind) -> Estimate:
        return correlation_interval(x, y, kind, groups=[point.item for point in self._points])

    def _within(self, correlation: Callable[[Sequence[float], Sequence[float]], float | None]) -> Estimate:
        sides: dict[str, tuple[list[float], list[float]]] = {}
        for point, bad in self.found:
            x, y = sides.setdefault(point.item, ([], []))
            x.append(point.distance)
            y.append(bad)
        return bounded_mean(
            [value for x, y in sides.values() if (value := correlation(x, y)) is not None], -1, 1
        )


def _name(options: Sequence[str], weights: Weights) -> str:
    return ", ".join(
        f"{option} {share}%" for option, share in zip(options, apportioned(weights, 100), strict=True)
    )


def _check(questions: Sequence[ChoiceQuestion], grid: int, answers: int) -> None:
    if not questions or len({question.id for question in questions}) < len(questions):
        raise ConfigError("a multiple-choice study needs questions, each with an id of its own")
    if answers < 1:
        raise ConfigError(f"'answers' must be at least 1, not {answers}")
    for question in questions:
        size = len(question.options)
        if (
            len(set(question.options)) < size
            or not 2 <= size <= _MOST_OPTIONS
            or any(len(option.split()) != 1 for option in question.options)
        ):
            raise ConfigError(
                f"the question {excerpt(question.id)} needs 2 to {_MOST_OPTIONS} different options of one word each"
            )
        most = len(shapes(size, STEPS))
        if not _FEWEST <= grid <= most:
            raise ConfigError(
                f"a multiple-choice study takes {_FEWEST} to {most} distributions over {size} options, not {grid}"
            )
        if len(shapes(size, answers)) < _FEWEST:
            raise ConfigError(
                f"{answers} answers in each half have only one distribution, whichever option has them; give more"
            )
