"""Loading, checking and watching of the stages' models, with progress reports."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

from msgspec.structs import asdict, replace

from selfreflect.errors import BackendError, SelfReflectError
from selfreflect.metric.measure import Measures, measures_of
from selfreflect.models.backend import backend_of, check_loadable, load_generator, load_judge
from selfreflect.models.base import (
    Completion,
    Generator,
    Message,
    ModelSpec,
    Refusal,
    Reply,
    Request,
    Sample,
    Sampling,
    StageGenerator,
    seed_for,
)
from selfreflect.records import AnswerSet, ModelStage, SamplingCheck
from selfreflect.settings import Config, ExecutionOptions, SummariesConfig

if TYPE_CHECKING:
    from selfreflect.models.judge import Judge

# Contexts that the judge reads besides the summaries: the answers themselves, and the controls.
_CONTEXTS = 3


@dataclass(frozen=True)
class WorkDone:
    """Work that a stage began or finished since the last report."""

    units: int = 0
    """Number of questions or summaries begun."""
    requested: int = 0
    """Number of sequences requested."""
    ended: int = 0
    """Number of sequences that ended."""
    tokens: int = 0
    planned: int = 0
    """Tokens of begun work: at most for sequences, approximate for a judge."""
    texts: tuple[str, ...] = ()
    """Texts of ended sequences, not accumulated."""

    def __add__(self, work: WorkDone) -> WorkDone:
        return WorkDone(
            self.units + work.units,
            self.requested + work.requested,
            self.ended + work.ended,
            self.tokens + work.tokens,
            self.planned + work.planned,
        )


class Progress(Protocol):
    """Protocol of progress reporters."""

    def note(self, line: str) -> None: ...

    def warn(self, line: str) -> None:
        """Show a warning."""

    def stage(self, name: str, total: int) -> AbstractContextManager[Progress]: ...

    def add(self, work: WorkDone) -> None:
        """Report progress. A local model does so with every token."""

    def advance(self, count: int = 1, failures: int = 0) -> None:
        """Count finished work and failures of a stage."""


class Quiet:
    """A :class:`Progress` without output."""

    def note(self, line: str) -> None:
        pass

    def warn(self, line: str) -> None:
        pass

    def stage(self, name: str, total: int) -> AbstractContextManager[Progress]:
        return nullcontext(self)

    def add(self, work: WorkDone) -> None:
        pass

    def advance(self, count: int = 1, failures: int = 0) -> None:
        pass


_SPEC_FIELDS = [entry.name for entry in fields(ModelSpec)]


def stage_model(
    config: Config, options: ExecutionOptions, stage: Literal["answers", "summaries", "scores"]
) -> ModelSpec:
    """Specify a stage's model with its loading options."""
    section = getattr(config, stage)
    name = section.judge if stage == "scores" else section.model
    values = {"name": name} | asdict(options) | asdict(section)
    # a field has the same name in the settings
    return ModelSpec(**{key: values[key] for key in _SPEC_FIELDS if key in values})


def summary_options(settings: SummariesConfig) -> dict[str, Any]:
    """Collect the settings of a strategy's task."""
    # `score --items` reads this module and needs no strategies
    from selfreflect.strategies.task import GREEDY, THINKING

    base = THINKING if settings.thinking else GREEDY
    return {
        "sampling": replace(base, max_new_tokens=settings.max_new_tokens),
        "sample_sampling": settings.sampling,
        "num_samples": settings.num_samples,
        "seed": settings.seed,
        "thinking": settings.thinking,
    }


