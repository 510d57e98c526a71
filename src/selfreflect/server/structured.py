"""Structured answers (JSON or tool calls): the most common, and the distribution of each field."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Hashable, Mapping, Sequence
from typing import Any

from selfreflect.errors import DataError, MissingExtraError, excerpt
from selfreflect.grouping import ordered_groups
from selfreflect.models.base import CallingCompletion, Completion, ToolCall
from selfreflect.server.belief import AnswerReading, classes_of
from selfreflect.server.chat import Tool
from selfreflect.server.reply import Confidence
from selfreflect.uncertainty.classes import ClassRule, members_of, number_classes
from selfreflect.uncertainty.fields.distribution import Structured, notes_on, pointer_of, structure
from selfreflect.uncertainty.fields.values import (
    FAULTS,
    Schema,
    Unreadable,
    dumped,
    parse,
    put,
    signature,
    value_at,
    without_fence,
)
from selfreflect.uncertainty.question import AnsweredQuestion

CONFIDENCE = "least_field_share"
"""Smallest share of agreement with the returned answer in any field, or in any required field."""


def read_objects(
    question: str,
    answers: Sequence[str],
    response_format: Mapping[str, Any],
    rule: ClassRule,
    *,
    merges: bool = False,
) -> AnswerReading:
    """Find the most common object, and the distribution of its fields.

    Args:
        response_format: of the request; a schema in it says which answers are valid.
        rule: compares texts of fields.
        merges: whether each field of the object gets its most common value, where the schema allows it.
    """
    part = response_format.get("json_schema")
    schema, note = _schema(part.get("schema") if isinstance(part, dict) else None)
    structured, note = _structured(question, answers, schema, note)
    objects = iter(structured.objects)
    keys = [fault.reason if fault else next(objects) for fault in structured.faults]
    required = [] if schema is None else _required("", schema.resolved(schema.document))
    # invalid answers are one class for each reason, of which no text is an example
    texts = [
        f"({FAULTS[fault.reason]})" if fault else without_fence(answer)
        for answer, fault in zip(answers, structured.faults, strict=True)
    ]
    reading = _reading(structured, answers, keys, required, rule, note, texts)
    if reading.chosen is None or reading.confidence.value is None:
        return reading
    checked = None if note else schema
    if checked is not None:
        # a client checks the schema itself, and to it a number that is written as text is none
        label = reading.classes.labels[reading.chosen]
        equal = [index for index, number in enumerate(reading.classes.labels) if number == label]
        literal = (index for index in (reading.chosen, *equal) if checked.allows(parse(answers[index])))
        reading = reading._replace(chosen=next(literal, reading.chosen))
    return _merged(reading, structured, answers, checked, required, rule) if merges else reading


def _merged(
    reading: AnswerReading,
    structured: Structured,
    answers: Sequence[str],
    schema: Schema | None,
    required: Collection[str],
    rule: ClassRule,
) -> AnswerReading:
    """Set each field of the chosen object to its most common value, if the schema allows.

    Objects of lists stay as they are, since a name that aligns them says no place.
    """
    valid = [index for index, fault in enumerate(structured.faults) if fault is None]
    chosen = valid.index(reading.chosen or 0)
    values = [parse(answers[index]) for index in valid]
    document, is_other = values[chosen], False
    for field in structured.fields:
        # of groups of one size that of the chosen object, so that nothing is changed without need
        largest = max(
            members_of(structured.labels(field, rule)), key=lambda group: (len(group), chosen in group)
        )
        if field.is_located and field.kind != "list" and chosen not in largest:
            is_other |= put(document, field.pointer, value_at(values[largest[0]], field.pointer))
    if not is_other:
        return reading
    text = dumped(document)
    is_readable = not isinstance(parse(text), Unreadable)  # numbers written out may be long
    if not is_readable or (schema is not None and not schema.allows(document)):
        problem = "the schema does not allow" if is_readable else "one object cannot hold"
        note = f"not merged: {problem} the most common values of all fields together"
        return reading._replace(notes=(*reading.notes, note))
    # how many agree with the new values, as if the merged object were one more answer
    record = AnsweredQuestion(id="", text=structured.question.text, answers=(*answers, text))
    with_merged = structure(record, schema)
    total = len(answers)
    # back from shares of total + 1 answers to counts
    agreeing = [round(column[total] * (total + 1)) for column in _agreement(with_merged, rule, required)]
    if not agreeing or with_merged.left_out:  # objects without such fields agree as a whole
        agreeing.append(with_merged.objects.count(with_merged.objects[-1]))
    # less the merged object itself, which no answer gave
    confidence = reading.confidence._replace(value=(min(agreeing) - 1) / total)
    return reading._replace(text=text, confidence=confidence)


def read_calls(
    question: str,
    completions: Sequence[Completion],
    tools: Sequence[Tool],
    rule: ClassRule,
    *,
    must_call: bool = False,
) -> AnswerReading:
    """Find the most frequently called tool, its most common call, and the distribution of arguments.

    A field ``/name`` holds the tool, null for answers in text; the arguments of answers that call another
    tool are missing.

    Args:
        tools: of the request; the parameters of the most common one say which of its calls are valid.
        rule: compares answers in text, and texts of arguments.
        must_call: whether an answer in text is none.
    """
    # a model may write calls that run at once in any order
    calls = [sorted(calls_of(item), key=lambda call: _identity([call])) for item in completions]
    names = [tuple(call.name for call in several) for several in calls]
    tool_names = {tool.name for tool in tools}
    strange = [not tool_names.issuperset(several) for several in names]
    # what a client cannot run comes back only where there is nothing else
    usable = [
        several
        for several, is_strange in zip(names, strange, strict=True)
        if not is_strange and (several or not must_call)
    ]
    # of names that are called equally often the first drawn
    modal = Counter(usable or names).most_common(1)[0][0]
    parameters = [_parameters(tools, name) for name in modal]
    schema, note = _schema_of_calls(parameters)
    documents = [
        _document(several, several_names == modal)
        for several, several_names in zip(calls, names, strict=True)
    ]
    structured, note = _structured(question, documents, schema, note)
    texts = tuple(completion.text for completion in completions)
    with_text = [index for index, several in enumerate(calls) if not several]
    record = AnsweredQuestion(id="", text=question, answers=tuple(texts[index] for index in with_text))
    label_of = dict(zip(with_text, rule(record).tolist(), strict=True)) if with_text else {}
    # a number for a text and a pair for calls, so that the two never meet in one class
    keys: list[Hashable] = [
        # one spelling of a value may be allowed, and another not
        label_of.get(index, (_identity(several), fault))
        for index, (several, fault) in enumerate(zip(calls, structured.faults, strict=True))
    ]
    required = []
    if schema is not None:
        for place, part in zip(_places(len(modal)), parameters, strict=True):
            required += _required(place, schema.resolved(part))
    reading = _reading(
        structured,
        texts,
        keys,
        # An empty list stands for every field. Where some are required, the choice of the tool is one of
        # them.
        ["/name", *required] if required else [],
        rule,
        _notes_on_tools(len(names), sum(strange), len(with_text) if must_call else 0, note),
        list(map(_shown, completions)),
        may_choose=[several_names == modal for several_names in names],
    )
    if modal:
        return reading
    # texts are no objects: the rule compares them, and those that call nothing agree on no more than that
    classes, confidence = reading.classes._replace(rule=rule.name), reading.confidence
    if confidence.value is not None and reading.chosen is not None:
        share = classes.shares[classes.labels[reading.chosen]].share
        confidence = confidence._replace(value=min(confidence.value, share))
    return reading._replace(classes=classes, confidence=confidence)


def _notes_on_tools(answers: int, strange: int, without_call: int, note: str) -> str:
    """Describe how many answers call forbidden tools, or lack a required call."""
    wrong = f"answers that call a tool which the request does not allow: {strange} of {answers}"
    none = f"answers without the call that the request demands: {without_call} of {answers}"
    return "; ".join(filter(None, (note, wrong if strange else "", none if without_call else "")))


def _reading(
    structured: Structured,
    answers: Sequence[str],
    keys: Sequence[Hashable],
    required: Collection[str],
    rule: ClassRule,
    note: str,
    texts: Sequence[str],
    may_choose: Sequence[bool] | None = None,
) -> AnswerReading:
    """Choose the most common answer, a valid one if possible."""
    labels = number_classes(list(keys))
    classes = classes_of(answers, labels, "equal objects", texts)
    groups = ordered_groups(answers, members_of(labels))
    candidates = [group[0] for group in groups if may_choose is None or may_choose[group[0]]]
    valid = [index for index in candidates if structured.faults[index] is None]
    if valid:
        size_of = Counter(classes.labels)
        size = size_of[classes.labels[valid[0]]]
        equal = [index for index in valid if size_of[classes.labels[index]] == size]
        columns = _agreement(structured, rule, required)
        # objects with free texts are often all different: then most answers share the values of one
        rows = {index: [column[index] for column in columns] for index in equal}
        chosen = max(equal, key=lambda index: (min(rows[index], default=0), sum(rows[index])))
        # objects without fields, or with too many to look at, agree as a whole
        whole = [size / len(answers)] if not rows[chosen] or structured.left_out else []
        value = min(*rows[chosen], *whole, 1.0)
        confidence = Confidence(value, CONFIDENCE, len(answers))
    else:
        chosen = candidates[0]
        note_on_it = "no confidence: the returned text is not valid JSON, or the schema does not allow it"
        confidence = Confidence(None, None, len(answers), notes=(note_on_it,))
    return AnswerReading(
        classes=classes,
        confidence=confidence,
        notes=tuple(filter(None, (note, *notes_on([structured]), *rule.caveats))),
        chosen=chosen,
        fields=structured.summary(rule),
    )


def _agreement(structured: Structured, rule: ClassRule, required: Collection[str]) -> list[dict[int, float]]:
    """Compute the share of answers that agree with each valid answer, per required field.

    The share of the largest class would be too large: what most answers say in one field may stand in other
    answers than what most say in another, and most may lack an argument because they call another tool.
    """
    valid = [index for index, fault in enumerate(structured.faults) if fault is None]
    columns = []
    for field in structured.fields:
        # with the slash, as "/ab" lies not below "/a"
        if required and not any(f"{field.pointer}/".startswith(f"{name}/") for name in required):
            continue
        labels = structured.labels(field, rule).tolist()
        sizes = Counter(labels)
        shares = (sizes[label] / len(structured.faults) for label in labels)
        columns.append(dict(zip(valid, shares, strict=True)))
    return columns


def _structured(
    question: str, documents: Sequence[str], schema: Schema | None, note: str
) -> tuple[Structured, str]:
    """Split answers by field, ignoring a schema with broken references."""
    record = AnsweredQuestion(id="", text=question, answers=tuple(documents))
    try:
        return structure(record, schema), note
    except DataError as error:
        return structure(record), _unchecked(error)


def _schema(document: object) -> tuple[Schema | None, str]:
    """Read a request's schema, or explain why answers are not checked."""
    if not isinstance(document, dict) or not document:
        return None, ""
    try:
        return Schema(document, trusted=False), ""
    except (DataError, MissingExtraError) as error:
        return None, _unchecked(error)


