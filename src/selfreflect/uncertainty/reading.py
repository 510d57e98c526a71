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
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from selfreflect.errors import excerpt
from selfreflect.records import Graded, Scalar
from selfreflect.sources.answer_values import (
    are_labels,
    field_list,
    field_value,
    gold_value,
    grades,
    join_right_answers,
    judged_text,
    label,
    mostly_recurs,
    name_labels,
    right_texts,
    row_grades,
    spell_labels,
    token_values,
)
from selfreflect.sources.cells import is_divided, is_percent, number_in
from selfreflect.sources.columns import fold_assigned, item_columns
from selfreflect.sources.item_rows import (
    ItemRow,
    Reading,
    item_rows,
    list_in,
    name_assigned,
    naming,
    reasoning_notes,
)
from selfreflect.sources.items import CellCensus
from selfreflect.sources.layouts import read_row_file
from selfreflect.sources.names import (
    CLAIMS,
    CONFIDENCE,
    CONFIDENCE_NAMES,
    CORRECT,
    CORRECT_NAMES,
    GOLD,
    GOLD_NAMES,
    GRADES,
    RESPONSE,
    TOKEN_COLUMNS,
    is_of_hundred,
    likely_gold,
    plain_name,
    tells_of_confidence,
    tells_of_labels,
)
from selfreflect.sources.parsers import KNOWN
from selfreflect.sources.roles import take_judged_reply
from selfreflect.sources.rows import (
    METADATA,
    ROWS_BETWEEN_PROGRESS,
    Row,
    RowIds,
    Rows,
    exact_key,
    in_parts,
    is_text_list,
    listed,
)
from selfreflect.text import counted
from selfreflect.uncertainty.question import (
    NO_TOKENS,
    AnsweredQuestion,
    LabelledClaim,
    graded_by,
    has_gold,
    not_blank,
    with_answers,
)

_OF_QUESTION = ("aliases", CONFIDENCE, "length", CORRECT, CLAIMS)


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
    first, second, third = in_parts(progress, 3)
    file = read_row_file(source, first, tuple((columns or {}).values()))
    rows = file.rows
    assigned = name_assigned(rows, fold_assigned(columns or {}, rows.columns), file.notes)
    likely = file.with_likely_roles(assigned)
    assigned = likely.roles
    # what a user names wins over what columns are called
    gold = _fold_names(rows, gold, assigned, file.notes)
    take_judged_reply(rows, assigned, likely.reply, file.notes)
    reserved = _reserved(rows, gold, assigned, file.layout.is_log)
    reading = Reading(
        assigned,
        cells=file.cells,
        reserved=reserved,
        further={*reserved, METADATA, gold.partition(".")[0]},
        need_question=False,
        need_answers=False,
        structured=structured,
    )
    spell_labels(rows, file.notes)
    census = _QuestionCensus(rows, gold, has_response=RESPONSE in reserved)
    items = item_rows(rows, reading, census.join, second)
    by_row = CORRECT in census.varying  # then each answer has a label of its own
    ids = RowIds()
    questions: list[AnsweredQuestion] = []
    shared: dict[object, dict[str, Scalar]] = {}
    # short answers and their grades often repeat, and equal ones share memory
    share = lru_cache(maxsize=KNOWN)(tuple[str, ...])
    share_grades = lru_cache(maxsize=KNOWN)(dict[str, tuple[Graded, ...]])
    rows_read = 0
    for number, item in enumerate(items, 1):
        rows_read += len(item.rows)
        row = census.joined(item)
        # labels of only those questions whose answers share one would be a biased part
        for name in census.varying:
            row.fields.pop(name, None)
        verdicts = grades(item) if census.may_be_graded else {}
        if by_row and item.one_answer:
            verdicts[CORRECT] = row_grades(item, CORRECT)
        if by_row or census.has_label_lists:
            _label_as_others(row, verdicts)
        if len(shared) > KNOWN:
            shared.clear()
        item.metadata = shared.setdefault(exact_key(item.metadata), item.metadata)
        verdicts = share_grades((*verdicts.items(),))
        question = _question(item, row, ids, gold, structured, verdicts, census.tokens, share)
        census.count(item, row, question)
        questions.append(question)
        if third and number % ROWS_BETWEEN_PROGRESS == 0:
            third(rows_read / rows.count)
    if not any(question.answers or question.confidence is not None for question in questions):
        raise rows.first.error("no question has an answer or a confidence")
    return AnsweredFile(questions, [*file.notes, *census.notes(questions, file.layout.is_log)])


