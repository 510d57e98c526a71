"""Study ``interventions``: edits of summaries whose effect is known. Does a metric notice them?"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import fmean

from msgspec.structs import replace

from selfreflect.errors import DataError
from selfreflect.grouping import group_indices
from selfreflect.models.base import Generator, Message, Refusal, Reply, Request, Sampling, seed_for
from selfreflect.render.table import Cell, Table
from selfreflect.sources.items import Item
from selfreflect.text import normalise_question
from selfreflect.validate.base import MetricInfo, Undefined, Value
from selfreflect.validate.edits.edits import (
    PAD,
    STATEMENT_EDITS,
    TEXT_EDITS,
    CannotEditError,
    Material,
    StatementEdit,
    other_possibilities,
)
from selfreflect.validate.edits.statements import FRAME, LIST, Grouping, Statement, statements
from selfreflect.validate.statistics import bounded_mean, detectable_rate
from selfreflect.validate.study import (
    Finding,
    Plot,
    counted,
    dot_plot,
    interval,
    joined,
    make_table,
    percent,
    values_by_metric,
)
from selfreflect.validate.worsening import FEWEST, Worsening

BASE, QUESTION = "template", "repeat the question"
OWN = " (own summaries)"

_NOT_MADE = "Edits that could not be made"
_LONGEST = 60
"""Words of a writer's sentence. A longer one would drown the edits."""

Edit = Callable[[Material], str]
"""Makes the edited text of a summary."""

NOTES = (
    "worse: share of items in which the metric finds the edited summary worse than the one before; a tie is "
    "a loss",
    "change: mean change of the value, its sign turned where higher is better, so that above 0 is worse for "
    "every metric",
    "of: items that have the edit, n: those with a value for both; several own summaries of one item count "
    "as one, by their mean",
    "intervals: 95% BCa bootstrap over items; if all items agree, the share's is exact",
)


@dataclass(frozen=True)
class EditedPair:
    """Two summaries of one item, by name: before and after an edit."""

    edit: str
    item: str
    before: str
    after: str


