"""The OpenAI-compatible endpoint: routes, queue and server."""

from __future__ import annotations

import asyncio
import logging
import secrets
import socket
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from http import HTTPStatus
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from selfreflect import __version__
from selfreflect.errors import SelfReflectError, excerpt
from selfreflect.models.base import Refusal
from selfreflect.server.chat import ID_PREFIX, PREFIX, ChatRequest, Reflect, read_request
from selfreflect.server.connections import HttpServer, begin, log_to_stderr, send_part
from selfreflect.server.errors import RETRY_SECONDS, ChatError, ErrorType, as_chat_error, failed
from selfreflect.server.forms import Form, NewStream, form_of, to_pass
from selfreflect.server.guard import Access, Guard, Policy
from selfreflect.server.kinds import kind_of
from selfreflect.server.record import Archive, History, ServerMetrics, detail
from selfreflect.server.reflector import (
    NOT_COUNTED,
    Exchange,
    Reflector,
    choice_of,
    cut_at,
    field_notes,
    response_to,
)
from selfreflect.server.reply import KEEP_ALIVE, Belief, ChatResponse
from selfreflect.server.session import Session, WithFields
from selfreflect.server.structured import calls_of
from selfreflect.server.upstream import LiveText, ModelTable, RemoteModel, relay


class Admission:
    """A bounded queue of requests. Belongs to one event loop.

    Args:
        running: requests that are answered at once.
        waiting: further requests that wait for their turn.
        per_client: requests of one address, running and waiting.
    """

    def __init__(self, *, running: int = 64, waiting: int = 128, per_client: int = 64) -> None:
        self._most_waiting = waiting
        self._per_client = per_client
        self._slots = asyncio.Semaphore(running)
        self._clients: Counter[str] = Counter()
        self.waiting = 0
        self.running = 0

    @asynccontextmanager
    async def slot(self, client: str) -> AsyncIterator[None]:
        """Wait for a turn, and hold it. Raises ChatError, status 429, if the queue is full."""
        if self._clients[client] >= self._per_client:
            raise _busy(f"one client may have {self._per_client} requests at a time", "client_limit")
        if self._slots.locked() and self.waiting >= self._most_waiting:
            raise _busy(f"{self.waiting} requests are waiting already", "queue_full")
        self._clients[client] += 1
        try:
            self.waiting += 1
            try:
                await self._slots.acquire()
            finally:
                self.waiting -= 1
            self.running += 1
            try:
                yield
            finally:
                self.running -= 1
                self._slots.release()
        finally:
            self._clients[client] -= 1
            # or the counter would grow with each address that ever called
            if not self._clients[client]:
                del self._clients[client]


def _busy(message: str, code: str) -> ChatError:
    return ChatError(
        429, f"{message}; try again later", type="rate_limit_error", code=code, retry_after=RETRY_SECONDS
    )


OPEN_SECONDS = 10.0
"""Seconds that a stream waits for a first answer before it sends its status. Until then, an error can have a
status of its own."""
KEEP_ALIVE_SECONDS = 5.0

_NOT_KEPT = "this answer could not be written to the server's run directory (--out)"

log = logging.getLogger("selfreflect.serve")


@dataclass(frozen=True)
class ServeServices:
    """Services shared by all routes."""

    models: ModelTable
    reflector: Reflector
    admission: Admission
    history: History
    metrics: ServerMetrics
    archive: Archive | None = None

    async def close(self) -> None:
        await self.models.close()
        if self.archive is not None:
            await asyncio.to_thread(self.archive.close)


