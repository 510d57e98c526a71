"""Hidden states from a running ``vllm serve`` in pooling mode: ``/v1/embeddings`` takes token ids."""

from __future__ import annotations

import binascii
from base64 import b64decode
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
import numpy as np

from selfreflect.errors import BackendError, JudgeError, excerpt
from selfreflect.models.openai.client import (
    Connection,
    Task,
    authorized,
    body_of,
    check_installed,
    describe,
    run_tasks,
    without_repeats,
)
from selfreflect.models.openai.endpoint import Endpoint
from selfreflect.models.openai.retry import APIError, RetryPolicy, call_with_retries

if TYPE_CHECKING:
    from selfreflect.models.vllm.judge import Floats

T = TypeVar("T")

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
        timeout: seconds for one try of a call; with all its tries a call takes three times that at most.
        progress: called when the server has to be asked again.
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
        check_installed("A judge on a server")
        self.model = model
        self.server = server
        self._timeout = timeout
        self._retries = retries or RetryPolicy()
        self._note = without_repeats(progress)

    @property
    def facts(self) -> dict[str, Any]:
        return {"base_url": self.server.url}

    def longest(self) -> int | None:
        """Tokens of the longest prompt that the server takes, None where it does not say.

        Raises:
            JudgeError: it cannot be reached, or does not serve the model.
        """
        [body] = self._call_all([self._list_models], AT_FIRST)
        models = _decoded(body, _Models, "a list of models").data
        for model in models:
            if model.id == self.model:
                return model.max_model_len
        names = ", ".join(excerpt(model.id) for model in models[:10]) or "nothing"
        raise JudgeError(
            f"{self.server.url} does not serve {excerpt(self.model)}; it serves {names}. Name the model as "
            "`vllm serve` does with --served-model-name."
        )

    def last_states(self, prompts: Sequence[Sequence[int]]) -> Floats:
        """See :class:`~selfreflect.models.vllm.judge.Pool`."""
        starts = range(0, len(prompts), PROMPTS_PER_CALL)
        batches = [prompts[start : start + PROMPTS_PER_CALL] for start in starts]
        bodies = self._call_all([partial(self._embed, batch) for batch in batches], self._retries)
        states = [_states(body, len(batch)) for body, batch in zip(bodies, batches, strict=True)]
        if len({part.shape[1] for part in states}) > 1:
            raise JudgeError(f"{self.server.url}: hidden states of one model differ in their length")
        return np.concatenate(states)

    async def _embed(self, prompts: Sequence[Sequence[int]], connection: Connection) -> bytes:
        async with connection.client.embeddings.with_streaming_response.create(
            model=self.model,
            input=[list(prompt) for prompt in prompts],
            encoding_format="base64",
            extra_headers=authorized(self.server),
            extra_body={"use_activation": False},
        ) as response:
            return await body_of(response)

    async def _list_models(self, connection: Connection) -> bytes:
        async with connection.client.models.with_streaming_response.list(
            extra_headers=authorized(self.server)
        ) as response:
            return await body_of(response)

    def _call_all(self, calls: Sequence[Task[bytes]], retries: RetryPolicy) -> list[bytes]:
        """The response to each call, in order.

        Raises:
            JudgeError: one of them fails for good.
        """

        async def run(call: Task[bytes], connection: Connection) -> bytes:
            async with connection.slots:
                return await call_with_retries(
                    partial(call, connection), retries, self._timeout, on_retry=self._note_retry
                )

        tasks = [partial(run, call) for call in calls]
        try:
            bodies = dict(run_tasks(self.server, self._timeout, CALLS, tasks))
        except APIError as error:
            raise JudgeError(f"{self._describe(error)}.") from None
        except BackendError as error:
            raise JudgeError(str(error)) from None
        return [bodies[index] for index in range(len(calls))]

    def _note_retry(self, error: APIError) -> None:
        self._note(f"{self._describe(error)}; trying again")

    def _describe(self, error: APIError) -> str:
        return describe(self.server, error).replace("--base-url", "--judge-url")


def _decoded(body: bytes, kind: type[T], what: str) -> T:
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise JudgeError(
            f"the judge's server did not send {what} ({error}); it must be `vllm serve` in pooling mode"
        ) from None


def _states(body: bytes, count: int) -> Floats:
    """The states in one response, shape (count, width)."""
    vectors = sorted(_decoded(body, _Vectors, "embeddings").data, key=lambda vector: vector.index)
    if [vector.index for vector in vectors] != list(range(count)):
        raise JudgeError(f"the judge's server gave {len(vectors)} hidden states for {count} prompts")
    rows = [_row(vector.embedding) for vector in vectors]
    if len({len(row) for row in rows}) > 1:
        raise JudgeError("the judge's server gave hidden states of different lengths")
    return np.stack(rows)


def _row(embedding: str | list[float]) -> Floats:
    """One state, from the bytes of its float32 numbers or from a list of them."""
    if isinstance(embedding, list):
        return np.array(embedding, dtype=np.float32)
    try:
        return np.frombuffer(b64decode(embedding, validate=True), dtype="<f4").astype(np.float32)
    except (binascii.Error, ValueError):
        raise JudgeError(
            "the judge's server gave hidden states that are not base64 of float32 numbers"
        ) from None
