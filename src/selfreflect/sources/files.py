"""Rows of users' files, with their locations for messages."""

from __future__ import annotations

import codecs
import csv
import gzip
import hashlib
import io
import json
import lzma
import os
import re
import shlex
import struct
import sys
import tempfile
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import datetime, time
from itertools import chain, islice
from pathlib import Path
from typing import IO, Any, NamedTuple, TypeGuard

from selfreflect.errors import DataError, MissingExtraError, excerpt
from selfreflect.records import question_id
from selfreflect.sources.columns import (
    QUESTION_COLUMNS,
    asks_by_name,
    item_columns,
    likely_questions,
    likely_spans,
    plain_name,
    type_name,
)
from selfreflect.text import counted

ROWS_BETWEEN_PROGRESS = 5000


Progress = Callable[[float], None] | None
"""Callback for the share of the work that is done, if progress is reported."""


def in_parts(progress: Progress, count: int) -> list[Progress]:
    """Divide a progress reporter among equal parts of the work."""

    def part(number: int) -> Progress:
        return progress and (lambda share: progress((number + share) / count))

    return list(map(part, range(count)))


class Row(NamedTuple):
    """A record of a file. ``fields`` is parsed but unchecked; a plain text becomes the field ``question``."""

    source: str
    """Name of the file in messages."""
    where: str
    """``"record 3"`` or ``"line 7"``, counted from 1."""
    fields: dict[str, Any]

    def error(self, problem: str, *, remedy: str = "") -> DataError:
        return DataError(f"{self.source}, {self.where}: {problem}", remedy=remedy)

    def get(self, name: str) -> Any:
        """Look up a field, or a path into objects such as ``"doc.question"``; None if missing."""
        if name in self.fields:
            return self.fields[name]
        value: Any = self.fields if "." in name else None
        for key in name.split("."):
            value = value.get(key) if isinstance(value, dict) else None
        return value

    def take_inner(self, paths: Iterable[str]) -> None:
        """Make fields of what is named within objects."""
        for path in paths:
            if path not in self.fields and (value := self.get(path)) is not None:
                self.fields[path] = value

    def text(self, name: str) -> str:
        """Look up a required text field.

        Raises:
            DataError: the field is missing, blank, or not a text.
        """
        value = self.get(name)
        if value is None:
            raise self.error(f"the field {excerpt(name)} is missing or null")
        if not isinstance(value, str):
            raise self.error(f"the field {excerpt(name)} must be a text, not {type_name(value)}")
        if not value.strip():
            raise self.error(f"the field {excerpt(name)} is blank")
        return value

    def optional_text(self, name: str) -> str:
        """Look up an optional text; empty if missing, null or blank.

        Raises:
            DataError: the field holds something else.
        """
        value = self.get(name)
        if value is None:
            return ""
        if isinstance(value, str):
            return value if value.strip() else ""
        raise self.error(f"the field {excerpt(name)} must be a text, not {type_name(value)}")


class RowIds:
    """Assignment of unique row ids, so that no record silently replaces another."""

    def __init__(self) -> None:
        self._owners: dict[str, str] = {}
        self._uses: Counter[str] = Counter()
        """Number of uses of each derived id."""

    def take(self, row: Row, text: str, context: str = "", column: str = "id") -> str:
        """Return the row's id, or derive one from its question, with ``-2``, ``-3``, … for repeated
        questions.

        Raises:
            DataError: the row's id is neither text nor an integer, or is already taken.
        """
        value = row.fields.get(column)
        value = None if value != value else value  # NaN, where a frame lacks the id
        is_whole = not isinstance(value, float) or value.is_integer()
        if isinstance(value, bool) or not isinstance(value, str | int | float | None) or not is_whole:
            raise row.error(f"the field {column!r} must be a text or an integer, not {type_name(value)}")
        id_ = id_text(value)
        if not id_.strip():
            id_ = self._derived_id(question_id(text, context))
        if id_ in self._owners:
            raise row.error(
                f"the id {excerpt(id_)} is already taken by {self._owners[id_]}; give every record an id of "
                "its own"
            )
        self._owners[id_] = row.where
        return id_

    def _derived_id(self, base: str) -> str:
        id_ = base
        # goes on from the last number, since thousands of rows may have one question
        while id_ in self._owners:
            self._uses[base] += 1
            id_ = f"{base}-{self._uses[base] + 1}"
        return id_


