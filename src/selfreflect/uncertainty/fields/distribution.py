"""The answer distribution of each field of structured answers."""

from __future__ import annotations

import json
import math
import re
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import cached_property
from itertools import accumulate
from statistics import fmean
from typing import Any, NamedTuple

from selfreflect.logprobs import TokenValues
from selfreflect.stats import defined
from selfreflect.table import Cell, Column, Table
from selfreflect.text import counted
from selfreflect.uncertainty.assess import Assessment
from selfreflect.uncertainty.classes import ClassRule, Labels, members_of
from selfreflect.uncertainty.fields.align import MOST_MATCHED, align
from selfreflect.uncertainty.fields.values import (
    ABSENT,
    FAULTS,
    INVALID,
    MISSING,
    FieldValue,
    Node,
    Schema,
    Unreadable,
    default_of,
    dumped,
    is_ordered,
    parse,
    part_of,
    scalar,
    setting,
    signature,
    without_fence,
)
from selfreflect.uncertainty.question import AnsweredQuestion

MOST_FIELDS = 500
"""Maximum number of fields of a question, since answers determine how many there are."""
# Words in the median beyond which a text is free, so that shares of equal texts say little.
_FREE_WORDS = 4


@dataclass(frozen=True)
class AnswerField:
    """One field of a question's answers, with the value in each answer."""

    pointer: str
    """JSON Pointer (RFC 6901). Objects of lists are named as :func:`~.align.align` names them."""
    path: str
    """Pointer with ``*`` for objects of lists, equal for all questions."""
    is_located: bool
    """Whether the pointer locates the value in an answer's text."""
    kind: str
    """Kind: ``number``, ``text``, ``date``, ``set``, …, ``free_text``, or ``mixed``."""
    values: tuple[FieldValue, ...]
    """Values, one per answer."""
    gold: tuple[FieldValue, ...] = ()
    response: FieldValue | None = None
    """Value of the judged answer, if not among the samples."""
    items: tuple[tuple[str, int], ...] = ()
    """Members of a set, with the number of answers that contain each."""
    lengths: tuple[tuple[int, int], ...] = ()
    """Lengths of a list, with the number of answers for each."""
    classes: str = ""
    """Class rule from the schema; empty if unspecified."""


class FieldClass(NamedTuple):
    """Answers with the same value in a field."""

    value: str
    answers: int
    share: float
    """Share of the valid answers."""


class ObjectShare(NamedTuple):
    """Frequency of a combination of all field values."""

    num_classes: int
    share: float
    """Share of the most common object among valid answers."""
    sampled: int
    """Number of answers with the modal value of every field, possibly 0."""


