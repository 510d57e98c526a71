"""The experiment, which fills a run directory with the stages' results.

The only place that joins settings, disk and stages.
"""

from __future__ import annotations

import platform
import time
from collections.abc import Collection, Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import to_builtins
from msgspec.structs import replace

from selfreflect.answers import ONLY_REASONING
from selfreflect.errors import BackendError, ConfigError, JudgeError, SelfReflectError, StoreError, excerpt
from selfreflect.models.backend import backend_of
from selfreflect.models.local.machine import count_gpus
from selfreflect.prompts import Prompts, load_prompts, prompts_origin
from selfreflect.records import AnswerSet, Failure, ModelStage, SamplingCheck, Stage, from_plain
from selfreflect.run.models import (
    ConfiguredModels,
    Progress,
    Quiet,
    check_models,
    check_sampling,
    count_identical,
    load_stage_model,
    server_stages,
)
from selfreflect.run.resume import (
    PROMPTED,
    check_model,
    check_settings,
    new_questions,
    scoring_label,
    select_scoring,
    stage_settings,
)
from selfreflect.run.stages import (
    Outcome,
    StageSpec,
    StageTask,
    count_results,
    stage_fn,
    strategy_names,
    total_size,
)
from selfreflect.run.todo import (
    copied_results,
    halves_note,
    missing_answers,
    missing_scores,
    missing_summaries,
    run_strategies,
    stages_with_work,
)
from selfreflect.settings import Config, ExecutionOptions
from selfreflect.store.manifest import plain_settings
from selfreflect.store.run import Run
from selfreflect.strategies import load_strategy
from selfreflect.strategies.driver import Named
from selfreflect.text import without_credentials

if TYPE_CHECKING:
    from selfreflect.run.ray_executor import RayExecutor


class Executors:
    """Executor of stages in this process, or on Ray once needed."""

    def __init__(self, options: ExecutionOptions, models: ConfiguredModels, progress: Progress) -> None:
        self.models = models
        self._options = options
        self._progress = progress
        self._cluster: RayExecutor | None = None

    def outcomes(self, spec: StageSpec, tasks: Sequence[StageTask]) -> Generator[Outcome, None, None]:
        """Load the stage's model, and yield task results batch by batch in any order.

        An outcome with an error is the last.

        Raises:
            ConfigError: the stage cannot run where the options say.
            MissingExtraError: Ray is not installed.
            SelfReflectError: at once, if the model cannot be loaded here.
            BackendError: while iterating, if workers are lost.
        """
        if self._options.executor == "ray":
            _check_can_travel(spec)
            if self._cluster is None:
                from selfreflect.run.ray_executor import RayExecutor

                self._cluster = RayExecutor(self._options.ray_address)
            return self._cluster.outcomes(spec, tasks)
        options = self._options
        is_torch = backend_of(spec.model.name).is_torch
        takes_first_gpu = is_torch and options.device_map is None and options.device in ("auto", "cuda")
        if len(tasks) > 1 and takes_first_gpu and (gpus := count_gpus()) > 1:
            self._progress.note(
                f"{gpus} GPUs are visible, but only one is used; the executor ray would use all"
            )
        model = load_stage_model(spec.stage, self.models, spec.config)
        return stage_fn(spec, model, self._progress)(tasks)

    def close(self) -> None:
        """Stop the workers."""
        if self._cluster is not None:
            self._cluster.close()
            self._cluster = None


def _check_can_travel(spec: StageSpec) -> None:
    """Raise ConfigError for a spec that Ray cannot or must not carry."""
    for strategy in spec.strategies:
        if not isinstance(strategy, str):
            name = excerpt(strategy[0])
            raise ConfigError(
                f"strategy {name} is a function object, which Ray cannot send to its workers",
                code="cannot_travel",
                remedy="Name it as package.module:function.",
            )
    # a spec carries the settings of all stages
    for stage in ("answers", "summaries", "scores"):
        url = getattr(spec.config, stage).base_url
        if url is not None and without_credentials(url) != url:
            raise ConfigError(
                "the base URL contains credentials, which would be sent through Ray",
                code="cannot_travel",
                remedy=f"Leave them out of {{{stage}.base_url}}, and set SELFREFLECT_API_KEY in the "
                "environment of the workers.",
            )