def id_text(value: object) -> str:
    """Write an id as text, with 1.0 as 1."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return "" if value is None else str(value)


def source_name(source: str) -> str:
    """Name a file, or standard input for ``-``."""
    return "standard input" if source == "-" else Path(source).name


class Content(NamedTuple):
    """The bytes of a source."""

    name: str
    """Name of the source in messages: quoted, safe to print."""
    suffix: str
    """Suffix that selects the parser, such as ``".jsonl"``."""
    data: bytes
    """All bytes, or the beginning of a file that is read in parts."""
    allows_nan: bool = False
    """Whether JSON may contain NaN, as from data frames and logs, which the caller checks."""
    path: Path | None = None
    """Path of a file read in parts; ``data`` is only its beginning."""
    copy: IO[bytes] | None = None
    """Temporary file of a source that is read in parts but cannot be read again."""
    notes: list[str] | None = None
    """List for notes to the user, one sentence each."""
    version: tuple[int, ...] = ()
    """Facts that reveal whether the file at ``path`` has changed."""
    remark: str = ""
    """What a user should know of how the bytes were read."""

    def note(self, text: str) -> None:
        if self.notes is not None:
            self.notes.append(text)

    def stream(self) -> IO[bytes]:
        """Open the content. Raises DataError for a file that has changed since it was first opened."""
        if self.copy:
            return io.BufferedReader(_Copy(self.copy))
        if self.path is None:
            return io.BytesIO(self.data)
        with suppress(OSError):
            stream = self.path.open("rb")
            if _version(stream) == self.version:
                return stream
            stream.close()
        raise DataError(
            f"{self.name} changed while it was being read",
            code="changed",
            remedy="Run the command again when no other program is writing to the file.",
        )

    @property
    def size(self) -> int:
        """Size of the whole content in bytes."""
        with self.stream() as stream:
            return stream.seek(0, io.SEEK_END)

    @property
    def sha256(self) -> str:
        with self.stream() as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()  # type: ignore[arg-type]


def read_content(source: str | Path, suffixes: Collection[str] | None = None) -> Content:
    """Read a file, or standard input for ``"-"``.

    Args:
        suffixes: those that the file may have, such as :data:`PARSERS`; by default any.

    Raises:
        DataError: the source cannot be read, is empty, or is of an unsupported type.
    """
    if str(source) == "-":
        content = _content("standard input", "", sys.stdin.buffer)
    else:
        content = _read_file(Path(source), suffixes)
    if suffixes is not None:  # then it holds rows, and whoever reads them passes on its remark
        content = _from_western(content)
    if not content.data or content.data.isspace():
        raise DataError(f"{content.name} is empty")
    return content


def read_text(source: str | Path) -> str:
    """Read stripped text from any file or standard input (``"-"``).

    Raises:
        DataError: the source cannot be read, is blank, or is not UTF-8.
    """
    content = read_content(source)
    text = _decode(content).strip()
    if not text:
        raise DataError(f"{content.name} is blank")
    return text


def _read_file(path: Path, suffixes: Collection[str] | None) -> Content:
    name = excerpt(str(path), 200)
    suffix = path.suffix.lower()
    zipped = suffix == ".gz"
    if zipped:
        suffix = path.with_suffix("").suffix.lower()
    suffix = _SAME.get(suffix, suffix)
    try:
        if path.is_dir():
            return Content(name, ".arrow", _arrow_folder(name, path))
        with path.open("rb") as stream:
            if suffixes is not None and suffix not in suffixes:
                raise _unsupported(path, name, stream.read(_BEGINNING), suffixes)
            if zipped:
                with gzip.open(stream) as unpacked:
                    return _content(name, suffix, unpacked, limit=MAX_UNZIPPED)  # type: ignore[arg-type]
            return _content(name, suffix, stream, path if path.is_file() else None)
    except FileNotFoundError:
        raise DataError(f"{name}: there is no such file") from None
    except OSError as error:
        raise DataError(f"{name} cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise DataError(f"{name} is not a path: {error}") from None


def _version(stream: IO[bytes]) -> tuple[int, ...]:
    found = os.fstat(stream.fileno())
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


IN_PARTS = (".eval", ".csv", ".tsv", ".jsonl", ".parquet", ".txt")
"""Suffixes of files that are read in parts."""
# Bytes of such a file by which it is known, and bytes that are read at once.
_BEGINNING = 100_000
_PIECE = 1_000_000


def is_row_file(source: str) -> bool:
    """Check whether a source has rows: standard input, a file, or a folder of Arrow streams."""
    indexes = (Path(source, name) for name in ("state.json", "dataset_dict.json"))
    return source == "-" or not Path(source).is_dir() or any(index.is_file() for index in indexes)


def _arrow_folder(name: str, folder: Path) -> bytes:
    """Join the Arrow streams of one split, in a folder written by ``save_to_disk`` of ``datasets``."""
    index = folder / "dataset_dict.json"
    if index.is_file():
        splits = [split for split in _names(name, index, "splits") if (folder / split).is_dir()]
        if len(splits) != 1:
            raise DataError(
                f"{name} contains the splits {listed(splits)}",
                code="splits",
                remedy="Name the folder of one split, as in DIR/train.",
            )
        return _arrow_folder(name, folder / splits[0])
    if not (folder / "state.json").is_file():
        raise DataError(f"{name} is a directory; name one file in it")
    files = _names(name, folder / "state.json", "_data_files")
    return b"".join((folder / file).read_bytes() for file in files)


def _names(name: str, path: Path, key: str) -> list[str]:
    """Read file names from an index, refusing names outside its folder."""
    index = json_value(Content(f"{name}, {path.name}", path.suffix, path.read_bytes()))
    entries = index.get(key) if isinstance(index, dict) else None
    names = [
        entry.get("filename") if isinstance(entry, dict) else entry
        for entry in (entries if isinstance(entries, list) else [None])
    ]
    if not is_text_list(names) or any(Path(text).name != text or text in ("", "..") for text in names):
        raise DataError(f"{name}, {path.name}: the field {key!r} must list names of files beside it")
    return names


MAX_UNZIPPED = 4_000_000_000
"""Maximum size of an unpacked gzip file in bytes."""

DAMAGE = (
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    struct.error,
    EOFError,
    RuntimeError,
    OSError,
    ValueError,
)
"""Errors of unpacking a damaged or encrypted archive, or an unknown method."""

_SAME = {".ndjson": ".jsonl", ".jsonlines": ".jsonl", ".tab": ".tsv", ".feather": ".arrow"}
"""Suffixes of equal formats."""


def _pickled(module: str, load: str, content: str = "content") -> str:
    """Word the advice on a pickle, with a command that writes JSON from any content, frames included."""
    plain = 'lambda value: getattr(value, "tolist", getattr(value, "to_dict", value.__str__))()'
    code = (
        f"import json, sys, {module}; content = {load}; "
        f'json.dump({content}, open(sys.argv[1] + ".json", "w"), default={plain})'
    )
    command = f"python -c {shlex.quote(code)}"
    return f"it may run code when it is read. If you trust it, write JSON from it: {command}"


# A manager of lm-polygraph, in which names are tuples.
_TORCH = _pickled(
    "torch",
    "torch.load(sys.argv[1], weights_only=False)",
    "{part: {str(name): values for name, values in content[part].items()} "
    'for part in ("stats", "gen_metrics", "estimations")}',
)
ADVICE = {
    ".xls": "save it as .xlsx or .csv",
    ".ods": "save it as .xlsx or .csv",
    **dict.fromkeys((".man", ".pt", ".pth"), _TORCH),
    **dict.fromkeys((".pkl", ".pickle"), _pickled("pickle", 'pickle.load(open(sys.argv[1], "rb"))')),
    ".joblib": _pickled("joblib", "joblib.load(sys.argv[1])"),
    ".zip": "unpack it, and name the file in it",
}
"""Advice on files of unsupported types. The path follows a command."""
_OF_TORCH = re.compile(rb"PK\x03\x04.{26}[^/]+/data\.pkl", re.DOTALL)
"""Beginning of what torch saves, also without a suffix, as lm-polygraph does."""


def _unsupported(path: Path, name: str, beginning: bytes, suffixes: Collection[str]) -> DataError:
    suffix = ".pt" if _OF_TORCH.match(beginning) else path.suffix.lower()
    advice = ADVICE.get(suffix, f"use one of {', '.join(suffixes)}")
    if "python -c" in advice:
        advice += f" {shlex.quote(str(path))}"
    return DataError(f"{name}: unsupported file type {excerpt(path.suffix)}; {advice}")


def _utf16(data: bytes) -> str:
    """Name the encoding of a UTF-16 text that begins with a byte-order mark or two ASCII characters; else
    empty."""
    encoding = "utf-16" if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) else ""
    for unmarked, low, high in (
        ("utf-16-le", data[:4:2], data[1:4:2]),
        ("utf-16-be", data[1:4:2], data[:4:2]),
    ):
        if high == b"\0\0" and 0 not in low and low.isascii():
            encoding = unmarked
    return encoding


def _content(
    name: str, suffix: str, source: IO[bytes], path: Path | None = None, limit: int = sys.maxsize
) -> Content:
    """Take a source into memory, unless it is large and its rows are read in parts.

    These are read from its file, or else from a temporary one in UTF-8.
    """
    data = _read(name, source, _BEGINNING)
    encoding = "" if data.startswith(tuple(_SIGNATURES)) else _utf16(data)
    beginning = data.decode(encoding, "ignore").encode() if encoding else data
    suffix = suffix or _guess_suffix(beginning)
    pieces = _pieces(name, data, source, encoding, limit)
    if suffix not in IN_PARTS or len(data) < _BEGINNING:
        return Content(name, suffix, b"".join(pieces))
    if path and not encoding:
        return Content(name, suffix, data, path=path, version=_version(source))
    try:
        copy = tempfile.TemporaryFile()  # noqa: SIM115 (closed when the content is gone)
        copy.writelines(pieces)
        copy.flush()
    except OSError as error:
        raise DataError(
            f"{name} cannot be copied to a temporary file: {error.strerror}",
            remedy="Let TMPDIR name a folder with more room.",
        ) from None
    return Content(name, suffix, beginning, copy=copy)


def _pieces(name: str, data: bytes, source: IO[bytes], encoding: str, limit: int) -> Iterator[bytes]:
    """Yield a source, of which ``data`` is the beginning, piece by piece in UTF-8."""
    decoder = codecs.getincrementaldecoder(encoding)() if encoding else None
    size = 0
    try:
        while data:
            size += len(data)
            if size > limit:
                raise DataError(f"{name} is larger than {limit:,} bytes unpacked")
            yield decoder.decode(data).encode() if decoder else data
            data = _read(name, source, _PIECE)
        if decoder:
            decoder.decode(b"", final=True)
    except UnicodeError:
        raise DataError(f"{name} begins like UTF-16 but cannot be read as UTF-16; save it as UTF-8") from None


def _read(name: str, source: IO[bytes], size: int) -> bytes:
    try:
        return source.read(size)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise DataError(f"{name} cannot be unpacked: {excerpt(str(error), 200)}") from None


class _Copy(io.RawIOBase):
    """A temporary file, read from a position of its own."""

    def __init__(self, copy: IO[bytes]) -> None:
        self._copy = copy
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = os.pread(self._copy.fileno(), len(buffer), self._position)
        buffer[: len(data)] = data
        self._position += len(data)
        return len(data)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        size = os.fstat(self._copy.fileno()).st_size
        self._position = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: size}[whence]
        return self._position


_SAVED_BY_SPREADSHEETS = (".csv", ".tsv", ".txt")
_BYTES_AT_A_TIME = 1 << 20


def _is_utf8(content: Content) -> bool:
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        with content.stream() as stream:
            while chunk := stream.read(_BYTES_AT_A_TIME):
                decoder.decode(chunk)
        decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        return False
    return True


def _from_western(content: Content) -> Content:
    """Decode a table that a spreadsheet saved as Windows-1252, with a remark; return others unchanged.

    Each byte becomes one character, so none gets lost, but in another encoding each is another one. So words
    must look as Western European ones do, and a user gets to see some of them.
    """
    if content.suffix not in _SAVED_BY_SPREADSHEETS or _is_utf8(content):
        return content
    with content.stream() as stream:
        data = stream.read()
    kept = [sign for sign in data.decode("utf-8", "replace") if sign > "\x7f"]
    try:
        text = data.decode("cp1252")
    except UnicodeDecodeError:
        return content
    # a text in UTF-8 with some damaged bytes
    is_damaged = len(kept) > _MOST_BY_CHANCE * kept.count("\ufffd") or data.startswith((*_SIGNATURES,))
    words = [word for word in _NOT_ASCII_WORD.findall(text) if not word.isascii()]
    strange = sum(_STRANGE.search(word) is not None for word in words)
    if is_damaged or _CONTROL.search(text) or strange > _MOST_STRANGE * len(words):
        return content
    examples = ", ".join(map(excerpt, islice(dict.fromkeys(words), 3)))
    remark = "it is not UTF-8 and was read as Windows-1252"
    if examples:
        remark += f", as in {examples}: if these are no words, save it as UTF-8"
    return content._replace(data=text.encode(), path=None, copy=None, remark=remark)


# Signs by which a text in another encoding is known: control characters, words of foreign letters alone, and
# signs or capitals within words.
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_NOT_ASCII_WORD = re.compile(r"[^\W\d_](?:[^\s!-~\u2010-\u2026«»]|[^\W_])*")
_STRANGE = re.compile(
    r"[^\x00-\x7f]{3}|^[^\x00-\x7f]{2}$|[^\W\d_][^\w\s'’´`·-][^\W\d_]|[a-zß-ÿ][À-ÞŠŽŸŒ][a-zß-ÿ]|[¹²³¼½¾]$|ÿ"
)
_MOST_STRANGE = 0.1
# Two bytes of Windows-1252 are rarely one character of UTF-8.
_MOST_BY_CHANCE = 1.1


def _guess_suffix(data: bytes) -> str:
    """Guess the format of piped input by its first bytes; the default is one question per line."""
    for signature, suffix in ((b"PAR1", ".parquet"), (b"PK\x03\x04", ".eval")):
        if data.startswith(signature):
            return suffix
    return {b"[": ".json", b"{": ".jsonl"}.get(_start(data), ".txt")


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


def json_value(content: Content) -> Any:
    """Parse content as one JSON value. Raises DataError for other content."""
    return _parse_json(_decode(content), content.name, allows_nan=content.allows_nan)


def _json_rows(content: Content) -> Iterable[Row]:
    try:
        values = json_value(content)
    except DataError:
        if _start(content.data) != b"{":
            raise
        # one object after the other, each on a line or on several
        values = _parse_json(_decode(content), content.name, allows_nan=content.allows_nan, several=True)
    if isinstance(values, dict):
        values = [values]
    if not isinstance(values, list):
        raise DataError(
            f"{content.name} contains {type_name(values)}; expected an object, or a list of objects or texts"
        )
    return [_row(content.name, f"record {number}", value) for number, value in enumerate(values, 1)]


# The beginning of JSON on several lines.
_ON_LINES = re.compile(rb"(?:\xef\xbb\xbf)?\s*+(?:\[|\{\s*\n)")
# The first character that is not blank, found without a copy of the content.
_START = re.compile(rb"(?:\xef\xbb\xbf)?\s*+(.?)", re.DOTALL)


def _start(data: bytes) -> bytes:
    match = _START.match(data)
    return match[1] if match else b""


def _jsonl_rows(content: Content) -> Iterator[Row]:
    if _ON_LINES.match(content.data):
        yield from _json_rows(content)
        return
    for where, line in _lines(content):
        label = f"{content.name}, {where}"
        value = _parse_json(line, label, one_line=True, allows_nan=content.allows_nan)
        yield _row(content.name, where, value)


def _txt_rows(content: Content) -> list[Row]:
    return [_row(content.name, where, line) for where, line in _lines(content)]


# The first line by which a spreadsheet says what separates its cells.
_SEPARATOR_LINE = re.compile(r'"?sep=([,;\t|])"?\r?\n', re.IGNORECASE)
_DELIMITERS = ",;\t|"


def _delimiter(text: str, suffix: str) -> str:
    """Find the delimiter that splits header and next line into the most cells; the default is a comma."""
    # where two divide alike, a tab comes first in a .tsv file, else a comma
    order = sorted(_DELIMITERS, key=lambda delimiter: suffix == ".tsv" and delimiter != "\t")
    widths = {}
    for delimiter in order:
        reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
        header, *lines = [len(cells) for cells in islice(filter(any, reader), 2)] or [1]
        widths[delimiter] = header if lines == [header] else 1
    if max(widths.values()) > 1:
        return max(order, key=widths.__getitem__)
    # a title may stand above the names of the columns, and most lines below have one width
    for delimiter in order:
        reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
        lines = [len(cells) for cells in islice(filter(any, reader), _LINES_OF_HEAD)][1:-1]
        if len(lines) > 1 and len({*lines}) == 1 and lines[0] > 1:
            return delimiter
    # a name in quotes may hold a comma
    first_line = re.sub('"[^"]*"', "", text.lstrip().partition("\n")[0])
    return "," if "," in first_line else max(order, key=first_line.count)


def _csv_rows(content: Content) -> Iterator[Row]:
    # a character may end beyond
    start = content.data[:_BEGINNING].decode("utf-8", "ignore").removeprefix("\ufeff")
    declared = _SEPARATOR_LINE.match(start)
    delimiter = declared[1] if declared else _delimiter(start, content.suffix)
    # a cell may be as long as any text; the limit is of the process, so it is never lowered
    csv.field_size_limit(max(content.size, csv.field_size_limit()))
    # some write "question, answer", with the blank in every line
    header = start[declared.end() if declared else 0 :].partition("\n")[0].split(delimiter)[1:]
    has_blanks = bool(header) and all(name.startswith(" ") for name in header)
    skipped = 1 if declared else 0
    line = 1 + skipped

    def numbered() -> Iterator[tuple[str, list[str]]]:
        nonlocal line
        with io.TextIOWrapper(content.stream(), encoding="utf-8-sig", newline="") as lines:
            if declared:
                lines.readline()
            reader = csv.reader(lines, strict=True, delimiter=delimiter, skipinitialspace=has_blanks)
            for cells in reader:
                where = f"line {line}"
                line = reader.line_num + 1 + skipped
                yield where, cells

    try:
        yield from _table_rows(content, numbered())
    except UnicodeDecodeError:
        list(_lines(content))  # which knows the offset
        raise
    except csv.Error as error:
        raise DataError(
            f"{content.name}, line {line}: not CSV: {error}",
            remedy='Inside a quoted cell, write a quote twice, as in "6"" pipe".',
        ) from None


def _table_rows(content: Content, lines: Iterable[tuple[str, list[str]]]) -> Iterator[Row]:
    """Make rows from a table's lines, below those with the names of columns.

    Some programs leave out the blank cells at the end of a row, which are null then.
    """
    # spreadsheets keep rows that were once used; the first cell alone says it of most rows
    filled = (
        (where, cells) for where, cells in lines if (cells and cells[0].strip()) or any(map(str.strip, cells))
    )
    head = list(islice(filled, _LINES_OF_HEAD))
    if not head:
        return
    header, below = _header(content, [_without_blank_end(cells) for _, cells in head])
    name = content.name
    short, first_short = 0, ""
    for where, cells in chain(head[below:], filled):
        if len(cells) > len(header) and any(map(str.strip, cells[len(header) :])):
            raise DataError(
                f"{name}, {where}: {len(cells)} cells, but the header has {len(header)} columns: "
                f"{excerpt(header)}",
                remedy="Remove everything above the header, or put quotes around the cell that contains "
                "the separator.",
            )
        fields: dict[str, Any] = dict(zip(header, cells, strict=False))
        if len(cells) < len(header):
            short += 1
            first_short = first_short or where
            fields |= dict.fromkeys(header[len(cells) :])
        fields.pop("", None)
        yield Row(name, where, fields)
    if short:
        rows = "1 row has" if short == 1 else f"{short:,} rows have"
        content.note(
            f"{rows} fewer cells than the header, such as {first_short}: the missing cells count as blank"
        )


# Lines among which the names of columns are looked for.
_LINES_OF_HEAD = 12
# Longest name of a column below other lines.
_NAME_CHARACTERS = 60


def _header(content: Content, lines: Sequence[list[str]]) -> tuple[list[str], int]:
    """Find the names of the columns, and the number of the first line below them.

    Titles may stand above them, names of groups of columns too, and units or types below.

    Raises:
        DataError: there are none, or not one for each column.
    """
    widest = max(map(len, lines))
    is_title = widest > 1 and sum(bool(cell.strip()) for cell in lines[0]) == 1
    number = 0
    # names of questions and answers may repeat, and a row below may hold words that are names elsewhere
    if is_title or not (_are_names(lines[0]) or _are_whole(lines[0])):
        is_named = not is_title and _name_questions(lines[0])
        below = [
            at
            for at, cells in enumerate(lines)
            if at and len(cells) == widest and _are_asking(cells, is_below_names=is_named)
        ]
        number = below[0] if below else 0
    header = lines[number]
    if number:
        above = next(filter(str.strip, lines[0]))
        content.note(f"{counted(number, 'line')} above the names of the columns left out: {excerpt(above)}")
    if len({*header}) < len(header) and all(map(str.strip, header)) and not _is_row(header):
        header = _numbered_apart(content, header)
    if not _are_names(header):
        raise DataError(
            f"{content.name}: the first line must be a header with a different name for each column, but is "
            f"{excerpt(header)}",
            remedy="Remove everything above the header, and give each column a name of its own.",
        )
    number += 1
    if number < len(lines) and _are_units(lines[number]):
        content.note(f"a line with units or types left out: {listed(filter(None, lines[number]))}")
        number += 1
    return header, number


def _without_blank_end(cells: list[str]) -> list[str]:
    """Leave out the columns at the end that were once used, and have no name."""
    width = len(cells)
    while width > 2 and not cells[width - 1].strip():
        width -= 1
    return cells[:width]


def _are_names(cells: Sequence[str]) -> bool:
    """Check whether cells are different names. A data frame's index comes without one, in front."""
    names = cells[1:] if len(cells) > 1 and not cells[0] else cells
    return all(map(str.strip, names)) and len({*names}) == len(names)


