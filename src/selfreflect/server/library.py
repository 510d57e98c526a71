"""Run directories under one root."""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import stat
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from selfreflect.errors import SelfReflectError, StoreError
from selfreflect.records import MergedAnswers
from selfreflect.report.results import sorted_strategies
from selfreflect.report.run_records import RunRecords
from selfreflect.run.records import run_records
from selfreflect.server.errors import problem, problem_text, without_paths
from selfreflect.store.journal import store_errors
from selfreflect.store.manifest import FILES, MANIFEST, SCORED_FILES
from selfreflect.store.run import Run

DEPTH = 3
"""Number of directory levels below the root in which to search for runs."""

# Runs whose records stay in memory.
_HELD_RUNS = 2

TITLE = 300
"""Number of characters of the first question in a listing."""


@dataclass(frozen=True)
class RunDirectory:
    """A run directory, found without reading its records."""

    id: str
    name: str
    """Path below the root."""
    path: Path
    files: dict[str, os.stat_result]
    """Existing manifest and record files, including those of further judges, by relative path."""

    @property
    def changed(self) -> float:
        """Time of the last change, in seconds since 1970."""
        return max(status.st_mtime for status in self.files.values())

    @property
    def version(self) -> tuple[tuple[str, int, int], ...]:
        """Version that changes with the records."""
        return tuple((name, status.st_mtime_ns, status.st_size) for name, status in self.files.items())


class Library:
    """Thread-safe library that finds, opens and names run directories."""

    def __init__(self, root: Path) -> None:
        root.mkdir(parents=True, exist_ok=True)
        self.root = root.resolve()
        self._read = lru_cache(_HELD_RUNS)(_read_records)
        self._lock = threading.Lock()

    def listing(self) -> list[RunDirectory]:
        """List the runs under the root, latest first."""
        return sorted(self._search(), key=lambda run: (-run.changed, run.name))

    def begin(self) -> Path:
        """Name a new run directory by the current time."""
        return self.root / f"ask-{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(2)}"

    def id_of(self, path: Path) -> str:
        return _id(path.relative_to(self.root))

    def entry(self, directory: RunDirectory) -> dict[str, Any]:
        """Describe a run for a listing without reading all records."""
        entry = {"id": directory.id, "name": directory.name, "changed": directory.changed}
        entry |= {"question": None, "questions": None, "models": [], "problem": None, "lacks": None}
        try:
            _refuse_special_files(directory)
            manifest = Run.load(directory.path).manifest
            entry["question"], entry["questions"] = _first_and_count(directory)
        except SelfReflectError as error:
            return {**entry, "problem": problem_text(problem(error))}
        facts = [fact for fact in manifest.models.values() if isinstance(fact, dict)]
        models = dict.fromkeys(without_paths(str(fact.get("name", ""))) for fact in facts)
        return {**entry, "models": list(models), "lacks": _first_missing(directory)}

    def directory(self, id_: str) -> RunDirectory:
        """Find a run's directory by id.

        Raises:
            StoreError: the listing has no run of this id (code ``unknown_run``).
            StoreError: the run contains links or special files.
        """
        # searched anew, so that an id never becomes a path
        for directory in self._search():
            if directory.id == id_:
                _refuse_special_files(directory)
                return directory
        raise StoreError("there is no run with this id; choose one from the list of runs", code="unknown_run")

    def records(self, id_: str) -> RunRecords:
        """Read a run with its first judge's scores, best strategy first, cached until it changes.

        Raises:
            StoreError: there is no such run (code ``unknown_run``), or the run is damaged, or contains links
                or special files.
        """
        directory = self.directory(id_)
        with self._lock:
            return self._read(directory.path, directory.name, directory.version)

    def merge_answers(self, id_: str, question: str, texts: Sequence[str]) -> tuple[tuple[str, ...], ...]:
        """Record that answers to a question are equal, and return all merged groups. Without ``texts``,
        delete the groups.
        """
        with Run.open(self.directory(id_).path, {}) as run:
            existing = run.merged.get(question, MergedAnswers(question_id=question)).merged
            # a second click is no second merge
            merged = tuple(dict.fromkeys((*existing, tuple(texts)))) if texts else ()
            run.append(MergedAnswers(question_id=question, merged=merged))
        return merged

    def _search(self) -> Iterator[RunDirectory]:
        """Find runs below the root. Links to directories are not followed, so nothing outside is found."""
        folders = [(self.root, 0)]
        while folders:
            folder, depth = folders.pop()
            try:
                entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
            except OSError:  # deleted in the meantime, or not readable
                continue
            for entry in entries:
                # a link could lead out of the root
                if not entry.is_dir(follow_symlinks=False):
                    continue
                path = Path(entry.path)
                files = _files(path)
                if MANIFEST in files and stat.S_ISREG(files[MANIFEST].st_mode):
                    relative = path.relative_to(self.root)
                    yield RunDirectory(_id(relative), relative.as_posix(), path, files)
                elif depth + 1 < DEPTH:
                    folders.append((path, depth + 1))


def _files(path: Path) -> dict[str, os.stat_result]:
    """List a run's accessible files without following links."""
    names = [MANIFEST, *FILES]
    judges = path / "judges"
    if judges.is_symlink():
        names.append("judges")
    else:
        with suppress(OSError):
            for folder in sorted(entry.name for entry in os.scandir(judges)):
                names.append(f"judges/{folder}")
                names += [f"judges/{folder}/{name}" for name in (MANIFEST, *SCORED_FILES)]
    files = {}
    for name in names:
        with suppress(OSError):
            # lstat, so that a link is seen as one
            status = (path / name).lstat()
            if not stat.S_ISDIR(status.st_mode):
                files[name] = status
    return files


def _refuse_special_files(directory: RunDirectory) -> None:
    """Refuse links, which may lead outside the root, and pipes, which may block."""
    for name, status in directory.files.items():
        if stat.S_ISLNK(status.st_mode):
            raise StoreError(f"the files of run {directory.name!r} are links, which are not followed")
        if not stat.S_ISREG(status.st_mode):
            raise StoreError(f"{name} of run {directory.name!r} is not an ordinary file, so it is not read")


def _read_records(path: Path, label: str, version: object) -> RunRecords:
    """Read a run, cached by ``version``."""
    return sorted_strategies(run_records(Run.load(path), label))


def _first_and_count(directory: RunDirectory) -> tuple[str | None, int]:
    """Read the first question, and count all questions."""
    name = "questions.jsonl"
    if name not in directory.files:
        return None, 0
    path = directory.path / name
    with store_errors(path), path.open("rb") as file:
        # a line without its end is still being written
        lines = (line for line in file if line.endswith(b"\n"))
        first = next(lines, None)
        return (None, 0) if first is None else (_question_text(first), 1 + sum(1 for _ in lines))


def _first_missing(directory: RunDirectory) -> str | None:
    """Find the first stage without records in a run."""
    names = {name for name, status in directory.files.items() if status.st_size}
    for stage in ("answers", "summaries"):
        if f"{stage}.jsonl" not in names:
            return stage
    is_scored = any(name.endswith(("scores.jsonl", "information.jsonl")) for name in names)
    return None if is_scored else "scores"


def _question_text(line: bytes) -> str | None:
    try:
        return str(json.loads(line)["text"])[:TITLE]
    except (ValueError, LookupError, TypeError, RecursionError):
        return None


def _id(relative: Path) -> str:
    # names of folders need not be text
    return hashlib.sha256(os.fsencode(relative.as_posix())).hexdigest()[:16]
