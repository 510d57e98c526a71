"""The run directory: ``manifest.json`` and one append-only JSONL file per kind of record.

A run may be scored by several judges. The records of the first lie beside the others; each further scoring,
by another judge or with other settings, has a folder in ``judges/`` with a manifest and files of its own.

One process writes at a time, under a lock that the kernel releases when the process dies; any number may
read. ``append`` returns when its line is on disk, so a kill costs at most the line being written, which the
next ``open`` cuts off.
"""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeGuard

from msgspec.structs import replace

from selfreflect.atomic import sync_directory, write_bytes
from selfreflect.errors import StoreError, excerpt, optional
from selfreflect.metric.measure import DEFAULT_MEASURES, Measure, measure_names, measures_of
from selfreflect.records import (
    RETRIED,
    STAGES,
    AnswerSample,
    AnswerSet,
    Controls,
    Failure,
    Information,
    Measurement,
    MergedAnswers,
    Question,
    R,
    Record,
    Score,
    Stage,
    Summary,
    dump_line,
    metadata_headings,
)
from selfreflect.store.journal import Journal, PartialAnswers, lock, refuse_fork, store_errors
from selfreflect.store.manifest import (
    LOCK,
    MANIFEST,
    SCORED,
    SCORING_FORMAT,
    Manifest,
    StoredRecord,
    check_run_directory,
    is_of_scoring,
    journals,
    merge_settings,
    plain_settings,
    read_manifest,
    removable_files,
    scored_folders,
    scoring_folder,
    scoring_folders,
    set_aside,
    unfinished_files,
)

if TYPE_CHECKING:
    import pandas as pd


