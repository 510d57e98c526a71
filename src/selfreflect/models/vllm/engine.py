"""vLLM in this process: a generator, and the decoder of a judge. Both cache prefixes."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from selfreflect.errors import BackendError, JudgeError, MissingExtraError, excerpt
from selfreflect.models.local.decode import Draw
from selfreflect.models.local.generator import TokenGenerator
from selfreflect.models.local.loading import ModelSource, locate
from selfreflect.models.spec import ModelSpec

if TYPE_CHECKING:
    from selfreflect.models.vllm.judge import Floats

_QUIET = {
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_LOGGING_STREAM": "ext://sys.stderr",
    "VLLM_NO_USAGE_STATS": "1",
}
"""Defaults for vLLM's environment: standard output belongs to results."""


def check_installed(purpose: str) -> None:
    """Raise MissingExtraError where vLLM is not installed."""
    if importlib.util.find_spec("vllm") is None:
        raise MissingExtraError(purpose, "vllm")


class PoolingLLM:
    """The decoder of a judge."""

    facts: dict[str, Any] = {"engine": "vllm"}  # noqa: RUF012  # read only

    def __init__(self, source: ModelSource) -> None:
        from vllm.config import PoolerConfig

        self._name = source.name
        pooler = PoolerConfig(seq_pooling_type="LAST", use_activation=False)
        self._llm = _start(source, runner="pooling", convert="embed", pooler_config=pooler)

    def last_states(self, prompts: Sequence[Sequence[int]]) -> Floats:
        """The final normed hidden state of the last token of each prompt, shape (prompts, width)."""
        try:
            outputs = self._llm.encode(_token_prompts(prompts), pooling_task="embed", use_tqdm=False)
        except Exception as error:  # whatever the engine's own processes raise
            raise JudgeError(
                f"vLLM stopped computing hidden states of {excerpt(self._name)}: {excerpt(str(error), 300)}"
            ) from error
        states = [output.outputs.data.float().cpu().numpy() for output in outputs]
        return np.stack(states).astype(np.float32)


class VLLMGenerator(TokenGenerator):
    """Answers requests with one model, all of a call in one batch. Make one with :meth:`load`."""

    def __init__(self, llm: Any, tokenizer: Any, facts: dict[str, str]) -> None:
        super().__init__(tokenizer, facts, int(llm.model_config.max_model_len))
        self._llm = llm

    @classmethod
    def load(cls, spec: ModelSpec, progress: Callable[[str], None] | None = None) -> VLLMGenerator:
        """Load ``vllm:NAME``: an alias, a hub name or a local directory. Raises BackendError if vLLM cannot
        run it, MissingExtraError without vLLM."""
        check_installed("A model vllm:NAME")
        source = locate(spec, progress)
        with source.explain_errors():
            tokenizer = source.tokenizer()
        return cls(_start(source), tokenizer, {**source.facts, "name": spec.name})

    def _decode(self, draws: Mapping[int, Sequence[Draw]]) -> Iterator[int]:
        if not draws:
            return
        prompts = _token_prompts([own[0].prompt for own in draws.values()])
        try:
            params = [_params(own) for own in draws.values()]
            outputs = self._llm.generate(prompts, params, use_tqdm=False)
        except Exception as error:  # whatever the engine's own processes raise
            raise BackendError(
                f"vLLM stopped generating with {excerpt(self.name)}: {excerpt(str(error), 300)}."
            ) from error
        for own, output in zip(draws.values(), outputs, strict=True):
            if len(output.outputs) < len(own):
                own[0].failure = f"{self.name!r} gave {len(output.outputs)} of {len(own)} completions"
            for draw, part in zip(own, output.outputs, strict=False):
                draw.tokens = list(part.token_ids)
                draw.stopped = part.finish_reason == "stop"
                if part.finish_reason not in ("stop", "length"):
                    draw.failure = (
                        f"vLLM ended a completion of {self.name!r} with {excerpt(part.finish_reason)}"
                    )
        yield from draws


def _token_prompts(prompts: Sequence[Sequence[int]]) -> list[dict[str, list[int]]]:
    return [{"prompt_token_ids": list(prompt)} for prompt in prompts]


def _params(draws: Sequence[Draw]) -> Any:
    """Parameters for the completions of one request."""
    from vllm import SamplingParams

    first = draws[0]
    return SamplingParams(
        n=len(draws),
        seed=first.seed,  # vLLM gives sample i this seed plus i, as the draws have it
        temperature=first.sampling.temperature,
        top_p=first.sampling.top_p,
        top_k=first.sampling.top_k,
        min_p=first.sampling.min_p,
        max_tokens=first.limit,
    )


def _start(source: ModelSource, **options: Any) -> Any:
    """Start a vLLM engine with a prefix cache, or raise BackendError."""
    for name, value in _QUIET.items():
        os.environ.setdefault(name, value)
    from vllm import LLM

    local = Path(source.path).is_dir()
    try:
        return LLM(
            model=source.path,
            revision=None if local else source.revision,
            dtype=source.dtype_name,
            trust_remote_code=source.trust_remote_code,
            enable_prefix_caching=True,
            enforce_eager=source.device == "cpu",  # else it compiles for minutes what a CPU gains little from
            **options,
        )
    except Exception as error:  # whatever the engine's own processes raise
        reason = " ".join(str(error).split())
        raise BackendError(f"vLLM cannot run {excerpt(source.path, 200)}: {excerpt(reason, 300)}") from error
