"""Read data sets that ``selfreflect dataset`` has made, or rows of the same form, and check them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

from selfreflect.errors import DataError, excerpt
from selfreflect.text import counted

Method = Literal["sft", "dpo", "grpo"]
COLUMNS: Mapping[Method, tuple[str, ...]] = {
    "sft": ("prompt", "completion"),
    "dpo": ("prompt", "chosen", "rejected"),
    "grpo": ("prompt",),
}
"""Conversations in each row. A reward reads further columns itself."""
ROLES = ("system", "user", "assistant")
MOST_BYTES = 1 << 30


def read_rows(path: Path, method: Method) -> list[dict[str, Any]]:
    """Read the rows to train on: of a JSONL file, or ``train.jsonl`` in a data set folder.

    Raises:
        DataError: a line is no row of this method, there is none, or a question of them is in another split
            of the folder, too.
    """
    file = path / "train.jsonl" if path.is_dir() else path
    rows = []
    for place, row in _lines(file):
        for column in COLUMNS[method]:
            if not _is_conversation(row.get(column)):
                raise DataError(
                    f"{place}: {column!r} must be a list of messages with role and content, as `selfreflect "
                    f"dataset {method}` writes them"
                )
        rows.append(row)
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
        others = {row.get("question_id") for _, row in _lines(file)} if file.is_file() else set()
        if duplicates := sorted(map(str, train & others)):
            raise DataError(
                f"{folder}: train.jsonl shares {counted(len(duplicates), 'question')} with {name}.jsonl, for "
                f"example {excerpt(duplicates[0])}. What is measured there would have been learned."
            )


def _lines(file: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each row of a file, and where it stands."""
    try:
        if file.stat().st_size > MOST_BYTES:
            raise DataError(f"{file} has more than {MOST_BYTES >> 20} MiB")
        with file.open(encoding="utf-8") as lines:
            for number, line in enumerate(lines, start=1):
                if line.strip():
                    yield f"{file}, line {number}", _row(line, f"{file}, line {number}")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{file} cannot be read: {error}") from None


def _row(line: str, place: str) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{place}: not JSON: {excerpt(str(error), 100)}") from None
    if not isinstance(row, dict):
        raise DataError(f"{place}: a row must be an object with columns, not {excerpt(line.strip())}")
    return row


def _is_conversation(value: Any) -> bool:
    if not isinstance(value, list) or not value:
        return False
    return all(
        isinstance(turn, dict) and turn.get("role") in ROLES and isinstance(turn.get("content"), str)
        for turn in value
    )
