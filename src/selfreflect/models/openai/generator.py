"""The generator behind every OpenAI-compatible server: hosted APIs, vLLM, llama.cpp, Ollama, TGI,
``transformers serve``."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from selfreflect.errors import BackendError, excerpt
from selfreflect.models.base import Refusal, Reply, Request
from selfreflect.models.openai.background import iterate_in_thread
from selfreflect.models.openai.client import authorized, body_of, client_errors, connected, given_up
from selfreflect.models.openai.endpoint import Endpoint, endpoint
from selfreflect.models.openai.patience import RetryPolicy
from selfreflect.models.openai.protocol import Dialect, ParsedResponse, drawn_of, joined
from selfreflect.models.openai.retry import APIError, transport_fault
from selfreflect.models.spec import ModelSpec

if TYPE_CHECKING:
    from openai import AsyncOpenAI

FAILURES_IN_A_ROW = 3
"""Requests that fail at the server, with none answered in between, after which it is given up: the others
would only wait in vain."""


class OpenAIGenerator:
    """Answers requests through a server's chat completions.

    Args:
        name: what the server calls the model.
        max_connections: calls under way at a time, those that wait to be tried again included.
        timeout: seconds for one try; a call with all its tries and waits takes three times that at most.
        progress: is iterate_in_thread when a server lacks a field or has to be asked again.
        sleep, chance: the waits between tries, and the random numbers in [0, 1) behind their jitter.
    """

    revision = ""

    def __init__(
        self,
        name: str,
        server: Endpoint,
        *,
        max_connections: int = 16,
        timeout: float = 600.0,
        patience: RetryPolicy | None = None,
        progress: Callable[[str], None] | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self.name = f"openai:{name}"
        self.server = server
        self.max_connections = max_connections
        self._model = name
        self._timeout = timeout
        self._patience = patience or RetryPolicy()
        self._progress = progress or (lambda line: None)
        self._sleep, self._chance = sleep, chance
        self._dialect = Dialect()
        self._opened: dict[bool, bool] = {}
        self._failed = 0
        self._noted = ""
        self._errors: tuple[type[Exception], ...] = (
            *client_errors("A model of an OpenAI-compatible server"),
            APIError,
            OSError,
        )

    @classmethod
    def load(
        cls,
        model: str | ModelSpec,
        *,
        progress: Callable[[str], None] | None = None,
        **fields: Any,
    ) -> OpenAIGenerator:
        """The model ``openai:NAME`` at ``base_url`` (default: OpenAI), with the key of the environment.
        Nothing is sent yet.

        Args:
            progress: as for the constructor.
            fields: of :class:`~selfreflect.models.spec.ModelSpec`, such as ``base_url="http://localhost:8000/v1"``.

        Raises:
            ConfigError: no name, an address that is none, or a key that cannot be sent.
            MissingExtraError: the client is not installed.
        """
        spec = ModelSpec.of(model, **fields)
        return cls(
            spec.bare_name,
            endpoint(spec.base_url),
            max_connections=spec.max_connections,
            timeout=spec.timeout,
            progress=progress,
        )

    @property
    def facts(self) -> dict[str, Any]:
        """What a manifest says of the model."""
        return {"name": self.name, "revision": self.revision, "base_url": self.server.url}

    def generate(self, requests: Sequence[Request]) -> list[Reply | Refusal]:
        """One reply or refusal per request, in order.

        Raises:
            BackendError: the server refuses every call, or has stopped working.
        """
        results = dict(self.stream(requests))
        return [results[index] for index in range(len(requests))]

    def stream(self, requests: Sequence[Request]) -> Iterator[tuple[int, Reply | Refusal]]:
        """The results as they are done, each with the index of its request. Raises as :meth:`generate`."""

        async def work(tell: Callable[[tuple[int, Reply | Refusal]], None]) -> None:
            async def answer(index: int) -> None:
                tell((index, await self._answer(calls, requests[index])))

            try:
                async with (
                    connected(self.server, self._timeout, self.max_connections) as client,
                    asyncio.TaskGroup() as group,
                ):
                    calls = _Calls(client, asyncio.Semaphore(self.max_connections), self.server)
                    for index in range(len(requests)):
                        group.create_task(answer(index))
            except ExceptionGroup as several:
                raise several.exceptions[0] from None

        return iterate_in_thread(work)

    async def _answer(self, calls: _Calls, request: Request) -> Reply | Refusal:
        try:
            drawn = await self._draw(calls, request, 0, request.n)
        except APIError as fault:
            message = self._told(fault)
            self._failed += fault.kind == "backend" and not fault.refused
            if fault.ends:
                raise BackendError(f"{message}.") from None
            if self._failed >= FAILURES_IN_A_ROW:
                raise BackendError(
                    f"{message}. {self._failed} requests in a row have failed, so the server is given up."
                ) from None
            return Refusal(kind=fault.kind, message=message)
        # Whether a template opens a trace depends on `thinking`. A reply that was cut off in every completion
        # cannot tell; others before it can, and they mostly come before it, as what is cut off takes longest.
        if drawn.opened is not None:
            self._opened[request.thinking] = drawn.opened
        return drawn.reply(self._opened.get(request.thinking, False))

    async def _draw(
        self, calls: _Calls, request: Request, first: int, count: int, most: int | None = None
    ) -> ParsedResponse:
        """``count`` completions, ``most`` in a call; where a call gives fewer, as many as it gave in each
        further call."""
        size = min(count, most or count)
        if size == count:
            drawn = await self._call(calls, request, first, count)
            given = len(drawn.read)
            return (
                drawn
                if given == count
                else joined([drawn, await self._draw(calls, request, first + given, count - given, given)])
            )
        try:
            async with asyncio.TaskGroup() as group:
                spans = range(first, first + count, size)
                tasks = [
                    group.create_task(self._draw(calls, request, start, min(size, first + count - start)))
                    for start in spans
                ]
        except ExceptionGroup as several:
            raise several.exceptions[0] from None
        return joined([task.result() for task in tasks])

    async def _call(self, calls: _Calls, request: Request, first: int, count: int) -> ParsedResponse:
        """One call, tried until it gives something, is refused, or has used up its time."""
        async with calls.slots:
            now = asyncio.get_running_loop().time
            end, tries, dialect = now() + 3 * self._timeout, 1, self._dialect
            while True:
                try:
                    body = dialect.body(self._model, request, first, count)
                    async with asyncio.timeout(min(self._timeout, end - now())):
                        drawn = drawn_of(await calls.post(body), count)
                except self._errors as error:
                    fault = transport_fault(error)
                else:
                    self._settle(dialect)
                    return drawn
                if fault.refused and (other := dialect.without(fault.said)):
                    dialect = other
                    continue
                if fault.refused and count > 1:
                    count = 1  # servers that give one completion at a time say so in many ways
                    continue
                wait = self._patience.wait(tries, fault.wait, self._chance())
                if not fault.retry or wait is None or now() + wait > end:
                    raise given_up(fault, tries)
                self._note(f"{self._told(fault)}; trying again")
                tries += 1
                await self._sleep(wait)

    def _settle(self, dialect: Dialect) -> None:
        """The server has answered: keep the way of saying things that it took."""
        self._failed = 0
        lacks = sorted(dialect.left_out - self._dialect.left_out)
        if lacks:
            self._note(f"{self.server.url} does not take {', '.join(lacks)}; its own defaults hold there")
        self._dialect = dialect

    def _told(self, fault: APIError) -> str:
        """A fault in words, without secrets: a server may send back what it was sent."""
        said = self.server.redacted(" ".join(fault.said.split()))
        words = f"{self.server.url}: {self.server.redacted(str(fault))}" + (
            f": {excerpt(said, 300)}" if said else ""
        )
        return words + self.server.advice(str(fault))

    def _note(self, line: str) -> None:
        """Tell it, but once while nothing else happens: many requests meet the same fault."""
        if line != self._noted:
            self._noted = line
            self._progress(line)


class _Calls:
    """The client of one event loop."""

    def __init__(self, client: AsyncOpenAI, slots: asyncio.Semaphore, server: Endpoint) -> None:
        self._client = client
        self.slots = slots
        self._headers = authorized(server)

    async def post(self, body: dict[str, Any]) -> bytes:
        async with self._client.chat.completions.with_streaming_response.create(
            **body, extra_headers=self._headers
        ) as response:
            return await body_of(response)
