"""Append-only JSONL files of records that survive a kill.

An append returns when its lines are on disk, so a kill costs at most the line being written. Readers skip
that torn line, and opening the file for writing cuts it off. A file may have come from anybody: links, pipes
and devices are never opened.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import stat
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from functools import cached_property
from io import FileIO
from pathlib import Path
from typing import Any, ClassVar, Generic, NoReturn

import msgspec
from msgspec import to_builtins

from selfreflect.atomic import sync_directory, write_bytes
from selfreflect.errors import StoreError, excerpt
from selfreflect.logprobs import LikelyToken
from selfreflect.records import (
    RETRIED,
    AnswerSample,
    Count,
    FailureKind,
    Finish,
    R,
    Record,
    dump_line,
    from_plain,
)

_NO_LOCKS = "This file system has no locks; use an {out} on another file system."
_MAKE_ROOM = "What was written before is kept: free some disk space, then run the same command again."
_PERMISSIONS = "Check its permissions, or use another directory."
_ADVICE = {
    errno.ENOSPC: _MAKE_ROOM,
    errno.EDQUOT: _MAKE_ROOM,
    errno.EFBIG: _MAKE_ROOM,
    errno.EACCES: _PERMISSIONS,
    errno.EPERM: _PERMISSIONS,
    errno.EROFS: _PERMISSIONS,
    errno.ENOLCK: _NO_LOCKS,
    errno.ENOSYS: _NO_LOCKS,
    errno.EOPNOTSUPP: _NO_LOCKS,
    errno.EEXIST: "This is not a directory; use another {out}.",
    errno.ENOTDIR: "A part of this path is not a directory; use another {out}.",
}


class Journal(Generic[R]):
    """A JSONL file with its records by key.

    Args:
        kind: the type of every record.
        key: what identifies a record; each key occurs once.
        replaces: whether a later record with the same key may replace this one.
        durable: whether an append waits for the disk. If not, it survives the end of the process, and may
            not survive that of the machine.
    """

    def __init__(
        self,
        path: Path,
        kind: type[R],
        key: Callable[[R], Any],
        replaces: Callable[[R], bool] = lambda record: False,
        *,
        durable: bool = True,
    ) -> None:
        self.path = path
        self._kind = kind
        self._key = key
        self._replaces = replaces
        self._durable = durable
        self._length = 0
        """Length in bytes up to the last record, after reading."""
        self._ends_open = False
        """Whether the last record lacks its line end, as after some editors."""
        self._file: FileIO | None = None
        self._process = os.getpid()

    @cached_property
    def records(self) -> dict[Any, R]:
        records: dict[Any, R] = {}
        with store_errors(self.path):
            for number, record in self._lines():
                key = self._key(record)
                if key in records and not self._replaces(records[key]):
                    raise StoreError(
                        f"{self.path}, line {number}: there is a second record for {_name(key)}. "
                        f"Delete one of the two."
                    )
                records[key] = record
        return records

    def _lines(self) -> Iterator[tuple[int, R]]:
        """Yield line numbers with records. Bytes are read, since texts may hold U+2028 and other line
        ends.
        """
        self._length = 0
        torn = ""
        if not os.path.lexists(self.path):
            return
        with os.fdopen(open_regular(self.path, os.O_RDONLY), "rb") as file:
            for number, line in enumerate(file, 1):
                if torn:
                    raise StoreError(torn)
                # a line without an end is half a record, or the last one of a file that an editor saved
                is_whole = line.endswith(b"\n")
                try:
                    value = parse_line(line)
                except ValueError as error:
                    torn = (
                        f"{self.path}, line {number} is damaged ({error}). Repair or delete that line; what "
                        "it held is then computed again."
                    )
                    if is_whole and line.strip():  # no kill leaves such a line
                        raise StoreError(torn) from None
                    continue
                try:
                    record = from_plain(self._kind, value)
                except ValueError as error:
                    raise StoreError(
                        f"{self.path}, line {number}: {error}. Correct or delete that line."
                    ) from None
                self._length += len(line)
                self._ends_open = not is_whole
                yield number, record

    def repair(self) -> str:
        """End the file after its last record: cut a torn write, or add a missing line end.

        Returns:
            What was cut off, in a sentence, or nothing.
        """
        refuse_fork(self.path, self._process)
        _ = self.records
        if self._file is None:
            descriptor = open_regular(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND)
            self._file = FileIO(descriptor, "ab")
            if self._durable:
                # a new file's name is on disk only with its directory
                sync_directory(self.path.parent)
        extra = self.path.lstat().st_size - self._length
        # whatever follows the last whole record is the work of a kill, and the next line would continue it
        if extra > 0:
            self._file.truncate(self._length)
        if self._ends_open:
            self._length += self._file.write(b"\n")
            self._ends_open = False
        if extra > 0:
            return f"{self.path}: cut off an unfinished record of {extra} bytes, which a kill or crash left."
        return ""

    def encode(self, records: Sequence[R]) -> tuple[dict[Any, R], bytes]:
        """Index records by key and encode them as lines, without writing them.

        Raises:
            StoreError: a key is stored already, or a line could not be read back.
        """
        added: dict[Any, R] = {}
        lines: list[str] = []
        for record in records:
            key = self._key(record)
            existing = added.get(key, self.records.get(key))
            if existing is not None and not self._replaces(existing):
                raise StoreError(f"{self.path}: {_name(key)} is already stored. Nothing was written.")
            added[key] = record
            # read back before it is written: what is on disk must open again
            try:
                from_plain(self._kind, to_builtins(record))
                lines.append(dump_line(record) + "\n")
            except (TypeError, ValueError) as error:
                raise StoreError(
                    f"{self.path}: the record for {_name(key)} cannot be written: {error}."
                ) from None
        return added, "".join(lines).encode()

    def append_all(self, records: Sequence[R]) -> None:
        """Add records and wait until they are on disk.

        Raises:
            StoreError: a key is stored already or a record could not be read back (nothing is written), or
                the disk refuses.
        """
        if records:
            added, data = self.encode(records)
            with store_errors(self.path):
                self.append(added, data)

    def append(self, added: dict[Any, R], data: bytes) -> None:
        """Write the result of :meth:`encode`; after an error, restore the file's old end."""
        self.repair()
        assert self._file is not None
        try:
            # the system may write less than it was given
            rest = memoryview(data)
            while rest:
                rest = rest[self._file.write(rest) :]
            if self._durable:
                os.fsync(self._file.fileno())
        except BaseException:
            # an interrupt in the middle of a line must not spoil the next one
            with suppress(OSError):
                self.repair()
            raise
        self._length += len(data)
        self.records.update(added)

    def rewrite(self, records: dict[Any, R]) -> None:
        """Replace the whole file atomically with ``records``.

        Raises:
            StoreError: the disk refuses; the file is unchanged.
        """
        refuse_fork(self.path, self._process)
        data = "".join(dump_line(record) + "\n" for record in records.values()).encode()
        with store_errors(self.path):
            write_bytes(self.path, data)
        self.close()  # the open file has no name any more
        self._length = len(data)
        self._ends_open = False
        self.__dict__["records"] = records

    def put(self, record: R) -> None:
        """Add a record in memory only."""
        self.records[self._key(record)] = record

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