async def completions(request: Request) -> ASGIApp:
    """Answer a conversation; the model ``selfreflect/NAME`` reflects on it."""
    services: ServeServices = request.app.state.services
    form = form_of(request.url.path)
    read = partial(
        read_request,
        dialect=form.dialect,
        ignore_tools=services.reflector.settings.options.ignore_tools,
        remembered=services.history.conversation,
    )
    chat = read(await request.body())
    model = services.models.find(chat.model)
    client = request.client.host if request.client else ""
    # a model of this process has nobody to hand the request to
    if chat.passthrough and isinstance(model, RemoteModel):
        return _relay(request, chat, model)
    if not chat.reflects:
        # a model of this process needs the fields, as no server reads them
        chat = read(chat.data, in_full=True)
    wanted = chat.passthrough
    if not isinstance(model, RemoteModel):
        wanted = wanted or form.dialect.names.get(chat.structure, chat.structure)
    if wanted:
        message = (
            f"{wanted}: the model {chat.model!r} runs in the server's own process and accepts only plain "
            "questions: text messages, the last of them from the user, and no tools, images or output "
            "formats"
        )
        param = wanted.partition(".")[0]
        raise ChatError(400, message, param=param, code="unsupported")
    settings = services.reflector.settings
    reason, is_worth_it = decide(chat, settings.options.reflect) if chat.reflects else ("model", False)
    id_ = f"{ID_PREFIX}{secrets.token_urlsafe(18)}"  # which nobody can guess
    belief = Belief(id=id_, model=chat.model, reflected=is_worth_it, reason=reason)
    # a chat completion of the upstream needs no other form, so that its bytes go on as they are
    if chat.reflects and not is_worth_it and isinstance(model, RemoteModel) and form.stream is None:
        return _relay(request, replace(chat, passthrough=reason), model, belief)
    headers = {form.id_header: belief.id}
    if chat.reflects:
        headers["x-selfreflect-id"] = belief.id
        if not is_worth_it:
            headers["x-selfreflect-passthrough"] = reason
    call = _Call(services, form, chat, WithFields(model, chat.handed_on), belief, client)
    # a stream that is passed on as it comes holds texts alone
    is_live = chat.stream and not is_worth_it and not chat.tools
    if is_live and form.stream is not None and isinstance(model, RemoteModel):
        return partial(_stream_live, call, model, form.stream, headers)
    if chat.stream:
        return partial(_stream, call, headers)
    answer = await _answer(call, asyncio.Event())
    body = form.body(answer, chat.requested_model)
    return Response(body, media_type="application/json", headers={**headers, **answer.headers})


PASSED = ("/messages/count_tokens", "/responses/input_tokens", "/embeddings", "/completions")
"""Paths below ``/v1`` answered by the model's server only."""


async def pass_on(request: Request) -> ASGIApp:
    """Forward a request other than a conversation to the model's server."""
    services: ServeServices = request.app.state.services
    path = request.url.path.removeprefix("/v1")
    chat = to_pass(await request.body(), path.rpartition("/")[2])
    model = services.models.find(chat.model)
    if isinstance(model, RemoteModel):
        return _relay(request, chat, model)
    message = f"the model {chat.model!r} runs in the server's own process, which does not offer {path}"
    raise ChatError(400, message, param="model", code="unsupported")


def decide(chat: ChatRequest, default: Reflect) -> tuple[str, bool]:
    """Decide whether to reflect on a request, and name the reason: the text's kind, or the setting."""
    reflect = chat.options.reflect or default
    if reflect != "auto":
        return reflect, reflect == "always"
    if chat.must_call or (chat.structure and not chat.tools):
        return "structured", True
    kind = kind_of(chat.question)
    # an order such as "List my tickets" is one to a tool
    if chat.tools and kind not in ("small_talk", "long_text", "code"):
        return "structured", True
    return kind, kind == "question"


def _relay(request: Request, chat: ChatRequest, model: RemoteModel, belief: Belief | None = None) -> ASGIApp:
    """Relay the upstream's response, with any ``belief`` that explains the lack of reflection."""
    services: ServeServices = request.app.state.services
    client = request.client.host if request.client else ""
    outcome = "passthrough" if belief is None else "plain"
    counter = services.metrics.counting(outcome, timed=False)
    form = form_of(request.url.path)
    path = request.url.path.removeprefix("/v1")
    if belief is not None and chat.stores:
        services.history.add(belief.id, belief)
    return relay(chat, model, services.admission.slot(client), counter, form, path, request.headers, belief)


