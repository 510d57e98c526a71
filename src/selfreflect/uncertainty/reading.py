"""Reading of questions with stored answers from users' files.

Questions and answers are read like items, in every layout: see :mod:`selfreflect.sources.item_rows`. A
question needs answers or a ``confidence``, and a text or an id. It may have ``gold``, ``aliases``,
``response``, ``logprobs``, ``tokens``, ``self_certainty``, ``grades``, ``length`` and ``correct``, also in an
object ``metadata``, and ``claims``, objects with ``text`` and ``correct``. In CSV, lists are written as JSON.
"""

from __future__ import annotations

import itertools
import json
import math
import shlex
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from selfreflect.errors import excerpt
from selfreflect.sources.answer_values import (
    Graded,
    field_list,
    field_value,
    grades,
    label,
    label_columns,
    row_grades,
    token_values,
)
from selfreflect.sources.columns import (
    CLAIMS,
    CONFIDENCE,
    CONFIDENCE_NAMES,
    CORRECT,
    GOLD,
    GOLD_NAMES,
    GRADES,
    TOKEN_COLUMNS,
    fold_assigned,
    gold_texts,
    is_divided,
    is_percent,
    item_columns,
    likely_gold,
    number_in,
    plain_name,
)
from selfreflect.sources.files import (
    Row,
    RowIds,
    field_names,
    is_text_list,
    listed,
    rename,
    usual_columns,
)
from selfreflect.sources.item_rows import (
    ItemRow,
    Reading,
    item_rows,
    list_in,
    name_assigned,
    naming,
    object_in,
    scalar_text,
)
from selfreflect.sources.items import separated_cell
from selfreflect.sources.layouts import read_row_file
from selfreflect.text import counted
from selfreflect.uncertainty.question import (
    AnsweredQuestion,
    LabelledClaim,
    graded_by,
    has_gold,
    not_blank,
    token_columns,
    with_answers,
)

_OF_QUESTION = ("aliases", CONFIDENCE, "length", CORRECT, CLAIMS)
# The judged answer, where the samples are in another column; else it is one of them.
_RESPONSE = "response"


class AnsweredFile(NamedTuple):
    """The questions of a file."""

    questions: list[AnsweredQuestion]
    notes: list[str]
    """Notes to the user, one sentence each."""


def read_answered_questions(
    source: str | Path,
    gold: str = "gold",
    *,
    columns: Mapping[str, str] | None = None,
    structured: bool = False,
    progress: Callable[[float], None] | None = None,
) -> AnsweredFile:
    """Read questions from a file in any format, a log of inspect_ai or lm-eval, or standard input (``"-"``).

    Args:
        gold: the field with the right answer, or a list of its spellings.
        columns: columns by role, as in :func:`~selfreflect.sources.items.read_item_file`.
        structured: whether answers and right answers may be objects, which are kept as JSON.
        progress: called now and then with the share that is read.

    Raises:
        DataError: a record is malformed; the message names the file, the record and the field.
        ConfigError: ``columns`` does not fit the file.
    """
    file = read_row_file(source, progress, tuple((columns or {}).values()))
    assigned = name_assigned(file.rows, fold_assigned(columns or {}, field_names(file.rows)), file.notes)
    assigned = file.with_likely_roles(assigned)
    # what a user names wins over what columns are called
    gold = _fold_names(file.rows, gold, assigned.values(), file.notes)
    reserved = _reserved(file.rows, gold, assigned, file.layout.is_log)
    reading = Reading(
        assigned,
        cells=file.cells,
        reserved=reserved,
        need_question=False,
        need_answers=False,
        structured=structured,
    )
    items = item_rows(file.rows, reading)
    ids = RowIds()
    varying: set[str] = set()
    rows = [_joined(item, gold, _RESPONSE in reserved, varying) for item in items]
    for row in rows:
        for name in varying:  # labels of only those questions whose answers share one would be a biased part
            row.fields.pop(name, None)
    by_row = CORRECT in varying  # then each answer has a label of its own
    verdicts = [_grades(item, by_row) for item in items]
    if any(CORRECT in by_grader for by_grader in verdicts):
        _label_each(rows, verdicts)
    varying.discard(CORRECT)
    questions = [
        _question(item, row, ids, gold, structured, by_grader)
        for item, row, by_grader in zip(items, rows, verdicts, strict=True)
    ]
    if not any(question.answers or question.confidence is not None for question in questions):
        raise rows[0].error("no question has an answer or a confidence")
    notes = _notes(items, questions, file.layout.is_log)
    if divided := sum(is_divided(row.fields.get(gold), gold) for row in rows):
        notes.append(f"{counted(divided, 'cell')} of {excerpt(gold)} divided into several at ';'")
    notes += _grade_notes(questions)
    pairs = zip(rows, questions, strict=True)
    labels = [question.correct for row, question in pairs if row.fields.get(CORRECT) not in (None, "")]
    if neither := labels.count(None):
        notes.append(f"{counted(neither, 'label')} of {len(labels):,} neither right nor wrong")
    if varying:
        names = listed(sorted(varying))
        notes.append(f"left out, because values differ between the answers to one question: {names}")
    return AnsweredFile(questions, [*file.notes, *notes])


