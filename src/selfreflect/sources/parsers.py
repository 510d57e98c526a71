"""Rows of a source in any format."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Any

from selfreflect.errors import DataError, MissingExtraError, excerpt
from selfreflect.sources.cells import type_name
from selfreflect.sources.files import Content, decode, first_sign, json_value, parse_json, text_lines
from selfreflect.sources.rows import ROWS_BETWEEN_PROGRESS, Row


def parse_rows(content: Content, progress: Callable[[float], None] | None = None) -> list[Row]:
    """Parse content into at least one row.

    Args:
        progress: called now and then with the share of the lines that is read.

    Raises:
        DataError: there are no records, or the content is not what its suffix says.
        MissingExtraError: parquet without pyarrow.
    """
    rows = list(each_row(content, progress))
    if not rows:
        raise DataError(f"{content.name} contains no records")
    return rows


KNOWN = 4096
"""Maximum number of small values cached so that equal values share memory."""
# Of texts that are.
_KNOWN_CHARACTERS = 1_000_000


def each_row(content: Content, progress: Callable[[float], None] | None = None) -> Iterator[Row]:
    """Parse content row by row, possibly none; see :func:`parse_rows`."""
    parse = PARSERS.get(content.suffix)
    if parse is None:
        raise DataError(f"{content.name} is in a format that cannot be used here ({content.suffix})")
    if content.remark:
        content.note(content.remark)
    lines = 1
    if progress:
        with content.stream() as stream:
            lines += sum(1 for _ in stream)
    known: dict[str, str] = {}
    characters = 0
    for number, row in enumerate(parse(content), 1):
        if characters > _KNOWN_CHARACTERS:
            known.clear()
            characters = 0
        for name, value in row.fields.items():
            if isinstance(value, str):  # a question that many rows repeat is in memory once
                text = row.fields[name] = known.setdefault(value, value)
                characters += len(text) if text is value else 0
        yield row
        if progress and number % ROWS_BETWEEN_PROGRESS == 0:
            progress(min(1.0, number / lines))


def _json_rows(content: Content) -> Iterable[Row]:
    try:
        values = json_value(content)
    except DataError:
        if first_sign(content.data) != b"{":
            raise
        # one object after the other, each on a line or on several
        values = parse_json(decode(content), content.name, allows_nan=content.allows_nan, several=True)
    if isinstance(values, dict):
        values = [values]
    if not isinstance(values, list):
        raise DataError(
            f"{content.name} contains {type_name(values)}; expected an object, or a list of objects or texts"
        )
    return [_row(content.name, f"record {number}", value) for number, value in enumerate(values, 1)]


# The beginning of JSON on several lines.
_ON_LINES = re.compile(rb"(?:\xef\xbb\xbf)?\s*+(?:\[|\{\s*\n)")


def _jsonl_rows(content: Content) -> Iterator[Row]:
    if _ON_LINES.match(content.data):
        yield from _json_rows(content)
        return
    for where, line in text_lines(content):
        label = f"{content.name}, {where}"
        value = parse_json(line, label, one_line=True, allows_nan=content.allows_nan)
        yield _row(content.name, where, value)


def _txt_rows(content: Content) -> list[Row]:
    return [_row(content.name, where, line) for where, line in text_lines(content)]


def _table_rows(content: Content) -> Iterable[Row]:
    # JSON, the commonest format, needs none of it
    from selfreflect.sources.tables import csv_rows, xlsx_rows

    return xlsx_rows(content) if content.suffix == ".xlsx" else csv_rows(content)


def _arrow_rows(content: Content) -> Iterator[Row]:
    try:
        import pyarrow as pa
    except ImportError:
        raise MissingExtraError(f"reading {content.suffix[1:]} files", "parquet") from None
    from selfreflect.sources import parquet

    read = parquet.parquet_rows if content.suffix == ".parquet" else parquet.arrow_rows
    try:
        with content.stream() as stream:
            for number, value in enumerate(read(content.name, stream, content.size), 1):
                yield _row(content.name, f"record {number}", value)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise DataError(
            f"{content.name} is not a readable {content.suffix[1:]} file: {excerpt(str(error), 200)}"
        ) from None


PARSERS: dict[str, Callable[[Content], Iterable[Row]]] = {
    ".json": _json_rows,
    ".jsonl": _jsonl_rows,
    ".csv": _table_rows,
    ".tsv": _table_rows,
    ".parquet": _arrow_rows,
    ".arrow": _arrow_rows,
    ".xlsx": _table_rows,
    ".txt": _txt_rows,
}


def _row(name: str, where: str, value: Any) -> Row:
    if isinstance(value, str):
        return Row(name, where, {"question": value})
    if not isinstance(value, dict):
        raise DataError(
            f"{name}, {where}: expected an object or a text, not {type_name(value)}",
            remedy="Save a data frame with frame.to_json(FILE, orient='records').",
        )
    return Row(name, where, value)


def field_names(rows: Iterable[Row]) -> list[str]:
    """List the names of all fields in rows, in order."""
    return list(dict.fromkeys(chain.from_iterable(row.fields for row in rows)))
