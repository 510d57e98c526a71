"""Questions from the bundled set, a file, standard input, or the Hugging Face hub."""

from __future__ import annotations

import errno
import json
import re
import shlex
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from contextlib import nullcontext, suppress
from importlib import resources
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any, NamedTuple

from selfreflect.errors import ConfigError, DataError, excerpt, nearest
from selfreflect.models.base import seed_for
from selfreflect.records import Question, Record
from selfreflect.sources.answer_values import gold_value, join_right_answers, label_columns, right_texts
from selfreflect.sources.cells import GOLD_LISTS, holds_image, metadata, scalar
from selfreflect.sources.columns import item_columns
from selfreflect.sources.files import Content, read_content
from selfreflect.sources.hub import (
    HUB_SETS,
    Columns,
    HubSet,
    find_hub_set,
    load_hub,
    revision_of,
    rows_with_values,
)
from selfreflect.sources.item_rows import context_of, likely_column, naming_inner
from selfreflect.sources.layouts import rows_in
from selfreflect.sources.names import (
    CHOICES,
    CONTEXT_COLUMN,
    GOLD,
    GOLD_COLUMNS,
    GOLD_NAMES,
    IMAGE_COLUMNS,
    KIND_COLUMNS,
    QUESTION_COLUMNS,
    SINGLE_ANSWERS,
    is_image,
    likely_questions,
    plain_name,
    tells_of_reasons,
)
from selfreflect.sources.parsers import PARSERS, field_names, parse_rows
from selfreflect.sources.roles import LikelyRoles, likely_roles
from selfreflect.sources.rows import Row, RowIds, listed
from selfreflect.text import counted

_SHARD = re.compile(r"([1-9][0-9]*)/([1-9][0-9]*)", re.ASCII)

MAX_SHARDS = 999_999

BUNDLED = "bundled"
DEMO = "demo"
SOURCES = (BUNDLED, DEMO, *HUB_SETS)
"""Names that :func:`load_questions` accepts."""

BUNDLED_COLUMNS = Columns("text", "gold", "kind", CONTEXT_COLUMN)
# Files in the package and their columns.
_BUNDLED = {
    BUNDLED: ("questions.jsonl", BUNDLED_COLUMNS),
    DEMO: ("demo_items.json", Columns("question", "", "kind", CONTEXT_COLUMN)),
}


class QuestionSet(Record, frozen=True, kw_only=True):
    """Questions with all settings that load them again. Fields without meaning for a source are empty."""

    questions: tuple[Question, ...]
    """Questions in source order."""
    source: str
    """Source in the user's words."""
    total: int
    """Number of questions in the source, before ``limit`` and ``part``."""
    part: str = ""
    """Shard of the questions, such as ``"3/16"``."""
    limit: int | None
    seed: int
    question_column: str
    context_column: str = ""
    sha256: str = ""
    """Hash of a file, of standard input, or of the bundled set."""
    dataset: str = ""
    subset: str = ""
    split: str = ""
    revision: str = ""
    """Commit of the data set on the hub, if known."""
    with_images: int = 0
    """Number of questions left out because of a picture."""
    left_behind: tuple[str, ...] = ()
    """Columns with objects, which do not become metadata."""
    notes: tuple[str, ...] = ()
    """How the columns of a file were understood, one sentence each."""


class RowTable(NamedTuple):
    """The rows of one source before conversion to questions."""

    rows: Iterable[Row]
    total: int
    columns: Columns
    origin: dict[str, str]
    """Fields of :class:`QuestionSet` on the rows' source."""
    travelling: Sequence[str] = ()
    """Columns that become question metadata."""
    left_behind: Sequence[str] = ()
    """Columns with objects in any row, which are left out of the metadata."""
    notes: Sequence[str] = ()
    """Notes to the user, one sentence each."""


class Shard(NamedTuple):
    """A share of the questions: 3/16 is every sixteenth, from the third.

    Shards go by position: sizes differ by at most one, and a source sorted by kind gives each shard some of
    each. They are disjoint and complete only if all jobs read the same content, whose hash a run directory
    records.
    """

    number: int
    """Number of the shard, from 1."""
    of: int

    def __str__(self) -> str:
        return f"{self.number}/{self.of}"


def parse_shard(text: str) -> Shard:
    """Parse ``"3/16"``.

    Raises:
        ConfigError: malformed, K is larger than N, or N than :data:`MAX_SHARDS`.
    """
    match = _SHARD.fullmatch(text)
    # the length first: Python refuses to read a number of thousands of digits
    if match and max(map(len, match.groups())) > len(str(MAX_SHARDS)):
        longest = max(match.groups(), key=len)
        raise ConfigError(
            f"questions can be split into at most {MAX_SHARDS:,} shards, not {excerpt(longest)}"
        )
    if match:
        shard = Shard(int(match[1]), int(match[2]))
        if shard.number <= shard.of:
            return shard
    raise ConfigError(f"write a shard as K/N with K from 1 to N, such as 3/16, not {excerpt(text)}")


