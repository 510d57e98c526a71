"""What a job does: run the stages of an experiment in its own run directory, tell the page what happens, and
stop before the next forward pass when it is cancelled."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import chain, pairwise
from pathlib import Path
from typing import Any, Literal

from msgspec import to_builtins
from msgspec.structs import replace

from selfreflect.app.checks import Preflight, prompts_of, question_of
from selfreflect.app.choices import ModelChoices
from selfreflect.app.guard import CUT_OFF, failure_problem, problem_text
from selfreflect.app.jobs import Job
from selfreflect.app.library import Library
from selfreflect.app.schemas import AskBody, JudgeBody, ScoreBody
from selfreflect.models.base import Refusal, Reply, Request, StageGenerator
from selfreflect.models.judge import Judge
from selfreflect.pipeline.experiment import Experiment, open_experiment
from selfreflect.pipeline.models import ConfiguredModels, ModelProvider, WorkDone
from selfreflect.pipeline.preflight import check_models
from selfreflect.pipeline.settings import settings_of
from selfreflect.pipeline.tasks import ModelStage
from selfreflect.records import STAGES, Stage
from selfreflect.report.findings import sampling_warning
from selfreflect.report.page.view import information_view
from selfreflect.settings import Config, ExecutionOptions
from selfreflect.sources.items import Item
from selfreflect.store.run import Run
from selfreflect.web.paths import without_paths

GUESSES = 5
"""Likeliest tokens kept for every masked word; the page shows them on a click."""

_MOST_GUESSED = 400_000
"""Characters of masked-out answers times summaries, up to which guesses are kept. They take about a hundred
times as many bytes on disk."""

_BETWEEN_ADVANCES = 1.0
"""Seconds."""

FIRST_BATCH = 2
BATCH = 8
"""Answers drawn together; fewer at first, to show some soon."""


class JobRunner:
    """Opens a run directory for each job and fills it."""

    def __init__(
        self, library: Library, choices: ModelChoices, options: ExecutionOptions, checks: Preflight
    ) -> None:
        self._library = library
        self._choices = choices
        self._options = options
        self._checks = checks

    def __call__(self, job: Job) -> None:
        if isinstance(job.request, RunToJudge):
            self._judge(job, job.request)
        else:
            self._work(job, job.request)

    def _work(self, job: Job, body: AskBody | ScoreBody) -> None:
        """Fill a new run directory."""
        path = self._library.begin(job.kind)
        config = self._choices.config(body)
        stages = STAGES[1:] if isinstance(body, AskBody) else STAGES[3:]
        with prompts_of(body) as prompts:
            options = replace(self._options, prompts=prompts, guesses=guesses_for(body))
            with self._experiment(job, path, config, stages, options) as (experiment, progress, models):
                question = question_of(body)
                experiment.run.append(question)
                if isinstance(body, AskBody):
                    self._check(experiment.run, config, progress, models)
                    experiment.answers()
                    progress.show_records()
                    if experiment.run.answers:
                        experiment.summaries(body.strategies)
                else:
                    item = _item(body)
                    experiment.run.append_all([item.answer_set, *item.summary_records])
                if experiment.run.summaries:
                    experiment.scores()
                progress.show_records()

    def _judge(self, job: Job, task: RunToJudge) -> None:
        """Score a run by one more judge, beside the scores that it has."""
        path = self._library.directory(task.run).path
        base = settings_of(path, {"judge": self._choices.resolve(task.body.judge)})
        config = self._choices.config(task.body, {"scores": base.get("scores", {})})
        options = replace(self._options, guesses=GUESSES)
        with self._experiment(job, path, config, STAGES[3:], options) as (experiment, progress, _):
            job.show(scoring=experiment.run.scoring)
            experiment.scores()
            progress.show_records()

    @contextmanager
    def _experiment(
        self, job: Job, path: Path, config: Config, stages: Sequence[Stage], options: ExecutionOptions
    ) -> Iterator[tuple[Experiment, JobProgress, JobModels]]:
        progress = JobProgress(job)
        models = JobModels(ConfiguredModels(config, options, progress), progress)
        with (
            progress.hooks,
            open_experiment(
                path, config, stages, options=options, progress=progress, models=models
            ) as experiment,
        ):
            job.run = self._library.id_of(path)
            progress.run = experiment.run
            yield experiment, progress, models

    def _check(self, run: Run, config: Config, progress: JobProgress, models: JobModels) -> None:
        """Check all models before the first answer, and that servers sample.

        Raises:
            SelfReflectError: a later stage could not run.
        """
        stages: list[ModelStage] = ["answers", "summaries", "scores"]
        check_models(stages, config, self._options, progress)
        checks = self._checks.sampling(config, models)
        run.update_manifest(checks=to_builtins(checks))
        for check in dict.fromkeys(checks.values()):
            if check.is_suspect:
                progress.warn(sampling_warning(check))


@dataclass(frozen=True)
class RunToJudge:
    """The request of a job that adds a judge to a run."""

    run: str
    """Its id in the library."""
    body: JudgeBody


def guesses_for(body: AskBody | ScoreBody) -> int:
    """How many guesses to keep for each masked token: none where they would take too much room."""
    if isinstance(body, AskBody):  # whose answers are short
        return GUESSES
    characters = sum(map(len, _item(body).masked_out)) * len(body.summaries)
    return GUESSES if characters <= _MOST_GUESSED else 0


def _item(body: ScoreBody) -> Item:
    return Item.of(
        body.question,
        body.summaries,
        answers=body.answers,
        masked_out=body.masked_out or (),
        conditioning=body.conditioning or (),
        context=body.context.strip(),
    )


class JobProgress:
    """The :class:`~selfreflect.pipeline.models.Progress` of a job."""

    run: Run
    """The job's run directory, set before any stage begins."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self._done = 0
        """Questions or summaries that the current stage has finished."""
        self._work = WorkDone()
        """Work of the current stage, if it scores."""
        self._shown_at = 0.0
        self._warnings: list[str] = []
        self.hooks = ExitStack()
        """Removes what :meth:`hook` adds to the models, which later jobs share."""

    def note(self, line: str) -> None:
        self.job.check()
        self.job.show(note=without_paths(line))

    def warn(self, line: str) -> None:
        self._warnings.append(without_paths(line))
        self.show_records()

    @contextmanager
    def stage(self, name: str, total: int) -> Iterator[JobProgress]:
        self.job.check()
        self._done = 0
        self._work = WorkDone()
        body = self.job.request
        if name == "answers" and isinstance(body, AskBody):
            total = 2 * body.num_answers  # which are shown one by one
        self.job.show(stage=name, note="", done=0, total=total, stage_began=time.time())
        try:
            yield self
        finally:
            self.hooks.close()

    def advance(self, count: int = 1, failures: int = 0) -> None:
        self.job.check()
        self.show_records()
        self._done += count
        if self._stage != "answers":
            self.job.show(done=self._done)

    def add(self, work: WorkDone) -> None:
        """Show now and then how much of a question the judge has read."""
        if self._stage != "scores":
            return
        self._work += work
        now = time.monotonic()
        if work.tokens and self._work.planned > 0 and now - self._shown_at >= _BETWEEN_ADVANCES:
            self._shown_at = now
            share = min(1.0, self._work.tokens / self._work.planned)
            self.job.show(done=round(max(self._done, share * self._work.units), 3))

    @property
    def _stage(self) -> str | None:
        stage: str | None = self.job.view.get("stage")
        return stage

    def hook(self, model: Any) -> None:
        """Check before every forward pass of a local model whether the job was cancelled, for one stage."""
        self.job.show(note="")  # the model is loaded
        lm = getattr(model, "lm", None)
        runs_elsewhere = getattr(model, "last_states", None) is not None
        if lm is not None and not runs_elsewhere:
            embeddings = lm.model.get_input_embeddings()
            handle = embeddings.register_forward_pre_hook(lambda *_: self.job.check())
            self.hooks.callback(handle.remove)

    def show_answers(self, reply: Reply) -> None:
        """Show answers that were just drawn."""
        self.job.show_answers(reply.texts)
        self.job.show(done=len(self.job.answers))

    def show_records(self) -> None:
        """Show the summaries, results and failures in the run directory, if it is of one question."""
        summaries: dict[str, dict[str, Any]] = {}
        problems = [{"message": warning, "remedy": ""} for warning in self._warnings]
        if len(self.run.questions) <= 1:
            for (_, name), summary in self.run.summaries.items():
                warnings = [CUT_OFF] if summary.truncated else []
                summaries[name] = {"name": name, "text": summary.text, "warnings": warnings}
            for (_, name), score in self.run.scores.items():
                summaries.setdefault(name, {"name": name})["score"] = score.value
            for (id_, name), information in self.run.information.items():
                information = replace(information, why=without_paths(information.why))
                view = information_view(information, self.run.answers.get(id_))
                summaries.setdefault(name, {"name": name})["information"] = view
        for failure in self.run.failures:
            described = failure_problem(failure)
            if failure.name:
                summaries.setdefault(failure.name, {"name": failure.name})["why"] = problem_text(described)
            else:
                problems.append(described)
        self.job.show(summaries=list(summaries.values()), problems=problems)


