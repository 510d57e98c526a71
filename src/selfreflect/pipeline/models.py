"""Where the stages get their models from, and the metric its judge; what these tell of their work, and to
whom."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol

from selfreflect.models.backend import load_generator, load_judge
from selfreflect.models.base import (
    ModelSpec,
    Refusal,
    Reply,
    Request,
    Sample,
    StageGenerator,
    StreamingGenerator,
    as_drawn,
)
from selfreflect.pipeline.tasks import ModelStage
from selfreflect.settings import ExecutionOptions

if TYPE_CHECKING:
    from selfreflect.metric.measure import Measures
    from selfreflect.models.judge import Judge
    from selfreflect.records import AnswerSet
    from selfreflect.settings import Config


_CONTEXTS = 3
"""Contexts that the judge reads besides the summaries: the answers themselves, and the controls."""


@dataclass(frozen=True)
class WorkDone:
    """What a stage has begun and done since the last report."""

    units: int = 0
    """Questions or summaries that were begun."""
    asked: int = 0
    """Sequences that a model was asked for."""
    ended: int = 0
    """Sequences that have ended."""
    tokens: int = 0
    planned: int = 0
    """Tokens of what was begun: of sequences at most, of what a judge reads about."""

    def __add__(self, other: WorkDone) -> WorkDone:
        return WorkDone(
            self.units + other.units,
            self.asked + other.asked,
            self.ended + other.ended,
            self.tokens + other.tokens,
            self.planned + other.planned,
        )


class Counter(Protocol):
    def advance(self, count: int = 1, failures: int = 0) -> None:
        """Count what is finished, and what has failed and is not."""


class Progress(Protocol):
    """Watches an experiment."""

    def note(self, line: str) -> None: ...

    def warn(self, line: str) -> None:
        """Say what must not be overlooked."""

    def stage(self, name: str, total: int) -> AbstractContextManager[Counter]: ...

    def add(self, work: WorkDone) -> None:
        """Called often: for a local model with every token."""


class Quiet:
    """A :class:`Progress` that says nothing."""

    def note(self, line: str) -> None:
        pass

    def warn(self, line: str) -> None:
        pass

    def stage(self, name: str, total: int) -> AbstractContextManager[Counter]:
        return nullcontext(self)

    def add(self, work: WorkDone) -> None:
        pass

    def advance(self, count: int = 1, failures: int = 0) -> None:
        pass


class ModelProvider(Protocol):
    """Gives each stage its model, once per stage and only if there is work to do."""

    def generator(self, stage: Literal["answers", "summaries"]) -> StageGenerator: ...

    def judge(self) -> Judge: ...


def stage_model(
    config: Config, options: ExecutionOptions, stage: Literal["answers", "summaries", "scores"]
) -> ModelSpec:
    """The model of a stage, and how to load it."""
    resources: dict[str, Any] = {
        "device": options.device,
        "device_map": options.device_map,
        "trust_remote_code": options.trust_remote_code,
        "batch_size": options.batch_size,
        "max_connections": options.max_connections,
        "timeout": options.timeout,
    }
    section = getattr(config, stage)
    if stage == "scores":
        resources["dtype"] = section.dtype
    else:
        resources["extra_body"] = section.extra_body
        resources |= {"write_batch": options.write_batch, "read_batch": options.read_batch}
    name = section.judge if stage == "scores" else section.model
    return ModelSpec(name, revision=section.revision, base_url=section.base_url, **resources)


@dataclass(frozen=True)
class ConfiguredModels:
    """Loads the models that the settings name."""

    _config: Config
    _options: ExecutionOptions
    _progress: Progress
    _learned: dict[ModelSpec, Any] = field(default_factory=dict)
    """What is known of the server of each model, so that a stage does not find out again."""

    def generator(self, stage: Literal["answers", "summaries"]) -> StageGenerator:
        """Load the stage's generator. Raises as :func:`~selfreflect.models.backend.load_generator`."""
        spec = stage_model(self._config, self._options, stage)
        generator = load_generator(spec, self._progress.note)
        if hasattr(generator, "learned"):
            generator.learned = self._learned.setdefault(spec, generator.learned)
        return generator

    def judge(self) -> Judge:
        """Load the judge. Raises as :func:`~selfreflect.models.backend.load_judge`."""
        scores = self._config.scores
        spec = stage_model(self._config, self._options, "scores")
        return load_judge(spec, compat=scores.compat, progress=self._progress.note)

    def measures(self) -> Measures:
        """Load the judge, and make the measures that the settings name."""
        judge = self.judge() if needs_judge(self._config) else None
        return load_measures(judge, self._config, self._options, self._progress)


def load_stage_model(
    stage: ModelStage, models: ModelProvider, config: Config
) -> StageGenerator | Judge | None:
    """Load the model that a stage works with; None if no wanted measure needs a judge."""
    if stage != "scores":
        return models.generator(stage)
    return models.judge() if needs_judge(config) else None


