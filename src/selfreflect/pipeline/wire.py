"""Tasks and results on the wire: numbered batches as JSON, and the worker at the other end."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any, Self

from selfreflect.errors import BackendError, SelfReflectError, revived
from selfreflect.pipeline.options import Quiet
from selfreflect.pipeline.stages import Result, StageSpec, StageTask, load_model, stage_fn
from selfreflect.records import AnswerSet, Failure, R, Record, Score, Summary, dump_line, from_plain


class Batch(Record, frozen=True, kw_only=True):
    """Tasks for a worker in another process."""

    number: int
    tasks: tuple[StageTask, ...]


class BatchOutcome(Record, frozen=True, kw_only=True):
    """All results of a batch, or those before an error that ends the run."""

    number: int
    facts: dict[str, Any] | None = None
    """What a manifest says about the worker's model; None where it could not be loaded."""
    answers: tuple[AnswerSet, ...] = ()
    summaries: tuple[Summary, ...] = ()
    scores: tuple[Score, ...] = ()
    failures: tuple[Failure, ...] = ()
    notes: tuple[str, ...] = ()
    """Lines for people."""
    error: tuple[str, str] | None = None
    """Class and message of a SelfReflectError."""

    @classmethod
    def of(cls, number: int, results: Sequence[Result], **fields: Any) -> Self:
        """An outcome with these results, sorted by kind."""
        return cls(
            number=number,
            answers=_of_kind(AnswerSet, results),
            summaries=_of_kind(Summary, results),
            scores=_of_kind(Score, results),
            failures=_of_kind(Failure, results),
            **fields,
        )

    @property
    def results(self) -> list[Result]:
        return [*self.answers, *self.summaries, *self.scores, *self.failures]

    def raise_error(self) -> None:
        """Raise the worker's error, if it had one, as the worker did."""
        if self.error is not None:
            raise revived(*self.error)


def _of_kind(kind: type[R], results: Sequence[Result]) -> tuple[R, ...]:
    return tuple(result for result in results if isinstance(result, kind))


def encode(record: Record) -> bytes:
    return dump_line(record).encode()


def decode(kind: type[R], data: bytes) -> R:
    return from_plain(kind, json.loads(data))


def split_into_batches(tasks: Sequence[StageTask], workers: int, at_most: int) -> list[bytes]:
    """Encode tasks in batches of even size, up to ``at_most`` each.

    There are enough batches to give every worker one, as far as the tasks go.
    """
    count = max(math.ceil(len(tasks) / at_most), min(workers, len(tasks)))
    bounds = [len(tasks) * number // count for number in range(count + 1)]
    return [
        encode(Batch(number=number, tasks=tuple(tasks[start:end])))
        for number, (start, end) in enumerate(pairwise(bounds))
    ]


def each_once(encoded: Iterable[bytes], count: int) -> Iterator[BatchOutcome]:
    """Decode the outcomes of ``count`` batches and drop repetitions, which come from retried batches.

    Raises:
        BackendError: some are missing at the end.
    """
    missing = set(range(count))
    for data in encoded:
        outcome = decode(BatchOutcome, data)
        if outcome.number in missing:
            missing.remove(outcome.number)
            yield outcome
    if missing:
        raise BackendError(f"The workers gave back {count - len(missing)} of {count} batches.")


class StageWorker:
    """Loads the model of a stage once, then turns encoded batches into encoded outcomes.

    An expected error travels in the outcome, so that it is raised where the command runs.
    """

    def __init__(self, spec: StageSpec) -> None:
        self._notes = _Notes()
        self._facts: dict[str, Any] | None = None
        self._error: SelfReflectError | None = None
        try:
            model = load_model(spec, self._notes)
            self._work = stage_fn(spec, model, self._notes)
            self._facts = model.facts
        except SelfReflectError as error:
            self._error = error

    def __call__(self, data: bytes) -> bytes:
        batch = decode(Batch, data)
        results: list[Result] = []
        error = self._error
        if error is None:
            try:
                for group in self._work(batch.tasks):
                    results += group
            except SelfReflectError as raised:
                error = raised
        outcome = BatchOutcome.of(
            batch.number,
            results,
            facts=self._facts,
            notes=self._notes.take(),
            error=None if error is None else (type(error).__name__, str(error)),
        )
        return encode(outcome)


class _Notes(Quiet):
    """Keeps what a worker says until the next outcome."""

    def __init__(self) -> None:
        self._lines: list[str] = []

    def note(self, line: str) -> None:
        self._lines.append(line)

    def take(self) -> tuple[str, ...]:
        lines = tuple(self._lines)
        self._lines.clear()
        return lines
