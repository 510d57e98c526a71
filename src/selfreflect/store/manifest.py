"""Files of a run directory: its manifest, the records' files, and folders of further judges."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import datetime
from itertools import chain
from pathlib import Path
from typing import Any

from msgspec import convert, field
from msgspec.structs import replace

from selfreflect.atomic import sync_directory, write_bytes
from selfreflect.errors import StoreError, excerpt
from selfreflect.records import (
    RECORD_SETS,
    SCHEMA_VERSION,
    STAGES,
    AnswerSample,
    AnswerSet,
    Controls,
    Failure,
    Information,
    Measurement,
    MergedAnswers,
    Question,
    Record,
    SamplingCheck,
    Score,
    Summary,
    dump_line,
    from_plain,
)
from selfreflect.store.journal import (
    FOLDER,
    Journal,
    PartialAnswers,
    open_regular,
    parse_line,
    refuse_links,
    store_errors,
)
from selfreflect.text import without_credentials

MANIFEST = "manifest.json"

MAX_MANIFEST = 10_000_000
"""Maximum size of a manifest in bytes. This package writes a few thousand."""

_FORMAT = "selfreflect-run"
SCORING_FORMAT = "selfreflect-scoring"

_START_OVER = "To start over in this directory, add {fresh} to the complete run command."

# None is a value of settings
_ABSENT = object()


class Manifest(Record, frozen=True, kw_only=True):
    """Settings, models and prompts of a run. No string in it holds the credentials of a URL."""

    format: str = _FORMAT
    schema_version: int = SCHEMA_VERSION
    config: dict[str, Any] = field(default_factory=dict)
    """Settings by section. A later stage may add its section."""
    models: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Name, revision, dtype, … of each stage's model."""
    packages: dict[str, Any] = field(default_factory=dict)
    prompts: dict[str, str] = field(default_factory=dict)
    """Hashes of the prompts, by stage."""
    prompt_texts: dict[str, dict[str, Any]] = field(default_factory=dict)
    """All prompts, by their hash."""
    finished: dict[str, str] = field(default_factory=dict)
    """Time of each stage's last end, in UTC."""
    sources: dict[str, Any] = field(default_factory=dict)
    """Source of the questions, with the data set's revision."""
    checks: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Checks of the sampling by each stage's server, as :class:`~selfreflect.records.SamplingCheck`."""
    plan: dict[str, list[str]] = field(default_factory=dict)
    """Requested ``strategies`` of the run."""
    asked: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Latest requested settings of stages without a result. They bind nothing, and apply if a command names
    no settings."""
    wall_time: dict[str, float] = field(default_factory=dict)
    """Seconds per stage, over all resumes."""

    def with_scores_of(self, scoring: Manifest) -> Manifest:
        """Replace the facts about scores with the facts of ``scoring``."""
        sections = {}
        for name in ("config", "models", "finished", "wall_time"):
            section = dict(getattr(self, name))
            section.pop("scores", None)
            sections[name] = section | getattr(scoring, name)
        return replace(self, **sections)


def manifest_fields(path: Path, kind: str = _FORMAT) -> dict[str, Any]:
    """Read the manifest of ``path``, written by any version of this package, as plain JSON."""
    try:
        with os.fdopen(open_regular(path / MANIFEST, os.O_RDONLY), "rb") as file:
            if os.fstat(file.fileno()).st_size > MAX_MANIFEST:
                raise StoreError(
                    f"{path / MANIFEST} is larger than {MAX_MANIFEST:,} bytes. Restore it from a backup."
                )
            fields = parse_line(file.read())
    except ValueError as error:
        raise StoreError(
            f"{path / MANIFEST} is damaged ({error}). Restore it from a backup, or use another directory."
        ) from None
    if not isinstance(fields, dict) or fields.get("format") != kind:
        raise StoreError(
            f"{path} is not a run directory: its {MANIFEST} was not written by selfreflect. Use "
            f"another directory."
        )
    return fields


def read_manifest(path: Path, kind: str = _FORMAT) -> Manifest:
    fields = manifest_fields(path, kind)
    version = fields.get("schema_version")
    if version != SCHEMA_VERSION:
        raise StoreError(
            f"{path} was written with schema version {excerpt(version)}, but this selfreflect reads version "
            f"{SCHEMA_VERSION}",
            code="other_version",
            remedy=f"Use the selfreflect that wrote it, or another directory. {_START_OVER}",
        )
    try:
        manifest = from_plain(Manifest, fields)
        for check in manifest.checks.values():
            from_plain(SamplingCheck, check)
        # only what a later stage reads is checked
        stages = {name: manifest.config[name] for name in STAGES if name in manifest.config}
        settings = convert(stages, dict[str, dict[str, Any]])
        convert(settings.get("scores", {}).get("judge", ""), str)
        convert(manifest.sources.get("questions", {}), dict[str, Any])
    except ValueError as error:
        raise StoreError(
            f"{path / MANIFEST}: {error}",
            code="damaged",
            remedy=f"Restore it from a backup, or use another directory. {_START_OVER}",
        ) from None
    return manifest


def merge_settings(
    old: dict[str, Any], new: dict[str, Any], path: Path, advice: str = f"Use another {{out}}. {_START_OVER}"
) -> dict[str, Any]:
    """Merge a run directory's settings with a command's, section by section.

    Raises:
        StoreError: they differ in a section that both have; the message shows each difference.
    """
    differences: list[str] = []
    for section in new:
        if section in old:
            differences += _differences(old[section], new[section], section)
    if differences:
        lines = "\n  ".join(differences)
        raise StoreError(
            f"{path} was created with different settings:\n  {lines}",
            code="other_settings",
            remedy=advice,
        )
    return {**old, **new}


def _differences(old: Any, new: Any, key: str) -> Iterator[str]:
    if isinstance(old, dict) and isinstance(new, dict):
        for name in {**old, **new}:
            yield from _differences(old.get(name, _ABSENT), new.get(name, _ABSENT), f"{key}.{name}")
    elif old != new:
        # escaped as in JSON, since a directory may come from anybody
        yield f"{json.dumps(key)[1:-1]}: {_short_json(old)} -> {_short_json(new)}"


def _short_json(value: Any) -> str:
    if value is _ABSENT:
        return "(absent)"
    text = json.dumps(value)
    return text if len(text) <= 200 else text[:199] + "…"


def plain_settings(value: Mapping[str, Any]) -> dict[str, Any]:
    """Convert ``value`` to comparable JSON without credentials in URLs."""
    # credentials hold no space, and between two strings of JSON there is one
    plain: dict[str, Any] = json.loads(without_credentials(dump_line(dict(value))))
    return plain


LOCK = ".lock"
_JUDGES = "judges"

# Files that a killed process was writing; the first is what earlier versions left.
_UNFINISHED = (".manifest.json.tmp", "manifest.json.*.partial", "questions.jsonl.*.partial")

StoredRecord = (
    Question
    | AnswerSample
    | AnswerSet
    | MergedAnswers
    | Summary
    | Score
    | Information
    | Measurement
    | Controls
    | Failure
)

FILES = tuple(f"{name}.jsonl" for name, _ in RECORD_SETS.values())
"""The record files of a run directory."""

# A later one of these replaces an earlier one with the same key.
_REPLACEABLE = (Failure, Information, Measurement, Controls, MergedAnswers)

SCORED = (Score, Information, Measurement, Controls)
"""Kinds of records kept separately for each judge's scores."""