def needs_judge(config: Config) -> bool:
    """Tell whether a wanted measure needs a judge. Raises ConfigError if a measure does not exist."""
    from selfreflect.metric.measure import measures_of

    return any("judge" in measure.needs for measure in measures_of(config.scores.measure_names))


def load_measures(
    judge: Judge | None, config: Config, options: ExecutionOptions, progress: Progress
) -> Measures:
    """Make the wanted measures, with the limits that the settings name."""
    from selfreflect.metric.measure import Measures

    scores = config.scores
    metric = None
    if judge is not None:
        from selfreflect.metric.engine.attention import library
        from selfreflect.metric.scorer import SelfReflect

        if judge.last_states is None and (judge.lm.device, judge.lm.dtype) == ("cpu", "float32"):
            compiled = library()
            if isinstance(compiled, str):
                progress.note(f"scoring is slower without its C code: {compiled}")
        if scores.controls and scores.limits is not None:
            progress.note("no controls are measured under --budget")
        metric = SelfReflect(
            judge, limits=scores.limits, guesses=options.guesses, cache=options.cache, warn=progress.note
        )
    return Measures(metric, wanted=scores.measure_names, controls=scores.controls, reader=scores.reader)


class WatchedGenerator(StreamingGenerator):
    """Passes requests on, and reports the sequences that are asked for and those that have ended.

    A local generator (one with ``on_step``) reports each token; of others the tokens come with the reply.
    """

    def __init__(self, generator: Any, progress: Progress) -> None:
        self.name = generator.name
        self.revision = generator.revision
        self._generator = generator
        self._progress = progress
        self._counts_steps = hasattr(generator, "on_step")
        if self._counts_steps:
            generator.on_step = self._count_step

    def stream_samples(self, requests: Sequence[Request]) -> Iterator[tuple[int, Sample | Reply | Refusal]]:
        """Like :meth:`stream`, with the completions that replies still wait for."""
        to_come = [len(request.missing) for request in requests]
        tokens = [sum(sample.completion.tokens for sample in request.samples) for request in requests]
        limits = [request.sampling.max_new_tokens for request in requests]
        most = sum(count * limit for count, limit in zip(to_come, limits, strict=True))
        self._progress.add(WorkDone(asked=sum(to_come), planned=most))
        for index, event in as_drawn(self._generator, requests):
            if isinstance(event, Refusal):
                unneeded = to_come[index] * limits[index]
                self._progress.add(WorkDone(asked=-to_come[index], planned=-unneeded))
            else:
                if isinstance(event, Sample):
                    ended, new_tokens = 1, event.completion.tokens
                else:
                    ended, new_tokens = to_come[index], event.tokens - tokens[index]
                to_come[index] -= ended
                tokens[index] += new_tokens
                unneeded = max(0, ended * limits[index] - new_tokens)
                self._progress.add(WorkDone(planned=-unneeded))
                if not self._counts_steps:
                    self._progress.add(WorkDone(ended=ended, tokens=new_tokens))
            yield index, event

    def _count_step(self, tokens: int, ended: int) -> None:
        self._progress.add(WorkDone(ended=ended, tokens=tokens))


@dataclass
class JudgeReading:
    """Reports the tokens that a judge reads of one question, and how many they will be."""

    _progress: Progress
    _tokens: int = 0
    _planned: int = 0

    def count(self, module: Any, inputs: tuple[Any, ...]) -> None:
        """A hook before a forward pass of the embeddings."""
        tokens = inputs[0].numel()
        self._tokens += tokens
        self._progress.add(WorkDone(tokens=tokens))

    def plan(self, tokens: int) -> None:
        """Take so many tokens for what is left of the question."""
        planned = self._tokens + tokens
        self._progress.add(WorkDone(planned=planned - self._planned))
        self._planned = planned


@contextmanager
def watched_judge(
    measures: Measures, progress: Progress, answers: AnswerSet, summaries: int
) -> Iterator[None]:
    """Report that a question with so many summaries is begun, and the tokens that a judge of this process
    reads of it: about the typical number until the metric knows better."""
    progress.add(WorkDone(units=max(1, summaries)))
    metric = measures.metric
    if metric is None or metric.judge.last_states is not None:  # its model runs elsewhere
        yield
        return
    reading = JudgeReading(progress)
    lengths = [len(answer.encode("utf-8", "surrogatepass")) / 4 for answer in answers.masked_out]
    contexts = summaries + _CONTEXTS
    reading.plan(round(sum(measure.typical_tokens(lengths, contexts) for measure in measures.wanted)))
    metric.on_begin = reading.plan
    embeddings = metric.judge.lm.model.get_input_embeddings()
    handle = embeddings.register_forward_pre_hook(reading.count)
    try:
        yield
    finally:
        handle.remove()
        reading.plan(0)
