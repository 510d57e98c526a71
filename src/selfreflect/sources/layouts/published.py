"""The three JSON files of the published tool, joined by the exact text of the question. Names of summaries
often end in ``_summary``."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec

from selfreflect.errors import DataError, excerpt
from selfreflect.records import AnswerSet, Question, Summary, question_id
from selfreflect.sources.files import json_value, read_content
from selfreflect.sources.layouts import Layout
from selfreflect.sources.rows import Row

SUFFIX = "_summary"
FILES = ("questions.json", "test_answers.json", "summaries.json")


class Published(Layout):
    """The published tool's answers file, already in halves."""

    name = "published"

    def matches(self, rows: Sequence[Row]) -> bool:
        return all(row.fields.keys() == set(_Answers.__struct_fields__) for row in rows)

    def explain(self) -> str:
        return "answers of the published tool"


class _Row(msgspec.Struct, frozen=True):
    question: str


class _Question(_Row, frozen=True, omit_defaults=True):
    context: str = ""
    """Context, an extension of the published layout that its scorer ignores."""


class _Answers(_Row, frozen=True):
    masked_out_task_answers: tuple[str, ...]
    conditioning_answers: tuple[str, ...]


class _Summaries(_Row, frozen=True):
    summaries: dict[str, str]


PublishedRow = TypeVar("PublishedRow", bound=_Row)


def read_published(
    questions: str | Path | None = None,
    answers: str | Path | None = None,
    summaries: str | Path | None = None,
) -> tuple[list[Question], list[AnswerSet], list[Summary]]:
    """Read any of the three files as records, with ids from question hashes.

    Without a questions file, the questions come from the other files. ``_summary`` is removed from the
    names of summaries, unless two names of the file would become the same. Other fields are ignored.

    Raises:
        DataError: a file is unreadable or malformed, repeats a question, or has one that the questions file
            lacks.
    """
    question_rows = _read(questions, _Question)
    answer_rows = _read(answers, _Answers)
    summary_rows = _read(summaries, _Summaries)
    texts = {**question_rows, **answer_rows, **summary_rows}
    if questions is not None:
        for path, rows in ((answers, answer_rows), (summaries, summary_rows)):
            for number, text in enumerate(rows, start=1):
                if text not in question_rows:
                    raise DataError(
                        f"{path}, record {number}: its question {excerpt(text)} is not in {questions}. "
                        "The texts must be identical; add the question to that file, or leave the file out."
                    )
    question_records = {}
    for text in texts:
        context = question_rows[text].context if text in question_rows else ""
        question_records[text] = Question(id=question_id(text, context), text=text, context=context)
    answer_records = []
    for text, answer_row in answer_rows.items():
        answer_set = AnswerSet(
            question_id=question_records[text].id,
            masked_out=answer_row.masked_out_task_answers,
            conditioning=answer_row.conditioning_answers,
            halved="given",
        )
        answer_records.append(answer_set)
    names = _short_names(summary_rows.values())
    summary_records = []
    for text, summary_row in summary_rows.items():
        for name, summary in summary_row.summaries.items():
            id_ = question_records[text].id
            summary_records.append(Summary(question_id=id_, name=names[name], text=summary))
    return list(question_records.values()), answer_records, summary_records


def published_files(
    questions: Iterable[Question],
    answers: Iterable[AnswerSet],
    summaries: Iterable[Summary],
    suffix: str = "",
) -> tuple[dict[str, bytes], list[str]]:
    """Make the three files by name, and list the ids of questions left out as duplicates.

    An answer set or summary without a question is left out and reported as well. ``suffix`` is appended to
    each name; reading restores all names if it is ``"_summary"``.
    """
    owners: dict[str, Question] = {}
    left_out: dict[str, None] = {}
    for question in questions:
        if owners.setdefault(question.text, question).id != question.id:
            left_out[question.id] = None
    texts = {question.id: question.text for question in owners.values()}

    answer_rows = []
    for answer_set in answers:
        if answer_set.question_id in texts:
            text = texts[answer_set.question_id]
            answer_rows.append(_Answers(text, answer_set.masked_out, answer_set.conditioning))
        else:
            left_out[answer_set.question_id] = None
    summary_rows: dict[str, _Summaries] = {}
    for summary in summaries:
        if summary.question_id in texts:
            text = texts[summary.question_id]
            row = summary_rows.setdefault(text, _Summaries(text, {}))
            row.summaries[summary.name + suffix] = summary.text
        else:
            left_out[summary.question_id] = None
    question_rows = [_Question(question.text, question.context) for question in owners.values()]
    contents: tuple[Sequence[_Row], ...] = (question_rows, answer_rows, list(summary_rows.values()))
    return {name: _to_json(rows) for name, rows in zip(FILES, contents, strict=True)}, list(left_out)


def _read(path: str | Path | None, kind: type[PublishedRow]) -> dict[str, PublishedRow]:
    """Read an optional file's rows by question text, in order."""
    rows: dict[str, PublishedRow] = {}
    if path is None:
        return rows
    values = json_value(read_content(path))
    if not isinstance(values, list):
        raise DataError(
            f"{path}: the published layout is one JSON list of objects, but this file contains something "
            f"else: {excerpt(values)}."
        )
    for number, value in enumerate(values, start=1):
        try:
            row = msgspec.convert(value, kind)
        except msgspec.ValidationError as error:
            fields = ", ".join(kind.__struct_fields__)
            raise DataError(
                f"{path}, record {number}: {error}. A record here is an object with: {fields}."
            ) from None
        except UnicodeEncodeError:
            raise DataError(
                f"{path}, record {number}: the name of a field contains half a surrogate pair. Correct that "
                "name."
            ) from None
        if row.question in rows:
            first = list(rows).index(row.question) + 1
            raise DataError(
                f"{path}: records {first} and {number} have the same question {excerpt(row.question)}. "
                "These files are joined by the text of the question, so the two cannot be told apart; remove "
                "one."
            )
        rows[row.question] = row
    return rows


def _short_names(rows: Iterable[_Summaries]) -> dict[str, str]:
    """Map each summary name in a file to ours, keeping names distinct."""
    names = dict.fromkeys(name for row in rows for name in row.summaries)
    short = {name: name.removesuffix(SUFFIX) or name for name in names}
    if len(set(short.values())) < len(short):
        return {name: name for name in names}
    return short


def _to_json(rows: Sequence[_Row]) -> bytes:
    plain = msgspec.to_builtins(rows)
    try:
        return json.dumps(plain, indent=4, ensure_ascii=False).encode() + b"\n"
    except UnicodeEncodeError:  # a lone surrogate, which only an escape can hold
        return json.dumps(plain, indent=4).encode() + b"\n"
