"""Judges with their decoder in vLLM and their vocabulary projection in this process.

vLLM's pooling runner returns the normed last hidden state of a prompt. With the last matrix that is all the
metric needs of a model, so such a judge is exact.
"""

from __future__ import annotations

import binascii
import json
from base64 import b64decode
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt
import torch

from selfreflect.errors import BackendError, JudgeError, excerpt
from selfreflect.models.backend import bare_name, judge_error
from selfreflect.models.base import Compat, DType, ModelSpec
from selfreflect.models.judge import Judge
from selfreflect.models.local.loading import CausalLM, ModelSource, locate
from selfreflect.models.local.machine import limit_threads, set_library_defaults
from selfreflect.models.local.pretrained import accumulate_in_float32
from selfreflect.models.openai.client import RetryPolicy, ServerClient
from selfreflect.models.openai.endpoint import Endpoint, endpoint
from selfreflect.models.openai.protocol import APIError

if TYPE_CHECKING:
    import httpx2

    from selfreflect.models.vllm.engine import PoolingLLM


Floats = npt.NDArray[np.float32]

PROBE = (3, 5, 7, 9, 11)
"""Token ids in every vocabulary."""
SHORT, LONG = 10, 400
"""Numbers of tokens before the last one in the short and long prompts that are compared at the start."""

_POOLER = '--pooler-config \'{"seq_pooling_type": "LAST", "use_activation": false}\''

SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"


class PooledJudge(Judge):
    """A judge with the tokenizer and projection of :func:`load_lm_head` and hidden states from ``pool``."""

    def __init__(self, lm: CausalLM, pool: PoolingLLM | PoolingServer, *, compat: Compat = "") -> None:
        super().__init__(lm, compat=compat)
        self.pool = pool
        self.last_states = self._last_states

    @property
    def facts(self) -> dict[str, Any]:
        return {**super().facts, **self.pool.facts}

    def _last_states(self, prompts: Sequence[Sequence[int]]) -> torch.Tensor:
        states = self.pool.last_states(prompts)
        weight = self.lm.model.get_output_embeddings().weight
        if states.shape[1] != weight.shape[1]:
            raise JudgeError(
                f"judge {self.name!r}: its hidden states have {states.shape[1]} dimensions, but the output "
                f"layer of that model expects {weight.shape[1]}. The server runs a different model, or "
                "truncates the states.",
                code="states",
            )
        return torch.from_numpy(states).to(weight)

    def check_states(self) -> None:
        """Check the states of prompts that differ in their last token, two short and two long.

        A mean over tokens is told by its change with the last token, which fades as prompts become longer. In
        bfloat16 rounding may hide that.

        Raises:
            JudgeError: they are equal, scaled to length 1, which loses what the projection needs, or means.
        """
        # each prompt has one token more
        longest = min(LONG, (self.lm.window or LONG + 1) - 1)
        prompts = []
        for length in (SHORT, longest):
            start = [PROBE[index % len(PROBE)] for index in range(length)]
            prompts += [[*start, PROBE[0]], [*start, PROBE[-1]]]
        states = self._last_states(prompts).float()
        if torch.equal(states[0], states[1]):
            raise JudgeError(
                f"judge {self.name!r}: its hidden states are the same for every prompt, so every summary "
                "would look perfect. Check the server and its weights.",
                code="states",
            )
        if abs(torch.linalg.vector_norm(states[0]).item() - 1) < 1e-2:
            raise JudgeError(
                f"judge {self.name!r}: its hidden states are scaled to length 1. Serve it with {_POOLER}",
                code="states",
            )
        short, long = (torch.linalg.vector_norm(first - second) for first, second in (states[:2], states[2:]))
        if long < 0.1 * short:  # 0.03 for a mean, 0.5 and more for the last state
            raise JudgeError(
                f"judge {self.name!r}: its hidden states hardly depend on the last token of a long prompt, "
                f"so they are not those of the last token. Serve it with {_POOLER}",
                code="states",
            )


def load_in_process(spec: ModelSpec, compat: Compat, progress: Callable[[str], None] | None) -> PooledJudge:
    """Load the judge ``vllm:NAME`` with vLLM and the projection in this process."""
    from selfreflect.models.vllm.engine import PoolingLLM, check_installed

    check_installed("A judge vllm:NAME")
    lm, source = load_lm_head(spec, progress)
    judge = PooledJudge(replace(lm, name=spec.name), PoolingLLM(source), compat=compat)
    return _checked(judge, progress)


def load_served(spec: ModelSpec, compat: Compat, progress: Callable[[str], None] | None) -> PooledJudge:
    """Load the judge ``vllm+http:NAME`` behind ``vllm serve`` in pooling mode at ``base_url``.

    NAME is what the server calls it, and the model whose projection is loaded here, on ``device``. ``dtype``
    must be the one of the server's decoder, or ``"auto"``.
    """
    server = endpoint(spec.base_url, setting="scores.base_url")
    pool = PoolingServer(bare_name(spec.name), server, timeout=spec.timeout, progress=progress)
    # The projection must be in the precision of the decoder, which no server tells: its numbers do.
    longest = pool.longest()
    dtype = precision(pool.last_states([PROBE]))
    if spec.dtype not in ("auto", dtype):
        raise JudgeError(
            f"judge {excerpt(spec.name)} is served in {dtype}, not in {spec.dtype}",
            code="dtype",
            remedy="Leave out {scores.dtype}.",
        )
    lm, _ = load_lm_head(replace(spec, dtype=dtype), progress)
    window = lm.window if longest is None else min(longest, lm.window or longest)
    judge = PooledJudge(replace(lm, name=spec.name, window=window), pool, compat=compat)
    return _checked(judge, progress)


