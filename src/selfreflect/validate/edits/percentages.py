"""Studies ``dose`` and ``choice``: statements whose percentages are wrong by a known distance. Does a metric
follow the distance?"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import chain, combinations_with_replacement, pairwise
from statistics import fmean

from msgspec.structs import replace

from selfreflect.errors import ConfigError, DataError
from selfreflect.grouping import group_indices
from selfreflect.metric.tasks import masked_words
from selfreflect.models.base import seed_for
from selfreflect.render.plots import Curve, Plot
from selfreflect.render.table import Cell
from selfreflect.sources.items import Item
from selfreflect.stats import Estimate, clear_sign, sign_flip_p
from selfreflect.validate.base import MetricInfo, Value
from selfreflect.validate.edits.statements import (
    CannotEditError,
    Grouping,
    Material,
    Point,
    Possibility,
    Statement,
    apportioned,
    badness,
    correlations,
    other_possibilities,
    stated,
)
from selfreflect.validate.statistics import (
    ALPHA,
    FEWEST_TESTED,
    Worsening,
    bounded_mean,
    column_shuffle_p,
    correlation_interval,
    interaction,
    pearson,
    scipy_stats,
    spearman,
)
from selfreflect.validate.study import (
    Finding,
    counted,
    interval,
    make_table,
    values_by_metric,
    with_interval,
)

_CORRELATION = "+z.2f"
_VERDICTS = {
    1: "gets worse with the distance, as it must",
    0: "shows no clear response to the distance",
    -1: "gets BETTER with the distance",
}


SHIFTS = (10, 20, 30, 40, 50)
"""Percentage points."""
_RESPONSE_NOTES = (
    "rank correlation: mean over items of Spearman's correlation of the shift with the value, its sign "
    "turned where higher is better: 1 if every larger shift is worse; n: items that have one",
    "rises at every step: share of items in which each larger shift is worse than the one before",
    "open items: the mean among items with a masked word that only the two percentages can tell; in the "
    "others the rest of the answer gives it away, so even a perfect reader of masked words need not respond",
    "intervals: 95% BCa bootstrap over items; exact where all items agree",
)
_CHANGE_NOTES = (
    "mean change against the unshifted statement, above 0 if worse, of the mean of two statements, one with "
    "each of the two possibilities in front; of: items whose most frequent possibility has as many points",
)
_DOSE_LIMITS = (
    "No clear response may also come from a judge that is too weak to read percentages, or too few items. A "
    "judge that likes some numbers, such as 0%, whatever they say, shows a small response in all items "
    "alike; only multiple choice subtracts that."
)


class ShiftedPercentages:
    """For each item the statement of its answers, and the same with 10 to 50 points moved from the most
    frequent possibility to the next.

    If there is no next one, a possibility from another item takes its place, at 0%. Both halves are made of
    all answers, since all are stated: the total variation between the stated and the true distribution is
    then the shift itself. Each statement is measured twice, with each of the two possibilities in front, and
    the mean counts: else a judge that likes a small number in front would seem to like the shift.

    Raises:
        DataError: no item has a possibility of 10% or more.
    """

    name = "dose"

    def __init__(self, items: Sequence[Item], seed: int = 0, grouping: Grouping = group_indices) -> None:
        self._statements = {item.id: stated(item, grouping) for item in items}
        self._seed = seed
        self.skipped: Counter[str] = Counter()
        """Why an item has no shifts -> how often."""
        self.points: dict[str, dict[int, Point]] = {}
        """Item -> shift -> point, for 0 and the shifts that the item has room for."""
        self.open: set[str] = set()
        """Items with a masked word that only the two percentages can tell, see :func:`is_open`."""
        self.items: list[Item] = []
        for item in items:
            try:
                self._add(item)
            except CannotEditError as error:
                self.skipped[str(error)] += 1
        if not self.items:
            reasons = ", ".join(sorted(self.skipped))
            raise DataError(f"percentages can be shifted in none of the {len(items)} items ({reasons})")

    def _add(self, item: Item) -> None:
        (first, second, *others), rest = self._in_points(item)
        answers = item.masked_out + item.conditioning
        if is_open(answers, first.text, second.text):
            self.open.add(item.id)
        points: dict[int, Point] = {}
        summaries = {}
        for shift in (0, *SHIFTS):
            if shift <= first.weight:
                less = Possibility(first.text, first.weight - shift)
                more = Possibility(second.text, second.weight + shift)
                names = f"{shift} points", f"{shift} points, turned"
                summaries[names[0]] = Statement((less, more, *others), rest).text()
                summaries[names[1]] = Statement((more, less, *others), rest).text()
                points[shift] = Point(item.id, shift / 100, names)
        self.points[item.id] = points
        self.items.append(
            replace(item, masked_out=answers, conditioning=answers, summaries=summaries, order=())
        )

    def _in_points(self, item: Item) -> tuple[list[Possibility], int]:
        """What the item's statement names, in percentage points, at least two, and the rest."""
        statement = self._statements[item.id]
        if statement is None:
            raise CannotEditError("no answers that can be stated")
        *shares, rest = statement.percentages
        possibilities = []
        for possibility, share in zip(statement.possibilities, shares, strict=True):
            possibilities.append(Possibility(possibility.text, share))
        if possibilities[0].weight < SHIFTS[0]:
            raise CannotEditError(f"no possibility has {SHIFTS[0]}%")
        if len(possibilities) == 1:
            others = other_possibilities(self._statements, item.id)
            rng = random.Random(seed_for(self._seed, item.id, "shift"))
            material = Material(item.masked_out + item.conditioning, others, rng)
            possibilities.append(Possibility(material.new_possibility(), 0))
        return possibilities, rest

    def finding(self, values: Sequence[Value], metrics: Sequence[MetricInfo]) -> Finding:
        numbers = values_by_metric(values)
        rows: list[dict[str, Cell]] = []
        shift_rows: list[dict[str, Cell]] = []
        curves: list[Curve] = []
        extent = (
            f"Percentages were shifted in {counted(len(self.items), 'item')}. In {len(self.open)} of them a "
            "masked-out answer has a word that only the two percentages can tell."
        )
        for reason, count in sorted(self.skipped.items()):
            extent += f" {counted(count, 'item')} left out: {reason}."
        says = [extent]
        for metric in metrics:
            every = chain.from_iterable(points.values() for points in self.points.values())
            bad = badness(metric, every, numbers.get(metric.name, {}))
            row, sentence = self._response(metric, bad)
            rows.append(row)
            says.append(sentence)
            changes = self._changes(bad)
            for shift, change in changes.items():
                counts = {"n": change.mean.n, "of": change.total}
                cells = interval("change", change.mean)
                shift_rows.append({"metric": metric.name, "shift": shift, **cells, **counts})
            curves += _dose_curve(metric.name, changes)
        shares = dict.fromkeys(("rises at every step", "rises low", "rises high"), ".0%")
        tables = (
            make_table("Response to shifted percentages", rows, _CORRELATION, _RESPONSE_NOTES, shares),
            make_table("Change by shift", shift_rows, "+z.4f", _CHANGE_NOTES),
        )
        labels = "shift in percentage points", "mean change for the worse (of its root mean square)"
        plot = Plot("dose-response", "Response to shifted percentages", *labels, tuple(curves))
        return Finding(self.name, tables, (*says, _DOSE_LIMITS), (plot,))

    def _response(self, metric: MetricInfo, bad: Mapping[Point, float]) -> tuple[dict[str, Cell], str]:
        """A row of the first table and its sentence, over the items with at least two shifts."""
        whole: dict[Point, float] = {}
        rises = []
        total = 0
        for points in self.points.values():
            curve = list(points.values())
            if len(curve) < 3:
                continue
            total += 1
            if bad.keys() >= set(curve):
                whole |= {point: bad[point] for point in curve}
                rises.append(float(all(bad[a] < bad[b] for a, b in pairwise(curve))))
        by_item = correlations(whole, spearman)
        correlation = bounded_mean(list(by_item.values()), -1, 1)
        of_open = [value for item, value in by_item.items() if item in self.open]
        row: dict[str, Cell] = {
            "metric": metric.name,
            **interval("rank correlation", correlation),
            "n": correlation.n,
            "of": total,
            **interval("rises at every step", bounded_mean(rises, 0, 1), "rises low", "rises high"),
            "open items": fmean(of_open) if of_open else None,
            "n open": len(of_open),
        }
        verdict = f"cannot be judged by {counted(correlation.n, 'item')}"
        if correlation.n >= FEWEST_TESTED:
            verdict = _VERDICTS[clear_sign(correlation, sign_flip_p(list(by_item.values())))]
        size = with_interval(correlation, _CORRELATION)
        of = f"{correlation.n} of {counted(total, 'item')}"
        return row, f"{metric.name} {verdict}: mean rank correlation {size} within {of}."

    def _changes(self, bad: Mapping[Point, float]) -> dict[int, Worsening]:
        """By shift, against the unshifted statement."""
        by_shift: dict[int, Worsening] = {}
        for shift in SHIFTS:
            having = [points for points in self.points.values() if shift in points]
            both = [points for points in having if points[0] in bad and points[shift] in bad]
            changes = [bad[points[shift]] - bad[points[0]] for points in both]
            if having:
                by_shift[shift] = Worsening(changes, len(having))
        return by_shift


