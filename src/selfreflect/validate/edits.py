"""Study ``interventions``: whether a metric detects known edits of statements and summaries."""

from __future__ import annotations

import random
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import fmean

from msgspec.structs import replace as replace_item

from selfreflect.errors import DataError
from selfreflect.grouping import group_indices, normal_form
from selfreflect.models.base import seed_for
from selfreflect.sources.items import Item
from selfreflect.stats import FEWEST_TESTED, clear_sign, is_tie, mean_interval, sign_flip_p
from selfreflect.text import counted, listed
from selfreflect.validate.base import MetricInfo, Value
from selfreflect.validate.statistics import bounded_mean, detectable_rate
from selfreflect.validate.study import SIDES, Finding, Numbers, each_metric, interval

Grouping = Callable[..., list[list[int]]]
"""Function that groups equal answers as indices, the one to quote first: by spelling
(:func:`~selfreflect.grouping.group_indices`) or by meaning (``models.embed.MeaningGroups``)."""

# The most possibilities that a statement names. The others are "something else".
NAMED = 5

_WORDS, _LETTERS = 20, 160


@dataclass(frozen=True)
class Possibility:
    """An answer with its ``weight`` relative to the total."""

    text: str
    weight: int


@dataclass(frozen=True)
class Statement:
    """Possibilities with positive total weight, most frequent first unless edited."""

    possibilities: tuple[Possibility, ...]
    rest: int = 0
    """Total weight of unnamed possibilities."""

    @property
    def percentages(self) -> tuple[int, ...]:
        """Percentages of the possibilities and the rest, summing to 100."""
        return apportioned([*(possibility.weight for possibility in self.possibilities), self.rest], 100)

    def text(self) -> str:
        """The statement as ``I would say “Paris” (60%), “Lyon” (30%) or something else (10%).``"""
        *shares, rest = self.percentages
        parts = []
        for possibility, share in zip(self.possibilities, shares, strict=True):
            parts.append(f"“{possibility.text}” ({share}%)")
        if rest:
            parts.append(f"something else ({rest}%)")
        if len(parts) > 1:
            parts = [", ".join(parts[:-1]), parts[-1]]
        return f"I would say {' or '.join(parts)}."