def _are_asking(cells: Sequence[str], *, is_below_names: bool) -> bool:
    """Check whether cells below others are names of columns, one of which is that of the questions.

    Args:
        is_below_names: whether the cells above name a column of questions, too, so that these may be a row.
    """
    is_repeated = all(map(str.strip, cells)) and _are_whole(cells)
    if not (_are_names(cells) or is_repeated) or max(map(len, cells)) > _NAME_CHARACTERS:
        return False
    if is_below_names:
        return _are_whole(cells) and not any(map(_is_asked, cells))
    # numbers alone are values
    are_words = all(any(map(str.isalpha, cell)) for cell in cells if cell)
    return _name_questions(cells) or (are_words and _asks(cells) >= 0)


def _are_whole(cells: Iterable[str]) -> bool:
    """Check whether cells name both questions and answers."""
    columns = item_columns(filter(str.strip, cells), {})
    return bool(columns.question and columns.answers)


def _name_questions(cells: Iterable[str]) -> bool:
    """Check whether a cell is named like a column of questions."""
    return any(asks_by_name(cell) and cell.count(" ") < 3 for cell in cells)


def _is_row(cells: Sequence[str]) -> bool:
    """Check whether a question stands in place of the names of columns."""
    return not _name_questions(cells) and any(map(_is_asked, cells))