def is_open(masked_out: Sequence[str], one: str, other: str) -> bool:
    """Whether the same word of the same masked-out answer could be that of either possibility: in ``The _
    bridge.`` both ``mill`` and ``church``, in ``The wood _ in damp air.`` only one."""
    words = {task.masked: task.text for task in masked_words([one], every=True)}
    other_words = {task.masked: task.text for task in masked_words([other], every=True)}
    for task in masked_words(masked_out):
        both = task.masked in words and task.masked in other_words
        if both and words[task.masked] != other_words[task.masked]:
            return True
    return False


def _dose_curve(metric: str, by_shift: Mapping[int, Worsening]) -> list[Curve]:
    """Mean changes in units of the root mean square of all changes, so that metrics of any unit share an
    axis; empty without values."""
    changes = list(chain.from_iterable(change.changes for change in by_shift.values()))
    if not changes:
        return []
    unit = math.sqrt(fmean(change**2 for change in changes)) or 1.0
    x, y, low, high = [0.0], [0.0], [0.0], [0.0]
    for shift, change in by_shift.items():
        estimate = change.mean
        if estimate.mean is None:
            continue
        x.append(float(shift))
        y.append(estimate.mean / unit)
        if estimate.low is not None and estimate.high is not None:
            low.append(estimate.low / unit)
            high.append(estimate.high / unit)
    ends = (low, high) if len(low) == len(x) else ((), ())
    return [Curve(metric, tuple(x), tuple(y), *map(tuple, ends))]


