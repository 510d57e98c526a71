"""vLLM in this process: a generator, and the decoder of a judge. Both cache prefixes."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from selfreflect.errors import BackendError, JudgeError, MissingExtraError, excerpt
from selfreflect.models.base import Refusal, Reply, Request
from selfreflect.models.chat import ChatTokenizer, opened_trace
from selfreflect.models.detokenize import Detokenizer, refused
from selfreflect.models.local.loading import (
    CausalLM,
    explained,
    local_revision,
    pick_device,
    pick_dtype,
    pinned,
    resolve,
)
from selfreflect.models.spec import ModelSpec

if TYPE_CHECKING:
    from selfreflect.models.vllm.judge import Floats

_QUIET = {
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_LOGGING_STREAM": "ext://sys.stderr",
    "VLLM_NO_USAGE_STATS": "1",
}
"""Where the environment says nothing else: standard output belongs to results."""


def check_installed(purpose: str) -> None:
    """Raises MissingExtraError where vLLM is not installed."""
    if importlib.util.find_spec("vllm") is None:
        raise MissingExtraError(purpose, "vllm")


class PoolingLLM:
    """The decoder of ``lm``: a :class:`~selfreflect.models.vllm.judge.Pool`.

    Args:
        source: directory or hub name of the model.
        lm: its revision, device and dtype are taken over.

    Raises:
        JudgeError: vLLM cannot run the model.
    """

    facts: dict[str, Any] = {"engine": "vllm"}  # noqa: RUF012  # read only

    def __init__(self, source: str, lm: CausalLM, *, trust_remote_code: bool = False) -> None:
        check_installed("A judge vllm:NAME")
        from vllm.config import PoolerConfig

        self._name = lm.name
        try:
            self._llm = _started(
                source,
                lm.revision,
                lm.device,
                lm.dtype,
                trust_remote_code,
                runner="pooling",
                convert="embed",
                pooler_config=PoolerConfig(seq_pooling_type="LAST", use_activation=False),
            )
        except BackendError as error:
            raise JudgeError(str(error)) from error

    def last_states(self, prompts: Sequence[Sequence[int]]) -> Floats:
        """See :class:`~selfreflect.models.vllm.judge.Pool`."""
        asked = [{"prompt_token_ids": list(prompt)} for prompt in prompts]
        try:
            found = self._llm.encode(asked, pooling_task="embed", use_tqdm=False)
        except Exception as error:  # whatever the engine's own processes raise
            raise JudgeError(
                f"vLLM stopped computing hidden states of {excerpt(self._name)}: {excerpt(str(error), 300)}"
            ) from error
        return np.stack([one.outputs.data.float().cpu().numpy() for one in found]).astype(np.float32)


class VLLMGenerator:
    """Answers requests with one model, all of a call in one batch.

    Make one with :meth:`load`.
    """

    def __init__(self, llm: Any, tokenizer: Any, name: str, facts: dict[str, Any]) -> None:
        self.name = name
        self.facts = facts
        self.chat = ChatTokenizer(tokenizer)
        self._llm = llm
        self._reader = Detokenizer(tokenizer)
        self._window = int(llm.model_config.max_model_len)

    @classmethod
    def load(
        cls,
        model: str | ModelSpec,
        *,
        progress: Callable[[str], None] | None = None,
        **fields: Any,
    ) -> VLLMGenerator:
        """The model ``vllm:NAME``: an alias, a hub name or a local directory.

        Args:
            fields: of :class:`~selfreflect.models.spec.ModelSpec`, such as ``device="cpu"``.

        Raises:
            MissingExtraError: vLLM is not installed.
            BackendError: no such model, or vLLM cannot run it.
            ConfigError: no name.
        """
        import transformers

        check_installed("A model vllm:NAME")
        spec = ModelSpec.of(model, **fields)
        name = spec.bare_name
        device = pick_device(spec.device)
        dtype = str(pick_dtype(spec.dtype, device)).removeprefix("torch.")
        source = resolve(name, progress)
        options: dict[str, Any] = {"trust_remote_code": spec.trust_remote_code}
        with explained(name, source):
            if not Path(source).is_dir():
                options |= pinned(source, spec.revision)
            tokenizer = transformers.AutoTokenizer.from_pretrained(source, **options)
        revision = options.get("revision") or local_revision(name) or spec.revision or ""
        llm = _started(source, options.get("revision", ""), device, dtype, spec.trust_remote_code)
        facts = {"name": spec.name, "revision": revision, "dtype": dtype, "device": device}
        return cls(llm, tokenizer, spec.name, facts)

    @property
    def revision(self) -> str:
        return str(self.facts["revision"])

    def generate(self, requests: Sequence[Request]) -> list[Reply | Refusal]:
        """One reply or refusal per request, in order.

        Raises:
            BackendError: vLLM has stopped working.
        """
        rendered = [self.chat.render(request.messages, thinking=request.thinking) for request in requests]
        prompts = self.chat.encode(rendered)
        results: list[Reply | Refusal | None] = [
            refused(prompt, self._window, self.name) for prompt in prompts
        ]
        todo = [place for place, refusal in enumerate(results) if refusal is None]
        drawn = (
            self._drawn([prompts[place] for place in todo], [requests[place] for place in todo])
            if todo
            else []
        )
        for place, output in zip(todo, drawn, strict=True):
            results[place] = self._reply(output, opened_trace(rendered[place]), len(prompts[place]))
        return [result for result in results if result is not None]

    def _drawn(self, prompts: Sequence[Sequence[int]], requests: Sequence[Request]) -> Any:
        try:
            return self._llm.generate(
                [{"prompt_token_ids": list(prompt)} for prompt in prompts],
                [
                    self._params(request, self._window - len(prompt))
                    for prompt, request in zip(prompts, requests, strict=True)
                ],
                use_tqdm=False,
            )
        except Exception as error:  # whatever the engine's own processes raise
            raise BackendError(
                f"vLLM stopped generating with {excerpt(self.name)}: {excerpt(str(error), 300)}."
            ) from error

    def _params(self, request: Request, room: int) -> Any:
        from vllm import SamplingParams

        sampling = request.sampling
        return SamplingParams(
            n=request.n,
            seed=request.seed,  # vLLM gives sample i this seed plus i, as the other generators do
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            top_k=sampling.top_k,
            min_p=sampling.min_p,
            max_tokens=min(sampling.max_new_tokens, room),
        )

    def _reply(self, output: Any, opened: bool, prompt_tokens: int) -> Reply | Refusal:
        ended = [(one.token_ids, one.finish_reason) for one in output.outputs]
        odd = next((reason for _, reason in ended if reason not in ("stop", "length")), None)
        if odd is not None:
            return Refusal(
                kind="backend", message=f"vLLM ended a completion of {self.name!r} with {excerpt(odd)}"
            )
        completions = (
            self._reader.completion(list(tokens), opened=opened, stopped=reason == "stop")
            for tokens, reason in ended
        )
        return Reply(completions=tuple(completions), prompt_tokens=prompt_tokens)


def _started(
    source: str, revision: str, device: str, dtype: str, trust_remote_code: bool, **options: Any
) -> Any:
    """A vLLM engine with a prefix cache.

    Raises:
        BackendError: it does not start.
    """
    for name, value in _QUIET.items():
        os.environ.setdefault(name, value)
    from vllm import LLM

    try:
        return LLM(
            model=source,
            revision=None if Path(source).is_dir() else revision or None,
            dtype=dtype,
            trust_remote_code=trust_remote_code,
            enable_prefix_caching=True,
            enforce_eager=device == "cpu",  # else it compiles for minutes what a CPU gains little from
            **options,
        )
    except Exception as error:  # whatever the engine's own processes raise
        raise BackendError(
            f"vLLM cannot run {excerpt(source, 200)}: {excerpt(' '.join(str(error).split()), 300)}"
        ) from error
