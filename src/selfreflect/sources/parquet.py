"""Reading of parquet and Arrow files within a limit, since repeated texts are stored once."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import IO, Any

from selfreflect.errors import DataError, excerpt

MAX_UNFOLDED = 256_000_000
"""Maximum size in bytes of a file's unfolded rows. A larger file may unfold to a few times its own size."""

_UNFOLDED_SHARE = 20
# Bytes that are counted for a cell beside its text.
_CELL_SIZE = 32

_BATCH_ROWS = 1000


def parquet_rows(name: str, stream: IO[bytes], size: int) -> Iterator[dict[str, Any]]:
    """Read the rows of a parquet file, whose repeated texts are counted before they are unfolded.

    Raises:
        DataError: two columns have one name, or the rows exceed :data:`MAX_UNFOLDED` and the file's size many
            times.
    """
    import pyarrow.parquet as pq

    file = pq.ParquetFile(stream)
    metadata, schema = file.metadata, file.metadata.schema
    # as it is stored without compression, which is less than its rows
    groups = map(metadata.row_group, range(metadata.num_row_groups))
    if sum(group.total_byte_size for group in groups) > _limit(size):
        raise _too_large(name, size)
    columns = map(schema.column, range(len(schema)))
    texts = [column.path for column in columns if column.physical_type == "BYTE_ARRAY"]
    file = pq.ParquetFile(stream, read_dictionary=texts)
    return _rows(name, size, [(file.schema_arrow, file.iter_batches(batch_size=_BATCH_ROWS))])


def arrow_rows(name: str, stream: IO[bytes], size: int) -> Iterator[dict[str, Any]]:
    """Read the rows of Arrow streams, one after the other, or of a file with an index.

    Raises:
        DataError: as :func:`parquet_rows`.
    """
    import pyarrow as pa

    data = stream.read()
    source = pa.BufferReader(data)
    if data.startswith(_INDEXED):
        file = pa.ipc.open_file(source)
        return _rows(name, size, [(file.schema, map(file.get_batch, range(file.num_record_batches)))])
    return _rows(name, size, _streams(source))


def _streams(source: Any) -> Iterator[tuple[Any, Iterable[Any]]]:
    import pyarrow as pa

    while source.tell() < source.size():
        stream = pa.ipc.open_stream(source)
        yield stream.schema, stream


# The beginning of an Arrow file that has an index of its batches.
_INDEXED = b"ARROW1"


def _rows(name: str, size: int, streams: Iterable[tuple[Any, Iterable[Any]]]) -> Iterator[dict[str, Any]]:
    """Unfold the batches of all streams within the limit."""
    total = 0
    for schema, batches in streams:
        for column, count in Counter(schema.names).items():
            if count > 1:
                raise DataError(f"{name} has {count} columns with the name {excerpt(column)}; rename them")
        # most schemas have no such type, and spare a pass over every value
        has_others = bool(_OTHERS.search(str(schema)))
        for batch in batches:
            total += sum(map(_unfolded_size, batch.columns))
            if total > _limit(size):
                raise _too_large(name, size)
            yield from map(_readable, batch.to_pylist()) if has_others else batch.to_pylist()


# Types that JSON lacks.
_OTHERS = re.compile(r"(?:\b|_)(?:decimal|date|time|duration|binary)")


def _readable(value: Any) -> Any:
    """Convert values that JSON lacks to text: decimals, dates, times and UTF-8 bytes."""
    if isinstance(value, dict):
        return {name: _readable(entry) for name, entry in value.items()}
    if isinstance(value, list):
        return list(map(_readable, value))
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return value
    if isinstance(value, datetime | date):
        return value.isoformat()
    return str(value) if isinstance(value, Decimal | time | timedelta) else value


def _limit(size: int) -> int:
    return max(MAX_UNFOLDED, _UNFOLDED_SHARE * size)


def _too_large(name: str, size: int) -> DataError:
    return DataError(
        f"{name} holds more than {_limit(size):,} bytes of rows, which is too much for a file of "
        f"{size:,} bytes; save it as JSONL"
    )


def _unfolded_size(array: Any) -> int:
    """Compute an array's bytes with repeated texts unfolded and an overhead per cell."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = array.type
    cells = _CELL_SIZE * len(array)
    if pa.types.is_dictionary(kind):
        texts = array.dictionary
        if not (pa.types.is_string(texts.type) or pa.types.is_binary(texts.type)):
            return cells + int(array.nbytes)
        lengths = pc.cast(pc.binary_length(texts), pa.int64())
        return cells + int(pc.sum(pc.take(lengths, array.indices)).as_py() or 0)
    if pa.types.is_struct(kind):
        return cells + sum(map(_unfolded_size, array.flatten()))
    if pa.types.is_map(kind):
        return cells + _unfolded_size(array.keys) + _unfolded_size(array.items)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return cells + _unfolded_size(array.flatten())
    return cells + int(array.nbytes)
