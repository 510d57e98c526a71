"""Study ``interventions``: edits of summaries whose effect is known. Does a metric notice them?"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from statistics import fmean

import msgspec

from selfreflect.errors import DataError
from selfreflect.grouping import group_indices
from selfreflect.models.base import seed_for
from selfreflect.sources.items import Item
from selfreflect.stats import FEWEST_TESTED, mean_interval
from selfreflect.text import counted, listed
from selfreflect.validate.base import MetricInfo, Value
from selfreflect.validate.edits.statements import (
    PAD,
    STATEMENT_EDITS,
    TEXT_EDITS,
    CannotEditError,
    Grouping,
    Material,
    other_possibilities,
    stated,
)
from selfreflect.validate.statistics import bounded_mean, detectable_rate, direction
from selfreflect.validate.study import Finding, Layout, each_metric, interval, worsenings

BASE, QUESTION = "template", "repeat the question"
OWN = " (own summaries)"
_ORDER = (*STATEMENT_EDITS, PAD, QUESTION, *(edit + OWN for edit in TEXT_EDITS))
_NOT_MADE = Layout("Edits that could not be made", "d")
Edit = Callable[[Material], str]
"""Makes the edited text of a summary."""

_NOTES = (
    "worse: share of items in which the metric finds the edited summary worse; a tie is a loss",
    "change: mean change of the value, its sign turned where higher is better, so that above 0 is worse",
    "of: items that have the edit; several own summaries of one item count as one, by their mean",
    "intervals: 95% BCa bootstrap over items; if all items agree, the share's is exact",
)
_SHARES = dict.fromkeys(("worse", "worse low", "worse high"), ".0%")
_EDITS = Layout("Interventions", "+z.4f", _NOTES, _SHARES)


class Interventions:
    """The template's statement of every item's answers and the items' own summaries, each with labelled
    edits.

    Args:
        grouping: which answers say the same; by default those with the same spelling.

    Raises:
        DataError: nothing can be edited.
    """

    name = "interventions"

    def __init__(self, items: Sequence[Item], seed: int = 0, grouping: Grouping = group_indices) -> None:
        self._seed = seed
        self._statements = {item.id: stated(item, grouping) for item in items}
        self._pairs: dict[str, list[tuple[str, str, str]]] = defaultdict(list)
        """By edit: an item, and the names of its summaries before and after."""
        self.skipped: Counter[tuple[str, str]] = Counter()
        """(edit, why it could not be made) -> how often."""
        edited = [msgspec.structs.replace(item, summaries=self._summaries(item), order=()) for item in items]
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
        if statement is None:
            self.skipped[BASE, "no answers that can be stated"] += 1
        else:
            text = statement.text()
            edits: dict[str, Edit] = {}
            for edit, change in STATEMENT_EDITS.items():
                edits[edit] = partial(change, statement)
            edits[PAD] = partial(TEXT_EDITS[PAD], text)
            edits[QUESTION] = lambda _: item.question.strip()
            summaries |= self._edited(item, BASE, text, edits)
        for name, text in item.summaries.items():
            if {name, *(f"{name}: {edit}" for edit in TEXT_EDITS)} & summaries.keys():
                self.skipped["all" + OWN, "its name is that of a made one"] += 1
            elif not text.strip():
                self.skipped["all" + OWN, "it is blank"] += 1
            else:
                edits = {edit: partial(edit_text, text) for edit, edit_text in TEXT_EDITS.items()}
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
                if edited in ("", text):
                    raise CannotEditError("it would change nothing")
            except CannotEditError as error:
                self.skipped[edit + label, str(error)] += 1
            else:
                summaries |= {name: text, f"{name}: {edit}": edited}
                self._pairs[edit + label].append((item.id, name, f"{name}: {edit}"))
        return summaries

    def finding(self, values: Sequence[Value], metrics: Sequence[MetricInfo]) -> Finding:
        finding = Finding(self.name, _EDITS)
        finding.says.append(self._extent())
        for metric, numbers in each_metric(values, metrics):
            verdicts: dict[str, list[str]] = defaultdict(list)
            dots = []
            for edit in (edit for edit in _ORDER if edit in self._pairs):
                changes = worsenings(metric, numbers, self._pairs[edit])
                shares = []
                for of_item in changes.values():
                    shares.append(fmean(change > 0 for change in of_item))
                worse = bounded_mean(shares, 0, 1)
                means = list(map(fmean, changes.values()))
                change = mean_interval(means, self._item_count(edit))
                row = {
                    "metric": metric.name,
                    "edit": edit,
                    **interval("worse", worse, "worse low", "worse high"),
                    **interval("change", change, "change low", "change high"),
                    "n": len(changes),
                    "of": change.total,
                }
                finding.add(_EDITS, row)
                dots.append((edit, worse))
                verdict = f"has values for fewer than {FEWEST_TESTED} items, too few to judge, of:"
                if change.n >= FEWEST_TESTED:
                    verdict = _VERDICTS[direction(change, means)]
                verdicts[verdict].append(edit)
            parts = [f"{verdict} {listed(edits)}" for verdict, edits in verdicts.items()]
            finding.says.append(f"{metric.name} {'; '.join(parts)}.")
            title = f"{metric.name}: how often an edit is marked down"
            label = "share of items (0.5: chance)"
            finding.draw_dots(f"interventions-{metric.name}", title, label, dots, against=0.5)
        # all summaries of the item with the most edits, to show what the labels mean
        example = max(self.items, key=lambda item: len(item.summaries))
        layout = Layout("What was made of one item", "", (example.question,))
        finding.add(layout, *({"summary": name, "text": text} for name, text in example.summaries.items()))
        for (edit, why), count in sorted(self.skipped.items()):
            finding.add(_NOT_MADE, {"edit": edit, "why": why, "count": count})
        finding.says.append(_LIMITS)
        return finding

    def _item_count(self, edit: str) -> int:
        return len({item for item, _, _ in self._pairs[edit]})

    def _extent(self) -> str:
        edits = sum(map(len, self._pairs.values()))
        sentence = f"{counted(edits, 'edit')} of {counted(len(self.items), 'item')}."
        if skipped := sum(self.skipped.values()):
            sentence += (
                f" {counted(skipped, 'edit')} could not be made; the table “{_NOT_MADE.title}” says why."
            )
        rate = detectable_rate(max(map(self._item_count, self._pairs)))
        if rate is None:
            return f"{sentence} With so few items even an edit that is always noticed could be chance."
        return f"{sentence} An edit must be noticed in {rate:.0%} of items to be told from chance."


_LIMITS = (
    "Padding takes nothing away, so a metric need not mind it; one that prefers it can be gamed by length. "
    "If answers were grouped by spelling, two possibilities may mean the same: group by meaning. With few "
    "answers a metric that reads both halves may be right not to mind that a possibility is dropped: the "
    "conditioning half may not hold it."
)
_VERDICTS = {1: "clearly marks down:", 0: "shows no clear response to:", -1: "clearly PREFERS:"}