def _fold_names(rows: list[Row], gold: str, assigned: Collection[str], notes: list[str]) -> str:
    """Rename columns to their usual spelling, and return the column of right answers.

    ``Confidence`` is ``confidence``. Where no column is called ``gold``, one that means the same is taken.
    """
    names = field_names(rows)
    inner = dict.fromkeys(
        name
        for row in rows
        if isinstance(row.fields.get("metadata"), dict)
        for name in row.fields["metadata"]
    )
    usual = {plain_name(name): name for name in (*_OF_QUESTION, _RESPONSE, *TOKEN_COLUMNS, GRADES, GOLD)}
    usual |= dict.fromkeys(CONFIDENCE_NAMES, CONFIDENCE)
    renamed = usual_columns(rows, usual, {*assigned, gold})
    names = [renamed.get(name, name) for name in names]
    if not {CORRECT, GRADES} & inner.keys():
        labels = [name for name in label_columns(rows, names) if name not in assigned][:1]
        notes += [f"{excerpt(name)} is read as the labels of correctness" for name in labels]
        rename(rows, dict.fromkeys(labels, CORRECT))
        names = [CORRECT if name in labels else name for name in names]
    # a header such as "confidence (%)" says that 90 means 90 %
    of_hundred = any(
        target == CONFIDENCE and plain_name(name).rstrip(")").endswith(("%", "percent"))
        for name, target in renamed.items()
    )
    for row in rows if of_hundred else ():
        confidence = row.fields.get(CONFIDENCE)
        if confidence and not is_percent(confidence):
            row.fields[CONFIDENCE] = f"{confidence}%"
    available = [*names, *inner]
    # a column that exists is taken, whatever others are called
    if gold in available or gold.partition(".")[0] in names:
        return gold
    same = [name for name in available if plain_name(name) == plain_name(gold)]
    if gold == GOLD and not same:
        free = [name for name in available if name not in assigned]
        same = [name for name in free if plain_name(name) in GOLD_NAMES]
        # a column that may hold right answers is believed if one of its texts is an answer, too
        same = same or [name for name in likely_gold(free) if _recurs(rows, name)]
        notes += [f"{excerpt(name)} is read as the right answers" for name in same[:1]]
    return same[0] if same else gold


def _recurs(rows: Iterable[Row], name: str) -> bool:
    """Check whether a column's text occurs in another field of its row, ignoring case."""
    for row in rows:
        texts = [value for other, value in row.fields.items() if other != name]
        texts += [text for value in texts if isinstance(value, list) for text in value]
        folded = {text.strip().casefold() for text in texts if isinstance(text, str)}
        value = row.fields[name].strip().casefold() if isinstance(row.fields.get(name), str) else ""
        if value and value in folded:
            return True
    return False


def _reserved(rows: list[Row], gold: str, assigned: Mapping[str, str], is_log: bool) -> set[str]:
    """Choose the columns other than questions, answers and ids. Rows of a log are never joined."""
    names = field_names(rows)
    reserved = {gold, *_OF_QUESTION, *TOKEN_COLUMNS, GRADES} - set(assigned.values())
    free_names = [name for name in names if name not in reserved and name != _RESPONSE]
    columns = item_columns(free_names, assigned)
    reserved |= {columns.summaries, columns.order}
    if any(path.partition(".")[0] == _RESPONSE for path in assigned.values()):
        return reserved
    texts = {repr(row.fields.get(columns.question)) for row in rows}
    repeated = columns.question != "" and len(texts) < len(rows) and not is_log
    judged = "confidence" in names and (columns.id != "" or not repeated)
    # a response is the judged answer only where the samples are in another column
    if columns.answers or columns.halves or judged:
        reserved.add(_RESPONSE)
    return reserved


