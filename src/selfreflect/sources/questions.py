"""Where questions come from: the bundled set, the user's files, standard input, and the Hugging Face hub."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Sequence
from functools import partial
from importlib import resources
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any, BinaryIO

from msgspec.structs import replace

from selfreflect.errors import ConfigError, DataError, excerpt, nearest
from selfreflect.models.base import seed_for
from selfreflect.records import Question, Record
from selfreflect.sources.files import (
    PARSERS,
    Content,
    Row,
    RowIds,
    listed,
    parse_rows,
    read_content,
    type_name,
)
from selfreflect.sources.hub import HUB_SETS, HubLoader, HubSet, find_hub_set, load_hub, revision_of
from selfreflect.sources.shards import part_of

QUESTION_COLUMNS = ("question", "problem", "prompt", "query", "text")
GOLD_COLUMNS = ("answer", "answers", "gold")
KIND_COLUMNS = ("kind", "category", "subject")


class QuestionSet(Record, frozen=True, kw_only=True):
    """Questions, and all that is needed to get the same ones again. Fields that the source has no use for are
    empty."""

    questions: tuple[Question, ...]
    """In the order of the source."""
    source: str
    """As the user wrote it."""
    total: int
    """How many questions the source has; ``questions`` are a sample of them where ``limit`` is smaller."""
    part: str = ""
    """Which part of them it is, such as ``"3/16"``."""
    limit: int | None
    seed: int
    question_column: str
    sha256: str = ""
    """Of the content of a file, of standard input, or of the bundled set."""
    dataset: str = ""
    subset: str = ""
    split: str = ""
    revision: str = ""
    """Commit of the data set on the hub, where known."""


class QuestionRequest(Record, frozen=True, kw_only=True):
    """The arguments of :func:`load_questions`, as the loaders take them."""

    source: str
    limit: int | None
    seed: int
    split: str | None
    subset: str | None
    question_column: str | None
    stdin: BinaryIO | None
    hub: HubLoader


class Columns(Record, frozen=True, kw_only=True):
    """Which column holds what; empty where there is none. The id is always in ``id``."""

    question: str
    gold: str = ""
    kind: str = ""
    lenient: bool = False
    """Ignore a gold answer or kind that is not text: nobody can edit a data set of the hub."""


def load_questions(
    source: str,
    *,
    limit: int | None = None,
    seed: int = 0,
    split: str | None = None,
    subset: str | None = None,
    question_column: str | None = None,
    part: str | None = None,
    stdin: BinaryIO | None = None,
    hub: HubLoader = load_hub,
) -> QuestionSet:
    """Questions of a name in :data:`SOURCES`, of a hub data set (``hf:NAME``), of a file, or of standard
    input (``-``).

    ``limit`` draws so many without replacement: which ones depends on ``seed`` and on the positions in the
    source alone, and a smaller limit draws a subset of a larger one's. From the bundled set it draws equally
    from all kinds. ``question_column`` may name a field inside an object column, as in ``"question.text"``.
    ``part``, such as ``"3/16"``, takes every sixteenth question of those, from the third one on: parts 1/16
    to 16/16 are disjoint, equally large up to one question, and together the whole.

    Raises:
        DataError: the source is unknown, cannot be read, a record in it is malformed, or the part is empty.
        ConfigError: ``limit`` is below 1, ``part`` is not written like that, or an option does not apply to
            this source.
        MissingExtraError: the source needs an optional package.
    """
    if limit is not None and limit < 1:
        raise ConfigError(f"limit must be at least 1, not {limit}")
    wanted = QuestionRequest(
        source=source,
        limit=limit,
        seed=seed,
        split=split,
        subset=subset,
        question_column=question_column,
        stdin=stdin,
        hub=hub,
    )
    cut = None if part is None else part_of(part)
    found = _loader(source)(wanted)
    if cut is None:
        return found
    taken = tuple(cut.taken(found.questions))
    if not taken:
        raise DataError(
            f"part {cut} of {len(found.questions)} questions is empty. Use no more parts than there are questions."
        )
    return replace(found, questions=taken, part=str(cut))


def _loader(source: str) -> Callable[[QuestionRequest], QuestionSet]:
    if source in SOURCES:
        return SOURCES[source]
    if hub_set := find_hub_set(source):
        return partial(_from_hub, hub_set)
    if source == "-" or Path(source).suffix.lower() in PARSERS or _exists(source):
        return _from_file
    names = [*SOURCES, *(hub_set.name for hub_set in HUB_SETS.values())]
    raise DataError(
        f"{excerpt(source)} is neither a known source nor an existing file.{nearest(source, names)} "
        f"Known sources are {', '.join(SOURCES)}, hf:NAME for any data set of the hub, - for standard input, "
        f"or the path of a file ({', '.join(PARSERS)})."
    )


def _exists(source: str) -> bool:
    try:
        return Path(source).exists()
    except OSError:  # there is something, but it may not be looked at: reading it says why
        return True


def _from_bundled(wanted: QuestionRequest) -> QuestionSet:
    _refuse(wanted, "the bundled questions", "split", "subset", "question_column")
    data = (resources.files("selfreflect") / "data" / "questions.jsonl").read_bytes()
    content = Content(name="the bundled questions", suffix=".jsonl", data=data)
    everything = _questions(parse_rows(content), Columns(question="text", gold="gold", kind="kind"))
    order = _in_turn([question.kind for question in everything], wanted.seed)
    chosen = tuple(everything[index] for index in sorted(order[: wanted.limit]))
    return _question_set(wanted, chosen, len(everything), "text", sha256=content.sha256)


def _from_file(wanted: QuestionRequest) -> QuestionSet:
    _refuse(wanted, "a file", "split", "subset")
    content = read_content(wanted.source, wanted.stdin)
    rows = parse_rows(content)
    columns = _guess(
        content.name,
        list(dict.fromkeys(chain.from_iterable(row.fields for row in rows))),
        wanted.question_column,
    )
    questions = _questions(rows, columns, _sample(len(rows), wanted))
    return _question_set(wanted, questions, len(rows), columns.question, sha256=content.sha256)


def _from_hub(hub_set: HubSet, wanted: QuestionRequest) -> QuestionSet:
    name = excerpt(hub_set.name, 200)
    subset = wanted.subset or hub_set.subset
    dataset = wanted.hub(hub_set.name, subset, wanted.split or hub_set.split)
    if not len(dataset):
        raise DataError(f"{name} holds no records")
    preset = hub_set if hub_set.question and not wanted.question_column else None
    columns = _guess(
        name, dataset.column_names, preset.question if preset else wanted.question_column, lenient=True
    )
    if preset:
        columns = Columns(question=preset.question, gold=preset.gold, kind=preset.kind, lenient=True)
    questions = _questions(_hub_rows(name, dataset, columns, preset), columns, _sample(len(dataset), wanted))
    return _question_set(
        wanted,
        questions,
        len(dataset),
        columns.question,
        dataset=hub_set.name,
        subset=subset or "",
        split=str(dataset.split or ""),
        revision=revision_of(dataset),
    )


def _hub_rows(name: str, dataset: Any, columns: Columns, preset: HubSet | None) -> Iterable[Row]:
    """Rows with the needed columns only: one row of Natural Questions holds a whole web page."""
    needed = {
        columns.question.partition(".")[0],
        columns.question,
        columns.gold,
        columns.kind,
        "id",
        *(preset.reads if preset else ()),
    }
    narrow = dataset.select_columns([column for column in dataset.column_names if column in needed])
    rows = (Row(name, f"record {number}", fields) for number, fields in enumerate(narrow, 1))
    return map(preset.rewrite, rows) if preset and preset.rewrite else rows


SOURCES: dict[str, Callable[[QuestionRequest], QuestionSet]] = {
    "bundled": _from_bundled,
    **{name: partial(_from_hub, hub_set) for name, hub_set in HUB_SETS.items()},
}


def _refuse(wanted: QuestionRequest, what: str, *options: str) -> None:
    for option in options:
        if getattr(wanted, option) is not None:
            raise ConfigError(f"{option} does not apply to {what}; leave it out")


def _question_set(
    wanted: QuestionRequest, questions: tuple[Question, ...], total: int, question_column: str, **origin: str
) -> QuestionSet:
    return QuestionSet(
        questions=questions,
        source=wanted.source,
        total=total,
        limit=wanted.limit,
        seed=wanted.seed,
        question_column=question_column,
        **origin,
    )


def _guess(
    name: str, available: Sequence[str], question_column: str | None, lenient: bool = False
) -> Columns:
    """Columns by their names; an explicit question column must exist."""
    listing = listed(available)
    if question_column and not {question_column, question_column.partition(".")[0]} & set(available):
        raise DataError(
            f"{name} has no column {excerpt(question_column)}.{nearest(question_column, list(available))} Its columns are {listing}."
        )
    question = question_column or _first(QUESTION_COLUMNS, available)
    if not question:
        raise DataError(
            f"{name}: no column is called {', '.join(QUESTION_COLUMNS)}; its columns are {listing} (the first line of a CSV file). "
            "Say which one holds the questions with question_column."
        )
    return Columns(
        question=question,
        gold=_first(GOLD_COLUMNS, available),
        kind=_first(KIND_COLUMNS, available),
        lenient=lenient,
    )


def _first(names: Iterable[str], available: Sequence[str]) -> str:
    return next((name for name in names if name in available), "")


def _questions(
    rows: Iterable[Row], columns: Columns, chosen: Container[int] | None = None
) -> tuple[Question, ...]:
    """Questions of the chosen rows. All rows are read: ids depend on the texts before, and a malformed row
    should not surface later."""
    ids = RowIds()
    everything = ((index, _question(row, columns, ids)) for index, row in enumerate(rows))
    return tuple(question for index, question in everything if chosen is None or index in chosen)


def _question(row: Row, columns: Columns, ids: RowIds) -> Question:
    text = row.text(columns.question)
    return Question(id=ids.take(row, text), text=text, kind=_kind(row, columns), gold=_gold(row, columns))


def _kind(row: Row, columns: Columns) -> str:
    value = row.get(columns.kind) if columns.kind else None
    if value is None or isinstance(value, str):
        return value or ""
    if columns.lenient:
        return ""
    raise row.error(f"the field {excerpt(columns.kind)} must be a text, not {type_name(value)}")


def _gold(row: Row, columns: Columns) -> tuple[str, ...]:
    value = row.get(columns.gold) if columns.gold else None
    texts = [text for text in _gold_values(value) if text not in (None, "")]
    if all(isinstance(text, str) for text in texts):
        return tuple(texts)
    if columns.lenient:
        return ()
    raise row.error(
        f"the field {excerpt(columns.gold)} must be a text or a list of texts, not {_shape(value)}"
    )


def _gold_values(value: Any) -> list[Any]:
    """A single answer, a list of them, or TriviaQA's object, whose ``"<unk>"`` stands for an answer that is
    withheld."""
    if isinstance(value, dict) and "value" in value:
        first, aliases = value["value"], value.get("aliases") or []
        others = aliases if isinstance(aliases, list) else [aliases]
        return [text for text in (first, *(alias for alias in others if alias != first)) if text != "<unk>"]
    return value if isinstance(value, list) else [value]


def _shape(value: Any) -> str:
    odd = (
        next((entry for entry in value if not isinstance(entry, str)), None)
        if isinstance(value, list)
        else None
    )
    return type_name(value) if odd is None else f"a list with {type_name(odd)} in it"


def _sample(total: int, wanted: QuestionRequest) -> set[int] | None:
    return None if wanted.limit is None else set(_shuffled(total, wanted.seed)[: wanted.limit])


def _shuffled(total: int, seed: int) -> list[int]:
    """All indices in an order that depends on nothing but the seed: the first so many of them are the
    sample."""
    return sorted(range(total), key=lambda index: seed_for(seed, "questions", str(index)))


def _in_turn(kinds: Sequence[str], seed: int) -> list[int]:
    """All indices, shuffled, with the kinds taking turns."""
    queues: dict[str, list[int]] = {}
    for index in _shuffled(len(kinds), seed):
        queues.setdefault(kinds[index], []).append(index)
    return [index for turn in zip_longest(*queues.values()) for index in turn if index is not None]