SCORED_FILES = tuple(f"{RECORD_SETS[kind][0]}.jsonl" for kind in (*SCORED, Failure))
"""Record files of each further judge's scores."""


def journals(path: Path) -> dict[type[Record], Journal[Any]]:
    """Make the journals of a run directory, without reading."""
    return {
        kind: Journal(path / f"{name}.jsonl", kind, key, lambda record: isinstance(record, _REPLACEABLE))
        for kind, (name, key) in RECORD_SETS.items()
    }


def is_of_scoring(record: StoredRecord) -> bool:
    """Check whether a record belongs to one judge's scores."""
    return isinstance(record, SCORED) or (isinstance(record, Failure) and record.stage == "scores")


def scoring_folder(scoring: str) -> Path:
    """Return the folder of a judge's scores within its run directory."""
    return Path(_JUDGES, scoring) if scoring else Path()


def count_records(path: Path) -> dict[str, int]:
    """Count the lines of each kind of record in a directory, over all judges."""
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
    # two backups within one second
    while folder.exists():
        number += 1
        folder = folder.with_name(f"{folder.name.partition('_')[0]}_{number}")
    folder.mkdir()
    return folder


def set_aside(path: Path) -> Path | None:
    """Move all records and a copy of the manifest to a folder that opens as a separate run."""
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
    """Refuse a directory with anything other than a run.

    Files that a run leaves when it is killed in its first moment are allowed.
    """
    leftovers = {path / LOCK, *unfinished_files(path)}
    names = {entry.name for entry in path.iterdir() if entry not in leftovers}
    if MANIFEST in names:
        manifest_fields(path)
    elif names:
        raise StoreError(
            f"{path} is not empty, but is not a run directory (it has no {MANIFEST})",
            code="no_run_directory",
            remedy="Use another {out}.",
        )


def unfinished_files(path: Path) -> list[Path]:
    return list(chain.from_iterable(map(path.glob, _UNFINISHED)))


def record_files(path: Path) -> list[Path]:
    """List the record files of a run directory, including all files of further judges."""
    files = [path / name for name in FILES] + PartialAnswers(path).files
    for folder in scoring_folders(path):
        files += [folder / name for name in (MANIFEST, *FILES)]
    return [file for file in files if file.exists()]


def removable_files(path: Path) -> list[Path]:
    """List :func:`record_files` with derived files first, so that an interrupted removal leaves a consistent
    run."""
    return record_files(path)[::-1]


def scoring_folders(path: Path) -> list[Path]:
    """List the folders in ``judges/``, whether finished or not.

    Raises:
        StoreError: one of them is a link, through which files elsewhere would be moved or written.
    """
    folders: list[Path] = []
    for folder in (path / _JUDGES, *sorted((path / _JUDGES).glob("*"))):
        folders.append(refuse_links(path, folder))
    return folders[1:]


def scored_folders(path: Path) -> list[Path]:
    return [folder for folder in scoring_folders(path) if (folder / MANIFEST).exists()]
