"""An OpenAI-compatible server as the upstream: models and unchanged requests."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, aclosing
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import msgspec
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from selfreflect.errors import BackendError, excerpt, nearest
from selfreflect.models.base import Refusal, Reply, Request
from selfreflect.models.openai.client import (
    DECODED,
    LARGEST_RESPONSE,
    Connection,
    RetryPolicy,
    ServerClient,
    http_errors,
    retry_after,
    transport_error,
)
from selfreflect.models.openai.endpoint import Endpoint
from selfreflect.models.openai.generator import OpenAIGenerator
from selfreflect.models.openai.protocol import APIError, finish_of, read_piece
from selfreflect.models.reasoning import StreamedTrace
from selfreflect.records import Finish
from selfreflect.server.chat import PREFIX, ChatRequest, Fields
from selfreflect.server.connections import begin, send_part
from selfreflect.server.errors import ChatError, upstream_busy
from selfreflect.server.forms import Form
from selfreflect.server.reply import Belief
from selfreflect.server.session import AskModel, LocalModel, Report

if TYPE_CHECKING:
    import httpx2


RETRIES = RetryPolicy(tries=4, first=0.25, longest=4.0, longest_asked=15.0)
"""Retry policy with shorter limits than in runs, since a client waits."""

MODELS_REMEMBERED = 64
# How long a list of models is remembered.
_LIST_SECONDS = 30.0

# Headers of the upstream that clients get.
_RELAYED = ("content-type", "retry-after", "x-request-id")

# Statuses of the upstream that clients get. Any other becomes 502.
_HANDED_ON = (range(200, 300), range(400, 600))

# Bytes of an error, which is searched for keys.
_LARGEST_ERROR = 2**20


class _Listed(msgspec.Struct):
    id: str


class _ModelList(msgspec.Struct):
    data: list[_Listed]


class RemoteModel:
    """A model on the upstream server."""

    takes_fields = True

    def __init__(self, name: str, server: RemoteServer) -> None:
        self.name = name
        self.generator = server.generator(name)
        self._server = server

    def asking(self, fields: Mapping[str, Any]) -> AskModel:
        """Make a function that asks the model with a client's fields."""
        return partial(self.reply, generator=self.generator.with_extra(fields)) if fields else self.reply

    async def send(self, path: str, data: bytes, headers: Mapping[str, str]) -> RelayedResponse:
        """Send a request body unchanged. Raises ChatError if there is no response."""
        return await self._server.send("POST", path, data, headers)

    async def open(self, request: Request, fields: Mapping[str, Any]) -> RelayedResponse:
        """Request a text stream in the wording that the server accepts. Raises the errors of :meth:`send`."""
        wording = self.generator.learned.wording
        extra = {**fields, "stream": True, "stream_options": {"include_usage": True}}
        body = wording.body(self.name, request, 0, 1, extra)
        return await self.send("/chat/completions", msgspec.json.encode(body), {})

    async def reply(
        self, request: Request, report: Report, generator: OpenAIGenerator | None = None
    ) -> Reply | Refusal:
        """Wait for the response. Cancellation also ends the calls in progress."""
        connection = replace(self._server.connection(), report=report)
        try:
            return await (generator or self.generator).answer(request, connection)
        except BackendError as error:
            status = error.status or (400 if error.code == "field" else 0)
            return Refusal(
                kind="backend", message=str(error), status=status, wait=error.wait, code=error.code
            )