@contextmanager
def open_experiment(
    path: Path,
    config: Config,
    stages: Sequence[Stage],
    *,
    fresh: bool = False,
    options: ExecutionOptions | None = None,
    progress: Progress | None = None,
    known: Mapping[str, dict[str, Any]] | None = None,
) -> Iterator[Experiment]:
    """Create or resume the run directory at ``path``, locked until the experiment is closed.

    Args:
        stages: those that may run; their settings must agree with those the directory was made with.
        fresh: start over; the records in the directory are moved to a folder in it.
        known: facts of models that other runs have found out about their servers.

    Raises:
        StoreError: the directory was made with other settings, or is in use.
    """
    options = options or ExecutionOptions()
    progress = progress or Quiet()
    prompts = load_prompts(options.prompts)
    # found before the run makes them, so that a refused command can take them away again
    new_folders = [folder for folder in (path, *path.parents) if not folder.exists()]
    with Run.open(path, {}, fresh=fresh) as run:
        if "scores" in stages:
            select_scoring(run, config)
            if run.scoring not in run.scorings:
                judge = scoring_label(config.section("scores"))
                progress.note(f"{path} keeps its scores; scores by {judge} are added beside them")
        for line in run.repairs:
            progress.note(line)
        check_settings(run.manifest, stage_settings(config, stages, prompts), path)
        # what a server refused before is not tried again
        models = ConfiguredModels(config, options, progress, known={**(known or {}), **run.manifest.models})
        with closing(Executors(options, models, progress)) as executors:
            yield Experiment(run, config, prompts, options, progress, executors, new_folders)


