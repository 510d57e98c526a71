"""How many requests are answered at once, how many wait, and how many one client may have."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from selfreflect.serve.faults import RETRY_SECONDS, ChatError


class Admission:
    """A queue with bounds. Belongs to one event loop.

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
    async def place(self, client: str) -> AsyncIterator[None]:
        """Wait for a turn, and hold it. Raises ChatError, status 429, if there is no place."""
        if self._clients[client] >= self._per_client:
            raise _busy(f"one client may have {self._per_client} requests at a time", "client_limit")
        if self._slots.locked() and self.waiting >= self._most_waiting:
            raise _busy(f"{self.waiting} requests wait already", "queue_full")
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
            if not self._clients[client]:
                del self._clients[client]


def _busy(message: str, code: str) -> ChatError:
    return ChatError(
        429, f"{message}; try again later", type="rate_limit_error", code=code, retry_after=RETRY_SECONDS
    )
