"""HTTP calls to a server, in a separate thread, with retries.

Transport, pools and proxies are those of the ``openai`` package. Its retries are not used: they end at any
response with HTTP 200, though half a text or an error of a gateway may come with it, wait two minutes at
most, say nothing meanwhile, and read the body of an error whole, however long.
"""

from __future__ import annotations

import asyncio
import math
import os
import random
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from datetime import UTC
from email.utils import parsedate_to_datetime
from functools import cache
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar
from urllib.request import getproxies

import msgspec

from selfreflect.errors import BackendError, excerpt, optional
from selfreflect.models.openai.endpoint import Endpoint
from selfreflect.models.openai.protocol import APIError, status_error

if TYPE_CHECKING:
    import httpx2

T = TypeVar("T")
Task: TypeAlias = Callable[["Connection"], Awaitable[T]]

LARGEST_RESPONSE = 32 * 2**20
"""Maximum size of a response in bytes."""

DECODED = ("", "identity", "gzip", "deflate")
"""Compression methods that the client reads; some gateways compress unasked."""

_CONNECT_SECONDS = 20.0

TRIES_TO_REACH = 4
"""Number of tries, within a few seconds, to reach a server that has never responded: it may not be running,
or its address may be wrong. A server that has responded gets all tries of the policy."""


UNUSABLE_TRIES = 5
"""Number of tries, within a few seconds, for a text from a server that has never returned a complete one."""


@dataclass(frozen=True)
class Connection:
    """A client bound to one event loop."""

    http: httpx2.AsyncClient
    slots: asyncio.Semaphore
    """Limit on parallel calls, including waits between tries."""
    first: dict[Any, asyncio.Event] = field(default_factory=dict)
    """Events by kind of call, set when the first call has learned what the server accepts."""
    offer: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Lock of a call that tests whether the server returns more in another wording."""
    report: Callable[[Any], None] = lambda event: None
    """Callback that adds an event to the stream of results before the task's result."""


@dataclass(frozen=True, kw_only=True)
class RetryPolicy:
    """Exponential backoff with jitter. All times in seconds."""

    tries: int = 10
    first: float = 0.5
    longest: float = 60.0
    longest_asked: float = 300.0
    """Maximum wait in seconds that a server may ask for. If it asks for more, the call fails."""
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep

    def wait(self, tries: int, minimum: float | None, jitter: float) -> float | None:
        """Compute the seconds before the next try after ``tries`` failures; None to give up.

        This is the ``minimum`` that the server asks for, plus between half and all of the doubled wait.
        ``jitter``, in [0, 1), says how much, so that requests refused together do not come back together.
        """
        if tries >= self.tries or (minimum is not None and minimum > self.longest_asked):
            return None
        doubled = min(self.longest, self.first * 2.0 ** min(tries - 1, 60))
        return (minimum or 0.0) + doubled * (0.5 + 0.5 * jitter)