@dataclass(eq=False)
class Experiment:
    """An experiment in a run directory, filled stage by stage. Make one with :func:`open_experiment`.

    Every stage skips what is done and writes each result as it comes, so it can be interrupted anywhere.
    """

    run: Run
    _config: Config
    _prompts: Prompts
    _options: ExecutionOptions
    _progress: Progress
    _executors: Executors
    _new_folders: Sequence[Path] = ()
    """Folders made for this run, innermost first."""

    def questions(self, *, explicit: bool = True, add: bool = False) -> None:
        """Store the questions that the directory lacks.

        Takes the arguments of :func:`~selfreflect.run.resume.new_questions`, and raises the same errors.
        """
        missing = new_questions(self.run, self._config.section("questions"), explicit=explicit, add=add)
        if missing is None:
            return
        if missing.note:
            self._progress.note(missing.note)
        if not missing.questions and not missing.updated:
            return
        with self._timed("questions"):
            self.run.replace_questions(missing.updated)
            self._settle("questions", again=add, sources=missing.source)
            self.run.append_all(missing.questions)

    @contextmanager
    def nothing_left_behind(self) -> Iterator[None]:
        """Remove a new run directory if its command is refused; keep an existing one."""
        try:
            yield
        except SelfReflectError:
            if self.run.path in self._new_folders:
                self.run.remove()
                with suppress(OSError):  # somebody else has put something there
                    for folder in self._new_folders:
                        folder.rmdir()
            raise

    def check(self, stages: Sequence[Stage], strategies: Sequence[str]) -> list[SamplingCheck]:
        """Check models, settings and server sampling before the first stage.

        Returns:
            Of each server that does not seem to sample, what was found, with a warning given.

        Raises:
            SelfReflectError: a later stage could not run.
        """
        work = stages_with_work(self.run, stages, strategies, self._config.scores)
        if not work:
            return []
        check_models(work, self._config, self._options, self._progress)
        # a batch file is answered tomorrow, and Ray may ask from other machines
        servers = server_stages(work, self._config, self._options)
        if not servers or self._options.uses_batch:
            return []
        with self._progress.stage("server check", len(servers)):
            greedy = any("#" not in name for name in strategies)
            system = self._prompts.answers["system"]
            models = self._executors.models
            checks = check_sampling(servers, self._config, models, system=system, greedy=greedy)
        suspects = [check for check in dict.fromkeys(checks.values()) if check.is_suspect]
        for check in suspects:
            self._warn(check)
        self.run.update_manifest(checks=to_builtins(checks))
        return suspects

    def accept(self, suspects: Collection[SamplingCheck]) -> None:
        """Record that the user accepts servers that do not seem to sample."""
        checks = {name: from_plain(SamplingCheck, check) for name, check in self.run.manifest.checks.items()}
        accepted = {
            name: replace(check, accepted=True) for name, check in checks.items() if check in suspects
        }
        self.run.update_manifest(checks=to_builtins(accepted))

    def _warn(self, check: SamplingCheck) -> None:
        from selfreflect.report.findings import sampling_warning

        self._progress.warn(sampling_warning(check))

    def plan(self, stages: Sequence[Stage], strategies: Sequence[str]) -> None:
        """Remember strategies and settings of stages without results, for a later continuation."""
        # strategies of an interrupted command are continued by the next one, which need not name them
        stored_names = run_strategies(self.run)
        if not {*strategies} <= {*stored_names}:
            self.run.update_manifest(plan={"strategies": list(dict.fromkeys([*stored_names, *strategies]))})
        manifest = self.run.manifest
        # stages with results are bound to the settings that these were made with
        with_settings = {"questions", *manifest.config}
        ahead = [stage for stage in stages if stage not in with_settings]
        settings = stage_settings(self._config, ahead, self._prompts)
        sections = plain_settings({str(stage): section for stage, section in settings.items()})
        if sections != {stage: manifest.asked.get(stage) for stage in sections}:
            self.run.update_manifest(asked=sections)

    def fill(self, stage: ModelStage, strategies: Sequence[Named] = ()) -> None:
        """Run a stage: answers, summaries by each strategy, or measures.

        Each result is stored as it comes.

        Raises:
            ConfigError: a strategy is unknown, even if nothing is left to do.
        """
        tasks = self._tasks(stage, strategies)
        if not tasks:
            return
        spec = StageSpec(
            stage,
            self._config,
            self._prompts,
            self._options,
            tuple(strategies),
            self.run.manifest.models,
        )
        total = total_size(tasks)
        saved = 0
        if stage == "answers":
            self._progress.note(halves_note(self._config.answers.num_answers))
        # a run that was stopped at its first question goes on when it is started again
        is_first = stage == "answers" and not (self.run.answers or self.run.failures)
        with ExitStack() as stack:
            counter = stack.enter_context(self._progress.stage(stage, total))
            # local models are loaded here, outside of the time that the stage is said to take
            outcomes = self._executors.outcomes(spec, tasks)
            stack.enter_context(closing(outcomes))
            stack.enter_context(self._timed(stage))
            try:
                workers = _Workers(self, stage)
                for outcome in outcomes:
                    workers.check(outcome)
                    results = outcome.results
                    self.run.append_all(results)
                    count = count_results([result for result in results if not isinstance(result, Failure)])
                    saved += count
                    self._progress.add(outcome.work)
                    # the bar moves with what is on disk, not with what a model has said
                    if results:
                        counter.advance(count, count_results(results) - count)
                    outcome.raise_error()
                    ended = [result for result in results if isinstance(result, AnswerSet | Failure)]
                    if is_first and ended:
                        is_first = False
                        # else every question would fail in this way, after hours
                        self._check_first(ended[0])
                workers.end()
            except (BackendError, JudgeError) as error:
                # the counts stand before the advice, which ends the sentence
                message = error.message.removesuffix(".")
                raise type(error)(
                    f"{message}. {saved:,} of {total:,} {stage} saved, {total - saved:,} to go. "
                    "Run the same command to resume.",
                    code=error.code,
                    remedy=error.remedy,
                    **error.fields,
                ) from None
        if stage == "answers" and stage in self.run.manifest.checks:
            self._check_answers()

    @staticmethod
    def _check_first(result: AnswerSet | Failure) -> None:
        """Raise BackendError if the first question got only unfinished reasoning."""
        if isinstance(result, Failure) and result.code == ONLY_REASONING:
            raise BackendError(
                f"all answers to the first question are unfinished reasoning ({result.question_id})",
                code="unclosed_reasoning",
                remedy="Start a new run with a higher {answers.max_new_tokens}, or without thinking.",
            )

    def _tasks(self, stage: ModelStage, strategies: Sequence[Named]) -> Sequence[StageTask]:
        if stage == "answers":
            return list(missing_answers(self.run))
        if stage == "summaries":
            for strategy in strategies:
                if isinstance(strategy, str):
                    load_strategy(strategy)
            return list(missing_summaries(self.run, strategy_names(strategies)))
        # equal texts get equal results, without a second measurement
        self.run.append_all(copied_results(self.run, self._config.scores))
        return missing_scores(self.run, self._config.scores)

    def _check_answers(self) -> None:
        """Record the number of questions with identical answers, and warn if they are the majority."""
        stored_check = from_plain(SamplingCheck, self.run.manifest.checks["answers"])
        check = count_identical(stored_check, list(self.run.answers.values()))
        self.run.update_manifest(checks=to_builtins({"answers": check}))
        # a suspect was warned about before the first question
        if check.is_suspect and not stored_check.is_suspect:
            self._warn(check)

    def _settle(self, stage: Stage, *, again: bool = False, **facts: dict[str, Any]) -> None:
        """Record a stage's settings, which bind the directory from then on.

        Args:
            again: replace the settings that the stage began with.
            facts: of its ``models`` or ``sources``.
        """
        sections: dict[str, Any] = dict(facts)
        # a resumed stage keeps the settings that its first results were made with
        if again or stage not in self.run.manifest.config:
            sections["config"] = stage_settings(self._config, [stage], self._prompts)[stage]
        if stage in PROMPTED:
            sections["prompts"] = self._prompts.hash
        entries: dict[str, Any] = {name: {stage: value} for name, value in sections.items()}
        if stage in PROMPTED:
            entries["prompt_texts"] = {self._prompts.hash: to_builtins(self._prompts)}
            if origin := prompts_origin(self._options.prompts):
                entries["sources"] = {stage: origin}
        self.run.update_manifest(packages=_packages(), **entries)

    @contextmanager
    def _timed(self, stage: Stage) -> Iterator[None]:
        start = time.monotonic()
        try:
            yield
        except BaseException:
            with suppress(StoreError):  # on a full disk it would hide the first error
                self._record_end(stage, start)
            raise
        self._record_end(stage, start)

    def _record_end(self, stage: Stage, start: float) -> None:
        now = datetime.now(UTC).isoformat(timespec="seconds")
        self.run.update_manifest(wall_time={stage: time.monotonic() - start}, finished={stage: now})


