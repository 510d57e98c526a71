"""The server of both, which ends in time and quietly, whatever its clients do."""

from __future__ import annotations

import asyncio
import logging
import math
import socket
from contextlib import suppress

import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send

from selfreflect.web.connections import MAX_CONNECTIONS, LimitedConnection
from selfreflect.web.guard import MAX_HEAD

_CANCEL_SECONDS = 5
"""Seconds that a request has to end after its connection is closed."""


class HttpServer(uvicorn.Server):
    """Serves an application behind its guard until SIGINT or SIGTERM.

    uvicorn would cancel the requests that still run when their time is over, and print a traceback of each;
    and it waits for clients that read nothing. So this server closes their connections first: such a request
    ends as if its client had gone away.

    Args:
        graceful: seconds in which requests may end when the server stops.
    """

    def __init__(self, app: ASGIApp, *, graceful: float = 1) -> None:
        super().__init__(
            uvicorn.Config(
                _quiet(app),
                http=LimitedConnection,
                log_config=None,
                access_log=False,  # uvicorn's log contains queries
                lifespan="off",
                ws="none",
                proxy_headers=False,
                server_header=False,
                limit_concurrency=MAX_CONNECTIONS,
                h11_max_incomplete_event_size=MAX_HEAD,
                timeout_graceful_shutdown=math.ceil(graceful) + _CANCEL_SECONDS,
            )
        )
        self._graceful = graceful

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        watch = asyncio.create_task(self._end_in_time())
        await super().shutdown(sockets)
        watch.cancel()
        self._end_requests()  # uvicorn leaves some at a second Ctrl-C
        if tasks := self.server_state.tasks:
            await asyncio.wait(tasks, timeout=_CANCEL_SECONDS)

    async def _end_in_time(self) -> None:
        loop = asyncio.get_running_loop()
        until = loop.time() + self._graceful
        while loop.time() < until and not self.force_exit:
            await asyncio.sleep(0.1)
        self._end_requests()

    def _end_requests(self) -> None:
        for connection in list(self.server_state.connections):
            connection.transport.abort()  # close() would wait until the client has read everything
        for task in self.server_state.tasks:
            task.cancel()


def log_to_stderr(log: logging.Logger) -> None:
    """Show the lines of a log with their time, unless the program that runs the server takes them."""
    if not log.handlers:
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(asctime)s %(message)s", "%H:%M:%S"))
        log.addHandler(handler)
        log.setLevel(logging.INFO)
        log.propagate = False


def _quiet(app: ASGIApp) -> ASGIApp:
    """The application; what the server cancels ends without a word."""

    async def run(scope: Scope, receive: Receive, send: Send) -> None:
        with suppress(asyncio.CancelledError):  # only the server cancels, and then nobody waits any more
            await app(scope, receive, send)

    return run
