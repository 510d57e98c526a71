"""Study ``choice``: multiple choice whose true distribution is known. Does a metric follow how far the stated
percentages are from it?"""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import combinations_with_replacement

import numpy as np

from selfreflect.errors import ConfigError
from selfreflect.models.base import seed_for
from selfreflect.plots import Curve, Plot
from selfreflect.sources.items import Item
from selfreflect.stats import Estimate, Floats, defined
from selfreflect.validate.base import MetricInfo, Value
from selfreflect.validate.edits.statements import (
    CORRELATION,
    RESPONSES,
    Possibility,
    Statement,
    apportioned,
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
