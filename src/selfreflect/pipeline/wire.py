"""What travels between the experiment and workers in other processes, and what these do."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from selfreflect.errors import SelfReflectError, rebuild_error
from selfreflect.pipeline.models import ConfiguredModels, load_stage_model
from selfreflect.pipeline.options import Quiet
from selfreflect.pipeline.stages import Result, StageSpec, StageTask, stage_fn


@dataclass(frozen=True)
class Outcome:
    """All results of a batch, or those before an error that ends the run."""

    results: Sequence[Result] = ()
    facts: dict[str, Any] | None = None
    """What a manifest says about the worker's model; None if it could not be loaded."""
    notes: Sequence[str] = ()
    """Lines for people."""
    error: tuple[str, str] | None = None
    """Class and message of a SelfReflectError; not every exception can be pickled."""

    def raise_error(self) -> None:
        """Raise the worker's error, if it had one, as the worker did."""
        if self.error is not None:
            raise rebuild_error(*self.error)


def split_into_batches(tasks: Sequence[StageTask], workers: int, at_most: int) -> list[Sequence[StageTask]]:
    """Split tasks into batches of even size, up to ``at_most`` each.

    There are enough batches to give every worker one, as far as the tasks go.
    """
    count = max(math.ceil(len(tasks) / at_most), min(workers, len(tasks)))
    bounds = [len(tasks) * number // count for number in range(count + 1)]
    return [tasks[start:end] for start, end in pairwise(bounds)]


class StageWorker:
    """Loads the model of a stage once, then turns batches into outcomes.

    An expected error travels in the outcome, so that it is raised where the command runs.
    """

    def __init__(self, spec: StageSpec) -> None:
        self._notes = _Notes()
        self._facts: dict[str, Any] | None = None
        self._error: SelfReflectError | None = None
        try:
            model = load_stage_model(spec.stage, ConfiguredModels(spec.config, spec.options, self._notes))
            self._work = stage_fn(spec, model, self._notes)
            self._facts = model.facts
        except SelfReflectError as error:
            self._error = error

    def __call__(self, tasks: Sequence[StageTask]) -> Outcome:
        results: list[Result] = []
        error = self._error
        if error is None:
            try:
                for group in self._work(tasks):
                    results += group
            except SelfReflectError as raised:
                error = raised
        return Outcome(
            results,
            facts=self._facts,
            notes=self._notes.take(),
            error=None if error is None else (type(error).__name__, str(error)),
        )


class _Notes(Quiet):
    """Keeps what a worker says until the next outcome."""

    def __init__(self) -> None:
        self._lines: list[str] = []

    def note(self, line: str) -> None:
        self._lines.append(line)

    def take(self) -> list[str]:
        lines = self._lines
        self._lines = []
        return lines