def load_questions(
    source: str,
    *,
    limit: int | None = None,
    seed: int = 0,
    split: str | None = None,
    subset: str | None = None,
    question_column: str | None = None,
    context_column: str | None = None,
    part: str | None = None,
) -> QuestionSet:
    """Load questions from a bundled name, a hub data set (``hf:NAME``), a file or standard input (``-``).

    Args:
        limit: size of a random sample. It depends only on ``seed`` and on positions in the source, and a
            smaller sample is a subset of a larger one. From the bundled set it is even over all kinds.
        question_column: may name a field inside an object column, as in ``"question.text"``.
        context_column: may do so too. By default ``context``, if there is one.
        part: a shard such as ``"3/16"`` of the (sampled) questions.

    Raises:
        DataError: the source is unknown or unreadable, a record in it is malformed, or the shard is empty.
        ConfigError: ``limit`` is below 1, ``part`` is malformed, or an option does not apply to this source.
        MissingExtraError: the source needs an optional package.
    """
    if limit is not None and limit < 1:
        raise ConfigError(f"limit must be at least 1, not {limit}")
    shard = None if part is None else parse_shard(part)
    hub_set = find_hub_set(source)
    if hub_set:
        table = _hub_table(hub_set, subset, split, question_column, context_column)
    elif source in _BUNDLED:
        options = {"question_column": question_column, "context_column": context_column}
        _refuse("the bundled questions", split=split, subset=subset, **options)
        table = _bundled_table(*_BUNDLED[source])
    elif is_file(source):
        is_folder = source != "-" and Path(source).is_dir()
        _refuse("a file", split=None if is_folder else split, subset=subset)
        path = str(Path(source, split)) if split else source
        table = _file_table(path, question_column, context_column)
        table.origin["split"] = split or ""
    else:
        raise _unknown_source(source)

    with_images = 0
    usable: list[Question] = []
    for question in _questions(table, _sample(table, limit, seed), lenient=hub_set is not None):
        if question is None:
            with_images += 1
        else:
            usable.append(question)
    questions = tuple(usable)
    del usable  # two lists of a large set need not be in memory
    if with_images and not questions:
        raise DataError(
            f"{excerpt(source)}: every question comes with a picture, but the model can read only text"
        )
    if shard:
        count = len(questions)
        questions = questions[shard.number - 1 :: shard.of]
        if not questions:
            raise DataError(
                f"shard {shard} of {count} questions is empty. Use at most as many shards as questions."
            )
    return QuestionSet(
        questions=questions,
        source=source,
        total=table.total,
        part=str(shard or ""),
        limit=limit,
        seed=seed,
        question_column=table.columns.question,
        context_column=table.columns.context,
        with_images=with_images,
        left_behind=tuple(table.left_behind),
        notes=tuple(table.notes),
        **table.origin,
    )


def is_file(source: str) -> bool:
    """Check whether ``source`` is a file or standard input rather than a known set."""
    if source in _BUNDLED or find_hub_set(source):
        return False
    # a missing file should be reported as that, not as an unknown source
    return source == "-" or Path(source).suffix.lower() in PARSERS or _exists(source)


def _exists(source: str) -> bool:
    try:
        return Path(source).exists()
    except OSError as error:  # if it may not be looked at, reading it will say why
        return error.errno != errno.ENAMETOOLONG


def _refuse(source: str, **options: str | None) -> None:
    for name, value in options.items():
        if value is not None:
            raise ConfigError(f"{name} does not apply to the source {source}; leave it out")


def _unknown_source(source: str) -> DataError:
    names = [*SOURCES, *(hub_set.name for hub_set in HUB_SETS.values())]
    return DataError(
        f"{excerpt(source)} is neither a known source nor an existing file.{nearest(source, names)} "
        f"Known sources are {', '.join(SOURCES)}, hf:NAME for any data set of the hub, - for standard input, "
        f"or the path of a file ({', '.join(PARSERS)})."
    )


def _bundled_table(name: str, columns: Columns) -> RowTable:
    data = (resources.files("selfreflect") / "data" / name).read_bytes()
    content = Content(name=f"the bundled {name}", suffix=Path(name).suffix, data=data)
    rows = parse_rows(content)
    return RowTable(rows, len(rows), columns, {"sha256": content.sha256})