class JobModels:
    """A :class:`~selfreflect.pipeline.models.ModelProvider` whose models stop when the job is cancelled.

    Answers are shown before there are enough of them for a record.
    """

    def __init__(self, models: ModelProvider, progress: JobProgress) -> None:
        self._models = models
        self._progress = progress

    def generator(self, stage: Literal["answers", "summaries"]) -> StageGenerator:
        generator = self._models.generator(stage)
        self._progress.hook(generator)
        if stage == "answers":
            return Streaming(generator, self._progress.show_answers, self._progress.job.check)
        return generator

    def judge(self) -> Judge:
        judge = self._models.judge()
        self._progress.hook(judge)
        return judge


class Streaming:
    """A generator that draws the completions of a request in small batches and shows each batch.

    Sample i of a request has the seed of the request plus i, so the texts are the same as in one batch.
    """

    def __init__(
        self, generator: StageGenerator, show: Callable[[Reply], None], check: Callable[[], None]
    ) -> None:
        self.name = generator.name
        self.revision = generator.revision
        self.facts = generator.facts
        self._generator = generator
        self._show = show
        self._check = check

    def generate(self, requests: Sequence[Request]) -> list[Reply | Refusal]:
        return list(map(self._reply, requests))

    def _reply(self, request: Request) -> Reply | Refusal:
        replies: list[Reply] = []
        for first, end in pairwise([0, *range(FIRST_BATCH, request.n, BATCH), request.n]):
            self._check()
            [reply] = self._generator.generate([replace(request, n=end - first, seed=request.seed + first)])
            if isinstance(reply, Refusal):
                return reply
            replies.append(reply)
            self._show(reply)
        completions = tuple(chain.from_iterable(reply.completions for reply in replies))
        return Reply(completions=completions, prompt_tokens=replies[0].prompt_tokens)