class Run:
    """A run directory, opened for writing with :meth:`open` or for reading with :meth:`load`.

    A context manager, for one thread at a time.
    """

    def __init__(self, path: Path, manifest: Manifest, resources: ExitStack | None = None) -> None:
        self.path = path
        self.scoring = ""
        """The selected scoring; see :meth:`select_scoring`."""
        self._resources = resources
        """Resources released by :meth:`close`; None while read-only."""
        self.repairs: list[str] = []
        """Repairs made when opening the run for writing, in sentences."""
        self._manifests = {"": manifest}
        self._files = {"": journals(path)}
        """Record files by judge's scores; the first set includes all other records."""
        self._partial: PartialAnswers | None = PartialAnswers(path)
        self._process = os.getpid()

    @classmethod
    def open(
        cls, path: str | Path, config: Mapping[str, Any], *, fresh: bool = False, backup: bool = True
    ) -> Self:
        """Create or resume a run directory for writing.

        Args:
            config: plain values by section. Sections that the directory has must be equal; others are added.
            fresh: start over; other files in the directory stay.
            backup: move earlier records to a new folder in the directory before that, rather than delete
                them.

        Raises:
            StoreError: another process is writing, ``config`` differs, a file is damaged, or the directory
                holds other things or cannot be written.
        """
        path = Path(path)
        config = plain_settings(config)
        with store_errors(path), ExitStack() as stack:
            path.mkdir(parents=True, exist_ok=True)
            check_run_directory(path)
            # locked before anything is read, since another process may be writing
            stack.callback(os.close, lock(path / LOCK))
            folder = set_aside(path) if fresh and backup else None
            for file in removable_files(path) if fresh else ():
                file.unlink()
            is_new = fresh or not (path / MANIFEST).exists()
            run = cls(path, Manifest() if is_new else read_manifest(path), stack)
            merged = merge_settings(run.manifest.config, config, path)
            run._prepare("", stack)
            assert run._partial is not None
            # a kill may have come after the record of an answer set and before its parts were removed
            records = [*run.answers.values(), *run.failures]
            run._partial.remove([record.question_id for record in records if _settles(record)])
            if folder is not None:
                run.repairs.append(f"{folder} keeps the earlier records")
            if is_new or merged != run.manifest.config:
                run._write_manifest(replace(run.manifest, config=merged))
            # only now may anything be written: whatever failed before has released the lock
            run._resources = stack.pop_all()
        return run

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Open a run directory for reading, without locking, repairing or writing.

        Raises:
            StoreError: there is no run directory, or another version wrote it. Damaged files raise it when
                they are first read, except for a torn last line, which is skipped.
        """
        path = Path(path)
        with store_errors(path):
            reason = f"{path} is not a run directory: it has no {MANIFEST}"
            advice = "Make one with: selfreflect run --out DIR"
            if path.is_file():
                reason = f"{path} is a file, not a run directory"
                advice = (
                    f"Score a file with: selfreflect score --items {shlex.quote(str(path))} --output "
                    "page.html; --against compares it with an earlier file"
                )
            elif not path.is_dir():
                reason = f"There is no run directory {path}"
            if not (path / MANIFEST).exists():
                raise StoreError(reason, code="no_run_directory", remedy=advice)
            return cls(path, read_manifest(path))

    @classmethod
    def in_memory(cls, path: str | Path) -> Self:
        """Make an empty run in memory that never reads or writes ``path``."""
        run = cls(Path(path), Manifest())
        run._partial = None
        for journal in run._files[""].values():
            journal.records = {}
        return run

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Release the lock. Records can still be read from this object."""
        if self._resources is not None:
            self._resources.close()
            self._resources = None

    def remove(self) -> None:
        """Delete the files of this writable run and close it. The directory stays."""
        self._check_writable()
        with store_errors(self.path):
            for file in (*removable_files(self.path), self.path / MANIFEST, self.path / LOCK):
                file.unlink(missing_ok=True)
        self.close()

    @property
    def scorings(self) -> list[str]:
        """Names of the judges' scores on disk: first the empty name, then folders in ``judges/``."""
        return ["", *(folder.name for folder in scored_folders(self.path))]

    def select_scoring(self, name: str) -> None:
        """Select the scores, information, controls and facts of another judge.

        Args:
            name: one of :attr:`scorings`; or a new one, which is made when its settings are recorded.

        Raises:
            StoreError: a file of it is damaged, or the disk refuses.
        """
        if name not in self._files:
            # refuses links, through which records elsewhere would be written
            scoring_folders(self.path)
            folder = self._folder(name)
            with store_errors(folder):
                exists = (folder / MANIFEST).exists()
                manifest = read_manifest(folder, SCORING_FORMAT) if exists else Manifest()
                self._manifests[name] = replace(manifest, format=SCORING_FORMAT)
                self._files[name] = journals(folder)
                if self._resources is not None:
                    self._prepare(name, self._resources)
        self.scoring = name

    @property
    def manifest(self) -> Manifest:
        """Manifest of the directory, with facts on the selected scores."""
        manifest = self._manifests[""]
        return manifest.with_scores_of(self._manifests[self.scoring]) if self.scoring else manifest

    @property
    def questions(self) -> dict[str, Question]:
        """Questions by id, in the order of appending."""
        return self._journal(Question).records

    @property
    def answers(self) -> dict[str, AnswerSet]:
        """Answer sets by question id."""
        return self._journal(AnswerSet).records

    @property
    def merged(self) -> dict[str, MergedAnswers]:
        """Groups of answers that users merged by hand, by question id."""
        return self._journal(MergedAnswers).records

    @property
    def summaries(self) -> dict[tuple[str, str], Summary]:
        """Summaries by question id and name."""
        return self._journal(Summary).records

    @property
    def scores(self) -> dict[tuple[str, str], Score]:
        """Scores by question id and summary name."""
        return self._journal(Score).records

    @property
    def information(self) -> dict[tuple[str, str], Information]:
        """Usable information by question id and summary name."""
        return self._journal(Information).records

    @property
    def measurements(self) -> dict[tuple[str, str, str], Measurement]:
        """Results of plug-in measures, by measure, question id and summary name."""
        return self._journal(Measurement).records

    def results(self, measure: Measure) -> dict[tuple[str, str], Any]:
        """Return a measure's records by question id and summary name."""
        if measure.record is not Measurement:
            return dict(self._journal(measure.record).records)
        records = self.measurements.values()
        return {
            (record.question_id, record.summary): record
            for record in records
            if record.measure == measure.name
        }

    @property
    def controls(self) -> dict[str, Controls]:
        """Controls by question id."""
        return self._journal(Controls).records

    @property
    def failures(self) -> list[Failure]:
        """The last unresolved failure of each (stage, question, name)."""
        records: dict[Stage, Mapping[Any, Record]] = {
            "questions": self.questions,
            "answers": self.answers,
            "summaries": self.summaries,
            "scores": self.scores,
        }
        # a failure stands until its record is made, whichever run makes it
        standing: list[Failure] = []
        failures = self._files[""][Failure].records
        if self.scoring:
            first = {key: failure for key, failure in failures.items() if failure.stage != "scores"}
            failures = first | self._files[self.scoring][Failure].records
        for (stage, question, name), failure in failures.items():
            key = question if stage in ("questions", "answers") else (question, name)
            if key not in records[stage]:
                standing.append(failure)
        return standing

    def records(self) -> Iterator[Any]:
        """Yield the records of the selected scores; the first set includes all stages."""
        for journal in self._files[self.scoring].values():
            yield from journal.records.values()

    def samples(self, question: str) -> tuple[AnswerSample, ...]:
        """Read the existing answers of an unfinished question."""
        return self._partial.of(question) if self._partial else ()

    def append(self, record: StoredRecord) -> None:
        """Add one record and wait until it is on disk. Raises the errors of :meth:`append_all`."""
        self.append_all([record])

    def append_all(self, records: Iterable[StoredRecord]) -> None:
        """Add records, with one write and one sync per file.

        Raises:
            StoreError: a key exists already or the run was opened for reading (nothing is written), or the
                disk refuses.
        """
        self._check_writable()
        assert self._partial is not None
        groups: dict[Journal[Any], list[StoredRecord]] = {}
        question_ids: list[str] = []
        for record in records:
            if isinstance(record, AnswerSample):
                self._partial.append(record)
                continue
            groups.setdefault(self._journal_of(record), []).append(record)
            if _settles(record):
                question_ids.append(record.question_id)
        # all are encoded before the first is written: a bad record of one file leaves no others behind
        encoded = {journal: journal.encode(group) for journal, group in groups.items()}
        for journal, (added, data) in encoded.items():
            with store_errors(journal.path):
                journal.append(added, data)
        self._partial.remove(question_ids)

    def replace_questions(self, questions: Iterable[Question]) -> None:
        """Replace the other columns of stored questions, rewriting the file atomically.

        Raises:
            StoreError: a question's text or context differs, to which its answers belong; or the disk
                refuses.
        """
        self._check_writable()
        journal = self._journal(Question)
        records = dict(journal.records)
        for question in questions:
            existing = records[question.id]
            if (existing.text, existing.context) != (question.text, question.context):
                raise StoreError(
                    f"{self.path}: the answers stored for question {excerpt(question.id)} belong to a "
                    "different text"
                )
            records[question.id] = question
        if records != journal.records:
            journal.rewrite(records)

    def add_in_memory(self, records: Iterable[StoredRecord]) -> None:
        """Add records to this object only."""
        for record in records:
            self._journal_of(record).put(record)

    def update_manifest(self, **sections: Mapping[str, Any]) -> None:
        """Add or replace entries in sections of the manifest.

        Seconds of ``wall_time`` are added up. What is said of scores belongs to the selected scoring, which
        exists once its ``config`` is recorded.

        Raises:
            StoreError: the run was opened for reading, or the disk refuses.
        """
        self._check_writable()
        scoring = self.scoring if any("scores" in entries for entries in sections.values()) else ""
        manifest = self._manifests[scoring]
        # a scoring exists once its settings do; a folder without them would be taken for the main one's
        if scoring and not manifest.config and "config" not in sections:
            return
        merged = {}
        for name, entries in sections.items():
            merged[name] = dict(getattr(manifest, name))
            for key, value in plain_settings(entries).items():
                if name == "wall_time":
                    value += merged[name].get(key, 0.0)
                merged[name][key] = value
        self._write_manifest(replace(manifest, **merged), scoring)

    def __repr__(self) -> str:
        # counts would read the whole directory
        return f"Run({str(self.path)!r})"

    def to_pandas(self) -> pd.DataFrame:
        """Build a data frame with one row per judge, question and strategy.

        Columns that came with the questions follow. Missing numbers are ``pandas.NA``.

        Raises:
            MissingExtraError: pandas is not installed.
        """
        return data_frame(self)

    def _folder(self, scoring: str) -> Path:
        return self.path / scoring_folder(scoring)

    def _journal(self, kind: type[R]) -> Journal[R]:
        """Choose the journal of a kind of record."""
        return self._files[self.scoring if kind in SCORED else ""][kind]

    def _journal_of(self, record: StoredRecord) -> Journal[Any]:
        return self._files[self.scoring if is_of_scoring(record) else ""][type(record)]

    def _prepare(self, scoring: str, resources: ExitStack) -> None:
        """Repair a set of files after a kill, and close them with the run."""
        for leftover in unfinished_files(self._folder(scoring)):
            leftover.unlink()
        for journal in self._files[scoring].values():
            resources.callback(journal.close)
            if journal.path.exists():
                self.repairs += filter(None, [journal.repair()])

    def _check_writable(self) -> None:
        if self._resources is None:
            raise StoreError(f"{self.path} is not open for writing. Open it with Run.open.")
        refuse_fork(self.path, self._process)

    def _write_manifest(self, manifest: Manifest, scoring: str = "") -> None:
        """Replace the manifest atomically."""
        # indented, because people read and mend it
        text = json.dumps(json.loads(dump_line(manifest)), indent=2) + "\n"
        file = self._folder(scoring) / MANIFEST
        with store_errors(file):
            if scoring:
                file.parent.mkdir(parents=True, exist_ok=True)
                sync_directory(self.path)
            write_bytes(file, text.encode("ascii"))
        self._manifests[scoring] = manifest