def _checked(judge: PooledJudge, progress: Callable[[str], None] | None) -> PooledJudge:
    """Check a few hidden states, and report that the others are trusted."""
    judge.check_states()
    if progress:
        progress(f"the hidden states of {judge.name} are not checked: vLLM must return the last token's")
    return judge


def precision(states: Floats) -> DType:
    """Find the lowest precision that represents all numbers exactly."""
    # a bfloat16 is the upper half of a float32
    if not (states.view(np.uint32) & 0xFFFF).any():
        return "bfloat16"
    with np.errstate(over="ignore"):
        return "float16" if np.array_equal(states.astype(np.float16), states) else "float32"


class LMHead(torch.nn.Module):
    """A judge's configuration and last matrix, in place of its whole model."""

    def __init__(self, linear: torch.nn.Linear, config: Any) -> None:
        super().__init__()
        self.linear = linear
        self.config = config

    def get_output_embeddings(self) -> torch.nn.Linear:
        return self.linear


def load_lm_head(
    spec: ModelSpec, progress: Callable[[str], None] | None = None
) -> tuple[CausalLM, ModelSource]:
    """Load a model's projection and tokenizer, and return their source.

    Of a model on the hub only its configuration, its tokenizer and the file with the projection are fetched.

    Raises:
        BackendError: no such model, or its weights hold no projection that could be loaded alone.
    """
    import transformers

    set_library_defaults()
    source = locate(spec, progress)
    accumulate_in_float32(source.device)
    with source.explain_errors():
        tokenizer = source.tokenizer()
        config = transformers.AutoConfig.from_pretrained(source.path, **source.options)
        # takes no memory: only names and shapes are read of it
        with torch.device("meta"):
            skeleton = source.architecture().from_config(config, trust_remote_code=spec.trust_remote_code)
        head = LMHead(_projection(skeleton, source), config)
        head = head.to(source.device, source.dtype).eval().requires_grad_(False)
    if source.device == "cpu":
        limit_threads()
    return CausalLM.of(head, tokenizer, source), source


def _projection(skeleton: Any, source: ModelSource) -> torch.nn.Linear:
    """Load the projection, which tied models store as their input embedding."""
    empty = skeleton.get_output_embeddings()
    names = {id(module): name for name, module in skeleton.named_modules()}
    name = names[id(empty)]
    sources = [f"{name}.weight"]
    if getattr(skeleton.config.get_text_config(), "tie_word_embeddings", False):
        sources.insert(0, f"{names[id(skeleton.get_input_embeddings())]}.weight")
    shape = tuple(empty.weight.shape)
    checkpoint = _Checkpoint(source)
    weight = checkpoint.first(sources, shape)
    linear = torch.nn.Linear(shape[1], shape[0], bias=False, device="meta")
    linear.weight = torch.nn.Parameter(weight, requires_grad=False)
    if getattr(empty, "bias", None) is not None:
        bias = checkpoint.first([f"{name}.bias"], tuple(empty.bias.shape))
        linear.bias = torch.nn.Parameter(bias, requires_grad=False)
    return linear


class _Checkpoint:
    """A model's safetensors files, fetched one by one on demand."""

    def __init__(self, source: ModelSource) -> None:
        from safetensors import safe_open
        from transformers.utils import cached_file

        self._path = source.path
        self._options = dict(source.options)
        # files are fetched without it: only classes may come with code
        del self._options["trust_remote_code"]
        index = cached_file(self._path, INDEX, _raise_exceptions_for_missing_entries=False, **self._options)
        self._files: Mapping[str, str]
        """File of each tensor."""
        if index is not None:
            self._files = json.loads(Path(index).read_text("utf-8"))["weight_map"]
        else:
            with safe_open(self._fetch(SINGLE), framework="pt") as tensors:
                self._files = dict.fromkeys(tensors.keys(), SINGLE)

    def first(self, names: Sequence[str], shape: tuple[int, ...]) -> torch.Tensor:
        """Load the first of the named tensors that exists, or the only tensor with the suffix.

        Checkpoints wrap layers differently. Raises ValueError if none has this shape.
        """
        from safetensors import safe_open

        for name in names:
            alike = [name]
            if name not in self._files:
                ending = ".".join(name.split(".")[-2:])
                alike = [key for key in self._files if f".{key}".endswith(f".{ending}")]
            if len(alike) != 1:
                continue
            with safe_open(self._fetch(self._files[alike[0]]), framework="pt") as tensors:
                tensor: torch.Tensor = tensors.get_tensor(alike[0])
            if tuple(tensor.shape) == shape:
                return tensor
        raise ValueError(f"among its weights there is no single tensor {names[-1]} of shape {shape}")

    def _fetch(self, file: str) -> str:
        from transformers.utils import cached_file

        return str(cached_file(self._path, file, **self._options))


