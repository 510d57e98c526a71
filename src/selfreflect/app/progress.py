"""Watch a job at work: events for the page, and a stop before the next forward pass when it is cancelled."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Literal

from msgspec.structs import replace

from selfreflect.app.jobs import Job
from selfreflect.app.safe import without_paths
from selfreflect.grouping import normal_form
from selfreflect.models.base import Refusal, Reply, Request
from selfreflect.models.judge import Judge
from selfreflect.pipeline.models import ModelProvider, StageGenerator
from selfreflect.pipeline.options import Counter
from selfreflect.store.run import Run

FIRST_BATCH = 2
LARGEST_BATCH = 16
"""Answers drawn together: few at first, to show something soon, then more, which is faster."""


class JobProgress:
    """The :class:`~selfreflect.pipeline.options.Progress` of a job."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.run: Run | None = None
        """The job's run directory, once it is open."""
        self._groups: dict[str, int] = {}
        self._shown: set[tuple[str, str]] = set()
        self._hooks: list[Any] = []

    def note(self, line: str) -> None:
        self.job.check()
        self.job.events.add("note", text=without_paths(line))

    def stage(self, name: str, total: int) -> AbstractContextManager[Counter]:
        return self._stage(name, total)

    @contextmanager
    def _stage(self, name: str, total: int) -> Iterator[Counter]:
        try:
            self.job.check()
            self.job.events.add("stage", name=name, total=total)
            yield self
        finally:
            self.release()

    def advance(self, count: int = 1) -> None:
        self.job.check()
        self.show_summaries()
        self.show_scores()

    def hook(self, model: Any) -> None:
        """Check before every forward pass of a local model whether the job was cancelled, for one stage."""
        lm = getattr(model, "lm", None)
        runs_elsewhere = getattr(model, "last_states", None) is not None
        if lm is not None and not runs_elsewhere:
            embeddings = lm.model.get_input_embeddings()
            self._hooks.append(embeddings.register_forward_pre_hook(lambda *_: self.job.check()))

    def release(self) -> None:
        """Remove the hooks from the models, which later jobs share."""
        while self._hooks:
            self._hooks.pop().remove()

    def show_answers(self, reply: Reply) -> None:
        """Show answers that were just drawn, each with the number of its group."""
        texts = [completion.text for completion in reply.completions]
        groups = [self._groups.setdefault(normal_form(text), len(self._groups)) for text in texts]
        self.job.events.add("answers", texts=texts, groups=groups)

    def show_summaries(self) -> None:
        for (_, name), summary in self._opened().summaries.items():
            if self._is_new("summary", name):
                self.job.events.add("summary", name=name, text=summary.text)

    def show_scores(self) -> None:
        for (_, name), score in self._opened().scores.items():
            if self._is_new("score", name):
                self.job.events.add("score", name=name, value=score.value, stderr=score.stderr)

    def show_failures(self) -> None:
        for failure in self._opened().failures:
            if self._is_new(f"{failure.stage} failure", failure.name):
                message = without_paths(failure.message)
                self.job.events.add(
                    "failure", stage=failure.stage, name=failure.name, kind=failure.kind, message=message
                )

    def _is_new(self, kind: str, name: str) -> bool:
        is_new = (kind, name) not in self._shown
        self._shown.add((kind, name))
        return is_new

    def _opened(self) -> Run:
        assert self.run is not None  # set before any stage begins
        return self.run


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
        self._generator = generator
        self._show = show
        self._check = check

    @property
    def name(self) -> str:
        return self._generator.name

    @property
    def revision(self) -> str:
        return self._generator.revision

    @property
    def facts(self) -> dict[str, Any]:
        return self._generator.facts

    def generate(self, requests: Sequence[Request]) -> list[Reply | Refusal]:
        return [self._reply(request) for request in requests]

    def _reply(self, request: Request) -> Reply | Refusal:
        replies: list[Reply] = []
        for first, count in batches(request.n):
            self._check()
            [reply] = self._generator.generate([replace(request, n=count, seed=request.seed + first)])
            if isinstance(reply, Refusal):
                return reply
            replies.append(reply)
            self._show(reply)
        completions = tuple(completion for reply in replies for completion in reply.completions)
        return Reply(completions=completions, prompt_tokens=replies[0].prompt_tokens)


def batches(total: int) -> Iterator[tuple[int, int]]:
    """(first, count) of batches that grow from ``FIRST_BATCH`` to ``LARGEST_BATCH``."""
    first = 0
    count = FIRST_BATCH
    while first < total:
        yield first, min(count, total - first)
        first += count
        count = min(2 * count, LARGEST_BATCH)
