"""The server of both, which ends in time and quietly, whatever its clients do, and limits what they may hold
without sending a request."""

from __future__ import annotations

import asyncio
import logging
import math
import socket
from contextlib import suppress

import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from selfreflect.web.guard import MAX_HEAD

MAX_CONNECTIONS = 200

HEAD_SECONDS = 10.0
"""Seconds from the opening of a connection, or from its last response, to the end of the next request's
head."""

_CANCEL_SECONDS = 5
"""Seconds that a request has to end after its connection is closed."""


class LimitedConnection(H11Protocol):
    """Closes a connection that sends no whole head in time. When all connections are taken, a new one
    replaces the one that has waited longest for its head.

    uvicorn waits for ever for the rest of a head, and refuses everybody while it has too many connections. So
    a few hundred sockets that send half a head would lock all others out, without the token.
    """

    _timer: asyncio.TimerHandle | None = None
    """Runs while no request is being answered."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._watch()
        waiting = [
            one for one in self.connections if isinstance(one, LimitedConnection) and one._timer is not None
        ]
        if len(self.connections) >= MAX_CONNECTIONS and len(waiting) > 1:
            min(waiting, key=LimitedConnection._deadline)._drop()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        super().connection_lost(exc)

    def _watch(self) -> None:
        """Start the timer, unless it runs already or a request is being answered."""
        if self.cycle is not None and not self.cycle.response_complete:
            self._stop_timer()
        elif self._timer is None:
            self._timer = self.loop.call_later(HEAD_SECONDS, self._drop)

    def _deadline(self) -> float:
        return self._timer.when() if self._timer is not None else float("inf")

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _drop(self) -> None:
        self._stop_timer()
        self.connections.discard(self)  # at once: asyncio reports the loss only after the next events
        self.transport.abort()  # close() would wait until the client has read everything


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