def _is_asked(cell: str) -> bool:
    """Check whether a cell is a question rather than the name of a column."""
    return cell.rstrip().endswith(("?", "？")) and cell.count(" ") > 1


def _numbered_apart(content: Content, names: Sequence[str]) -> list[str]:
    """Number the columns that have one name."""
    counts = Counter(names)
    several = [name for name, count in counts.items() if count > 1]
    taken: Counter[str] = Counter()
    header = []
    for name in names:
        taken[name] += 1
        header.append(f"{name} {taken[name]}" if counts[name] > 1 else name)
    content.note(f"columns with one name are numbered from left to right: {listed(several)}")
    return header


def _are_units(cells: Sequence[str]) -> bool:
    """Check whether a line below the names says in what its columns are."""
    words = [cell.strip(" ()[]").casefold() for cell in cells if cell.strip()]
    return len(words) > 1 and {*words} <= _UNITS


_UNITS = frozenset(
    "text texts string str varchar free_text integer int float number numeric bool boolean date datetime "
    "timestamp time ms s sec seconds min tokens token count usd eur chf gbp $ € £ ct cents % y/n yes/no j/n "
    "ja/nein true/false 0/1 1/0 0-1 1-5 id json list categorical category unit units einheit "
    "einheiten".split()
)


def _xlsx_rows(content: Content) -> Iterator[Row]:
    """Read the sheet of questions in a workbook, with cells as text."""
    try:
        import openpyxl
    except ImportError:
        raise MissingExtraError("reading .xlsx files", "xlsx") from None
    try:
        with zipfile.ZipFile(io.BytesIO(content.data)) as archive:
            # a small archive may unpack to gigabytes
            if sum(member.file_size for member in archive.infolist()) > MAX_WORKBOOK:
                raise DataError(f"{content.name} is larger than {MAX_WORKBOOK:,} bytes unpacked")
            parts = [name for name in archive.namelist() if name.startswith("xl/worksheets/")]
            merges = any(b"<mergeCell " in archive.read(name) for name in parts)
        # only a workbook that is in memory as a whole knows its merged cells
        book = openpyxl.load_workbook(io.BytesIO(content.data), read_only=not merges, data_only=True)
        sheets = {
            sheet.title: [list(map(cell_text, cells)) for cells in sheet.values] for sheet in book.worksheets
        }
        for sheet in book.worksheets if merges else ():
            _fill_down(sheets[sheet.title], sheet.merged_cells.ranges)
    except (*DAMAGE, LookupError, TypeError, AttributeError, SyntaxError) as error:
        raise DataError(f"{content.name} is not a readable workbook: {excerpt(str(error), 200)}") from None
    # a cover or a legend is no table
    tables = {title: rows for title, rows in sheets.items() if len(list(filter(any, rows))) > 1}
    asking = {title: rank for title, rows in tables.items() if (rank := _asks(next(filter(any, rows)))) >= 0}
    chosen = {title: tables[title] for title, rank in asking.items() if rank == min(asking.values())}
    tables = chosen or tables
    if len(tables) > 1:
        raise DataError(
            f"{content.name} has a table in each of the sheets {listed(tables)}",
            remedy="Save the sheet with the questions as a separate file.",
        )
    left_out = [title for title, rows in sheets.items() if title not in tables and any(map(any, rows))]
    if tables and left_out:
        sheet = "sheet" if len(left_out) == 1 else "sheets"
        content.note(f"{sheet} {listed(left_out)} left out: the questions are in {listed(tables)}")
    rows = next(iter(tables.values()), [])
    while rows and not any(rows[0]):
        rows.pop(0)
    return _table_rows(content, ((f"row {number}", cells) for number, cells in enumerate(rows, 1)))