def _fold_names(rows: Rows, gold: str, roles: Mapping[str, str], notes: list[str]) -> str:
    """Rename columns that are read by name to their usual spelling, and return the column of right answers.

    ``Confidence`` is ``confidence``. Where no column is called ``gold``, one that means the same is taken.
    """
    assigned = roles.values()
    usual = {plain_name(name): name for name in (*_OF_QUESTION, RESPONSE, *TOKEN_COLUMNS, GRADES, GOLD)}
    usual |= dict.fromkeys(CONFIDENCE_NAMES, CONFIDENCE)
    renamed = rows.rename_usual(usual, {*assigned, gold})
    if gold == GOLD:
        join_right_answers(rows, roles, notes)
    if not {CORRECT, GRADES} & rows.inner.keys():
        name_labels(rows, roles, notes, kept=gold)
    if CONFIDENCE not in {*rows.columns, *rows.inner, gold}:
        named = [name for name in rows.columns if tells_of_confidence(name) and name not in assigned]
        likely = [name for name in named if _are_confidences(rows, name)]
        if len(likely) == 1:
            renamed |= {likely[0]: CONFIDENCE}
            rows.rename({likely[0]: CONFIDENCE})
            notes.append(f"{excerpt(likely[0])} is read as the confidence")
        elif named and not likely:
            notes.append(
                f"{listed(named)} not read as the confidence, because not every value is a number from 0 to "
                "1, or a percentage such as '85%'"
            )
    # a header such as "confidence (%)" says that 90 means 90 %
    if any(target == CONFIDENCE and is_of_hundred(name) for name, target in renamed.items()):
        rows.change(_with_percent)
    available = [*rows.columns, *rows.inner]
    # a column that exists is taken, whatever others are called
    if gold in available or gold.partition(".")[0] in rows.columns:
        return gold
    same = [name for name in available if plain_name(name) == plain_name(gold)]
    if gold == GOLD and not same:
        free = [name for name in available if name not in {*assigned, *_OF_QUESTION, GRADES}]
        # grades that are no verdicts, such as 0.5, are no right answers either
        free = [name for name in free if plain_name(name) not in CORRECT_NAMES]
        same = [name for name in free if plain_name(name) in GOLD_NAMES]
        # a column that may hold right answers is believed if one of its texts is an answer, too
        answers = item_columns(rows.columns, roles).answers
        if len(same) > 1 or not same or rows.count >= _ROWS_THAT_TELL:
            same = [name for name in (*same, *likely_gold(free)) if _recurs(rows, name)]
            # labels by a second person are no right answers
            same = [
                name
                for name in same
                if not are_labels(row.fields.get(name) for row in rows) or mostly_recurs(rows, name, answers)
            ]
        if not same:  # a column named like labels holds right answers if most of its texts are answers
            likely = [name for name in free if name not in answers and tells_of_labels(name)]
            same = [name for name in likely if mostly_recurs(rows, name, answers)]
        notes += [f"{excerpt(name)} is read as the right answers" for name in same[:1]]
    return same[0] if same else gold


# With fewer rows, right answers may all differ from the model's.
_ROWS_THAT_TELL = 10


def _recurs(rows: Iterable[Row], name: str) -> bool:
    """Check whether a column's text occurs in another field of its row; a number must be the whole value."""
    for row in rows:
        inner = row.fields.get(METADATA)
        fields = {**row.fields, METADATA: None, **(inner if isinstance(inner, dict) else {})}
        texts = {*_texts({other: value for other, value in fields.items() if other != name})}
        for gold in _texts(field_value(row, name)):
            is_part = len(gold) > 1 and not gold.isdecimal()
            if gold in texts or (is_part and any(gold in text for text in texts)):
                return True
    return False


def _texts(value: object) -> Iterator[str]:
    """Yield all texts and numbers in a value, at any depth, in lower case."""
    if isinstance(value, dict | list):
        for entry in value.values() if isinstance(value, dict) else value:
            yield from _texts(entry)
    elif isinstance(value, str | int | float) and (text := str(value).strip().casefold()):
        yield text


def _are_confidences(rows: Iterable[Row], name: str) -> bool:
    """Check whether a column holds numbers from 0 to 1, or to 100 if its name says so, and none else."""
    values = [value for row in rows if (value := row.fields.get(name)) not in (None, "")]
    highest = 100 if is_of_hundred(name) else 1
    try:
        return bool(values) and all(0 <= number_in(value) <= highest for value in values)
    except ValueError:
        return False


def _with_percent(row: Row) -> Row:
    confidence = row.fields.get(CONFIDENCE)
    if not confidence or is_percent(confidence):
        return row
    return row._replace(fields={**row.fields, CONFIDENCE: f"{confidence}%"})


