"""Study ``choice``: multiple choice, where the true distribution is known and a summary states another one.
Does a metric follow the distance of the two?"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations_with_replacement

from selfreflect.errors import ConfigError, excerpt
from selfreflect.models.base import seed_for
from selfreflect.render.table import Cell
from selfreflect.sources.items import Item
from selfreflect.stats import Estimate
from selfreflect.validate.base import MetricInfo, Value
from selfreflect.validate.edits.statements import (
    Point,
    Possibility,
    Statement,
    apportioned,
    badness,
    correlations,
)
from selfreflect.validate.statistics import (
    ALPHA,
    bounded_mean,
    column_shuffle_p,
    correlation_interval,
    interaction,
    pearson,
    scipy_stats,
    spearman,
)
from selfreflect.validate.study import (
    Curve,
    Finding,
    Plot,
    interval,
    make_table,
    percent,
    values_by_metric,
    with_interval,
)

Weights = tuple[int, ...]

STEPS = 10
"""Distributions are in steps of one tenth."""
_FEWEST = 2
_MOST_OPTIONS = 6  # eight would have 20,000 distributions
_CORRELATION = "+z.2f"


@dataclass(frozen=True)
class ChoiceQuestion:
    """``id`` names it in tables; the options follow its text.

    An option is one word: of two, one would give away the other to a judge that fills in either, whatever the
    summary says. It should be a single token too, as common short words mostly are, since later tokens are
    predicted from the first and not from what was stated.
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

NET_NOTES = (
    "correlation of the value, its sign turned where higher is better, with the total variation between the "
    "true and the stated distribution; 1 is best. The mean of each statement and of each true distribution "
    "is subtracted from both (two-way centring): a judge may like some numbers better, and that is no "
    "reading",
    "p: share of random exchanges of statements within a question that give a rank correlation at least as "
    "far from 0; the interval is too narrow if a statement is liked or disliked with some true "
    "distributions only",
    "form: share of the differences between statements about one true distribution that is the same whatever "
    "is true",
    "n: stated distributions that have a value; intervals: 95% percentile bootstrap over items, each with "
    "all that is stated of it",
)
OVERALL_NOTES = ("nothing is subtracted; undefined if all values are equal",)
WITHIN_NOTES = (
    "mean over items of the correlation among what is stated of one true distribution; n: items with one",
    "still holds what a judge makes of the form of a statement: near truths tend to have other numbers in "
    "them than far ones",
    "intervals: 95% BCa bootstrap over items; exact where all items agree",
)