@dataclass(frozen=True)
class _Call:
    """A request answered by this server."""

    services: ServeServices
    form: Form
    chat: ChatRequest
    model: WithFields
    belief: Belief
    """Answer distribution that contains only the decision so far."""
    client: str

    def session(self, on_open: Callable[[], None] = lambda: None) -> Session:
        """Open a session with the model, which adds up the cost of calls."""
        prices = self.services.reflector.settings.prices
        return Session(self.model, on_open, prices.get(self.model.generator.name))

    def belief_of(self, session: Session) -> Belief:
        """Complete the answer distribution of a plain answer with cost and notes."""
        notes = (*field_notes(self.chat, self.model), *(() if session.counts_tokens else (NOT_COUNTED,)))
        return msgspec.structs.replace(self.belief, cost=session.spending, notes=notes)


async def _answer(call: _Call, first_word: asyncio.Event) -> ChatResponse:
    services, chat, id_ = call.services, call.chat, call.belief.id
    with services.metrics.counting("answered" if call.belief.reflected else "plain"):
        async with services.admission.slot(call.client):
            if not call.belief.reflected:
                answer = await _plain(call, first_word)
                content: object = answer.belief or call.belief
            else:
                exchange = await services.reflector.answer(chat, call.model, call.belief, first_word.set)
                services.metrics.count(exchange)
                if services.archive is not None:
                    exchange = await _keep(services, services.archive, exchange)
                answer, content = exchange.response, detail(exchange)
    # after the slot is free: nobody waits for this
    if chat.stores:
        said = answer.choices[0]
        # a turn that calls tools is more than its text: nothing can go on from it here
        services.history.add(id_, content, () if said.calls else chat.lasting, said.text)
    return answer


async def _keep(services: ServeServices, archive: Archive, exchange: Exchange) -> Exchange:
    """Store an exchange on disk. If that fails, the answer is still returned."""
    try:
        await archive.add(exchange)
    # a full disk must not cost an answer that was paid for
    except (SelfReflectError, OSError) as error:
        services.metrics.count_lost()
        log.warning("%s is not stored: %s", exchange.belief.id, error)
        notes = (*exchange.belief.notes, _NOT_KEPT)
        belief = msgspec.structs.replace(exchange.belief, notes=notes)
        return replace(exchange, response=replace(exchange.response, belief=belief))
    return exchange


async def _plain(call: _Call, first_word: asyncio.Event) -> ChatResponse:
    """Let a model answer without reflection."""
    chat = call.chat
    request = call.services.reflector.plain_request(chat)
    session = call.session(first_word.set)
    reply = await session.ask(request)
    if isinstance(reply, Refusal):
        raise failed(reply.kind, reply.message, reply)
    choices = []
    for completion_ in reply.completions:
        text, stopped_at = cut_at(completion_.text, chat.stop)
        choices.append(choice_of(text, calls_of(completion_), completion_.finish, stopped_at))
    belief = call.belief_of(session) if chat.reflects else None
    return response_to(chat, call.belief.id, choices, session.spending, request.sampling, belief)


async def _stream_live(
    call: _Call,
    model: RemoteModel,
    new_stream: NewStream,
    headers: Mapping[str, str],
    scope: Scope,
    receive: Receive,
    send: Send,
) -> None:
    """Stream the upstream's text as it arrives, or request the whole text without a stream."""
    services, chat = call.services, call.chat
    # what is sent as it comes cannot be cut here afterwards
    fields = {**chat.handed_on, "stop": chat.stop} if chat.stop else chat.handed_on
    request = services.reflector.plain_request(chat)
    async with services.admission.slot(call.client), await model.open(request, fields) as upstream:
        if upstream.is_stream:
            await begin(send, {"content-type": "text/event-stream; charset=utf-8", **headers})
            # the event of an error is sent, and its request counted, before it ends here
            with suppress(ChatError), services.metrics.counting("plain"):
                async with aclosing(_live_events(call, new_stream, LiveText(upstream))) as events:
                    async for event in events:
                        await send_part(send, event)
            await send_part(send, b"", more=False)
            return
    await _stream(call, headers, scope, receive, send)


