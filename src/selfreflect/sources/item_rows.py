"""Questions with answers and summaries, from one row per question or per answer."""

from __future__ import annotations

import ast
import io
import json
import math
import re
import shlex
import tokenize
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import msgspec

from selfreflect.errors import ConfigError, excerpt, nearest
from selfreflect.models.reasoning import UnclosedReasoningError, answer_in
from selfreflect.records import UNNAMED_SUMMARY, AnswerSet, Halving, Scalar, shuffled
from selfreflect.sources.cells import gold_texts, joined_texts, metadata, type_name
from selfreflect.sources.columns import ItemColumns, item_columns
from selfreflect.sources.files import integer
from selfreflect.sources.names import (
    CONDITIONING,
    GOLD_NAMES,
    LIKELY_WORDS,
    MASKED_OUT,
    QUESTION_COLUMNS,
    READ_BY_NAME,
    ROLES,
    SINGLE_ANSWERS,
    TOKEN_COLUMNS,
    column_range,
    counted_families,
    likely_gold,
    plain_name,
    tells_of_choices,
)
from selfreflect.sources.parsers import KNOWN
from selfreflect.sources.rows import (
    ROWS_BETWEEN_PROGRESS,
    Again,
    Row,
    Rows,
    exact_key,
    id_text,
    is_number,
    is_sentence,
    is_text,
    listed,
)
from selfreflect.text import counted

Texts = tuple[str, ...]


@dataclass(frozen=True)
class Reading:
    """Rules for interpreting rows, beyond column names."""

    assigned: Mapping[str, str] = field(default_factory=dict)
    """Columns assigned by the user, by role."""
    cells: bool = False
    """Whether all values are text, as in CSV, with lists as JSON."""
    separator: str = ""
    """Separator of answers in a text."""
    reserved: Collection[str] = ()
    """Columns that the caller reads itself."""
    further: Collection[str] = ()
    """Columns that the caller reads in every row of a question, not only in the first."""
    need_question: bool = True
    """Whether a row without a question is refused. If not, an id is enough."""
    need_answers: bool = True
    """Whether a row without a column of answers is refused."""
    structured: bool = False
    """Whether an answer may be an object, which is kept as JSON."""
    elsewhere: str = ""
    """Remedy for missing questions."""


