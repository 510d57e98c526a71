"""Multiple choice, where the true distribution is known and a summary states another one: does a metric follow the distance of the two?"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations, pairwise

from selfreflect.errors import ConfigError, excerpt
from selfreflect.items import Item
from selfreflect.models.base import seed_for
from selfreflect.report.render import Cell, Column, Table
from selfreflect.stats import Estimate
from selfreflect.validate.base import MetricInfo, Value
from selfreflect.validate.finding import Curve, Finding, Plot
from selfreflect.validate.possibilities import Possibility, Statement, apportioned
from selfreflect.validate.statistics import Kind, bounded_mean, correlation_interval, pearson, spearman
from selfreflect.validate.studies.base import defined
from selfreflect.validate.studies.wording import with_interval
from selfreflect.validate.worsening import badness, ends

Weights = tuple[int, ...]

STEPS = 10
"""Distributions are in steps of one tenth."""
_FEWEST_STATED = 3
_MOST_OPTIONS = 6  # eight would have 20,000 distributions


@dataclass(frozen=True)
class ChoiceQuestion:
    """``id`` names it in tables. The question ends where its options follow.

    An option is one word: of two, one would give the other away to a judge that fills in one of them, whatever the summary says.
    """

    id: str
    text: str
    options: tuple[str, ...]


QUESTIONS = (
    ChoiceQuestion("fruit", "Which fruit would you put into a lunch box", ("apple", "pear", "plum", "banana")),
    ChoiceQuestion("journey", "How would you travel to the sea for a weekend", ("train", "bicycle", "ferry", "car")),
)

_CORRELATION = "+z.2f"
OVERALL_COLUMNS = (
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
OVERALL_NOTES = (
    "correlation of the value, its sign turned where higher is better, with the total variation between the true and the stated "
    "distribution: 1 is best; undefined where all values are equal",
    "n: stated distributions that have a value; intervals: 95% percentile bootstrap over items, each with all that is stated of it",
)
WITHIN_NOTES = (
    "mean over items of the correlation among what is stated of one true distribution; n: items that have one",
    "intervals: 95% BCa bootstrap over items; where all items agree, they are exact",
)


@dataclass(frozen=True)
class Point:
    """One stated distribution and its total variation from that of the answers, 0 to 1."""

    item: str
    summary: str
    distance: float


class MultipleChoice:
    """A grid of true distributions over the options of a few questions, and for each some stated ones, from right to entirely wrong.

    Both halves of the answers have the same composition, in an order of their own. Every statement names all options in their order, so
    that nothing but its percentages differs.

    Args:
        true: how many distributions, from certain to even, the answers of each question are made for.
        stated: how many distributions are stated of each, evenly spread over the distances that there are. The first is the nearest.
        answers: answers in each half. Where it is no multiple of 10 their frequencies are rounded, and distances are from the rounded.

    Raises:
        ConfigError: a number out of range, or a question that cannot be used.
    """

    name = "multiple_choice"

    def __init__(
        self, seed: int = 0, questions: Sequence[ChoiceQuestion] = QUESTIONS, *, true: int = 8, stated: int = 6, answers: int = 10
    ) -> None:
        _check(questions, true, stated, answers)
        self._seed, self._answers = seed, answers
        self.points: list[Point] = []
        self.items = [item for question in questions for item in self._of(question, true, stated)]

    def finding(self, values: Sequence[Value], metrics: Sequence[MetricInfo]) -> Finding:
        known = defined(values)
        results = [_Result(metric, self.points, known.get(metric.name, {})) for metric in metrics]
        tables = (
            Table("Stated against true distributions", OVERALL_COLUMNS, tuple(result.overall for result in results), OVERALL_NOTES),
            Table("The same within one true distribution", OVERALL_COLUMNS, tuple(result.within for result in results), WITHIN_NOTES),
        )
        plots = tuple(result.plot for result in results if result.found)
        return Finding(self.name, tables, (self._extent(), *(result.says for result in results), _LIMITS), plots)

    def _of(self, question: ChoiceQuestion, true: int, stated: int) -> Iterator[Item]:
        """One item for each true distribution. Which option is the likeliest is drawn, so that no place among them is."""
        options = question.options
        shapes = [shape for shape in distributions(len(options)) if list(shape) == sorted(shape, reverse=True)]
        for place in evenly(true, len(shapes)):
            shape = shapes[place]
            id_ = f"choice-{question.id}-{'-'.join(map(str, shape))}"
            rng = random.Random(seed_for(self._seed, id_))
            counts = apportioned(rng.sample(shape, len(shape)), self._answers)
            summaries = {}
            for weights in spread_out(counts, stated, rng):
                summary = _name(options, weights)
                summaries[summary] = Statement(tuple(map(Possibility, options, weights))).text()
                self.points.append(Point(id_, summary, total_variation(counts, weights)))
            drawn = [option for option, count in zip(options, counts, strict=True) for _ in range(count)]
            yield Item(
                id=id_,
                question=f"{question.text}: {', '.join(options[:-1])} or {options[-1]}?",
                masked_out=tuple(rng.sample(drawn, len(drawn))),
                conditioning=tuple(rng.sample(drawn, len(drawn))),
                summaries=summaries,
            )

    def _extent(self) -> str:
        return (
            f"{len(self.points)} distributions were stated of {len(self.items)} true ones, with {self._answers} answers in each half. "
            "The frequencies of the answers are the true distribution, without sampling error."
        )


_LIMITS = (
    "The answers are made up and of one word each, so this shows whether a metric reads stated percentages, and nothing about free "
    "text. No clear relation may also come from a judge that is too weak to read percentages. A metric without a correlation gives every "
    "statement the same value, as one that reads only length or wording must. Nothing is adjusted for the number of metrics."
)


def distributions(options: int) -> list[Weights]:
    """Every way to share out ten tenths among the options, from certainty of the first to certainty of the last."""
    slots = STEPS + options - 1
    bars = [(-1, *chosen, slots) for chosen in combinations(range(slots), options - 1)]
    return sorted((tuple(b - a - 1 for a, b in pairwise(ends)) for ends in bars), reverse=True)


def evenly(count: int, size: int) -> list[int]:
    """``count`` different places of ``size``, from the first to the last."""
    return [place * (size - 1) // max(1, count - 1) for place in range(count)]


def total_variation(a: Sequence[int], b: Sequence[int]) -> float:
    """Half the sum of the absolute differences of two distributions, given as weights."""
    return _scaled_distance(a, b) / (2 * sum(a) * sum(b))


def spread_out(true: Sequence[int], count: int, rng: random.Random) -> list[Weights]:
    """``count`` distributions whose distances from the true one are as evenly spread as the grid allows, the nearest first."""
    left = distributions(len(true))
    rng.shuffle(left)
    farthest = max(_scaled_distance(true, weights) for weights in left)
    chosen = []
    for place in range(count):
        best = min(left, key=lambda weights: abs(_scaled_distance(true, weights) * (count - 1) - farthest * place))
        left.remove(best)
        chosen.append(best)
    return chosen


class _Result:
    """What one metric makes of the points."""

    def __init__(self, metric: MetricInfo, points: Sequence[Point], known: Mapping[tuple[str, str], float]) -> None:
        self.metric, self.total = metric, len(points)
        self.items = len({point.item for point in points})
        self.found = [
            (point, badness(metric, known[point.item, point.summary])) for point in points if (point.item, point.summary) in known
        ]

    @cached_property
    def spearman(self) -> Estimate:
        return self._overall("spearman")

    @property
    def overall(self) -> tuple[Cell, ...]:
        return (self.metric.name, *ends(self.spearman), *ends(self._overall("pearson")), len(self.found), self.total)

    @property
    def within(self) -> tuple[Cell, ...]:
        ranks = self._within(spearman)
        return (self.metric.name, *ends(ranks), *ends(self._within(pearson)), ranks.n, self.items)

    @property
    def says(self) -> str:
        rho, name = self.spearman, self.metric.name
        if not self.found:
            return f"{name} has no value for any statement, so nothing can be said of it."
        if rho.mean is None:
            return f"{name} gives no correlation: its {len(self.found)} values are fewer than three, or all equal."
        if rho.low is None or rho.high is None:
            said = "ranks every two statements by their distance" if rho.mean == 1 else "allows no conclusion"
            return f"{name} {said}: rank correlation {with_interval(rho, _CORRELATION)} over {rho.n} statements, without an interval."
        said = (
            "gets worse with the true distance, as it must"
            if rho.low > 0
            else "gets BETTER with the true distance"
            if rho.high < 0
            else "shows no clear relation to the true distance"
        )
        shown = len({point.item for point, _ in self.found})
        return f"{name} {said}: rank correlation {with_interval(rho, _CORRELATION)} over {rho.n} statements of {shown} true distributions."

    @property
    def plot(self) -> Plot:
        name, turned = self.metric.name, "" if self.metric.better == "lower" else " (negative)"
        x, y = (tuple(side) for side in zip(*((point.distance, bad) for point, bad in self.found), strict=True))
        curve = Curve(name, x, y)
        return Plot(f"choice-{name}", f"{name}: stated against true distributions", "total variation", name + turned, (curve,), points=True)

    def _overall(self, kind: Kind) -> Estimate:
        x, y = [point.distance for point, _ in self.found], [bad for _, bad in self.found]
        return correlation_interval(x, y, kind, groups=[point.item for point, _ in self.found])

    def _within(self, correlation: Callable[[Sequence[float], Sequence[float]], float | None]) -> Estimate:
        sides: dict[str, tuple[list[float], list[float]]] = {}
        for point, bad in self.found:
            x, y = sides.setdefault(point.item, ([], []))
            x.append(point.distance)
            y.append(bad)
        return bounded_mean([value for x, y in sides.values() if (value := correlation(x, y)) is not None], -1, 1)


def _scaled_distance(a: Sequence[int], b: Sequence[int]) -> int:
    """In whole numbers, so that rounding does not decide which of two distributions is nearer."""
    whole, other = sum(a), sum(b)
    return sum(abs(one * other - two * whole) for one, two in zip(a, b, strict=True))


def _name(options: Sequence[str], weights: Weights) -> str:
    return ", ".join(f"{option} {share}%" for option, share in zip(options, apportioned(weights, 100), strict=True))


def _check(questions: Sequence[ChoiceQuestion], true: int, stated: int, answers: int) -> None:
    if not questions or len({question.id for question in questions}) < len(questions):
        raise ConfigError("a multiple-choice study needs questions, each with an id of its own")
    for question in questions:
        size = len(question.options)
        if (
            len(set(question.options)) < size
            or not 2 <= size <= _MOST_OPTIONS
            or any(len(option.split()) != 1 for option in question.options)
        ):
            raise ConfigError(f"the question {excerpt(question.id)} needs 2 to {_MOST_OPTIONS} different options of one word each")
        every = distributions(size)
        for what, number, fewest, most in (
            ("true", true, 1, sum(list(weights) == sorted(weights, reverse=True) for weights in every)),
            ("stated", stated, _FEWEST_STATED, len(every)),
        ):
            if not fewest <= number <= most:
                raise ConfigError(f"{what!r} must lie between {fewest} and {most} for {size} options, not {number}")
    if answers < 1:
        raise ConfigError(f"'answers' must be at least 1, not {answers}")