class RemoteServer:
    """Calls to one server, with separate connection pools for completions and for relayed requests.

    Raises MissingExtraError without the extra ``openai``.
    """

    def __init__(
        self,
        server: Endpoint,
        *,
        max_connections: int,
        timeout: float,
        extra_body: Mapping[str, Any] | None = None,
    ) -> None:
        self.endpoint = server
        self._options: dict[str, Any] = {
            "max_connections": max_connections,
            "timeout": timeout,
            "extra_body": extra_body,
        }
        self._client = ServerClient(
            "A model of an OpenAI-compatible server", server, max_connections=max_connections, timeout=timeout
        )
        self._connection: Connection | None = None
        self._http: httpx2.AsyncClient | None = None
        # keeps what a generator has learned of its model; bounded, as clients choose the names
        self.model = lru_cache(MODELS_REMEMBERED)(partial(RemoteModel, server=self))
        """Model by the server's unchecked name."""
        self._names: list[str] = []
        self._names_until = 0.0

    def generator(self, name: str) -> OpenAIGenerator:
        return OpenAIGenerator(name, self.endpoint, retries=RETRIES, **self._options)

    def connection(self) -> Connection:
        if self._connection is None:
            self._connection = self._client.connect()
        return self._connection

    async def names(self) -> list[str]:
        """List the models' names. Raises ChatError if the server gives no list."""
        now = asyncio.get_running_loop().time()
        # clients ask at each start, some at each request
        if now < self._names_until:
            return self._names
        async with await self.send("GET", "/models", b"") as response:
            data = await response.aread()
            if response.status_code == 429:
                raise upstream_busy(f"{self.endpoint.url}: HTTP 429", response.wait)
            try:
                models = msgspec.json.decode(data, type=_ModelList)
            except (msgspec.DecodeError, UnicodeDecodeError):
                models = _ModelList([])
            if response.status_code != 200 or not models.data:
                message = f"{self.endpoint.url} lists no models (HTTP {response.status_code})"
                raise ChatError(502, message, type="upstream_error", code="no_models")
        self._names = [model.id for model in models.data]
        self._names_until = now + _LIST_SECONDS
        return self._names

    async def send(
        self, method: str, path: str, data: bytes, headers: Mapping[str, str] = MappingProxyType({})
    ) -> RelayedResponse:
        """Send a body unchanged, and return once the response has begun.

        Raises:
            ChatError: there is no response.
        """
        if self._http is None:
            # a redirect could send the key to another server
            self._http = self._client.http_client(follow_redirects=False)
        # our headers last, so that none of a client takes the place of the key
        http_request = self._http.build_request(
            method, self.endpoint.url + path, content=data, headers={**headers, **self._client.headers}
        )
        try:
            response = await self._http.send(http_request, stream=True)
        except http_errors() as error:
            raise self.fault(error) from None
        if problem := _unusable(response):
            await response.aclose()
            code, message = problem
            raise ChatError(502, f"the upstream {message}", type="upstream_error", code=code)
        return RelayedResponse(response, self)

    def fault(self, error: BaseException) -> ChatError:
        """Describe a failed call without secrets."""
        failure = transport_error(error)
        status = 504 if failure.code == "timeout" else 502
        message = str(self._client.problem(failure))
        return ChatError(status, message, type="upstream_error", code="backend")

    def redacted(self, data: bytes) -> bytes:
        """Redact API keys in a short response body."""
        return self.endpoint.redacted(data.decode("utf-8", "surrogateescape")).encode(
            "utf-8", "surrogateescape"
        )

    async def close(self) -> None:
        if self._connection is not None:
            await self._connection.http.aclose()
        if self._http is not None:
            await self._http.aclose()


class RelayedResponse:
    """An upstream response with an unread body. A context manager that closes it."""

    def __init__(self, response: httpx2.Response, server: RemoteServer) -> None:
        self._response = response
        self.server = server
        self.status_code = response.status_code
        self.headers = {}
        for name in _RELAYED:
            # a header with other characters would end this response
            value = response.headers.get(name, "")
            if value and value.isascii() and value.isprintable():
                self.headers[name] = server.endpoint.redacted(value)

    @property
    def is_stream(self) -> bool:
        """Whether the body is a stream of events."""
        return self.status_code == 200 and self.headers.get("content-type", "").startswith(
            "text/event-stream"
        )

    @property
    def wait(self) -> float | None:
        """Seconds that the upstream asks to wait."""
        return retry_after(self.headers.get("retry-after"))

    async def __aenter__(self) -> RelayedResponse:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._response.aclose()

    async def aread(self) -> bytes:
        """Read the whole body. Raises ChatError if it breaks off or is too large."""
        data = bytearray()
        largest = LARGEST_RESPONSE if self.status_code < 300 else _LARGEST_ERROR
        async for part in self.parts():
            data += part
            if len(data) > largest:
                message = f"the response is larger than {largest // 2**20} MB"
                raise self.server.fault(APIError(message))
        return self.server.redacted(bytes(data)) if self.status_code >= 300 else bytes(data)

    async def parts(self) -> AsyncGenerator[bytes, None]:
        """Yield the body as it arrives, decompressed and without keys. Raises ChatError if it breaks off."""
        endpoint = self.server.endpoint
        tail = b""
        try:
            async for part in self._response.aiter_bytes():
                part = endpoint.without_whole(tail + part)
                # a key may be cut by the boundary of two parts
                size = _begun(part, endpoint.hidden)
                tail = part[len(part) - size :]
                if part := part[: len(part) - size]:
                    yield endpoint.without_parts(part)
        except http_errors() as error:
            raise self.server.fault(error) from None
        if tail:
            yield endpoint.without_parts(tail)

    async def lines(self) -> AsyncGenerator[list[bytes], None]:
        """Yield complete lines as they arrive, and the rest at the end. Raises the errors of
        :meth:`parts`."""
        # joined at a line's end only: each part of a long line would copy all before it
        pending: list[bytes] = []
        size = 0
        async with aclosing(self.parts()) as parts:
            async for part in parts:
                pending.append(part)
                size += len(part)
                if b"\n" in part:
                    *lines, rest = b"".join(pending).split(b"\n")
                    pending, size = [rest], len(rest)
                    yield [line + b"\n" for line in lines]
                if size > LARGEST_RESPONSE:
                    message = f"an event is larger than {LARGEST_RESPONSE // 2**20} MB"
                    raise self.server.fault(APIError(message))
        if size:
            yield [b"".join(pending)]


