"""Read the rows of parquet and Arrow files within a limit: a repeated text is stored once, so a few hundred
bytes may hold gigabytes of rows."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Iterable
from typing import Any

from selfreflect.errors import DataError, excerpt

MAX_UNFOLDED = 256_000_000
"""Bytes that the rows of any parquet file may have. A larger file may hold more: some times its own size."""

_UNFOLDED_SHARE = 20
# Bytes that are counted for a cell beside its text.
_CELL_SIZE = 32

_BATCH_ROWS = 1000


def parquet_rows(name: str, data: bytes) -> list[dict[str, Any]]:
    """Read the rows of a parquet file.

    Repeated texts are read as a dictionary and counted before they are unfolded, so that memory holds no more
    than the parts of the file as they are stored, and rows up to the limit.

    Raises:
        DataError: two columns have one name, or the rows exceed :data:`MAX_UNFOLDED` and the file's size many
            times.
    """
    import pyarrow.parquet as pq

    metadata = pq.read_metadata(io.BytesIO(data))
    file = pq.ParquetFile(io.BytesIO(data), read_dictionary=_repeating_texts(metadata))
    limit = _limit(data)
    batch_rows = _batch_rows(metadata, limit)
    if not batch_rows:
        raise _too_much(name, data)
    return _rows(name, data, file.schema_arrow, file.iter_batches(batch_size=batch_rows))


def arrow_rows(name: str, data: bytes) -> list[dict[str, Any]]:
    """Read the rows of Arrow streams, one after the other, or of a file with an index.

    Raises:
        DataError: as :func:`parquet_rows`.
    """
    import pyarrow as pa

    source = pa.BufferReader(data)
    if data.startswith(_INDEXED):
        file = pa.ipc.open_file(source)
        return _rows(name, data, file.schema, map(file.get_batch, range(file.num_record_batches)))
    rows: list[dict[str, Any]] = []
    while source.tell() < len(data):
        stream = pa.ipc.open_stream(source)
        rows += _rows(name, data, stream.schema, stream)
    return rows


# The beginning of an Arrow file that has an index of its batches.
_INDEXED = b"ARROW1"


def _rows(name: str, data: bytes, schema: Any, batches: Iterable[Any]) -> list[dict[str, Any]]:
    """Unfold batches as far as the limit allows."""
    for column, count in Counter(schema.names).items():
        if count > 1:
            raise DataError(f"{name} has {count} columns of the name {excerpt(column)}; rename them")
    limit = _limit(data)
    rows: list[dict[str, Any]] = []
    total = 0
    for batch in batches:
        unfolded = sum(map(_unfolded_size, batch.columns))
        if total + unfolded > limit:
            raise _too_much(name, data)
        new_rows = batch.to_pylist()
        total += max(unfolded, _size_of(new_rows))
        if total > limit:
            raise _too_much(name, data)
        rows += new_rows
    return rows


def _limit(data: bytes) -> int:
    return max(MAX_UNFOLDED, _UNFOLDED_SHARE * len(data))


def _too_much(name: str, data: bytes) -> DataError:
    return DataError(
        f"{name} holds more than {_limit(data):,} bytes of rows, which is too much for a file of "
        f"{len(data):,} bytes; save it as JSONL"
    )


def _repeating_texts(metadata: Any) -> list[str]:
    """List the paths of text columns that store each text once."""
    paths: dict[str, None] = {}
    for group in _row_groups(metadata):
        for column in _columns(group):
            is_dictionary = any("DICTIONARY" in encoding for encoding in column.encodings)
            if column.physical_type == "BYTE_ARRAY" and is_dictionary:
                paths[column.path_in_schema] = None
    return list(paths)


def _batch_rows(metadata: Any, limit: int) -> int:
    """Compute how many rows may be read at once; 0 if none."""
    cells = 0
    largest = 1
    for group in _row_groups(metadata):
        columns = _columns(group)
        size = sum(column.total_uncompressed_size for column in columns)
        cells += sum(column.num_values for column in columns)
        if size > limit or cells * _CELL_SIZE > limit:
            return 0
        for index, column in enumerate(columns):
            width = metadata.schema.column(index).length
            if column.physical_type == "FIXED_LEN_BYTE_ARRAY" and column.num_values * width > limit:
                return 0
            if "DELTA_BYTE_ARRAY" in column.encodings:  # each text may repeat most of the one before it
                is_nested = "." in column.path_in_schema
                if is_nested and column.num_values * column.total_uncompressed_size > limit:
                    return 0
                largest = max(largest, column.total_uncompressed_size)
    return max(1, min(_BATCH_ROWS, limit // largest))


def _row_groups(metadata: Any) -> list[Any]:
    return list(map(metadata.row_group, range(metadata.num_row_groups)))


def _columns(group: Any) -> list[Any]:
    return list(map(group.column, range(group.num_columns)))


def _unfolded_size(array: Any) -> int:
    """Bytes of an array whose repeated texts each stand where they belong."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = array.type
    if pa.types.is_dictionary(kind):
        texts = array.dictionary
        if not (pa.types.is_string(texts.type) or pa.types.is_binary(texts.type)):
            return int(array.nbytes)
        lengths = pc.cast(pc.binary_length(texts), pa.int64())
        return int(pc.sum(pc.take(lengths, array.indices)).as_py() or 0)
    if pa.types.is_struct(kind):
        return sum(map(_unfolded_size, array.flatten()))
    if pa.types.is_map(kind):
        return _unfolded_size(array.keys) + _unfolded_size(array.items)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return _unfolded_size(array.flatten())
    return int(array.nbytes)


def _size_of(value: Any) -> int:
    """Bytes of a value's texts, and some for each cell."""
    if isinstance(value, str | bytes):
        return _CELL_SIZE + len(value)
    if isinstance(value, dict):
        value = list(value.values())
    return _CELL_SIZE + (sum(map(_size_of, value)) if isinstance(value, list) else 0)