class ServerClient:
    """Client of one server, with retries and errors without secrets.

    Args:
        purpose: what needs the ``openai`` extra, should it be missing.
        max_connections: simultaneous calls, those that wait for another try included.
        timeout: seconds for one try; a call with all its tries and waits takes three times that at most.
        progress: called when the server has to be asked again.
    """

    def __init__(
        self,
        purpose: str,
        server: Endpoint,
        *,
        max_connections: int,
        timeout: float,
        progress: Callable[[str], None] | None = None,
    ) -> None:
        with optional(purpose, "openai"):
            import aiohttp  # noqa: F401
            import httpx2  # noqa: F401
            import openai  # noqa: F401
        self.server = server
        self.max_connections = max_connections
        self._timeout = timeout
        self._progress = progress
        self._last_note = ""
        self._has_responded = False

    def run(self, tasks: Iterable[Task[T]]) -> Iterator[tuple[int, T]]:
        """Run all ``tasks`` concurrently, and yield each result with its task's index as soon as it is done.

        What a task reports comes before its result.

        The event loop has its own thread, so this also works inside another loop. Closing the iterator early
        cancels the tasks, as does the first error of one, which is raised.
        """
        from anyio.from_thread import start_blocking_portal

        # The queue holds results, and at last the future of the whole, which raises what went wrong.
        queue: SimpleQueue[tuple[int, T] | Future[None]] = SimpleQueue()

        async def run_task(connection: Connection, index: int, task: Task[T]) -> None:
            connection = replace(connection, report=lambda event: queue.put((index, event)))
            queue.put((index, await task(connection)))

        async def run_all() -> None:
            connection = self.connect()
            async with connection.http:
                await together(run_task(connection, index, task) for index, task in enumerate(tasks))

        with start_blocking_portal() as portal:
            portal.start_task_soon(run_all).add_done_callback(queue.put)
            while isinstance(item := queue.get(), tuple):
                yield item
            item.result()

    async def call(
        self, connection: Connection, send: Callable[[httpx2.AsyncClient], Awaitable[T]], retries: RetryPolicy
    ) -> T:
        """Retry ``send(http)`` until it succeeds, is finally refused, or runs out of tries or time. Raises
        APIError, the last failure."""
        failures: tuple[type[BaseException], ...] = (APIError, *http_errors())
        clock = asyncio.get_running_loop().time
        async with connection.slots:
            await asyncio.sleep(0)  # the error of an earlier call may cancel this one
            # all tries of a call and the waits between them
            deadline = clock() + 3 * self._timeout
            tries = 1
            while True:
                try:
                    # also ends a response that dribbles in byte by byte
                    async with asyncio.timeout(min(self._timeout, deadline - clock())):
                        response = await send(connection.http)
                    self._has_responded = True
                    return response
                except failures as exception:
                    error = transport_error(exception)
                # A server that was there before restarts; one that never was has a wrong address.
                if error.code != "unreachable":
                    self._has_responded = True
                elif tries >= TRIES_TO_REACH and not self._has_responded:
                    raise replace(error, message=f"{error} ({tries} tries)", fatal=True)
                if not error.retryable:
                    raise error
                wait = retries.wait(tries, error.wait, random.random())
                if error.unusable and tries >= UNUSABLE_TRIES:
                    wait = None
                if wait is None or clock() + wait > deadline:
                    asks = "" if error.wait is None else f", asks to wait {error.wait:.0f} s"
                    count = "1 try" if tries == 1 else f"{tries} tries"
                    raise replace(error, message=f"{error}{asks} ({count})")
                self.note(f"{self.problem(error).message}; trying again")
                tries += 1
                await retries.sleep(wait)

    @property
    def headers(self) -> dict[str, str]:
        """HTTP headers of a call."""
        headers = {"Content-Type": "application/json", "Accept-Encoding": "identity"}
        if self.server.authorization:
            headers["Authorization"] = self.server.authorization
        return headers

    def note(self, line: str) -> None:
        """Report a line unless it repeats the previous one."""
        if self._progress is not None and line != self._last_note:
            self._last_note = line
            self._progress(line)

    def problem(self, error: APIError) -> BackendError:
        """Make the error for users, without secrets that the server may echo."""
        message = f"{self.server.url}: {self.server.redacted(str(error))}"
        server_text = self.server.redacted(" ".join(error.server_text.split()))
        if server_text:
            message += f": {excerpt(server_text, 300)}"
        remedy = error.remedy.replace("{base_url}", f"{{{self.server.setting}}}")
        # which of the two a server without a key gives depends on the server
        if error.code == "key" or (error.code == "forbidden" and not self.server.authorization):
            remedy = f"{self.server.key_advice}."
        return BackendError(message, code=error.code, remedy=remedy, status=error.status, wait=error.wait)

    def connect(self) -> Connection:
        """Open a connection for one event loop, which the caller closes."""
        http = self.http_client(event_hooks={"response": [_check]})
        return Connection(http, asyncio.Semaphore(self.max_connections))

    async def send(self, http: httpx2.AsyncClient, method: str, path: str, body: Any = None) -> bytes:
        """Send JSON and return the response's JSON. Raises APIError, or an error of the connection."""
        data = None if body is None else msgspec.json.encode(body)
        url = f"{self.server.url}{path}"
        async with http.stream(method, url, content=data, headers=self.headers) as response:
            return self.server.without_secrets(await body_of(response))

    def http_client(self, **options: Any) -> httpx2.AsyncClient:
        """Make a connection pool for one event loop.

        aiohttp moves the bytes, with which the endpoint takes a quarter less processor time than with
        httpx2's own transport. Raises BackendError if the environment names a proxy that cannot be used.
        """
        import httpx2
        from openai import DefaultAioHttpClient

        try:
            proxies = getproxies()
            for scheme in ("http", "https", "all"):  # httpx2 reads no others, such as SOCKS_PROXY
                if proxies.get(scheme, "").lower().startswith("socks"):
                    raise ValueError("aiohttp does not support SOCKS proxies")
            return DefaultAioHttpClient(
                verify=_tls_context(os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR")),
                timeout=httpx2.Timeout(self._timeout, connect=min(self._timeout, _CONNECT_SECONDS)),
                limits=httpx2.Limits(max_connections=self.max_connections),
                **options,
            )
        except (ValueError, ImportError):
            raise BackendError(
                "the proxy that the environment names cannot be used",
                code="proxy",
                remedy="Set HTTP_PROXY, HTTPS_PROXY or ALL_PROXY to an address that begins with http:// or "
                "https://.",
            ) from None


@cache
def _tls_context(file: str | None, directory: str | None) -> ssl.SSLContext:
    """Read the trusted certificates, once for each value of the variables that name them, because it takes
    longer than to open a connection."""
    import httpx2

    return httpx2.create_ssl_context()


async def together(coroutines: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Run coroutines concurrently. The first error cancels the others and is raised unchanged."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = list(map(group.create_task, coroutines))
    except ExceptionGroup as errors:
        # callers expect the error itself, not a group of them
        raise errors.exceptions[0] from None
    return [task.result() for task in tasks]


async def body_of(response: Any) -> bytes:
    """Read the JSON of a response with HTTP 200. Raises APIError if it is something else, or too large."""
    content_type = response.headers.get("content-type", "")
    # asked before the body is read, since a stream may never end
    if "event-stream" in content_type:
        raise _streams()
    data = await _read(response.aiter_bytes())
    if data.lstrip().startswith((b"data:", b"event:", b":")):
        raise _streams()
    # some servers do not say what they send, or that it is a text
    if "json" not in content_type and data.lstrip()[:1] not in (b"{", b"["):
        raise APIError(
            "the response is not JSON; its type",
            code="not_json",
            remedy="Check {base_url}, which usually ends in /v1.",
            server_text=content_type or "(none)",
        )
    return data


def _streams() -> APIError:
    return APIError(
        "the server sends an event stream, although the request switched streaming off",
        code="stream",
        remedy="Switch streaming off at the server, or put a server in front of it that sends whole "
        "responses.",
        fatal=True,
    )


async def _check(response: Any) -> None:
    """Raise an APIError for a bad status before the client reads the whole body."""
    if response.headers.get("content-encoding", "").strip().lower() not in DECODED:
        raise APIError("the response is compressed in a format that the request did not allow")
    if response.has_redirect_location:
        raise APIError(
            f"the server redirects to another address (HTTP {response.status_code})",
            code="redirect",
            remedy="Give that address as {base_url}.",
            server_text=response.headers["location"],
        )
    if response.status_code >= 300:
        data = await _read(response.aiter_bytes())
        raise status_error(response.status_code, data, asked_wait(response.headers))


async def _read(chunks: AsyncIterator[bytes]) -> bytes:
    data = bytearray()
    async for chunk in chunks:
        data += chunk
        if len(data) > LARGEST_RESPONSE:
            raise APIError(f"the response is larger than {LARGEST_RESPONSE // 2**20} MB")
    return bytes(data)


def http_errors() -> tuple[type[BaseException], ...]:
    """List the errors of a call without a complete response. Any other error is a bug."""
    import aiohttp
    import httpx2

    return (httpx2.HTTPError, httpx2.InvalidURL, httpx2.StreamError, aiohttp.ClientError, OSError)


def causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an exception and its causes, nearest first."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def transport_error(exception: BaseException) -> APIError:
    """Translate a client's exception: the APIError inside it, or an incomplete response.

    The exceptions of aiohttp say it, not those of httpx2 around them: a refused connection is a timeout
    there.
    """
    import aiohttp
    import httpx2

    chain = list(causes(exception))
    for error in chain:
        if isinstance(error, APIError):
            return error
    if any(isinstance(error, TimeoutError) for error in chain):
        remedy = "Raise {execution.timeout} to wait longer."
        return APIError("no complete response came in time", code="timeout", remedy=remedy, retryable=True)
    # the innermost error says most
    for error in reversed(chain):
        if isinstance(error, ssl.SSLError):
            reason = getattr(error, "verify_message", "") or error.reason or "the connection was lost"
            message = f"no secure connection: {excerpt(reason, 200)}"
            if isinstance(error, ssl.SSLEOFError):  # an overloaded or restarting server hangs up like that
                return APIError(message, retryable=True)
            return APIError(
                message, code="tls", remedy="To trust a certificate of your own, set SSL_CERT_FILE."
            )
    cause = chain[-1]
    reason = getattr(cause, "strerror", None) or str(cause) or type(cause).__name__
    message = f"the connection failed: {excerpt(reason, 200)}"
    if any(isinstance(error, httpx2.DecodingError) for error in chain):
        return APIError(message, retryable=True, unusable=True)
    is_connected = isinstance(cause, ConnectionResetError)  # it hung up: it is there
    if not is_connected and any(isinstance(error, aiohttp.ClientConnectorError) for error in chain):
        remedy = "Start the server, or correct {base_url}."
        return APIError(message, code="unreachable", remedy=remedy, retryable=True)
    return APIError(message, retryable=True)


def asked_wait(headers: Mapping[str, str]) -> float | None:
    """Read the wait that error headers ask for, in seconds; Azure also gives milliseconds."""
    milliseconds = retry_after(headers.get("retry-after-ms"))
    return retry_after(headers.get("retry-after")) if milliseconds is None else milliseconds / 1000


def retry_after(value: str | None) -> float | None:
    """Read the seconds of a Retry-After header, given as a number or a date; None if neither."""
    try:
        seconds = float((value or "").removesuffix("s"))
    except ValueError:
        try:
            date = parsedate_to_datetime(value or "")
        except (ValueError, TypeError, OverflowError):
            return None
        # one without a zone is in UTC, as HTTP has it
        seconds = (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp() - time.time()
    return None if math.isnan(seconds) else max(0.0, seconds)
