"""The arguments of :func:`selfreflect.reflect` as records: questions, and answers and summaries if there are
any."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from selfreflect.errors import DataError, excerpt
from selfreflect.metric.inputs import (
    checked_question,
    checked_text,
    checked_texts,
    named_texts,
    shuffled_set,
)
from selfreflect.records import AnswerSet, Question, Summary
from selfreflect.sources.files import Row, RowIds
from selfreflect.sources.item_rows import Reading, item_rows


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


def make_cases(questions: Any, samples: Any, summaries: Any, context: Any, seed: int) -> list[Case]:
    """Check the arguments of :func:`~selfreflect.pipeline.reflect.reflect`.

    Args:
        seed: decides, with each question, how its list of samples is shuffled.

    Raises:
        DataError: something in them has a wrong type or cannot be used; the message names the question.
    """
    ids = RowIds()
    if isinstance(questions, str):
        fields = {"question": questions, "samples": samples, "summaries": summaries, "context": context}
        return [_case("the question", fields, ids, seed)]
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
        each = enumerate(_by_question(columns), start=1)
        return [_case(f"question {number}", fields, ids, seed) for number, fields in each]
    if not (samples is None and summaries is None and context == ""):
        raise DataError("with rows or a data frame, samples, summaries and contexts are columns of it")
    return _row_cases(rows, ids, seed)


def is_frame(value: object) -> bool:
    """Whether a value is a pandas data frame, without importing pandas."""
    return hasattr(value, "columns") and hasattr(value, "to_dict")


def _by_question(columns: dict[str, Any]) -> list[dict[str, Any]]:
    """The arguments of each question, from those of all of them."""
    count = len(columns["question"])
    for name, values in columns.items():
        if values is not None and (not isinstance(values, list | tuple) or len(values) != count):
            raise DataError(f"for a list of {count} questions, {name} must be a list with one entry for each")
    given = {name: values for name, values in columns.items() if values is not None}
    rows = []
    for number in range(count):
        own = {name: values[number] for name, values in given.items()}
        rows.append(dict.fromkeys(columns) | own)
    return rows


def _cell(value: Any) -> Any:
    """A cell of a data frame as a plain value; None for a missing one."""
    if isinstance(value, Mapping):
        return {str(name): text for name, text in value.items()}
    if isinstance(value, tuple):
        return list(value)
    if not isinstance(value, list | str) and hasattr(value, "tolist"):
        value = value.tolist()
    return None if isinstance(value, float) and value != value else value


def _row_cases(rows: Sequence[Any], ids: RowIds, seed: int) -> list[Case]:
    """Rows as in a file of items, except that they need no answers."""
    source_rows = []
    for number, row in enumerate(rows, start=1):
        if not isinstance(row, Mapping):
            kind = type(row).__name__
            raise DataError(f"row {number} must be a dict, as the others are, not {kind} {excerpt(row)}")
        fields = {str(name): _cell(cell) for name, cell in row.items()}
        source_rows.append(Row("the data", f"row {number}", fields))
    cases = []
    for item in item_rows(source_rows, Reading(need_answers=False)):
        id_ = ids.take(item.row, item.question, item.context, item.id_column)
        answers = item.answer_set(id_, seed)
        if answers.conditioning and not answers.masked_out:
            raise item.row.error("an answer distribution needs at least 2 answers, and here is 1")
        question = Question(id=id_, text=item.question, context=item.context, metadata=item.metadata)
        given = answers if answers.masked_out else None
        cases.append(_records(item.row.where, question, given, item.named_summaries))
    return cases


def _case(where: str, fields: Mapping[str, Any], ids: RowIds, seed: int) -> Case:
    try:
        text = checked_question(fields["question"])
        context = checked_text(fields["context"] or "", "context")
        samples = fields["samples"]
        id_ = ids.take(Row("the questions", where, {}), text, context)
        answers = None if samples is None else shuffled_set(id_, checked_texts(samples, "samples"), seed)
        summaries = {} if fields["summaries"] is None else named_texts(fields["summaries"])
    except (DataError, ValueError) as error:
        raise DataError(f"{where}: {error}") from None
    return _records(where, Question(id=id_, text=text, context=context), answers, summaries)


def _records(where: str, question: Question, answers: AnswerSet | None, summaries: Mapping[str, str]) -> Case:
    own = [Summary(question_id=question.id, name=name, text=text) for name, text in summaries.items()]
    return Case(where, question, answers, tuple(own))
