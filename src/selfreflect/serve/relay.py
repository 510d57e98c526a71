"""Hand a request to the upstream as it is, and its response back; write responses that take their time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager, aclosing

from fastapi.responses import Response
from starlette.types import Receive, Scope, Send

from selfreflect.serve.chat import ChatRequest
from selfreflect.serve.faults import ChatError
from selfreflect.serve.remote import RemoteModel
from selfreflect.serve.reply import error_event

Write = Callable[[Scope, Receive, Send], Awaitable[None]]


class LiveResponse(Response):
    """A response that a function writes in the task of its request. When the client goes away, that task is
    cancelled, and whatever the function holds is released at once.

    An iterator, as StreamingResponse takes it, would be left suspended until it is collected.
    """

    def __init__(self, write: Write) -> None:
        super().__init__()
        self._write = write

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._write(scope, receive, send)


async def begin(send: Send, headers: Mapping[str, str]) -> None:
    """Begin a response of parts."""
    fields = [(name.lower().encode(), value.encode("latin-1")) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": 200, "headers": fields})


async def send_part(send: Send, data: bytes, *, more: bool = True) -> None:
    await send({"type": "http.response.body", "body": data, "more_body": more})


def relay(
    chat: ChatRequest,
    model: RemoteModel,
    place: AbstractAsyncContextManager[None],
    counted: AbstractContextManager[None],
) -> Response:
    """Send the body on. Status, content type and body of the response are the upstream's.

    The response raises ChatError if there is none, or no place in the queue.
    """

    async def write(scope: Scope, receive: Receive, send: Send) -> None:
        with counted:
            async with place, await model.send(chat.data) as response:
                headers = {**response.headers, "x-selfreflect-passthrough": chat.passthrough}
                if response.is_stream:
                    await begin(send, headers)
                    async with aclosing(response.parts()) as parts:
                        try:
                            async for part in parts:
                                await send_part(send, part)
                                await asyncio.sleep(0)  # a fast upstream leaves others, and news, no turn
                        except ChatError as error:
                            await send_part(send, error_event(error.body))
                    await send_part(send, b"", more=False)
                    return
                body = await response.aread()
            await Response(body, response.status_code, headers)(scope, receive, send)

    return LiveResponse(write)
