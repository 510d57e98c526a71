"""Requests for JSON: the most common object, and the distribution of each of its fields."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from selfreflect.errors import DataError, MissingExtraError
from selfreflect.grouping import ordered_groups
from selfreflect.server.belief import Classes
from selfreflect.server.reply import AnswerShare, Confidence
from selfreflect.uncertainty.classes import ClassRule, members_of, number_classes
from selfreflect.uncertainty.features import entropy
from selfreflect.uncertainty.fields.distribution import Structured, notes_on, pointer_of, structure
from selfreflect.uncertainty.fields.values import Schema, without_fence
from selfreflect.uncertainty.question import AnsweredQuestion

STRATEGY = "modal_object"
CONFIDENCE = "least_field_share"
"""Share of the answers that agree on the field on which they agree least: of those that the schema requires,
if it does."""
_WHOLE = "equal objects"


class ObjectReading(NamedTuple):
    """The answers to a request for JSON."""

    text: str
    """The most common object as an answer wrote it; the first answer if none is valid."""
    chosen: int
    """Of the answer that wrote it."""
    classes: Classes
    confidence: Confidence
    fields: dict[str, Any]
    """As ``selfreflect uncertainty --fields`` gives them, by JSON Pointer, and the ``object`` as a whole."""
    notes: tuple[str, ...]


def read_objects(
    question: str, answers: Sequence[str], response_format: Mapping[str, Any], rule: ClassRule
) -> ObjectReading:
    """Find the most common object, and the distribution of its fields.

    Args:
        response_format: of the request; a schema in it says which answers are valid.
        rule: compares texts of fields.
    """
    schema, note = _schema(response_format)
    asked = AnsweredQuestion(id="", text=question, answers=tuple(answers))
    try:
        structured = structure(asked, schema)
    except DataError as error:  # it refers to what it does not hold
        schema, note = None, _unchecked(error)
        structured = structure(asked)
    objects = iter(structured.objects)
    keys = [fault.reason if fault else next(objects) for fault in structured.faults]
    labels = number_classes(keys)
    groups = ordered_groups(answers, members_of(labels))
    valid = [group for group in groups if structured.faults[group[0]] is None]
    shares, ranks = [], [0] * len(answers)
    for rank, group in enumerate(groups):
        shares.append(AnswerShare(text=without_fence(answers[group[0]]), share=len(group) / len(answers)))
        for index in group:
            ranks[index] = rank
    summary = structured.summary(rule)
    chosen = valid[0][0] if valid else 0
    return ObjectReading(
        text=without_fence(answers[chosen]),
        chosen=chosen,
        classes=Classes(tuple(shares), tuple(ranks), round(entropy(labels), 12), _WHOLE),
        confidence=_confidence(structured, summary, schema, len(answers)),
        fields=summary,
        notes=tuple(filter(None, (note, *notes_on([structured])))),
    )


def _schema(response_format: Mapping[str, Any]) -> tuple[Schema | None, str]:
    """Read the schema of a request, or say why answers are not checked against it."""
    part = response_format.get("json_schema")
    document = part.get("schema") if isinstance(part, dict) else None
    if not isinstance(document, dict):
        return None, ""
    try:
        return Schema(document, trusted=False), ""
    except (DataError, MissingExtraError) as error:
        return None, _unchecked(error)


def _unchecked(error: Exception) -> str:
    return f"answers are not checked against the schema: {error}"


def _confidence(
    structured: Structured, summary: Mapping[str, Any], schema: Schema | None, answers: int
) -> Confidence:
    names = () if schema is None else schema.resolved(schema.document).get("required", ())
    required = {pointer_of(name) for name in names}
    shares = [
        entry["share_of_all"]
        for pointer, entry in summary["fields"].items()
        if not required or any(f"{pointer}/".startswith(f"{name}/") for name in required)
    ]
    if not structured.objects or not shares:
        return Confidence(None, None, answers, notes=("no confidence: no answer is a valid object",))
    return Confidence(min(shares), CONFIDENCE, answers)