def _grade_notes(questions: Sequence[AnsweredQuestion]) -> list[str]:
    """Name the graders, and the number of verdicts that are neither right nor wrong."""
    graders = graded_by(questions)
    notes = []
    for name in graders:
        verdicts = [right for question in questions for _, right in question.grades.get(name, ())]
        if neither := verdicts.count(None):
            are = "grade" if neither == 1 else "grades"
            notes.append(
                f"{neither:,} {are} of {len(verdicts):,} by {excerpt(name)} neither right nor wrong, which "
                f"gives no label"
            )
    if len(graders) > 1:
        notes.append(
            f"grades by {listed(graders)}; the first of each question counts, or name one with --correctness "
            f"{shlex.quote(f'graded:{graders[1]}')}"
        )
    return notes


def _label_each(rows: Sequence[Row], verdicts: Sequence[dict[str, tuple[Graded, ...]]]) -> None:
    """Convert single labels to grades of the judged answers, as other questions have lists."""
    # a label of the question judges one answer; others have lists of labels
    for row, by_grader in zip(rows, verdicts, strict=True):
        value = row.fields.pop(CORRECT, None)
        if value not in (None, "") and CORRECT not in by_grader:
            by_grader[CORRECT] = (Graded(None, _label(row, value)),)


def _grades(item: ItemRow, by_row: bool) -> dict[str, tuple[Graded, ...]]:
    """Read the grades of a question's answers, or of its judged answer, by grader."""
    by_grader = grades(item)
    if by_row and item.one_answer:
        by_grader[CORRECT] = row_grades(item, CORRECT)
    return by_grader


def _joined(item: ItemRow, gold: str, has_response: bool, varying: set[str]) -> Row:
    """Join the rows of a question, and collect differing fields in ``varying``.

    Raises:
        DataError: the rows give different right answers.
    """
    fields: dict[str, Any] = {}
    for name in (gold, *_OF_QUESTION, *([_RESPONSE] if has_response else [])):
        values = [value for row in item.rows if (value := field_value(row, name)) not in (None, "")]
        # compared as they are written, since lists cannot be hashed
        if any(repr(value) != repr(values[0]) for value in values):
            if name == gold:
                raise item.row.error(
                    f"the rows of one question differ in the field {excerpt(gold)}, the right answer: "
                    f"{excerpt(values[0])}, and others. Write several spellings as a list in each row"
                )
            varying.add(name)
        elif values:
            fields[name] = values[0]
    return Row(item.row.source, item.row.where, fields)


def _notes(items: list[ItemRow], questions: list[AnsweredQuestion], is_log: bool) -> list[str]:
    notes = []
    total = sum(len(item.texts) for item in items)
    blank = total - sum(len(question.answers) for question in questions)
    nulls = sum(item.answers.count(None) for item in items)
    for count, kind in ((nulls, "null"), (blank, "blank")):
        if count:
            notes.append(f"{counted(count, 'answer')} left out: {kind}")
    without = sum(not question.answers and question.confidence is None for question in questions)
    if without:
        notes.append(f"{counted(without, 'question')} without any answer, so their values are undefined")
    references = sorted({item.columns.reference for item in items} - {""})
    if is_log and any(field_value(item.row, "target") for item in items):
        references.append("target")
    if references and not has_gold(questions):
        option = f"--gold {shlex.quote(references[0])}"
        notes.append(f"{excerpt(references[0])} may hold the right answers; then add {option}")
    cell = separated_cell(items)
    if cell and not any(len(question.answers) > 1 for question in questions):
        notes.append(
            f"no question has more than one answer. If {excerpt(cell.text)} holds several, make it a list "
            f"with: selfreflect convert FILE --separator {cell.separator!r} --output items.jsonl"
        )
    return notes