def _unusable(response: httpx2.Response) -> tuple[str, str] | None:
    """Explain why a response cannot be relayed, by an error code and a phrase; None if it can."""
    status = response.status_code
    if 300 <= status < 400:
        return "redirect", f"redirects to another address (HTTP {status})"
    if not any(status in statuses for statuses in _HANDED_ON):
        return "upstream_status", f"answers with a status that no final HTTP response may have ({status})"
    if response.headers.get("content-encoding", "").strip().lower() not in DECODED:
        return "upstream_encoding", "compresses its response in a way that the call did not allow"
    return None


def _begun(data: bytes, forms: Sequence[bytes]) -> int:
    """Count the bytes at the end of ``data`` that may begin one of ``forms``."""
    if data.endswith(b"\n"):  # no secret holds a line end, with which events end
        return 0
    longest = 0
    for form in forms:
        for size in range(min(len(form) - 1, len(data)), longest, -1):
            if data.endswith(form[:size]):
                longest = size
                break
    return longest


def relay(
    chat: ChatRequest,
    model: RemoteModel,
    slot: AbstractAsyncContextManager[None],
    counter: AbstractContextManager[None],
    form: Form,
    path: str,
    client_headers: Mapping[str, str],
    belief: Belief | None = None,
) -> ASGIApp:
    """Relay the upstream's response unchanged, except for a belief added to a chat completion that could have
    been reflected.

    It is written within the request's task, which is cancelled when the client goes away. An iterator, as
    StreamingResponse takes it, would be left suspended. Raises ChatError if there is no response, or no place
    in the queue.
    """
    own_headers = {name: client_headers[name] for name in form.headers if name in client_headers}

    async def write(scope: Scope, receive: Receive, send: Send) -> None:
        has_begun, numbered = False, b""
        try:
            with counter:
                async with slot, await model.send(path, chat.data, own_headers) as response:
                    headers = {**response.headers, "x-selfreflect-passthrough": chat.passthrough}
                    if belief is not None:
                        headers["x-selfreflect-id"] = belief.id
                    if response.is_stream:
                        await begin(send, headers)
                        has_begun = True
                        events = response.parts() if belief is None else _events_with(response, belief)
                        async with aclosing(events) as parts:
                            async for part in parts:
                                numbered = part if _NUMBER.search(part) else numbered
                                await send_part(send, part)
                                await asyncio.sleep(0)  # a fast upstream leaves others, and news, no turn
                        await send_part(send, b"", more=False)
                        return
                    body = await response.aread()
                    if belief is not None and response.status_code == 200:
                        body = _with_belief(body, belief) or body
                await Response(body, response.status_code, headers)(scope, receive, send)
        except ChatError as error:
            if not has_begun:
                raise
            # an error goes on with the numbers of the events, which clients of /v1/responses count
            number = 1 + max(map(int, _NUMBER.findall(numbered)), default=-1)
            await send_part(send, form.error_event(error, number))
            await send_part(send, b"", more=False)

    return write


_NUMBER = re.compile(rb'"sequence_number": *(\d{1,9})\b')


