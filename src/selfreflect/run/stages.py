"""Work of each stage in this process or on Ray: model and tasks in, records out.

Nothing here knows the run directory. The experiment chooses the tasks, and is the one writer of the records.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from dataclasses import replace as replace_field
from functools import partial
from itertools import pairwise
from typing import Any, TypeAlias

import msgspec
from msgspec.structs import replace

from selfreflect.answers import draw_answers
from selfreflect.errors import SelfReflectError
from selfreflect.metric.measure import Measures
from selfreflect.models.backend import backend_of
from selfreflect.models.base import ModelSpec
from selfreflect.prompts import Prompts
from selfreflect.records import (
    AnswerSample,
    AnswerSet,
    Controls,
    Failure,
    ModelStage,
    Question,
    Record,
    Summary,
    SummaryResult,
)
from selfreflect.run.models import (
    ConfiguredModels,
    Progress,
    Quiet,
    RequestProgress,
    WorkDone,
    load_measures,
    load_stage_model,
    stage_model,
    summary_options,
    watched_judge,
)
from selfreflect.settings import Config, ExecutionOptions
from selfreflect.strategies.driver import Named, summarize

Result: TypeAlias = AnswerSample | AnswerSet | Summary | SummaryResult | Controls | Failure


class StageTask(Record, frozen=True, kw_only=True):
    """Work on one question, with all required records."""

    question: Question
    strategies: tuple[str, ...] = ()
    """Names of the strategies to summarise with."""
    samples: tuple[AnswerSample, ...] = ()
    """Answers from before an interruption, if others are still to be drawn."""
    answers: AnswerSet | None = None
    summaries: tuple[Summary, ...] = ()
    """Summaries that lack a measure."""
    missing: dict[str, tuple[Summary, ...]] | None = None
    """Summaries that lack a measure, by its name; None if all of ``summaries`` lack all measures."""
    other_records: dict[str, tuple[Any, ...]] = msgspec.field(default_factory=dict)
    """Records of the question's other summaries by measure, for comparable estimates."""
    controls: bool = False
    """Whether the question's controls are to be measured."""
    earlier_controls: Controls | None = None
    """Controls measured with another measure."""

    @property
    def size(self) -> int:
        """Number of strategies or summaries, or 1."""
        return len(self.strategies) + len(self.summaries) or 1


def total_size(tasks: Iterable[StageTask]) -> int:
    """Add up the sizes of tasks."""
    return sum(task.size for task in tasks)


def count_results(results: Sequence[Result]) -> int:
    """Count results in the unit of task sizes: strategies or summaries."""
    names: dict[str, set[str]] = {}
    for result in results:
        if isinstance(result, AnswerSample):
            continue
        of_question = names.setdefault(result.question_id, set())
        if isinstance(result, SummaryResult):
            of_question.add(result.summary)
        elif isinstance(result, Summary | Failure):
            of_question.add(result.name)
    return sum(max(1, len(of_question)) for of_question in names.values())


def without_results(tasks: Sequence[StageTask], results: Sequence[Result]) -> list[StageTask]:
    """Subtract results from their tasks."""
    samples: dict[str, list[AnswerSample]] = {}
    finished: dict[str, set[str]] = {}
    for result in results:
        # the answers so far of an unfinished question stay, and only the missing ones are drawn
        if isinstance(result, AnswerSample):
            samples.setdefault(result.question_id, []).append(result)
        else:
            name = result.name if isinstance(result, Summary | Failure) else ""
            finished.setdefault(result.question_id, set()).add(name)
    left = []
    for task in tasks:
        names = finished.get(task.question.id, set())
        strategies = tuple(name for name in task.strategies if name not in names)
        if names and not strategies:  # answers come together, as do the measures of a question
            continue
        all_samples = (*task.samples, *samples.get(task.question.id, ()))
        left.append(replace(task, strategies=strategies, samples=all_samples))
    return left


@dataclass(frozen=True)
class StageSpec:
    """Specification of a worker. It holds no API key: workers read theirs from their environment."""

    stage: ModelStage
    config: Config
    prompts: Prompts
    options: ExecutionOptions
    strategies: tuple[Named, ...] = ()
    known: Mapping[str, dict[str, Any]] = field(default_factory=dict)
    """Known facts of the run's models, such as fields that their servers refuse."""

    @property
    def model(self) -> ModelSpec:
        """The stage's model."""
        return stage_model(self.config, self.options, self.stage)

    @property
    def batch_size(self) -> int:
        """Number of questions per batch."""
        # one question fills the judge's batches
        if self.stage == "scores":
            return 1
        options = self.options
        if options.uses_batch:  # one file for all
            return sys.maxsize
        return backend_of(self.model.name).default_batch(options.batch_questions, options.max_connections)


@dataclass(frozen=True)
class Outcome:
    """Results of a worker, or an error that ends the run."""

    results: Sequence[Result] = ()
    facts: dict[str, Any] | None = None
    """Facts about the worker's model for the manifest; None without new ones."""
    notes: Sequence[str] = ()
    """Messages for the user."""
    work: WorkDone = field(default_factory=WorkDone)
    """Work done elsewhere for this outcome."""
    error: SelfReflectError | None = None
    """Error that ended the work."""

    def raise_error(self) -> None:
        """Raise the worker's error again, if any."""
        if self.error is not None:
            raise self.error