def _unchecked(error: Exception) -> str:
    return f"answers are not checked against the schema: {error}"


def _required(pointer: str, node: Mapping[str, Any]) -> list[str]:
    """List the required fields of the object at a pointer."""
    names = node.get("required")
    return [f"{pointer}{pointer_of(name)}" for name in names] if isinstance(names, list) else []


def calls_of(completion: Completion) -> tuple[ToolCall, ...]:
    """Return the tool calls of a completion."""
    return completion.calls if isinstance(completion, CallingCompletion) else ()


def _parameters(tools: Sequence[Tool], name: str) -> dict[str, Any]:
    """Find the argument schema of a tool; empty if there is none."""
    schema = next((tool.parameters for tool in tools if tool.name == name), None)
    return schema if isinstance(schema, dict) else {}


def _places(calls: int) -> list[str]:
    """List the pointers of arguments, by position."""
    return ["/arguments"] if calls == 1 else [f"/arguments/{index}" for index in range(calls)]


def _schema_of_calls(parameters: Sequence[Mapping[str, Any]]) -> tuple[Schema | None, str]:
    """Make the schema for :func:`_document`, or explain why calls are not checked.

    Definitions move to its root, where references look for them.
    """
    definitions: dict[str, dict[str, Any]] = {}
    for part in parameters:
        for group in ("$defs", "definitions"):
            defined = part.get(group)
            for name, value in defined.items() if isinstance(defined, dict) else ():
                if definitions.setdefault(group, {}).setdefault(name, value) != value:
                    return None, _unchecked(DataError(f"its tools define {excerpt(name)} in two ways"))
    if not any(parameters):
        return None, ""
    by_place = {str(index): part for index, part in enumerate(parameters)}
    arguments = parameters[0] if len(parameters) == 1 else {"properties": by_place}
    return _schema({**definitions, "properties": {"name": {}, "arguments": arguments}})


def _document(calls: Sequence[ToolCall], is_modal: bool) -> str:
    """Write calls as one object, with the tools' names and the arguments of the most common tool."""
    name = json.dumps(", ".join(call.name for call in calls) or None)
    if not calls or not is_modal:
        return f'{{"name": {name}}}'
    for call in calls:
        if isinstance(parse(call.arguments), Unreadable):
            return call.arguments  # alone: within an object, half of one could make a whole
    if len(calls) == 1:
        return f'{{"name": {name}, "arguments": {calls[0].arguments}}}'
    arguments = ", ".join(f'"{index}": {call.arguments}' for index, call in enumerate(calls))
    return f'{{"name": {name}, "arguments": {{{arguments}}}}}'


def _identity(calls: Sequence[ToolCall]) -> tuple[tuple[str, str], ...]:
    """Make a key for comparing calls."""
    values = [(call, parse(call.arguments)) for call in calls]
    return tuple(
        (call.name, call.arguments if isinstance(value, Unreadable) else signature(value))
        for call, value in values
    )


def _shown(completion: Completion) -> str:
    """Format an answer for the list of classes."""
    return "; ".join(f"{call.name}({call.arguments})" for call in calls_of(completion)) or completion.text
