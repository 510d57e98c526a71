"""Study ``dose``: stated percentages that are wrong by a known number of points, and how a metric
responds."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, pairwise
from statistics import fmean

from msgspec.structs import replace

from selfreflect.errors import DataError
from selfreflect.grouping import group_indices
from selfreflect.metric.tasks import masked_words
from selfreflect.models.base import seed_for
from selfreflect.render.table import Cell
from selfreflect.sources.items import Item
from selfreflect.stats import clear_sign, sign_flip_p
from selfreflect.validate.base import MetricInfo, Value
from selfreflect.validate.edits.edits import CannotEditError, Material, other_possibilities
from selfreflect.validate.edits.statements import (
    Grouping,
    Point,
    Possibility,
    Statement,
    badness,
    correlations,
    statements,
)
from selfreflect.validate.statistics import bounded_mean, spearman
from selfreflect.validate.study import (
    Curve,
    Finding,
    Plot,
    counted,
    interval,
    make_table,
    percent,
    values_by_metric,
    with_interval,
)
from selfreflect.validate.worsening import FEWEST, Worsening

SHIFTS = (10, 20, 30, 40, 50)
"""Percentage points."""

_CORRELATION = "+z.2f"
RESPONSE_NOTES = (
    "rank correlation: mean over items of Spearman's correlation, within the item, of the shift with the "
    "value, its sign turned where higher is better: 1 if every larger shift is worse; undefined if all "
    "values of an item are equal",
    "rises at every step: share of items in which each larger shift is worse than the one before; equal "
    "values are no rise",
    "n: items that have a rank correlation, of those with at least two shifts",
    "open items: the mean among items with a masked word that only the two percentages can tell; in the "
    "others the rest of the answer gives it away, so even a perfect reader of masked words need not respond",
    "intervals: 95% BCa bootstrap over items; exact where all items agree",
)
CURVE_NOTES = (
    "change: mean change against the unshifted statement, its sign turned where higher is better, so that "
    "above 0 is worse for every metric",
    "each value is the mean of two statements, one with each of the two possibilities in front",
    "an item has a shift if its most frequent possibility has at least as many points, so larger shifts are "
    "means over fewer items",
)


class ShiftedPercentages:
    """For each item the statement of its answers, and the same with 10 to 50 points moved from the most
    frequent possibility to the next.

    If there is no next one, a possibility from another item takes its place, at 0%. Both halves are made of
    all answers, since all are stated: the total variation between the stated and the true distribution is
    then the shift itself. Each statement is measured twice, with each of the two possibilities in front, and
    the mean counts: else a judge that likes a small number in front would seem to like the shift.

    Raises:
        DataError: there are no items, two have the same id, or none has a possibility of 10% or more.
    """

    name = "shifted_percentages"

    def __init__(self, items: Sequence[Item], seed: int = 0, grouping: Grouping = group_indices) -> None:
        self._statements = statements(items, grouping)
        self._seed = seed
        self.skipped: Counter[str] = Counter()
        """Why an item has no shifts -> how often."""
        self.borrowed = 0
        """Items with one possibility, whose points go to one that nobody gave."""
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
        statement = self._in_points(item)
        answers = item.masked_out + item.conditioning
        if is_open(answers, *statement.named[:2]):
            self.open.add(item.id)
        points: dict[int, Point] = {}
        summaries = {}
        for shift in (0, *SHIFTS):
            if shift <= statement.named[0].weight:
                first, second, *others = shifted(statement, shift).named
                names = f"{shift} points", f"{shift} points, turned"
                summaries[names[0]] = Statement((first, second, *others), statement.rest).text()
                summaries[names[1]] = Statement((second, first, *others), statement.rest).text()
                points[shift] = Point(item.id, shift / 100, names)
        self.points[item.id] = points
        self.items.append(
            replace(item, masked_out=answers, conditioning=answers, summaries=summaries, order=())
        )

    def _in_points(self, item: Item) -> Statement:
        """The item's statement in percentage points, with a possibility that points can be moved to."""
        statement = self._statements[item.id]
        if statement is None:
            raise CannotEditError("no answers that can be stated")
        *shares, rest = statement.percentages
        texts = [possibility.text for possibility in statement.named]
        named = list(map(Possibility, texts, shares))
        if named[0].weight < SHIFTS[0]:
            raise CannotEditError(f"no possibility has {SHIFTS[0]}%")
        if len(named) == 1:
            others = other_possibilities(self._statements, item.id)
            rng = random.Random(seed_for(self._seed, item.id, "shift"))
            material = Material(item.masked_out + item.conditioning, others, rng)
            named.append(Possibility(material.new_possibility(), 0))
            self.borrowed += 1
        return Statement(tuple(named), rest)

    def finding(self, values: Sequence[Value], metrics: Sequence[MetricInfo]) -> Finding:
        numbers = values_by_metric(values)
        responses = [_Response(metric, self, numbers.get(metric.name, {})) for metric in metrics]
        rows = [response.row() for response in responses]
        shift_rows = list(chain.from_iterable(response.shift_rows() for response in responses))
        shares = dict.fromkeys(("rises at every step", "rises low", "rises high"), ".0%")
        tables = (
            make_table("Response to shifted percentages", rows, _CORRELATION, RESPONSE_NOTES, shares),
            make_table("Change by shift", shift_rows, "+z.4f", CURVE_NOTES),
        )
        says = (self._extent(), *(response.sentence() for response in responses), self._limits())
        curves = [response.curve() for response in responses]
        labels = "shift in percentage points", "mean change for the worse (of its root mean square)"
        plot = Plot("dose-response", "Response to shifted percentages", *labels, tuple(filter(None, curves)))
        return Finding(self.name, tables, says, (plot,))

    def _extent(self) -> str:
        full = sum(SHIFTS[-1] in points for points in self.points.values())
        sentence = (
            f"Percentages were shifted in {counted(len(self.items), 'item')}, in {full} of them by up to "
            f"{SHIFTS[-1]} points. In {len(self.open)} of them a masked-out answer has a word that only the "
            "two percentages can tell; in the others the rest of the answer gives it away, and metrics that "
            "read masked words need not respond."
        )
        if self.borrowed:
            sentence += f" In {self.borrowed} of them the points go to a possibility that nobody gave."
        for reason, count in sorted(self.skipped.items()):
            sentence += f" {counted(count, 'item')} left out: {reason}."
        return sentence

    def _limits(self) -> str:
        return (
            "No clear response may come from a metric that does not read percentages, a judge that is too "
            "weak to, or too few items. If answers were grouped by spelling, the two possibilities may mean "
            "the same: group by meaning. A judge that likes some numbers, such as 0%, whatever they say, "
            "shows a small response in all items alike; only multiple choice subtracts that. How a metric "
            "reads words such as “probably” is another matter."
        )