STEPS = 10
"""Distributions of multiple choice are in steps of one tenth."""
OPTIONS = 4
QUESTIONS = {
    "colour": ("Which colour would you paint the front door", ("red", "blue", "green", "white")),
    "month": ("In which month would you visit the island", ("March", "June", "August", "October")),
}
"""By id, the question and its options.

An option is one word: of two, one would give away the other to a judge that fills in either, whatever the
summary says. It should be a single token too, as common short words mostly are, since later tokens are
predicted from the first and not from what was stated.
"""
_NET_NOTES = (
    "correlation of the value, its sign turned where higher is better, with the total variation between the "
    "true and the stated distribution; 1 is best. The mean of each statement and of each true distribution "
    "is subtracted from both: a judge may like some numbers better, and that is no reading",
    "p: share of random exchanges of statements within a question that give a correlation as far from 0",
    "form: share of the differences between statements about one true distribution that is the same whatever "
    "is true; n: statements with a value; intervals: 95% percentile bootstrap over true distributions",
)
_WITHIN_NOTES = (
    "mean over true distributions of the correlation among what is stated of each; it still holds what a "
    "judge makes of the form of a statement. Intervals: 95% BCa bootstrap; exact where all agree",
)
_CHOICE_LIMITS = (
    "The answers are made up, of one word each, so this shows whether a metric reads stated percentages, and "
    "nothing about free text. A metric that reads only length or wording gives all statements the same "
    "value. Nothing is adjusted for the number of metrics."
)


