"""The run directory: ``manifest.json`` and one append-only JSONL file per stage, keyed by (question id,
name).

One process writes at a time, under a lock that the kernel releases when the process dies; any number may
read. ``append`` returns when its line is on disk, so a killed run loses at most the line it was writing: that
torn line is cut off when the run is opened again.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Self

from msgspec import field

from selfreflect.errors import MissingExtraError, StoreError, excerpt
from selfreflect.records import (
    SCHEMA_VERSION,
    STAGES,
    AnswerSet,
    Failure,
    Question,
    Record,
    Score,
    Stage,
    Summary,
    dump_line,
    from_plain,
)
from selfreflect.store.journal import Journal, explained, lock, parsed_line, sync_directory
from selfreflect.text import without_credentials

if TYPE_CHECKING:
    import pandas as pd

MANIFEST = "manifest.json"
_TEMPORARY = ".manifest.json.tmp"
_LOCK = ".lock"
_FORMAT = "selfreflect-run"

Stored = Question | AnswerSet | Summary | Score | Failure
_Section = Mapping[str, Any] | None

_LAYOUT: dict[type[Record], tuple[str, Callable[[Any], Any]]] = {
    Question: ("questions.jsonl", lambda record: record.id),
    AnswerSet: ("answers.jsonl", lambda record: record.question_id),
    Summary: ("summaries.jsonl", lambda record: (record.question_id, record.name)),
    Score: ("scores.jsonl", lambda record: (record.question_id, record.summary)),
    Failure: ("failures.jsonl", lambda record: (record.stage, record.question_id, record.name)),
}
"""The file of each kind of record and its key. A later failure replaces an earlier one of the same key."""

_DETAIL: dict[type[Record], frozenset[str]] = {
    AnswerSet: frozenset({"masked_out", "conditioning"}),
    Score: frozenset({"answer_means", "words"}),
}
"""Long lists, which tables do without."""

_ABSENT = object()


class Manifest(Record, frozen=True, kw_only=True):
    """What a run was made with. No string in it holds the credentials of a URL."""

    format: str = _FORMAT
    schema_version: int = SCHEMA_VERSION
    config: dict[str, Any] = field(default_factory=dict)
    """The settings, by section; a stage may bring its own section later, but a section never changes."""
    models: dict[str, Any] = field(default_factory=dict)
    """Name, revision, dtype, … of each model, by its part in the run (``"generator"``, ``"judge"``)."""
    packages: dict[str, Any] = field(default_factory=dict)
    prompts: dict[str, Any] = field(default_factory=dict)
    """Hashes of the prompts, by strategy or stage."""
    sources: dict[str, Any] = field(default_factory=dict)
    """Where the questions came from, with the revision of the data set."""
    wall_time: dict[str, float] = field(default_factory=dict)
    """Seconds per stage, added up over all resumes."""


class Run:
    """A run directory, for writing (:meth:`open`) or for reading (:meth:`load`). A context manager; one
    thread at a time."""

    def __init__(
        self, path: Path, manifest: Manifest, resources: ExitStack | None = None, *, detail: bool = True
    ) -> None:
        self.path = path
        self.manifest = manifest
        self._resources = resources
        """What to release at the end; None when nothing may be written (any more)."""
        self._tables = journals(path) if detail else journals(path, _DETAIL)

    @classmethod
    def open(cls, path: str | Path, config: Mapping[str, Any], *, fresh: bool = False) -> Self:
        """Create or resume a run directory for writing; ``fresh`` deletes the records that are there, and
        nothing else.

        ``config`` holds plain values by section. Sections that the directory knows must be equal; new ones
        are added to its manifest.

        Raises:
            StoreError: another process is writing, ``config`` differs, a file is damaged, or the directory is
                not ours or not writable.
        """
        path, wanted = Path(path), _plain(config)
        with explained(path), ExitStack() as stack:
            path.mkdir(parents=True, exist_ok=True)
            check_ours(path)
            stack.callback(os.close, lock(path / _LOCK))
            if fresh:
                for name, _ in _LAYOUT.values():
                    (path / name).unlink(missing_ok=True)
            new = fresh or not (path / MANIFEST).exists()
            run = cls(path, Manifest() if new else _read_manifest(path), stack)
            joined = joined_settings(run.manifest.config, wanted, path)
            for table in run._tables.values():
                if table.path.exists():
                    table.cut()
                stack.callback(table.close)
            if new or joined != run.manifest.config:
                run._replace_manifest(config=joined)
            run._resources = stack.pop_all()
        return run

    @classmethod
    def load(cls, path: str | Path, *, detail: bool = True) -> Self:
        """Open a run directory for reading: nothing is locked, repaired or written, and a torn last line is
        passed over.

        Without ``detail``, answer sets come without their answers and scores without what was found of single
        ones, which is most of a run directory.

        Raises:
            StoreError: there is no run directory, or it was written by another version. Damaged files raise
                it when they are first read.
        """
        path = Path(path)
        with explained(path):
            if not path.is_dir():
                raise StoreError(
                    f"There is no run directory {path}. Make one with: selfreflect run --out DIR"
                )
            if not (path / MANIFEST).exists():
                raise StoreError(
                    f"{path} is not a run directory: it has no {MANIFEST}. Make one with: selfreflect run --out DIR"
                )
            return cls(path, _read_manifest(path), detail=detail)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Release the lock. What was appended can still be read from this object."""
        if self._resources is not None:
            self._resources.close()
            self._resources = None

    @property
    def questions(self) -> dict[str, Question]:
        """By id, in the order in which they were appended (as all of these)."""
        return self._tables[Question].records

    @property
    def answers(self) -> dict[str, AnswerSet]:
        """By question id."""
        return self._tables[AnswerSet].records

    @property
    def summaries(self) -> dict[tuple[str, str], Summary]:
        """By question id and name."""
        return self._tables[Summary].records

    @property
    def scores(self) -> dict[tuple[str, str], Score]:
        """By question id and name of the summary."""
        return self._tables[Score].records

    @property
    def failures(self) -> list[Failure]:
        """The failures that still stand: the last one of each (stage, question, name) whose record has not
        been made since."""
        made: dict[str, Mapping[Any, Record]] = {"questions": self.questions, "answers": self.answers}
        made |= {"summaries": self.summaries, "scores": self.scores}
        failures: dict[tuple[Stage, str, str], Failure] = self._tables[Failure].records
        return [
            failure
            for (stage, question, name), failure in failures.items()
            if (question if stage in ("questions", "answers") else (question, name)) not in made[stage]
        ]

    def append(self, record: Stored) -> None:
        """Add one record to its file; it is on disk when this returns. Raises as :meth:`append_all`."""
        self.append_all([record])

    def append_all(self, records: Iterable[Stored]) -> None:
        """Add records with one write and one sync for each file concerned.

        Raises:
            StoreError: a key is stored already or the run was opened for reading (nothing is written), or the
                disk refuses.
        """
        self._check_writable()
        groups: dict[type[Record], list[Stored]] = {}
        for record in records:
            groups.setdefault(type(record), []).append(record)
        encoded = [(self._tables[kind], self._tables[kind].encode(group)) for kind, group in groups.items()]
        for table, (added, data) in encoded:
            with explained(table.path):
                table.append(added, data)

    def update_manifest(
        self,
        *,
        models: _Section = None,
        packages: _Section = None,
        prompts: _Section = None,
        sources: _Section = None,
        wall_time: Mapping[str, float] | None = None,
    ) -> None:
        """Add entries to sections of the manifest, replacing those of the same name; seconds of ``wall_time``
        add up instead.

        Raises:
            StoreError: the run was opened for reading, or the disk refuses.
        """
        given = {"models": models, "packages": packages, "prompts": prompts, "sources": sources}
        changed = {
            name: {**getattr(self.manifest, name), **_plain(values)}
            for name, values in given.items()
            if values is not None
        }
        times = self.manifest.wall_time
        changed["wall_time"] = {
            **times,
            **{stage: times.get(stage, 0.0) + spent for stage, spent in (wall_time or {}).items()},
        }
        self._replace_manifest(**changed)

    def to_pandas(self) -> pd.DataFrame:
        """One row for each question and strategy: the score, or the failure that prevented it; missing
        numbers are ``pandas.NA``.

        Raises:
            MissingExtraError: pandas is not installed.
        """
        try:
            import pandas as pd
        except ImportError:
            raise MissingExtraError("A data frame of the scores", "pandas") from None
        columns = [
            "question_id",
            "question",
            "kind",
            "strategy",
            "summary",
            "score",
            "stderr",
            "token_tasks",
            "judge",
        ]
        frame = pd.DataFrame(
            list(self._rows()), columns=[*columns, "failure", "failure_message"], dtype=object
        )
        return frame.astype({"score": "Float64", "stderr": "Float64", "token_tasks": "Int64"})

    def _rows(self) -> Iterator[tuple[Any, ...]]:
        """The rows of the data frame. A failure of a whole question, such as missing answers, is shown for
        each of its strategies."""
        failures: dict[tuple[str, str], Failure] = {}
        for failure in sorted(self.failures, key=lambda failure: STAGES.index(failure.stage)):
            name = failure.name if failure.stage in ("summaries", "scores") else ""
            failures.setdefault((failure.question_id, name), failure)
        strategies = dict.fromkeys(name for _, name in (*self.summaries, *self.scores, *failures) if name)
        for key, question in self.questions.items():
            for strategy in strategies:
                summary = self.summaries.get((key, strategy))
                score = self.scores.get((key, strategy))
                row = (key, question.text, question.kind, strategy, summary and summary.text)
                reason = failures.get((key, "")) or failures.get((key, strategy))
                if score is not None:
                    yield *row, score.value, score.stderr, score.token_tasks, score.judge, None, None
                else:
                    yield *row, None, None, None, None, reason and reason.kind, reason and reason.message

    def _check_writable(self) -> None:
        if self._resources is None:
            raise StoreError(f"{self.path} is not open for writing. Open it with Run.open.")

    def _replace_manifest(self, **changed: Any) -> None:
        """Write the manifest with ``changed`` fields, so that a reader sees the old or the new one, never a
        part."""
        self._check_writable()
        manifest = Manifest(
            **{name: changed.get(name, getattr(self.manifest, name)) for name in Manifest.__struct_fields__}
        )
        text = json.dumps(json.loads(dump_line(manifest)), indent=2) + "\n"
        temporary = self.path / _TEMPORARY
        with explained(self.path / MANIFEST):
            try:
                with temporary.open("w", encoding="ascii") as file:
                    file.write(text)
                    file.flush()
                    os.fsync(file.fileno())
                temporary.replace(self.path / MANIFEST)
            except OSError:
                with suppress(OSError):
                    temporary.unlink(missing_ok=True)
                raise
            sync_directory(self.path)
        self.manifest = manifest


