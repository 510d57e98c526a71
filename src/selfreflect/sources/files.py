"""Reads the user's files: bytes to rows, each of which knows where it stands, so that every message can say
so."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import sys
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from selfreflect.errors import DataError, MissingExtraError, excerpt
from selfreflect.records import Record, question_id


class Row(NamedTuple):
    """One record of a file. ``fields`` is parsed but not yet checked; a plain text has the single field
    ``question``."""

    source: str
    """How messages call the file."""
    where: str
    """``"record 3"`` or ``"line 7"``, counted from 1."""
    fields: dict[str, Any]

    def error(self, problem: str) -> DataError:
        return DataError(f"{self.source}, {self.where}: {problem}")

    def get(self, name: str) -> Any:
        """The value of a field, or of ``inner`` in the object ``outer`` for the name ``"outer.inner"``; None
        where there is none."""
        outer, _, inner = name.partition(".")
        value = self.fields.get(outer)
        if name in self.fields or not inner:
            return self.fields.get(name)
        return value.get(inner) if isinstance(value, dict) else None

    def text(self, name: str) -> str:
        """A field that must hold text.

        Raises:
            DataError: it is missing, blank, or something else.
        """
        value = self.get(name)
        if value is None:
            raise self.error(f"the field {excerpt(name)} is missing or null")
        if not isinstance(value, str):
            raise self.error(f"the field {excerpt(name)} must be a text, not {type_name(value)}")
        if not value.strip():
            raise self.error(f"the field {excerpt(name)} is blank")
        return value


class RowIds:
    """Hands out one id per row, so that no record can silently take the place of another."""

    def __init__(self) -> None:
        self._owners: dict[str, str] = {}
        self._uses: Counter[str] = Counter()

    def take(self, row: Row, text: str) -> str:
        """The row's own ``id``, or else one made from ``text``, with ``-2``, ``-3``, … where that text occurs
        again.

        Raises:
            DataError: the row's id is neither text nor an integer, or another row has it.
        """
        name = _own_id(row) or self._made_id(text)
        if name in self._owners:
            raise row.error(
                f"the id {excerpt(name)} is already taken by {self._owners[name]}; every record needs its own"
            )
        self._owners[name] = row.where
        return name

    def _made_id(self, text: str) -> str:
        base = question_id(text)
        while True:
            self._uses[base] += 1
            name = base if self._uses[base] == 1 else f"{base}-{self._uses[base]}"
            if name not in self._owners:
                return name


def _own_id(row: Row) -> str | None:
    value = row.fields.get("id")
    if value is None or (isinstance(value, str) and not value.strip()):
        return None
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise row.error(f"the field 'id' must be a text or an integer, not {type_name(value)}")
    return str(value)


class Content(Record, frozen=True, kw_only=True):
    """The bytes of one source."""

    name: str
    """How messages call it: quoted, safe to print."""
    suffix: str
    """Decides the parser, for example ``".jsonl"``."""
    data: bytes

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.data).hexdigest()


def read_rows(source: str | Path) -> list[Row]:
    """The records of a .json, .jsonl, .csv, .parquet or .txt file, or of standard input for ``"-"``.

    Raises:
        DataError: the source cannot be read, is empty, or is not what its suffix says.
        MissingExtraError: parquet without pyarrow.
    """
    return parse_rows(read_content(source))


def read_content(source: str | Path, stdin: BinaryIO | None = None) -> Content:
    """The bytes of a file, or of ``stdin`` (the process's own unless given) for ``"-"``; raises as
    :func:`read_rows` does."""
    if str(source) == "-":
        data = (stdin or sys.stdin.buffer).read()
        content = Content(name="standard input", suffix=_sniff(data), data=data)
    else:
        content = _read_file(Path(source))
    if not content.data or content.data.isspace():
        raise DataError(f"{content.name} is empty")
    return content


def _read_file(path: Path) -> Content:
    name, suffix = excerpt(str(path), 200), path.suffix.lower()
    try:
        with path.open("rb") as stream:
            if suffix not in PARSERS:
                raise DataError(
                    f"{name} has the unknown suffix {excerpt(path.suffix)}; known are {', '.join(PARSERS)}"
                )
            return Content(name=name, suffix=suffix, data=stream.read())
    except FileNotFoundError:
        raise DataError(f"{name}: there is no such file") from None
    except IsADirectoryError:
        raise DataError(f"{name} is a directory; name one file in it") from None
    except OSError as error:
        raise DataError(f"{name} cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise DataError(f"{name} is not a path: {error}") from None


def _sniff(data: bytes) -> str:
    """Piped input has no suffix: ``[`` starts a JSON list, ``{`` starts JSONL, anything else is one question
    per line."""
    start = data.removeprefix(b"\xef\xbb\xbf").lstrip()[:1]
    return {b"[": ".json", b"{": ".jsonl"}.get(start, ".txt")


def parse_rows(content: Content) -> list[Row]:
    """The records in ``content``, at least one; raises as :func:`read_rows` does."""
    rows = PARSERS[content.suffix](content)
    if not rows:
        raise DataError(f"{content.name} holds no records")
    return rows


def _json_rows(content: Content) -> list[Row]:
    value = _parse_json(_decode(content), content.name)
    if not isinstance(value, list):
        raise DataError(
            f"{content.name} holds {type_name(value)}; expected is a list of objects or texts (one object per line makes a .jsonl file)"
        )
    return [_row(content.name, f"record {number}", value) for number, value in enumerate(value, 1)]


def _jsonl_rows(content: Content) -> list[Row]:
    rows = []
    for number, line in _lines(content):
        where = f"line {number}"
        rows.append(_row(content.name, where, _parse_json(line, f"{content.name}, {where}", one_line=True)))
    return rows


def _txt_rows(content: Content) -> list[Row]:
    return [_row(content.name, f"line {number}", line) for number, line in _lines(content)]


def _csv_rows(content: Content) -> list[Row]:
    reader = csv.reader(io.StringIO(_decode(content), newline=""), strict=True)
    header: list[str] = []
    rows, line = [], 1
    try:
        for cells in reader:
            where, line = f"line {line}", reader.line_num + 1
            if not cells:
                continue
            if not header:
                header = _csv_header(content.name, cells)
            elif len(cells) != len(header):
                raise DataError(
                    f"{content.name}, {where}: {len(cells)} cells, but the header has {len(header)} columns"
                )
            else:
                rows.append(Row(content.name, where, dict(zip(header, cells, strict=True))))
    except csv.Error as error:
        raise DataError(f"{content.name}, line {line}: not CSV: {error}") from None
    return rows


def _csv_header(name: str, cells: list[str]) -> list[str]:
    if not all(cell.strip() for cell in cells) or len(set(cells)) < len(cells):
        raise DataError(
            f"{name}: the first line must be a header that gives every column its own name; it is {excerpt(cells)}"
        )
    return cells


def _parquet_rows(content: Content) -> list[Row]:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise MissingExtraError("reading parquet files", "parquet") from None
    rows: list[Row] = []
    try:
        for batch in pq.ParquetFile(io.BytesIO(content.data)).iter_batches():
            rows.extend(
                Row(content.name, f"record {number}", fields)
                for number, fields in enumerate(batch.to_pylist(), len(rows) + 1)
            )
    except (pa.ArrowException, OSError, ValueError) as error:
        raise DataError(
            f"{content.name} is not a readable parquet file: {excerpt(str(error), 200)}"
        ) from None
    return rows


PARSERS: dict[str, Callable[[Content], list[Row]]] = {
    ".json": _json_rows,
    ".jsonl": _jsonl_rows,
    ".csv": _csv_rows,
    ".parquet": _parquet_rows,
    ".txt": _txt_rows,
}


def _decode(content: Content) -> str:
    try:
        return content.data.decode("utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        raise DataError(
            f"{content.name} is not UTF-8: invalid byte at offset {error.start}; save it as UTF-8"
        ) from None


def _lines(content: Content) -> list[tuple[int, str]]:
    """Non-blank lines with their numbers. Only line feeds end a line: U+2028 and the like may stand inside a
    JSON string."""
    lines = _decode(content).split("\n")
    return [(number, line.removesuffix("\r")) for number, line in enumerate(lines, 1) if line.strip()]


def _row(name: str, where: str, value: Any) -> Row:
    if isinstance(value, str):
        return Row(name, where, {"question": value})
    if not isinstance(value, dict):
        raise DataError(f"{name}, {where}: expected an object or a text, found {type_name(value)}")
    return Row(name, where, value)


def _parse_json(text: str, spot: str, one_line: bool = False) -> Any:
    try:
        return _JSON.decode(text)
    except json.JSONDecodeError as error:
        place = f"column {error.colno}" if one_line else f"line {error.lineno} column {error.colno}"
        hint = (
            " (is it one object per line? Then its suffix must be .jsonl)"
            if error.msg == "Extra data" and not one_line
            else ""
        )
        raise DataError(f"{spot}: not JSON: {error.msg} at {place}{hint}") from None
    except RecursionError:
        raise DataError(f"{spot}: nested too deeply") from None
    except ValueError as error:
        raise DataError(f"{spot}: {error}") from None


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        repeated = next(key for key, count in Counter(key for key, _ in pairs).items() if count > 1)
        raise ValueError(f"an object has the key {excerpt(repeated)} more than once")
    return fields


def _refuse_constant(constant: str) -> Any:
    raise ValueError(f"{constant} is not JSON; write null or leave the field out")


_JSON = json.JSONDecoder(object_pairs_hook=_unique_keys, parse_constant=_refuse_constant)


def type_name(value: object) -> str:
    """What messages call the type of a parsed value."""
    names = {
        str: "a text",
        bool: "true or false",
        int: "a number",
        float: "a number",
        list: "a list",
        dict: "an object",
    }
    return "null" if value is None else names.get(type(value), type(value).__name__)


def listed(names: Iterable[str], limit: int = 12) -> str:
    """Names of fields, quoted, as messages list them; a file may have any number of them."""
    shown = [excerpt(name) for name in names]
    return ", ".join(shown if len(shown) <= limit else [*shown[:limit], f"and {len(shown) - limit} more"])
