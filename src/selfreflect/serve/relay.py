"""Hand a request to the upstream as it is, and its response back; and notice clients that go away."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import Any

from fastapi import Request
from fastapi.responses import Response, StreamingResponse

from selfreflect.serve.chat import ChatRequest
from selfreflect.serve.faults import ChatError
from selfreflect.serve.remote import RelayedResponse, RemoteModel
from selfreflect.serve.reply import error_event

CLIENT_CLOSED = 499
"""The status of a response that nobody waits for, as nginx calls it."""


def watch(request: Request, work: asyncio.Task[Any]) -> asyncio.Task[None]:
    """Cancel the work if the client goes away. Ends when it has gone, or has the whole response."""

    async def disconnected() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass

    departure = asyncio.create_task(disconnected())
    departure.add_done_callback(lambda _: work.cancel())
    return departure


async def relay(
    request: Request, chat: ChatRequest, model: RemoteModel, place: AbstractAsyncContextManager[None]
) -> Response:
    """Send the body on. Status, content type and body of the response are the upstream's.

    Raises:
        ChatError: there is no response, or no place in the queue.
    """
    work = asyncio.create_task(_open(chat, model, place))
    departure = watch(request, work)
    try:
        stack, response, body = await work
    except asyncio.CancelledError:
        if departure.done():
            return Response(status_code=CLIENT_CLOSED)
        raise
    headers = {**response.headers, "x-selfreflect-passthrough": chat.passthrough}
    if body is not None:
        departure.cancel()
        return Response(body, response.status_code, headers)
    return StreamingResponse(_events(stack, response), response.status_code, headers)


async def _open(
    chat: ChatRequest, model: RemoteModel, place: AbstractAsyncContextManager[None]
) -> tuple[AsyncExitStack, RelayedResponse, bytes | None]:
    """The response, and its body unless that is a stream of events."""
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(place)
        response = await stack.enter_async_context(await model.send(chat.data))
        if 300 <= response.status_code < 400:
            message = f"the upstream points to another address (HTTP {response.status_code})"
            raise ChatError(502, message, type="upstream_error", code="redirect")
        is_stream = response.headers.get("content-type", "").startswith("text/event-stream")
        body = None if is_stream and response.status_code == 200 else await response.aread()
        return stack.pop_all() if body is None else stack, response, body


async def _events(stack: AsyncExitStack, response: RelayedResponse) -> AsyncIterator[bytes]:
    try:
        async for part in response.parts():
            yield part
    except ChatError as error:
        yield error_event(error.body)
    finally:
        await stack.aclose()