@dataclass(frozen=True)
class ConfiguredModels:
    """Models that the settings name."""

    _config: Config
    _options: ExecutionOptions
    _progress: Progress
    _server_facts: dict[ModelSpec, Any] = field(default_factory=dict)
    """Facts about each model's server, to avoid probing again in later stages."""
    known: Mapping[str, dict[str, Any]] = field(default_factory=dict)
    """Facts of models from earlier stages of the run."""

    def generator(self, stage: Literal["answers", "summaries"]) -> StageGenerator:
        """Load the stage's generator. Raises the errors of
        :func:`~selfreflect.models.backend.load_generator`."""
        spec = stage_model(self._config, self._options, stage)
        generator = load_generator(spec, self._progress.note)
        if hasattr(generator, "learned") and hasattr(generator, "recall"):
            # refusals that an earlier stage found out need no request to find out again
            if spec not in self._server_facts:
                for facts in self.known.values():
                    generator.recall(facts)
            generator.learned = self._server_facts.setdefault(spec, generator.learned)
        return generator

    def judge(self) -> Judge:
        """Load the judge. Raises the errors of :func:`~selfreflect.models.backend.load_judge`."""
        scores = self._config.scores
        spec = stage_model(self._config, self._options, "scores")
        return load_judge(spec, compat=scores.compat, progress=self._progress.note)

    def measures(self) -> Measures:
        """Load the judge, and make the configured measures."""
        judge = self.judge() if needs_judge(self._config) else None
        return load_measures(judge, self._config, self._options, self._progress)


def load_stage_model(
    stage: ModelStage, models: ConfiguredModels, config: Config
) -> StageGenerator | Judge | None:
    """Load a stage's model; None if no measure needs a judge."""
    if stage != "scores":
        return models.generator(stage)
    return models.judge() if needs_judge(config) else None


def needs_judge(config: Config) -> bool:
    """Check whether a configured measure needs a judge. Raises ConfigError if a measure does not exist."""
    return any("judge" in measure.needs for measure in measures_of(config.scores.measure_names))


def load_measures(
    judge: Judge | None, config: Config, options: ExecutionOptions, progress: Progress
) -> Measures:
    """Make the configured measures with their limits."""
    scores = config.scores
    metric = None
    if judge is not None:
        from selfreflect.metric.engine.attention import library
        from selfreflect.metric.scorer import SelfReflect

        # only this combination has C code to miss
        if judge.last_states is None and (judge.lm.device, judge.lm.dtype) == ("cpu", "float32"):
            compiled = library()
            if isinstance(compiled, str):
                progress.note(f"scoring is slower without its C code: {compiled}")
        if scores.controls and scores.limits is not None:
            progress.note("controls are not measured when a budget is set")
        metric = SelfReflect(judge, limits=scores.limits, guesses=options.guesses)
    return Measures(metric, wanted_names=scores.measure_names, controls=scores.controls, reader=scores.reader)


class RequestProgress:
    """Progress of a generator's sequences and texts, as a ``Watch``.

    A local generator (one with ``on_step``) reports each token; of others the tokens come with the reply.
    """

    def __init__(self, generator: Any, progress: Progress) -> None:
        self._progress = progress
        self._counts_steps = hasattr(generator, "on_step")
        if self._counts_steps:
            generator.on_step = lambda tokens, ended: progress.add(WorkDone(ended=ended, tokens=tokens))

    def __call__(self, requests: Sequence[Request]) -> Callable[[int, Sample | Reply | Refusal], None]:
        # what was drawn before an interruption is not asked for
        to_come = [set(request.missing) for request in requests]
        limits = [request.sampling.max_new_tokens for request in requests]
        tokens_allowed = sum(len(places) * limit for places, limit in zip(to_come, limits, strict=True))
        self._progress.add(WorkDone(requested=sum(map(len, to_come)), planned=tokens_allowed))

        def count(index: int, event: Sample | Reply | Refusal) -> None:
            places, limit = to_come[index], limits[index]
            # of a refused request nothing comes any more, and nothing of it may stay in the estimate
            if isinstance(event, Refusal):
                self._progress.add(WorkDone(requested=-len(places), planned=-len(places) * limit))
                return
            if isinstance(event, Sample):
                drawn = [(event.index, event.completion)]
            else:
                drawn = list(enumerate(event.completions))
            new = [completion for place, completion in drawn if place in places]
            places.difference_update(place for place, _ in drawn)
            tokens = sum(completion.tokens for completion in new)
            # most texts end before their limit, by which they were planned
            unneeded = max(0, len(new) * limit - tokens)
            texts = tuple(completion.text for completion in new)
            self._progress.add(WorkDone(planned=-unneeded, texts=texts))
            if not self._counts_steps:
                self._progress.add(WorkDone(ended=len(new), tokens=tokens))

        return count


