"""Logs of inspect_ai: ``.json``, or ``.eval`` archives of samples.

The content of an archive is untrusted: nothing is extracted to disk, and sizes are limited.
"""

from __future__ import annotations

import io
import json
import re
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import IO, Any, TypedDict

import msgspec

from selfreflect.errors import DataError, MissingExtraError, excerpt
from selfreflect.sources.answer_values import is_grader
from selfreflect.sources.cells import metadata
from selfreflect.sources.files import DAMAGE, Content
from selfreflect.sources.layouts import Layout, right_answers
from selfreflect.sources.layouts.responses import asked
from selfreflect.sources.names import GRADES
from selfreflect.sources.rows import Row, listed
from selfreflect.text import counted

_ATTACHMENT = "attachment://"


class _Turn(TypedDict, total=False):
    role: str
    content: str | list[dict[str, Any]] | None


class _LoggedChoice(msgspec.Struct):
    message: _Turn
    stop_reason: str | None = ""


class _Output(msgspec.Struct):
    choices: list[_LoggedChoice] = []


class _Grade(msgspec.Struct):
    value: Any = None


class _Sample(msgspec.Struct):
    """Fields of an inspect_ai sample."""

    id: str | int
    input: str | list[_Turn]
    output: _Output = msgspec.field(default_factory=_Output)
    target: str | list[str] = ""
    metadata: dict[str, Any] | None = None
    attachments: dict[str, str] | None = None
    scores: dict[str, _Grade] | None = None
    score: _Grade | None = None
    """Grade by the only scorer, in logs of early versions."""
    error: Any = None


class Inspect(Layout):
    """Layout with each sample's epochs as answers, and scorers' verdicts as grades."""

    name = "inspect"
    is_log = True
    ignores = ("messages after the question", "events", "reasoning", "usage")

    def matches(self, rows: Sequence[Row]) -> bool:
        fields = rows[0].fields
        unpacks = isinstance(fields.get("samples"), Content)
        return len(rows) == 1 and (unpacks or fields.keys() >= {"version", "status", "eval"})

    def items(self, rows: Sequence[Row]) -> Iterable[Row]:
        name, items = rows[0].source, dict[tuple[str | int, str], Row]()
        failures = cut_off = 0
        replaced: list[str] = []
        for where, value in _samples(replaced, **rows[0].fields):
            try:
                sample = msgspec.convert(value, _Sample)
            except msgspec.ValidationError as error:
                raise DataError(f"{name}, {where}: not a sample of inspect_ai: {error}") from None
            choices = sample.output.choices
            if sample.error is not None or not choices:
                failures += 1
                continue
            cut_off += sum(choice.stop_reason in ("max_tokens", "model_length") for choice in choices)
            row = Row(name, where, _fields(sample))
            key = sample.id, row.fields["question"]  # the ids of each task begin anew
            fields = items.setdefault(key, row).fields
            # scorers see the first choice only
            missing = [None] * (len(choices) - 1)
            for grader, verdict in _verdicts(sample):
                column = fields[GRADES].setdefault(grader, [None] * len(fields["answers"]))
                column += [verdict, *missing]
            fields["answers"] += [_text(choice.message, sample) for choice in choices]
            # an epoch that a scorer left out has no verdict
            for column in fields[GRADES].values():
                column += [None] * (len(fields["answers"]) - len(column))
        no_verdicts = _keep_graders([row.fields[GRADES] for row in items.values()])
        if not items:
            raise DataError(
                f"{name} contains no samples with answers",
                code="no_answers",
                remedy="Run inspect with several epochs, and let it log its samples.",
            )
        left_out = f"{counted(failures, 'sample')} without an answer left out"
        cut = f"{counted(cut_off, 'answer')} cut off at the token limit"
        again = f"{counted(len(replaced), 'file')} in the archive replaced by another file of the same sample"
        scores = f"scores that say neither right nor wrong left out: {listed(no_verdicts)}"
        self.notes = [scores] * bool(no_verdicts)
        self.notes += [left_out] * bool(failures) + [cut] * bool(cut_off) + [again] * bool(replaced)
        return items.values()

    def explain(self) -> str:
        return "log of inspect_ai"


def _samples(
    replaced: list[str], samples: Any = None, progress: Callable[[float], None] | None = None, **_: Any
) -> Iterable[tuple[str, Any]]:
    """Yield a log's samples with their locations, one by one from an archive."""
    if isinstance(samples, Content):
        return _archived_samples(samples, progress, replaced)
    entries = samples if isinstance(samples, list) else []
    return ((f"sample {number}", entry) for number, entry in enumerate(entries, start=1))


def _fields(sample: _Sample) -> dict[str, Any]:
    """Make the row of a sample, with the last user turn as question."""
    turns = sample.input
    if isinstance(turns, str):
        turns = [{"role": "user", "content": turns}]
    values = {**(sample.metadata or {}), "target": sample.target, "sample_id": sample.id}
    return {
        "question": "",
        "context": "",
        **asked(turns, lambda turn: _text(turn, sample)),
        "answers": [],
        GRADES: {},
        **right_answers(sample.target),
        "metadata": metadata(values, values),
    }


def _verdicts(sample: _Sample) -> Iterator[tuple[str, Any]]:
    """Yield each scorer's verdicts, counting several values as several scorers."""
    scores = sample.scores or ({"scorer": sample.score} if sample.score else {})
    for scorer, grade in scores.items():
        if isinstance(grade.value, dict):
            yield from ((f"{scorer}.{key}", value) for key, value in grade.value.items())
        else:
            yield scorer, grade.value


