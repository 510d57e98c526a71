"""The arguments of :func:`selfreflect.reflect` as records: questions, and answers and summaries if there are
any."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from selfreflect.errors import DataError, excerpt
from selfreflect.metric.inputs import checked_question, checked_text, checked_texts, named_texts
from selfreflect.records import AnswerSet, Question, Summary, halves
from selfreflect.sources.files import Row, RowIds, listed

SAMPLES = ("samples", "answers", "responses")
SUMMARIES = ("summaries", "summary")


@dataclass(frozen=True)
class Case:
    """One question."""

    where: str
    """How messages name it."""
    question: Question
    answers: AnswerSet | None
    """None if they are still to be drawn."""
    summaries: tuple[Summary, ...]
    """The user's own."""
    metadata: Mapping[str, Any]
    """Further columns."""


def make_cases(questions: Any, samples: Any, summaries: Any, context: Any) -> list[Case]:
    """Check the arguments of :func:`~selfreflect.pipeline.reflect.reflect`.

    Raises:
        DataError: something in them has a wrong type or cannot be used; the message names the question.
    """
    ids = RowIds()
    if isinstance(questions, str):
        fields = {"question": questions, "samples": samples, "summaries": summaries, "context": context}
        return [_case("the question", fields, ids)]
    if is_frame(questions):
        rows = questions.to_dict("records")
    elif isinstance(questions, list | tuple) and any(isinstance(one, Mapping) for one in questions):
        rows = list(questions)
    else:
        if hasattr(questions, "tolist"):
            questions = questions.tolist()
        if not isinstance(questions, list | tuple):
            raise DataError(
                "questions must be a text, a list of texts or of rows, or a pandas data frame, not "
                f"{type(questions).__name__} {excerpt(questions)}"
            )
        columns = {"question": questions, "samples": samples, "summaries": summaries}
        columns["context"] = [context] * len(questions) if isinstance(context, str) else context
        return [_case(f"question {n + 1}", fields, ids) for n, fields in enumerate(_by_question(columns))]
    if not (samples is None and summaries is None and context == ""):
        raise DataError("with rows or a data frame, samples, summaries and contexts are columns of it")
    return [_row_case(f"row {number}", row, ids) for number, row in enumerate(rows, start=1)]


def is_frame(value: object) -> bool:
    """Whether a value is a pandas data frame, without importing pandas."""
    return hasattr(value, "columns") and hasattr(value, "to_dict")


def _by_question(columns: dict[str, Any]) -> list[dict[str, Any]]:
    """The arguments of each question, from those of all of them."""
    count = len(columns["question"])
    for name, values in columns.items():
        if values is not None and (not isinstance(values, list | tuple) or len(values) != count):
            raise DataError(f"for a list of {count} questions, {name} must be a list with one entry for each")
    return [
        {name: None if values is None else values[number] for name, values in columns.items()}
        for number in range(count)
    ]


def _cell(value: Any) -> Any:
    """A cell of a data frame as a plain value; None for a missing one."""
    if not isinstance(value, list | tuple | Mapping | str) and hasattr(value, "tolist"):
        value = value.tolist()
    return None if isinstance(value, float) and value != value else value


def _row_case(where: str, row: Any, ids: RowIds) -> Case:
    if not isinstance(row, Mapping):
        raise DataError(f"{where} must be a dict, as the others are, not {type(row).__name__} {excerpt(row)}")
    row = {str(name): _cell(cell) for name, cell in row.items()}
    fields = {"question": row.get("question"), "context": row.get("context")}
    for name, known in (("samples", SAMPLES), ("summaries", SUMMARIES)):
        present = [column for column in known if row.get(column) is not None]
        if len(present) > 1:
            raise DataError(f"{where}: keep one of the columns {listed(present)}")
        fields[name] = row[present[0]] if present else None
    used = {"question", "context", *SAMPLES, *SUMMARIES}
    others = {column: value for column, value in row.items() if column not in used}
    metadata = {name: value for name, value in others.items() if isinstance(value, str | int | float | bool)}
    return _case(where, fields, ids, metadata)


def _case(where: str, fields: Mapping[str, Any], ids: RowIds, metadata: Any = None) -> Case:
    try:
        text = checked_question(fields["question"])
        context = checked_text(fields["context"] or "", "context")
        samples = fields["samples"]
        texts = None if samples is None else halves(checked_texts(samples, "samples"))
        summaries = {} if fields["summaries"] is None else named_texts(fields["summaries"])
    except (DataError, ValueError) as error:
        raise DataError(f"{where}: {error}") from None
    id_ = ids.take(Row("the questions", where, {}), text, context)
    answers = None
    if texts is not None:
        answers = AnswerSet(question_id=id_, masked_out=texts[0], conditioning=texts[1])
    return Case(
        where=where,
        question=Question(id=id_, text=text, context=context),
        answers=answers,
        summaries=tuple(Summary(question_id=id_, name=name, text=text) for name, text in summaries.items()),
        metadata=metadata or {},
    )
