"""The only place that joins settings, the run directory and the stages."""

from __future__ import annotations

import platform
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec
from msgspec.structs import replace

from selfreflect.config import Config
from selfreflect.errors import BackendError, JudgeError, StoreError
from selfreflect.pipeline.executors import Executors
from selfreflect.pipeline.options import Counter, ExecutionOptions, Progress, Quiet
from selfreflect.pipeline.stages import (
    Result,
    StageSpec,
    StageTask,
    load_generator,
    load_judge,
    load_metric,
    stage_fn,
)
from selfreflect.pipeline.wire import BatchOutcome
from selfreflect.prompts import Prompts, load_prompts
from selfreflect.records import RETRIED, Failure, Question, Score, Stage, Summary
from selfreflect.report.run_records import RunRecords
from selfreflect.sources.items import Item, items_from_records
from selfreflect.sources.questions import load_questions
from selfreflect.store.journal import store_errors
from selfreflect.store.run import MANIFEST, Run, check_run_directory, merge_settings
from selfreflect.strategies import load_strategy
from selfreflect.strategies.driver import Named

if TYPE_CHECKING:
    from selfreflect.models.base import Generator
    from selfreflect.models.judge import Judge

__all__ = [
    "DEFAULT_STRATEGIES",
    "Counter",
    "ExecutionOptions",
    "Experiment",
    "Progress",
    "Quiet",
    "load_generator",
    "load_judge",
    "load_metric",
    "peek",
    "run_items",
    "run_records",
    "settings_of",
]

_PROMPTED: tuple[Stage, ...] = ("answers", "summaries")
"""Stages whose results depend on the prompts file."""

DEFAULT_STRATEGIES = ("greedy", "basic", "cot", "sample_and_summarize")


