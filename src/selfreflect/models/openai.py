"""The generator behind every OpenAI-compatible server: hosted APIs, vLLM, llama.cpp, Ollama, TGI, ``transformers serve``."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from selfreflect.errors import BackendError, ConfigError, MissingExtraError, excerpt
from selfreflect.models.background import told
from selfreflect.models.base import Refusal, Reply, Request
from selfreflect.models.chat_api import Dialect, error_text, joined, reply_of
from selfreflect.models.endpoint import PREFIX, Endpoint, endpoint
from selfreflect.models.faults import CallError, status_fault, transport_fault
from selfreflect.models.patience import Patience, retry_after

if TYPE_CHECKING:
    from openai import AsyncOpenAI

LARGEST_RESPONSE = 32 * 2**20
"""Bytes of a response that are read."""

CONNECT_SECONDS = 20.0
FAILURES_IN_A_ROW = 3
"""Requests that fail at the server, with none answered in between, after which it is given up: the others would only wait in vain."""


class OpenAIGenerator:
    """Answers requests through a server's chat completions.

    Args:
        name: what the server calls the model.
        max_connections: calls under way at a time, those that wait to be tried again included.
        timeout: seconds for one try; a call with all its tries and waits takes three times that at most.
        progress: is told when a server lacks a field or has to be asked again.
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
        patience: Patience | None = None,
        progress: Callable[[str], None] | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self.name = PREFIX + name
        self.server = server
        self.max_connections = max_connections
        self._model = name
        self._timeout = timeout
        self._patience = patience or Patience()
        self._progress = progress or (lambda line: None)
        self._sleep, self._chance = sleep, chance
        self._dialect = Dialect()
        self._failed = 0
        self._noted = ""
        self._errors: tuple[type[Exception], ...] = (*_client_errors(), CallError, OSError)

    @classmethod
    def load(
        cls,
        name: str,
        base_url: str | None = None,
        *,
        max_connections: int = 16,
        timeout: float = 600.0,
        progress: Callable[[str], None] | None = None,
    ) -> OpenAIGenerator:
        """The model ``openai:NAME`` at ``base_url`` (default: OpenAI), with the key of the environment. Nothing is sent yet.

        Raises:
            ConfigError: no name, an address that is none, or a key that cannot be sent.
            MissingExtraError: the client is not installed.
        """
        if not name.removeprefix(PREFIX).strip():
            raise ConfigError(f"{PREFIX}NAME needs the name by which the server knows the model")
        return cls(name.removeprefix(PREFIX), endpoint(base_url), max_connections=max_connections, timeout=timeout, progress=progress)

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
                async with self._client() as client, asyncio.TaskGroup() as group:
                    calls = _Calls(client, asyncio.Semaphore(self.max_connections), self.server.authorization)
                    for index in range(len(requests)):
                        group.create_task(answer(index))
            except ExceptionGroup as several:
                raise several.exceptions[0] from None

        return told(work)

    async def _answer(self, calls: _Calls, request: Request) -> Reply | Refusal:
        try:
            reply = await self._draw(calls, request, 0, request.n)
        except CallError as fault:
            message = self._told(fault)
            self._failed += fault.kind == "backend" and not fault.refused
            if fault.ends:
                raise BackendError(f"{message}.") from None
            if self._failed >= FAILURES_IN_A_ROW:
                raise BackendError(f"{message}. {self._failed} requests in a row have failed, so the server is given up.") from None
            return Refusal(kind=fault.kind, message=message)
        return reply

    async def _draw(self, calls: _Calls, request: Request, first: int, count: int, most: int | None = None) -> Reply:
        """``count`` completions, ``most`` in a call; where a call gives fewer, as many as it gave in each further call."""
        size = min(count, most or count)
        if size == count:
            reply = await self._call(calls, request, first, count)
            given = len(reply.completions)
            return reply if given == count else joined([reply, await self._draw(calls, request, first + given, count - given, given)])
        try:
            async with asyncio.TaskGroup() as group:
                spans = range(first, first + count, size)
                drawn = [group.create_task(self._draw(calls, request, start, min(size, first + count - start))) for start in spans]
        except ExceptionGroup as several:
            raise several.exceptions[0] from None
        return joined([task.result() for task in drawn])

    async def _call(self, calls: _Calls, request: Request, first: int, count: int) -> Reply:
        """One call, tried until it gives something, is refused, or has used up its time."""
        async with calls.slots:
            now = asyncio.get_running_loop().time
            end, tries, dialect = now() + 3 * self._timeout, 1, self._dialect
            while True:
                try:
                    body = dialect.body(self._model, request, first, count)
                    async with asyncio.timeout(min(self._timeout, end - now())):
                        reply = reply_of(await calls.post(body), count)
                except self._errors as error:
                    fault = transport_fault(error)
                else:
                    self._settle(dialect)
                    return reply
                if fault.refused and (other := dialect.without(fault.said)):
                    dialect = other
                    continue
                if fault.refused and count > 1:
                    count = 1  # servers that give one completion at a time say so in many ways
                    continue
                wait = self._patience.wait(tries, fault.wait, self._chance())
                if not fault.retry or wait is None or now() + wait > end:
                    raise _given_up(fault, tries)
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

    def _told(self, fault: CallError) -> str:
        """A fault in words, without secrets: a server may send back what it was sent."""
        said = self.server.redacted(" ".join(fault.said.split()))
        return f"{self.server.url}: {self.server.redacted(str(fault))}" + (f": {excerpt(said, 300)}" if said else "")

    def _note(self, line: str) -> None:
        """Tell it, but once while nothing else happens: many requests meet the same fault."""
        if line != self._noted:
            self._noted = line
            self._progress(line)

    @asynccontextmanager
    async def _client(self) -> AsyncIterator[AsyncOpenAI]:
        """The official client, without its own retries and with a limit on what is read."""
        import httpx2
        from openai import AsyncOpenAI, DefaultAsyncHttpxClient

        try:
            http = DefaultAsyncHttpxClient(
                timeout=httpx2.Timeout(self._timeout, connect=min(self._timeout, CONNECT_SECONDS)),
                limits=httpx2.Limits(max_connections=self.max_connections),
                event_hooks={"response": [_check]},
            )
        except (ValueError, ImportError):
            raise BackendError(
                "The proxy that the environment names (HTTP_PROXY, HTTPS_PROXY, ALL_PROXY) cannot be used: "
                "it must be an address that begins with http:// or https://."
            ) from None
        async with AsyncOpenAI(
            api_key=self.server.key or "none",
            base_url=self.server.url,
            max_retries=0,
            http_client=http,
            default_headers={"Accept-Encoding": "identity"},
        ) as client:
            yield client