StageFn: TypeAlias = Callable[[Sequence[StageTask]], Generator[Outcome, None, None]]
"""Function from tasks to outcomes, each yielded as soon as it is ready. The results of one outcome belong
together on disk. The first outcome has no results, only facts about the model, which may later learn more
from its server."""


def stage_fn(spec: StageSpec, model: Any, progress: Progress) -> StageFn:
    """Make the function that runs a stage with its loaded model."""
    if spec.stage == "scores":
        return partial(_measure, load_measures(model, spec.config, spec.options, progress), model, progress)
    return partial(_generate, spec, model, progress)


def _facts(model: Any) -> dict[str, Any] | None:
    return getattr(model, "facts", None)


def _generate(
    spec: StageSpec, generator: Any, progress: Progress, tasks: Sequence[StageTask]
) -> Generator[Outcome, None, None]:
    """Answer or summarise batches of questions, and yield each result as it comes."""
    watch = RequestProgress(generator, progress)
    # a function may be called for more questions at once than a batch has
    batch_size = max(spec.batch_size, 2 * getattr(generator, "workers", 1))
    yield Outcome(facts=_facts(generator))
    answering = spec.config.answers
    names = strategy_names(spec.strategies)
    for start in range(0, len(tasks), batch_size):
        batch = tasks[start : start + batch_size]
        progress.add(WorkDone(units=total_size(batch)))
        questions = [task.question for task in batch]
        results: Iterator[Result]
        if spec.stage == "answers":
            results = draw_answers(
                questions,
                generator,
                num_answers=answering.num_answers,
                prompts=spec.prompts,
                sampling=answering.sampling,
                seed=answering.seed,
                thinking=answering.thinking,
                logprobs=answering.wants_logprobs,
                top_logprobs=answering.top_logprobs,
                stored_samples={task.question.id: task.samples for task in batch},
                watch=watch,
            )
        else:
            # tasks differ in the strategies that they lack, and one call serves all of them
            skip = set()
            for task in batch:
                skip |= {(task.question.id, name) for name in names if name not in task.strategies}
            results = summarize(
                questions,
                spec.strategies,
                generator,
                prompts=spec.prompts,
                skip=skip,
                watch=watch,
                **summary_options(spec.config.summaries),
            )
        for result in results:
            # what waits for an answer has not failed
            if spec.options.write_batch is None or not isinstance(result, Failure):
                yield Outcome([result], _facts(generator))


def _measure(
    measures: Measures, judge: Any, progress: Progress, tasks: Sequence[StageTask]
) -> Generator[Outcome, None, None]:
    """Measure all summaries of each question."""
    yield Outcome(facts=_facts(judge))
    for task in tasks:
        assert task.answers is not None  # a question without answers is not scored
        with watched_judge(measures, progress, task.answers, len(task.summaries)):
            results = measures.measure(
                task.question,
                task.answers,
                task.summaries,
                missing=task.missing,
                other_records=task.other_records,
                controls=task.controls,
            )
        # the directory may hold controls of the other measure, which this record replaces
        if results and isinstance(results[-1], Controls) and task.earlier_controls is not None:
            results[-1] = results[-1].completed_by(task.earlier_controls)
        yield Outcome(results, _facts(judge))


def strategy_names(strategies: Sequence[Named]) -> list[str]:
    return [strategy if isinstance(strategy, str) else strategy[0] for strategy in strategies]


def split_into_batches(tasks: Sequence[StageTask], workers: int, at_most: int) -> list[Sequence[StageTask]]:
    """Split tasks into even batches of up to ``at_most`` each.

    Every worker gets a batch, if there are enough tasks.
    """
    # the larger of two needs: no batch above the limit, and no idle worker
    count = max(math.ceil(len(tasks) / at_most), min(workers, len(tasks)))
    bounds = [len(tasks) * number // count for number in range(count + 1)]
    return [tasks[start:end] for start, end in pairwise(bounds)]


class StageWorker:
    """Worker that loads a stage's model once, then turns batches into outcomes.

    An expected error travels in the outcome, so that it is raised where the command runs.
    """

    def __init__(self, spec: StageSpec) -> None:
        self._notes = _Notes()
        self._model: Any = None
        self._error: SelfReflectError | None = None
        try:
            models = ConfiguredModels(spec.config, spec.options, self._notes, known=spec.known)
            model = load_stage_model(spec.stage, models, spec.config)
            self._work = stage_fn(spec, model, self._notes)
            self._model = model
        except SelfReflectError as error:
            self._error = error

    def outcomes(self, tasks: Sequence[StageTask]) -> Iterator[Outcome]:
        """Yield results as they come; the last outcome is empty or holds the error."""
        error = self._error
        if error is None:
            try:
                for outcome in self._work(tasks):
                    notes, work = self._notes.take()
                    yield replace_field(outcome, notes=notes, work=work)
            except SelfReflectError as raised:
                error = raised
        # without this outcome the notes and steps since the last result would be lost
        yield Outcome((), _facts(self._model), *self._notes.take(), error=error)


class _Notes(Quiet):
    """Buffer of a worker's messages and steps until the next outcome."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._sum = WorkDone()

    def note(self, line: str) -> None:
        self._lines.append(line)

    def add(self, work: WorkDone) -> None:
        self._sum += work

    def take(self) -> tuple[list[str], WorkDone]:
        notes = self._lines, self._sum
        self._lines, self._sum = [], WorkDone()
        return notes
