"""Check what could fail later, before the first call that costs something."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal

from msgspec.structs import replace

from selfreflect.errors import BackendError, ConfigError, SelfReflectError
from selfreflect.models.backend import backend_of, check_loadable
from selfreflect.models.base import (
    Completion,
    Generator,
    Message,
    Refusal,
    Reply,
    Request,
    Sampling,
    seed_for,
)
from selfreflect.pipeline.models import ModelProvider, Progress, needs_judge, stage_model
from selfreflect.pipeline.tasks import ModelStage
from selfreflect.records import AnswerSet, SamplingCheck
from selfreflect.settings import Config, ExecutionOptions
from selfreflect.strategies.task import GREEDY, THINKING

PROBE = (
    "Write ten random words that have nothing to do with each other, all in one line. Write only the words."
)
"""A request whose replies differ wherever tokens are sampled."""

OTHER_PROBES = (
    "Invent a name that nobody has for a small town, and say in one sentence what happened there.",
    "Write a random number of twelve digits, then five random letters. Write nothing else.",
)
"""Asked as well where ``PROBE`` got one reply twice, before a server is blamed for it."""

PROBE_TOKENS = 48

_TELLING = 0.5
"""Temperature and top-p from which two equal replies to ``PROBE`` are no accident."""


def check_models(
    stages: Sequence[ModelStage], config: Config, options: ExecutionOptions, progress: Progress
) -> None:
    """Check that the models of all stages can be loaded.

    The machines of a Ray cluster have files, keys and networks of their own: of its models, only those that
    are in a directory of this machine too must be usable here.

    Raises:
        SelfReflectError: as loading the model would; or the folder of ``--cache`` cannot be made.
    """
    if not needs_judge(config):
        stages = [stage for stage in stages if stage != "scores"]
    for spec in dict.fromkeys(stage_model(config, options, stage) for stage in stages):
        try:
            check_loadable(spec, progress.note)
        except SelfReflectError as error:
            if options.executor != "ray" or Path(spec.name).is_dir():
                raise
            progress.note(f"not checked before the cluster starts, since it cannot be here: {error}")
    if options.executor == "ray":
        return
    if "scores" in stages and options.cache is not None:
        try:
            options.cache.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(f"--cache {options.cache}: {error.strerror}") from None


def server_stages(
    stages: Sequence[ModelStage], config: Config, options: ExecutionOptions
) -> list[Literal["answers", "summaries"]]:
    """The stages whose texts come from a server that this machine asks."""
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
    models: ModelProvider,
    *,
    system: str = "",
    greedy: bool = False,
) -> dict[ModelStage, SamplingCheck]:
    """Ask the server of each stage for two samples, each server once; for two of each of three requests where
    the samples are identical.

    Args:
        system: of the prompts; a server may have no such turn.
        greedy: whether summaries are greedy, which a server may refuse: it is asked before anything else.

    Raises:
        BackendError: a server cannot be used.
    """
    checks: dict[ModelStage, SamplingCheck] = {}
    by_server: dict[Any, SamplingCheck] = {}
    if greedy and "summaries" in stages:
        base = THINKING if config.summaries.thinking else GREEDY
        request = _probe(PROBE, system, replace(base, max_new_tokens=PROBE_TOKENS))
        _reply(models.generator("summaries"), request)
    for stage in stages:
        section: Any = getattr(config, stage)
        sampling = replace(section.sampling, max_new_tokens=PROBE_TOKENS)
        key = (section.model, section.base_url, str(section.extra_body), sampling)
        if key not in by_server:
            url = backend_of(section.model).server(section.base_url).url
            seed = seed_for(section.seed, "preflight")
            generator, request = models.generator(stage), _probe(PROBE, system, sampling, n=2, seed=seed)
            whole = replace(request, sampling=section.sampling, thinking=section.thinking)
            by_server[key] = _ask(generator, url, request, partial(_check_reasoning, generator, whole, stage))
        checks[stage] = by_server[key]
    return checks


def _probe(text: str, system: str, sampling: Sampling, **fields: Any) -> Request:
    messages = [Message(role="system", content=system)] if system else []
    return Request(messages=(*messages, Message(role="user", content=text)), sampling=sampling, **fields)


def _reply(generator: Generator, request: Request) -> Reply | Refusal:
    [reply] = generator.generate([request])
    if isinstance(reply, Refusal) and reply.kind == "backend":
        raise BackendError(
            reply.message, remedy="Nothing was generated yet.", status=reply.status, wait=reply.wait
        )
    return reply


def _check_reasoning(generator: Generator, request: Request, stage: str) -> None:
    """Raise BackendError where the tokens of a whole text do not suffice for the reasoning before it."""
    reply = _reply(generator, request)
    if _only_reasons(reply):
        raise BackendError(
            f"{generator.name} spends all of its {request.sampling.max_new_tokens} tokens on reasoning; no "
            "question was asked yet",
            code="unclosed_reasoning",
            remedy=f"Raise {{{stage}.max_new_tokens}}, or switch thinking off where the model is served.",
        )


def _only_reasons(reply: Reply | Refusal) -> bool:
    return isinstance(reply, Reply) and reply.ends["unclosed_reasoning"] == len(reply.completions)


def _ask(
    generator: Generator, url: str, request: Request, check_reasoning: Callable[[], None]
) -> SamplingCheck:
    replies: Any = "unknown"
    seconds: float | None = None
    tokens = 0
    sampling = request.sampling
    for probe in (PROBE, *OTHER_PROBES):
        message = Message(role="user", content=probe)
        start = time.monotonic()
        reply = _reply(generator, replace(request, messages=(*request.messages[:-1], message)))
        if seconds is None and isinstance(reply, Reply):
            seconds, tokens = time.monotonic() - start, reply.tokens
            if _only_reasons(reply):
                check_reasoning()
        replies = _compare(() if isinstance(reply, Refusal) else reply.completions, sampling)
        if replies != "identical":
            break
    return SamplingCheck(
        model=generator.name,
        base_url=url,
        temperature=sampling.temperature,
        top_p=sampling.top_p,
        replies=replies,
        seconds=seconds,
        tokens=tokens,
    )


def _compare(completions: Sequence[Completion], sampling: Sampling) -> Any:
    texts = [completion.text.strip() for completion in completions]
    if len(texts) < 2 or not all(texts) or any(one.finish == "refused" for one in completions):
        return "unknown"
    if texts[0] != texts[1]:
        return "differ"
    is_telling = sampling.temperature >= _TELLING and sampling.top_p >= _TELLING
    return "identical" if is_telling else "unknown"


def count_identical(check: SamplingCheck, answer_sets: Sequence[AnswerSet]) -> SamplingCheck:
    """Add how many questions got one text as every answer, as far as the check's model gave them."""
    sampled = [one for one in answer_sets if one.model == check.model and one.temperature]
    identical = sum(len({*one.answers}) == 1 for one in sampled if len(one.answers) > 1)
    return replace(check, questions=len(sampled), identical_questions=identical)
