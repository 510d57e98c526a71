"""Edits of summaries whose effect is known: does a metric notice what was done?"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from msgspec.structs import replace

from selfreflect.errors import DataError
from selfreflect.grouping import group_indices
from selfreflect.models.base import Generator, seed_for
from selfreflect.render.table import Cell, Column, Table
from selfreflect.sources.items import Item
from selfreflect.validate.base import MetricInfo, Undefined, Value
from selfreflect.validate.edits.edits import (
    PAD,
    STATEMENT_EDITS,
    TEXT_EDITS,
    CannotEditError,
    Elsewhere,
    StatementEdit,
    foreign_texts,
)
from selfreflect.validate.edits.possibilities import FRAME, Grouping, Statement, statements
from selfreflect.validate.edits.writer import frames
from selfreflect.validate.statistics import bounded_mean, detectable_rate
from selfreflect.validate.study import (
    Finding,
    Plot,
    counted,
    dot_plot,
    interval_cells,
    joined,
    percent,
    values_by_metric,
)
from selfreflect.validate.worsening import FEWEST, Worsening

BASE, QUESTION = "template", "repeat the question"
OWN = " (own summaries)"

_NOT_MADE = "Edits that could not be made"

Edit = Callable[[Elsewhere], str]

_SHARE, _CHANGE = ".0%", "+z.4f"
COLUMNS = (
    Column("metric"),
    Column("edit"),
    Column("worse", _SHARE),
    Column("worse low", _SHARE),
    Column("worse high", _SHARE),
    Column("change", _CHANGE),
    Column("change low", _CHANGE),
    Column("change high", _CHANGE),
    Column("n", "d"),
    Column("of", "d"),
)
NOTES = (
    "worse: share of items in which the metric finds the edited summary worse than the one before the edit; ties are losses",
    "change: mean change of the value, with its sign turned where higher is better, so that above 0 is worse for every metric",
    "of: items that have the edit, n: those with a value for both; several own summaries of one item count as one, by their mean",
    "intervals: 95% BCa bootstrap over items; where all items agree, the share's is exact",
)


@dataclass(frozen=True)
class EditedPair:
    """Two summaries of one item, by name: before and after an edit."""

    edit: str
    item: str
    before: str
    after: str


class Interventions:
    """A template's statement of every item's answers and the items' own summaries, each with labelled edits.

    Args:
        grouping: which answers say the same; by spelling unless given.
        writer: puts the statement into a sentence of its own for each item. Items for which it fails have no
            statement.

    Raises:
        DataError: there are no items, two have one id, or nothing can be edited.
    """

    name = "interventions"

    def __init__(
        self,
        items: Sequence[Item],
        seed: int = 0,
        grouping: Grouping = group_indices,
        writer: Generator | None = None,
    ) -> None:
        self._seed = seed
        self._statements = statements(items, grouping)
        self._frames = self._written(items, writer)
        self.pairs: list[EditedPair] = []
        self.skipped: Counter[tuple[str, str]] = Counter()
        """(edit, why it could not be made) -> how often."""
        self.items = [made for item in items if (made := self._made(item)).summaries]
        if not self.items:
            reasons = ", ".join(sorted({reason for _, reason in self.skipped}))
            raise DataError(
                f"none of the {len(items)} items has a summary that can be edited or answers that can be stated ({reasons})"
            )

    def finding(self, values: Sequence[Value], metrics: Sequence[MetricInfo]) -> Finding:
        known = values_by_metric(values)
        results = [
            _EditResult(metric, edit, pairs, known.get(metric.name, {}))
            for metric in metrics
            for edit, pairs in self._edits().items()
        ]
        tables = [
            Table("Interventions", COLUMNS, tuple(result.row for result in results), NOTES),
            self._example(),
        ]
        if self.skipped:
            rows = tuple((edit, reason, count) for (edit, reason), count in sorted(self.skipped.items()))
            tables.append(Table(_NOT_MADE, (Column("edit"), Column("why"), Column("count", "d")), rows))
        plots = [plot for metric in metrics for plot in _plot(metric, results)]
        return Finding(
            self.name,
            tuple(tables),
            (self._extent(), *(_says(metric, results) for metric in metrics), self._limits()),
            tuple(plots),
        )

    def _written(self, items: Sequence[Item], writer: Generator | None) -> dict[str, str | Undefined]:
        stating = [item for item in items if self._statements[item.id]]
        if writer is None:
            return {item.id: FRAME for item in stating}
        return {
            item.id: frame for item, frame in zip(stating, frames(stating, writer, self._seed), strict=True)
        }

    def _made(self, item: Item) -> Item:
        """The item with the summaries to be measured in place of its own."""
        made: dict[str, str] = {}
        statement, frame = self._statements[item.id], self._frames.get(item.id, "")
        if statement is None:
            self.skipped[BASE, "no answers that can be stated"] += 1
        elif isinstance(frame, Undefined):
            self.skipped[BASE, f"writer: {frame.reason}: {frame.message}"] += 1
        else:
            self._add(item, made, BASE, statement.text(frame), _statement_edits(item, statement, frame))
        for name, text in item.summaries.items():
            taken = {name, *(f"{name}: {edit}" for edit in TEXT_EDITS)} & made.keys()
            if taken or not text.strip():
                self.skipped["all" + OWN, "its name is that of a made one" if taken else "it is blank"] += 1
            else:
                edits = {edit: partial(change, text) for edit, change in TEXT_EDITS.items()}
                self._add(item, made, name, text, edits, OWN)
        return replace(item, summaries=made, order=())

    def _add(
        self,
        item: Item,
        made: dict[str, str],
        name: str,
        text: str,
        edits: Mapping[str, Edit],
        label: str = "",
    ) -> None:
        """Whatever can be made of one summary, and the summary itself, if anything can."""
        foreign = foreign_texts(self._statements, item.id)
        for edit, change in edits.items():
            rng = random.Random(seed_for(self._seed, item.id, name, edit))
            try:
                edited = change(Elsewhere(item.masked_out + item.conditioning, foreign, rng))
                if edited == text:
                    raise CannotEditError("it would change nothing")
            except CannotEditError as error:
                self.skipped[edit + label, str(error)] += 1
            else:
                made |= {name: text, f"{name}: {edit}": edited}
                self.pairs.append(EditedPair(edit + label, item.id, name, f"{name}: {edit}"))

    def _edits(self) -> dict[str, list[EditedPair]]:
        """Edit -> its pairs, in the order of the tables."""
        found: dict[str, list[EditedPair]] = {
            edit: [] for edit in (*STATEMENT_EDITS, PAD, QUESTION, *(edit + OWN for edit in TEXT_EDITS))
        }
        for pair in self.pairs:
            found[pair.edit].append(pair)
        return {edit: pairs for edit, pairs in found.items() if pairs}

    def _example(self) -> Table:
        """All that was made of the item with the most edits, so that a reader can see what the labels
        mean."""
        item = max(self.items, key=lambda item: len(item.summaries))
        return Table(
            "What was made of one item",
            (Column("summary"), Column("text")),
            tuple(item.summaries.items()),
            (item.question,),
        )

    def _extent(self) -> str:
        with_statement = sum(BASE in item.summaries for item in self.items)
        skipped = sum(self.skipped.values())
        left_out = (
            f" {counted(skipped, 'edit')} could not be made; the table “{_NOT_MADE}” says why."
            if skipped
            else ""
        )
        made = f"{counted(len(self.pairs), 'edit')} of {counted(len(self.items), 'item')} compared with what they were made from"
        return f"{made}; {with_statement} of the items have a statement of their answers.{left_out}"

    def _limits(self) -> str:
        n = max(len({pair.item for pair in pairs}) for pairs in self._edits().values())
        rate = detectable_rate(n)
        power = (
            f"With {counted(n, 'item')} not even an edit that is always noticed could be told from a coin toss."
            if rate is None
            else f"With {counted(n, 'item')} an edit has to be noticed in {percent(rate)} of them to be told from a coin toss "
            "with a power of 80%."
        )
        return (
            f"{power} The tests are not adjusted for their number. Where the answers were grouped by spelling, two possibilities may "
            "mean the same, so that an edit of one of them changes little: groups by meaning are the better test. Where nearly every "
            "answer is worded anew, most of the statement is “something else”, and an edit of a rare possibility is a small one. "
            "A possibility that only the masked-out half holds is unknown to the conditioning one: with few answers a metric that reads "
            "both may be right not to mind that it is dropped. An edit is wrong about the answers at hand: a possibility that nobody gave "
            "may still be true."
        )


class _EditResult:
    """What one metric makes of one edit."""

    def __init__(
        self,
        metric: MetricInfo,
        edit: str,
        pairs: Sequence[EditedPair],
        known: Mapping[tuple[str, str], float],
    ) -> None:
        self.metric, self.edit = metric, edit
        changes: dict[str, list[float]] = defaultdict(list)
        worse: dict[str, list[bool]] = defaultdict(list)
        for pair in pairs:
            before, after = known.get((pair.item, pair.before)), known.get((pair.item, pair.after))
            if before is not None and after is not None:
                changes[pair.item].append(metric.badness(after) - metric.badness(before))
                worse[pair.item].append(metric.wins(before, after))
        self.worse = bounded_mean([sum(found) / len(found) for found in worse.values()], 0, 1)
        self.change = Worsening(
            [sum(found) / len(found) for found in changes.values()], len({pair.item for pair in pairs})
        )

    @property
    def row(self) -> tuple[Cell, ...]:
        change = self.change.mean
        return (
            self.metric.name,
            self.edit,
            *interval_cells(self.worse),
            *interval_cells(change),
            change.n,
            change.total,
        )


def _plot(metric: MetricInfo, results: Sequence[_EditResult]) -> tuple[Plot, ...]:
    return dot_plot(
        f"interventions-{metric.name}",
        f"{metric.name}: how often an edit is marked down",
        "share of items (0.5: chance)",
        [(result.edit, result.worse) for result in results if result.metric == metric],
        against=0.5,
    )


def _says(metric: MetricInfo, results: Sequence[_EditResult]) -> str:
    """One paragraph. Padding is told apart from the rest: it takes nothing away, so that a metric need not
    mind it."""
    mine = [result for result in results if result.metric == metric]
    found: dict[int, list[str]] = {1: [], 0: [], -1: []}
    padding, few = [], []
    for result in mine:
        change = result.change.mean
        if change.mean is None:
            continue
        if change.n < FEWEST:
            few.append(result.edit)
        elif result.edit.startswith(PAD):
            said = {
                1: "is clearly for the worse",
                0: "is not clear",
                -1: "is clearly for the better: it can be gamed by length",
            }
            padding.append(
                f"The change by {result.edit} ({change.mean:+z.4f}) {said[result.change.direction]}."
            )
        else:
            found[result.change.direction].append(result.edit)
    if not any(found.values()) and not padding and not few:
        return f"{metric.name} has no value for both sides of any edit, so nothing can be said of it."
    heads = {
        1: "clearly marks down",
        0: "shows no clear response to",
        -1: "clearly PREFERS, against what was done",
    }
    parts = [f"{heads[direction]}: {joined(edits)}" for direction, edits in found.items() if edits]
    if few:
        parts.append(
            f"cannot be judged by edits that have values for fewer than {FEWEST} items: {joined(few)}"
        )
    return " ".join([f"{metric.name} {'; '.join(parts)}." if parts else f"{metric.name}:", *padding])


def _statement_edits(item: Item, statement: Statement, frame: str) -> dict[str, Edit]:
    made: dict[str, Edit] = {
        edit: partial(_restated, change, statement, frame) for edit, change in STATEMENT_EDITS.items()
    }
    return made | {PAD: partial(TEXT_EDITS[PAD], statement.text(frame)), QUESTION: partial(_repeated, item)}


def _restated(change: StatementEdit, statement: Statement, frame: str, elsewhere: Elsewhere) -> str:
    return change(statement, elsewhere).text(frame)


def _repeated(item: Item, elsewhere: Elsewhere) -> str:
    if not item.question.strip():
        raise CannotEditError("the question is blank")
    return item.question.strip()