@dataclass
class LiveText:
    """Streamed text of the upstream: pieces, then finish reason and usage."""

    response: RelayedResponse
    text: str = ""
    finish: Finish = "stop"
    prompt_tokens: int = 0
    completion_tokens: int = 0
    """Completion tokens; 0 if uncounted, like ``prompt_tokens``."""
    _is_over: bool = False
    _ending: str = ""
    """Finish reason of the server."""

    async def pieces(self) -> AsyncGenerator[str, None]:
        """Yield the pieces of the text, without a reasoning trace.

        Raises ChatError if it breaks off, ends in an unknown way, or holds an error.
        """
        trace = StreamedTrace()
        async with aclosing(self.response.lines()) as parts:
            async for lines in parts:
                if shown := trace.take("".join(map(self._take, lines))):
                    self.text += shown
                    yield shown
        if trace.held and not trace.is_open:
            self.text += trace.held
            yield trace.held
        finish = finish_of(self._ending)
        # some servers say nothing after the reason, and some give none
        if finish is None and (self._ending or not self._is_over):
            message = "the stream of the upstream broke off"
            raise ChatError(502, message, type="upstream_error", code="backend")
        self.finish = "unclosed_reasoning" if trace.is_open else finish or "stop"

    def _take(self, line: bytes) -> str:
        """Read a line of the stream, and return its text."""
        if not line.startswith(b"data:"):
            return ""
        data = line[5:].strip()
        self._is_over = self._is_over or data == b"[DONE]"
        if data in (b"", b"[DONE]"):
            return ""
        try:
            piece = read_piece(data)
        except APIError as error:
            raise self.response.server.fault(error) from None
        self._ending = piece.ending or self._ending
        self.prompt_tokens = piece.prompt_tokens or self.prompt_tokens
        self.completion_tokens = piece.completion_tokens or self.completion_tokens
        return piece.text


async def _events_with(response: RelayedResponse, belief: Belief) -> AsyncGenerator[bytes, None]:
    """Add the answer distribution to the event that ends a stream's text."""
    async with aclosing(response.lines()) as parts:
        async for lines in parts:
            for line in lines:
                is_end = line.startswith(b"data:") and b'"finish_reason"' in line
                data = _with_belief(line[5:], belief, only_ends=True) if is_end else None
                yield line if data is None else b"data: %b\n" % data


class _StreamedChoice(msgspec.Struct):
    finish_reason: Any = None


def _with_belief(data: bytes, belief: Belief, *, only_ends: bool = False) -> bytes | None:
    """Add the answer distribution to a JSON completion, or with ``only_ends`` to the end of a text."""
    try:
        fields = msgspec.json.decode(data, type=Fields)
        choices = msgspec.json.decode(fields.get("choices", b"[]"), type=list[_StreamedChoice])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    if not choices or (only_ends and not any(choice.finish_reason for choice in choices)):
        return None
    return msgspec.json.encode({**fields, "selfreflect": belief})


class ModelTable:
    """Local models and the models of one server.

    Args:
        names: the server's models that clients may name; None for all that it has.
    """

    def __init__(
        self,
        local: Sequence[LocalModel],
        server: RemoteServer | None = None,
        names: Sequence[str] | None = None,
    ) -> None:
        self._local = {model.name: model for model in local}
        self._server = server
        self._names = names if server is not None else ()

    async def names(self) -> list[str]:
        """List the models' names. Raises ChatError if the server gives no list."""
        names = [*self._local, *(self._names or ())]
        if self._server is not None and self._names is None:
            names += await self._server.names()
        return [f"{prefix}{name}" for name in names for prefix in (PREFIX, "")]

    def find(self, name: str) -> LocalModel | RemoteModel:
        """Look up a model by name. Raises ChatError, status 404, if there is none."""
        if name in self._local:
            return self._local[name]
        if name and self._server is not None and (self._names is None or name in self._names):
            return self._server.model(name)
        # the nearest name first, since lists of hub models are long
        own_names = [*self._local, *(self._names or ())]
        names = [f"{PREFIX}{name}" for name in own_names] + own_names
        hint = nearest(name, own_names) or f" Known: {', '.join(names)}."
        raise ChatError(
            404,
            f"there is no model {excerpt(name, 200)}.{hint}",
            type="not_found_error",
            param="model",
            code="model_not_found",
        )

    async def close(self) -> None:
        for model in self._local.values():
            await model.close()
        if self._server is not None:
            await self._server.close()
