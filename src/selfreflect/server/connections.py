"""HTTP server that ends promptly and limits idle clients."""

from __future__ import annotations

import asyncio
import logging
import math
import socket
from collections.abc import Mapping, Sequence

import h11
import uvicorn
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from selfreflect.server.guard import MAX_HEAD

MAX_CONNECTIONS = 400
"""Maximum number of connections, more than requests in progress or waiting, so that none of these is
refused."""

HEAD_SECONDS = 10.0
"""Seconds from the opening of a connection, or from its last response, to the end of the next request's
head."""

READ_SECONDS = 20.0
"""Seconds in which a client has to read ``LEAST_READ`` bytes of the data that waits for it."""

LEAST_READ = 16_384

# Seconds that a request has to end after its connection is closed.
_CANCEL_SECONDS = 5

# Seconds until a request whose client has gone is cancelled again, in case a library swallowed
# that.
_CANCEL_AGAIN = 1.0


# States of a client that has sent a whole request.
_WHOLE = (h11.DONE, h11.MUST_CLOSE)


class ClientConnection(H11Protocol):
    """A client connection with time limits. When no connection is free, the one idle longest is closed.

    uvicorn waits for ever for the rest of a head and for clients that read nothing, and refuses everybody
    while it has too many connections. So a few hundred sockets would lock all others out, without the token.
    """

    _since = 0.0
    """Time of opening, or of the last complete response."""
    _unread = 0
    _read_at = 0.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._since = self.loop.time()
        # refusing the newcomer would let idle sockets lock everybody out
        if len(self.connections) > MAX_CONNECTIONS:
            self._make_room()

    def data_received(self, data: bytes) -> None:
        is_next = self._is_busy and self.conn.their_state in _WHOLE
        if not is_next:
            super().data_received(data)
            is_next = self._is_busy and self.conn.their_state in _WHOLE and self.conn.trailing_data[0] != b""
        # A next request before the response would stop uvicorn from reading, and so from noticing that the
        # client has gone. It is dropped, and the connection ends with the response.
        if is_next:
            self.cycle.keep_alive = False
            self.flow.resume_reading()

    def eof_received(self) -> None:
        """Drop a request under way, since asyncio would wait for the client to read everything."""
        if self._is_busy:
            self.drop()

    def on_response_complete(self) -> None:
        self._since = self.loop.time()
        super().on_response_complete()

    def is_overdue(self, now: float) -> bool:
        """Check whether the client exceeded its time to read or to send a head."""
        unread = self.transport.get_write_buffer_size()
        if self._is_busy and not self.flow.write_paused:
            unread = 0  # the application may go on
        # progress, or new data: the time begins again
        if not unread or unread > self._unread or self._unread - unread >= LEAST_READ:
            self._unread, self._read_at = unread, now
        if unread:
            return now - self._read_at > READ_SECONDS
        return not self._is_busy and now - self._since > HEAD_SECONDS

    def drop(self) -> None:
        self.connections.discard(self)  # at once: asyncio reports the loss only after the next events
        self.transport.abort()  # close() would wait until the client has read everything

    @property
    def _is_busy(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _make_room(self) -> None:
        """Drop the connection that has been idle longest, or else a silent or streaming one. Requests without
        a response yet are never dropped."""
        candidates = []
        for connection in self.connections:
            if connection is self or not isinstance(connection, ClientConnection):
                continue
            # nobody waits for these, or their body never comes
            if not connection._is_busy or connection.conn.their_state is h11.SEND_BODY:
                candidates.append((0, connection._since, connection))
            elif connection.flow.write_paused:
                candidates.append((1, connection._since, connection))
            elif connection.cycle.response_started:
                candidates.append((2, connection._since, connection))
        if candidates:
            # by rank and time alone, as connections have no order
            min(candidates, key=lambda entry: entry[:2])[2].drop()


class HttpServer(uvicorn.Server):
    """Server of a guarded application, until SIGINT or SIGTERM.

    uvicorn would cancel the requests that still run when their time is over, and print a traceback of each;
    and it waits for clients that read nothing. So this server closes their connections first: such a request
    ends as if its client had gone away.

    Args:
        graceful: seconds in which requests may end when the server stops.
        proxies: addresses and networks whose word is taken for the client's address.
    """

    def __init__(self, app: ASGIApp, *, graceful: float = 1, proxies: Sequence[str] = ()) -> None:
        super().__init__(
            uvicorn.Config(
                _attended(app),
                http=ClientConnection,
                log_config=None,
                access_log=False,  # uvicorn's log contains queries
                lifespan="off",
                ws="none",
                proxy_headers=bool(proxies),
                forwarded_allow_ips=list(proxies),
                server_header=False,
                # reached only where none can give way; requests of those that have take a moment to end
                limit_concurrency=2 * MAX_CONNECTIONS,
                h11_max_incomplete_event_size=MAX_HEAD,
                # longer than clients keep idle connections: 5 s in httpx, with which a request would race
                timeout_keep_alive=math.ceil(HEAD_SECONDS),
                timeout_graceful_shutdown=math.ceil(graceful) + _CANCEL_SECONDS,
            )
        )
        self._graceful = graceful

    # uvicorn calls this ten times a second
    async def on_tick(self, counter: int) -> bool:
        now = asyncio.get_running_loop().time()
        for connection in list(self.server_state.connections):
            if isinstance(connection, ClientConnection) and connection.is_overdue(now):
                connection.drop()
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        # uvicorn would wait for clients that read nothing, and then print a traceback for each
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
    """Send a log to stderr with times, unless the embedding program handles it."""
    if not log.handlers:
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(asctime)s %(message)s", "%H:%M:%S"))
        log.addHandler(handler)
        log.setLevel(logging.INFO)
        log.propagate = False


def _attended(app: ASGIApp) -> ASGIApp:
    """Wrap an application so that requests end quietly when clients disconnect."""

    async def run(scope: Scope, receive: Receive, send: Send) -> None:
        request = asyncio.current_task()
        # one message at a time, so that a large body waits in the socket
        messages: asyncio.Queue[Message] = asyncio.Queue(1)
        is_complete = False

        async def watch() -> None:
            while (message := await receive())["type"] != "http.disconnect":
                await messages.put(message)
            while request is not None and not is_complete:
                request.cancel()
                await asyncio.sleep(_CANCEL_AGAIN)

        async def note_end(message: Message) -> None:
            nonlocal is_complete
            is_complete = message["type"] == "http.response.body" and not message.get("more_body", False)
            await send(message)

        watching = asyncio.create_task(watch())
        try:
            await app(scope, messages.get, note_end)
        except asyncio.CancelledError:
            pass  # nobody waits any more
        finally:
            watching.cancel()

    return run


async def begin(send: Send, headers: Mapping[str, str]) -> None:
    """Begin a chunked response."""
    fields = [(name.lower().encode(), value.encode("latin-1")) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": 200, "headers": fields})


async def send_part(send: Send, data: bytes, *, more: bool = True) -> None:
    await send({"type": "http.response.body", "body": data, "more_body": more})
