"""Files of answers as rows: JSON, JSONL, CSV, parquet, and logs of evaluations."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from selfreflect.sources.files import PARSERS, Row, parse_rows, read_content
from selfreflect.sources.logs import read_log

SUFFIXES = tuple(suffix for suffix in (*PARSERS, ".eval") if suffix != ".txt")


class RowFile(NamedTuple):
    """The rows of a file, before their columns are understood."""

    name: str
    """The file, as messages name it."""
    layout: str
    """Its format in words."""
    rows: list[Row]
    notes: tuple[str, ...]
    """What a user should know, one sentence each."""
    cells: bool
    """Whether every value is text, as in CSV, so that a list stands in a cell."""
    is_log: bool


def read_row_file(source: str | Path, progress: Callable[[float], None] | None = None) -> RowFile:
    """Read a file, or standard input for ``"-"``.

    Args:
        progress: called now and then with the share of the rows that is read.

    Raises:
        DataError: the source cannot be read, or is not what its suffix says.
        MissingExtraError: parquet or a compressed log without pyarrow.
    """
    content = read_content(source, SUFFIXES)
    if content.suffix == ".txt":
        content = content._replace(suffix=".csv")  # from standard input, where CSV has no mark
    log = read_log(content)
    if log is not None:
        return RowFile(content.name, log.layout, log.rows, tuple(log.notes), cells=False, is_log=True)
    rows = parse_rows(content, progress)
    layout = content.suffix.removeprefix(".").upper()
    return RowFile(content.name, layout, rows, (), cells=content.suffix in (".csv", ".tsv"), is_log=False)