class Interventions:
    """The template's statement of every item's answers and the items' own summaries, each with labelled
    edits.

    Args:
        grouping: which answers say the same; by default those with the same spelling.
        writer: words the sentence around the statement for each item. Items for which it fails have no
            statement.

    Raises:
        DataError: there are no items, two have the same id, or nothing can be edited.
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
        stating = [item for item in items if self._statements[item.id]]
        self._frames: dict[str, str | Undefined] = {item.id: FRAME for item in stating}
        if writer is not None:
            self._frames = dict(zip(self._frames, write_frames(stating, writer, seed), strict=True))
        self.pairs: list[EditedPair] = []
        self.skipped: Counter[tuple[str, str]] = Counter()
        """(edit, why it could not be made) -> how often."""
        edited = [replace(item, summaries=self._summaries(item), order=()) for item in items]
        self.items = [item for item in edited if item.summaries]
        if not self.items:
            reasons = ", ".join(sorted({reason for _, reason in self.skipped}))
            raise DataError(
                f"none of the {len(items)} items has a summary that can be edited or answers that can be "
                f"stated ({reasons})"
            )

    def _summaries(self, item: Item) -> dict[str, str]:
        """The summaries to measure: the statement and the item's own ones, with their edits."""
        summaries: dict[str, str] = {}
        statement = self._statements[item.id]
        frame = self._frames.get(item.id, "")
        if statement is None:
            self.skipped[BASE, "no answers that can be stated"] += 1
        elif isinstance(frame, Undefined):
            self.skipped[BASE, f"writer: {frame.reason}: {frame.message}"] += 1
        else:
            text = statement.text(frame)
            edits: dict[str, Edit] = {}
            for edit, change in STATEMENT_EDITS.items():
                edits[edit] = partial(_restate, change, statement, frame)
            edits[PAD] = partial(TEXT_EDITS[PAD], text)
            edits[QUESTION] = partial(_repeat_question, item)
            summaries |= self._edited(item, BASE, text, edits)
        for name, text in item.summaries.items():
            if {name, *(f"{name}: {edit}" for edit in TEXT_EDITS)} & summaries.keys():
                self.skipped["all" + OWN, "its name is that of a made one"] += 1
            elif not text.strip():
                self.skipped["all" + OWN, "it is blank"] += 1
            else:
                edits = {edit: partial(change, text) for edit, change in TEXT_EDITS.items()}
                summaries |= self._edited(item, name, text, edits, OWN)
        return summaries

    def _edited(
        self, item: Item, name: str, text: str, edits: Mapping[str, Edit], label: str = ""
    ) -> dict[str, str]:
        """A summary and its edits; empty if none can be made."""
        summaries: dict[str, str] = {}
        others = other_possibilities(self._statements, item.id)
        for edit, change in edits.items():
            rng = random.Random(seed_for(self._seed, item.id, name, edit))
            try:
                edited = change(Material(item.masked_out + item.conditioning, others, rng))
                if edited == text:
                    raise CannotEditError("it would change nothing")
            except CannotEditError as error:
                self.skipped[edit + label, str(error)] += 1
            else:
                summaries |= {name: text, f"{name}: {edit}": edited}
                self.pairs.append(EditedPair(edit + label, item.id, name, f"{name}: {edit}"))
        return summaries

    def finding(self, values: Sequence[Value], metrics: Sequence[MetricInfo]) -> Finding:
        numbers = values_by_metric(values)
        by_edit: dict[str, list[EditedPair]] = {}
        for edit in (*STATEMENT_EDITS, PAD, QUESTION, *(edit + OWN for edit in TEXT_EDITS)):
            pairs = [pair for pair in self.pairs if pair.edit == edit]
            if pairs:
                by_edit[edit] = pairs
        most = max(len({pair.item for pair in pairs}) for pairs in by_edit.values())
        rows: list[dict[str, Cell]] = []
        says = [self._extent()]
        plots: list[Plot] = []
        for metric in metrics:
            known = numbers.get(metric.name, {})
            results = [_EditResult(metric, edit, pairs, known) for edit, pairs in by_edit.items()]
            rows += [result.row() for result in results]
            says.append(_sentence(metric, results))
            title = f"{metric.name}: how often an edit is marked down"
            dots = [(result.edit, result.worse) for result in results]
            label = "share of items (0.5: chance)"
            plots += dot_plot(f"interventions-{metric.name}", title, label, dots, against=0.5)
        forms = dict.fromkeys(("worse", "worse low", "worse high"), ".0%")
        tables = [make_table("Interventions", rows, "+z.4f", NOTES, forms), self._example()]
        if self.skipped:
            reasons: list[dict[str, Cell]] = []
            for (edit, why), count in sorted(self.skipped.items()):
                reasons.append({"edit": edit, "why": why, "count": count})
            tables.append(make_table(_NOT_MADE, reasons, "d", ()))
        return Finding(self.name, tuple(tables), (*says, _limits(most)), tuple(plots))

    def _example(self) -> Table:
        """All summaries of the item with the most edits, to show what the labels mean."""
        item = max(self.items, key=lambda item: len(item.summaries))
        rows: list[dict[str, Cell]] = []
        for name, text in item.summaries.items():
            rows.append({"summary": name, "text": text})
        return make_table("What was made of one item", rows, "", (item.question,))

    def _extent(self) -> str:
        stated = sum(BASE in item.summaries for item in self.items)
        sentence = (
            f"{counted(len(self.pairs), 'edit')} of {counted(len(self.items), 'item')} compared with what "
            f"they were made from; {stated} of the items have a statement of their answers."
        )
        if skipped := sum(self.skipped.values()):
            sentence += f" {counted(skipped, 'edit')} could not be made; the table “{_NOT_MADE}” says why."
        return sentence


