"""Stated percentages that are wrong by a known number of points: the dose-response curve of a metric."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from statistics import fmean

from msgspec.structs import replace

from selfreflect.errors import DataError
from selfreflect.grouping import group_indices
from selfreflect.metric.tasks import masked_words
from selfreflect.models.base import seed_for
from selfreflect.render.table import Cell, Column, Table
from selfreflect.sources.items import Item
from selfreflect.stats import Estimate
from selfreflect.validate.base import MetricInfo, Value
from selfreflect.validate.edits.edits import CannotEditError, Elsewhere, foreign_texts
from selfreflect.validate.edits.possibilities import Grouping, Possibility, Statement, statements
from selfreflect.validate.statistics import bounded_mean, spearman
from selfreflect.validate.study import (
    Curve,
    Finding,
    Plot,
    counted,
    interval_cells,
    percent,
    values_by_metric,
    with_interval,
)
from selfreflect.validate.worsening import FEWEST, Worsening, clear_sign

SHIFTS = (10, 20, 30, 40, 50)
"""Percentage points."""

_CHANGE, _CORRELATION = "+z.4f", "+z.2f"
RESPONSE_COLUMNS = (
    Column("metric"),
    Column("rank correlation", _CORRELATION),
    Column("95% low", _CORRELATION),
    Column("95% high", _CORRELATION),
    Column("n", "d"),
    Column("of", "d"),
    Column("rises at every step", ".0%"),
    Column("rises low", ".0%"),
    Column("rises high", ".0%"),
    Column("open items", _CORRELATION),
    Column("n open", "d"),
)
CURVE_COLUMNS = (
    Column("metric"),
    Column("shift", "d"),
    Column("change", _CHANGE),
    Column("95% low", _CHANGE),
    Column("95% high", _CHANGE),
    Column("n", "d"),
    Column("of", "d"),
)
RESPONSE_NOTES = (
    "rank correlation: mean over items of Spearman's correlation, within the item, of the shift with the value, its sign turned where "
    "higher is better: 1 where every larger shift is worse; undefined where all values of an item are equal",
    "rises at every step: share of items in which each larger shift is worse than the one before; equal values are no rise",
    "n: items that have a rank correlation, of those with at least two shifts",
    "open items: the mean among items with a masked word that only the two percentages can tell; in the others the rest of the answer "
    "gives it away, so that even a metric which reads masked words and percentages perfectly need not respond",
    "intervals: 95% BCa bootstrap over items; where all items agree, they are exact",
)
CURVE_NOTES = (
    "change: mean change against the unshifted statement, its sign turned where higher is better, so that above 0 is worse for each metric",
    "each value is the mean of two statements, with either of the two possibilities in front",
    "an item has a shift where its most frequent possibility has at least as many points, so that larger shifts are means over fewer items",
)


class ShiftedPercentages:
    """For each item the statement of its answers, and the same with 10 to 50 points moved from the most
    frequent possibility to the next.

    Where there is no next one, a possibility from another item takes its place, at 0%. Both halves are made
    of all answers, since all are
    stated: the distance between the stated and the true distribution is then the shift itself, in total
    variation. Each statement is measured twice, with either of the two possibilities in front, and the mean
    of the two counts: else a judge that likes a small number in front would seem to like the shift.

    Raises:
        DataError: there are no items, two have one id, or none has a possibility of 10% or more.
    """

    name = "shifted_percentages"

    def __init__(self, items: Sequence[Item], seed: int = 0, grouping: Grouping = group_indices) -> None:
        found = statements(items, grouping)
        self.skipped: Counter[str] = Counter()
        """Why an item has no shifts -> how often."""
        self.borrowed = 0
        """Items with one possibility, whose points go to one that nobody gave."""
        self.shifts: dict[str, tuple[int, ...]] = {}
        """Item -> the shifts that it has room for."""
        self.open: set[str] = set()
        """Items with a masked word that only the two percentages can tell, see :func:`opened`."""
        self.items: list[Item] = []
        for item in items:
            try:
                statement = self._with_two(item, found, seed)
            except CannotEditError as error:
                self.skipped[str(error)] += 1
            else:
                self._add(item, statement)
        if not self.items:
            reasons = ", ".join(sorted(self.skipped))
            raise DataError(f"percentages can be shifted in none of the {len(items)} items ({reasons})")

    def finding(self, values: Sequence[Value], metrics: Sequence[MetricInfo]) -> Finding:
        known = values_by_metric(values)
        responses = [
            _Response(metric, self.shifts, self.open, known.get(metric.name, {})) for metric in metrics
        ]
        tables = (
            Table(
                "Response to shifted percentages",
                RESPONSE_COLUMNS,
                tuple(response.row for response in responses),
                RESPONSE_NOTES,
            ),
            Table(
                "Change by shift",
                CURVE_COLUMNS,
                tuple(row for response in responses for row in response.rows),
                CURVE_NOTES,
            ),
        )
        says = (self._extent(), *(response.says for response in responses), self._limits())
        return Finding(self.name, tables, says, (_plot(responses),))

    def _with_two(self, item: Item, found: Mapping[str, Statement | None], seed: int) -> Statement:
        """The statement in percentage points, with a possibility that points can be moved to."""
        statement = found[item.id]
        if statement is None:
            raise CannotEditError("no answers that can be stated")
        *shares, rest = statement.percentages
        named = [Possibility(one.text, share) for one, share in zip(statement.named, shares, strict=True)]
        if named[0].weight < SHIFTS[0]:
            raise CannotEditError(f"no possibility has {SHIFTS[0]}%")
        if len(named) == 1:
            rng = random.Random(seed_for(seed, item.id, "shift"))
            elsewhere = Elsewhere(item.masked_out + item.conditioning, foreign_texts(found, item.id), rng)
            named.append(Possibility(elsewhere.foreign(), 0))
            self.borrowed += 1
        return Statement(tuple(named), rest)

    def _add(self, item: Item, statement: Statement) -> None:
        self.shifts[item.id] = tuple(shift for shift in SHIFTS if shift <= statement.named[0].weight)
        changed = [(shift, shifted(statement, shift)) for shift in (0, *self.shifts[item.id])]
        made = {
            name: text
            for shift, one in changed
            for name, text in zip(summary_names(shift), _both_ways(one), strict=True)
        }
        answers = item.masked_out + item.conditioning
        if opened(answers, *statement.named[:2]):
            self.open.add(item.id)
        self.items.append(replace(item, masked_out=answers, conditioning=answers, summaries=made, order=()))

    def _extent(self) -> str:
        full = sum(SHIFTS[-1] in shifts for shifts in self.shifts.values())
        done = f"Percentages were shifted in {counted(len(self.items), 'item')}, in {full} of them by up to {SHIFTS[-1]} points."
        done += (
            f" In {len(self.open)} of them a masked-out answer has a word that only the two percentages can tell; in the others the rest "
            "of the answer gives it away, and metrics that read masked words need not respond."
        )
        if self.borrowed:
            done += f" In {self.borrowed} of them only one possibility is named, and the points go to one that nobody gave."
        return done + "".join(
            f" {counted(count, 'item')} left out: {reason}." for reason, count in sorted(self.skipped.items())
        )

    def _limits(self) -> str:
        return (
            "No clear response may come from a metric that does not read percentages, from a judge that is too weak to, or from too few "
            "items, where the interval is wide. Where the answers were grouped by spelling, the two possibilities may mean the same, and "
            "the shift between them is none: groups by meaning are the better test. All items pass through similar numbers, so that a "
            "judge that likes some of them, such as a 0%, whatever they say, shows a small response in all items alike; only the study of "
            "multiple choice takes that out. How a metric reads words such as “probably” is another matter."
        )


def summary_names(shift: int) -> tuple[str, str]:
    """With the possibility in front that loses the points, and with the other one there."""
    return f"{shift} points", f"{shift} points, turned"


def _both_ways(statement: Statement) -> tuple[str, str]:
    first, second, *others = statement.named
    return statement.text(), Statement((second, first, *others), statement.rest).text()


def opened(masked_out: Sequence[str], one: Possibility, other: Possibility) -> bool:
    """Whether the same word of the same masked-out answer could be that of either possibility: in ``The _
    bridge.`` both ``mill`` and ``church``, in ``The wood _ in damp air.`` only one."""
    known = [
        {masked.masked: masked.text for masked in masked_words([text], every=True)}
        for text in (one.text, other.text)
    ]
    fillings = [[words.get(task.masked) for words in known] for task in masked_words(masked_out)]
    return any(None not in both and both[0] != both[1] for both in fillings)


def shifted(statement: Statement, points: int) -> Statement:
    """``points`` moved from the first possibility to the second. Weights are percentage points."""
    first, second, *others = statement.named
    moved = (Possibility(first.text, first.weight - points), Possibility(second.text, second.weight + points))
    return Statement((*moved, *others), statement.rest)


_SAID = {
    1: "gets worse with the shift, as it must",
    0: "shows no clear response to the shift",
    -1: "gets BETTER with the shift",
}


@dataclass(frozen=True)
class _Response:
    """What one metric makes of the shifts."""

    metric: MetricInfo
    shifts: Mapping[str, Sequence[int]]
    open: Set[str]
    known: Mapping[tuple[str, str], float]

    def _bad(self, item: str, shift: int) -> float | None:
        values = [self.known[item, name] for name in summary_names(shift) if (item, name) in self.known]
        return self.metric.badness(fmean(values)) if len(values) == 2 else None

    @cached_property
    def lines(self) -> dict[str, list[tuple[int, float]]]:
        """Item -> its shifts with their badness, for those items where every shift has a value."""
        found = {
            id_: [(shift, self._bad(id_, shift)) for shift in (0, *shifts)]
            for id_, shifts in self.shifts.items()
        }
        whole = {id_: [(shift, bad) for shift, bad in line if bad is not None] for id_, line in found.items()}
        return {id_: line for id_, line in whole.items() if len(line) == len(found[id_])}

    @cached_property
    def changes(self) -> dict[int, Worsening]:
        """Shift -> changes against the unshifted statement."""
        found: dict[int, Worsening] = {}
        for shift in SHIFTS:
            having = [id_ for id_, shifts in self.shifts.items() if shift in shifts]
            pairs = [(self._bad(id_, 0), self._bad(id_, shift)) for id_ in having]
            found[shift] = Worsening(
                [after - before for before, after in pairs if before is not None and after is not None],
                len(having),
            )
        return found

    @property
    def ranked(self) -> int:
        """Items with enough shifts for a rank correlation."""
        return sum(len(shifts) > 1 for shifts in self.shifts.values())

    @cached_property
    def correlations(self) -> dict[str, float]:
        """By item."""
        found = {id_: spearman(*zip(*line, strict=True)) for id_, line in self.lines.items() if len(line) > 2}
        return {id_: rho for id_, rho in found.items() if rho is not None}

    @cached_property
    def correlation(self) -> Estimate:
        return bounded_mean(list(self.correlations.values()), -1, 1)

    @cached_property
    def rises(self) -> Estimate:
        lines = [line for line in self.lines.values() if len(line) > 2]
        return bounded_mean([float(all(b > a for (_, a), (_, b) in pairwise(line))) for line in lines], 0, 1)

    @property
    def row(self) -> tuple[Cell, ...]:
        among_open = [rho for id_, rho in self.correlations.items() if id_ in self.open]
        mean = fmean(among_open) if among_open else None
        return (
            self.metric.name,
            *interval_cells(self.correlation),
            self.correlation.n,
            self.ranked,
            *interval_cells(self.rises),
            mean,
            len(among_open),
        )

    @property
    def rows(self) -> list[tuple[Cell, ...]]:
        found = [(shift, change.mean) for shift, change in self.changes.items() if change.total]
        return [(self.metric.name, shift, *interval_cells(mean), mean.n, mean.total) for shift, mean in found]

    @property
    def says(self) -> str:
        rho, name = self.correlation, self.metric.name
        if rho.mean is None:
            flat = any(change.changes for change in self.changes.values())
            return f"{name}: " + (
                "no item has values that differ with at least two shifts, so it has no response that could be ranked."
                if flat
                else "no shifted statement has a value, so nothing can be said of its response."
            )
        if rho.low is None or rho.high is None:
            return f"{name}: the rank correlation with the shift is {rho.mean:+z.2f} in one item, and one item allows no conclusion."
        few = f"cannot be judged by {rho.n} items, which are too few"
        said = few if rho.n < FEWEST else _SAID[clear_sign(rho, list(self.correlations.values()))]
        return (
            f"{name} {said}: mean rank correlation {with_interval(rho, _CORRELATION)} within {rho.n} of {counted(self.ranked, 'item')}; "
            f"it gets worse at every step in {percent(self.rises.mean or 0)} of those with all values."
        )

    @property
    def curve(self) -> Curve | None:
        """Mean changes in units of the root mean square of all changes, so that metrics of any unit share an
        axis. None without values."""
        found = {shift: change.mean for shift, change in self.changes.items() if change.changes}
        every = [change for worsening in self.changes.values() for change in worsening.changes]
        if not every:
            return None
        unit = math.sqrt(math.fsum(change**2 for change in every) / len(every)) or 1.0
        ends = [(mean.mean or 0.0, mean.low, mean.high) for mean in found.values()]
        whole = all(low is not None and high is not None for _, low, high in ends)
        return Curve(
            self.metric.name,
            (0.0, *map(float, found)),
            (0.0, *(mean / unit for mean, _, _ in ends)),
            (0.0, *((low or 0.0) / unit for _, low, _ in ends)) if whole else (),
            (0.0, *((high or 0.0) / unit for _, _, high in ends)) if whole else (),
        )


def _plot(responses: Sequence[_Response]) -> Plot:
    curves = tuple(curve for response in responses if (curve := response.curve))
    y = "mean change for the worse (of its root mean square)"
    return Plot("dose-response", "Response to shifted percentages", "shift in percentage points", y, curves)