def _settles(record: Record) -> TypeGuard[AnswerSet | Failure]:
    """Check whether a record ends the drawing of answers for its question."""
    if isinstance(record, Failure):
        return record.stage == "answers" and record.kind not in RETRIED
    return isinstance(record, AnswerSet)


_SUMMARY = ("question_id", "question", "kind", "strategy", "summary")
_FAILURE = ("failure", "failure_message")


def data_frame(run: Run) -> pd.DataFrame:
    """Build a data frame of a run, one row per judge, question and strategy.

    Raises:
        MissingExtraError: pandas is not installed.
    """
    with optional("A data frame of the scores", "pandas"):
        import pandas as pd
    # selected again below: a data frame must not change which scoring is
    selected = run.scoring
    names = {*DEFAULT_MEASURES}
    for scoring in run.scorings:
        run.select_scoring(scoring)
        names |= {measure for measure, _, _ in run.measurements}
    measures = measures_of(names & {*measure_names()})
    # the columns of the first measure stand before those of failures, as scripts may expect by position
    first, *further = [measure.columns for measure in measures]
    columns = [*_SUMMARY, *first, *_FAILURE, *chain.from_iterable(further), "scoring"]
    headings = metadata_headings(run.questions.values(), columns)
    rows = []
    for scoring in run.scorings:
        run.select_scoring(scoring)
        for question, cells in _result_rows(run, measures):
            metadata = {heading: question.metadata.get(name) for name, heading in headings.items()}
            rows.append({**cells, "scoring": scoring, **metadata})
    run.select_scoring(selected)
    columns += headings.values()
    frame = pd.DataFrame([tuple(map(row.get, columns)) for row in rows], columns=columns, dtype=object)
    numbers = chain.from_iterable((measure.columns[0], *measure.numbers) for measure in measures)
    return frame.astype({**dict.fromkeys(numbers, "Float64"), "token_tasks": "Int64"})