def _file_table(source: str, question_column: str | None, context_column: str | None) -> RowTable:
    content = read_content(source, PARSERS)
    file = rows_in(content._replace(allows_nan=True), logs=False)
    notes = file.notes
    join_right_answers(file.rows, {}, notes)
    rows = list(file.rows)
    names = field_names(rows)
    assigned = {"question": question_column} if question_column else {}
    likely = likely_roles(rows, assigned)
    if not question_column and "question" in likely.roles:
        # where no name says for sure which column asks, its texts may
        question_column = likely.roles["question"]
        notes += LikelyRoles({"question": question_column}).notes
    columns = _guess_columns(content.name, names, question_column, context_column, rows)
    if columns.gold and plain_name(columns.gold) not in GOLD_COLUMNS:
        notes.append(f"{excerpt(columns.gold)} is read as the right answers")
    answers = item_columns(names, {**likely.roles, "question": columns.question}).answers
    # in rows with ids, right answers have a usual name, unless labels say that they are a model's
    named = {name for name in names if plain_name(name) in SINGLE_ANSWERS} - {columns.gold}
    has_gold = not named.intersection(answers) and not label_columns(file.rows, names)
    rows = _once(rows, columns, answers, notes, has_gold=has_gold)
    # a column may be the kind of a question under another name, and a user asks for it by its own
    travelling = [column for column in names if column not in {*columns, "id"} or column in KIND_COLUMNS[1:]]
    left_behind = [column for column in travelling if any(_is_lost(row, column) for row in rows)]
    origin = {"sha256": content.sha256}
    return RowTable(_released(rows), len(rows), columns, origin, travelling, left_behind, notes)


def _is_lost(row: Row, column: str) -> bool:
    value = row.fields.get(column)
    # pictures are counted by themselves, and the entries of metadata travel one by one
    if not value or not isinstance(value, list | dict) or is_image(column) or holds_image(value):
        return False
    return column != "metadata" and scalar(value) is None


def _once(
    rows: list[Row], columns: Columns, answers: Sequence[str], notes: list[str], *, has_gold: bool
) -> list[Row]:
    """Keep one row per question where each row holds one answer of a model.

    Such answers are no gold, and what differs between them, such as times, is no property of the question.

    Args:
        has_gold: whether the answers may be right ones, as they are in rows that have ids.
    """
    is_single = len(answers) == 1 and not any(isinstance(row.fields.get(answers[0]), list) for row in rows)
    by_question: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        context = row.get(columns.context) if columns.context else None
        by_question.setdefault((repr(row.get(columns.question)), repr(context)), []).append(row)
    if not is_single or len(by_question) == len(rows):
        return rows
    varying = {
        name
        for group in by_question.values()
        for row in group[1:]
        for name in row.fields.keys() | group[0].fields.keys()
        if repr(row.fields.get(name)) != repr(group[0].fields.get(name))
    }
    if answers[0] not in varying or (has_gold and "id" in varying):
        return rows  # the same question several times
    without = varying | {answers[0]}
    notes.append(
        f"{len(rows):,} rows hold answers to {counted(len(by_question), 'question')}: each is asked once, "
        f"without what differs between its rows, {listed(sorted(varying))}"
    )
    return [
        row._replace(fields={name: value for name, value in row.fields.items() if name not in without})
        for row, *_ in by_question.values()
    ]


def _released(rows: list[Row]) -> Iterator[Row]:
    """Yield rows and release each one, so that a large file is in memory only once."""
    rows.reverse()
    while rows:
        yield rows.pop()


def _hub_table(
    hub_set: HubSet,
    subset: str | None,
    split: str | None,
    question_column: str | None,
    context_column: str | None,
) -> RowTable:
    name = excerpt(hub_set.name, 200)
    subset = subset or hub_set.subset
    dataset = load_hub(hub_set.name, subset, split or hub_set.split)
    if not len(dataset):
        raise DataError(f"{name} contains no records")
    available = dataset.column_names
    to_read = {"id"}
    rewrite = None
    if hub_set.columns and not question_column:
        _guess_columns(name, available, hub_set.columns.question, context_column)
        columns = hub_set.columns._replace(context=context_column or "")
        to_read.update(hub_set.reads)
        rewrite = hub_set.rewrite
    else:
        columns = _guess_columns(name, available, question_column, context_column)
    to_read.update(CHOICES, columns, [column.partition(".")[0] for column in columns])
    origin = {
        "dataset": hub_set.name,
        "subset": subset or "",
        "split": str(dataset.split or ""),
        "revision": revision_of(dataset),
    }
    # other columns stay unread: one row of Natural Questions holds a whole web page
    narrow = dataset.select_columns([column for column in available if column in to_read])
    images = rows_with_values(dataset, list(filter(is_image, available)))
    return RowTable(_hub_rows(name, narrow, images, rewrite), len(dataset), columns, origin)