def _name(key: str | tuple[str, ...]) -> str:
    return excerpt(key if isinstance(key, str) else " / ".join(key))


def refuse_fork(path: Path, process: int) -> None:
    """Raise StoreError in a fork of the process that opened a file, to avoid conflicting repairs."""
    if process != os.getpid():
        raise StoreError(
            f"{path} was opened by process {process}, and this process ({os.getpid()}) is a fork of it. Only "
            "the process that opened the file may write to it: pass the records to that process."
        )


@contextmanager
def store_errors(path: Path) -> Iterator[None]:
    """Raise system errors as a StoreError with ``path`` and a remedy."""
    try:
        yield
    except OSError as error:
        advice = _ADVICE.get(error.errno or 0, "")
        raise StoreError(f"{path}: {error.strerror or error}", remedy=advice) from error


@contextmanager
def open_locked(directory: Path, journal: Journal[R]) -> Iterator[Journal[R]]:
    """Open a journal of a directory for writing, under the directory's lock.

    Raises:
        StoreError: another process writes to it, the file is damaged, or the system refuses.
    """
    with ExitStack() as stack:
        with store_errors(directory):
            directory.mkdir(parents=True, exist_ok=True)
            stack.callback(os.close, lock(directory / ".lock"))
            stack.callback(journal.close)
            if journal.path.exists():
                journal.repair()
        yield journal


def refuse_links(folder: Path, path: Path) -> Path:
    """Return ``path`` after refusing links below the untrusted ``folder``.

    Raises:
        StoreError: it is a link, or a folder on the way to it is, through which files elsewhere would be
            written.
    """
    for part in (path, *path.parents):
        if part == folder:
            break
        if part.is_symlink():
            raise StoreError(f"{part} is a link. Links in {folder} are not followed; remove it.")
    return path


def open_regular(path: Path, flags: int) -> int:
    """Open a regular file of an untrusted run directory, and return its descriptor.

    Raises:
        StoreError: it is a link, a pipe, a device or a directory.
        OSError: the system refuses.
    """
    refusal = f"{path} is not a regular file. Links and devices are not followed; remove it."
    # without O_NONBLOCK a pipe would wait for somebody at its other end
    flags |= getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    try:
        # links are refused by the system itself, so that nobody can put one there after a check
        descriptor = os.open(path, flags, 0o666)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.EMLINK, errno.ENXIO, errno.EISDIR):
            raise StoreError(refusal) from None
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise StoreError(refusal)
    return descriptor


def parse_line(line: bytes) -> Any:
    """Parse one line of strict JSON.

    Raises:
        ValueError: the line is not UTF-8, or not strict JSON.
    """
    try:
        return msgspec.json.decode(line)
    except (ValueError, RecursionError):
        pass  # it refuses huge numbers and lone surrogates too, and says less
    try:
        return json.loads(line.decode(), parse_constant=_refuse)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not valid JSON")