def _result_rows(run: Run, measures: Sequence[Measure]) -> Iterator[tuple[Question, dict[str, Any]]]:
    """Yield the cells of each question and strategy for the selected scores, by column. The failure of a
    whole question is repeated for each of its strategies."""
    reasons: dict[tuple[str, str], Failure] = {}
    for failure in sorted(run.failures, key=lambda failure: STAGES.index(failure.stage)):
        name = failure.name if failure.stage in ("summaries", "scores") else ""
        reasons.setdefault((failure.question_id, name), failure)
    results = [(measure, run.results(measure)) for measure in measures]
    keys = chain(run.summaries, *(records for _, records in results), reasons)
    strategies = dict.fromkeys(name for _, name in keys if name)
    for id_, question in run.questions.items():
        for strategy in strategies:
            key = (id_, strategy)
            summary = run.summaries.get(key)
            reason = reasons.get((id_, "")) or reasons.get(key)
            texts = (id_, question.text, question.kind, strategy, summary and summary.text)
            cells: dict[str, Any] = dict(zip(_SUMMARY, texts, strict=True))
            for measure, records in results:
                record = records.get(key)
                if record is not None:
                    cells |= zip(measure.columns, measure.cells(record), strict=True)
                    if measure.fails:
                        reason = None
            cells |= zip(_FAILURE, (reason and reason.kind, reason and reason.message), strict=True)
            yield question, cells