class _Workers:
    """Monitor of a stage's workers, which must all use the same model.

    It is settled with the first result: a server may yet turn out not to know the model.
    """

    def __init__(self, experiment: Experiment, stage: ModelStage) -> None:
        self._experiment = experiment
        self._stage = stage
        self._first: dict[str, Any] | None = None
        self._latest: dict[str, Any] | None = None
        self._notes: set[str] = set()
        self._is_settled = False

    def check(self, outcome: Outcome) -> None:
        """Compare an outcome's model with the first one. Raises BackendError if they differ."""
        run = self._experiment.run
        for line in outcome.notes:
            if line not in self._notes:
                self._notes.add(line)
                self._experiment._progress.note(line)
        facts = outcome.facts
        if facts is not None and self._first is None:
            check_model(run.manifest, self._stage, facts, run.path)
            self._first = facts
        # results of two models under one name could not be told apart later
        elif facts is not None and _identity(facts) != _identity(self._first or {}):
            raise BackendError(
                f"the workers loaded different models: {self._first} and {facts}",
                code="different_models",
                remedy=f"Name a revision and a dtype for {self._stage}.",
            )
        if outcome.results and not self._is_settled:
            if self._first is None:
                self._experiment._settle(self._stage)
            else:
                self._experiment._settle(self._stage, models=self._first)
            self._is_settled = True
        # a server may turn out to refuse more while it is asked
        self._latest = facts or self._latest

    def end(self) -> None:
        """Record facts learned about the model, such as refused fields."""
        if self._is_settled and self._latest != self._first and self._latest is not None:
            self._experiment.run.update_manifest(models={self._stage: self._latest})


# Facts about where a model runs, and what its server turned out to take.
_OBSERVED = ("device", "refused", "wording", "drawn_again")


def _identity(facts: dict[str, Any]) -> dict[str, Any]:
    """Select the facts on which workers must agree."""
    return {name: value for name, value in facts.items() if name not in _OBSERVED}


def _packages() -> dict[str, str]:
    versions = {"python": platform.python_version()}
    for name in ("selfreflect", "torch", "transformers", "tokenizers", "numpy"):
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            versions[name] = "unknown"
    return versions
