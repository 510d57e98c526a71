"""The routes of the endpoint."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Coroutine
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Path, Request
from fastapi.responses import Response, StreamingResponse

from selfreflect import __version__
from selfreflect.errors import SelfReflectError
from selfreflect.models.base import Refusal
from selfreflect.serve.admission import Admission
from selfreflect.serve.archive import Archive
from selfreflect.serve.chat import PREFIX, ChatRequest, read_chat, read_question
from selfreflect.serve.faults import ChatError, as_chat_error, failed
from selfreflect.serve.history import History
from selfreflect.serve.metrics import ServerMetrics
from selfreflect.serve.models import ModelTable
from selfreflect.serve.reflector import Reflector, cut_at
from selfreflect.serve.relay import CLIENT_CLOSED, relay, watch
from selfreflect.serve.remote import RemoteModel
from selfreflect.serve.reply import KEEP_ALIVE, ChatChoice, ChatResponse, Ending, error_event
from selfreflect.serve.schema import CHAT_BODY, ERRORS, STREAM, TEXT
from selfreflect.serve.session import ServedModel, Session

OPEN_SECONDS = 10.0
"""How long a stream waits for a first answer. Until its status is sent, an error can have its own."""
KEEP_ALIVE_SECONDS = 5.0

routes = APIRouter(responses=ERRORS)


@dataclass(frozen=True)
class ServeServices:
    """What all routes share."""

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


@routes.post("/v1/chat/completions", openapi_extra=CHAT_BODY, responses=STREAM)
async def chat_completions(request: Request) -> Response:
    """Answer a conversation. With the model ``selfreflect/NAME``: from the distribution of the answers."""
    services: ServeServices = request.app.state.services
    ignore_tools = services.reflector.settings.ignore_tools
    chat = read_chat(await request.body(), ignore_tools)
    model = services.models.find(chat.model)
    client = request.client.host if request.client else ""
    if chat.passthrough and isinstance(model, RemoteModel):
        services.metrics.responses.labels("passthrough").inc()
        return await relay(request, chat, model, services.admission.place(client))
    if not chat.reflects:
        chat = read_question(chat.data, ignore_tools)
    if chat.passthrough:
        message = (
            f"{chat.passthrough}: the model {chat.model!r} runs in the server's own process and takes plain "
            "questions: text messages, the last of them from the user, and no tools, images or output formats"
        )
        param = chat.passthrough.partition(".")[0]
        raise ChatError(400, message, param=param, code="unsupported")
    id_ = f"sr-{secrets.token_urlsafe(18)}"
    first_word = asyncio.Event()
    work = asyncio.create_task(_counted(services, _answer(services, chat, model, id_, client, first_word)))
    departure = watch(request, work)
    headers = {"x-selfreflect-id": id_} if chat.reflects else {}
    if chat.stream:
        return await _stream(chat, work, departure, first_word, headers)
    try:
        answer = await work
    except asyncio.CancelledError:
        if departure.done():
            return Response(status_code=CLIENT_CLOSED)
        raise
    finally:
        departure.cancel()
    body = answer.body(chat.requested_model)
    return Response(body, media_type="application/json", headers={**headers, **answer.headers})


async def _answer(
    services: ServeServices,
    chat: ChatRequest,
    model: ServedModel,
    id_: str,
    client: str,
    first_word: asyncio.Event,
) -> ChatResponse:
    async with services.admission.place(client):
        if not chat.reflects:
            return await _plain(services.reflector, chat, model, id_, first_word)
        exchange = await services.reflector.answer(chat, model, id_, first_word.set)
        if services.archive is not None:
            await services.archive.add(exchange)
    services.history.add(exchange)
    services.metrics.count(exchange.belief)
    return ChatResponse(id_, exchange.created, exchange.choices, exchange.belief.cost, exchange.belief)


async def _plain(
    reflector: Reflector, chat: ChatRequest, model: ServedModel, id_: str, first_word: asyncio.Event
) -> ChatResponse:
    """Let a model of this process answer by itself."""
    session = Session(model, first_word.set)
    reply = await session.ask(reflector.plain_request(chat))
    if isinstance(reply, Refusal):
        raise failed(reply.kind, reply.message)
    choices = []
    for completion_ in reply.completions:
        finish: Ending = "length" if completion_.finish in ("length", "unclosed_reasoning") else "stop"
        choices.append(ChatChoice(text=cut_at(completion_.text, chat.stop), finish=finish))
    return ChatResponse(id_, int(time.time()), tuple(choices), session.spending, None)


async def _counted(services: ServeServices, work: Coroutine[Any, Any, ChatResponse]) -> ChatResponse:
    """Count how a request ended, and how long it took."""
    began = time.perf_counter()
    outcome = "failed"
    try:
        answer = await work
        outcome = "answered"
        return answer
    except asyncio.CancelledError:
        outcome = "cancelled"
        raise
    except ChatError as error:
        outcome = "refused" if error.status < 500 else "failed"
        raise
    finally:
        services.metrics.responses.labels(outcome).inc()
        services.metrics.seconds.observe(time.perf_counter() - began)


async def _stream(
    chat: ChatRequest,
    work: asyncio.Task[ChatResponse],
    departure: asyncio.Task[None],
    first_word: asyncio.Event,
    headers: dict[str, str],
) -> Response:
    """Begin a stream once the model has said something, or failed, or taken long."""
    opening = asyncio.create_task(first_word.wait())
    await asyncio.wait((work, departure, opening), timeout=OPEN_SECONDS, return_when=asyncio.FIRST_COMPLETED)
    opening.cancel()
    if departure.done():
        return Response(status_code=CLIENT_CLOSED)
    if work.done():
        headers = {**headers, **work.result().headers}

    async def events() -> AsyncIterator[bytes]:
        try:
            while not work.done() and not departure.done():
                waiting = (work, departure)
                await asyncio.wait(waiting, timeout=KEEP_ALIVE_SECONDS, return_when=asyncio.FIRST_COMPLETED)
                if not work.done():
                    yield KEEP_ALIVE
            if work.done():
                yield b"".join(work.result().events(chat.requested_model, chat.include_usage))
        except SelfReflectError as error:
            yield error_event(as_chat_error(error).body)
        finally:
            work.cancel()

    return StreamingResponse(events(), media_type="text/event-stream", headers=headers)


@routes.get("/v1/models")
async def models(request: Request) -> Response:
    """List the models: each by its name, and as ``selfreflect/NAME`` for its distribution."""
    services: ServeServices = request.app.state.services
    entries = []
    for name in await services.models.names():
        owner = "selfreflect" if name.startswith(PREFIX) else "upstream"
        entries.append({"id": name, "object": "model", "created": 0, "owned_by": owner})
    return _json({"object": "list", "data": entries})


@routes.get("/v1/selfreflect/{id}")
async def distribution(request: Request, id: Annotated[str, Path(max_length=100)]) -> Response:
    """Show everything that came of an earlier question, as long as the server remembers it."""
    services: ServeServices = request.app.state.services
    body = services.history.find(id)
    if body is None:
        message = "no answer has this id, or it is too old to be remembered"
        raise ChatError(404, message, type="not_found_error", param="id", code="unknown_id")
    return Response(body, media_type="application/json")


@routes.get("/health")
async def health() -> Response:
    """Say that the server runs."""
    return _json({"status": "ok", "version": __version__})


@routes.get("/metrics", responses=TEXT)
async def metrics(request: Request) -> Response:
    """Count requests, answers and tokens, for Prometheus."""
    services: ServeServices = request.app.state.services
    return Response(services.metrics.page(), media_type="text/plain; version=0.0.4")


def _json(body: object) -> Response:
    return Response(msgspec.json.encode(body), media_type="application/json")
