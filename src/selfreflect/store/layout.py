"""The files of a run directory: which record is where, and the folders of further scorings."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from datetime import datetime
from itertools import chain
from pathlib import Path
from typing import Any

from selfreflect.atomic import sync_directory, write_bytes
from selfreflect.errors import StoreError
from selfreflect.records import (
    AnswerSample,
    AnswerSet,
    Controls,
    Failure,
    Information,
    Measurement,
    Question,
    Record,
    Score,
    Summary,
)
from selfreflect.store.journal import Journal, open_regular, refuse_links, store_errors
from selfreflect.store.manifest import MANIFEST, manifest_fields
from selfreflect.store.partial import FOLDER, PartialAnswers

LOCK = ".lock"
_JUDGES = "judges"

_UNFINISHED = (".manifest.json.tmp", "manifest.json.*.partial", "questions.jsonl.*.partial")
"""Files that a killed process was writing; the first is what earlier versions left."""

StoredRecord = (
    Question | AnswerSample | AnswerSet | Summary | Score | Information | Measurement | Controls | Failure
)

_LAYOUT: dict[type[Record], tuple[str, Callable[[Any], Any]]] = {
    Question: ("questions.jsonl", lambda record: record.id),
    AnswerSet: ("answers.jsonl", lambda record: record.question_id),
    Summary: ("summaries.jsonl", lambda record: (record.question_id, record.name)),
    Score: ("scores.jsonl", lambda record: (record.question_id, record.summary)),
    Information: ("information.jsonl", lambda record: (record.question_id, record.summary)),
    Measurement: ("measurements.jsonl", lambda record: (record.measure, record.question_id, record.summary)),
    Controls: ("controls.jsonl", lambda record: record.question_id),
    Failure: ("failures.jsonl", lambda record: (record.stage, record.question_id, record.name)),
}
"""File and key of each kind of record."""

FILES = tuple(name for name, _ in _LAYOUT.values())
"""The record files of a run directory."""

_REPLACEABLE = (Failure, Information, Measurement, Controls)
"""A later one of these replaces an earlier one with the same key."""

SCORED = (Score, Information, Measurement, Controls)
"""Kinds of which each scoring has its own."""

SCORED_FILES = tuple(_LAYOUT[kind][0] for kind in (*SCORED, Failure))
"""The record files of each further scoring."""

LONG_FIELDS: dict[type[Record], frozenset[str]] = {
    AnswerSet: frozenset({"masked_out", "conditioning", "logprobs"}),
    Score: frozenset({"answer_means", "words"}),
    Information: frozenset({"answers"}),
}
"""Lists that ``load(detail=False)`` skips."""


def journals(
    path: Path, skip: Mapping[type[Record], Collection[str]] | None = None
) -> dict[type[Record], Journal[Any]]:
    """The record files of a run directory, unread; fields in ``skip`` are read as empty lists."""
    files: dict[type[Record], Journal[Any]] = {}
    for kind, (name, key) in _LAYOUT.items():
        skipped = skip.get(kind, ()) if skip else ()
        files[kind] = Journal(
            path / name, kind, key, lambda record: isinstance(record, _REPLACEABLE), skipped
        )
    return files


def is_of_scoring(record: StoredRecord) -> bool:
    """Whether each scoring has records like this of its own."""
    return isinstance(record, SCORED) or (isinstance(record, Failure) and record.stage == "scores")


def scoring_folder(scoring: str) -> Path:
    """The folder of a scoring, within its run directory."""
    return Path(_JUDGES, scoring) if scoring else Path()


def all_journals(
    path: Path, skip: Mapping[type[Record], Collection[str]]
) -> Iterator[tuple[str, Journal[Any]]]:
    """The record files of a run directory, unread, each with the name of its scoring."""
    for scoring in ("", *(folder.name for folder in scored_folders(path))):
        for journal in journals(path / scoring_folder(scoring), skip).values():
            yield scoring, journal


def count_records(path: Path) -> dict[str, int]:
    """How many lines there are of each kind of record that a directory holds, over all scorings."""
    counts: Counter[str] = Counter()
    for file in record_files(path):
        if file.name != MANIFEST and file.parent != path / FOLDER:
            with store_errors(file), os.fdopen(open_regular(file, os.O_RDONLY), "rb") as lines:
                counts[file.stem] += sum(1 for _ in lines)
    return +counts


def backup_folder(path: Path) -> Path:
    """Make a new folder ``backup-TIME`` in a directory."""
    folder = path / f"backup-{datetime.now():%Y%m%d-%H%M%S}"
    number = 1
    while folder.exists():
        number += 1
        folder = folder.with_name(f"{folder.name.partition('_')[0]}_{number}")
    folder.mkdir()
    return folder


def set_aside(path: Path) -> Path | None:
    """Move all records, with a copy of their manifest, to a folder that opens as a run of its own."""
    files = removable_files(path)
    if not files:
        return None
    folder = backup_folder(path)
    if (path / MANIFEST).exists():  # which stays until the new one replaces it
        write_bytes(folder / MANIFEST, (path / MANIFEST).read_bytes())
    for file in files:
        target = folder / file.relative_to(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        file.rename(target)
        sync_directory(target.parent)
    return folder


def check_run_directory(path: Path) -> None:
    """Refuse a directory that holds anything but a run.

    Files that a run leaves when it is killed in its first moment are allowed.
    """
    others = {path / LOCK, *unfinished_files(path)}
    names = {entry.name for entry in path.iterdir() if entry not in others}
    if MANIFEST in names:
        manifest_fields(path)
    elif names:
        raise StoreError(
            f"{path} is not empty and not a run directory (it has no {MANIFEST}). Use another --out."
        )


def unfinished_files(path: Path) -> list[Path]:
    return list(chain.from_iterable(map(path.glob, _UNFINISHED)))


def record_files(path: Path) -> list[Path]:
    """The record files in a run directory, and all files of its further scorings."""
    files = [path / name for name in FILES] + PartialAnswers(path).files
    for folder in scoring_folders(path):
        files += [folder / name for name in (MANIFEST, *FILES)]
    return [file for file in files if file.exists()]


def removable_files(path: Path) -> list[Path]:
    """:func:`record_files`, what was made from others before these: when some are gone, those that are left
    still belong together, and nothing new can be made beside what was made from something else."""
    return record_files(path)[::-1]


def scoring_folders(path: Path) -> list[Path]:
    """The folders in ``judges/``, finished or not.

    Raises:
        StoreError: one of them is a link, through which files elsewhere would be moved or written.
    """
    folders: list[Path] = []
    for folder in (path / _JUDGES, *sorted((path / _JUDGES).glob("*"))):
        folders.append(refuse_links(path, folder))
    return folders[1:]


def scored_folders(path: Path) -> list[Path]:
    return [folder for folder in scoring_folders(path) if (folder / MANIFEST).exists()]
