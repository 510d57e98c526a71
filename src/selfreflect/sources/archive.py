"""Archives of samples, as inspect_ai writes them (``.eval``).

Their content is untrusted: nothing is extracted to disk, and sizes are limited.
"""

from __future__ import annotations

import io
import json
import lzma
import re
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import IO, Any

from selfreflect.errors import DataError, MissingExtraError, excerpt
from selfreflect.sources.files import Content, Row

MAX_MEMBERS = 200_000
"""Files in an archive."""
MAX_MEMBER_BYTES = 200_000_000
"""Of one sample, unpacked."""
MAX_LOG_BYTES = 4_000_000_000
"""Of all samples, unpacked."""

# What unpacking a damaged archive may raise.
_DAMAGE = (
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    NotImplementedError,
    RuntimeError,
    OSError,
    ValueError,
)
# The compression method, which Python's zipfile may not know.
_ZSTANDARD = 93


def archive_row(content: Content, progress: Callable[[float], None] | None = None) -> Row:
    """Make the row of an archive, whose field ``samples`` unpacks them one by one.

    Args:
        progress: called for each sample with the share that is read.
    """
    return Row(content.name, "the archive", {"samples": _archived_samples(content, progress)})


def _archived_samples(
    content: Content, progress: Callable[[float], None] | None
) -> Iterator[tuple[str, Any]]:
    """Yield the samples in an archive with their names."""
    stream = content.stream()
    try:
        archive = zipfile.ZipFile(stream)
        members = archive.infolist()
    except (zipfile.BadZipFile, ValueError, NotImplementedError, OSError) as error:
        raise DataError(
            f"{content.name} is not a readable log of inspect_ai: {excerpt(str(error), 200)}"
        ) from None
    if len(members) > MAX_MEMBERS:
        raise DataError(f"{content.name} holds {len(members)} files; at most {MAX_MEMBERS} are read")
    for member in members:
        _check_name(content, stream, member)
    parts: dict[str, dict[str, zipfile.ZipInfo]] = {}
    size = 0
    for member in members:
        name = member.filename
        if not name.startswith("samples/") or member.is_dir():
            continue
        chunk = _CHUNK.fullmatch(name)
        if chunk and not _READ.fullmatch(chunk["part"]):
            continue  # messages and events, which hold no answers
        size += member.file_size
        parts.setdefault(chunk["sample"] if chunk else name, {})[chunk["part"] if chunk else ""] = member
    if size > MAX_LOG_BYTES:
        raise DataError(f"{content.name}: its samples are larger than {MAX_LOG_BYTES:,} bytes unpacked")

    def load(member: zipfile.ZipInfo) -> Any:
        where = excerpt(member.filename)
        return _load(_unpacked(content.name, archive, stream, member), f"{content.name}, {where}")

    for number, (name, by_part) in enumerate(parts.items()):
        if progress:
            progress(number / len(parts))
        if "" in by_part:
            yield excerpt(name), load(by_part[""])
        elif _SHELL in by_part:
            yield excerpt(name), _joined_sample({part: load(by_part[part]) for part in by_part})
        else:
            raise DataError(f"{content.name}, {excerpt(name)}: its file {_SHELL} is missing")


# A file of a sample that is stored in several.
_CHUNK = re.compile(
    r"(?P<sample>samples/.+_epoch_\d+)/"
    r"(?P<part>(?:sample|metadata|skeleton)\.json|(?:messages|events|calls|attachments)/[^/]+\.json)"
)
_READ = re.compile(r"(?:sample|metadata|attachments/(?P<start>\d+))\.json")
_SHELL = "sample.json"


def _joined_sample(parts: Mapping[str, Any]) -> Any:
    """Make one sample of the files of a chunked one: its shell, metadata and attachments by number."""
    sample = parts[_SHELL]
    if not isinstance(sample, dict):
        return sample
    attachments: dict[str, Any] = dict(sample.get("attachments") or {})
    for part, value in parts.items():
        match = _READ.fullmatch(part)
        if match and match["start"] and isinstance(value, list):
            attachments |= {str(index): text for index, text in enumerate(value, int(match["start"]))}
    metadata = {**(sample.get("metadata") or {}), **(parts.get("metadata.json") or {})}
    return {**sample, "metadata": metadata, "attachments": attachments}


def _check_name(content: Content, stream: IO[bytes], member: zipfile.ZipInfo) -> None:
    """Compare both names of an archived file, so that no damaged sample is lost."""
    name = member.orig_filename.encode("utf-8" if member.flag_bits & 0x800 else "cp437")
    stream.seek(member.header_offset)
    header = stream.read(_HEADER + len(name))
    length = int.from_bytes(header[26:28], "little")
    if header[_HEADER:] != name or length != len(name):
        raise DataError(f"{content.name} is damaged: its list of files does not agree with the files")


# Bytes of an archived file's header before its name; the last four give the lengths of the name and of what
# follows it.
_HEADER = 30


def _unpacked(name: str, archive: zipfile.ZipFile, stream: IO[bytes], member: zipfile.ZipInfo) -> bytes:
    """Unpack a file of an archive, never more bytes than allowed."""
    where = f"{name}, {excerpt(member.filename)}"
    limit = min(member.file_size, MAX_MEMBER_BYTES)
    try:
        if member.compress_type == _ZSTANDARD:
            data = _zstandard(stream, member, limit + 1)
        else:
            with archive.open(member) as packed:
                data = packed.read(limit + 1)
    except _DAMAGE as error:
        raise DataError(f"{where} cannot be unpacked: {excerpt(str(error), 200)}") from None
    except (struct.error, EOFError):
        raise DataError(f"{where} cannot be unpacked: the file ends too early") from None
    if len(data) > MAX_MEMBER_BYTES:
        raise DataError(f"{where} is larger than {MAX_MEMBER_BYTES:,} bytes unpacked")
    if len(data) != member.file_size or zlib.crc32(data) != member.CRC:
        raise DataError(f"{where} is damaged: its size or checksum is wrong")
    return data


def _zstandard(stream: IO[bytes], member: zipfile.ZipInfo, limit: int) -> bytes:
    try:
        import pyarrow as pa
    except ImportError:
        raise MissingExtraError("reading a log that is compressed with Zstandard", "parquet") from None
    stream.seek(member.header_offset)
    name, extra = struct.unpack_from("<HH", stream.read(_HEADER), _HEADER - 4)
    stream.seek(name + extra, io.SEEK_CUR)
    packed = stream.read(member.compress_size)
    with pa.CompressedInputStream(pa.BufferReader(packed), "zstd") as unpacked:
        return bytes(unpacked.read(limit))


def _load(data: bytes, where: str) -> Any:
    try:
        return json.loads(data)  # numbers may be NaN in a log
    except RecursionError:
        raise DataError(f"{where}: nested too deeply") from None
    except ValueError as error:
        raise DataError(f"{where} is not JSON: {excerpt(str(error), 200)}") from None