def journals(
    path: Path, blanked: Mapping[type[Record], Collection[str]] = MappingProxyType({})
) -> dict[type[Record], Journal[Any]]:
    """The files of a run directory, unread; fields in ``blanked`` will come back empty."""
    return {
        kind: Journal(
            path / name, kind, key, lambda record: isinstance(record, Failure), blanked.get(kind, ())
        )
        for kind, (name, key) in _LAYOUT.items()
    }


def check_ours(path: Path) -> None:
    """Refuse a directory with something in it that is not a run's; files left by a run killed in its first
    moment do not count."""
    names = {entry.name for entry in path.iterdir()} - {_LOCK, _TEMPORARY}
    if MANIFEST in names:
        _manifest_fields(path)
    elif names:
        raise StoreError(
            f"{path} is not empty and not a run directory (it has no {MANIFEST}). Use another --out."
        )


def _manifest_fields(path: Path) -> dict[str, Any]:
    """The manifest of ``path`` as plain JSON. Raises StoreError unless this package wrote it, in whatever
    version."""
    try:
        fields = parsed_line((path / MANIFEST).read_bytes() + b"\n")
    except ValueError as error:
        raise StoreError(
            f"{path / MANIFEST} is damaged ({error}). Restore it, or use another --out."
        ) from None
    if not isinstance(fields, dict) or fields.get("format") != _FORMAT:
        raise StoreError(
            f"{path} is not a run directory: its {MANIFEST} was not written by selfreflect. Use another --out."
        )
    return fields


