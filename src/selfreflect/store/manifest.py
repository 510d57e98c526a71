"""The manifest of a run directory: what the run was made with, and how two of them are compared."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from msgspec import convert, field
from msgspec.structs import replace

from selfreflect.errors import StoreError, excerpt
from selfreflect.records import SCHEMA_VERSION, STAGES, Record, SamplingCheck, dump_line, from_plain
from selfreflect.store.journal import open_regular, parse_line
from selfreflect.text import without_credentials

MANIFEST = "manifest.json"

MAX_MANIFEST = 10_000_000
"""Bytes of a manifest that is read. One that this package wrote has some thousands."""

_FORMAT = "selfreflect-run"
SCORING_FORMAT = "selfreflect-scoring"

_START_OVER = "To start over in this one, add --fresh to the whole command of a run"

_ABSENT = object()


class Manifest(Record, frozen=True, kw_only=True):
    """What a run was made with. No string in it holds the credentials of a URL."""

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
    """When each stage last ended, in UTC."""
    sources: dict[str, Any] = field(default_factory=dict)
    """Where the questions came from, with the revision of the data set."""
    checks: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Of each stage with a server: whether that samples, a :class:`~selfreflect.records.SamplingCheck`."""
    plan: dict[str, list[str]] = field(default_factory=dict)
    """What the run was asked for: ``strategies``."""
    asked: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Settings that stages without a result were last asked for. They bind nothing: a command that names
    none takes these."""
    wall_time: dict[str, float] = field(default_factory=dict)
    """Seconds per stage, added up over all resumes."""

    def with_scores_of(self, other: Manifest) -> Manifest:
        """Say of scores what ``other`` says, and nothing else."""
        sections = {}
        for name in ("config", "models", "finished", "wall_time"):
            section = dict(getattr(self, name))
            section.pop("scores", None)
            sections[name] = section | getattr(other, name)
        return replace(self, **sections)


def manifest_fields(path: Path, kind: str = _FORMAT) -> dict[str, Any]:
    """The manifest of ``path`` as plain JSON, written by any version of this package."""
    try:
        with os.fdopen(open_regular(path / MANIFEST, os.O_RDONLY), "rb") as file:
            if os.fstat(file.fileno()).st_size > MAX_MANIFEST:
                raise StoreError(f"{path / MANIFEST} has more than {MAX_MANIFEST:,} bytes. Restore it.")
            fields = parse_line(file.read())
    except ValueError as error:
        raise StoreError(
            f"{path / MANIFEST} is damaged ({error}). Restore it, or use another directory."
        ) from None
    if not isinstance(fields, dict) or fields.get("format") != kind:
        raise StoreError(
            f"{path} is not a run directory: its {MANIFEST} was not written by selfreflect. Use another one."
        )
    return fields


def read_manifest(path: Path, kind: str = _FORMAT) -> Manifest:
    fields = manifest_fields(path, kind)
    version = fields.get("schema_version")
    if version != SCHEMA_VERSION:
        raise StoreError(
            f"{path} was written with schema version {excerpt(version)}, and this selfreflect reads "
            f"version {SCHEMA_VERSION}. Use the selfreflect that wrote it, or another directory. "
            f"{_START_OVER}"
        )
    try:
        manifest = from_plain(Manifest, fields)
        for check in manifest.checks.values():
            from_plain(SamplingCheck, check)
        stages = {name: manifest.config[name] for name in STAGES if name in manifest.config}
        settings = convert(stages, dict[str, dict[str, Any]])
        convert(settings.get("scores", {}).get("judge", ""), str)
        convert(manifest.sources.get("questions", {}), dict[str, Any])
    except ValueError as error:
        raise StoreError(
            f"{path / MANIFEST}: {error}. Restore it, or use another directory. {_START_OVER}"
        ) from None
    return manifest


def merge_settings(
    old: dict[str, Any], new: dict[str, Any], path: Path, advice: str = f"Use another --out. {_START_OVER}"
) -> dict[str, Any]:
    """All sections of both.

    Raises:
        StoreError: they differ in a section that both have; the message shows each difference.
    """
    differences: list[str] = []
    for section in new:
        if section in old:
            differences += _differences(old[section], new[section], section)
    if differences:
        lines = "\n  ".join(differences)
        raise StoreError(f"{path} was created with different settings:\n  {lines}\n{advice}")
    return {**old, **new}


def _differences(old: Any, new: Any, key: str) -> Iterator[str]:
    if isinstance(old, dict) and isinstance(new, dict):
        for name in {**old, **new}:
            yield from _differences(old.get(name, _ABSENT), new.get(name, _ABSENT), f"{key}.{name}")
    elif old != new:
        yield f"{json.dumps(key)[1:-1]}: {_short_json(old)} -> {_short_json(new)}"


def _short_json(value: Any) -> str:
    if value is _ABSENT:
        return "(absent)"
    text = json.dumps(value)
    return text if len(text) <= 200 else text[:199] + "…"


def plain_settings(value: Mapping[str, Any]) -> dict[str, Any]:
    """``value`` as JSON reads it back, so that it compares equal, without credentials in URLs."""
    # credentials hold no space, and between two strings of JSON there is one
    plain: dict[str, Any] = json.loads(without_credentials(dump_line(dict(value))))
    return plain
