"""A generator of this process as a model of the endpoint. Its work is done in threads of its own, and
requests that wait at the same time become one batch."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from threading import Thread
from typing import TypeVar

from selfreflect.errors import SelfReflectError, excerpt
from selfreflect.models.base import Generator, Refusal, Reply, Request, Sample, as_drawn

T = TypeVar("T")

BATCH = 16
"""Requests of one batch."""

Report = Callable[[Sample], None]
"""Gets completions of a request that the reply still waits for."""


# not an Exception, so that no `except Exception` in a model swallows it
class _Abandoned(BaseException):
    """Nobody waits for the batch any more."""


@dataclass
class _Pending:
    """A request and who waits for it."""

    request: Request
    report: Report
    reply: asyncio.Future[Reply | Refusal]
    loop: asyncio.AbstractEventLoop

    @property
    def is_over(self) -> bool:
        return self.reply.done()

    def tell(self, event: Sample | Reply | Refusal) -> None:
        with suppress(RuntimeError):  # the server has ended, and its loop is closed
            self.loop.call_soon_threadsafe(self._take, event)

    def _take(self, event: Sample | Reply | Refusal) -> None:
        if self.reply.done():
            return
        if isinstance(event, Sample):
            self.report(event)
        else:
            self.reply.set_result(event)


async def exclusively(lock: asyncio.Lock, work: Callable[[], T]) -> T:
    """Do work in a thread, one at a time. A cancellation takes effect at its end: threads cannot be stopped,
    and what they use is not free before."""
    async with lock:
        thread = asyncio.create_task(asyncio.to_thread(work))
        is_cancelled = False
        while not thread.done():
            try:
                await asyncio.wait((thread,))
            except asyncio.CancelledError:
                is_cancelled = True
        if is_cancelled:
            thread.exception()
            raise asyncio.CancelledError
        return thread.result()


class LocalModel:
    """Answers requests of an event loop with a generator that blocks."""

    def __init__(self, name: str, generator: Generator) -> None:
        self.name = name
        self.generator = generator
        self._queue: SimpleQueue[_Pending | None] = SimpleQueue()
        self._batch: list[_Pending] = []
        self._workers: int = getattr(
            generator, "workers", 1
        )  # a function may be called several times at once
        if hasattr(generator, "on_step"):
            generator.on_step = self._check
        for _ in range(self._workers):
            Thread(target=self._work, name=f"serve-{name}", daemon=True).start()

    async def reply(self, request: Request, report: Report) -> Reply | Refusal:
        """Wait for the reply. If the task that waits is cancelled, the model stops at its next step, unless
        others wait for the same batch."""
        loop = asyncio.get_running_loop()
        pending = _Pending(request, report, loop.create_future(), loop)
        self._queue.put(pending)
        return await pending.reply

    async def close(self) -> None:
        """End the threads after what they are doing."""
        for _ in range(self._workers):
            self._queue.put(None)

    def _work(self) -> None:
        while (first := self._queue.get()) is not None:
            batch = [one for one in (first, *self._waiting()) if not one.is_over]
            if batch:
                self._batch = batch
                self._answer(batch)

    def _waiting(self) -> list[_Pending]:
        """Take further requests that wait already; several workers share them by taking one each."""
        more: list[_Pending] = []
        while self._workers == 1 and len(more) < BATCH - 1:
            try:
                one = self._queue.get_nowait()
            except Empty:
                break
            if one is None:
                self._queue.put(None)
                break
            more.append(one)
        return more

    def _answer(self, batch: list[_Pending]) -> None:
        try:
            for index, event in as_drawn(self.generator, [one.request for one in batch]):
                batch[index].tell(event)
                if all(one.is_over for one in batch):
                    return
        except _Abandoned:
            pass
        except BaseException as error:  # a model may raise anything; it must cost this batch only
            reason = str(error) if isinstance(error, SelfReflectError) else type(error).__name__
            failure = Refusal(kind="backend", message=f"{excerpt(self.name)} failed: {reason}")
            for one in batch:
                one.tell(failure)

    def _check(self, tokens: int, ended: int) -> None:
        """Called at each step of a local model."""
        if all(one.is_over for one in self._batch):
            raise _Abandoned