def _read_manifest(path: Path) -> Manifest:
    fields = _manifest_fields(path)
    version = fields.get("schema_version")
    if version != SCHEMA_VERSION:
        raise StoreError(
            f"{path} was written with schema version {excerpt(version)}, and this selfreflect reads version {SCHEMA_VERSION}. "
            "Use the selfreflect that wrote it, another --out, or --fresh."
        )
    try:
        return from_plain(Manifest, fields)
    except ValueError as error:
        raise StoreError(
            f"{path / MANIFEST}: {error}. Restore it, or use another --out or --fresh."
        ) from None


def joined_settings(
    old: dict[str, Any], new: dict[str, Any], path: Path, advice: str = "Use another --out or --fresh."
) -> dict[str, Any]:
    """All sections of both, which must agree on those that they share."""
    differences = [
        line
        for section in new
        if section in old
        for line in _differences(old[section], new[section], section)
    ]
    if differences:
        shown = "\n  ".join(differences)
        raise StoreError(f"{path} was made with another configuration:\n  {shown}\n{advice}")
    return {**old, **new}


def _differences(old: Any, new: Any, key: str) -> Iterator[str]:
    if isinstance(old, dict) and isinstance(new, dict):
        for name in {**old, **new}:
            yield from _differences(old.get(name, _ABSENT), new.get(name, _ABSENT), f"{key}.{name}")
    elif old != new:
        yield f"{json.dumps(key)[1:-1]}: {_shown(old)} -> {_shown(new)}"


def _shown(value: Any) -> str:
    if value is _ABSENT:
        return "(absent)"
    text = json.dumps(value)
    return text if len(text) <= 200 else text[:199] + "…"


def _plain(value: Mapping[str, Any]) -> dict[str, Any]:
    """What JSON makes of ``value``, so that it compares equal once it was written and read, without
    credentials in URLs."""
    redacted: dict[str, Any] = _redacted(json.loads(dump_line(dict(value))))
    return redacted


def _redacted(value: Any) -> Any:
    if isinstance(value, str):
        return without_credentials(value)
    if isinstance(value, list):
        return [_redacted(entry) for entry in value]
    if isinstance(value, dict):
        return {_redacted(key): _redacted(entry) for key, entry in value.items()}
    return value