@dataclass(frozen=True)
class Structured:
    """A question's answers split into fields."""

    question: AnsweredQuestion
    fields: tuple[AnswerField, ...]
    """Fields in the order of the schema, then of the answers."""
    faults: tuple[Unreadable | None, ...]
    """For each answer, the reason why it has no fields; None if it has fields."""
    objects: tuple[str, ...]
    """Identity of each valid answer as a whole."""
    unread_gold: int = 0
    """Number of right answers that are not valid JSON."""
    left_out: int = 0
    """Number of fields left out above ``MOST_FIELDS``, which occur in the fewest answers."""
    unmatched: int = 0
    """Number of lists too long to be matched, with only their lengths as fields."""
    spans: tuple[Mapping[str, Span], ...] = ()
    """Spans of each answer's values, if its tokens are known."""

    def only(self, paths: Sequence[str]) -> Structured:
        """Keep the fields with any of the pointers or paths."""
        # a pointer names one field, a path all fields of its kind
        fields = tuple(field for field in self.fields if {field.pointer, field.path} & {*paths})
        return replace(self, fields=fields)

    def questions(self) -> list[AnsweredQuestion]:
        """Make a question ``QUESTION#POINTER`` of each field.

        An answer without valid JSON is an answer of its own to each of them.
        """
        return [self._question(field) for field in self.fields]

    def _question(self, field: AnswerField) -> AnsweredQuestion:
        texts = iter(field.values)
        # an answer that cannot be read disagrees with all others in every field
        values = [next(texts) if fault is None else INVALID for fault in self.faults]
        all_values = [*values, *field.gold, *([field.response] if field.response else [])]
        return replace(
            self.question,
            id=f"{self.question.id}#{field.pointer}",
            text=f"{self.question.text} [{field.pointer}]".strip(),
            answers=tuple(value.text for value in values),
            keys={value.text: value.key for value in all_values if value.key is not None},
            gold=tuple(value.text for value in field.gold),
            answer=field.response.text if field.response else None,
            aliases=(),
            greedy=None,
            **self._tokens(field),
            classes=field.classes,
            # fields of one answer are right or wrong together
            group=self.question.id,
            confidence=None,
            length=None,
            correct=None,
            values={},
        )

    def _tokens(self, field: AnswerField) -> dict[str, Any]:
        """Select the tokens of a field's value, including the token that ends it.

        Without the end, "21" of "2100000" would look sure.
        """
        values, nothing = self.question.token_values, {"token_values": TokenValues()}
        if not self.spans:
            return {**nothing, "missing_logprobs": self.question.missing_logprobs}
        spans = [positions.get(field.pointer) for positions in self.spans]
        # a field that is missing in one answer has no tokens there
        if not field.is_located or None in spans:
            return {
                **nothing,
                "missing_logprobs": "an answer lacks the field, or a list of matched objects contains it",
            }
        texts_and_ends = zip(values.tokens, self._token_ends, spans, strict=True)
        places = [_overlapping(texts, ends, *span) for texts, ends, span in texts_and_ends if span]
        return {"token_values": values.cut(places), "missing_logprobs": ""}

    @cached_property
    def _token_ends(self) -> list[list[int]]:
        """End of each token of each answer, in characters."""
        return [list(accumulate(map(len, texts))) for texts in self.question.token_values.tokens]

    def _token_summary(self, field: AnswerField, classes: Sequence[FieldClass]) -> dict[str, Any]:
        """Describe the likelihood of the most common value's tokens, if known."""
        rows = self._tokens(field)["token_values"].logprobs
        texts = [value.text for value in field.values]
        if not rows or not classes or not all(rows):
            return {}
        logprobs = rows[texts.index(classes[0].value)]
        return {"tokens": {"joint": math.exp(sum(logprobs)), "min": math.exp(min(logprobs))}}

    def object_share(self, rule: ClassRule) -> ObjectShare | None:
        """Count complete objects; None without a valid answer."""
        counts = Counter(self.objects)
        if not counts:
            return None
        agreeing = [True] * len(self.objects)
        for field in self.fields:
            labels = self.labels(field, rule)
            largest = max(members_of(labels), key=len)
            # the members of the largest class of every field at once
            agreeing = [is_modal and index in largest for index, is_modal in enumerate(agreeing)]
        return ObjectShare(len(counts), max(counts.values()) / counts.total(), sum(agreeing))

    def labels(self, field: AnswerField, rule: ClassRule) -> Labels:
        """Classify a field's values in the valid answers."""
        question = self._question(field)
        texts = tuple(value.text for value in field.values)
        return rule(replace(question, answers=texts))

    def classes(self, field: AnswerField, rule: ClassRule) -> list[FieldClass]:
        """List a field's classes, largest first."""
        groups = sorted(members_of(self.labels(field, rule)), key=lambda group: (-len(group), group[0]))
        total = len(field.values)
        return [FieldClass(field.values[group[0]].text, len(group), len(group) / total) for group in groups]

    def summary(self, rule: ClassRule) -> dict[str, Any]:
        """Summarise every field and the whole object for ``--json`` and the endpoint.

        Shares are of the valid answers, ``share_of_all`` counts the others, too; entropies are in nats.
        """
        entries = {}
        for field in self.fields:
            classes = self.classes(field, rule)
            entries[field.pointer] = {
                "kind": field.kind,
                "value": classes[0].value if classes else None,
                "share": classes[0].share if classes else None,
                "share_of_all": classes[0].answers / len(self.faults) if classes else 0.0,
                "entropy": entropy([entry.share for entry in classes]),
                "classes": [entry._asdict() for entry in classes],
                "missing": sum(value == ABSENT for value in field.values),
                "invalid": sum(fault is not None for fault in self.faults),
                **self._token_summary(field, classes),
                **({"items": dict(field.items)} if field.items else {}),
                **({"lengths": {str(n): count for n, count in field.lengths}} if field.lengths else {}),
            }
        whole = self.object_share(rule)
        faults = Counter(fault.reason for fault in self.faults if fault is not None)
        return {
            "fields": entries,
            "object": None if whole is None else whole._asdict(),
            "samples": len(self.faults),
            "invalid": dict(faults),
        }


def entropy(shares: Sequence[float]) -> float:
    """Compute the entropy of shares in nats."""
    # + 0.0 makes a negative zero positive
    return math.fsum(-share * math.log(share) for share in shares if share) + 0.0


