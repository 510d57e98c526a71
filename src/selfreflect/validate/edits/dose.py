"""Study ``dose``: stated percentages, shifted by a known distance. Does a metric follow the distance?"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise
from statistics import fmean

from msgspec.structs import replace

from selfreflect.errors import DataError
from selfreflect.grouping import group_indices
from selfreflect.metric.tasks import masked_words
from selfreflect.models.base import seed_for
from selfreflect.sources.items import Item
from selfreflect.stats import FEWEST_TESTED, clear_sign, sign_flip_p
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
    other_possibilities,
    stated,
)
from selfreflect.validate.statistics import Worsening, bounded_mean, spearman
from selfreflect.validate.study import (
    Draft,
    Finding,
    Layout,
    Numbers,
    Row,
    each_metric,
    interval,
    with_interval,
)

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
_LIMITS = (
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
        draft = Draft(self.name, _RESPONSE, _CHANGE)
        extent = (
            f"Percentages were shifted in {counted(len(self.items), 'item')}. In {len(self.open)} of them a "
            "masked-out answer has a word that only the two percentages can tell."
        )
        for reason, count in sorted(self.skipped.items()):
            extent += f" {counted(count, 'item')} left out: {reason}."
        draft.says.append(extent)
        for metric, numbers in each_metric(values, metrics):
            bad = self._badness(metric, numbers)
            row, sentence = self._response(metric, bad)
            draft.add(_RESPONSE, row)
            draft.says.append(sentence)
            for shift, change in self._changes(bad).items():
                cells = {"metric": metric.name, "shift": shift, **interval("change", change.mean)}
                draft.add(_CHANGE, {**cells, "n": change.mean.n, "of": change.total})
        draft.says.append(_LIMITS)
        return draft.finding()

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

    def _response(self, metric: MetricInfo, bad: Mapping[str, Mapping[int, float]]) -> tuple[Row, str]:
        """A row of the first table and its sentence, over the items with at least two shifts."""
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
        verdict = f"cannot be judged by {counted(correlation.n, 'item')}"
        if correlation.n >= FEWEST_TESTED:
            verdict = RESPONSES[clear_sign(correlation, sign_flip_p(list(by_item.values())))]
        size = with_interval(correlation, CORRELATION)
        of = f"{correlation.n} of {counted(len(several), 'item')}"
        return row, f"{metric.name} {verdict}: mean rank correlation {size} within {of}."

    def _changes(self, bad: Mapping[str, Mapping[int, float]]) -> dict[int, Worsening]:
        """By shift, against the unshifted statement."""
        by_shift: dict[int, Worsening] = {}
        for shift in SHIFTS:
            having = [item for item, shifts in self.shifts.items() if shift in shifts]
            changes = [bad[item][shift] - bad[item][0] for item in having if {0, shift} <= bad[item].keys()]
            if having:
                by_shift[shift] = Worsening(changes, len(having))
        return by_shift


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
