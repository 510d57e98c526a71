"""vLLM in this process: a generator, and a judge's decoder. Both cache prefixes."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from selfreflect.errors import BackendError, JudgeError, MissingExtraError, excerpt
from selfreflect.models.base import ModelSpec
from selfreflect.models.local.decode import Draw, TokenLikelihood
from selfreflect.models.local.generator import TokenGenerator
from selfreflect.models.local.loading import ModelSource, locate

if TYPE_CHECKING:
    from selfreflect.models.vllm.judge import Floats

# Defaults for vLLM's environment: standard output belongs to results.
_QUIET = {
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_LOGGING_STREAM": "ext://sys.stderr",
    "VLLM_NO_USAGE_STATS": "1",
}


def check_installed(purpose: str) -> None:
    """Raise MissingExtraError if vLLM is not installed."""
    if importlib.util.find_spec("vllm") is None:
        raise MissingExtraError(purpose, "vllm")


class PoolingLLM:
    """A judge's decoder in vLLM."""

    facts: dict[str, Any] = {"engine": "vllm"}  # noqa: RUF012  # read only

    def __init__(self, source: ModelSource) -> None:
        from vllm.config import PoolerConfig

        self._name = source.name
        pooler = PoolerConfig(seq_pooling_type="LAST", use_activation=False)
        self._llm = _start(source, runner="pooling", convert="embed", pooler_config=pooler)

    def last_states(self, prompts: Sequence[Sequence[int]]) -> Floats:
        """Compute the final normed hidden state of the last token of each prompt, (prompts, width)."""
        try:
            outputs = self._llm.encode(
                list(map(_token_prompt, prompts)), pooling_task="embed", use_tqdm=False
            )
        except Exception as error:  # whatever the engine's own processes raise
            raise JudgeError(
                f"vLLM stopped computing hidden states of {excerpt(self._name)}: {excerpt(str(error), 300)}",
                code="vllm",
            ) from error
        states = [output.outputs.data.float().cpu().numpy() for output in outputs]
        return np.stack(states).astype(np.float32)


class VLLMGenerator(TokenGenerator):
    """Generator with one model, which batches all requests of a call. Make one with :meth:`load`."""

    def __init__(self, llm: Any, tokenizer: Any, facts: dict[str, str]) -> None:
        super().__init__(tokenizer, facts, int(llm.model_config.max_model_len))
        self._llm = llm
        self._numbers = count()
        """Counter that numbers engine requests."""

    @classmethod
    def load(cls, spec: ModelSpec, progress: Callable[[str], None] | None = None) -> VLLMGenerator:
        """Load ``vllm:NAME``, an alias, hub name or local directory. Raises BackendError if vLLM cannot run
        it, MissingExtraError without vLLM."""
        check_installed("A model vllm:NAME")
        source = locate(spec, progress)
        with source.explain_errors():
            source.architecture()  # which looks at the files of the weights
            tokenizer = source.tokenizer()
        return cls(_start(source), tokenizer, {**source.facts, "name": spec.name})

    def _decode(self, draws: Mapping[int, Sequence[Draw]]) -> Iterator[tuple[int, Draw]]:
        """Draw each completion as a separate request, so that it arrives as soon as it ends.

        The engine computes equal prompts once.
        """
        under_way: dict[str, tuple[int, Draw]] = {}
        for index, request_draws in draws.items():
            for draw in request_draws:
                under_way[str(next(self._numbers))] = (index, draw)
        try:
            for key, output in self._finished(under_way):
                index, draw = under_way.pop(key)
                self._take(output, draw)
                yield index, draw
        finally:
            if under_way:  # after an error or an interrupt, the engine must not go on with them
                with suppress(Exception):
                    self._llm.llm_engine.abort_request([*under_way])

    def _finished(self, under_way: Mapping[str, tuple[int, Draw]]) -> Iterator[tuple[str, Any]]:
        """Submit all draws to the engine, and yield each key and output as it ends."""
        engine = self._llm.llm_engine
        try:
            for key, (_, draw) in under_way.items():
                engine.add_request(key, _token_prompt(draw.prompt), _params(draw))
            while under_way:
                if not engine.has_unfinished_requests():
                    raise BackendError(f"the engine lost {len(under_way)} requests")
                for output in engine.step():
                    if output.finished and output.request_id in under_way:
                        yield output.request_id, output
        except Exception as error:  # whatever the engine's own processes raise
            raise BackendError(
                f"vLLM stopped generating with {excerpt(self.name)}: {excerpt(str(error), 300)}.",
                code="vllm",
            ) from error

    def _take(self, output: Any, draw: Draw) -> None:
        """Copy a finished engine request into its draw."""
        if not output.outputs:
            draw.failure = f"{self.name!r} returned no completion"
            return
        [part] = output.outputs
        draw.tokens = list(part.token_ids)
        draw.stopped = part.finish_reason == "stop"
        if draw.likelihoods is not None:
            for token, logprobs in zip(draw.tokens, part.logprobs or (), strict=False):
                likeliest = (
                    [(id_, likelihood.logprob) for id_, likelihood in logprobs.items()]
                    if draw.likeliest
                    else []
                )
                draw.likelihoods.append(TokenLikelihood(logprobs[token].logprob, None, tuple(likeliest)))
        if part.finish_reason not in ("stop", "length"):
            draw.failure = f"vLLM ended a completion of {self.name!r} with {excerpt(part.finish_reason)}"


def _token_prompt(prompt: Sequence[int]) -> dict[str, list[int]]:
    return {"prompt_token_ids": list(prompt)}


def _params(draw: Draw) -> Any:
    from vllm import SamplingParams
    from vllm.sampling_params import RequestOutputKind

    # 0 is the sampled token alone; vLLM takes it from the logits before temperature and filters
    extra = {} if draw.likelihoods is None else {"logprobs": draw.likeliest}
    return SamplingParams(
        seed=draw.seed,
        temperature=draw.sampling.temperature,
        top_p=draw.sampling.top_p,
        top_k=draw.sampling.top_k,
        min_p=draw.sampling.min_p,
        max_tokens=draw.limit,
        **extra,
        output_kind=RequestOutputKind.FINAL_ONLY,
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
        raise BackendError(
            f"vLLM cannot run {excerpt(source.path, 200)}: {excerpt(reason, 300)}", code="vllm"
        ) from error