def _fill_down(rows: list[list[str]], ranges: Iterable[Any]) -> None:
    """Copy the text of vertically merged cells to all their rows."""
    for area in ranges:
        column = area.min_col - 1
        for number in range(area.min_row, min(area.max_row, len(rows))):
            rows[number][column] = rows[area.min_row - 1][column]


def _asks(header: Iterable[str]) -> int:
    """Rank a header by the name of its question column, with 0 for the usual name; -1 without such a
    column."""
    names = [*filter(None, header)]
    plain = [*map(plain_name, names)]
    # such a name is clearer than "text", which may head a column of anything
    usual = [QUESTION_COLUMNS[0], *likely_questions(plain), *QUESTION_COLUMNS[1:]]
    if likely_spans(names):
        usual.append(plain[0])  # several answers stand beside something
    return next((rank for rank, name in enumerate(usual) if name in plain), -1)


MAX_WORKBOOK = 1_000_000_000
"""Maximum size of an unpacked workbook in bytes."""


def cell_text(cell: object) -> str:
    """Write a spreadsheet cell as CSV would."""
    if cell is None:
        return ""
    if isinstance(cell, bool):
        return "true" if cell else "false"
    if isinstance(cell, float):
        return str(int(cell)) if cell.is_integer() else f"{cell:.15g}"  # digits that spreadsheets keep
    if isinstance(cell, datetime) and cell.time() == time():
        return cell.date().isoformat()
    return str(cell)


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
    ".csv": _csv_rows,
    ".tsv": _csv_rows,
    ".parquet": _arrow_rows,
    ".arrow": _arrow_rows,
    ".xlsx": _xlsx_rows,
    ".txt": _txt_rows,
}


