"""Logs of evaluations as rows of items: inspect_ai's (``.eval`` or ``.json``), and lm-eval's samples
(``--log_samples``).

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
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from selfreflect.errors import DataError, MissingExtraError, excerpt
from selfreflect.sources.columns import QUESTION_COLUMNS, metadata
from selfreflect.sources.files import Content, Row, RowFile, is_text_list
from selfreflect.text import counted

MAX_MEMBERS = 200_000
"""Files in an archive."""
MAX_MEMBER_BYTES = 200_000_000
"""Of one sample, unpacked."""
MAX_LOG_BYTES = 4_000_000_000
"""Of all samples, unpacked."""

_DAMAGE = (
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    NotImplementedError,
    RuntimeError,
    OSError,
    ValueError,
)
"""What unpacking a damaged archive may raise."""
_ZSTANDARD = 93
"""The compression method, which Python's zipfile may not know."""
_INSPECT_JSON = re.compile(rb'\s*\{\s*"version"\s*:\s*\d+\s*,\s*"status"\s*:')
_ATTACHMENT = "attachment://"


class _LoggedMessage(msgspec.Struct):
    role: str
    content: str | list[dict[str, Any]] = ""


class _LoggedChoice(msgspec.Struct):
    message: _LoggedMessage
    stop_reason: str = ""


class _Output(msgspec.Struct):
    choices: list[_LoggedChoice] = []


class _Sample(msgspec.Struct):
    """What is read of a sample of inspect_ai."""

    id: str | int
    input: str | list[_LoggedMessage]
    output: _Output = msgspec.field(default_factory=_Output)
    target: str | list[str] = ""
    metadata: dict[str, Any] = {}
    attachments: dict[str, str] = {}
    error: Any = None


def inspect_log(content: Content) -> RowFile | None:
    """Read a log of inspect_ai; None if the content is none.

    Raises:
        DataError: it is damaged, too large, or holds no answers.
        MissingExtraError: an archive is compressed with Zstandard, and pyarrow is not installed.
    """
    if content.suffix == ".eval":
        return _joined_epochs(content.name, _archived_samples(content))
    if content.suffix == ".json" and _INSPECT_JSON.match(content.data[:1000]):
        log = _load(content.data, content.name)
        if isinstance(log, dict) and "eval" in log:
            return _joined_epochs(content.name, _numbered_samples(log.get("samples")))
    return None


def _numbered_samples(samples: Any) -> Iterator[tuple[str, Any]]:
    """Samples of a JSON log with their places."""
    for number, sample in enumerate(samples if isinstance(samples, list) else [], start=1):
        yield f"sample {number}", sample


def _archived_samples(content: Content) -> Iterator[tuple[str, Any]]:
    """The samples in an archive, one at a time, with their names."""
    try:
        archive = zipfile.ZipFile(io.BytesIO(content.data))
        members = archive.infolist()
    except (zipfile.BadZipFile, ValueError, NotImplementedError, OSError) as error:
        raise DataError(
            f"{content.name} is not a readable log of inspect_ai: {excerpt(str(error), 200)}"
        ) from None
    if len(members) > MAX_MEMBERS:
        raise DataError(f"{content.name} holds {len(members)} files; at most {MAX_MEMBERS} are read")
    for member in members:
        _check_name(content, member)
    samples = [one for one in members if one.filename.startswith("samples/") and not one.is_dir()]
    if sum(one.file_size for one in samples) > MAX_LOG_BYTES:
        raise DataError(f"{content.name}: its samples are larger than {MAX_LOG_BYTES:,} bytes unpacked")
    for member in samples:
        where = excerpt(member.filename)
        yield where, _load(_unpacked(content, archive, member), f"{content.name}, {where}")


def _check_name(content: Content, member: zipfile.ZipInfo) -> None:
    """Compare the two names that an archive has of a file, lest a sample with a damaged one be left out."""
    start = member.header_offset + 30
    name = member.orig_filename.encode("utf-8" if member.flag_bits & 0x800 else "cp437")
    length = int.from_bytes(content.data[start - 4 : start - 2], "little")
    if content.data[start : start + length] != name:
        raise DataError(f"{content.name} is damaged: its list of files does not agree with the files")


