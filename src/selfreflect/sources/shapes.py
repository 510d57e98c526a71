"""JSON objects that hold many records at once, as libraries and people write them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from selfreflect.sources.columns import QUESTION_COLUMNS, plain_name

Records = Iterator[tuple[str, dict[str, Any]]]
"""Records with their place in the object."""

_PLURAL_QUESTIONS = {"questions": "question", "prompts": "prompt", "queries": "query", "inputs": "input"}


def unfold(value: dict[str, Any]) -> Records | None:
    """Yield the records of an object that holds several; None if it is one record."""
    return next((shape(value) for matches, shape in SHAPES.values() if matches(value)), None)


def _has_columns(value: Mapping[str, Any]) -> bool:
    """Whether each field is a column: a list, as long as the others, and one of them of questions."""
    lists = [column for column in value.values() if isinstance(column, list)]
    if not lists or len(lists) < len(value) or len({len(column) for column in lists}) > 1:
        return False
    return any(_is_question(name) and all(isinstance(one, str) for one in value[name]) for name in value)


def _is_question(name: str) -> bool:
    plain = plain_name(name)
    return _PLURAL_QUESTIONS.get(plain, plain) in QUESTION_COLUMNS


def _rows_of_columns(value: Mapping[str, Any]) -> Records:
    names = {}
    for name, column in value.items():
        singular = _PLURAL_QUESTIONS.get(plain_name(name), name)
        if plain_name(name) == "responses" and all(isinstance(one, str) for one in column):
            singular = "response"  # one for each question
        names[name] = name if singular in value else singular
    for number, cells in enumerate(zip(*value.values(), strict=True), 1):
        yield f"row {number}", dict(zip(names.values(), cells, strict=True))


def _has_indexed_columns(value: Mapping[str, Any]) -> bool:
    columns = [column for column in value.values() if isinstance(column, dict)]
    if not columns or len(columns) < len(value) or not any(map(_is_question, value)):
        return False
    index = columns[0].keys()
    return all(map(str.isdecimal, index)) and all(column.keys() == index for column in columns)


def _rows_of_indexed_columns(value: Mapping[str, Any]) -> Records:
    for index in next(iter(value.values())):
        yield f"row {index}", {name: column[index] for name, column in value.items()}


def _has_records(value: Mapping[str, Any], *names: str) -> bool:
    """Whether each field is a record of a question."""
    records = list(value.values())
    if (
        not records
        or not all(isinstance(record, dict) for record in records)
        or any(map(_is_question, value))
    ):
        return False
    return all(any(_is_question(name) or name in names for name in record) for record in records)


def _records_by_id(value: Mapping[str, Any]) -> Records:
    for id_, record in value.items():
        yield f"record {id_!r}", {"id": id_, **record}


def _judged_records(value: Mapping[str, Any]) -> Records:
    """Records of a judge that grades answers, with confidences from 0 to 100; one without verdict has no
    label."""
    for place, fields in _records_by_id(value):
        verdict = fields.pop("judge_response", None) or {}
        correct = {"yes": True, "no": False}.get(str(verdict.get("correct")).strip().lower())
        confidence = verdict.get("confidence")
        if isinstance(confidence, int | float) and not isinstance(confidence, bool):
            fields["confidence"] = confidence / 100
        if correct is not None:
            fields["correct"] = correct
        if isinstance(fields.get("response"), str):
            fields.setdefault("answers", [fields["response"]])
        yield place, fields


def _is_uqlm(value: Mapping[str, Any]) -> bool:
    return isinstance(value.get("data"), dict) and _has_columns(value["data"])


def _is_judged(value: Mapping[str, Any]) -> bool:
    return _has_records(value, "judge_response") and any(
        isinstance(record.get("judge_response"), dict) for record in value.values()
    )


Shape = tuple[Callable[[Mapping[str, Any]], bool], Callable[[Mapping[str, Any]], Records]]

SHAPES: dict[str, Shape] = {
    "result of uqlm": (_is_uqlm, lambda value: _rows_of_columns(value["data"])),
    "columns as lists": (_has_columns, _rows_of_columns),
    "columns of pandas": (_has_indexed_columns, _rows_of_indexed_columns),
    "answers judged as for Humanity's Last Exam": (_is_judged, _judged_records),
    "records by id": (_has_records, _records_by_id),
}
"""By name: how to tell a shape, and how to read it. The first that matches counts."""
