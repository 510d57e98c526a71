"""What a job does: the stages of an experiment in a run directory of its own, told as events while they
happen."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from importlib import resources
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from selfreflect.app.jobs import Job
from selfreflect.app.library import Library
from selfreflect.app.safe import without_paths
from selfreflect.app.schemas import AskBody, ScoreBody
from selfreflect.config import load_config
from selfreflect.errors import ConfigError, excerpt
from selfreflect.grouping import normal_form
from selfreflect.models.base import Generator, Refusal, Reply, Request
from selfreflect.pipeline.experiment import Counter, ExecutionOptions, Experiment
from selfreflect.records import STAGES, Question, Stage, question_id
from selfreflect.sources.items import Item

ANSWER_TOKENS = 64
SUMMARY_TOKENS = 256

_HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*(?:/[A-Za-z0-9][\w.-]*)?", re.ASCII)

GUESSES = 5
"""Likeliest tokens kept for every masked word, to be shown where it is clicked."""

_MOST_GUESSED = 400_000
"""Characters of given answers, once for each summary, up to which they are kept: about a hundred times as
many bytes on disk."""

FIRST_BATCH, LARGEST_BATCH = 2, 16
"""Answers drawn together: few at first, so that there is something to see soon, then more, since a large
batch costs less for each."""


class ModelChoices:
    """Which models may be asked for: the embedded one, those named when the app was started, and names on the
    hub.

    A client never names a directory. Those given at the start are offered by their last part.
    """

    def __init__(self, given: Sequence[str] = ()) -> None:
        self._known = {"smollm2": "smollm2"}
        for name in given:
            self._known[Path(name).resolve().name if Path(name).is_dir() else name] = name

    @property
    def offered(self) -> list[str]:
        """Names for a list of choices; what was given at the start comes first."""
        return [*list(self._known)[1:], "smollm2"]

    def resolve(self, name: str) -> str:
        """What the loader is told.

        Raises:
            ConfigError: it is neither offered nor the name of a model on the hub.
        """
        if name in self._known:
            return self._known[name]
        if not _HUB_NAME.fullmatch(name) or ".." in name or Path(name).exists():
            raise ConfigError(
                f"unknown model {excerpt(name)}. Choose one of {', '.join(self.offered)}, or a hub name such as Qwen/Qwen2.5-7B-Instruct. "
                "A model in a directory must be named when the app is started: selfreflect app --model DIR"
            )
        return name


class Streaming:
    """A generator that draws the completions of a request in small batches and tells of each.

    Sample i of a request has the seed of the request plus i, so the texts are those that one batch would
    give.
    """

    def __init__(
        self, generator: Generator, tell: Callable[[Reply], None], check: Callable[[], None]
    ) -> None:
        self._generator = generator
        self._tell, self._check = tell, check

    @property
    def name(self) -> str:
        return self._generator.name

    @property
    def revision(self) -> str:
        return self._generator.revision

    def generate(self, requests: Sequence[Request]) -> list[Reply | Refusal]:
        return [self._drawn(request) for request in requests]

    def _drawn(self, request: Request) -> Reply | Refusal:
        replies: list[Reply] = []
        for first, count in batches(request.n):
            self._check()
            [reply] = self._generator.generate([replace(request, n=count, seed=request.seed + first)])
            if isinstance(reply, Refusal):
                return reply
            replies.append(reply)
            self._tell(reply)
        return Reply(
            completions=tuple(completion for reply in replies for completion in reply.completions),
            prompt_tokens=replies[0].prompt_tokens,
        )


def batches(total: int) -> Iterator[tuple[int, int]]:
    """(first, count) of batches that grow from ``FIRST_BATCH`` to ``LARGEST_BATCH``."""
    first, count = 0, FIRST_BATCH
    while first < total:
        yield first, min(count, total - first)
        first, count = first + count, min(2 * count, LARGEST_BATCH)


class JobRunner:
    """Does a job: opens a run directory for it and fills it."""

    def __init__(self, library: Library, models: ModelChoices, options: ExecutionOptions) -> None:
        self._library = library
        self._models = models
        self._options = options

    def __call__(self, job: Job) -> None:
        teller = _Teller(job)
        try:
            self._do(job, teller)
        finally:
            teller.release()

    def _do(self, job: Job, teller: _Teller) -> None:
        path = self._library.begin(job.kind)
        body = job.request
        asked = Question(id=question_id(body.question), text=body.question)
        stages: tuple[Stage, ...] = STAGES[1:] if isinstance(body, AskBody) else STAGES[3:]
        overrides = self._asked(body) if isinstance(body, AskBody) else self._given(body)
        with (
            self._prompts(body) as prompts,
            _Watched.open(
                path,
                load_config(None, overrides),
                stages,
                options=self._adapted(body, prompts),
                progress=teller,
            ) as opened,
        ):
            job.run = self._library.id_of(path)
            teller.experiment = opened
            opened.run.append(asked)
            job.events.add("begun", run=job.run, question=body.question)
            if isinstance(body, AskBody):
                opened.answers()
                teller.failures()
                if opened.run.answers:
                    opened.summaries(body.strategies)
            else:
                item = _item(body)
                opened.run.append_all([item.answer_set, *item.summary_records])
                teller.summaries()
            if opened.run.summaries:
                opened.scores()
            teller.failures()

    def _adapted(self, body: AskBody | ScoreBody, prompts: Path | None) -> ExecutionOptions:
        texts = (
            () if isinstance(body, AskBody) else _item(body).masked_out
        )  # what a model draws here is short
        size = 0 if isinstance(body, AskBody) else sum(map(len, texts)) * len(body.summaries)
        return replace(self._options, prompts=prompts, guesses=GUESSES if size <= _MOST_GUESSED else 0)

    def _prompts(self, body: AskBody | ScoreBody) -> AbstractContextManager[Path | None]:
        """The file of prompts that asks for short answers, where they are wanted."""
        if isinstance(body, AskBody) and body.brief:
            return resources.as_file(resources.files("selfreflect") / "data" / "demo_prompts.toml")
        return nullcontext()

    def _asked(self, body: AskBody) -> dict[str, dict[str, Any]]:
        common = {"model": self._models.resolve(body.model), "seed": body.seed}
        return {
            "answers": {**common, "num_answers": body.num_answers, "max_new_tokens": ANSWER_TOKENS},
            "summaries": {
                **common,
                "max_new_tokens": SUMMARY_TOKENS,
                "sample_max_new_tokens": ANSWER_TOKENS,
                "num_samples": 2 * body.num_answers,
            },
            "scores": {"judge": self._models.resolve(body.judge)},
        }

    def _given(self, body: ScoreBody) -> dict[str, dict[str, Any]]:
        return {"scores": {"judge": self._models.resolve(body.judge)}}


def _item(body: ScoreBody) -> Item:
    return Item.of(
        body.question,
        body.summaries,
        answers=body.answers,
        masked_out=body.masked_out or (),
        conditioning=body.conditioning or (),
    )


class _Watched(Experiment):
    """An experiment whose models can be interrupted, and which shows answers before there are enough of them
    for a record."""

    progress: _Teller

    def _generator(self, part: Stage, model: str, revision: str | None) -> Generator:
        generator = super()._generator(part, model, revision)
        self.progress.interrupts(generator)
        if part != "answers":
            return generator
        return Streaming(generator, self.progress.drawn, self.progress.job.check)

    def _judge(self) -> Any:
        judge = super()._judge()
        self.progress.interrupts(judge)
        return judge


class _Teller:
    """The :class:`~selfreflect.pipeline.experiment.Progress` that makes events, and stops the stages when the
    job is cancelled."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.experiment: Experiment | None = None
        self._groups: dict[str, int] = {}
        self._told: set[tuple[str, str]] = set()
        self._hooked: list[Any] = []

    def note(self, line: str) -> None:
        self.job.check()
        self.job.events.add("note", text=without_paths(line))

    @contextmanager
    def _stage(self, name: str, total: int) -> Iterator[Counter]:
        try:
            self.job.check()
            self.job.events.add("stage", name=name, total=total)
            yield self
        finally:
            self.release()

    def release(self) -> None:
        """Take the job's hooks off the models, which later jobs share."""
        while self._hooked:
            self._hooked.pop().remove()

    def stage(self, name: str, total: int) -> AbstractContextManager[Counter]:
        return self._stage(name, total)

    def advance(self, count: int = 1) -> None:
        self.job.check()
        self.summaries()
        self.scores()

    def interrupts(self, owner: Any) -> None:
        """Have the job checked before every forward pass of a local model, until the stage ends."""
        lm = getattr(owner, "lm", None)
        if lm is not None and getattr(owner, "last_states", None) is None:  # else its passes run elsewhere
            self._hooked.append(
                lm.model.get_input_embeddings().register_forward_pre_hook(lambda *_: self.job.check())
            )

    def drawn(self, reply: Reply) -> None:
        """Answers that have just been drawn, each with the number of its group."""
        texts = [completion.text for completion in reply.completions]
        groups = [self._groups.setdefault(normal_form(text), len(self._groups)) for text in texts]
        self.job.events.add("answers", texts=texts, groups=groups)

    def summaries(self) -> None:
        for (_, name), summary in self._run().summaries.items():
            if self._new("summary", name):
                self.job.events.add("summary", name=name, text=summary.text)

    def scores(self) -> None:
        for (_, name), score in self._run().scores.items():
            if self._new("score", name):
                self.job.events.add("score", name=name, value=score.value, stderr=score.stderr)

    def failures(self) -> None:
        for failure in self._run().failures:
            if self._new(f"{failure.stage} failure", failure.name):
                message = without_paths(failure.message)
                self.job.events.add(
                    "failure", stage=failure.stage, name=failure.name, kind=failure.kind, message=message
                )

    def _new(self, what: str, name: str) -> bool:
        new = (what, name) not in self._told
        self._told.add((what, name))
        return new

    def _run(self) -> Any:
        assert self.experiment is not None  # set before any stage begins
        return self.experiment.run