def apportioned(weights: Sequence[int], total: int) -> tuple[int, ...]:
    """Apportion ``total`` in whole parts proportional to ``weights``, by largest remainder."""
    whole = sum(weights)
    # in whole numbers, so that no rounding decides between equal remainders
    parts = [weight * total // whole for weight in weights]
    by_remainder = sorted(range(len(weights)), key=lambda index: -(weights[index] * total % whole))
    for index in by_remainder[: total - sum(parts)]:
        parts[index] += 1
    return tuple(parts)


def stated(item: Item, grouping: Grouping) -> Statement | None:
    """Make the statement of an item's answers; None if all are blank or rarer than 1%.

    Both halves count: a statement of one half would favour the metrics that read that half. Blank answers are
    left out, as by the metric. Long answers are cut, and count together if they are then spelt alike.
    """
    answers = [answer for answer in item.masked_out + item.conditioning if answer.strip()]
    counts: dict[str, int] = {}
    texts: dict[str, str] = {}
    for group in grouping(answers) if answers else []:
        text = short(answers[group[0]])
        form = normal_form(text)
        texts.setdefault(form, text)
        counts[form] = counts.get(form, 0) + len(group)
    by_count = sorted(counts, key=lambda form: (-counts[form], texts[form]))
    frequent = [form for form in by_count[:NAMED] if counts[form] * 100 >= len(answers)]
    if not frequent:
        return None
    possibilities = [Possibility(texts[form], counts[form]) for form in frequent]
    unnamed = len(answers) - sum(possibility.weight for possibility in possibilities)
    return Statement(tuple(possibilities), unnamed)


def short(text: str) -> str:
    """Shorten an answer to one line of at most 20 words and 160 letters."""
    words = text.split()
    line = " ".join(words[:_WORDS])[:_LETTERS].rstrip()
    return line if line == " ".join(words) else f"{line}…"


PAD = "pad with filler"
FILLER = (
    "This is a matter that can be looked at from more than one side, and it is worth a moment of thought. "
    "There is of course more to say, and others may well put it in their own way."
)
_NEW = "Nobody has ever found out"
# Makes an added possibility weigh a quarter of all others together: 20% of the statement
_SCALE = 4
_WORD = re.compile(r"\w+")


class CannotEditError(Exception):
    """Raised by an edit that does not apply to an item. The message is the reason, in the same words for all
    items."""


@dataclass(frozen=True)
class Material:
    """Texts that an edit may add to an item, foreign to its answers."""

    answers: tuple[str, ...]
    possibilities: Sequence[str]
    """Possibilities of other items, independent of the items' order."""
    rng: random.Random

    def new_possibility(self) -> str:
        """Find a possibility that overlaps with no answer, or raise CannotEditError."""
        answers = list(filter(None, map(_words, self.answers)))
        for text in (*self.rng.sample(self.possibilities, len(self.possibilities)), _NEW):
            words = _words(text)
            if words and not any(words <= answer or answer <= words for answer in answers):
                return text
        raise CannotEditError("every available possibility is among the answers")


def other_possibilities(statements: Mapping[str, Statement | None], item: str) -> list[str]:
    """List every other item's most frequent possibility, sorted."""
    texts = set()
    for id_, statement in statements.items():
        if statement is not None and id_ != item:
            texts.add(statement.possibilities[0].text)
    return sorted(texts)


def _words(text: str) -> set[str]:
    return set(_WORD.findall(text.casefold()))


def _drop_most_frequent(statement: Statement, material: Material) -> str:
    return replace(statement, possibilities=_uneven(statement)[1:]).text()


def _drop_least_frequent(statement: Statement, material: Material) -> str:
    return replace(statement, possibilities=_uneven(statement)[:-1]).text()


def _swap_two_frequencies(statement: Statement, material: Material) -> str:
    """Swap the frequencies of the most and least frequent possibilities."""
    first, *middle, last = _uneven(statement)
    swapped = replace(first, weight=last.weight), *middle, replace(last, weight=first.weight)
    return replace(statement, possibilities=swapped).text()


def _add_a_possibility(statement: Statement, material: Material) -> str:
    """Add a possibility that no answer gives, at 20%, scaling the others."""
    total = sum(possibility.weight for possibility in statement.possibilities) + statement.rest
    scaled = [
        replace(possibility, weight=possibility.weight * _SCALE) for possibility in statement.possibilities
    ]
    added = Possibility(material.new_possibility(), total)
    return replace(statement, possibilities=(*scaled, added), rest=statement.rest * _SCALE).text()


def _cut_to_the_majority(statement: Statement, material: Material) -> str:
    first, second, *_ = _several(statement)
    if first.weight == second.weight:
        raise CannotEditError("no possibility is more frequent than all others")
    return replace(statement, possibilities=(first,), rest=0).text()


def _several(statement: Statement) -> tuple[Possibility, ...]:
    if len(statement.possibilities) < 2:
        raise CannotEditError("it names one possibility only")
    return statement.possibilities


def _uneven(statement: Statement) -> tuple[Possibility, ...]:
    possibilities = _several(statement)
    if possibilities[0].weight == possibilities[-1].weight:
        raise CannotEditError("all possibilities are equally frequent")
    return possibilities


STATEMENT_EDITS: Mapping[str, Callable[[Statement, Material], str]] = {
    "drop most frequent": _drop_most_frequent,
    "drop least frequent": _drop_least_frequent,
    "swap two frequencies": _swap_two_frequencies,
    "add a possibility": _add_a_possibility,
    "cut to the majority": _cut_to_the_majority,
}


def _pad(text: str, material: Material) -> str:
    return f"{text.rstrip()} {FILLER}"


BASE, QUESTION = "template", "repeat the question"
OWN = " (own summaries)"
_ORDER = (*STATEMENT_EDITS, PAD, QUESTION, PAD + OWN)
Edit = Callable[[Material], str]
"""Function that edits the text of a summary."""


class Interventions:
    """Templated statements and existing summaries of all items, with labelled edits.

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
        """Item and summary names before and after, by edit."""
        self.skipped: Counter[tuple[str, str]] = Counter()
        """Counts of impossible edits, by (edit, reason)."""
        edited = [replace_item(item, summaries=self._summaries(item), order=()) for item in items]
        self.items = [item for item in edited if item.summaries]
        if not self.items:
            reasons = ", ".join(sorted({reason for _, reason in self.skipped}))
            raise DataError(
                f"none of the {len(items)} items has a summary that can be edited or answers that can be "
                f"stated ({reasons})",
                code="nothing_to_edit",
            )

    def _summaries(self, item: Item) -> dict[str, str]:
        """Make the summaries to measure: the statement and existing summaries, with their edits."""
        summaries: dict[str, str] = {}
        statement = self._statements[item.id]
        if statement is None:
            self.skipped[BASE, "no answers that can be stated"] += 1
        else:
            text = statement.text()
            edits: dict[str, Edit] = {}
            for edit, change in STATEMENT_EDITS.items():
                edits[edit] = partial(change, statement)
            edits[PAD] = partial(_pad, text)
            edits[QUESTION] = lambda _: item.question.strip()
            summaries |= self._edited(item, BASE, text, edits)
        for name, text in item.summaries.items():
            if {name, f"{name}: {PAD}"} & summaries.keys():
                self.skipped["all" + OWN, "its name is that of an edited summary"] += 1
            elif not text.strip():
                self.skipped["all" + OWN, "it is blank"] += 1
            else:
                summaries |= self._edited(item, name, text, {PAD: partial(_pad, text)}, OWN)
        return summaries

    def _edited(
        self, item: Item, name: str, text: str, edits: Mapping[str, Edit], label: str = ""
    ) -> dict[str, str]:
        """Edit a summary in all applicable ways."""
        summaries: dict[str, str] = {}
        possibilities = other_possibilities(self._statements, item.id)
        for edit, change in edits.items():
            # by item and edit, so that further items and edits change no other text
            rng = random.Random(seed_for(self._seed, item.id, name, edit))
            try:
                edited = change(Material(item.masked_out + item.conditioning, possibilities, rng))
                if edited in ("", text):
                    raise CannotEditError("it would change nothing")
            except CannotEditError as error:
                self.skipped[edit + label, str(error)] += 1
            else:
                summaries |= {name: text, f"{name}: {edit}": edited}
                self._pairs[edit + label].append((item.id, name, f"{name}: {edit}"))
        return summaries

    def finding(self, values: Sequence[Value], metrics: Sequence[MetricInfo]) -> Finding:
        finding = Finding(self.name, "edits")
        finding.says.append(self._extent(finding))
        for metric, numbers in each_metric(values, metrics):
            verdicts: dict[str, list[str]] = defaultdict(list)
            for edit in (edit for edit in _ORDER if edit in self._pairs):
                changes = worsenings(metric, numbers, self._pairs[edit])
                shares = [fmean(difference > 0 for difference in item) for item in changes.values()]
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
                finding.add("edits", row)
                side = SIDES[clear_sign(change, sign_flip_p(means))]
                verdicts["too_few" if change.n < FEWEST_TESTED else side].append(edit)
            parts = [
                f"{finding.sentence(verdict, fewest=FEWEST_TESTED)} {listed(edits)}"
                for verdict, edits in verdicts.items()
            ]
            finding.says.append(f"{metric.name} {'; '.join(parts)}.")
        # all summaries of the item with the most edits, to show what the labels mean
        example = max(self.items, key=lambda item: len(item.summaries))
        finding.notes["example"].append(example.question)
        finding.add("example", *({"summary": name, "text": text} for name, text in example.summaries.items()))
        for (edit, reason), count in sorted(self.skipped.items()):
            finding.add("not_made", {"edit": edit, "why": reason, "count": count})
        finding.say("limits")
        return finding

    def _item_count(self, edit: str) -> int:
        return len({item for item, _, _ in self._pairs[edit]})

    def _extent(self, finding: Finding) -> str:
        """Describe the number of edits and the statistical power."""
        skipped = sum(self.skipped.values())
        counts = {
            "edits": counted(sum(map(len, self._pairs.values())), "edit"),
            "items": counted(len(self.items), "item"),
            "skipped": counted(skipped, "edit"),
        }
        rate = detectable_rate(max(map(self._item_count, self._pairs)))
        power = finding.sentence("few" if rate is None else "power", rate=rate)
        return f"{finding.sentence('skipped' if skipped else 'extent', **counts)} {power}"


def worsenings(
    metric: MetricInfo, numbers: Numbers, edits: Iterable[tuple[str, str, str]]
) -> dict[str, list[float]]:
    """Compute by item how much worse a metric rates each text after an edit.

    Args:
        edits: an item, and the names of its summaries before and after. Those without both values are left
            out.
    """
    changes: dict[str, list[float]] = defaultdict(list)
    for item, before, after in edits:
        if (item, before) in numbers and (item, after) in numbers:
            values = numbers[item, before], numbers[item, after]
            change = metric.badness(values[1]) - metric.badness(values[0])
            changes[item].append(0.0 if is_tie(*values) else change)
    return changes
