"""Studies of stated percentages that are wrong by a known distance: does a metric follow the distance?

Study ``choice`` takes multiple choice whose true distribution is known; ``dose`` shifts the percentages of a
user's own answers.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import combinations_with_replacement, pairwise
from statistics import fmean

import numpy as np
from msgspec.structs import replace

from selfreflect.errors import ConfigError, DataError
from selfreflect.grouping import group_indices
from selfreflect.metric.prompts import masked_words
from selfreflect.models.base import seed_for
from selfreflect.plots import Curve, Plot
from selfreflect.sources.items import Item
from selfreflect.stats import FEWEST_TESTED, Estimate, Floats, defined, mean_interval
from selfreflect.text import counted
from selfreflect.validate.base import MetricInfo, Value
from selfreflect.validate.edits.statements import (
    CORRELATION,
    RESPONSES,
    CannotEditError,
    Grouping,
    Material,
    Possibility,
    Statement,
    apportioned,
    other_possibilities,
    stated,
)
from selfreflect.validate.statistics import (
    ALPHA,
    bounded_mean,
    column_shuffle_p,
    correlation_interval,
    direction,
    interaction,
    pearson,
    scipy_stats,
    spearman,
)
from selfreflect.validate.study import (
    Finding,
    Layout,
    Numbers,
    Row,
    each_metric,
    interval,
    with_interval,
)

STEPS = 10
"""Distributions are in steps of one tenth."""
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
_NET = Layout(
    "Stated against true distributions, net of form", CORRELATION, _NET_NOTES, {"p": ".2g", "form": ".0%"}
)
_MEASURED = Layout("The same as measured", CORRELATION)
_WITHIN = Layout(f"{_MEASURED.title}, within one true distribution", CORRELATION, _WITHIN_NOTES)


class MultipleChoice:
    """A few distributions over the options of each question. Each is true once, and stated of every true one.

    Every statement names all options in their order, so that only its percentages differ. A judge may like
    the form of some percentages better (round, even), whatever they say. As each statement is right once and
    wrong otherwise, this can be subtracted.

    Args:
        grid: distributions of each question, from certain to even; fewer if so few answers have fewer.
        answers: answers in each half. Unless it is a multiple of 10, frequencies are rounded, and the rounded
            ones are stated.

    Attributes:
        distances: total variation between the true and the stated distribution, shape (questions, true,
            stated). Items are in the order of the first two axes, their summaries in that of the third.

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
        self.items: list[Item] = []
        count = min(grid, len(possible))
        grid_shapes = [possible[index * (len(possible) - 1) // (count - 1)] for index in range(count)]
        tables = []
        for question in QUESTIONS:
            tables.append(self._add(question, grid_shapes, random.Random(seed_for(seed, question))))
        self.distances = np.array(tables)

    def _add(self, question: str, grid_shapes: Sequence[Sequence[int]], rng: random.Random) -> Floats:
        """Add one item for each true distribution, and return the distances of one question. The options take
        turns in being the likeliest."""
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
            answers: list[str] = []
            for option, count in zip(options, true, strict=True):
                answers += [option] * count
            item = Item(
                id=f"choice-{question}-{'-'.join(map(str, shape))}",
                question=f"{text}: {', '.join(options[:-1])} or {options[-1]}?",
                masked_out=tuple(rng.sample(answers, len(answers))),
                conditioning=tuple(rng.sample(answers, len(answers))),
                summaries=dict(summaries),
            )
            self.items.append(item)
        weights = np.array(distributions)
        distances: Floats = np.abs(weights[:, None] - weights).sum(axis=2) / (2 * weights[0].sum())
        return distances

    def finding(self, values: Sequence[Value], metrics: Sequence[MetricInfo]) -> Finding:
        finding = Finding(self.name, _NET, _MEASURED, _WITHIN)
        truths = f"{len(self.items)} true distributions"
        finding.says.append(f"{self.distances.size} statements about {truths}, without sampling error.")
        for metric, numbers in each_metric(values, metrics):
            bad = self._badness(metric, numbers)
            distances = np.where(np.isnan(bad), np.nan, self.distances)
            self._add_net(finding, metric, distances, bad)
            finding.add(_MEASURED, self._row(metric, distances, bad)[1])
            of_truths = distances.reshape(len(self.items), -1), bad.reshape(len(self.items), -1)
            sides = [(_cells(x), _cells(y)) for x, y in zip(*of_truths, strict=True)]
            rank = bounded_mean(defined([spearman(*both) for both in sides]), -1, 1)
            linear = bounded_mean(defined([pearson(*both) for both in sides]), -1, 1)
            finding.add(_WITHIN, _correlation_row(metric, rank, linear, rank.n, len(self.items)))
        form = _form(self.distances) or 0
        finding.says.append(f"{_CHOICE_LIMITS} Of the true distance itself {form:.0%} is form.")
        return finding

    def _badness(self, metric: MetricInfo, numbers: Numbers) -> Floats:
        """How bad the metric finds each statement, in the shape of ``distances``; NaN without a value."""
        bad = []
        for item in self.items:
            for name in item.summaries:
                value = numbers.get((item.id, name))
                bad.append(np.nan if value is None else metric.badness(value))
        return np.array(bad, dtype=np.float64).reshape(self.distances.shape)

    def _add_net(self, finding: Finding, metric: MetricInfo, distances: Floats, bad: Floats) -> None:
        """Add the first table's row, its sentence and its plot."""
        net_distances, net_bad = _net(distances), _net(bad)
        rho, row = self._row(metric, net_distances, net_bad)
        p = column_shuffle_p(_ranks(net_distances), _ranks(net_bad))
        finding.add(_NET, {**row, "p": p, "form": _form(bad)})
        x, y = _cells(net_distances), _cells(net_bad)
        if not x:
            finding.says.append(f"{metric.name} has no value for any statement.")
            return
        size = f"rank correlation {with_interval(rho, CORRELATION)}"
        of = f"{len(x)} statements, net of form"
        finding.says.append(f"{metric.name} {RESPONSES[_direction(rho, p)]}: {size} over {of}.")
        sign = "" if metric.better == "lower" else " (negative)"
        labels = "total variation, net of form", f"{metric.name}{sign}, net of form"
        curve = Curve(metric.name, tuple(x), tuple(y))
        title = f"{metric.name}: stated against true distributions, net of form"
        finding.plots.append(Plot(f"choice-{metric.name}", title, *labels, (curve,), points=True))

    def _row(self, metric: MetricInfo, distances: Floats, bad: Floats) -> tuple[Estimate, Row]:
        """The rank correlation over all statements, and a row with both correlations."""
        truths = np.nonzero(~np.isnan(bad).reshape(len(self.items), -1))[0].tolist()
        sides = _cells(distances), _cells(bad)
        rank = correlation_interval(*sides, groups=truths)
        linear = correlation_interval(*sides, "pearson", groups=truths)
        return rank, _correlation_row(metric, rank, linear, len(truths), bad.size)


def _correlation_row(metric: MetricInfo, rank: Estimate, linear: Estimate, n: int, of: int) -> Row:
    return {
        "metric": metric.name,
        **interval("Spearman", rank, "Spearman low", "Spearman high"),
        **interval("Pearson", linear, "Pearson low", "Pearson high"),
        "n": n,
        "of": of,
    }


def _direction(rho: Estimate, p: float | None) -> int:
    """The clear sign of a correlation. One of 1 or -1 has no interval, because every resample would agree."""
    if rho.mean is None or p is None or p > ALPHA:
        return 0
    return int(rho.mean) if abs(rho.mean) == 1 else rho.side_of(0)


def shapes(answers: int) -> list[tuple[int, ...]]:
    """How answers can be shared out over the options in steps of one tenth, rounded, the largest part first;
    from certain to even."""
    falling = combinations_with_replacement(range(STEPS, -1, -1), OPTIONS)
    rounded = [apportioned(weights, answers) for weights in falling if sum(weights) == STEPS]
    return list(dict.fromkeys(rounded))


def _cells(table: Floats) -> list[float]:
    """Those that are not missing."""
    cells: list[float] = table[~np.isnan(table)].tolist()
    return cells


def _ranks(tables: Floats) -> Floats:
    ranks: Floats = scipy_stats().rankdata(tables, nan_policy="omit").reshape(tables.shape)
    return ranks


def _net(tables: Floats) -> Floats:
    """The values of each question without the levels of statements and of true distributions."""
    return np.stack(list(map(interaction, tables)))


def _form(tables: Floats) -> float | None:
    """The share of the variance of values within their items that their statements have on average. None if
    there is no variance."""
    within = np.stack([interaction(table, columns=False) for table in tables])
    total = float(np.nansum(within**2))
    return max(0.0, 1 - float(np.nansum(_net(tables) ** 2)) / total) if total else None


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
_SHARES = dict.fromkeys(("rises at every step", "rises low", "rises high"), ".0%")
_RESPONSE = Layout("Response to shifted percentages", CORRELATION, _RESPONSE_NOTES, _SHARES)
_CHANGE = Layout("Change by shift", "+z.4f", _CHANGE_NOTES)
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
        self.shifts: dict[str, list[int]] = {}
        """By item: 0, and the shifts that the item has room for."""
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
        shifts = [shift for shift in (0, *SHIFTS) if shift <= first.weight]
        summaries = {}
        for shift in shifts:
            less = Possibility(first.text, first.weight - shift)
            more = Possibility(second.text, second.weight + shift)
            name, opposite = _names(shift)
            summaries[name] = Statement((less, more, *others), rest).text()
            summaries[opposite] = Statement((more, less, *others), rest).text()
        self.shifts[item.id] = shifts
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
        finding = Finding(self.name, _RESPONSE, _CHANGE)
        extent = (
            f"Percentages were shifted in {counted(len(self.items), 'item')}. In {len(self.open)} of them a "
            "masked-out answer has a word that only the two percentages can tell."
        )
        for reason, count in sorted(self.skipped.items()):
            extent += f" {counted(count, 'item')} left out: {reason}."
        finding.says.append(extent)
        for metric, numbers in each_metric(values, metrics):
            bad = self._badness(metric, numbers)
            self._add_response(finding, metric, bad)
            for shift in SHIFTS:
                total = sum(shift in shifts for shifts in self.shifts.values())
                if total:
                    changes = [own[shift] - own[0] for own in bad.values() if {0, shift} <= own.keys()]
                    change = mean_interval(changes, total)
                    cells = {"metric": metric.name, "shift": shift, **interval("change", change)}
                    finding.add(_CHANGE, {**cells, "n": change.n, "of": total})
        finding.says.append(_DOSE_LIMITS)
        return finding

    def _badness(self, metric: MetricInfo, numbers: Numbers) -> dict[str, dict[int, float]]:
        """By item and shift, how bad the metric finds the two statements on average; without a shift that
        lacks a value."""
        bad: dict[str, dict[int, float]] = {}
        for item, shifts in self.shifts.items():
            bad[item] = {}
            for shift in shifts:
                name, opposite = _names(shift)
                if (item, name) in numbers and (item, opposite) in numbers:
                    bad[item][shift] = metric.badness(fmean([numbers[item, name], numbers[item, opposite]]))
        return bad

    def _add_response(
        self, finding: Finding, metric: MetricInfo, bad: Mapping[str, Mapping[int, float]]
    ) -> None:
        """Add a row of the first table and its sentence, over the items with at least two shifts."""
        by_item: dict[str, float] = {}
        rises = []
        several = [item for item, shifts in self.shifts.items() if len(shifts) > 2]
        for item in several:
            if len(bad[item]) == len(self.shifts[item]):
                curve = list(bad[item].values())
                rises.append(float(all(a < b for a, b in pairwise(curve))))
                correlation_of_item = spearman(list(bad[item]), curve)
                if correlation_of_item is not None:
                    by_item[item] = correlation_of_item
        correlation = bounded_mean(list(by_item.values()), -1, 1)
        of_open = [value for item, value in by_item.items() if item in self.open]
        row = {
            "metric": metric.name,
            **interval("rank correlation", correlation),
            "n": correlation.n,
            "of": len(several),
            **interval("rises at every step", bounded_mean(rises, 0, 1), "rises low", "rises high"),
            "open items": fmean(of_open) if of_open else None,
            "n open": len(of_open),
        }
        finding.add(_RESPONSE, row)
        verdict = f"cannot be judged by {counted(correlation.n, 'item')}"
        if correlation.n >= FEWEST_TESTED:
            verdict = RESPONSES[direction(correlation, list(by_item.values()))]
        size = with_interval(correlation, CORRELATION)
        of = f"{correlation.n} of {counted(len(several), 'item')}"
        finding.says.append(f"{metric.name} {verdict}: mean rank correlation {size} within {of}.")


def _names(shift: int) -> tuple[str, str]:
    """Of a statement, and of the same one with the second possibility in front."""
    return f"{shift} points", f"{shift} points, turned"


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