T = TypeVar("T")
Send: TypeAlias = "Callable[[httpx2.AsyncClient], Awaitable[bytes]]"

PROMPTS_PER_CALL = 32
CALLS = 4
"""Number of parallel calls, enough to keep the server busy."""

AT_FIRST = RetryPolicy(tries=3)
"""Number of retries for a server that has not answered yet, few so that wrong addresses fail soon."""


class _Vector(msgspec.Struct):
    index: int
    embedding: str | list[float]


class _Vectors(msgspec.Struct):
    data: list[_Vector]


class _Model(msgspec.Struct):
    id: str
    max_model_len: int | None = None


class _Models(msgspec.Struct):
    data: list[_Model]


class PoolingServer:
    """One model of a pooling server.

    Args:
        model: what the server calls it.
        timeout, progress: see :class:`~selfreflect.models.openai.client.ServerClient`.
    """

    def __init__(
        self,
        model: str,
        server: Endpoint,
        *,
        timeout: float = 600.0,
        retries: RetryPolicy | None = None,
        progress: Callable[[str], None] | None = None,
    ) -> None:
        self.model = model
        self.url = server.url
        self.facts: dict[str, Any] = {"base_url": server.url}
        self._retries = retries or RetryPolicy()
        self._client = ServerClient(
            "A judge on a server",
            server,
            max_connections=CALLS,
            timeout=timeout,
            progress=progress,
        )

    def longest(self) -> int | None:
        """Ask for the longest prompt in tokens; None if the server does not say.

        Raises JudgeError if it cannot be reached, or does not serve the model.
        """
        [body] = self._call_all([partial(self._client.send, method="GET", path="/models")], AT_FIRST)
        models = _decoded(body, _Models, "a list of models").data
        for model in models:
            if model.id == self.model:
                return model.max_model_len
        names = ", ".join(excerpt(model.id) for model in models[:10]) or "nothing"
        raise JudgeError(
            f"{self.url} does not serve {excerpt(self.model)}; it serves {names}",
            code="not_found",
            remedy="Use the name that `vllm serve` got with --served-model-name.",
        )

    def last_states(self, prompts: Sequence[Sequence[int]]) -> Floats:
        """Compute the final normed hidden state of the last token of each prompt, (prompts, width).

        Raises JudgeError if the server fails, or sends something else.
        """
        batches = []
        for start in range(0, len(prompts), PROMPTS_PER_CALL):
            batches.append(prompts[start : start + PROMPTS_PER_CALL])
        bodies = self._call_all([partial(self._embed, batch) for batch in batches], self._retries)
        rows: list[Floats] = []
        for body, batch in zip(bodies, batches, strict=True):
            rows += _states(body, len(batch))
        if len(set(map(len, rows))) > 1:
            raise JudgeError(f"{self.url}: the lengths of the model's hidden states differ", code="states")
        return np.stack(rows)

    async def _embed(self, prompts: Sequence[Sequence[int]], http: httpx2.AsyncClient) -> bytes:
        body = {
            "model": self.model,
            "input": list(map(list, prompts)),
            "encoding_format": "base64",
            "use_activation": False,
        }
        return await self._client.send(http, "POST", "/embeddings", body)

    def _call_all(self, calls: Sequence[Send], retries: RetryPolicy) -> list[bytes]:
        """Send all calls and return their responses in order. Raises JudgeError if one fails for good."""
        tasks = [partial(self._client.call, send=send, retries=retries) for send in calls]
        try:
            bodies = dict(self._client.run(tasks))
        except (APIError, BackendError) as error:
            problem = self._client.problem(error) if isinstance(error, APIError) else error
            raise judge_error(problem) from None
        return [bodies[index] for index in range(len(calls))]


def _decoded(body: bytes, kind: type[T], content: str) -> T:
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise JudgeError(
            f"the judge's server did not send {content} ({error}); it must be `vllm serve` in pooling mode",
            code="states",
        ) from None


def _states(body: bytes, count: int) -> list[Floats]:
    """Read the states of one response, in the order of the prompts."""
    vectors = sorted(_decoded(body, _Vectors, "embeddings").data, key=lambda vector: vector.index)
    if [vector.index for vector in vectors] != list(range(count)):
        raise JudgeError(
            f"the judge's server returned {len(vectors)} hidden states for {count} prompts", code="states"
        )
    return [_row(vector.embedding) for vector in vectors]


def _row(embedding: str | list[float]) -> Floats:
    """Read one state from base64 of float32 numbers, or from a list."""
    if isinstance(embedding, list):
        return np.array(embedding, dtype=np.float32)
    try:
        return np.frombuffer(b64decode(embedding, validate=True), dtype="<f4").astype(np.float32)
    except (binascii.Error, ValueError):
        raise JudgeError(
            "the judge's server returned hidden states that are not base64-encoded float32 numbers",
            code="states",
        ) from None
