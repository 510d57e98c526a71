"""Study ``choice``: whether a metric grows with the distance of stated percentages from the true
distribution."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import combinations_with_replacement

import numpy as np

from selfreflect.errors import ConfigError
from selfreflect.models.base import seed_for
from selfreflect.sources.items import Item
from selfreflect.stats import Estimate, Floats, spearman
from selfreflect.validate.base import MetricInfo, Value
from selfreflect.validate.edits import Possibility, Statement, apportioned
from selfreflect.validate.statistics import (
    ALPHA,
    column_shuffle_p,
    correlation_interval,
    interaction,
    scipy_stats,
)
from selfreflect.validate.study import SIDES, Finding, Numbers, each_metric, interval, with_interval

# Distributions are in steps of one tenth
STEPS = 10
OPTIONS = 4
# By id, the question and its options. An option is one word: of two, one would give away the
# other to a judge that fills in either, whatever the summary says. It should be a single token
# too, as common short words mostly are, since later tokens are predicted from the first and not
# from what was stated.
QUESTIONS = {
    "colour": ("Which colour would you paint the front door", ("red", "blue", "green", "white")),
    "month": ("In which month would you visit the island", ("March", "June", "August", "October")),
}


class MultipleChoice:
    """Study in which each of several distributions over a question's options is true once, and all are
    stated.

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
        total = len(shapes(STEPS))
        if not 2 <= grid <= total:
            raise ConfigError(
                f"a multiple-choice study needs 2 to {total} distributions, not {grid}", code="out_of_range"
            )
        possible = shapes(answers) if answers > 1 else []
        if len(possible) < 2:
            raise ConfigError(
                f"a multiple-choice study needs 2 answers or more in each half, not {answers}",
                code="out_of_range",
            )
        self.items: list[Item] = []
        count = min(grid, len(possible))
        # evenly spaced from the most certain to the even one
        grid_shapes = [possible[index * (len(possible) - 1) // (count - 1)] for index in range(count)]
        tables = []
        for question in QUESTIONS:
            tables.append(self._add(question, grid_shapes, random.Random(seed_for(seed, question))))
        self.distances = np.array(tables)

    def _add(self, question: str, grid_shapes: Sequence[Sequence[int]], rng: random.Random) -> Floats:
        """Add one item per true distribution, and return the question's distances. Options take turns as the
        likeliest."""
        text, options = QUESTIONS[question]
        leading = rng.sample(range(OPTIONS), OPTIONS)
        distributions = []
        summaries = {}
        for index, (largest, *weights) in enumerate(grid_shapes):
            rng.shuffle(weights)
            weights.insert(leading[index % OPTIONS], largest)
            distributions.append(weights)
            shares = zip(options, apportioned(weights, 100), strict=True)
            name = ", ".join(f"{option} {share}%" for option, share in shares)
            summaries[name] = Statement(tuple(map(Possibility, options, weights))).text()
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
        weights_of = np.array(distributions)
        distances: Floats = np.abs(weights_of[:, None] - weights_of).sum(axis=2) / (2 * weights_of[0].sum())
        return distances

    def finding(self, values: Sequence[Value], metrics: Sequence[MetricInfo]) -> Finding:
        finding = Finding(self.name, "net")
        finding.say("extent", statements=self.distances.size, truths=len(self.items))
        for metric, numbers in each_metric(values, metrics):
            self._add_metric(finding, metric, *self._complete(metric, numbers))
        finding.say("limits", form=_form(list(self.distances)) or 0)
        return finding

    def _complete(self, metric: MetricInfo, numbers: Numbers) -> tuple[list[Floats], list[Floats]]:
        """Collect each question's distances and statement badness, shape (true, stated), leaving out
        incomplete ones."""
        badness = []
        for item in self.items:
            for name in item.summaries:
                value = numbers.get((item.id, name))
                badness.append(np.nan if value is None else metric.badness(value))
        tables = np.array(badness, dtype=np.float64).reshape(self.distances.shape)
        # a gap would bias the means of its row and column, so the whole true distribution is left out
        complete = [~np.isnan(table).any(axis=1) for table in tables]
        return (
            [table[rows] for table, rows in zip(self.distances, complete, strict=True)],
            [table[rows] for table, rows in zip(tables, complete, strict=True)],
        )

    def _add_metric(
        self, finding: Finding, metric: MetricInfo, distances: Sequence[Floats], badness: Sequence[Floats]
    ) -> None:
        """Add a metric's row and sentence."""
        net_distances, net_badness = _net(distances), _net(badness)
        x, y = np.concatenate(net_distances), np.concatenate(net_badness)
        truths = np.repeat(np.arange(len(x)), x.shape[1]).tolist()
        rho = correlation_interval(x.ravel(), y.ravel(), groups=truths)
        p = column_shuffle_p(_ranks(net_distances), _ranks(net_badness))
        row = {
            "metric": metric.name,
            **interval("Spearman", rho),
            "p": p,
            "as measured": spearman(np.concatenate(distances).ravel(), np.concatenate(badness).ravel()),
            "form": _form(badness),
            "n": x.size,
            "of": self.distances.size,
        }
        finding.add("net", row)
        verdict = SIDES[_direction(rho, p)] if x.size else "none"
        finding.say(verdict, metric=metric.name, rho=with_interval(rho, "+z.2f"), n=x.size)


def _direction(rho: Estimate, p: float | None) -> int:
    """Return the sign of a correlation if it is clear, else 0. Correlations of 1 or -1 have no interval, as
    all resamples agree."""
    if rho.mean is None or p is None or p > ALPHA:
        return 0
    return int(rho.mean) if abs(rho.mean) == 1 else rho.side_of(0)


def shapes(answers: int) -> list[tuple[int, ...]]:
    """List the distributions of answers over the options, from certain to uniform.

    Shares are in steps of one tenth, rounded to whole answers, the largest first.
    """
    falling = combinations_with_replacement(range(STEPS, -1, -1), OPTIONS)
    rounded = [apportioned(weights, answers) for weights in falling if sum(weights) == STEPS]
    return list(dict.fromkeys(rounded))


def _ranks(tables: Sequence[Floats]) -> list[Floats]:
    """Rank the values of several tables jointly."""
    ranks = scipy_stats().rankdata(np.concatenate(tables)).reshape(-1, tables[0].shape[1])
    return np.split(ranks, np.cumsum([len(table) for table in tables])[:-1])


def _net(tables: Sequence[Floats]) -> list[Floats]:
    """Subtract row and column levels from each question's values."""
    return [interaction(table) if len(table) else table for table in tables]


def _form(tables: Sequence[Floats]) -> float | None:
    """Compute the share of within-item variance that is independent of the truth; None if there is no
    variance."""
    within = np.concatenate([table - table.mean(axis=1, keepdims=True) for table in tables])
    total = float((within**2).sum())
    # what rounding leaves of equal values is no variance
    if total <= 1e-18 * sum(float((table**2).sum()) for table in tables):
        return None
    return max(0.0, 1 - float((np.concatenate(_net(tables)) ** 2).sum()) / total)