class _Calls:
    """The client of one event loop."""

    def __init__(self, client: AsyncOpenAI, slots: asyncio.Semaphore, authorization: str) -> None:
        from openai import Omit

        self._client = client
        self.slots = slots
        # Said outright: where the client has no key, it looks for other ones in the environment.
        self._headers: Any = {"Authorization": authorization or Omit()}

    async def post(self, body: dict[str, Any]) -> bytes:
        async with self._client.chat.completions.with_streaming_response.create(**body, extra_headers=self._headers) as response:
            kind = response.headers.get("content-type", "")
            if "json" not in kind:
                raise CallError("the response is not JSON; look at --base-url, which mostly ends in /v1. Its type", said=kind or "(none)")
            return await _read(response.iter_bytes())


async def _check(response: Any) -> None:
    """Turn an error into its fault here: the client would read the whole of its body, however long."""
    if response.headers.get("content-encoding", "identity") != "identity":
        raise CallError("the response is compressed, which was not asked for")
    if response.has_redirect_location:
        there = response.headers["location"]
        raise CallError(f"the server points to another address (HTTP {response.status_code}); give that with --base-url", said=there)
    if response.status_code >= 300:
        said = error_text(await _read(response.aiter_bytes()))
        raise status_fault(response.status_code, said, retry_after(response.headers.get("retry-after")))


async def _read(chunks: AsyncIterator[bytes]) -> bytes:
    data = bytearray()
    async for chunk in chunks:
        data += chunk
        if len(data) > LARGEST_RESPONSE:
            raise CallError(f"the response is larger than {LARGEST_RESPONSE // 2**20} MB")
    return bytes(data)


def _given_up(fault: CallError, tries: int) -> CallError:
    if not fault.retry:
        return fault
    asked = "" if fault.wait is None else f", asks to wait {fault.wait:.0f} s"
    return CallError(f"{fault}{asked} ({'1 try' if tries == 1 else f'{tries} tries'})", kind=fault.kind, said=fault.said)


def _client_errors() -> tuple[type[Exception], ...]:
    """What the client raises. Raises MissingExtraError where it is not installed."""
    try:
        import anyio
        import httpx2
        import openai
    except ImportError:
        raise MissingExtraError("A model of an OpenAI-compatible server", "openai") from None
    return openai.OpenAIError, httpx2.HTTPError, httpx2.InvalidURL, anyio.EndOfStream