def _keep_graders(grades: Sequence[dict[str, list[Any]]]) -> list[str]:
    """Remove scores that are not verdicts, such as F1, and return their names."""
    names = dict.fromkeys(name for by_name in grades for name in by_name)
    removed = [
        name
        for name in names
        if not is_grader(value for by_name in grades for value in by_name.get(name, ()))
    ]
    for by_name in grades:
        for name in removed:
            by_name.pop(name, None)
    return removed


def _text(message: _Turn, sample: _Sample) -> str:
    """Return a message's text without reasoning."""
    parts = message.get("content") or ""
    if isinstance(parts, str):
        parts = [{"type": "text", "text": parts}]
    texts = []
    for part in parts:
        text = part.get("text")
        if part.get("type") == "text" and isinstance(text, str):
            if text.startswith(_ATTACHMENT):
                text = (sample.attachments or {}).get(text.removeprefix(_ATTACHMENT), text)
            texts.append(text)
    return "\n".join(texts)


MAX_MEMBERS = 200_000
"""Maximum number of files in an archive."""
MAX_MEMBER_BYTES = 200_000_000
"""Maximum size of an unpacked sample in bytes."""
MAX_LOG_BYTES = 4_000_000_000
"""Maximum size of all unpacked samples in bytes."""

# The compression method, which Python's zipfile may not know.
_ZSTANDARD = 93


def _archived_samples(
    content: Content, progress: Callable[[float], None] | None, replaced: list[str]
) -> Iterator[tuple[str, Any]]:
    """Yield an archive's samples with their names, and collect repeated names in ``replaced``."""
    with content.stream() as stream:
        yield from _samples_in(content, stream, progress, replaced)


def _samples_in(
    content: Content, stream: IO[bytes], progress: Callable[[float], None] | None, replaced: list[str]
) -> Iterator[tuple[str, Any]]:
    try:
        archive = zipfile.ZipFile(stream)
        members = archive.infolist()
    except DAMAGE as error:
        raise DataError(
            f"{content.name} is not a readable log of inspect_ai: {excerpt(str(error), 200)}"
        ) from None
    if len(members) > MAX_MEMBERS:
        raise DataError(
            f"{content.name} contains {len(members)} files, but at most {MAX_MEMBERS} can be read"
        )
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
        by_part = parts.setdefault(chunk["sample"] if chunk else name.removesuffix(".json"), {})
        part = chunk["part"] if chunk else ""
        in_both_ways = part in ("", _SHELL) and ("" in by_part or _SHELL in by_part)
        replaced += [name] * (part in by_part or in_both_ways)
        by_part[part] = member
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
            files = {part: load(by_part[part]) for part in by_part}
            yield excerpt(name), _joined_sample(files, f"{content.name}, {excerpt(name)}")
        else:
            raise DataError(f"{content.name}, {excerpt(name)}: its file {_SHELL} is missing")


# A file of a sample that is stored in several.
_CHUNK = re.compile(
    r"(?P<sample>samples/.+_epoch_\d+)/"
    r"(?P<part>(?:sample|metadata|skeleton)\.json|(?:messages|events|calls|attachments)/[^/]+\.json)"
)
_READ = re.compile(r"(?:sample|metadata|attachments/(?P<start>\d{1,9}))\.json")
_SHELL = "sample.json"


def _joined_sample(parts: Mapping[str, Any], where: str) -> Any:
    """Join a chunked sample's files: shell, metadata and numbered attachments."""
    sample = parts[_SHELL]
    if not isinstance(sample, dict):
        return sample
    attachments = _object(sample.get("attachments"), where)
    for part, value in parts.items():
        match = _READ.fullmatch(part)
        if match and match["start"] and isinstance(value, list):
            attachments |= {str(index): text for index, text in enumerate(value, int(match["start"]))}
    metadata = _object(sample.get("metadata"), where) | _object(parts.get("metadata.json"), where)
    return {**sample, "metadata": metadata, "attachments": attachments}


def _object(value: Any, where: str) -> dict[str, Any]:
    """Copy an object, with null as an empty one. Raises DataError for other values."""
    if not isinstance(value, dict | None):
        raise DataError(f"{where}: not a sample of inspect_ai: its metadata and attachments must be objects")
    return dict(value or {})


# Bytes of an archived file's header before its name; the last four give the lengths of the name and of what
# follows it.
_HEADER = 30


def _unpacked(name: str, archive: zipfile.ZipFile, stream: IO[bytes], member: zipfile.ZipInfo) -> bytes:
    """Unpack a file of an archive within the size limit."""
    where = f"{name}, {excerpt(member.filename)}"
    limit = min(member.file_size, MAX_MEMBER_BYTES)
    try:
        if member.compress_type == _ZSTANDARD:
            data = _zstandard(stream, member, limit + 1)
        else:
            with archive.open(member) as packed:
                data = packed.read(limit + 1)
    except DAMAGE as error:
        raise DataError(f"{where} cannot be unpacked: {excerpt(str(error), 200)}") from None
    if len(data) > MAX_MEMBER_BYTES:
        raise DataError(f"{where} is larger than {MAX_MEMBER_BYTES:,} bytes unpacked")
    # zipfile checks this only of what it has unpacked itself
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