def lock(path: Path) -> int:
    """Lock a file, and return the descriptor that holds the lock until closed.

    Windows has no such locks; directories are not protected there.

    Raises:
        StoreError: another process holds it.
    """
    descriptor = open_regular(path, os.O_RDWR | os.O_CREAT)
    try:
        if os.name == "posix":
            import fcntl

            # the kernel releases the lock when the process ends, however it ends
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # the next process can say who holds the lock
        os.ftruncate(descriptor, 0)
        os.write(descriptor, str(os.getpid()).encode())
    except BlockingIOError:
        holder = os.read(descriptor, 20).decode("ascii", "replace")
        os.close(descriptor)
        pid = holder if holder.isdecimal() else "unknown"
        raise StoreError(
            f"Another process (pid {pid}) is writing to {path.parent}",
            code="locked",
            remedy="Wait for it, stop it, or use another {out}.",
        ) from None
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


FOLDER = "partial"


class PartialAnswers:
    """The folder ``partial/``, with the answers of unfinished questions. An append survives a kill, but does
    not wait for the disk.

    Args:
        run: the run directory.
    """

    def __init__(self, run: Path) -> None:
        self._folder = run / FOLDER
        self._journals: dict[str, Journal[AnswerSample]] = {}

    @property
    def files(self) -> list[Path]:
        """The existing files. Raises StoreError if the folder is a link."""
        return sorted(self._checked_folder().glob("*.jsonl"))

    def of(self, question: str) -> tuple[AnswerSample, ...]:
        """Read the answers of a question, in the order of completion.

        Each is checked again against the id: another question's file may have been put there.
        """
        if not self._path(question).exists():
            return ()
        samples = self._journal(question).records.values()
        return tuple(sample for sample in samples if sample.question_id == question)

    def append(self, sample: AnswerSample) -> None:
        """Add an answer, replacing any with the same number.

        Raises:
            StoreError: the disk refuses.
        """
        journal = self._journal(sample.question_id)
        if not journal.path.exists():
            with store_errors(self._folder):
                self._folder.mkdir(exist_ok=True)
        journal.append_all([sample])
        journal.close()  # thousands of questions may be open

    def remove(self, questions: Collection[str]) -> None:
        """Delete the answers of finished questions."""
        if not self._checked_folder().exists():
            return
        for question in questions:
            self._journals.pop(question, None)
            path = self._path(question)
            with store_errors(path):
                path.unlink(missing_ok=True)
        with suppress(OSError):  # others are left
            self._folder.rmdir()

    def _journal(self, question: str) -> Journal[AnswerSample]:
        if question not in self._journals:
            self._journals[question] = Journal(
                self._path(question),
                AnswerSample,
                lambda sample: str(sample.index),
                lambda sample: True,
                durable=False,
            )
        return self._journals[question]

    def _path(self, question: str) -> Path:
        """Derive a file name from a question id, which may hold any characters."""
        name = hashlib.sha256(question.encode("utf-8", "surrogatepass")).hexdigest()[:32]
        return self._checked_folder() / f"{name}.jsonl"

    def _checked_folder(self) -> Path:
        """Return the folder. Raises StoreError if it is a link."""
        return refuse_links(self._folder.parent, self._folder)


REPLIES = "replies.jsonl"
"""File of responses in a run directory or ``--out``."""


class ModelReplies(Record, frozen=True, kw_only=True):
    """Unparsed responses of a model to one inquiry."""

    step: str
    request: str
    """Digest of the model, the conversation and the sampling. Responses to any other request are not used."""
    model: str
    texts: tuple[str, ...] = ()
    finishes: tuple[Finish, ...] = ()
    first_tokens: tuple[LikelyToken, ...] = ()
    """Likely tokens at the start of the first text, if requested and available."""
    tokens: Count = 0
    failure: FailureKind | None = None
    message: str = ""

    _rare: ClassVar[tuple[str, ...]] = ("first_tokens",)

    def __post_init__(self) -> None:
        if len(self.texts) != len(self.finishes) or bool(self.texts) == (self.failure is not None):
            raise ValueError(
                "a record must hold either texts, each with the reason why it ended, or a failure"
            )

    @property
    def is_final(self) -> bool:
        """Whether a retry would give the same result."""
        return self.failure not in RETRIED


class RepliesInMemory:
    """Responses kept in memory only."""

    def __init__(self) -> None:
        self.records: dict[str, ModelReplies] = {}

    def append_all(self, records: Sequence[ModelReplies]) -> None:
        """Add responses."""
        for replies in records:
            self.records[replies.request] = replies


def open_replies(directory: Path) -> AbstractContextManager[Journal[ModelReplies]]:
    """Open a directory's responses for writing; see :func:`open_locked`."""
    return open_locked(directory, replies_journal(directory))


def replies_journal(directory: Path) -> Journal[ModelReplies]:
    """Make the journal of a directory's responses, unread."""
    return Journal(
        directory / REPLIES,
        ModelReplies,
        lambda replies: replies.request,
        lambda replies: not replies.is_final,
    )