class Experiment:
    """A run directory being filled. Every stage skips what is done, writes each result as it comes, and can
    be interrupted anywhere."""

    def __init__(
        self,
        run: Run,
        config: Config,
        stages: Sequence[Stage],
        prompts: Prompts,
        options: ExecutionOptions,
        progress: Progress,
    ) -> None:
        self.run = run
        self.config = config
        self.options = options
        self.progress = progress
        self.prompts = prompts
        self._settings = _settings(config, stages, prompts)
        self._loaded: dict[Stage, dict[str, Any]] = {}
        """Facts of models that have not given anything yet."""
        self._engines = Executors(options)

    @classmethod
    @contextmanager
    def open(
        cls,
        path: Path,
        config: Config,
        stages: Sequence[Stage],
        *,
        fresh: bool = False,
        options: ExecutionOptions | None = None,
        progress: Progress | None = None,
    ) -> Iterator[Experiment]:
        """Create or resume the run directory at ``path`` for some stages.

        Raises:
            StoreError: it was made with other settings of these stages, or is in use.
        """
        options = options or ExecutionOptions()
        prompts = load_prompts(options.prompts)
        known = {} if fresh else _known(path, config, stages, prompts)
        opened = cls(
            Run.open(path, known, fresh=fresh), config, stages, prompts, options, progress or Quiet()
        )
        try:
            yield opened
        finally:
            opened._engines.close()
            opened.run.close()

    def questions(self) -> None:
        """Load the questions, unless the directory has them all."""
        recorded = self.run.manifest.sources.get("questions", {})
        if recorded and len(self.run.questions) == recorded.get("count"):
            return
        wanted = self.config.questions
        with self._timed("questions"):
            found = load_questions(
                wanted.source,
                limit=wanted.limit,
                seed=wanted.seed,
                split=wanted.split,
                subset=wanted.subset,
                question_column=wanted.question_column,
                part=wanted.part,
            )
            facts = msgspec.to_builtins(found)
            del facts["questions"]
            self._bind("questions", source={**facts, "count": len(found.questions)})
            self.run.append_all(
                question for question in found.questions if question.id not in self.run.questions
            )

    def answers(self) -> None:
        """Draw the answer distributions that are missing."""
        settled = self._settled("answers")
        todo = [
            question
            for key, question in self._asked().items()
            if key not in self.run.answers and (key, "") not in settled
        ]
        if todo:
            self._do(self._job("answers"), [StageTask(question=question) for question in todo], len(todo))

    def summaries(self, strategies: Sequence[Named]) -> None:
        """Make the summaries that are missing, with every strategy."""
        for strategy in strategies:
            if isinstance(strategy, str):
                load_strategy(strategy)  # an unknown name is an error also where nothing is left to do
        names = [strategy if isinstance(strategy, str) else strategy[0] for strategy in strategies]
        done = {*self.run.summaries, *self._settled("summaries")}
        missing: dict[str, list[str]] = {}
        for question in self._asked():
            if lacking := [name for name in names if (question, name) not in done]:
                missing[question] = lacking
        if missing:
            tasks = [
                StageTask(question=self.run.questions[key], names=tuple(lacking))
                for key, lacking in missing.items()
            ]
            self._do(self._job("summaries", strategies), tasks, sum(map(len, missing.values())))

    def scores(self) -> None:
        """Score the summaries that are not scored yet, where the question has answers."""
        todo = self._unscored()
        if not todo:
            return
        beside: dict[str, list[Score]] = {}
        for (question, _), score in self.run.scores.items():
            beside.setdefault(question, []).append(replace(score, words=()))
        tasks = [
            StageTask(
                question=self.run.questions[key],
                answers=self.run.answers[key],
                summaries=tuple(summaries),
                beside=tuple(beside.get(key, ())),
            )
            for key, summaries in todo.items()
        ]
        self._do(self._job("scores"), tasks, sum(map(len, todo.values())))

    def _unscored(self) -> dict[str, list[Summary]]:
        """The summaries to score, by the id of their question."""
        self._asked()
        if not self.run.summaries and not self.run.failures:
            raise StoreError(
                f"{self.run.path} holds no summaries yet. Make some with: selfreflect summarize --out {self.run.path}"
            )
        todo: dict[str, list[Summary]] = {}
        done = {*self.run.scores, *self._settled("scores")}
        for key, summary in self.run.summaries.items():
            if (
                key not in done
                and summary.question_id in self.run.answers
                and summary.question_id in self.run.questions
            ):
                todo.setdefault(summary.question_id, []).append(summary)
        return todo

    def _settled(self, stage: Stage) -> set[tuple[str, str]]:
        """(question id, name) of the failures of a stage that another try would only repeat."""
        return {
            (f.question_id, f.name) for f in self.run.failures if f.stage == stage and f.kind not in RETRIED
        }

    def _asked(self) -> dict[str, Question]:
        if not self.run.questions:
            raise StoreError(f"{self.run.path} holds no questions yet. Give some with --questions SOURCE.")
        return self.run.questions

    def _job(
        self, stage: Literal["answers", "summaries", "scores"], strategies: Sequence[Named] = ()
    ) -> StageSpec:
        return StageSpec(stage, self.config, self.prompts, self.options, tuple(strategies))

    def _do(self, job: StageSpec, tasks: Sequence[StageTask], total: int) -> None:
        engine = self._engines.pick(job, len(tasks))
        if engine is None:
            self._store(job.stage, stage_fn(job, self._model(job), self.progress)(tasks), total)
        else:
            with closing(engine.outcomes(job, tasks)) as outcomes:
                self._store(job.stage, self._given(job.stage, outcomes), total)

    def _model(self, job: StageSpec) -> Any:
        if job.stage == "scores":
            return self._judge()
        wanted = getattr(self.config, job.stage)
        return self._generator(job.stage, wanted.model, wanted.revision)

    def _given(self, stage: Stage, outcomes: Iterable[BatchOutcome]) -> Iterator[list[Result]]:
        """The results of workers elsewhere. All must have the same model."""
        first: dict[str, Any] | None = None
        told: set[str] = set()
        for outcome in outcomes:
            for line in outcome.notes:
                if line not in told:
                    told.add(line)
                    self.progress.note(line)
            facts = outcome.facts
            if facts is not None and first is None:
                self._check_model(stage, facts)
                first = self._loaded[stage] = facts
            elif facts is not None and {**facts, "device": ""} != {**(first or {}), "device": ""}:
                raise BackendError(
                    f"Workers have different models: {first} and {facts}. Name a revision and a dtype."
                )
            if outcome.results:
                yield outcome.results
            outcome.raise_error()

    def _store(self, stage: Stage, results: Iterable[list[Result]], total: int) -> None:
        done = 0
        with self._timed(stage), self.progress.stage(stage, total) as counter:
            try:
                for some in results:
                    self._settle(stage)
                    self.run.append_all(some)
                    done += sum(not isinstance(result, Failure) for result in some)
                    counter.advance(len(some))
            except (BackendError, JudgeError) as error:
                kept = f"{done} of {total} {stage} were made and saved, {total - done} are missing. The same command goes on from there."
                raise type(error)(f"{str(error).removesuffix('.')}. {kept}") from None

    def _settle(self, stage: Stage) -> None:
        """Bind the directory to a stage's settings once its model has given something: a server may yet turn
        out not to know the model."""
        facts = self._loaded.pop(stage, None)
        if facts is not None:
            self._bind(stage, model=facts)

    def _bind(
        self, stage: Stage, *, model: dict[str, Any] | None = None, source: dict[str, Any] | None = None
    ) -> None:
        self.run.settle(
            stage,
            settings=self._settings[stage],
            model=model,
            source=source,
            prompts=self.prompts.hash if stage in _PROMPTED else None,
            packages=_packages(),
        )

    @contextmanager
    def _timed(self, stage: Stage) -> Iterator[None]:
        started = time.monotonic()
        try:
            yield
        finally:
            self.run.update_manifest(wall_time={stage: time.monotonic() - started})

    def _generator(self, part: Stage, model: str, revision: str | None) -> Generator:
        base_url = getattr(self.config, part).base_url
        generator = load_generator(model, revision, self.options, self.progress, base_url=base_url)
        self._check_model(part, generator.facts)
        self._loaded[part] = generator.facts
        return generator

    def _judge(self) -> Judge:
        judge = load_judge(self.config, self.options, self.progress)
        self._check_model("scores", judge.facts)
        self._bind("scores", model=judge.facts)
        return judge

    def _check_model(self, part: str, facts: dict[str, Any]) -> None:
        """Refuse a model whose weights changed under the same name since the run began."""
        before = self.run.manifest.models.get(part)
        if before and before["revision"] != facts["revision"]:
            raise StoreError(
                f"{self.run.path}: {part} began with revision {before['revision']!r} of {facts['name']!r}, "
                f"which is now {facts['revision']!r}. Name the old one with --revision, or use another --out."
            )