def structure(question: AnsweredQuestion, schema: Schema | None = None) -> Structured:
    """Split a question's answers by field.

    Args:
        schema: says which answers are valid, and of what kind fields are; else each value says it of itself.

    Raises:
        MissingExtraError: a list of objects without identifiers needs the ``fields`` extra.
        DataError: the schema refers to what it does not hold.
    """

    def read(text: str) -> Any:
        value = parse(text)
        return value if schema is None or isinstance(value, Unreadable) else schema.read(value)

    values = [read(text) for text in question.answers]
    faults = tuple(value if isinstance(value, Unreadable) else None for value in values)
    valid = [value for value in values if not isinstance(value, Unreadable)]
    gold = [value for value in map(read, question.gold) if not isinstance(value, Unreadable)]
    response = [] if question.answer is None else [read(question.answer)]
    judged = [MISSING if isinstance(value, Unreadable) else value for value in response]
    walker = _Walker(schema, len(valid), len(gold))
    is_spelled = question.token_values.tokens and question.token_values.logprobs
    node = {} if schema is None else schema.resolved(schema.document)
    fields = list(walker.walk(_Place(), [*valid, *gold, *judged], node)) if valid or gold else []
    # a judged answer that cannot be read is wrong in every field
    if response and isinstance(response[0], Unreadable):
        fields = [replace(field, response=INVALID) for field in fields]
    limited = fields
    if len(fields) > MOST_FIELDS:
        # the rarest fields are left out: few answers share them
        frequent = sorted(fields, key=lambda field: sum(value == ABSENT for value in field.values))
        pointers = {field.pointer for field in frequent[:MOST_FIELDS]}
        limited = [field for field in fields if field.pointer in pointers]
    return Structured(
        question=question,
        fields=tuple(limited),
        faults=faults,
        objects=tuple(signature(value, schema, node) for value in valid),
        unread_gold=len(question.gold) - len(gold),
        left_out=len(fields) - len(limited) + walker.left_out,
        unmatched=walker.unmatched,
        spans=tuple(
            {} if fault else value_spans(text) for text, fault in zip(question.answers, faults, strict=True)
        )
        if is_spelled
        else (),
    )


def notes_on(structured: Sequence[Structured]) -> list[str]:
    """Describe the answers without fields, one sentence per reason."""
    reasons = Counter(fault.reason for item in structured for fault in item.faults if fault)
    total = sum(len(item.faults) for item in structured)
    notes = [
        f"{count:,} of {counted(total, 'answer')}: {FAULTS[reason]}. In every field these answers form a "
        "separate class."
        for reason, count in reasons.most_common()
    ]
    if unread := sum(item.unread_gold for item in structured):
        notes.append(f"{counted(unread, 'right answer')} left out: no valid JSON.")
    if unmatched := sum(item.unmatched for item in structured):
        notes.append(
            f"{counted(unmatched, 'list')} of more than {MOST_MATCHED} objects without identifiers: only "
            "their lengths are compared."
        )
    if left_out := sum(item.left_out for item in structured):
        notes.append(
            f"{counted(left_out, 'field')} left out: the rarest fields of questions with more than "
            f"{MOST_FIELDS}."
        )
    return notes


def pointer_of(name: object) -> str:
    """Write the JSON Pointer (RFC 6901) of a key at the root."""
    return "/" + str(name).replace("~", "~0").replace("/", "~1")


Span = tuple[int, int]
"""Start of a value, and the character after its end."""
_JSON_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+')


def value_spans(text: str) -> dict[str, Span]:
    """Locate the values of a valid JSON answer, by JSON Pointer.

    The quote, bracket or mark that ends a value is a part of it, and the one that begins it is not.
    """
    plain = without_fence(text)
    start = text.find(plain)
    marks = [(match[0], start + match.start(), start + match.end()) for match in _JSON_TOKEN.finditer(plain)]
    spans: dict[str, Span] = {}

    def read(index: int, pointer: str) -> int:
        """Record the value at a mark, and return the next mark."""
        mark, first, end = marks[index]
        opens = mark in ("{", "[")
        # a number ends where the next character shows that no digit follows
        spans[pointer] = (first + 1, end) if mark[0] == '"' else (first, min(end + 1, len(text)))
        index += 1
        if not opens:
            return index
        number = 0
        while marks[index][0] not in ("}", "]"):
            name: object = number
            if mark == "{":
                name = json.loads(marks[index][0])
                index += 2  # the key and its colon
            index = read(index, pointer + pointer_of(name))
            index += marks[index][0] == ","
            number += 1
        spans[pointer] = (first + 1, marks[index][2])
        return index + 1

    read(0, "")
    return spans