@dataclass
class JudgeReading:
    """Progress of a judge's tokens for one question."""

    _progress: Progress
    _tokens: int = 0
    _planned: int = 0

    def count(self, module: Any, inputs: tuple[Any, ...]) -> None:
        """Count the tokens of a forward pass, as a hook before the embeddings."""
        # every token passes the embeddings, whatever the architecture
        tokens = inputs[0].numel()
        self._tokens += tokens
        self._progress.add(WorkDone(tokens=tokens))

    def plan(self, tokens: int) -> None:
        """Set the expected tokens for the rest of the question."""
        planned = self._tokens + tokens
        self._progress.add(WorkDone(planned=planned - self._planned))
        self._planned = planned


@contextmanager
def watched_judge(
    measures: Measures, progress: Progress, answers: AnswerSet, summaries: int
) -> Iterator[None]:
    """Report a begun question, and the tokens that a local judge reads.

    A typical number is expected until the metric knows better.
    """
    progress.add(WorkDone(units=max(1, summaries)))
    metric = measures.metric
    # what a server reads cannot be counted while it reads
    if metric is None or metric.judge.last_states is not None:
        yield
        return
    reading = JudgeReading(progress)
    # about four bytes of UTF-8 to a token
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
        # nothing more is expected of this question
        reading.plan(0)


PROBE = (
    "Write ten random words that have nothing to do with each other, all in one line. Write only the words."
)
"""Request whose responses differ if a server samples tokens."""

OTHER_PROBES = (
    "Invent a name that nobody has for a small town, and say in one sentence what happened there.",
    "Write a random number of twelve digits, then five random letters. Write nothing else.",
)
"""Further requests if ``PROBE`` got equal responses, before the server is blamed."""

PROBE_TOKENS = 48

# Temperature and top-p from which two equal replies to ``PROBE`` are no accident.
_TELLING = 0.5


def check_models(
    stages: Sequence[ModelStage], config: Config, options: ExecutionOptions, progress: Progress
) -> None:
    """Check that the models of all stages can be loaded.

    The machines of a Ray cluster have files, keys and networks of their own: of its models, only those that
    are in a directory of this machine too must be usable here.

    Raises:
        SelfReflectError: as loading the model would.
    """
    # a judge that no measure asks for need not exist
    if not needs_judge(config):
        stages = [stage for stage in stages if stage != "scores"]
    for spec in dict.fromkeys(stage_model(config, options, stage) for stage in stages):
        try:
            check_loadable(spec, progress.note)
        except SelfReflectError as error:
            # files of the cluster's machines may be missing here
            if options.executor != "ray" or Path(spec.name).is_dir():
                raise
            progress.note(
                f"not checked before the cluster starts, because this machine cannot check it: {error}"
            )


def server_stages(
    stages: Sequence[ModelStage], config: Config, options: ExecutionOptions
) -> list[Literal["answers", "summaries"]]:
    """List the stages whose texts this machine requests from a server."""
    if options.executor == "ray":
        return []
    models: dict[Literal["answers", "summaries"], str] = {
        "answers": config.answers.model,
        "summaries": config.summaries.model,
    }
    return [stage for stage, model in models.items() if stage in stages and backend_of(model).is_remote]