def _settings(config: Config, stages: Sequence[Stage], prompts: Prompts) -> dict[str, dict[str, Any]]:
    """What a run directory remembers of the settings of some stages."""
    sections: dict[str, dict[str, Any]] = {stage: config.section(stage) for stage in stages}
    for stage in _PROMPTED:
        if stage in sections:
            sections[stage]["prompts"] = prompts.hash
    return sections


def _known(
    path: Path, config: Config, stages: Sequence[Stage], prompts: Prompts
) -> dict[str, dict[str, Any]]:
    """What the directory at ``path`` has to agree with: the settings of those stages that it has begun."""
    begun, wanted = settings_of(path), _settings(config, stages, prompts)
    return {stage: _comparable(stage, wanted[stage], begun[stage]) for stage in stages if stage in begun}


def peek(path: Path, config: Config, stages: Sequence[Stage], prompts: Prompts) -> Run | None:
    """The run directory at ``path`` for reading, where there is one: nothing is made, locked or repaired.

    Raises:
        StoreError: it was made with other settings of these stages, or there is something else.
    """
    with store_errors(path):
        if path.exists():
            check_run_directory(path)
    if not (path / MANIFEST).exists():
        return None
    run = Run.load(path)
    merge_settings(run.manifest.config, _known(path, config, stages, prompts), path)
    return run


def _comparable(stage: Stage, wanted: dict[str, Any], begun: dict[str, Any]) -> dict[str, Any]:
    """``wanted`` without the settings that did not exist yet when a directory was made, where they have their
    defaults."""
    default = Config().section(stage)
    compared = {
        key: value
        for key, value in wanted.items()
        if key in begun or key not in default or value != default[key]
    }
    # A server may come back at another address, as a model may come back on another device.
    return {
        **compared,
        **({"base_url": begun["base_url"]} if begun.get("base_url") and compared.get("base_url") else {}),
    }


def settings_of(path: Path) -> dict[str, dict[str, Any]]:
    """The settings that the run directory at ``path`` was made with, by section; none where there is no such
    directory yet.

    Raises:
        StoreError: there is one, and it cannot be read.
    """
    if not (path / MANIFEST).exists():
        return {}
    sections = Run.load(path).manifest.config
    return {
        name: {key: value for key, value in values.items() if key != "prompts"}
        for name, values in sections.items()
    }


def run_records(run: Run, label: str | None = None) -> RunRecords:
    """What a report needs of a run directory; strategies in the order in which they were made."""
    names = dict.fromkeys(name for _, name in (*run.summaries, *run.scores))
    names |= dict.fromkeys(failure.name for failure in run.failures if failure.name)
    return RunRecords(
        label=label or run.path.name or str(run.path),
        strategies=list(names),
        questions=run.questions,
        answers=run.answers,
        summaries=run.summaries,
        scores=run.scores,
        failures=run.failures,
    )


def run_items(run: Run) -> list[Item]:
    """The questions of a run that have answers, with the summaries made so far, as items. Those without
    answers are left out."""
    return items_from_records(run.questions, run.answers.values(), run.summaries.values())


def _packages() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for name in ("selfreflect", "torch", "transformers", "tokenizers", "numpy"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "unknown"
    return found