def _overlapping(texts: Sequence[str], ends: Sequence[int], start: int, end: int) -> Span:
    """Find the first token that overlaps a span of text, and the one after the last."""
    first, last = bisect_right(ends, start), bisect_left(ends, end)
    # tokens without text are parts of the character that the next one completes
    while 0 < first < len(texts) and not texts[first - 1] and ends[first] - len(texts[first]) == start:
        first -= 1
    return first, min(last + 1, len(texts))


class _Place(NamedTuple):
    pointer: str = ""
    path: str = ""
    is_located: bool = True

    def child(self, name: object, *, of_list: bool, is_located: bool = True) -> _Place:
        token = pointer_of(name)
        path = f"{self.path}{'/*' if of_list else token}"
        return _Place(f"{self.pointer}{token}", path, self.is_located and is_located)


class _Walker:
    """Traversal of all answers to a question in parallel."""

    def __init__(self, schema: Schema | None, samples: int, gold: int) -> None:
        self._schema = schema
        self._samples = samples
        self._end_of_gold = samples + gold
        self.unmatched = 0
        self.left_out = 0

    def walk(self, place: _Place, column: Sequence[Any], node: Node) -> Iterator[AnswerField]:
        """Yield the fields at and below a location.

        Args:
            column: what stands there in each sample, then in each right answer, then in the judged answer.
        """
        children: Sequence[Mapping[Any, Any] | None]
        lists = [_objects_in(value) for value in column]
        # where order counts, a place is a name
        if is_ordered(node):
            children = [dict(enumerate(value)) if isinstance(value, list) else None for value in column]
        # a list of objects is matched by what the objects hold, not by their places
        elif any(lists) and not any(_has_plain_item(value) for value in column):
            aligned = align(lists, node, self._samples)
            self.unmatched += aligned is None
            children = aligned or []
        elif any(isinstance(value, dict) for value in column):
            # some answers have an object there and others a value, so the place is a field, too
            if any(value is not MISSING and not isinstance(value, dict) for value in column):
                yield self._field(place, column, node)  # an object in some answers only
            children = [value if isinstance(value, dict) else None for value in column]
            names = [*part_of(node, "properties"), *(key for child in children if child for key in child)]
            different = dict.fromkeys(names)
            if len(different) > MOST_FIELDS:  # a model may write as many keys as it likes
                frequent = dict(Counter(names).most_common(MOST_FIELDS))
                self.left_out += len(different) - MOST_FIELDS
                different = dict.fromkeys(name for name in different if name in frequent)
            for name in different:
                part = self._schema.member(node, name) if self._schema else {}
                yield from self._child(place.child(name, of_list=False), name, children, part)
            return
        else:
            yield self._field(place, column, node)
            return
        yield self._list_field(place, column)
        for name in dict.fromkeys(key for child in children if child for key in child):
            is_located = is_ordered(node)  # else objects are named, not numbered
            child = place.child(name, of_list=True, is_located=is_located)
            part = self._schema.item(node, name) if self._schema else {}
            yield from self._child(child, name, children, part)

    def _child(
        self, place: _Place, name: object, children: Sequence[Mapping[Any, Any] | None], node: Node
    ) -> Iterator[AnswerField]:
        default = default_of(node)
        column = [MISSING if child is None else child.get(name, default) for child in children]
        # a default must not be descended into for answers that never had it
        if isinstance(default, dict | list) and not any(child and name in child for child in children):
            # the default of a schema that refers to itself may have no end
            return iter((self._field(place, column, node),))
        return self.walk(place, column, node)

    def _field(self, place: _Place, column: Sequence[Any], node: Node) -> AnswerField:
        lists = [value for value in column[: self._samples] if isinstance(value, list)]
        # reversed, so that the first spelling of each member is the one shown
        spellings = {signature(item): item for value in reversed(lists) for item in reversed(value)}
        members = Counter(key for value in lists for key in {signature(item) for item in value})
        return self._made(
            place,
            _kind(column[: self._samples], node),
            [scalar(value, node) for value in column],
            classes=str(setting(node, "classes") or ""),
            items=tuple((_shown(spellings[key]), count) for key, count in members.most_common()),
            lengths=tuple(Counter(map(len, lists)).most_common()),
        )

    def _list_field(self, place: _Place, column: Sequence[Any]) -> AnswerField:
        """Make a field for a list's length, with items as separate fields."""
        values = [
            FieldValue(f"({counted(len(value), 'item')})", f"length {len(value)}")
            if isinstance(value, list)
            else scalar(value, {})
            for value in column
        ]
        return self._made(place, "list", values)

    def _made(self, place: _Place, kind: str, values: Sequence[FieldValue], **counts: Any) -> AnswerField:
        return AnswerField(
            *place,
            kind,
            values=tuple(values[: self._samples]),
            gold=tuple(values[self._samples : self._end_of_gold]),
            response=next(iter(values[self._end_of_gold :]), None),
            **counts,
        )


