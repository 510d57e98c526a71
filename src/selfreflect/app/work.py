"""What a job does: run the stages of an experiment in its own run directory, tell the page what happens, and
stop before the next forward pass when it is cancelled."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from importlib import resources
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

from msgspec.structs import replace

from selfreflect.app.guard import without_paths
from selfreflect.app.jobs import Job
from selfreflect.app.library import Library
from selfreflect.app.schemas import AskBody, ScoreBody
from selfreflect.config import load_config, sampling_of
from selfreflect.errors import ConfigError, excerpt
from selfreflect.grouping import normal_form
from selfreflect.models.base import Refusal, Reply, Request
from selfreflect.models.judge import Judge
from selfreflect.models.openai.endpoint import endpoint
from selfreflect.pipeline.experiment import Experiment, open_experiment
from selfreflect.pipeline.models import ConfiguredModels, ModelProvider, StageGenerator
from selfreflect.pipeline.options import ExecutionOptions, WorkDone
from selfreflect.records import STAGES, Question, question_id
from selfreflect.report.page.bits import information_view
from selfreflect.sources.items import Item
from selfreflect.store.run import Run

ANSWER_TOKENS = 64
SUMMARY_TOKENS = 256

GUESSES = 5
"""Likeliest tokens kept for every masked word; the page shows them on a click."""

_MOST_GUESSED = 400_000
"""Characters of masked-out answers times summaries, up to which guesses are kept. They take about a hundred
times as many bytes on disk."""

FIRST_BATCH = 2
BATCH = 8
"""Answers drawn together; fewer at first, to show some soon."""

_HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*(?:/[A-Za-z0-9][\w.-]*)?", re.ASCII)


def is_served(name: str) -> bool:
    """Whether a name is that of a model on a server."""
    return name.startswith("openai:")


class ModelChoices:
    """The models that clients may use: smollm2, those named when the app was started, and names on the hub.

    A client never names a directory. Directories named at the start are offered by their last part. A client
    never names an address either: models of a server, ``openai:NAME``, are asked for at ``base_url``, any of
    them if it is set, else only those named at the start. The key comes from the environment.
    """

    def __init__(self, names: Sequence[str] = (), base_url: str | None = None) -> None:
        self.base_url = base_url
        self._names = {"smollm2": "smollm2"}
        for name in names:
            shown = Path(name).resolve().name if Path(name).is_dir() else name
            self._names[shown] = name

    @property
    def offered(self) -> list[str]:
        """Names for a list of choices; those named at the start come first."""
        return [*list(self._names)[1:], "smollm2"]

    @property
    def server(self) -> str | None:
        """The address of the server, without credentials; None if no model of a server may be used."""
        if self.base_url is None and not any(map(is_served, self._names)):
            return None
        return endpoint(self.base_url).url

    def resolve(self, name: str) -> str:
        """The name to load.

        Raises:
            ConfigError: ``name`` is neither offered nor the name of a model on the hub.
        """
        if name in self._names or (self.base_url is not None and is_served(name)):
            return self._names.get(name, name)
        if is_served(name):
            raise ConfigError(
                f"{excerpt(name)} is a model of a server. Allow it when you start the app: "
                f"selfreflect app --model openai:NAME, and --base-url URL if the server is not OpenAI's"
            )
        if not _HUB_NAME.fullmatch(name) or ".." in name or Path(name).exists():
            raise ConfigError(
                f"unknown model {excerpt(name)}. Choose one of {', '.join(self.offered)}, or a hub name such "
                "as Qwen/Qwen2.5-7B-Instruct. Name a model in a directory when you start the app: "
                "selfreflect app --model DIR"
            )
        return name


class JobRunner:
    """Opens a run directory for each job and fills it."""

    def __init__(self, library: Library, choices: ModelChoices, options: ExecutionOptions) -> None:
        self._library = library
        self._choices = choices
        self._options = options

    def __call__(self, job: Job) -> None:
        progress = JobProgress(job)
        path = self._library.begin(job.kind)
        body: AskBody | ScoreBody = job.request
        config = load_config(None, self._settings(body))
        stages = STAGES[1:] if isinstance(body, AskBody) else STAGES[3:]
        short_answers = resources.files("selfreflect") / "data" / "demo_prompts.toml"
        with progress.hooks, resources.as_file(short_answers) as demo_prompts:
            prompts = demo_prompts if isinstance(body, AskBody) and body.brief else None
            options = replace(self._options, prompts=prompts, guesses=guesses_for(body))
            models = JobModels(ConfiguredModels(config, options, progress), progress)
            with open_experiment(
                path, config, stages, options=options, progress=progress, models=models
            ) as experiment:
                job.run = self._library.id_of(path)
                progress.run = experiment.run
                experiment.run.append(_question(body))
                job.events.add("begun", run=job.run, question=body.question)
                _fill(experiment, body, progress)

    def _settings(self, body: AskBody | ScoreBody) -> dict[str, dict[str, Any]]:
        scores = {
            "judge": self._choices.resolve(body.judge),
            "measures": ",".join(body.measures),
            "reader": body.reader,
        }
        sections: dict[str, dict[str, Any]] = {"scores": scores}
        if isinstance(body, AskBody):
            model = self._choices.resolve(body.model)
            common: dict[str, Any] = {"model": model, "seed": body.seed}
            if is_served(model):
                common["base_url"] = self._choices.base_url
            chosen = {"temperature": body.temperature, "top_p": body.top_p}
            sections["answers"] = {
                **common,
                **sampling_of(model),
                **{name: value for name, value in chosen.items() if value is not None},
                "num_answers": body.num_answers,
                "max_new_tokens": ANSWER_TOKENS,
            }
            sections["summaries"] = {
                **common,
                "max_new_tokens": SUMMARY_TOKENS,
                "sample_max_new_tokens": ANSWER_TOKENS,
                "num_samples": 2 * body.num_answers,
            }
        return sections


def _fill(experiment: Experiment, body: AskBody | ScoreBody, progress: JobProgress) -> None:
    run = experiment.run
    if isinstance(body, AskBody):
        experiment.answers()
        progress.show_failures()
        if run.answers:
            experiment.summaries(body.strategies)
    else:
        item = _item(body)
        run.append_all([item.answer_set, *item.summary_records])
        progress.show_records()
    if run.summaries:
        experiment.scores()
    progress.show_failures()


def guesses_for(body: AskBody | ScoreBody) -> int:
    """How many guesses to keep for each masked token: none where they would take too much room."""
    if isinstance(body, AskBody):  # whose answers are short
        return GUESSES
    characters = sum(map(len, _item(body).masked_out)) * len(body.summaries)
    return GUESSES if characters <= _MOST_GUESSED else 0


def _question(body: AskBody | ScoreBody) -> Question:
    context = body.context.strip()
    return Question(id=question_id(body.question, context), text=body.question, context=context)


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
    """The :class:`~selfreflect.pipeline.options.Progress` of a job."""

    run: Run
    """The job's run directory, set before any stage begins."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self._done = 0
        """Of the current stage."""
        self._groups: dict[str, int] = {}
        self._shown: set[tuple[str, str]] = set()
        self.hooks = ExitStack()
        """Removes what :meth:`hook` adds to the models, which later jobs share."""

    def note(self, line: str) -> None:
        self.job.check()
        self.job.events.add("note", text=without_paths(line))

    def warn(self, line: str) -> None:
        self.note(line)

    @contextmanager
    def stage(self, name: str, total: int) -> Iterator[JobProgress]:
        try:
            self.job.check()
            self._done = 0
            self.job.events.add("stage", name=name, total=total)
            yield self
        finally:
            self.hooks.close()

    def advance(self, count: int = 1, failed: int = 0) -> None:
        self.job.check()
        self.show_records()
        self._done += count
        self.job.events.add("advance", done=self._done)

    def add(self, work: WorkDone) -> None:
        """Answers are shown themselves."""

    def hook(self, model: Any) -> None:
        """Check before every forward pass of a local model whether the job was cancelled, for one stage."""
        lm = getattr(model, "lm", None)
        runs_elsewhere = getattr(model, "last_states", None) is not None
        if lm is not None and not runs_elsewhere:
            embeddings = lm.model.get_input_embeddings()
            handle = embeddings.register_forward_pre_hook(lambda *_: self.job.check())
            self.hooks.callback(handle.remove)

    def show_answers(self, reply: Reply) -> None:
        """Show answers that were just drawn, each with the number of its group."""
        texts = [completion.text for completion in reply.completions]
        groups = [self._groups.setdefault(normal_form(text), len(self._groups)) for text in texts]
        self.job.events.add("answers", texts=texts, groups=groups)

    def show_records(self) -> None:
        """Show the summaries and results that are new in the run directory."""
        for (_, name), summary in self.run.summaries.items():
            if self._is_new("summary", name):
                self.job.events.add("summary", name=name, text=summary.text)
        for (_, name), score in self.run.scores.items():
            if self._is_new("score", name):
                self.job.events.add("score", name=name, value=score.value, stderr=score.stderr)
        for (id_, name), information in self.run.information.items():
            if self._is_new("information", name):
                information = replace(information, why=without_paths(information.why))
                view = information_view(information, self.run.answers.get(id_))
                self.job.events.add("information", name=name, **view)

    def show_failures(self) -> None:
        for failure in self.run.failures:
            if self._is_new(f"{failure.stage} failure", failure.name):
                message = without_paths(failure.message)
                self.job.events.add(
                    "failure", stage=failure.stage, name=failure.name, kind=failure.kind, message=message
                )

    def _is_new(self, kind: str, name: str) -> bool:
        is_new = (kind, name) not in self._shown
        self._shown.add((kind, name))
        return is_new


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
        return [self._reply(request) for request in requests]

    def _reply(self, request: Request) -> Reply | Refusal:
        replies: list[Reply] = []
        for first, end in pairwise([0, *range(FIRST_BATCH, request.n, BATCH), request.n]):
            self._check()
            [reply] = self._generator.generate([replace(request, n=end - first, seed=request.seed + first)])
            if isinstance(reply, Refusal):
                return reply
            replies.append(reply)
            self._show(reply)
        completions = tuple(completion for reply in replies for completion in reply.completions)
        return Reply(completions=completions, prompt_tokens=replies[0].prompt_tokens)
