"""Read data sets that ``selfreflect dataset`` has made, or rows of the same form, and check them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from selfreflect.errors import DataError, excerpt
from selfreflect.sources.files import PARSERS, Row, parse_rows, read_content
from selfreflect.text import counted

Method = Literal["sft", "dpo", "grpo"]
COLUMNS: Mapping[Method, tuple[str, ...]] = {
    "sft": ("prompt", "completion"),
    "dpo": ("prompt", "chosen", "rejected"),
    "grpo": ("prompt",),
}
"""Conversations in each row. A reward reads further columns itself."""
ROLES = ("system", "user", "assistant")


def read_rows(path: Path, method: Method) -> list[dict[str, Any]]:
    """Read the rows to train on: of a file, or of ``train.jsonl`` in a data set folder.

    Raises:
        DataError: a line is no row of this method, there is none, or a question of them is in another split
            of the folder, too.
    """
    file = path / "train.jsonl" if path.is_dir() else path
    rows = []
    for row in _rows(file):
        for column in COLUMNS[method]:
            if not _is_conversation(row.fields.get(column)):
                raise row.error(
                    f"{column!r} must be a list of messages with role and content, as `selfreflect dataset "
                    f"{method}` writes them"
                )
        rows.append(row.fields)
    if not rows:
        raise DataError(f"{file} has no rows to train on. Its README.md says what was left out, and why.")
    if path.is_dir():
        _check_splits(path, rows)
    return rows


def data_facts(path: Path) -> dict[str, Any]:
    """What a data set folder says of its making, such as the ``judge``; nothing of other files.

    Raises:
        DataError: ``splits.json`` is damaged.
    """
    file = path / "splits.json"
    if not file.is_file():
        return {}
    try:
        facts = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"{file} cannot be read: {excerpt(str(error), 200)}") from None
    return facts if isinstance(facts, dict) else {}


def _check_splits(folder: Path, rows: list[dict[str, Any]]) -> None:
    """Refuse a question that is both in the training rows and in another split."""
    train = {row.get("question_id") for row in rows} - {None}
    for name in ("dev", "test"):
        file = folder / f"{name}.jsonl"
        others = {row.fields.get("question_id") for row in _rows(file)} if file.is_file() else set()
        if duplicates := sorted(map(str, train & others)):
            raise DataError(
                f"{folder}: train.jsonl shares {counted(len(duplicates), 'question')} with {name}.jsonl, for "
                f"example {excerpt(duplicates[0])}. What is measured there would have been learned."
            )


def _rows(file: Path) -> list[Row]:
    """The rows of a file, none of an empty one."""
    if file.is_file() and not file.stat().st_size:
        return []
    return parse_rows(read_content(file, PARSERS))


def _is_conversation(value: Any) -> bool:
    if not isinstance(value, list) or not value:
        return False
    return all(
        isinstance(turn, dict) and turn.get("role") in ROLES and isinstance(turn.get("content"), str)
        for turn in value
    )