def _question(
    item: ItemRow,
    row: Row,
    ids: RowIds,
    gold: str,
    structured: bool,
    verdicts: dict[str, tuple[Graded, ...]],
) -> AnsweredQuestion:
    answers = item.texts
    confidence = _number(row, "confidence", 0, 1)
    # a file of confidences alone is fine, and one with neither is refused at its first row
    has_column = item.columns.answers or item.columns.halves
    if not answers and confidence is None and not has_column and CONFIDENCE not in item.row.fields:
        raise row.error(
            f"the record needs 'answers' or a 'confidence'; its fields are {listed(item.row.fields)}",
            remedy=f"{naming(item.row, ['answer'])} selfreflect convert FILE shows how a file is understood.",
        )
    aliases = field_list(row, "aliases")
    if not all(map(is_text_list, aliases)):
        raise row.error("the field 'aliases' must be a list of lists of texts")
    question = AnsweredQuestion(
        id=ids.take(item.row, item.question, item.context, item.id_column),
        text=item.question,
        answers=answers,
        gold=_right_answers(row, gold, structured),
        aliases=tuple(map(tuple, aliases)),
        answer=_judged(row),
        **token_columns(token_values(item, answers)),
        confidence=confidence,
        length=_number(row, "length", 0, math.inf),
        correct=_label(row, row.fields.get(CORRECT)),
        claims=tuple(labelled_claims(row)),
        columns=item.metadata,
        grades=verdicts,
    )
    # blank answers are left out with their tokens, so that columns stay parallel
    present = not_blank(answers)
    return question if len(present) == len(answers) else with_answers(question, present)


def _judged(row: Row) -> str | None:
    """Read the judged answer as text."""
    value = scalar_text(row.fields.get(_RESPONSE))
    return row._replace(fields={_RESPONSE: value}).optional_text(_RESPONSE) or None


def _right_answers(row: Row, name: str, structured: bool) -> tuple[str, ...]:
    """Read the spellings of the right answer as texts."""
    value = row.fields.get(name)
    if isinstance(value, str):
        texts = field_list(row, name, single=True)
        if len(texts) == 1 and is_divided(value, name):
            texts = list(filter(None, map(str.strip, value.split(";"))))
        value = object_in(value) or texts
    if structured:
        values = value if isinstance(value, list) else [value]
        value = [json.dumps(v, ensure_ascii=False) if isinstance(v, dict) else v for v in values]
    try:
        return gold_texts(value)
    except ValueError as error:
        raise row.error(f"the field {excerpt(name)} must hold the right answer as text: {error}") from None


def _number(row: Row, name: str, low: float, high: float) -> float | None:
    """Read a number in a range; None if missing."""
    value = row.fields.get(name)
    if value is None or value == "":
        return None
    try:
        number = number_in(value)
    except ValueError:
        raise row.error(f"the field {name!r} must be a number; it is {excerpt(value)}") from None
    if not math.isfinite(number) or not low <= number <= high:
        limits = f"in [{low:g}, {high:g}]" if math.isfinite(high) else f"finite and at least {low:g}"
        hint = ""
        if math.isnan(number):
            hint = ". Where a row has no value, write null or leave the cell blank"
        # 0 to 1 is asked for, and people write 90
        elif high == 1 < number <= 100 and not is_percent(value):
            hint = f". If it is in per cent, divide by 100, or write '{number:g}%'"
        raise row.error(f"the field {name!r} is {number:g}; it must be {limits}{hint}")
    return number


def labelled_claims(row: Row) -> Iterator[LabelledClaim]:
    """Read claims with labels, ignoring other values of the column.

    Raises:
        DataError: a claim is labelled both right and wrong, or otherwise.
    """
    value = row.fields.get(CLAIMS)
    entries = list_in(value) if isinstance(value, str) else value
    labels: dict[str, bool | None] = {}
    for entry in entries if isinstance(entries, list) else ():
        if isinstance(entry, dict) and isinstance(text := entry.get("text"), str) and text.strip():
            correct = _label(row, entry.get(CORRECT))
            # two labels of one claim would cancel in silence
            if {correct, labels.get(text)} == {True, False}:
                raise row.error(f"the claim {excerpt(text)} is labelled both right and wrong")
            labels[text] = labels.get(text) if correct is None else correct
    yield from itertools.starmap(LabelledClaim, labels.items())


def _label(row: Row, value: object) -> bool | None:
    try:
        return label(value)
    except ValueError as error:
        raise row.error(f"the field {CORRECT!r} {error}") from None