def _reserved(rows: Rows, gold: str, assigned: Mapping[str, str], is_log: bool) -> set[str]:
    """Choose the columns that are not parts of an item: right answers, labels, token values and judged
    answers."""
    reserved = {gold, *_OF_QUESTION, *_token_columns(rows), GRADES} - set(assigned.values())
    free_names = [name for name in rows.columns if name not in reserved and name != RESPONSE]
    columns = item_columns(free_names, assigned)
    reserved |= {columns.summaries, columns.order}
    if any(path.partition(".")[0] == RESPONSE for path in assigned.values()):
        return reserved

    def is_repeated() -> bool:
        if not columns.question or is_log:
            return False
        return len({repr(row.fields.get(columns.question)) for row in rows}) < rows.count

    if _is_right_answer(rows, columns.question, item_columns([*free_names, RESPONSE], assigned).reference):
        return reserved
    # a response is the judged answer only where the samples are in another column
    is_judged = CONFIDENCE in rows.columns
    if columns.answers or columns.halves or (is_judged and (columns.id or not is_repeated())):
        reserved.add(RESPONSE)
    return reserved


def _is_right_answer(rows: Rows, question: str, name: str) -> bool:
    """Check whether ``answer`` beside ``response`` is the right one: a text that is the same in all rows of a
    question."""
    if plain_name(name) != "answer" or RESPONSE not in rows.columns or rows.columns[name].has_list:
        return False
    first: dict[str, object] = {}
    return all(
        first.setdefault(repr(row.fields.get(question)), row.fields.get(name)) == row.fields.get(name)
        for row in rows
    )


def _token_columns(rows: Rows) -> list[str]:
    """List the columns with values of each token; a count of tokens, for example, is none."""
    return [name for name in TOKEN_COLUMNS if name not in rows.columns or rows.columns[name].has_list]


def _grade_notes(questions: Sequence[AnsweredQuestion]) -> list[str]:
    """Name the graders, and the number of verdicts that are neither right nor wrong."""
    graders = graded_by(questions)
    notes = []
    for name in graders:
        verdicts = [right for question in questions for _, right in question.grades.get(name, ())]
        if neither := verdicts.count(None):
            are = "grade" if neither == 1 else "grades"
            notes.append(
                f"{neither:,} {are} of {len(verdicts):,} by {excerpt(name)} left out: neither right nor wrong"
            )
    if len(graders) > 1:
        notes.append(
            f"there are grades by {listed(graders)}; the first grader of each question counts. To use one "
            f"grader, add --correctness {shlex.quote(f'graded:{graders[1]}')}"
        )
    return notes


def _label_as_others(row: Row, verdicts: dict[str, tuple[Graded, ...]]) -> None:
    """Move a question's label to its judged answer's grades, as in questions with lists of labels."""
    # a label of the question judges one answer; others have lists of labels
    value = row.fields.pop(CORRECT, None)
    if value not in (None, "") and CORRECT not in verdicts:
        verdicts[CORRECT] = (Graded(None, _label(row, value)),)