class MultipleChoice:
    """A few distributions over the options of each question. Each is true once, and stated of every true one.

    Both halves of the answers have the same composition. Every statement names all options in their order, so
    that only its percentages differ. A judge may like the form of some percentages better (round, even),
    whatever they say. As each statement is right once and wrong otherwise, this can be subtracted.

    Args:
        grid: distributions of each question, from certain to even; fewer if so few answers have fewer.
        answers: answers in each half. Unless it is a multiple of 10, frequencies are rounded, and the rounded
            ones are stated.

    Raises:
        ConfigError: a number is out of range, or a question cannot be used.
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
        self._answers = answers
        self.points: list[Point] = []
        self.items: list[Item] = []
        for question in questions:
            self._add(question, grid, random.Random(seed_for(seed, question.id)))

    def _add(self, question: ChoiceQuestion, grid: int, rng: random.Random) -> None:
        """One item for each true distribution. The options take turns in being the likeliest."""
        options = question.options
        possible = shapes(len(options), self._answers)
        chosen = [possible[index] for index in evenly(min(grid, len(possible)), len(possible))]
        leading = rng.sample(range(len(options)), len(options))
        distributions = []
        summaries = {}
        for index, shape in enumerate(chosen):
            counts = _arranged(shape, leading[index % len(options)], rng)
            distributions.append(counts)
            shares = zip(options, apportioned(counts, 100), strict=True)
            name = ", ".join(f"{option} {share}%" for option, share in shares)
            summaries[name] = Statement(tuple(map(Possibility, options, counts))).text()
        for shape, true in zip(chosen, distributions, strict=True):
            id_ = f"choice-{question.id}-{'-'.join(map(str, shape))}"
            for name, stated in zip(summaries, distributions, strict=True):
                self.points.append(Point(id_, total_variation(true, stated), (name,), question.id))
            answers: list[str] = []
            for option, count in zip(options, true, strict=True):
                answers += [option] * count
            item = Item(
                id=id_,
                question=f"{question.text}: {', '.join(options[:-1])} or {options[-1]}?",
                masked_out=tuple(rng.sample(answers, len(answers))),
                conditioning=tuple(rng.sample(answers, len(answers))),
                summaries=dict(summaries),
            )
            self.items.append(item)

    def finding(self, values: Sequence[Value], metrics: Sequence[MetricInfo]) -> Finding:
        numbers = values_by_metric(values)
        readings = [_Reading(metric, self.points, numbers.get(metric.name, {})) for metric in metrics]
        net = [reading.net_row() for reading in readings]
        overall = [reading.row() for reading in readings]
        within = [reading.within_row() for reading in readings]
        forms = {"p": ".2g", "form": ".0%"}
        title = "Stated against true distributions, net of form"
        as_measured = "The same as measured"
        tables = (
            make_table(title, net, _CORRELATION, NET_NOTES, forms),
            make_table(as_measured, overall, _CORRELATION, OVERALL_NOTES),
            make_table(f"{as_measured}, within one true distribution", within, _CORRELATION, WITHIN_NOTES),
        )
        says = (self._extent(), *(reading.sentence() for reading in readings), self._limits())
        plots = tuple(reading.plot() for reading in readings if reading.points)
        return Finding(self.name, tables, says, plots)

    def _extent(self) -> str:
        return (
            f"{len(self.points)} statements: {len(self.items)} true distributions, with {self._answers} "
            "answers in each half and without sampling error; each is stated of all that belong to the same "
            "question."
        )

    def _limits(self) -> str:
        form = _form(self.points, [point.distance for point in self.points]) or 0
        return (
            f"Of the true distance itself {percent(form)} is form: an even distribution is nearer to most "
            "others. The answers are made up, of one word each, so this shows whether a metric reads stated "
            "percentages, and nothing about free text. No clear relation may also come from a judge that is "
            "too weak to read percentages. Nothing is adjusted for the number of metrics."
        )


class _Reading:
    """How one metric's values follow the true distance. ``net`` is without the means of statements and true
    distributions."""

    def __init__(
        self, metric: MetricInfo, points: Sequence[Point], values: Mapping[tuple[str, str], float]
    ) -> None:
        self.metric = metric
        self.total = len(points)
        self.total_items = len({point.item for point in points})
        self.bad = badness(metric, points, values)
        self.points = list(self.bad)
        self.items = [point.item for point in self.points]
        distances, bad = [point.distance for point in self.points], list(self.bad.values())
        self.sides = distances, bad
        self.net_sides = _net(self.points, distances), _net(self.points, bad)
        self.rho = correlation_interval(*self.net_sides, groups=self.items)
        self.form = _form(self.points, bad)
        self.p: float | None = None
        if self.points:
            x, y = map(scipy_stats().rankdata, self.net_sides)
            statements = [point.summaries for point in self.points]
            questions = [point.question for point in self.points]
            self.p = column_shuffle_p(x, y, self.items, statements, questions)

    def net_row(self) -> dict[str, Cell]:
        linear = correlation_interval(*self.net_sides, "pearson", groups=self.items)
        row = self._row(self.rho, linear, len(self.points), self.total)
        return {**row, "p": self.p, "form": self.form}

    def row(self) -> dict[str, Cell]:
        rank = correlation_interval(*self.sides, groups=self.items)
        linear = correlation_interval(*self.sides, "pearson", groups=self.items)
        return self._row(rank, linear, len(self.points), self.total)

    def within_row(self) -> dict[str, Cell]:
        rank = bounded_mean(list(correlations(self.bad, spearman).values()), -1, 1)
        linear = bounded_mean(list(correlations(self.bad, pearson).values()), -1, 1)
        return self._row(rank, linear, rank.n, self.total_items)

    def _row(self, rank: Estimate, linear: Estimate, n: int, of: int) -> dict[str, Cell]:
        return {
            "metric": self.metric.name,
            **interval("Spearman", rank, "Spearman low", "Spearman high"),
            **interval("Pearson", linear, "Pearson low", "Pearson high"),
            "n": n,
            "of": of,
        }

    def sentence(self) -> str:
        name, rho = self.metric.name, self.rho
        if not self.points:
            return f"{name} has no value for any statement."
        if self.form is None:
            return (
                f"{name} gives all statements of one true distribution the same value, as a metric that "
                "reads only length or wording must."
            )
        if rho.mean is None:
            return (
                f"{name} gives each statement the same value whatever is true, but for a level of each truth."
            )
        p = "" if self.p is None else f" (p = {self.p:.2g})"
        return (
            f"{name} {self._verdict(rho.mean)}: rank correlation {with_interval(rho, _CORRELATION)}{p} over "
            f"{rho.n} statements of {len(set(self.items))} true distributions, net of form. "
            f"{percent(self.form)} of what it tells apart within one true distribution is form."
        )

    def _verdict(self, rho: float) -> str:
        # a correlation of 1 or -1 has no interval, because every resample would agree
        clear = abs(rho) == 1 or self.rho.side_of(0) != 0
        if not clear or self.p is None or self.p > ALPHA:
            return "shows no clear relation to the true distance"
        if rho < 0:
            return "gets BETTER with the true distance"
        return "gets worse with the true distance, as it must"

    def plot(self) -> Plot:
        name = self.metric.name
        title = f"{name}: stated against true distributions, net of form"
        turned = "" if self.metric.better == "lower" else " (negative)"
        curve = Curve(name, *map(tuple, self.net_sides))
        labels = "total variation, net of form", f"{name}{turned}, net of form"
        return Plot(f"choice-{name}", title, *labels, (curve,), points=True)


def evenly(count: int, size: int) -> list[int]:
    """``count`` different indices below ``size``, from the first to the last."""
    return [index * (size - 1) // max(1, count - 1) for index in range(count)]


def total_variation(a: Sequence[int], b: Sequence[int]) -> float:
    """Half the sum of the absolute differences of two distributions, given as weights."""
    total, other_total = sum(a), sum(b)
    differences = [abs(one * other_total - other * total) for one, other in zip(a, b, strict=True)]
    return sum(differences) / (2 * total * other_total)


def shapes(options: int, answers: int) -> list[Weights]:
    """How answers can be shared out in steps of one tenth, rounded, the largest part first; from certain to
    even."""
    falling = combinations_with_replacement(range(STEPS, -1, -1), options)
    rounded = [apportioned(weights, answers) for weights in falling if sum(weights) == STEPS]
    return list(dict.fromkeys(rounded))


def _arranged(shape: Weights, leading: int, rng: random.Random) -> Weights:
    """The shape with its largest part at index ``leading`` and the others in any order."""
    largest, *others = shape
    rng.shuffle(others)
    return (*others[:leading], largest, *others[leading:])


def _form(points: Sequence[Point], values: Sequence[float]) -> float | None:
    """The share of the variance of values within their items that their statements have on average. None if
    there is no variance."""
    within = interaction(values, [point.item for point in points], [""] * len(points))
    total = math.fsum(value**2 for value in within)
    net = math.fsum(value**2 for value in _net(points, values))
    return max(0.0, 1 - net / total) if total else None


def _net(points: Sequence[Point], values: Sequence[float]) -> list[float]:
    statements = [(point.question, point.summaries) for point in points]
    return interaction(values, [point.item for point in points], statements)


def _check(questions: Sequence[ChoiceQuestion], grid: int, answers: int) -> None:
    if not questions or len({question.id for question in questions}) < len(questions):
        raise ConfigError("a multiple-choice study needs questions, each with an id of its own")
    if answers < 1:
        raise ConfigError(f"'answers' must be at least 1, not {answers}")
    for question in questions:
        size = len(question.options)
        single_words = all(len(option.split()) == 1 for option in question.options)
        if len(set(question.options)) < size or not 2 <= size <= _MOST_OPTIONS or not single_words:
            raise ConfigError(
                f"the question {excerpt(question.id)} needs 2 to {_MOST_OPTIONS} different options of one "
                "word each"
            )
        most = len(shapes(size, STEPS))
        if not _FEWEST <= grid <= most:
            raise ConfigError(
                f"a multiple-choice study takes {_FEWEST} to {most} distributions over {size} options, not "
                f"{grid}"
            )
        if len(shapes(size, answers)) < _FEWEST:
            raise ConfigError(
                f"{answers} answers in each half have only one distribution, whichever option has them; "
                "give more"
            )