def shifted(statement: Statement, points: int) -> Statement:
    """Move ``points`` from the first possibility to the second. Weights are percentage points."""
    first, second, *others = statement.named
    less = Possibility(first.text, first.weight - points)
    more = Possibility(second.text, second.weight + points)
    return Statement((less, more, *others), statement.rest)


def is_open(masked_out: Sequence[str], one: Possibility, other: Possibility) -> bool:
    """Whether the same word of the same masked-out answer could be that of either possibility: in ``The _
    bridge.`` both ``mill`` and ``church``, in ``The wood _ in damp air.`` only one."""
    words = {task.masked: task.text for task in masked_words([one.text], every=True)}
    other_words = {task.masked: task.text for task in masked_words([other.text], every=True)}
    for task in masked_words(masked_out):
        both = task.masked in words and task.masked in other_words
        if both and words[task.masked] != other_words[task.masked]:
            return True
    return False


_VERDICTS = {
    1: "gets worse with the shift, as it must",
    0: "shows no clear response to the shift",
    -1: "gets BETTER with the shift",
}


class _Response:
    """How one metric responds to the shifts."""

    def __init__(
        self, metric: MetricInfo, study: ShiftedPercentages, values: Mapping[tuple[str, str], float]
    ) -> None:
        self.metric = metric
        self.total = 0
        """Items with at least two shifts."""
        self.changes: dict[int, Worsening] = {}
        """By shift, against the unshifted statement."""
        every = chain.from_iterable(points.values() for points in study.points.values())
        bad = badness(metric, every, values)
        whole: dict[Point, float] = {}
        rises = []
        for points in study.points.values():
            curve = list(points.values())
            if len(curve) < 3:
                continue
            self.total += 1
            if bad.keys() >= set(curve):
                whole |= {point: bad[point] for point in curve}
                rises.append(float(all(bad[a] < bad[b] for a, b in pairwise(curve))))
        by_item = correlations(whole, spearman)
        self.correlations = list(by_item.values())
        self.correlation = bounded_mean(self.correlations, -1, 1)
        self.rises = bounded_mean(rises, 0, 1)
        self.of_open = [value for item, value in by_item.items() if item in study.open]
        for shift in SHIFTS:
            having = [points for points in study.points.values() if shift in points]
            both = [points for points in having if points[0] in bad and points[shift] in bad]
            changes = [bad[points[shift]] - bad[points[0]] for points in both]
            if having:
                self.changes[shift] = Worsening(changes, len(having))

    def row(self) -> dict[str, Cell]:
        return {
            "metric": self.metric.name,
            **interval("rank correlation", self.correlation),
            "n": self.correlation.n,
            "of": self.total,
            **interval("rises at every step", self.rises, "rises low", "rises high"),
            "open items": fmean(self.of_open) if self.of_open else None,
            "n open": len(self.of_open),
        }

    def shift_rows(self) -> Iterator[dict[str, Cell]]:
        for shift, change in self.changes.items():
            counts = {"n": change.mean.n, "of": change.mean.total}
            yield {"metric": self.metric.name, "shift": shift, **interval("change", change.mean), **counts}

    def sentence(self) -> str:
        rho = self.correlation
        if not any(change.changes for change in self.changes.values()):
            return f"{self.metric.name} has no value for any shifted statement."
        if rho.mean is None:
            return f"{self.metric.name} has no item whose values differ with at least two shifts."
        verdict = f"cannot be judged by {counted(rho.n, 'item')}"
        if rho.n >= FEWEST:
            verdict = _VERDICTS[clear_sign(rho, sign_flip_p(self.correlations))]
        return (
            f"{self.metric.name} {verdict}: mean rank correlation {with_interval(rho, _CORRELATION)} within "
            f"{rho.n} of {counted(self.total, 'item')}; it gets worse at every step in "
            f"{percent(self.rises.mean or 0)} of those with all values."
        )

    def curve(self) -> Curve | None:
        """Mean changes in units of the root mean square of all changes, so that metrics of any unit share an
        axis; None without values."""
        changes = list(chain.from_iterable(change.changes for change in self.changes.values()))
        if not changes:
            return None
        unit = math.sqrt(fmean(change**2 for change in changes)) or 1.0
        x, y, low, high = [0.0], [0.0], [0.0], [0.0]
        for shift, change in self.changes.items():
            mean = change.mean
            if mean.mean is not None:
                x.append(float(shift))
                y.append(mean.mean / unit)
            if mean.low is not None and mean.high is not None:
                low.append(mean.low / unit)
                high.append(mean.high / unit)
        if len(low) < len(x):
            return Curve(self.metric.name, tuple(x), tuple(y))
        return Curve(self.metric.name, *map(tuple, (x, y, low, high)))