class MultipleChoice:
    """A few distributions over the options of each question. Each is true once, and stated of every true one.

    Every statement names all options in their order, so that only its percentages differ. A judge may like
    the form of some percentages better (round, even), whatever they say. As each statement is right once and
    wrong otherwise, this can be subtracted.

    Args:
        grid: distributions of each question, from certain to even; fewer if so few answers have fewer.
        answers: answers in each half. Unless it is a multiple of 10, frequencies are rounded, and the rounded
            ones are stated.

    Raises:
        ConfigError: a number is out of range.
    """

    name = "choice"

    def __init__(self, seed: int = 0, *, grid: int = 8, answers: int = 10) -> None:
        most = len(shapes(STEPS))
        if not 2 <= grid <= most:
            raise ConfigError(f"a multiple-choice study takes 2 to {most} distributions, not {grid}")
        possible = shapes(answers) if answers > 1 else []
        if len(possible) < 2:
            raise ConfigError(f"a multiple-choice study needs 2 answers or more in each half, not {answers}")
        self.points: list[Point] = []
        self.items: list[Item] = []
        count = min(grid, len(possible))
        grid_shapes = [possible[index * (len(possible) - 1) // (count - 1)] for index in range(count)]
        for question in QUESTIONS:
            self._add(question, grid_shapes, random.Random(seed_for(seed, question)))

    def _add(self, question: str, grid_shapes: Sequence[Sequence[int]], rng: random.Random) -> None:
        """One item for each true distribution. The options take turns in being the likeliest."""
        text, options = QUESTIONS[question]
        leading = rng.sample(range(OPTIONS), OPTIONS)
        distributions = []
        summaries = {}
        for index, (largest, *others) in enumerate(grid_shapes):
            rng.shuffle(others)
            others.insert(leading[index % OPTIONS], largest)
            distributions.append(others)
            shares = zip(options, apportioned(others, 100), strict=True)
            name = ", ".join(f"{option} {share}%" for option, share in shares)
            summaries[name] = Statement(tuple(map(Possibility, options, others))).text()
        for shape, true in zip(grid_shapes, distributions, strict=True):
            id_ = f"choice-{question}-{'-'.join(map(str, shape))}"
            for name, other in zip(summaries, distributions, strict=True):
                self.points.append(Point(id_, total_variation(true, other), (name,), question))
            answers: list[str] = []
            for option, count in zip(options, true, strict=True):
                answers += [option] * count
            item = Item(
                id=id_,
                question=f"{text}: {', '.join(options[:-1])} or {options[-1]}?",
                masked_out=tuple(rng.sample(answers, len(answers))),
                conditioning=tuple(rng.sample(answers, len(answers))),
                summaries=dict(summaries),
            )
            self.items.append(item)

    def finding(self, values: Sequence[Value], metrics: Sequence[MetricInfo]) -> Finding:
        numbers = values_by_metric(values)
        total = len(self.points)
        net_rows: list[dict[str, Cell]] = []
        overall_rows: list[dict[str, Cell]] = []
        within_rows: list[dict[str, Cell]] = []
        says = [f"{total} statements about {len(self.items)} true distributions, without sampling error."]
        plots: list[Plot] = []
        for metric in metrics:
            bad = badness(metric, self.points, numbers.get(metric.name, {}))
            points = list(bad)
            items = [point.item for point in points]
            sides = [point.distance for point in points], list(bad.values())
            net_sides = _net(points, sides[0]), _net(points, sides[1])
            rho = correlation_interval(*net_sides, groups=items)
            x_ranks, y_ranks = map(scipy_stats().rankdata, net_sides)
            statements = [point.summaries for point in points]
            questions = [point.question for point in points]
            p = column_shuffle_p(x_ranks, y_ranks, items, statements, questions)
            linear = correlation_interval(*net_sides, "pearson", groups=items)
            row = _correlation_row(metric, rho, linear, len(points), total)
            net_rows.append({**row, "p": p, "form": _form(points, sides[1])})
            overall = correlation_interval(*sides, groups=items)
            linear = correlation_interval(*sides, "pearson", groups=items)
            overall_rows.append(_correlation_row(metric, overall, linear, len(points), total))
            within = bounded_mean(list(correlations(bad, spearman).values()), -1, 1)
            linear = bounded_mean(list(correlations(bad, pearson).values()), -1, 1)
            within_rows.append(_correlation_row(metric, within, linear, within.n, len(self.items)))
            # a correlation of 1 or -1 has no interval, because every resample would agree
            direction = 0
            if rho.mean is not None and p is not None and p <= ALPHA:
                direction = int(rho.mean) if abs(rho.mean) == 1 else rho.side_of(0)
            size = with_interval(rho, _CORRELATION)
            of = f"{len(points)} statements, net of form"
            if not points:
                says.append(f"{metric.name} has no value for any statement.")
            else:
                says.append(f"{metric.name} {_VERDICTS[direction]}: rank correlation {size} over {of}.")
                sign = "" if metric.better == "lower" else " (negative)"
                labels = "total variation, net of form", f"{metric.name}{sign}, net of form"
                curve = Curve(metric.name, *map(tuple, net_sides))
                title = f"{metric.name}: stated against true distributions, net of form"
                plots.append(Plot(f"choice-{metric.name}", title, *labels, (curve,), points=True))
        title = "Stated against true distributions, net of form"
        as_measured = "The same as measured"
        tables = (
            make_table(title, net_rows, _CORRELATION, _NET_NOTES, {"p": ".2g", "form": ".0%"}),
            make_table(as_measured, overall_rows, _CORRELATION, ()),
            make_table(
                f"{as_measured}, within one true distribution", within_rows, _CORRELATION, _WITHIN_NOTES
            ),
        )
        form = _form(self.points, [point.distance for point in self.points]) or 0
        limits = f"{_CHOICE_LIMITS} Of the true distance itself {form:.0%} is form."
        return Finding(self.name, tables, (*says, limits), tuple(plots))


def _correlation_row(
    metric: MetricInfo, rank: Estimate, linear: Estimate, n: int, of: int
) -> dict[str, Cell]:
    return {
        "metric": metric.name,
        **interval("Spearman", rank, "Spearman low", "Spearman high"),
        **interval("Pearson", linear, "Pearson low", "Pearson high"),
        "n": n,
        "of": of,
    }


def total_variation(a: Sequence[int], b: Sequence[int]) -> float:
    """Half the sum of the absolute differences of two distributions, given as weights of the same total."""
    return sum(abs(one - other) for one, other in zip(a, b, strict=True)) / (2 * sum(a))


def shapes(answers: int) -> list[tuple[int, ...]]:
    """How answers can be shared out over the options in steps of one tenth, rounded, the largest part first;
    from certain to even."""
    falling = combinations_with_replacement(range(STEPS, -1, -1), OPTIONS)
    rounded = [apportioned(weights, answers) for weights in falling if sum(weights) == STEPS]
    return list(dict.fromkeys(rounded))


def _net(points: Sequence[Point], values: Sequence[float]) -> list[float]:
    """The values without the means of statements and of true distributions."""
    statements = [(point.question, point.summaries) for point in points]
    return interaction(values, [point.item for point in points], statements)


def _form(points: Sequence[Point], values: Sequence[float]) -> float | None:
    """The share of the variance of values within their items that their statements have on average. None if
    there is no variance."""
    within = interaction(values, [point.item for point in points], [""] * len(points))
    total = math.fsum(value**2 for value in within)
    net = math.fsum(value**2 for value in _net(points, values))
    return max(0.0, 1 - net / total) if total else None
