"""Read the rows of a parquet file within a limit: a repeated text is stored once, so a few hundred bytes may
hold gigabytes of rows."""

from __future__ import annotations

from collections import Counter
from typing import Any

from selfreflect.errors import DataError, excerpt

MAX_UNFOLDED = 256_000_000
"""Bytes that the rows of any parquet file may have. A larger file may hold more: some times its own size."""

_UNFOLDED_SHARE = 20
_CELL_SIZE = 32
"""Bytes that are counted for a cell beside its text."""

_BATCH_ROWS = 1000
_BATCH_SIZE = 1_000_000_000
"""Bytes of the largest batch that may be read before its size is known."""


def parquet_rows(name: str, size: int, file: Any) -> list[dict[str, Any]]:
    """Read the rows of an open ``pyarrow.parquet.ParquetFile`` of ``size`` bytes.

    Raises:
        DataError: two columns have one name, or the rows exceed :data:`MAX_UNFOLDED` and the file's size many
            times.
    """
    for column, count in Counter(file.schema_arrow.names).items():
        if count > 1:
            raise DataError(f"{name} has {count} columns of the name {excerpt(column)}; rename them")
    limit = max(MAX_UNFOLDED, _UNFOLDED_SHARE * size)
    error = DataError(
        f"{name} holds more than {limit:,} bytes of rows, which is too much for a file of {size:,} bytes; "
        "save it as JSONL"
    )
    largest, cells = _facts(file.metadata)
    if max(largest, cells * _CELL_SIZE) > limit:
        raise error
    rows: list[dict[str, Any]] = []
    total = 0
    for batch in file.iter_batches(batch_size=max(1, min(_BATCH_ROWS, _BATCH_SIZE // largest))):
        more = batch.to_pylist() if batch.nbytes <= limit else []
        total += max(batch.nbytes, _size_of(more))
        if total > limit:
            raise error
        rows += more
    return rows


def _facts(metadata: Any) -> tuple[int, int]:
    """Bytes of the largest part of a column, which no text in it exceeds, and the number of cells."""
    largest = 1
    cells = 0
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        for index in range(group.num_columns):
            column = group.column(index)
            largest = max(largest, column.total_uncompressed_size)
            cells += column.num_values
    return largest, cells


def _size_of(value: Any) -> int:
    """Bytes of a value's texts, and some for each cell."""
    if isinstance(value, str | bytes):
        return _CELL_SIZE + len(value)
    if isinstance(value, dict):
        value = list(value.values())
    return _CELL_SIZE + (sum(map(_size_of, value)) if isinstance(value, list) else 0)