def _limits(items: int) -> str:
    rate = detectable_rate(items)
    power = "even an edit that is always noticed cannot be told from a coin toss."
    if rate is not None:
        power = f"an edit must be noticed in {percent(rate)} to be told from a coin toss with a power of 80%."
    return (
        f"With {counted(items, 'item')} {power} The tests are not adjusted for their number. Padding takes "
        "nothing away, so a metric need not mind it; one that prefers it can be gamed by length. If answers "
        "were grouped by spelling, two possibilities may mean the same, and an edit of one changes little: "
        "group by meaning. Where most of the statement is “something else”, an edit of a rare possibility "
        "is a small one. With few answers a metric that reads both halves may be right not to mind that a "
        "possibility is dropped: the conditioning half may not hold it."
    )


def _restate(change: StatementEdit, statement: Statement, frame: str, material: Material) -> str:
    return change(statement, material).text(frame)


def _repeat_question(item: Item, material: Material) -> str:
    if not item.question.strip():
        raise CannotEditError("the question is blank")
    return item.question.strip()


def write_frames(items: Sequence[Item], writer: Generator, seed: int) -> list[str | Undefined]:
    """Ask a model for a sentence around each item's statement, or say why it gave none.

    The list of possibilities stays the template's, marked by :data:`LIST`, so that edits stay controlled.
    """
    requests = []
    for item in items:
        prompt = (
            f"{normalise_question(item.question)}\n\n"
            f'Somebody answers this question with "{FRAME}", where {LIST} stands for a list of possible '
            "answers that you do not see. Write that reply in your own words, in one sentence that suits the "
            f"question. Keep {LIST} exactly as it is, once, and name no answer yourself. Reply with the "
            "sentence only."
        )
        request = Request(
            messages=(Message(role="user", content=prompt),),
            sampling=Sampling(max_new_tokens=256),
            seed=seed_for(seed, item.id, "writer"),
        )
        requests.append(request)
    return [_frame(reply) for reply in writer.generate(requests)]


def _frame(reply: Reply | Refusal) -> str | Undefined:
    if isinstance(reply, Refusal):
        return Undefined(reason=reply.kind, message=reply.message)
    text = reply.text.strip()
    if text.count(LIST) != 1:
        return Undefined(reason="unparsed", message=f"the writer's reply does not hold {LIST} once")
    if len(text.split()) > _LONGEST:
        return Undefined(reason="unparsed", message=f"the writer's reply has more than {_LONGEST} words")
    return text


class _EditResult:
    """How one metric responds to one edit."""

    def __init__(
        self,
        metric: MetricInfo,
        edit: str,
        pairs: Sequence[EditedPair],
        values: Mapping[tuple[str, str], float],
    ) -> None:
        self.metric, self.edit = metric, edit
        changes: dict[str, list[float]] = defaultdict(list)
        for pair in pairs:
            before = values.get((pair.item, pair.before))
            after = values.get((pair.item, pair.after))
            if before is not None and after is not None:
                changes[pair.item].append(metric.badness(after) - metric.badness(before))
        worse = [fmean(change > 0 for change in of_item) for of_item in changes.values()]
        self.worse = bounded_mean(worse, 0, 1)
        items = {pair.item for pair in pairs}
        self.change = Worsening(list(map(fmean, changes.values())), len(items))

    def row(self) -> dict[str, Cell]:
        return {
            "metric": self.metric.name,
            "edit": self.edit,
            **interval("worse", self.worse, "worse low", "worse high"),
            **interval("change", self.change.mean, "change low", "change high"),
            "n": self.change.mean.n,
            "of": self.change.total,
        }


_VERDICTS = {
    1: "clearly marks down",
    0: "shows no clear response to",
    -1: "clearly PREFERS, against what was done",
    None: f"has values for fewer than {FEWEST} items, too few to judge, of",
}


def _sentence(metric: MetricInfo, results: Sequence[_EditResult]) -> str:
    edits: dict[int | None, list[str]] = defaultdict(list)
    for result in results:
        if result.change.mean.n:
            judged = result.change.mean.n >= FEWEST
            edits[result.change.direction if judged else None].append(result.edit)
    if not edits:
        return f"{metric.name} has no value for both sides of any edit."
    parts = [f"{verdict}: {joined(edits[key])}" for key, verdict in _VERDICTS.items() if key in edits]
    return f"{metric.name} {'; '.join(parts)}."