async def _live_events(call: _Call, new_stream: NewStream, live: LiveText) -> AsyncGenerator[bytes, None]:
    """Yield the events of a text as it arrives. After an event for an error, raises ChatError."""
    chat, id_ = call.chat, call.belief.id
    session = call.session()
    sampling = call.services.reflector.plain_request(chat).sampling
    response = response_to(chat, id_, (), session.spending, sampling)
    stream = new_stream(response, chat.requested_model)
    yield stream.begin()
    try:
        async with aclosing(live.pieces()) as texts:
            async for text in texts:
                yield stream.piece(text)
    except ChatError as error:
        yield stream.failure(error)
        raise
    session.count([live.text], live.prompt_tokens, live.completion_tokens)
    belief = call.belief_of(session)
    if chat.stores:
        call.services.history.add(id_, belief, chat.lasting, live.text)
    choices = (choice_of(live.text, (), live.finish),)
    yield stream.end(replace(response, choices=choices, spending=session.spending, belief=belief))


async def _stream(
    call: _Call, headers: Mapping[str, str], scope: Scope, receive: Receive, send: Send
) -> None:
    """Begin a stream once the model responds, fails or takes long."""
    first_word = asyncio.Event()
    work = asyncio.create_task(_answer(call, first_word))
    # until the first word an error can still have its own status
    opening = asyncio.create_task(first_word.wait())
    try:
        await asyncio.wait((work, opening), timeout=OPEN_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        early_headers = work.result().headers if work.done() else {}
        await begin(send, {"content-type": "text/event-stream; charset=utf-8", **headers, **early_headers})
        while not work.done():
            await asyncio.wait((work,), timeout=KEEP_ALIVE_SECONDS)
            if not work.done():
                await send_part(send, KEEP_ALIVE)
        try:
            chat = call.chat
            events = call.form.events(work.result(), chat.requested_model, chat.include_usage)
            await send_part(send, b"".join(events))
        except SelfReflectError as error:
            await send_part(send, call.form.error_event(as_chat_error(error), 0))
        await send_part(send, b"", more=False)
    finally:
        opening.cancel()
        while not work.done():  # in case a library swallowed the first
            work.cancel()
            await asyncio.wait((work,), timeout=1)
        if not work.cancelled():
            work.exception()  # or the log says that nobody looked


async def models(request: Request) -> Response:
    """List the models, or show one: by name, and as ``selfreflect/NAME`` for its distribution."""
    services: ServeServices = request.app.state.services
    entries = []
    for name in await services.models.names():
        owner = "selfreflect" if name.startswith(PREFIX) else "upstream"
        entries.append({"id": name, "object": "model", "created": 0, "owned_by": owner})
    wanted = request.path_params.get("name")
    if wanted is None:
        return _json({"object": "list", "data": entries})
    for entry in entries:
        if entry["id"] == wanted:
            return _json(entry)
    message = f"there is no model {excerpt(wanted, 200)}"
    raise ChatError(404, message, type="not_found_error", param="model", code="model_not_found")


async def distribution(request: Request) -> Response:
    """Show the full result of an earlier question, while the server remembers it."""
    services: ServeServices = request.app.state.services
    body = services.history.find(request.path_params["id"])
    if body is None:
        message = "no answer has this id, or it is too old to be remembered"
        raise ChatError(404, message, type="not_found_error", param="id", code="unknown_id")
    return Response(body, media_type="application/json")


async def health(request: Request) -> Response:
    """Report that the server runs."""
    return _json({"status": "ok", "version": __version__})


async def metrics(request: Request) -> Response:
    """Export counts of requests, answers and tokens for Prometheus."""
    services: ServeServices = request.app.state.services
    return Response(services.metrics.page(), media_type="text/plain; version=0.0.4")


def _json(body: object) -> Response:
    return Response(msgspec.json.encode(body), media_type="application/json")


MAX_BODY = 10_000_000
"""Maximum size of a request body in bytes."""

SHUTDOWN_SECONDS = 20
"""Seconds that requests may continue after the server is told to stop."""

_TYPES: dict[int, ErrorType] = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
}
_OFFERED = (
    "Try POST /v1/chat/completions, /v1/responses or /v1/messages, or GET /v1/models, /v1/selfreflect/ID, "
    "/metrics or /health."
)