def _objects_in(value: Any) -> list[dict[str, Any]] | None:
    """Return a list's items if they are all objects or null."""
    if not isinstance(value, list) or _has_plain_item(value):
        return None
    return [item for item in value if item is not None] or (None if value else [])


def _has_plain_item(value: Any) -> bool:
    """Check whether a list contains an item other than objects and nulls."""
    return isinstance(value, list) and not all(isinstance(item, dict | None) for item in value)


_KINDS = {bool: "boolean", Decimal: "number", str: "text", list: "set", dict: "object", type(None): "null"}


def _kind(values: Sequence[Any], node: Node) -> str:
    """Name a field's kind by its values, ignoring null and missing ones."""
    kinds = {_KINDS[type(value)] for value in values if value is not MISSING and value is not None}
    if len(kinds) > 1:
        return "mixed"
    if kinds != {"text"}:
        return next(iter(kinds), "null")
    if "enum" in node or "const" in node:
        return "enum"
    texts = [value for value in values if isinstance(value, str)]
    if all((scalar(text, node).key or "").startswith("date ") for text in texts):
        return "date"
    # the median, because one long answer makes no field a free text
    words = sorted(len(text.split()) for text in texts)
    return "free_text" if words[len(words) // 2] > _FREE_WORDS else "text"


def _shown(item: Any) -> str:
    """Write an item of a set for readers."""
    return dumped(item) if isinstance(item, dict) else scalar(item, {}).text


def field_lines(structured: Sequence[Structured], rule: ClassRule) -> Iterator[dict[str, Any]]:
    """Yield one JSON line per question: its fields and the whole object."""
    for item in structured:
        yield {"id": item.question.id, "classes": rule.name, **item.summary(rule)}


def field_table(structured: Sequence[Structured], assessment: Assessment) -> Table:
    """Tabulate each field over all questions, least certain first.

    Shares and entropies (in nats) are means over questions, of valid answers; accuracies are of the answers
    that ``assessment`` judges, by its first kind of correctness.
    """
    rule = assessment.method.rule
    labels = next(iter(assessment.judged.labels.values()), [None] * len(assessment.questions))
    label_of = {question.id: label for question, label in zip(assessment.questions, labels, strict=True)}
    places: dict[str, list[tuple[Structured, AnswerField]]] = defaultdict(list)
    for item in structured:
        for field in item.fields:
            places[field.path].append((item, field))
    rows: list[tuple[Cell, ...]] = []
    for path, fields in places.items():
        classes = [[entry.share for entry in item.classes(field, rule)] for item, field in fields]
        shares = [max(column) for column in classes if column]
        correct = defined(label_of.get(f"{item.question.id}#{field.pointer}") for item, field in fields)
        kinds = sorted({field.kind for _, field in fields})
        rows.append(
            (
                path or "/",
                kinds[0] if len(kinds) == 1 else "mixed",
                len(fields),
                fmean(shares) if shares else None,
                fmean(map(entropy, classes)) if shares else None,
                fmean(correct) if correct else None,
            )
        )
    rows.sort(key=lambda row: (row[3] is None, row[3]))
    columns = (
        Column("field"),
        Column("kind"),
        Column("n", "d"),
        Column("share", ".3f"),
        Column("entropy", ".3f"),
        Column("right", ".3f"),
    )
    return Table("Fields", columns, tuple(rows), tuple(_notes(structured, rule, rows)))


def _notes(structured: Sequence[Structured], rule: ClassRule, rows: Sequence[tuple[Cell, ...]]) -> list[str]:
    wholes = [whole for item in structured if (whole := item.object_share(rule)) is not None]
    notes = [
        "The share of the most common value says how sure the model is of a field. The most common whole "
        f"object has a share of {fmean(whole.share for whole in wholes):.3f} on average."
    ]
    chimeras = sum(not whole.sampled for whole in wholes)
    if chimeras:
        notes.append(
            f"For {chimeras:,} of {len(wholes):,} questions no sampled answer has the most common value in "
            "every field, so an object merged from these values was never sampled."
        )
    if any(row[1] == "free_text" for row in rows):
        notes.append(
            "Free text: answers that say the same in other words may count as different, so a low share says "
            "little."
        )
    return notes
