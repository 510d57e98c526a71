"""Answers that are JSON or call tools: the most common one, and the distribution of each of its fields."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any

from selfreflect.errors import DataError, MissingExtraError
from selfreflect.grouping import ordered_groups
from selfreflect.models.base import CallingCompletion, Completion, ToolCall
from selfreflect.server.belief import AnswerReading, classes_of
from selfreflect.server.chat import Tool
from selfreflect.server.reply import Confidence
from selfreflect.text import counted
from selfreflect.uncertainty.classes import ClassRule, members_of, number_classes
from selfreflect.uncertainty.fields.distribution import Structured, notes_on, pointer_of, structure
from selfreflect.uncertainty.fields.values import Schema, Unreadable, parse, signature, without_fence
from selfreflect.uncertainty.question import AnsweredQuestion

CONFIDENCE = "least_field_share"
"""Share of the answers that agree on the field on which they agree least, or with a call in its field: of
those that the schema requires, if it does."""


def read_objects(
    question: str, answers: Sequence[str], response_format: Mapping[str, Any], rule: ClassRule
) -> AnswerReading:
    """Find the most common object, and the distribution of its fields.

    Args:
        response_format: of the request; a schema in it says which answers are valid.
        rule: compares texts of fields.
    """
    part = response_format.get("json_schema")
    schema, note = _schema(part.get("schema") if isinstance(part, dict) else None)
    structured, note = _structured(question, answers, schema, note)
    objects = iter(structured.objects)
    keys = [fault.reason if fault else next(objects) for fault in structured.faults]
    names = () if schema is None else schema.resolved(schema.document).get("required", ())
    return _reading(structured, answers, keys, map(pointer_of, names), rule, note, named=without_fence)


def read_calls(
    question: str,
    completions: Sequence[Completion],
    tools: Sequence[Tool],
    rule: ClassRule,
    *,
    must_call: bool = False,
) -> AnswerReading:
    """Find the tool that most answers call, its most common call, and the distribution of the arguments.

    A field ``/name`` holds the tool, null for answers in text; the arguments of answers that call another
    tool are missing.

    Args:
        tools: of the request; the parameters of the most common one say which of its calls are valid.
        rule: compares answers in text, and texts of arguments.
        must_call: whether an answer in text is none.
    """
    calls = [_sorted_calls(completion) for completion in completions]
    names = [tuple(call.name for call in several) for several in calls]
    offered = {tool.name for tool in tools}
    strange = [not offered.issuperset(several) for several in names]
    # what a client cannot run comes back only where there is nothing else
    usable = [
        several
        for several, is_strange in zip(names, strange, strict=True)
        if not is_strange and (several or not must_call)
    ]
    modal = Counter(usable or names).most_common(1)[0][0]
    parameters = _parameters(tools, modal)
    schema, note = _schema(parameters and _whole_schema(parameters))
    documents = [
        _document(several, several_names == modal)
        for several, several_names in zip(calls, names, strict=True)
    ]
    structured, note = _structured(question, documents, schema, note)
    if any(strange):
        called = f"{sum(strange)} of {counted(len(names), 'answer')} call a tool that was not offered"
        note = "; ".join(filter(None, (note, called)))
    texts = tuple(completion.text for completion in completions)
    written = [index for index, several in enumerate(calls) if not several]
    asked = AnsweredQuestion(id="", text=question, answers=tuple(texts[index] for index in written))
    label_of = dict(zip(written, rule(asked).tolist(), strict=True)) if written else {}
    keys: list[Hashable] = [label_of.get(index, _identity(several)) for index, several in enumerate(calls)]
    required = () if schema is None else parameters.get("required", ())
    pointers = ["/name", *(f"/arguments{pointer_of(name)}" for name in required)] if required else []
    shown = dict(zip(texts, map(_shown, completions), strict=True))
    may_choose = [several_names == modal for several_names in names]
    return _reading(structured, texts, keys, pointers, rule, note, shown.__getitem__, may_choose)


def _reading(
    structured: Structured,
    answers: Sequence[str],
    keys: Sequence[Hashable],
    required: Iterable[str],
    rule: ClassRule,
    note: str,
    named: Callable[[str], str],
    may_choose: Sequence[bool] | None = None,
) -> AnswerReading:
    """Choose the most common answer: a valid one, if there is any, of those that may be chosen."""
    labels = number_classes(list(keys))
    groups = ordered_groups(answers, members_of(labels))
    candidates = [group[0] for group in groups if may_choose is None or may_choose[group[0]]]
    valid = [index for index in candidates if structured.faults[index] is None]
    summary = structured.summary(rule)
    if may_choose is None:
        shares = {pointer: entry["share_of_all"] for pointer, entry in summary["fields"].items()}
    else:
        shares = _agreement(structured, valid[0], rule) if valid else {}
    return AnswerReading(
        classes=classes_of(answers, labels, "equal objects", named),
        confidence=_confidence(structured, shares, set(required)),
        notes=tuple(filter(None, (note, *notes_on([structured]), *rule.caveats))),
        chosen=valid[0] if valid else 0 if may_choose is None else candidates[0],
        fields=summary,
    )


def _agreement(structured: Structured, chosen: int, rule: ClassRule) -> dict[str, float]:
    """Compute the share of all answers that agree with the chosen one, by field.

    The largest class would be too large: most answers may lack an argument because they call another tool.
    """
    place = sum(fault is None for fault in structured.faults[:chosen])
    shares = {}
    for field in structured.fields:
        labels = structured.labels(field, rule)
        shares[field.pointer] = float((labels == labels[place]).sum()) / len(structured.faults)
    return shares


def _structured(
    question: str, documents: Sequence[str], schema: Schema | None, note: str
) -> tuple[Structured, str]:
    """Take answers apart by field, without a schema that refers to what it does not hold."""
    asked = AnsweredQuestion(id="", text=question, answers=tuple(documents))
    try:
        return structure(asked, schema), note
    except DataError as error:
        return structure(asked), _unchecked(error)


def _schema(document: object) -> tuple[Schema | None, str]:
    """Read a schema of a request, or say why answers are not checked against it."""
    if not isinstance(document, dict) or not document:
        return None, ""
    try:
        return Schema(document, trusted=False), ""
    except (DataError, MissingExtraError) as error:
        return None, _unchecked(error)


def _unchecked(error: Exception) -> str:
    return f"answers are not checked against the schema: {error}"


def _confidence(structured: Structured, share_of: Mapping[str, float], required: set[str]) -> Confidence:
    shares = [
        share
        for pointer, share in share_of.items()
        if not required or any(f"{pointer}/".startswith(f"{name}/") for name in required)
    ]
    answers = len(structured.faults)
    if not structured.objects or not shares:
        return Confidence(None, None, answers, notes=("no confidence: no answer is a valid object",))
    return Confidence(min(shares), CONFIDENCE, answers)


def calls_of(completion: Completion) -> tuple[ToolCall, ...]:
    """Give the tools that a completion calls."""
    return completion.calls if isinstance(completion, CallingCompletion) else ()


def _sorted_calls(completion: Completion) -> list[ToolCall]:
    """Sort the calls of an answer: a model may write those that run at once in any order."""
    return sorted(calls_of(completion), key=lambda call: (call.name, call.arguments))


def _parameters(tools: Sequence[Tool], names: Sequence[str]) -> dict[str, Any]:
    """Find the schema of the arguments of one call; empty without one."""
    for tool in tools if len(names) == 1 else ():
        if tool.name == names[0] and isinstance(tool.parameters, dict):
            return tool.parameters
    return {}


def _whole_schema(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Make the schema of a call; definitions move to its root, where references look for them."""
    definitions = {name: parameters[name] for name in ("$defs", "definitions") if name in parameters}
    return {**definitions, "properties": {"name": {}, "arguments": parameters}}


def _document(calls: Sequence[ToolCall], is_modal: bool) -> str:
    """Write calls as one object: the names, and for the most common tool its arguments."""
    name = json.dumps(", ".join(call.name for call in calls) or None)
    if not calls or not is_modal:
        return f'{{"name": {name}}}'
    for call in calls:
        if isinstance(parse(call.arguments), Unreadable):
            return call.arguments  # alone: within an object, half of one could make a whole
    if len(calls) == 1:
        return f'{{"name": {name}, "arguments": {calls[0].arguments}}}'
    # by their places: several calls of a tool are no alternatives
    arguments = ", ".join(f'"{place}": {call.arguments}' for place, call in enumerate(calls))
    return f'{{"name": {name}, "arguments": {{{arguments}}}}}'


def _identity(calls: Sequence[ToolCall]) -> tuple[tuple[str, str], ...]:
    """Write what is equal for equal calls."""
    values = [(call, parse(call.arguments)) for call in calls]
    return tuple(
        (call.name, call.arguments if isinstance(value, Unreadable) else signature(value))
        for call, value in values
    )


def _shown(completion: Completion) -> str:
    """Write an answer as clients see it among the classes."""
    return "; ".join(f"{call.name}({call.arguments})" for call in calls_of(completion)) or completion.text
