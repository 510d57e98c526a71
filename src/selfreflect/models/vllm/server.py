"""Hidden states from a running ``vllm serve`` in pooling mode: ``/v1/embeddings`` takes token ids."""

from __future__ import annotations

import asyncio
import binascii
import random
from base64 import b64decode
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
import numpy as np

from selfreflect.errors import BackendError, JudgeError, excerpt
from selfreflect.models.openai.background import iterate_in_thread
from selfreflect.models.openai.client import authorized, body_of, client_errors, connected, given_up
from selfreflect.models.openai.endpoint import Endpoint
from selfreflect.models.openai.patience import RetryPolicy
from selfreflect.models.openai.retry import APIError, transport_fault

if TYPE_CHECKING:
    from openai import AsyncOpenAI

    from selfreflect.models.vllm.judge import Floats

T = TypeVar("T")
Call = Callable[["AsyncOpenAI"], Awaitable[T]]

PROMPTS_PER_CALL = 32
CALLS = 4
"""Under way at a time: enough that the server never waits for us."""

AT_FIRST = RetryPolicy(tries=3)
"""With a server that has not answered yet: an address where there is none should be iterate_in_thread
soon."""

TIMEOUT = 600.0
"""Seconds for one try of a call; with all its tries a call takes three times that at most."""


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
        progress: is iterate_in_thread when the server has to be asked again.
    """

    def __init__(
        self,
        model: str,
        server: Endpoint,
        *,
        timeout: float = TIMEOUT,
        patience: RetryPolicy | None = None,
        progress: Callable[[str], None] | None = None,
    ) -> None:
        self.model = model
        self.server = server
        self._timeout = timeout
        self._patience = patience or RetryPolicy()
        self._progress = progress or (lambda line: None)
        self._errors: tuple[type[Exception], ...] = (*client_errors("A judge on a server"), APIError, OSError)

    @property
    def facts(self) -> dict[str, Any]:
        return {"base_url": self.server.url}

    def longest(self) -> int | None:
        """Tokens of the longest prompt that the server takes, None where it does not say.

        Raises:
            JudgeError: it cannot be reached, or does not serve the model.
        """
        [body] = self._all([self._models], AT_FIRST)
        served = _decoded(body, _Models, "a list of models").data
        for one in served:
            if one.id == self.model:
                return one.max_model_len
        names = ", ".join(excerpt(one.id) for one in served[:10]) or "nothing"
        raise JudgeError(
            f"{self.server.url} does not serve {excerpt(self.model)}; it serves {names}. `vllm serve` calls a model what "
            "--served-model-name says."
        )

    def last_states(self, prompts: Sequence[Sequence[int]]) -> Floats:
        """See :class:`~selfreflect.models.vllm.judge.Pool`."""
        batches = [
            prompts[start : start + PROMPTS_PER_CALL] for start in range(0, len(prompts), PROMPTS_PER_CALL)
        ]
        bodies = self._all([self._embeddings(batch) for batch in batches], self._patience)
        found = [_states(body, len(batch)) for body, batch in zip(bodies, batches, strict=True)]
        if len({states.shape[1] for states in found}) > 1:
            raise JudgeError(f"{self.server.url}: hidden states of one model differ in their length")
        return np.concatenate(found)

    def _embeddings(self, prompts: Sequence[Sequence[int]]) -> Call[bytes]:
        async def call(client: AsyncOpenAI) -> bytes:
            async with client.embeddings.with_streaming_response.create(
                model=self.model,
                input=[list(prompt) for prompt in prompts],
                encoding_format="base64",
                extra_headers=authorized(self.server),
                extra_body={"use_activation": False},
            ) as response:
                return await body_of(response)

        return call

    async def _models(self, client: AsyncOpenAI) -> bytes:
        async with client.models.with_streaming_response.list(
            extra_headers=authorized(self.server)
        ) as response:
            return await body_of(response)

    def _all(self, calls: Sequence[Call[bytes]], patience: RetryPolicy) -> list[bytes]:
        """What each call gives, in order.

        Raises:
            JudgeError: one of them fails for good.
        """

        async def work(tell: Callable[[tuple[int, bytes]], None]) -> None:
            async def one(index: int) -> None:
                async with slots:
                    tell((index, await self._call(client, calls[index], patience)))

            slots = asyncio.Semaphore(CALLS)
            try:
                async with (
                    connected(self.server, self._timeout, CALLS) as client,
                    asyncio.TaskGroup() as group,
                ):
                    for index in range(len(calls)):
                        group.create_task(one(index))
            except ExceptionGroup as several:
                raise several.exceptions[0] from None

        try:
            results = dict(iterate_in_thread(work))
        except APIError as fault:
            raise JudgeError(f"{self._told(fault)}.") from None
        except BackendError as error:
            raise JudgeError(str(error)) from None
        return [results[index] for index in range(len(calls))]

    async def _call(self, client: AsyncOpenAI, call: Call[bytes], patience: RetryPolicy) -> bytes:
        now = asyncio.get_running_loop().time
        end, tries = now() + 3 * self._timeout, 1
        while True:
            try:
                async with asyncio.timeout(min(self._timeout, end - now())):
                    return await call(client)
            except self._errors as error:
                fault = transport_fault(error)
            wait = patience.wait(tries, fault.wait, random.random())
            if not fault.retry or wait is None or now() + wait > end:
                raise given_up(fault, tries)
            if tries == 1:
                self._progress(f"{self._told(fault)}; trying again")
            tries += 1
            await asyncio.sleep(wait)

    def _told(self, fault: APIError) -> str:
        """A fault in words, without secrets."""
        said = self.server.redacted(" ".join(fault.said.split()))
        words = self.server.redacted(str(fault)).replace("--base-url", "--judge-url")
        return (
            f"{self.server.url}: {words}"
            + (f": {excerpt(said, 300)}" if said else "")
            + self.server.advice(words)
        )


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