def _decode(content: Content) -> str:
    with content.stream() as stream:
        data = stream.read()
    try:
        return data.decode("utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        raise _not_utf8(content, error.start) from None


def _not_utf8(content: Content, offset: int) -> DataError:
    for signature, suffixes in _SIGNATURES.items():
        if content.data.startswith(signature):
            return DataError(f"{content.name} is not text", remedy=f"Its suffix should be {suffixes}.")
    return DataError(
        f"{content.name} is not UTF-8: invalid byte at offset {offset}; save it as UTF-8 (in spreadsheets: "
        "'CSV UTF-8')",
        remedy="If you know the encoding, convert it: iconv -f ENCODING -t UTF-8 FILE > new.csv",
    )


_SIGNATURES = {b"PAR1": ".parquet", b"PK\x03\x04": ".xlsx or .eval", b"\x1f\x8b": ".gz", b"ARROW1": ".arrow"}
"""First bytes of files other than text, with their names."""


def _lines(content: Content) -> Iterator[tuple[str, str]]:
    """Yield non-blank lines with their locations. Only line feeds end a line: U+2028 may occur in a JSON
    string."""
    start = 0
    with content.stream() as stream:
        for number, data in enumerate(stream, start=1):
            try:
                line = data.decode("utf-8").removesuffix("\n").removesuffix("\r")
            except UnicodeDecodeError as error:
                raise _not_utf8(content, start + error.start) from None
            start += len(data)
            if number == 1:
                line = line.removeprefix("\ufeff")
            if line.strip():
                yield f"line {number}", line


def _row(name: str, where: str, value: Any) -> Row:
    if isinstance(value, str):
        return Row(name, where, {"question": value})
    if not isinstance(value, dict):
        raise DataError(
            f"{name}, {where}: expected an object or a text, not {type_name(value)}",
            remedy="Save a data frame with frame.to_json(FILE, orient='records').",
        )
    return Row(name, where, value)


def _parse_json(
    text: str, where: str, one_line: bool = False, allows_nan: bool = False, several: bool = False
) -> Any:
    decoder = _JSON_WITH_NAN if allows_nan else _JSON
    values: list[Any] = []
    position = 0
    try:
        if not several:
            return decoder.decode(text)
        while start := _NOT_BLANK.search(text, position):
            value, position = decoder.raw_decode(text, start.start())
            values.append(value)
        return values
    except json.JSONDecodeError as error:
        place = f"column {error.colno}" if one_line else f"line {error.lineno} column {error.colno}"
        raise DataError(f"{where}: not JSON: {error.msg} at {place}") from None
    except RecursionError:
        raise DataError(f"{where}: nested too deeply") from None
    except ValueError as error:
        raise DataError(f"{where}: {error}") from None


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for key, value in pairs:
        # other readers would keep the last in silence
        if key in fields:
            raise ValueError(f"an object has the key {excerpt(key)} more than once")
        fields[key] = value
    return fields


def _refuse_constant(constant: str) -> Any:
    raise ValueError(f"{constant} is not JSON; write null or leave the field out")


def integer(digits: str) -> int | str:
    """Parse a JSON integer, or return its digits as text if Python refuses to convert so many."""
    try:
        return int(digits)
    except ValueError:
        return digits


_NOT_BLANK = re.compile(r"\S")
_JSON = json.JSONDecoder(object_pairs_hook=_unique_keys, parse_constant=_refuse_constant, parse_int=integer)
_JSON_WITH_NAN = json.JSONDecoder(object_pairs_hook=_unique_keys, parse_int=integer)


def field_names(rows: Iterable[Row]) -> list[str]:
    """List the names of all fields in rows, in order."""
    return list(dict.fromkeys(chain.from_iterable(row.fields for row in rows)))


def is_text_list(value: object) -> TypeGuard[list[str]]:
    """Check whether a value is a list of texts."""
    return isinstance(value, list) and all(isinstance(entry, str) for entry in value)


def listed(names: Iterable[str], limit: int = 12) -> str:
    """Quote the first ``limit`` names for a message; files may have many fields."""
    excerpts = list(map(excerpt, names)) or ["none"]
    if len(excerpts) > limit:
        excerpts = [*excerpts[:limit], f"and {len(excerpts) - limit} more"]
    return ", ".join(excerpts)
