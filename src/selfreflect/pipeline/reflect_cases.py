"""The arguments of :func:`selfreflect.reflect` as records: questions, and answers and summaries if there are
any."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from selfreflect.errors import DataError, excerpt
from selfreflect.metric.inputs import checked_question, checked_text, checked_texts, named_texts
from selfreflect.records import AnswerSet, Question, Summary, halves
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
    return _row_cases(rows, ids)


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


def _row_cases(rows: Sequence[Any], ids: RowIds) -> list[Case]:
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
        first, second = item.halves
        if second and not first:
            raise item.row.error("an answer distribution needs at least 2 answers, and here is 1")
        question = Question(id=id_, text=item.question, context=item.context, metadata=item.metadata)
        answers = (first, second) if first else None
        cases.append(_records(item.row.where, question, answers, item.named_summaries))
    return cases


def _case(where: str, fields: Mapping[str, Any], ids: RowIds) -> Case:
    try:
        text = checked_question(fields["question"])
        context = checked_text(fields["context"] or "", "context")
        samples = fields["samples"]
        texts = None if samples is None else halves(checked_texts(samples, "samples"))
        summaries = {} if fields["summaries"] is None else named_texts(fields["summaries"])
    except (DataError, ValueError) as error:
        raise DataError(f"{where}: {error}") from None
    id_ = ids.take(Row("the questions", where, {}), text, context)
    return _records(where, Question(id=id_, text=text, context=context), texts, summaries)


def _records(
    where: str,
    question: Question,
    answers: tuple[tuple[str, ...], tuple[str, ...]] | None,
    summaries: Mapping[str, str],
) -> Case:
    own = [Summary(question_id=question.id, name=name, text=text) for name, text in summaries.items()]
    if answers is None:
        return Case(where, question, None, tuple(own))
    first, second = answers
    answer_set = AnswerSet(question_id=question.id, masked_out=first, conditioning=second)
    return Case(where, question, answer_set, tuple(own))