@dataclass(slots=True)
class ItemRow:
    """One question, from one or several rows."""

    rows: list[Row]
    columns: ItemColumns
    question: str
    """Text of the question; empty only if none is needed."""
    context: str = ""
    id_column: str = ""
    """Column of the id, unless rows differ."""
    answers: list[str | None] = field(default_factory=list)
    """Answers, of both halves if given; None for a row without an answer, and for null in a list."""
    nulls: int = 0
    """Number of nulls in lists, for missing answers."""
    shortened: int = 0
    """Number of answers without the reasoning or tags that stood around them."""
    unfinished: int = 0
    """Number of responses without an answer, since their reasoning never ends; None stands for each."""
    given_halves: tuple[Texts, Texts] | None = None
    summaries: dict[str, list[str]] = field(default_factory=dict)
    """Summaries by name; several if the question's rows differ."""
    order: tuple[Texts, ...] = ()
    metadata: dict[str, Scalar] = field(default_factory=dict)
    one_answer: bool = False
    """Whether the row holds one answer, so that other rows belong to the same question."""
    varying: frozenset[str] = frozenset()
    """Columns that differ between rows."""

    @property
    def row(self) -> Row:
        """The first row."""
        return self.rows[0]

    @property
    def texts(self) -> Texts:
        """All answers, in file order."""
        return _present(self.answers)

    def halves(self, id_: str, seed: int) -> tuple[list[int], list[int]]:
        """Split the answers into test and reference halves, as indices into ``texts``.

        A list is shuffled; fewer than two answers leave the first half empty.
        """
        count = len(self.texts)
        if self.given_halves is not None:
            middle = len(self.given_halves[0])
            return list(range(middle)), list(range(middle, count))
        order = shuffled(self.texts, id_, seed)
        return order[: count // 2], order[count // 2 :]

    def answer_set(self, id_: str, seed: int) -> AnswerSet:
        """Build the answer set of both halves."""
        texts = self.texts
        first, second = (tuple(map(texts.__getitem__, half)) for half in self.halves(id_, seed))
        halved: Halving = "shuffled" if self.given_halves is None else "given"
        return AnswerSet(question_id=id_, masked_out=first, conditioning=second, halved=halved)

    @property
    def named_summaries(self) -> dict[str, str]:
        """Summary texts by name, numbered where rows differ."""
        texts = {}
        for name, different in self.summaries.items():
            for number, text in enumerate(different, start=1):
                texts[name if len(different) == 1 else f"{name}_{number}"] = text
        return texts

    def add(self, row: ItemRow) -> None:
        """Merge another row of the same question."""
        self.rows += row.rows
        self.answers += row.answers
        self.nulls += row.nulls
        self.shortened += row.shortened
        self.unfinished += row.unfinished
        for name, texts in row.summaries.items():
            mine = self.summaries.setdefault(name, [])
            mine += [text for text in texts if text not in mine]
        self.order = self.order or row.order
        if self.id_column and row.row.fields.get(self.id_column) != self.row.fields.get(self.id_column):
            self.varying |= {self.id_column}
            self.id_column = ""
        for name in {**self.metadata, **row.metadata}:
            if self.metadata.get(name) != row.metadata.get(name):
                self.varying |= {name}


def item_rows(
    rows: Rows,
    reading: Reading,
    visit: Callable[[ItemRow], object] = lambda item: None,
    progress: Callable[[float], None] | None = None,
) -> Iterable[ItemRow]:
    """Join rows to questions, in the order in which each first occurs.

    Questions whose rows stand together are joined anew each time that they are looped over, and need not be
    in memory. Those of a file with scattered rows are kept.

    Args:
        visit: gets each question first, so that the caller knows of all when it loops over them. One with
            scattered rows may come twice, at first without some of them.
        progress: called now and then with the share of the rows that is joined.

    Raises:
        DataError: a row is malformed, or the answers to a question come from several models.
        ConfigError: no answer holds the separator.
    """
    is_separated = not reading.separator

    def visited(items: Iterable[ItemRow]) -> Iterator[ItemRow]:
        nonlocal is_separated
        for item in items:
            is_separated = is_separated or _holds(item, reading.separator)
            visit(item)
            yield item

    items: Iterable[ItemRow] = Again(lambda: _joined(rows, reading, are_scattered=False))
    try:
        if rows.are_kept:
            raise _ScatteredError
        deque(visited(_joined(rows, reading, progress, are_scattered=False)), maxlen=0)
    except _ScatteredError:
        items = list(visited(list(_joined(rows, reading, progress, are_scattered=True))))
    if not is_separated:
        raise ConfigError(
            f"{rows.first.source}: no answer cell contains {reading.separator!r}, so nothing can be split. "
            "Give the separator that the cells use"
        )
    return items


class _ScatteredError(Exception):
    """Raised if the rows of one question are not next to each other."""


def _joined(
    rows: Rows,
    reading: Reading,
    progress: Callable[[float], None] | None = None,
    *,
    are_scattered: bool,
) -> Iterator[ItemRow]:
    """Join the rows of each question.

    Raises:
        _ScatteredError: those of one question stand apart, and ``are_scattered`` denies it.
    """

    @cache
    def columns_of(names: Texts) -> ItemColumns:
        return item_columns([name for name in names if name not in reading.reserved], reading.assigned)

    items: list[ItemRow] = []
    by_question: dict[tuple[str, str], ItemRow] = {}
    shared: dict[object, Row] = {}
    past: set[int] = set()
    # a summary may be a number in one row where it is a text in another
    text_columns = {name for name, column in rows.columns.items() if column.has_text}
    for number, row in enumerate(rows, start=1):
        if progress and number % ROWS_BETWEEN_PROGRESS == 0:
            progress(number / rows.count)
        item = _item_row(row, columns_of(tuple(row.fields)), reading, text_columns)
        # rows of one question may differ in their blanks; a text that is equal is in memory once
        text = " ".join(item.question.split())
        key = (item.question if text == item.question else text, item.context if text else _id(item))
        if item.one_answer and key in by_question:
            by_question[key].add(item)
            if are_scattered and not rows.are_kept:
                by_question[key].rows[-1] = _compact(row, reading.further, shared)
            continue
        if not are_scattered and key not in by_question:
            past.update(map(hash, by_question))
            yield from map(_checked, items)
            items.clear()
            by_question.clear()
            if item.one_answer and hash(key) in past:
                raise _ScatteredError
        if item.one_answer:
            by_question[key] = item
        items.append(item)
    yield from map(_checked, items)


def _compact(row: Row, names: Collection[str], shared: dict[object, Row]) -> Row:
    """Keep only the fields ``names`` of a further row of a question. Rows with equal plain values become one
    object, since no message needs their location."""
    fields = {name: row.fields[name] for name in names if name in row.fields}
    for value in fields.values():
        is_plain = not isinstance(value, list | dict)
        if not is_plain or (isinstance(value, str) and value.lstrip()[:1] in ("[", "{")):
            return row._replace(fields=fields)
    if len(shared) > KNOWN:
        shared.clear()
    return shared.setdefault(exact_key(fields), row._replace(fields=fields))


def _checked(item: ItemRow) -> ItemRow:
    if "model" in item.varying:
        raise item.row.error(
            f"the answers to {excerpt(item.question)} come from several models (column 'model'), but an "
            "answer distribution belongs to one model. Save the answers of each model in a separate file"
        )
    # what differs between its answers is no property of the question
    for name in item.varying:
        item.metadata.pop(name, None)
    return item


def name_assigned(rows: Rows, assigned: Mapping[str, str], notes: list[str]) -> dict[str, str]:
    """Rename assigned columns that are read by name, and return the other assignments.

    ``notes`` gets the columns that were called so, which are no longer there.

    Raises:
        ConfigError: a role is unknown, or no row has its column.
    """
    names = _check_assigned(rows, assigned)
    renamed = {column: role for role, column in assigned.items() if role in READ_BY_NAME}
    for column, role in renamed.items():
        if role in names and role not in renamed:
            notes.append(f"the column {excerpt(role)} is left out, because {excerpt(column)} is read instead")
    rows.rename(renamed)
    return {role: column for role, column in assigned.items() if role not in READ_BY_NAME}


def _check_assigned(rows: Rows, assigned: Mapping[str, str]) -> list[str]:
    """Return all column names. Raises ConfigError if an assigned column does not exist."""
    names = list(rows.columns)
    for role, column in assigned.items():
        if role not in ROLES:
            hint = f" Did you mean --column {column}={role}?" if column in ROLES and role in names else ""
            raise ConfigError(f"{excerpt(role)} is not a role of a column. Known: {', '.join(ROLES)}.{hint}")
        if role == "answer" and column_range(column, names):
            continue
        if column not in names:
            raise ConfigError(
                f"{rows.first.source} has no column {excerpt(column)}.{nearest(column, names)} The columns "
                f"are {listed(names)}"
            )
    return names


def _id(item: ItemRow) -> str:
    """Return the id in a row, or an empty string."""
    return id_text(item.row.fields.get(item.id_column)).strip()


def _holds(item: ItemRow, separator: str) -> bool:
    """Check whether any answer cell contains the separator."""
    names = (*item.columns.answers, *item.columns.halves)
    return any(separator in value for name in names if isinstance(value := item.row.fields.get(name), str))


def _item_row(row: Row, columns: ItemColumns, reading: Reading, text_columns: Collection[str]) -> ItemRow:
    cells = reading.cells
    if reading.need_question and not columns.question:
        roles = ["question"] if columns.answers or columns.halves else ["question", "answer"]
        answers = ", and one with answers" if len(roles) > 1 and reading.need_answers else ""
        if reading.elsewhere:
            raise row.error("the file contains no questions", remedy=reading.elsewhere)
        raise row.error(
            f"the field 'question' is missing (it can be called {', '.join(QUESTION_COLUMNS[1:])}, too)"
            f"{answers}; its fields are {listed(_paths(row))}",
            remedy=naming(row, roles, columns) if reading.need_answers else "",
        )
    asked = row.get(columns.question)
    if isinstance(asked, dict):
        raise row.error(
            f"the field {excerpt(columns.question)} must be a text, not an object",
            remedy=naming_inner("{column} question=", columns.question, asked, str),
        )
    question = row.text if reading.need_question else row.optional_text
    item = ItemRow([row], columns, question(columns.question))
    item.context = context_of(row, columns.context)
    item.id_column = columns.id
    if not item.question and not _id(item):
        raise row.error(
            f"the record needs a 'question' or an 'id'; its fields are {listed(row.fields)}",
            remedy="" if columns.question else naming(row, ["question"], columns),
        )
    if reading.need_answers or columns.answers or columns.halves:
        _read_answers(item, reading)
        _leave_out_reasoning(item)
    summaries: dict[str, str] = {}
    if columns.summaries or columns.named_summaries:
        # where answers are numbers, summaries are too; elsewhere a number says something about a summary
        if item.texts and all(map(is_number, item.texts)):
            text_columns = row.fields
        summaries = _summaries(row, columns, text_columns, cells)
        item.summaries = {name: [text] for name, text in summaries.items()}
    if columns.order:
        item.order = _order(row, columns.order, cells)
    numbers = [column for column, name in columns.named_summaries if name not in summaries]
    numbers += [columns.order] * (not item.order)  # the place of a row is called so, too
    item.metadata = metadata(row.fields, [*columns.extras, *numbers])
    return item


def context_of(row: Row, column: str) -> str:
    """Read the context of a row, which may be a list of passages, also in a cell; empty without one."""
    value = row.get(column) if column else None
    if isinstance(value, str) and value.lstrip().startswith("["):
        value = list_in(value) or value
    return row._replace(fields={column: joined_texts(value)}).optional_text(column) if column else ""


def _read_answers(item: ItemRow, reading: Reading) -> None:
    row, columns = item.row, item.columns
    if columns.rivals:
        raise row.error(
            f"{listed([*columns.answers, *columns.rivals])} could each contain the model's answers",
            remedy="Keep one of these columns. If one is a summary, add {column} summary=NAME. "
            f"{_naming_one(row, columns)}",
        )
    if len(columns.halves) == 2 and not columns.answers:
        first, second = (_texts(row, name, reading) for name in columns.halves)
        item.given_halves = _present(first), _present(second)
        item.answers = [*first, *second]
        item.nulls = item.answers.count(None)
        return
    if columns.halves:
        raise row.error(
            f"the record needs either both {MASKED_OUT[0]!r} and {CONDITIONING[0]!r}, or only 'answers'; "
            f"its fields are {listed(row.fields)}"
        )
    if not columns.answers:
        remedy = naming(row, ["answer"], columns)
        if "NAME" in remedy:
            remedy = (
                "If there are only questions, let a model answer them: selfreflect answers --questions FILE "
                f"--out DIR. Otherwise call a column 'answers', or 'answer' with one answer per row. {remedy}"
            )
        raise row.error(
            f"no field contains the model's answers; its fields are {listed(_paths(row))}", remedy=remedy
        )
    if len(columns.answers) > 1:
        item.answers = _numbered_answers(row, columns.answers)
        return
    [name] = columns.answers
    value = row.fields[name]
    if isinstance(value, dict) and not _is_list(value):
        value = json.dumps(value, ensure_ascii=False) if reading.structured else text_of(value)
    value = scalar_text(value)
    if isinstance(value, str) and columns.plural and not value.strip():
        value = None  # neither a list nor an answer
        is_list = False
    elif isinstance(value, str):
        # a named column may hold lists as any program writes them
        is_list = (columns.plural and value.lstrip()[:1] == "[") or (
            (columns.plural or "answer" in reading.assigned) and list_in(value) is not None
        )
    else:
        is_list = columns.plural
    if reading.separator and isinstance(value, str):
        is_list = True
    item.one_answer = not is_list and (value is None or isinstance(value, str))
    item.answers = [value] if item.one_answer else list(_texts(row, name, reading))
    item.nulls = 0 if item.one_answer else item.answers.count(None)


def _leave_out_reasoning(item: ItemRow) -> None:
    """Keep only the answers of responses with reasoning, unless values of all tokens stand beside them.

    Given halves are answers already, which this package or the published tool wrote.
    """
    if item.given_halves or any(isinstance(item.row.fields.get(name), list) for name in TOKEN_COLUMNS):
        return
    for number, text in enumerate(item.answers):
        answer = text and finished_answer(text)
        if answer != text:
            item.answers[number] = answer
            item.unfinished += answer is None
            item.shortened += answer is not None


def finished_answer(text: str) -> str | None:
    """Find the answer of a stored response; None if its reasoning never ends."""
    try:
        return answer_in(text)
    except UnclosedReasoningError:
        return None


def _naming_one(row: Row, columns: ItemColumns) -> str:
    """Suggest a command that takes the first of several columns of answers."""
    rivals = (*columns.answers, *columns.rivals)
    family = next(iter(counted_families(rivals)), [rivals[0]])
    span = f"{family[0]}..{family[-1]}" if family[1:] else family[0]
    return f"Or name it: selfreflect convert {_path_of(row)} {_option('answer', span)}"


def _option(role: str, name: str) -> str:
    """Write the option of a column; NAME stands for none, and for one in braces, which name options."""
    return f"{{column}} {role}={shlex.quote(name) if name and not {'{', '}'} & {*name} else 'NAME'}"


def naming_inner(option: str, name: str, value: Any, kind: type) -> str:
    """Suggest the option that names a value of a kind inside an object."""
    inner = (
        [key for key, entry in value.items() if isinstance(entry, kind)] if isinstance(value, dict) else ()
    )
    if not inner or "{" in "".join([name, *inner]):
        return ""
    path = shlex.quote(f"{name}.{inner[0] if len(inner) == 1 else 'NAME'}")
    several = f" NAME is one of {listed(inner)}." if len(inner) > 1 else ""
    return f"Name the field in it with {option}{path}.{several}"


def _paths(row: Row) -> list[str]:
    """List the fields of a row, those of objects as ``data.question`` unless the column has a role."""
    known = item_columns(row.fields, {})
    paths: list[str] = []
    for name, value in row.fields.items():
        is_free = isinstance(value, dict) and value and not known.role(name)
        paths += [f"{name}.{key}" for key in value] if is_free else [name]
    return paths


def naming(row: Row, roles: Sequence[str], columns: ItemColumns | None = None) -> str:
    """Suggest a command that makes rows readable, with likely columns besides those with a known role."""
    known = [name for name in row.fields if columns and columns.role(name)]
    assigned: dict[str, str] = {}
    for role in roles:
        assigned[role] = likely_column(row, role, {*known, *assigned.values()})
    options = [_option(role, name) for role, name in assigned.items()]
    # other separators occur within sentences
    if "|" in str(row.get(assigned.get("answer", ""))):
        options.append("{separator} '|'")
    return f"Name it: selfreflect convert {_path_of(row)} {' '.join(options)}"


def _path_of(row: Row) -> str:
    """Quote the path of a row's file for a shell, as far as a remedy can hold it."""
    with suppress(ValueError, SyntaxError):
        path = ast.literal_eval(row.source)
        if isinstance(path, str) and not path.endswith("…") and not {"{", "}"} & {*path}:
            return shlex.quote(path)
    return "FILE"


def likely_column(row: Row, role: str, taken: Collection[str] = ()) -> str:
    """Choose the column, or the span of answers, that a role is likeliest to have; empty if none may."""
    known = {name for name in _paths(row) if likely_gold([name]) or plain_name(name) in GOLD_NAMES}
    names = [name for name in _paths(row) if name not in known and name not in taken]
    if role == "question":
        names = [name for name in names if not recurs_in_list(row, name)]
    else:
        names = [name for name in names if plain_name(name) not in QUESTION_COLUMNS]
    if role == "answer":  # "Incorrect answer 2" and "Choice A" are parts of a question
        names = [name for name in names if not tells_of_choices(name)]
    families = counted_families(names)
    likely = [name for name in names if any(word in name.lower() for word in LIKELY_WORDS[role])]
    if role == "answer":
        # what counts tokens or times is counted as the answers are, and holds no text
        of_texts = [family for family in families if is_text(row.get(family[0]))] or families
        named = [family for family in of_texts if family[0] in likely]
        if spans := named or of_texts:
            return f"{spans[0][0]}..{spans[0][-1]}"
    counted = {name for family in families for name in family}
    free = [name for name in names if name not in counted]
    texts = [name for name in free if isinstance(row.get(name), str if role == "question" else str | list)]
    if role == "question":
        asking = [name for name in texts if row.get(name).rstrip().endswith(("?", "？"))]
        sentences = [name for name in texts if is_sentence(row.get(name))]
        likely = [name for name in likely if name in asking] or asking or likely
        texts = [*sentences, *texts]
    return next(iter([*likely, *texts]), "")


def recurs_in_list(row: Row, name: str) -> bool:
    """Check whether a field's text is in a list of its row, so that it is one of the answers in it."""
    return any(isinstance(values, list) and row.get(name) in values for values in row.fields.values())


def _numbered_answers(row: Row, names: Sequence[str]) -> list[str | None]:
    """Read the answers of numbered columns, ignoring trailing blank cells."""
    answers: list[str | None] = []
    for name in names:
        value = scalar_text(row.fields[name])
        if value is not None and not isinstance(value, str):
            raise row.error(f"the field {excerpt(name)} must be a text, not {type_name(value)}")
        answers.append(value)
    while answers and not (answers[-1] or "").strip():
        answers.pop()
    return answers


def _texts(row: Row, name: str, reading: Reading) -> tuple[str | None, ...]:
    """Read a list of texts, with null for missing ones.

    A text can hold it: in a cell, or where answers are separated by something.
    """
    values = row.fields[name]
    if reading.separator and isinstance(values, str) and values.lstrip()[:1] != "[":
        return tuple(filter(None, map(str.strip, values.split(reading.separator))))
    if reading.cells and isinstance(values, str):
        values = list_in(values) if values.strip() else []
        if values is None:
            raise row.error(
                f"the cell {excerpt(name)} must hold a list of texts as JSON, as in "
                '["Radishes.", "Lettuce."]',
                remedy="If each row holds one answer, call the column 'answer'; if a cell holds several "
                "answers, give what separates them with {separator}, as in {separator} ';'.",
            )
    elif isinstance(values, str):
        values = list_in(values) or values
    if values is None:
        return ()
    if isinstance(values, dict) and _is_list(values):
        values = list(values.values())
    if not isinstance(values, list):
        raise row.error(
            f"the field {excerpt(name)} must be a list of texts, not {type_name(values)}",
            remedy=naming_inner("{column} answer=", name, values, list)
            or (_BY_FIELD if isinstance(values, dict) else ""),
        )
    texts = []
    for number, value in enumerate(values, 1):
        if not reading.structured:
            value = text_of(value)
        elif isinstance(value, dict | list):
            value = json.dumps(value, ensure_ascii=False)
        value = scalar_text(value)
        if value is not None and not isinstance(value, str):
            raise row.error(
                f"the field {excerpt(name)} must be a list of texts, but entry {number} is "
                f"{type_name(value)}",
                remedy=_BY_FIELD if isinstance(value, dict) else "",
            )
        texts.append(value)
    return tuple(texts)


_BY_FIELD = "To compare answers that are objects field by field: selfreflect uncertainty FILE --fields auto."


def _is_list(value: Mapping[str, Any]) -> bool:
    """Check whether an object is a list with positions as keys, as data frames write it."""
    return bool(value) and all(map(str.isdecimal, value))


def reasoning_notes(shortened: int, unfinished: int) -> list[str]:
    """Count the answers that lost reasoning or tags, and the responses whose reasoning never ends."""
    taken = f"{counted(shortened, 'answer')} taken without the reasoning or tags around it"
    left_out = f"{counted(unfinished, 'answer')} left out: reasoning that never ends"
    return [taken] * bool(shortened) + [left_out] * bool(unfinished)


def scalar_text(value: Any) -> Any:
    """Write a number or truth value as text; NaN becomes None."""
    if isinstance(value, float) and math.isnan(value):
        return None
    if isinstance(value, int | float) and abs(value) < math.inf:
        return json.dumps(value)
    return value


def _present(texts: Sequence[str | None]) -> Texts:
    return tuple(text for text in texts if text is not None)


def list_in(text: str) -> list[Any] | None:
    """Parse the list in a cell, written as JSON or printed by Python or NumPy."""
    for parse in (_JSON.decode, _printed_list):
        try:
            value = parse(text)
        except (ValueError, SyntaxError, RecursionError, MemoryError, tokenize.TokenError):
            continue
        if isinstance(value, list):
            return value
    return None


# Spreadsheets keep line ends within texts.
_JSON = json.JSONDecoder(strict=False, parse_int=integer)
_ARRAY = re.compile(r"\s*array\((.*?)(?:,\s*dtype=\S+)?\)\s*", re.DOTALL)
_ARRAY_WITHIN = re.compile(r"\barray\((\[[^\[\]]*\])(?:,\s*dtype=\w+)?\)")
# A text or number as NumPy 2 prints it, such as "np.str_('a')".
_NUMPY_SCALAR = re.compile(r"""\bnp\.\w+\(('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|[\w.+-]+)\)""")
_LIST_START = re.compile(r"\s*(?:\[|\(|array\()")


def _printed_list(text: str) -> Any:
    """Parse a printed list. Arrays lack commas, data frames write nan for missing texts, and tuples must be
    all text."""
    text = _NUMPY_SCALAR.sub(r"\1", text)
    array = _ARRAY.fullmatch(text)
    source = (array[1] if array else text).strip()
    if not _LIST_START.match(source):
        return None
    parts: list[str] = []
    ended = False
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type in (tokenize.COMMENT, tokenize.ERRORTOKEN):
            return None
        if token.type == tokenize.NL:
            continue
        is_value = token.type in (tokenize.STRING, tokenize.NUMBER, tokenize.NAME)
        # NumPy prints no commas between values
        parts += [","] * (ended and (is_value or token.string == "-"))
        parts.append("None" if token.string.lower() == "nan" else token.string)
        ended = is_value
    value = ast.literal_eval(" ".join(parts).strip())
    is_texts = isinstance(value, tuple) and value and all(isinstance(entry, str) for entry in value)
    return list(value) if is_texts else value


def object_in(value: object) -> dict[str, Any] | None:
    """Parse an object in a cell, written as JSON or printed by Python; None for other values."""
    if not isinstance(value, str) or not value.lstrip().startswith("{"):
        return value if isinstance(value, dict) else None
    for parse in (_JSON.decode, _printed_object):
        with suppress(ValueError, SyntaxError, RecursionError, MemoryError):
            entry = parse(value)
            return entry if isinstance(entry, dict) else None
    return None


def _printed_object(text: str) -> Any:
    return ast.literal_eval(_ARRAY_WITHIN.sub(r"\1", text.strip()))


def text_of(entry: Any) -> Any:
    """Find the text of an object with one answer, such as a server's choice."""
    while isinstance(entry, list) and len(entry) == 1:
        [entry] = entry
    if isinstance(entry, dict) and isinstance(entry.get("message"), dict):
        entry = {"text": None, **entry["message"]}
    if isinstance(entry, dict):
        for name in TEXT_FIELDS:
            value = entry.get(name)
            if isinstance(value, list) and value and all(isinstance(part, dict) for part in value):
                texts = [part["text"] for part in value if isinstance(part.get("text"), str)]
                value = "\n".join(texts) or None
            if isinstance(value, str):
                return value
        if entry.get("content", ...) is None or entry.get("text", ...) is None:
            return None  # a turn without text
    return entry


TEXT_FIELDS = ("text", "content", "generated_text", "output_text", "value", *SINGLE_ANSWERS)
"""Names of the text where an answer or a question is an object."""


def _summaries(row: Row, columns: ItemColumns, text_columns: Collection[str], cells: bool) -> dict[str, str]:
    summaries = {}
    if columns.summaries:
        summaries = _summaries_in(row, columns.summaries, cells)
    for column, name in columns.named_summaries:
        value = row.fields[column]
        if is_text(value) or (column in text_columns and is_number(value)):
            summaries.setdefault(name, value if isinstance(value, str) else gold_texts(value)[0])
    return summaries


def _summaries_in(row: Row, column: str, cells: bool) -> dict[str, str]:
    """Read one summary, a list of summaries, or an object of named summaries."""
    value = row.fields[column]
    if cells and isinstance(value, str) and value.lstrip()[:1] in ("[", "{"):
        try:
            value = _JSON.decode(value)
        except (ValueError, RecursionError):
            value = list_in(value) or value
    if isinstance(value, str):
        value = {UNNAMED_SUMMARY: value} if value.strip() else None
    if isinstance(value, list):
        value = {f"summary_{number}": text for number, text in enumerate(value, start=1)}
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise row.error(
            f"the field {excerpt(column)} must be a text, a list of texts, or an object with the name of "
            "every "
            f'summary, as in {{"mine": "Probably radishes."}}, not {type_name(value)}'
        )
    for name, text in value.items():
        if not name.strip():
            raise row.error("a summary has a blank name")
        if text is not None and not isinstance(text, str):
            raise row.error(f"the summary {excerpt(name)} must be a text, not {type_name(text)}")
    # null marks a field that another row of a parquet file has
    return {name: text for name, text in value.items() if text is not None}


def _order(row: Row, column: str, cells: bool) -> tuple[Texts, ...]:
    value = row.fields.get(column)
    if cells and isinstance(value, str):
        value = list_in(value) if value.strip() else None
    if value is None or isinstance(value, int | float):
        return ()
    for chains in (value, [value]):
        try:
            orders = msgspec.convert(chains, tuple[Texts, ...])
        except msgspec.ValidationError:
            continue
        return tuple(filter(None, orders))
    raise row.error(
        'the field \'order\' must list names of summaries, best first, as in ["good", "bad"], or be a '
        "list of such lists"
    )
