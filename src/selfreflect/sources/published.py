"""The layouts of the published tool: three JSON files, each a list of objects that name their question by its
text.

=====================
=================================================================================================
``questions.json``    ``{"question": text}`` ``test_answers.json`` ``{"question": text,
"masked_out_task_answers": [text, …], "conditioning_answers": [text, …]}`` ``summaries.json``
``{"question": text, "summaries": {name: text, …}}``, where names often end in ``_summary``
=====================
=================================================================================================

They hold no ids, so two questions with one text cannot be told apart, and nothing about how the texts were
made.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from selfreflect.errors import DataError, excerpt
from selfreflect.records import AnswerSet, Question, Summary, question_id

SUFFIX = "_summary"
FILES = ("questions.json", "test_answers.json", "summaries.json")


class _Question(msgspec.Struct, frozen=True):
    question: str


class _Answers(_Question, frozen=True):
    masked_out_task_answers: tuple[str, ...]
    conditioning_answers: tuple[str, ...]


class _Summaries(_Question, frozen=True):
    summaries: dict[str, str]


Row = TypeVar("Row", bound=_Question)


def read_published(
    questions: str | Path | None = None,
    answers: str | Path | None = None,
    summaries: str | Path | None = None,
    *,
    strip_suffix: bool = True,
) -> tuple[list[Question], list[AnswerSet], list[Summary]]:
    """Records of the files that are given, joined by question text; ids are hashes of it, and other fields of
    the objects are ignored.

    Without a questions file the questions are those of the other files. ``_summary`` is cut off the names of
    summaries, unless two names of the file would then be the same, or ``strip_suffix`` is False: then all
    names stay as they are.

    Raises:
        DataError: a file cannot be read or has another shape, holds a question twice, or holds one that the
            questions file lacks.
    """
    asked, answered, summarised = (
        _read(questions, _Question),
        _read(answers, _Answers),
        _read(summaries, _Summaries),
    )
    if questions is not None:
        _check_known(answered, answers, asked, questions)
        _check_known(summarised, summaries, asked, questions)
    names = _names(summarised.values(), strip_suffix)
    return (
        [Question(id=question_id(text), text=text) for text in {**asked, **answered, **summarised}],
        [
            AnswerSet(
                question_id=question_id(text),
                masked_out=row.masked_out_task_answers,
                conditioning=row.conditioning_answers,
            )
            for text, row in answered.items()
        ],
        [
            Summary(question_id=question_id(text), name=names[name], text=summary)
            for text, row in summarised.items()
            for name, summary in row.summaries.items()
        ],
    )


def write_published(
    questions: Iterable[Question],
    answers: Iterable[AnswerSet],
    summaries: Iterable[Summary],
    directory: str | Path,
    *,
    suffix: str = "",
    overwrite: bool = False,
) -> list[str]:
    """Write the three files and return the ids of the questions that could not go into them, because an
    earlier one has the same text.

    An answer set or summary without its question is left out too, and its question id returned. ``suffix`` is
    added to each name; with ``"_summary"``, or without it but with ``strip_suffix=False``,
    :func:`read_published` restores any names.

    Raises:
        DataError: one of the files exists (nothing is written then, unless ``overwrite``), or the directory
            cannot be written.
    """
    answers, summaries = list(answers), list(summaries)
    owners: dict[str, str] = {}
    left_out: dict[str, None] = {}
    for question in questions:
        if owners.setdefault(question.text, question.id) != question.id:
            left_out[question.id] = None
    texts = {key: text for text, key in owners.items()}
    keys = [*(row.question_id for row in answers), *(row.question_id for row in summaries)]
    left_out |= dict.fromkeys(key for key in keys if key not in texts)
    answer_rows = [
        {
            "question": texts[row.question_id],
            "masked_out_task_answers": row.masked_out,
            "conditioning_answers": row.conditioning,
        }
        for row in answers
        if row.question_id in texts
    ]
    by_text: dict[str, dict[str, str]] = {}
    for summary in summaries:
        if summary.question_id in texts:
            by_text.setdefault(texts[summary.question_id], {})[summary.name + suffix] = summary.text
    summary_rows = [{"question": text, "summaries": named} for text, named in by_text.items()]
    _write(Path(directory), [[{"question": text} for text in owners], answer_rows, summary_rows], overwrite)
    return list(left_out)


def _read(path: str | Path | None, kind: type[Row]) -> dict[str, Row]:
    """The rows of a file by question text, in order; none for no file."""
    rows: dict[str, Row] = {}
    for number, value in enumerate([] if path is None else _load(path), 1):
        try:
            row = msgspec.convert(value, kind)
        except msgspec.ValidationError as error:
            fields = ", ".join(kind.__struct_fields__)
            raise DataError(
                f"{path}, record {number}: {error}. A record here is an object with: {fields}."
            ) from None
        if row.question in rows:
            first = list(rows).index(row.question) + 1
            raise DataError(
                f"{path}: records {first} and {number} have the same question {excerpt(row.question)}. "
                "These files are joined by that text, so the two cannot be told apart; remove one."
            )
        rows[row.question] = row
    return rows


def _load(path: str | Path) -> list[Any]:
    try:
        rows = json.loads(Path(path).read_bytes().decode("utf-8-sig"))
    except OSError as error:
        raise DataError(f"{path}: {error.strerror or error}.") from error
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path} is not JSON in UTF-8: {error}.") from None
    if not isinstance(rows, list):
        raise DataError(
            f"{path}: the published layout is one JSON list of objects, and this is something else: {excerpt(rows)}."
        )
    return rows


def _check_known(
    rows: dict[str, Row], path: str | Path | None, asked: dict[str, _Question], questions: str | Path
) -> None:
    for number, text in enumerate(rows, 1):
        if text not in asked:
            raise DataError(
                f"{path}, record {number}: its question {excerpt(text)} is not in {questions}. "
                "The texts must be equal; add the question there, or leave out the questions file."
            )


def _names(rows: Iterable[_Summaries], strip_suffix: bool) -> dict[str, str]:
    """Our name for each name in a summaries file; different names stay different."""
    names = {name for row in rows for name in row.summaries}
    short = {name: name.removesuffix(SUFFIX) or name for name in names}
    return (
        short if strip_suffix and len(set(short.values())) == len(names) else {name: name for name in names}
    )


def _write(directory: Path, contents: list[list[Any]], overwrite: bool) -> None:
    """Write the files in the order of ``FILES``. All are complete under other names before the first one gets
    its own."""
    paths = [directory / name for name in FILES]
    temporaries = [directory / f".{name}.tmp" for name in FILES]
    try:
        existing = [str(path) for path in paths if path.exists()]
        if existing and not overwrite:
            raise DataError(
                f"There already: {', '.join(existing)}. Nothing was written; use another directory, or ask to overwrite."
            )
        directory.mkdir(parents=True, exist_ok=True)
        for temporary, rows in zip(temporaries, contents, strict=True):
            temporary.write_bytes(_encoded(rows))
        for temporary, path in zip(temporaries, paths, strict=True):
            temporary.replace(path)
    except OSError as error:
        with suppress(OSError):
            for temporary in temporaries:
                temporary.unlink(missing_ok=True)
        raise DataError(
            f"{directory}: {error.strerror or error}. Use a directory that can be written."
        ) from error


def _encoded(rows: list[dict[str, Any]]) -> bytes:
    """Readable UTF-8; lone surrogates, which UTF-8 cannot hold, turn the file into ASCII escapes."""
    try:
        return (json.dumps(rows, indent=4, ensure_ascii=False) + "\n").encode()
    except UnicodeEncodeError:
        return (json.dumps(rows, indent=4) + "\n").encode()
