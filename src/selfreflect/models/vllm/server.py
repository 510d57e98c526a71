"""Hidden states from a running ``vllm serve`` in pooling mode: ``/v1/embeddings`` takes token ids."""

from __future__ import annotations

import binascii
from base64 import b64decode
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import msgspec
import numpy as np

from selfreflect.errors import BackendError, JudgeError, excerpt
from selfreflect.models.backend import judge_error
from selfreflect.models.openai.client import RetryPolicy, ServerClient
from selfreflect.models.openai.endpoint import Endpoint
from selfreflect.models.openai.protocol import APIError

if TYPE_CHECKING:
    import httpx2

    from selfreflect.models.vllm.judge import Floats

T = TypeVar("T")
Send: TypeAlias = "Callable[[httpx2.AsyncClient], Awaitable[bytes]]"

PROMPTS_PER_CALL = 32
CALLS = 4
"""Simultaneous calls: enough that the server never waits for us."""

AT_FIRST = RetryPolicy(tries=3)
"""For a server that has not answered yet: a wrong address should soon be an error."""


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
    """One model of a server.

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
        """Tokens of the longest prompt that the server takes, None where it does not say. Raises JudgeError
        if it cannot be reached, or does not serve the model."""
        [body] = self._call_all([self._list_models], AT_FIRST)
        models = _decoded(body, _Models, "a list of models").data
        for model in models:
            if model.id == self.model:
                return model.max_model_len
        names = ", ".join(excerpt(model.id) for model in models[:10]) or "nothing"
        raise JudgeError(
            f"{self.url} does not serve {excerpt(self.model)}; it serves {names}",
            code="not_found",
            remedy="Name the model as `vllm serve` does with its option --served-model-name.",
        )

    def last_states(self, prompts: Sequence[Sequence[int]]) -> Floats:
        """The final normed hidden state of the last token of each prompt, shape (prompts, width). Raises
        JudgeError if the server fails, or sends something else."""
        batches = []
        for start in range(0, len(prompts), PROMPTS_PER_CALL):
            batches.append(prompts[start : start + PROMPTS_PER_CALL])
        bodies = self._call_all([partial(self._embed, batch) for batch in batches], self._retries)
        rows: list[Floats] = []
        for body, batch in zip(bodies, batches, strict=True):
            rows += _states(body, len(batch))
        if len(set(map(len, rows))) > 1:
            raise JudgeError(f"{self.url}: hidden states of one model differ in their length")
        return np.stack(rows)

    async def _embed(self, prompts: Sequence[Sequence[int]], http: httpx2.AsyncClient) -> bytes:
        body = {
            "model": self.model,
            "input": list(map(list, prompts)),
            "encoding_format": "base64",
            "use_activation": False,
        }
        return await self._client.send(http, "POST", "/embeddings", body)

    async def _list_models(self, http: httpx2.AsyncClient) -> bytes:
        return await self._client.send(http, "GET", "/models")

    def _call_all(self, calls: Sequence[Send], retries: RetryPolicy) -> list[bytes]:
        """The response to each call, in order. Raises JudgeError if one fails for good."""
        tasks = [partial(self._client.call, send=send, retries=retries) for send in calls]
        try:
            bodies = dict(self._client.run(tasks))
        except (APIError, BackendError) as error:
            problem = self._client.problem(error) if isinstance(error, APIError) else error
            raise judge_error(problem) from None
        return [bodies[index] for index in range(len(calls))]


def _decoded(body: bytes, kind: type[T], what: str) -> T:
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise JudgeError(
            f"the judge's server did not send {what} ({error}); it must be `vllm serve` in pooling mode"
        ) from None


def _states(body: bytes, count: int) -> list[Floats]:
    """The states in one response, in the order of the prompts."""
    vectors = sorted(_decoded(body, _Vectors, "embeddings").data, key=lambda vector: vector.index)
    if [vector.index for vector in vectors] != list(range(count)):
        raise JudgeError(f"the judge's server gave {len(vectors)} hidden states for {count} prompts")
    return [_row(vector.embedding) for vector in vectors]


def _row(embedding: str | list[float]) -> Floats:
    """One state, from base64 of its float32 numbers, or from a list where a server knows no base64."""
    if isinstance(embedding, list):
        return np.array(embedding, dtype=np.float32)
    try:
        return np.frombuffer(b64decode(embedding, validate=True), dtype="<f4").astype(np.float32)
    except (binascii.Error, ValueError):
        raise JudgeError(
            "the judge's server gave hidden states that are not base64 of float32 numbers"
        ) from None