def _unpacked(content: Content, archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> bytes:
    """The bytes of a file in an archive, never more than it may have."""
    where = f"{content.name}, {excerpt(member.filename)}"
    limit = min(member.file_size, MAX_MEMBER_BYTES)
    try:
        if member.compress_type == _ZSTANDARD:
            data = _zstandard(content.data, member, limit + 1)
        else:
            with archive.open(member) as stream:
                data = stream.read(limit + 1)
    except _DAMAGE as error:
        raise DataError(f"{where} cannot be unpacked: {excerpt(str(error), 200)}") from None
    except (struct.error, EOFError):
        raise DataError(f"{where} cannot be unpacked: the file ends too early") from None
    if len(data) > MAX_MEMBER_BYTES:
        raise DataError(f"{where} is larger than {MAX_MEMBER_BYTES:,} bytes unpacked")
    if len(data) != member.file_size or zlib.crc32(data) != member.CRC:
        raise DataError(f"{where} is damaged: its size or checksum is wrong")
    return data


def _zstandard(data: bytes, member: zipfile.ZipInfo, limit: int) -> bytes:
    try:
        import pyarrow as pa
    except ImportError:
        raise MissingExtraError("reading a log that is compressed with Zstandard", "parquet") from None
    # the local header: 30 bytes, whose last four give the lengths of the name and of what follows it
    name, extra = struct.unpack_from("<HH", data, member.header_offset + 26)
    start = member.header_offset + 30 + name + extra
    packed = data[start : start + member.compress_size]
    with pa.CompressedInputStream(pa.BufferReader(packed), "zstd") as stream:
        return bytes(stream.read(limit))


def _load(data: bytes, where: str) -> Any:
    try:
        return json.loads(data)  # numbers may be NaN in a log
    except RecursionError:
        raise DataError(f"{where}: nested too deeply") from None
    except ValueError as error:
        raise DataError(f"{where} is not JSON: {excerpt(str(error), 200)}") from None


def _joined_epochs(name: str, samples: Iterable[tuple[str, Any]]) -> RowFile:
    """Join the epochs of each sample to a row."""
    rows: dict[str | int, Row] = {}
    failures = cut_off = 0
    for where, value in samples:
        try:
            sample = msgspec.convert(value, _Sample)
        except msgspec.ValidationError as error:
            raise DataError(f"{name}, {where}: not a sample of inspect_ai: {error}") from None
        choices = sample.output.choices
        if sample.error is not None or not choices:
            failures += 1
            continue
        cut_off += sum(choice.stop_reason in ("max_tokens", "model_length") for choice in choices)
        if sample.id not in rows:
            rows[sample.id] = Row(name, where, _inspect_fields(sample))
        rows[sample.id].fields["answers"] += [_text(choice.message, sample) for choice in choices]
    if not rows:
        raise DataError(
            f"{name} holds no samples with answers. Run the evaluation with --epochs, and keep its samples"
        )
    notes = []
    if failures:
        notes.append(f"{counted(failures, 'sample')} without an answer left out")
    if cut_off:
        notes.append(f"{counted(cut_off, 'answer')} cut off at the token limit")
    return RowFile(name, "log of inspect_ai", list(rows.values()), notes, is_log=True)


def _inspect_fields(sample: _Sample) -> dict[str, Any]:
    """The row of a sample. Its question is the last message of the user; earlier messages are context."""
    messages = sample.input
    if isinstance(messages, str):
        messages = [_LoggedMessage("user", messages)]
    *earlier, last = messages or [_LoggedMessage("user")]
    values = {**sample.metadata, "target": sample.target, "sample_id": sample.id}
    return {
        "question": _text(last, sample),
        "context": "\n\n".join(f"{message.role}: {_text(message, sample)}" for message in earlier),
        "answers": [],
        "metadata": metadata(values, values),
    }


def _text(message: _LoggedMessage, sample: _Sample) -> str:
    """The text of a message without its reasoning."""
    parts = message.content
    if isinstance(parts, str):
        parts = [{"type": "text", "text": parts}]
    texts = []
    for part in parts:
        text = part.get("text")
        if part.get("type") == "text" and isinstance(text, str):
            if text.startswith(_ATTACHMENT):
                text = sample.attachments.get(text.removeprefix(_ATTACHMENT), text)
            texts.append(text)
    return "\n".join(texts)


def lm_eval_log(name: str, samples: Iterable[Row]) -> RowFile:
    """Take the repeats of each document of lm-eval's samples as its answers; every filter repeats the same
    documents.

    Raises:
        DataError: they are no generated answers.
    """
    rows: dict[str, Row] = {}
    seen: set[tuple[str, str]] = set()
    for sample in samples:
        # the ids of each task begin at 0, and a file may hold several tasks
        names = ("task_name", "doc_id", "doc_hash" if "doc_hash" in sample.fields else "doc")
        key = repr([sample.fields.get(name) for name in names])
        fields = _lm_eval_fields(sample)
        label = (key, repr(sample.fields.get("filter")))
        if key not in rows:
            rows[key] = sample._replace(fields=fields)
        elif label in seen:  # another run of the task
            rows[key].fields["answers"] = [*rows[key].fields["answers"], *fields["answers"]]
        seen.add(label)
    return RowFile(name, "samples of lm-eval", list(rows.values()), is_log=True)


def _lm_eval_fields(sample: Row) -> dict[str, Any]:
    requests = sample.fields["resps"]
    repeats = requests[0] if isinstance(requests, list) and len(requests) == 1 else None
    if not is_text_list(repeats):
        raise sample.error(
            "its 'resps' are not generated answers (a task of output_type generate_until has them, multiple "
            "choice has likelihoods)"
        )
    doc = sample.fields["doc"]
    values = dict(doc) if isinstance(doc, dict) else {}
    column = next((name for name in QUESTION_COLUMNS if isinstance(values.get(name), str)), "")
    question = values.pop(column, None) or _lm_eval_prompt(sample.fields.get("arguments"))
    values |= {"target": sample.fields.get("target"), "doc_id": sample.fields["doc_id"]}
    return {"question": question, "answers": repeats, "metadata": metadata(values, values)}


def _lm_eval_prompt(arguments: Any) -> Any:
    """The prompt of the first request: ``{"gen_args_0": {"arg_0": …}}``, or a list of lists."""
    for key in ("gen_args_0", "arg_0"):
        if isinstance(arguments, dict):
            arguments = arguments.get(key)
        elif isinstance(arguments, list):
            arguments = next(iter(arguments), None)
    return arguments
