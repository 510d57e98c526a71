"""One HTTP connection, with limits on what a client may hold without sending a request.

uvicorn waits for ever for the rest of a request's head, and refuses everybody while it has too many
connections. So a few hundred sockets that send half a head would lock all others out, without the token.
"""

from __future__ import annotations

import asyncio

from uvicorn.protocols.http.h11_impl import H11Protocol

MAX_CONNECTIONS = 200

HEAD_SECONDS = 10.0
"""Seconds from the opening of a connection, or from its last response, to the end of the next request's
head."""


class LimitedConnection(H11Protocol):
    """Closes a connection that sends no whole head in time. When all connections are taken, a new one
    replaces the one that has waited longest for its head."""

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