def _hub_rows(
    name: str, dataset: Any, images: Container[int], rewrite: Callable[[Row], Row] | None
) -> Iterator[Row]:
    for number, fields in enumerate(dataset, start=1):
        if number - 1 in images:
            fields[IMAGE_COLUMNS[0]] = True
        row = Row(name, f"record {number}", fields)
        yield rewrite(row) if rewrite else row


def _guess_columns(
    name: str,
    available: Sequence[str],
    question_column: str | None,
    context_column: str | None,
    rows: Sequence[Row] = (),
) -> Columns:
    """Choose columns by name, requiring explicit ones to exist; ``rows`` are looked at for advice."""

    # the first of columns whose plain names are the same
    plain = {plain_name(column): column for column in reversed(available)}

    def first(names: Sequence[str]) -> str:
        return next((plain[name] for name in names if name in plain), "")

    listing = listed(available)
    for column in (question_column, context_column):
        if column and not {column, column.partition(".")[0]} & set(available):
            hint = nearest(column, list(available))
            raise DataError(f"{name} has no column {excerpt(column)}.{hint} Its columns are {listing}.")
    question = question_column or first([*QUESTION_COLUMNS, *likely_questions(plain)])
    if not question:
        likely = likely_column(rows[0], "question") if rows else ""
        example = f" {shlex.quote(likely)}" if likely and "{" not in likely else "."
        raise DataError(
            f"{name}: no column is called {', '.join(QUESTION_COLUMNS)}; its columns are {listing} (the "
            "first line of a CSV file)",
            code="no_question_column",
            remedy=f"Name the column that holds the questions with {{questions.question_column}}{example}",
        )
    context = context_column or first([CONTEXT_COLUMN])
    gold = first([GOLD])
    # "answers" may be the model's, where another column has a clearer name
    if not gold and first(GOLD_COLUMNS):
        gold = first([name for name in plain if name in GOLD_NAMES]) or first(GOLD_COLUMNS)
    return Columns(question, gold, first(KIND_COLUMNS), context)


def _sample(table: RowTable, limit: int | None, seed: int) -> Container[int]:
    """Choose the indices of rows to use, evenly over all kinds in the bundled set."""
    if limit is None:
        return range(table.total)
    # by a hash of each position, so that a larger sample holds every smaller one
    shuffled = sorted(range(table.total), key=lambda index: seed_for(seed, "questions", str(index)))
    if table.columns is BUNDLED_COLUMNS:
        kinds = [row.fields["kind"] for row in table.rows]
        queues: dict[str, list[int]] = {}
        for index in shuffled:
            queues.setdefault(kinds[index], []).append(index)
        turns = chain.from_iterable(zip_longest(*queues.values()))
        shuffled = [index for index in turns if index is not None]
    return set(shuffled[:limit])


def _questions(table: RowTable, sample: Container[int], lenient: bool) -> Iterator[Question | None]:
    """Convert sampled rows to questions, with None for questions with images.

    The others are checked as well: ids depend on earlier rows, and a malformed row should not surface only
    with another sample.

    Args:
        lenient: ignore a gold answer, kind or context that is not text, because users cannot edit a data
            set of the hub.
    """
    columns = table.columns
    ids = RowIds()
    for index, row in enumerate(table.rows):
        asked = row.get(columns.question)
        if isinstance(asked, dict):
            raise row.error(
                f"the field {excerpt(columns.question)} must be a text, not an object",
                remedy=naming_inner("{questions.question_column} ", columns.question, asked, str),
            )
        text = row.text(columns.question)
        is_lenient = lenient and columns.context == CONTEXT_COLUMN
        context = _text(row, columns.context, True) if is_lenient else context_of(row, columns.context)
        question = Question(
            id=ids.take(row, text, context),
            text=text,
            kind=_text(row, columns.kind, lenient),
            gold=_gold(row, columns.gold, lenient),
            context=context,
            metadata=metadata(row.fields, table.travelling),
        )
        if index in sample:
            yield None if _has_image(row) else question


def _has_image(row: Row) -> bool:
    return any(
        holds_image(value) or (is_image(name) and (any(value) if isinstance(value, list) else bool(value)))
        for name, value in row.fields.items()
        if not tells_of_reasons(name)
    )


def _text(row: Row, column: str, lenient: bool) -> str:
    if not column or (lenient and not isinstance(row.get(column), str)):
        return ""
    return row.optional_text(column)


def _gold(row: Row, column: str, lenient: bool) -> tuple[str, ...]:
    value = gold_value(row.get(column) if column else None, row)
    # the right answer of a question whose answers are JSON, and no object with its spellings
    if isinstance(value, dict) and not lenient and not {"value", *GOLD_LISTS} & {*map(plain_name, value)}:
        return (json.dumps(value, ensure_ascii=False),)
    with suppress(DataError) if lenient else nullcontext():
        return right_texts(value, row, column)
    return ()
