"""The run directories under one root. A run is opened by an id from the listing, never by a path that a
client sends."""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import stat
import threading
import time
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from selfreflect.errors import StoreError
from selfreflect.pipeline.experiment import run_records
from selfreflect.records import AnswerSet
from selfreflect.report.overview import RunRecords
from selfreflect.store.journal import store_errors
from selfreflect.store.run import MANIFEST, Run

DEPTH = 3
"""How far below the root runs are looked for."""

_SEEN = 20_000
"""Directory entries that one search looks at, which bounds a listing."""

_LARGEST = 400_000_000
"""Bytes of records that are read into memory for the page."""

_LINE = 100_000
_COUNTED = 50_000_000
"""Bytes of a first question, and of all questions, that a listing reads."""

_HELD = 2
"""Runs whose records are kept in memory."""

FILES = (MANIFEST, "questions.jsonl", "answers.jsonl", "summaries.jsonl", "scores.jsonl", "failures.jsonl")


class UnknownRunError(StoreError):
    """No run under the root has this id."""


@dataclass(frozen=True)
class RunDirectory:
    """A run directory, by what can be told without reading its records."""

    id: str
    name: str
    """Its path below the root."""
    path: Path
    changed: float


class Library:
    """Finds, opens and begins run directories. Any number of threads may use it."""

    def __init__(self, root: Path) -> None:
        root.mkdir(parents=True, exist_ok=True)
        self.root = root.resolve()
        self._held: OrderedDict[tuple[str, tuple[tuple[int, int], ...]], RunRecords] = OrderedDict()
        self._lock = threading.Lock()

    def listing(self) -> list[RunDirectory]:
        """The runs under the root, the latest first."""
        return sorted(self._search(), key=lambda run: (-run.changed, run.name))

    def begin(self, kind: str) -> Path:
        """A new directory for a run, named by the time."""
        name = f"{kind}-{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(2)}"
        return self.root / name

    def id_of(self, path: Path) -> str:
        return _id(path.relative_to(self.root))

    def find(self, id_: str) -> RunDirectory:
        """The run of that id.

        Raises:
            UnknownRunError: the listing has none.
            StoreError: its files are links to somewhere else, or no files.
        """
        for found in self._search():
            if found.id == id_:
                _refuse_odd_files(found)
                return found
        raise UnknownRunError("there is no run of that id; the list shows those that are there")

    def glance(self, found: RunDirectory) -> tuple[str | None, int | None, list[str]]:
        """The first question, cut; how many there are; and the models. Reads no more than it must: a run may
        be large.

        Raises:
            StoreError: the run is damaged, of another version, or made of anything but ordinary files.
        """
        _refuse_odd_files(found)
        manifest = Run.load(found.path).manifest
        names = [str(facts.get("name", "")) for facts in manifest.models.values() if isinstance(facts, dict)]
        first, count = None, 0
        with (
            store_errors(found.path),
            suppress(FileNotFoundError),
            (found.path / "questions.jsonl").open("rb") as file,
        ):
            line = file.readline(_LINE)
            if line.endswith(b"\n"):
                first, count = _question(line), 1
            for block in iter(lambda: file.read(1 << 20), b""):
                if file.tell() > _COUNTED:
                    return first, None, list(dict.fromkeys(names))
                count += block.count(b"\n")
        return first, count, list(dict.fromkeys(names))

    def records(self, id_: str) -> RunRecords:
        """What is in a run, read again only when it has changed.

        Raises:
            StoreError: there is no such run, it is damaged, or too large for a page.
        """
        found = self.find(id_)
        stats = [_stat(found.path / name) for name in FILES]
        if sum(size for _, size in stats) > _LARGEST:
            raise StoreError(
                f"run {found.name!r} is too large to be opened here; make a page of it with: selfreflect report"
            )
        key = (id_, tuple(stats))
        with self._lock:
            if key not in self._held:
                self._held[key] = run_records(Run.load(found.path), found.name)
            self._held.move_to_end(key)
            while len(self._held) > _HELD:
                self._held.popitem(last=False)
            return self._held[key]

    def _search(self) -> Iterator[RunDirectory]:
        """Runs below the root. Links to directories are not followed, so nothing outside is found."""
        seen = 0
        waiting = [(self.root, 0)]
        while waiting:
            folder, depth = waiting.pop()
            try:
                entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
            except OSError:  # gone, or not ours to read
                continue
            for entry in entries:
                seen += 1
                if seen > _SEEN:
                    return
                if not entry.is_dir(follow_symlinks=False):
                    continue
                path = Path(entry.path)
                if stat.S_ISREG(_mode(path / MANIFEST)):
                    relative = path.relative_to(self.root)
                    yield RunDirectory(_id(relative), relative.as_posix(), path, _changed(path))
                elif depth + 1 < DEPTH:
                    waiting.append((path, depth + 1))


def models(records: RunRecords) -> list[str]:
    """The models whose answers are in a run."""
    return list(
        dict.fromkeys(
            answers.model
            for answers in records.answers.values()
            if isinstance(answers, AnswerSet) and answers.model
        )
    )


def _refuse_odd_files(found: RunDirectory) -> None:
    """A link may lead anywhere, and reading a pipe may wait for ever."""
    for name in FILES:
        mode = _mode(found.path / name)
        if stat.S_ISLNK(mode):
            raise StoreError(f"the files of run {found.name!r} are links, which are not followed")
        if mode and not stat.S_ISREG(mode):
            raise StoreError(f"{name} of run {found.name!r} is not an ordinary file, and is not read")


def _mode(path: Path) -> int:
    """What sort of file it is, links not followed; 0 where there is none or it is not ours to know."""
    try:
        return path.lstat().st_mode
    except OSError:
        return 0


def _question(line: bytes) -> str | None:
    try:
        return str(json.loads(line)["text"])[:300]
    except (ValueError, LookupError, TypeError, RecursionError):
        return None


def _id(relative: Path) -> str:
    return hashlib.sha256(os.fsencode(relative.as_posix())).hexdigest()[:16]


def _stat(path: Path) -> tuple[int, int]:
    try:
        found = path.stat()
    except OSError:
        return 0, 0
    return found.st_mtime_ns, found.st_size


def _changed(path: Path) -> float:
    return max(_stat(path / name)[0] for name in FILES) / 1e9
