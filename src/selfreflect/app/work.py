"""What a job does: run the stages of an experiment in a run directory of its own."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from importlib import resources
from pathlib import Path

from msgspec.structs import replace

from selfreflect.app.jobs import Job
from selfreflect.app.library import Library
from selfreflect.app.progress import JobModels, JobProgress
from selfreflect.app.schemas import AskBody, ScoreBody
from selfreflect.config import Config, load_config
from selfreflect.errors import ConfigError, excerpt
from selfreflect.pipeline.experiment import Experiment, open_experiment
from selfreflect.pipeline.models import ConfiguredModels
from selfreflect.pipeline.options import ExecutionOptions
from selfreflect.records import STAGES, Question, question_id
from selfreflect.sources.items import Item

ANSWER_TOKENS = 64
SUMMARY_TOKENS = 256

GUESSES = 5
"""Likeliest tokens kept for every masked word; the page shows them on a click."""

_MOST_GUESSED = 400_000
"""Characters of masked-out answers times summaries, up to which guesses are kept. They take about a hundred
times as many bytes on disk."""

_HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*(?:/[A-Za-z0-9][\w.-]*)?", re.ASCII)


class ModelChoices:
    """The models that clients may use: smollm2, those named when the app was started, and names on the hub.

    A client never names a directory. Directories named at the start are offered by their last part.
    """

    def __init__(self, names: Sequence[str] = ()) -> None:
        self._names = {"smollm2": "smollm2"}
        for name in names:
            shown = Path(name).resolve().name if Path(name).is_dir() else name
            self._names[shown] = name

    @property
    def offered(self) -> list[str]:
        """Names for a list of choices; those named at the start come first."""
        return [*list(self._names)[1:], "smollm2"]

    def resolve(self, name: str) -> str:
        """The name to load.

        Raises:
            ConfigError: ``name`` is neither offered nor the name of a model on the hub.
        """
        if name in self._names:
            return self._names[name]
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
        try:
            self._run(job, progress)
        finally:
            progress.release()

    def _run(self, job: Job, progress: JobProgress) -> None:
        path = self._library.begin(job.kind)
        body: AskBody | ScoreBody = job.request
        config = self._ask_config(body) if isinstance(body, AskBody) else self._score_config(body)
        stages = STAGES[1:] if isinstance(body, AskBody) else STAGES[3:]
        with self._prompts(body) as prompts:
            options = replace(self._options, prompts=prompts, guesses=guesses_for(body))
            models = JobModels(ConfiguredModels(config, options, progress), progress)
            with open_experiment(
                path, config, stages, options=options, progress=progress, models=models
            ) as experiment:
                job.run = self._library.id_of(path)
                progress.run = experiment.run
                experiment.run.append(Question(id=question_id(body.question), text=body.question))
                job.events.add("begun", run=job.run, question=body.question)
                self._fill(experiment, body, progress)

    def _fill(self, experiment: Experiment, body: AskBody | ScoreBody, progress: JobProgress) -> None:
        run = experiment.run
        if isinstance(body, AskBody):
            experiment.answers()
            progress.show_failures()
            if run.answers:
                experiment.summaries(body.strategies)
        else:
            item = _item(body)
            run.append_all([item.answer_set, *item.summary_records])
            progress.show_summaries()
        if run.summaries:
            experiment.scores()
        progress.show_failures()

    def _prompts(self, body: AskBody | ScoreBody) -> AbstractContextManager[Path | None]:
        """The prompts file that asks for short answers, if they are wanted."""
        if isinstance(body, AskBody) and body.brief:
            return resources.as_file(resources.files("selfreflect") / "data" / "demo_prompts.toml")
        return nullcontext()

    def _ask_config(self, body: AskBody) -> Config:
        common = {"model": self._choices.resolve(body.model), "seed": body.seed}
        answers = {**common, "num_answers": body.num_answers, "max_new_tokens": ANSWER_TOKENS}
        summaries = {
            **common,
            "max_new_tokens": SUMMARY_TOKENS,
            "sample_max_new_tokens": ANSWER_TOKENS,
            "num_samples": 2 * body.num_answers,
        }
        scores = {"judge": self._choices.resolve(body.judge)}
        return load_config(None, {"answers": answers, "summaries": summaries, "scores": scores})

    def _score_config(self, body: ScoreBody) -> Config:
        return load_config(None, {"scores": {"judge": self._choices.resolve(body.judge)}})


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
    )