class _QuestionCensus:
    """Facts about all questions of a file, and counts for notes."""

    def __init__(self, rows: Rows, gold: str, *, has_response: bool) -> None:
        available = {*rows.columns, *rows.inner, gold}
        self._gold = gold
        self._names = [name for name in (gold, *_OF_QUESTION) if name in available]
        self._names += [RESPONSE] * has_response
        self.tokens = [name for name in _token_columns(rows) if name in available]
        has_lists = CORRECT in rows.inner or (CORRECT in rows.columns and rows.columns[CORRECT].has_list)
        self.may_be_graded = has_lists or GRADES in rows.columns
        self.has_label_lists = False
        self.varying: set[str] = set()
        """Fields in which the rows of a question differ."""
        self._counts: Counter[str] = Counter()
        self._references: set[str] = set()
        self._cells = CellCensus()

    def join(self, item: ItemRow) -> None:
        """Record a question whose rows were joined, perhaps not all of them."""
        if len(item.rows) > 1:
            self.joined(item)
        if self.may_be_graded and not self.has_label_lists:
            self.has_label_lists = CORRECT in grades(item)

    def joined(self, item: ItemRow) -> Row:
        """Join the rows of a question.

        Raises:
            DataError: the rows give different right answers.
        """
        fields: dict[str, Any] = {}
        for name in self._names:
            values = [value for row in item.rows if (value := field_value(row, name)) not in (None, "")]
            # compared as they are written, since lists cannot be hashed
            if any(value is not values[0] and repr(value) != repr(values[0]) for value in values):
                if name == self._gold:
                    raise item.row.error(
                        "the rows of one question have different right answers in the field "
                        f"{excerpt(name)}: {excerpt(values[0])} and others. If these are spellings of one "
                        "answer, write them as a list in each row"
                    )
                self.varying.add(name)
            elif values:
                fields[name] = values[0]
        return Row(item.row.source, item.row.where, fields)

    def count(self, item: ItemRow, row: Row, question: AnsweredQuestion) -> None:
        """Count the answers, labels and columns of a question for the notes."""
        self._references.add(item.columns.reference)
        self._cells.count(item)
        is_labelled = row.fields.get(CORRECT) not in (None, "")
        self._counts.update(
            nulls=item.answers.count(None) - item.unfinished,
            shortened=item.shortened,
            unfinished=item.unfinished,
            blank=len(item.texts) - len(question.answers),
            without=int(not question.answers and question.confidence is None),
            targets=int(bool(field_value(item.row, "target"))),
            divided=int(is_divided(row.fields.get(self._gold), self._gold)),
            labels=int(is_labelled),
            neither=int(is_labelled and question.correct is None),
        )

    def notes(self, questions: Sequence[AnsweredQuestion], is_log: bool) -> list[str]:
        """List notes on what is left out, and on other things that a user should know."""
        counts, notes = self._counts, []
        for count, kind in ((counts["nulls"], "null"), (counts["blank"], "blank")):
            if count:
                notes.append(f"{counted(count, 'answer')} left out: {kind}")
        if without := counts["without"]:
            notes.append(f"{counted(without, 'question')} without any answer, so their values are undefined")
        notes += reasoning_notes(counts["shortened"], counts["unfinished"])
        references = sorted(self._references - {""}) + ["target"] * (is_log and counts["targets"] > 0)
        if references and not has_gold(questions):
            option = f"--gold {shlex.quote(references[0])}"
            notes.append(f"{excerpt(references[0])} may hold the right answers; if so, add {option}")
        cell = self._cells.separated
        if cell and not any(len(question.answers) > 1 for question in questions):
            notes.append(
                f"no question has more than one answer. If {excerpt(cell.text)} holds several answers, split "
                f"it with: selfreflect convert FILE --separator {cell.separator!r} --output items.jsonl"
            )
        if divided := counts["divided"]:
            notes.append(
                f"{counted(divided, 'cell')} of {excerpt(self._gold)} split into several right answers at ';'"
            )
        notes += _grade_notes(questions)
        if neither := counts["neither"]:
            notes.append(f"{counted(neither, 'label')} of {counts['labels']:,} neither right nor wrong")
        if varying := sorted(self.varying - {CORRECT}):
            notes.append(
                "left out, because their values differ between the answers to one question: "
                f"{listed(varying)}"
            )
        return notes


def _question(
    item: ItemRow,
    row: Row,
    ids: RowIds,
    gold: str,
    structured: bool,
    verdicts: dict[str, tuple[Graded, ...]],
    tokens: Collection[str],
    share: Callable[[tuple[str, ...]], tuple[str, ...]],
) -> AnsweredQuestion:
    answers = share(item.texts)
    confidence = _number(row, "confidence", 0, 1)
    # a file of confidences alone is fine, and one with neither is refused at its first row
    has_column = item.columns.answers or item.columns.halves
    if not answers and confidence is None and not has_column and CONFIDENCE not in item.row.fields:
        raise row.error(
            f"the record needs 'answers' or a 'confidence'; its fields are {listed(item.row.fields)}",
            remedy=naming(item.row, ["answer"], item.columns),
        )
    aliases = field_list(row, "aliases")
    if not all(map(is_text_list, aliases)):
        raise row.error("the field 'aliases' must be a list of lists of texts")
    values = token_values(item, answers, tokens) if tokens else NO_TOKENS
    question = AnsweredQuestion(
        id=ids.take(item.row, item.question, item.context, item.id_column),
        text=item.question,
        answers=answers,
        gold=share(_right_answers(item, row, gold, structured)),
        aliases=tuple(map(tuple, aliases)),
        answer=judged_text(row),
        token_values=values,
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


def _right_answers(item: ItemRow, row: Row, name: str, structured: bool) -> tuple[str, ...]:
    """Read the spellings of the right answer as texts."""
    value = gold_value(row.fields.get(name), item.row, item.texts)
    if is_divided(value, name):
        value = list(filter(None, map(str.strip, value.split(";"))))
    if structured:
        values = value if isinstance(value, list) else [value]
        value = [json.dumps(v, ensure_ascii=False) if isinstance(v, dict) else v for v in values]
    return right_texts(value, row, name)


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
            hint = f". If it is a percentage, divide it by 100, or write '{number:g}%'"
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