def _refuse(
    path: str, status: HTTPStatus, kind: str, message: str, headers: Mapping[str, str]
) -> JSONResponse:
    error = ChatError(status, message, type=_TYPES.get(status, "invalid_request_error"), code=kind)
    return JSONResponse(form_of(path).error(error), status, headers)


SERVE_POLICY = Policy(
    protects=lambda path: path != "/health",
    refuse=_refuse,
    headers={"X-Content-Type-Options": "nosniff", "Cache-Control": "no-store"},
    max_body=MAX_BODY,
    token_advice="The API key is missing or wrong. It is the token that the server printed when it started.",
    log=log,
)


def application(services: ServeServices, access: Access) -> Guard:
    """Build the application with its guard."""
    posted = ["POST"]
    routes = [
        Route("/v1/chat/completions", completions, methods=posted),
        Route("/v1/responses", completions, methods=posted),
        Route("/v1/messages", completions, methods=posted),
        *(Route(f"/v1{path}", pass_on, methods=posted) for path in PASSED),
        Route("/v1/models", models),
        Route("/v1/models/{name:path}", models),
        Route("/v1/selfreflect/{id}", distribution),
        Route("/health", health),
        Route("/metrics", metrics),
    ]
    handlers: dict[Any, Any] = {
        HTTPException: _http_error,
        SelfReflectError: _failure,
        Exception: _failure,
    }
    app = Starlette(routes=routes, exception_handlers=handlers)
    app.state.services = services
    return Guard(app, access, SERVE_POLICY)


def _http_error(request: Request, error: Any) -> JSONResponse:
    status = HTTPStatus(getattr(error, "status_code", 400))
    message = getattr(error, "detail", "") or "the address is malformed"
    # Starlette has no more than the phrase for an unknown address or method
    if message == status.phrase and status in (404, 405):
        message = f"{request.method} {excerpt(request.url.path, 200)} is not offered. {_OFFERED}"
    kind = status.phrase.lower().replace(" ", "_")
    return _refuse(request.url.path, status, kind, message, getattr(error, "headers", None) or {})


def _failure(request: Request, error: Any) -> JSONResponse:
    answer = as_chat_error(error)
    if answer.status >= 500:
        log.warning("%s", answer)
    headers = {} if answer.retry_after is None else {"Retry-After": str(answer.retry_after)}
    return JSONResponse(form_of(request.url.path).error(answer), answer.status, headers)


def serve(
    bound: socket.socket, services: ServeServices, allowed: Access, proxies: Sequence[str] = ()
) -> None:
    """Serve until SIGINT or SIGTERM. Requests in progress then have a few seconds to end."""
    log_to_stderr(log)
    EndpointServer(services, allowed, proxies=proxies).run([bound])


class EndpointServer(HttpServer):
    """A server that releases its services in their event loop."""

    def __init__(
        self,
        services: ServeServices,
        allowed: Access,
        *,
        graceful: float = SHUTDOWN_SECONDS,
        proxies: Sequence[str] = (),
    ) -> None:
        super().__init__(application(services, allowed), graceful=graceful, proxies=proxies)
        self._services = services

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await super().shutdown(sockets)
        await self._services.close()
