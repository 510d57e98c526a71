"""Contents of users' files: bytes, text, JSON, and which formats are supported."""

from __future__ import annotations

import codecs
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
from collections.abc import Collection, Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import IO, Any, NamedTuple

from selfreflect.errors import DataError, excerpt
from selfreflect.sources.rows import is_text_list, listed


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
    text = decode(content).strip()
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
                raise _unsupported(path, name, stream.read(BEGINNING), suffixes)
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
BEGINNING = 100_000
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
    data = _read(name, source, BEGINNING)
    encoding = "" if data.startswith(tuple(_SIGNATURES)) else _utf16(data)
    beginning = data.decode(encoding, "ignore").encode() if encoding else data
    suffix = suffix or _guess_suffix(beginning)
    pieces = _pieces(name, data, source, encoding, limit)
    if suffix not in IN_PARTS or len(data) < BEGINNING:
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
    return {b"[": ".json", b"{": ".jsonl"}.get(first_sign(data), ".txt")


def json_value(content: Content) -> Any:
    """Parse content as one JSON value. Raises DataError for other content."""
    return parse_json(decode(content), content.name, allows_nan=content.allows_nan)


# The first character that is not blank, found without a copy of the content.
_START = re.compile(rb"(?:\xef\xbb\xbf)?\s*+(.?)", re.DOTALL)


def first_sign(data: bytes) -> bytes:
    match = _START.match(data)
    return match[1] if match else b""


def decode(content: Content) -> str:
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


def text_lines(content: Content) -> Iterator[tuple[str, str]]:
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


def parse_json(
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
