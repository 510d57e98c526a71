"""The official OpenAI client without its own retries: errors become APIErrors."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from selfreflect.errors import BackendError, MissingExtraError, excerpt
from selfreflect.models.openai.endpoint import Endpoint
from selfreflect.models.openai.iterate_in_thread import iterate_in_thread
from selfreflect.models.openai.protocol import error_text
from selfreflect.models.openai.retry import APIError, retry_after, status_error

if TYPE_CHECKING:
    from openai import AsyncOpenAI

T = TypeVar("T")
Task: TypeAlias = Callable[["Connection"], Awaitable[T]]

LARGEST_RESPONSE = 32 * 2**20
"""Bytes of a response that are read."""

CONNECT_SECONDS = 20.0


def check_installed(purpose: str) -> None:
    """Raise MissingExtraError where the client is not installed."""
    try:
        import anyio  # noqa: F401
        import httpx2  # noqa: F401
        import openai  # noqa: F401
    except ImportError:
        raise MissingExtraError(purpose, "openai") from None


@dataclass(frozen=True)
class Connection:
    """A client of one event loop."""

    client: AsyncOpenAI
    slots: asyncio.Semaphore
    """Limits the calls under way, waits between tries included."""


def run_tasks(
    server: Endpoint, timeout: float, max_connections: int, tasks: Iterable[Task[T]]
) -> Iterator[tuple[int, T]]:
    """Run all ``tasks`` at once and yield each result with the index of its task, as soon as it is done.

    Raises:
        Exception: the first that a task raises; the others are cancelled.
        BackendError: the proxy that the environment names cannot be used.
    """

    async def work(emit: Callable[[tuple[int, T]], None]) -> None:
        async def run(index: int, task: Task[T]) -> None:
            emit((index, await task(connection)))

        async with _connected(server, timeout, max_connections) as client:
            connection = Connection(client, asyncio.Semaphore(max_connections))
            await together(run(index, task) for index, task in enumerate(tasks))

    return iterate_in_thread(work)


async def together(coroutines: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Results of coroutines that run at once. The first error cancels the others and is raised as it is."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(coroutine) for coroutine in coroutines]
    except ExceptionGroup as errors:
        raise errors.exceptions[0] from None
    return [task.result() for task in tasks]


@asynccontextmanager
async def _connected(server: Endpoint, timeout: float, max_connections: int) -> AsyncIterator[AsyncOpenAI]:
    import httpx2
    from openai import AsyncOpenAI, DefaultAsyncHttpxClient

    try:
        http = DefaultAsyncHttpxClient(
            timeout=httpx2.Timeout(timeout, connect=min(timeout, CONNECT_SECONDS)),
            limits=httpx2.Limits(max_connections=max_connections),
            event_hooks={"response": [_check]},
        )
    except (ValueError, ImportError):
        raise BackendError(
            "The proxy that the environment names (HTTP_PROXY, HTTPS_PROXY, ALL_PROXY) cannot be used: "
            "it must be an address that begins with http:// or https://."
        ) from None
    async with AsyncOpenAI(
        api_key="none",
        base_url=server.url,
        max_retries=0,
        http_client=http,
        default_headers={"Accept-Encoding": "identity"},
    ) as client:
        yield client


def authorized(server: Endpoint) -> Any:
    """The headers of a call. Without them the client would look for other keys in the environment."""
    from openai import Omit

    return {"Authorization": server.authorization or Omit()}


async def body_of(response: Any) -> bytes:
    """The JSON of a response with HTTP 200.

    Raises:
        APIError: it is something else, or too large.
    """
    content_type = response.headers.get("content-type", "")
    if "json" not in content_type:
        raise APIError(
            "the response is not JSON; look at --base-url, which mostly ends in /v1. Its type",
            server_text=content_type or "(none)",
        )
    return await _read(response.iter_bytes())


async def _check(response: Any) -> None:
    """Raise an APIError for a bad status here: the client would read the whole body, however long."""
    if response.headers.get("content-encoding", "identity") != "identity":
        raise APIError("the response is compressed, which was not asked for")
    if response.has_redirect_location:
        raise APIError(
            f"the server points to another address (HTTP {response.status_code}); give that with --base-url",
            server_text=response.headers["location"],
        )
    if response.status_code >= 300:
        text = error_text(await _read(response.aiter_bytes()))
        raise status_error(response.status_code, text, retry_after(response.headers.get("retry-after")))


async def _read(chunks: AsyncIterator[bytes]) -> bytes:
    data = bytearray()
    async for chunk in chunks:
        data += chunk
        if len(data) > LARGEST_RESPONSE:
            raise APIError(f"the response is larger than {LARGEST_RESPONSE // 2**20} MB")
    return bytes(data)


def describe(server: Endpoint, error: APIError) -> str:
    """An error in words, without secrets: a server may send back what it was sent."""
    message = f"{server.url}: {server.redacted(str(error))}"
    server_text = server.redacted(" ".join(error.server_text.split()))
    if server_text:
        message += f": {excerpt(server_text, 300)}"
    return message + server.advice(str(error))


def without_repeats(progress: Callable[[str], None] | None) -> Callable[[str], None]:
    """Pass on each line that differs from the one before: many requests meet the same fault."""
    last = ""

    def note(line: str) -> None:
        nonlocal last
        if progress is not None and line != last:
            last = line
            progress(line)

    return note