def check_sampling(
    stages: Sequence[Literal["answers", "summaries"]],
    config: Config,
    models: ConfiguredModels,
    *,
    system: str = "",
    greedy: bool = False,
) -> dict[ModelStage, SamplingCheck]:
    """Check each server's sampling once with two samples, and with further requests if they are identical.

    Args:
        system: of the prompts; a server may have no such turn.
        greedy: whether summaries are greedy, which a server may refuse: it is asked before any question.

    Raises:
        BackendError: a server cannot be used.
    """
    checks: dict[ModelStage, SamplingCheck] = {}
    by_server: dict[Any, SamplingCheck] = {}
    for stage in stages:
        section: Any = getattr(config, stage)
        sampling = replace(section.sampling, max_new_tokens=PROBE_TOKENS)
        # stages often share a server: it is asked once for each way of sampling
        key = (section.model, section.base_url, str(section.extra_body), sampling)
        if key not in by_server:
            url = backend_of(section.model).server(section.base_url).url
            seed = seed_for(section.seed, "preflight")
            extras: dict[str, Any] = {}
            if stage == "answers":
                extras = {"logprobs": section.wants_logprobs, "top_logprobs": section.top_logprobs}
            generator = models.generator(stage)
            request = _probe(PROBE, system, sampling, n=2, seed=seed, **extras)
            if meet := getattr(generator, "meet", None):
                _usable(meet(request))
            whole = replace(request, sampling=section.sampling, thinking=section.thinking)
            by_server[key] = _ask(generator, url, request, whole, stage)
        checks[stage] = by_server[key]
    # Some servers refuse temperature 0, and the answers would be paid for by then. All else of the call has
    # been taken, so that no other cause is left.
    if greedy and "summaries" in stages:
        sampling = summary_options(config.summaries)["sampling"]
        request = _probe(PROBE, system, replace(sampling, max_new_tokens=PROBE_TOKENS))
        _reply(models.generator("summaries"), request)
    return checks


def _probe(text: str, system: str, sampling: Sampling, **fields: Any) -> Request:
    messages = [Message(role="system", content=system)] if system else []
    return Request(messages=(*messages, Message(role="user", content=text)), sampling=sampling, **fields)


def _reply(generator: Generator, request: Request) -> Reply | Refusal:
    [reply] = generator.generate([request])
    _usable(reply)
    return reply


def _usable(reply: Reply | Refusal | None) -> None:
    """Raise BackendError if a checked server fails a call."""
    if isinstance(reply, Refusal) and reply.kind in ("backend", "empty"):
        raise BackendError(
            reply.message, remedy="Nothing has been generated yet.", status=reply.status, wait=reply.wait
        )


def _only_reasons(reply: Reply | Refusal) -> bool:
    return isinstance(reply, Reply) and reply.ends["unclosed_reasoning"] == len(reply.completions)


def _ask(
    generator: Generator, url: str, request: Request, whole: Request, stage: ModelStage
) -> SamplingCheck:
    """Compare two short responses to one request, to find out whether a server samples.

    Raises BackendError where not even a ``whole`` text has tokens enough for the reasoning before it.
    """
    replies: Any = "unknown"
    sampling = request.sampling
    # a sure model may give one text twice by chance, and three times hardly
    for probe in (PROBE, *OTHER_PROBES):
        message = Message(role="user", content=probe)
        reply = _reply(generator, replace(request, messages=(*request.messages[:-1], message)))
        if probe == PROBE and _only_reasons(reply) and _only_reasons(_reply(generator, whole)):
            raise BackendError(
                f"{generator.name} spends all of its {whole.sampling.max_new_tokens} tokens on "
                "reasoning; no question has been sent yet",
                code="unclosed_reasoning",
                remedy=f"Raise {{{stage}.max_new_tokens}}, or switch thinking off where the model is served.",
            )
        replies = _compare(() if isinstance(reply, Refusal) else reply.completions, sampling)
        if replies != "identical":
            break
    return SamplingCheck(
        model=generator.name,
        base_url=url,
        temperature=sampling.temperature,
        top_p=sampling.top_p,
        replies=replies,
    )


def _compare(completions: Sequence[Completion], sampling: Sampling) -> Any:
    texts = [completion.text.strip() for completion in completions]
    # a refusal or an empty text says nothing of sampling
    if len(texts) < 2 or not all(texts) or any(completion.finish == "refused" for completion in completions):
        return "unknown"
    if texts[0] != texts[1]:
        return "differ"
    # near temperature 0 equal texts prove nothing
    is_telling = sampling.temperature >= _TELLING and sampling.top_p >= _TELLING
    return "identical" if is_telling else "unknown"


def count_identical(check: SamplingCheck, answer_sets: Sequence[AnswerSet]) -> SamplingCheck:
    """Count the questions that the check's model answered, and those with identical answers."""
    sampled = [
        answer_set for answer_set in answer_sets if answer_set.model == check.model and answer_set.temperature
    ]
    identical = sum(len({*answer_set.answers}) == 1 for answer_set in sampled if len(answer_set.answers) > 1)
    return replace(check, questions=len(sampled), identical_questions=identical)
