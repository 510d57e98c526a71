"""Data set folders: rows split by question, as JSON lines, parquet and Arrow, with a card."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from importlib import resources
from typing import Any, Literal, TypeAlias

from jinja2 import Environment, StrictUndefined, Template
from msgspec.structs import asdict

from selfreflect.errors import ConfigError, excerpt
from selfreflect.grouping import normal_form
from selfreflect.records import Question, dump_line
from selfreflect.report.export import encodable, require_pyarrow, table_files
from selfreflect.text import counted, markdown_text
from selfreflect.train.rows import KINDS_OF, Kind, Row, RowOptions, TrainingRows

Split: TypeAlias = Literal["train", "dev", "test"]
SPLITS: tuple[Split, ...] = ("train", "dev", "test")
Percentages: TypeAlias = tuple[int, int, int]
SPLIT_70_10_20: Percentages = (70, 10, 20)


def parse_percentages(text: str) -> Percentages:
    """Parse the percentages of train, dev and test, such as ``70,10,20``.

    Raises:
        ConfigError: these are not three whole numbers that sum to 100.
    """
    parts = list(map(str.strip, text.split(",")))
    if len(parts) == 3 and all(part.isascii() and part.isdigit() and len(part) < 4 for part in parts):
        train, dev, test = map(int, parts)
        if train + dev + test == 100:
            return train, dev, test
    raise ConfigError(
        f"parts must be three percentages (train, dev, test) that sum to 100, not {excerpt(text)}",
        remedy="Give {parts} 70,10,20, for example.",
    )


def split_of(text: str, percentages: Percentages = SPLIT_70_10_20) -> Split:
    """Choose a question's split by its text alone.

    Texts that are equal but for spelling are in one part, whatever their contexts, so that nothing about a
    test question can be learned from the others. Of few questions the shares differ from ``percentages``.
    """
    percentile = place_of(text)
    train, dev, _ = percentages
    if percentile < train:
        return "train"
    return "dev" if percentile < train + dev else "test"


def place_of(text: str) -> float:
    """Hash a question's text to an evenly distributed number from 0 to 100, equal for all spellings."""
    digest = hashlib.sha256(normal_form(text).encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(digest[:8], "big") % 10_000 / 100


def split_questions(
    questions: Iterable[Question], percentages: Percentages = SPLIT_70_10_20
) -> dict[Split, list[str]]:
    """List the question ids of each split, in the order of the questions."""
    parts: dict[Split, list[str]] = {name: [] for name in SPLITS}
    for question in questions:
        parts[split_of(question.text, percentages)].append(question.id)
    return parts


def training_files(
    kind: Kind,
    result: TrainingRows,
    questions: Sequence[Question],
    options: RowOptions,
    origin: Mapping[str, str],
    percentages: Percentages,
) -> dict[str, bytes]:
    """Make the files of a data set folder, by relative path. A split without rows has no parquet file.

    Args:
        origin: where the rows come from, by name.

    Raises:
        MissingExtraError: pyarrow is not installed.
    """
    require_pyarrow()
    parts = split_questions(questions, percentages)
    split_by_id = {id_: name for name, ids in parts.items() for id_ in ids}
    by_split: dict[Split, list[Row]] = {name: [] for name in SPLITS}
    for row in result.rows:
        by_split[split_by_id[row["question_id"]]].append(encodable(row))
    # a table has its types from its first row, so a split without rows has none
    tables = {name: _table(rows) for name, rows in by_split.items() if rows}
    facts = _facts(kind, options, origin)
    record = {"kind": kind, "percentages": list(percentages), **facts, "splits": parts}
    card = _card().render(
        kind=kind,
        tables=tables,
        by_split=by_split,
        facts=facts,
        notes=result.notes,
        dropped=result.dropped,
        dropped_texts=result.dropped_texts,
    )
    files = {"README.md": encodable(card).encode(), "splits.json": (dump_line(record) + "\n").encode()}
    for name, rows in by_split.items():
        files[f"{name}.jsonl"] = "".join(dump_line(row) + "\n" for row in rows).encode()
    return files | table_files(tables)


def _card() -> Template:
    """Load the template of a data set's card."""
    environment = Environment(
        undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True
    )
    environment.filters |= {"plain": markdown_text, "counted": counted}
    text = (resources.files("selfreflect") / "data" / "training_card.md").read_text(encoding="utf-8")
    return environment.from_string(text)


def _facts(kind: Kind, options: RowOptions, origin: Mapping[str, str]) -> dict[str, Any]:
    """List the settings behind rows of one kind."""
    facts = {name: value for name, value in asdict(options).items() if kind in KINDS_OF.get(name, ())}
    if options.select != "random":  # nothing is drawn, so a seed decides nothing
        facts.pop("seed", None)
    return {name: encodable(value) for name, value in {**origin, **facts}.items() if value is not None}


def _table(rows: Sequence[Row]) -> Any:
    """Make an Arrow table, with typed list columns even if all are empty."""
    import pyarrow as pa

    turn = pa.struct({"role": pa.string(), "content": pa.string()})
    types = {
        **dict.fromkeys(("prompt", "completion", "chosen", "rejected"), pa.list_(turn)),
        **dict.fromkeys(("answers", "masked_answers", "gold"), pa.list_(pa.string())),
        **dict.fromkeys(("value", "chosen_value", "rejected_value", "margin", "margin_stderr"), pa.float64()),
        "words": pa.int64(),
    }
    fields = [(name, types.get(name, pa.string())) for name in rows[0]]
    return pa.Table.from_pylist(list(rows), schema=pa.schema(fields))
