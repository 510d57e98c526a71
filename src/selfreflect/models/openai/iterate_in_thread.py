"""Run a coroutine for callers without an event loop, in a thread. It also works inside another loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from contextlib import suppress
from queue import SimpleQueue
from threading import Thread
from typing import Any, TypeVar

T = TypeVar("T")

_GRACE = 2.0
"""Seconds that a cancelled coroutine has to close its connections."""


def iterate_in_thread(work: Callable[[Callable[[T], None]], Coroutine[Any, Any, None]]) -> Iterator[T]:
    """Yield each value that ``work(emit)`` emits, as soon as it does; raise here what it raises.

    An iterator that is closed early, by an interrupt for instance, cancels the work.
    """
    queue: SimpleQueue[tuple[T] | BaseException | None] = SimpleQueue()
    runner = asyncio.Runner(loop_factory=asyncio.new_event_loop)
    loop = runner.get_loop()

    def run() -> None:
        end: BaseException | None = None
        try:
            with runner:
                runner.run(work(lambda value: queue.put((value,))))
        except BaseException as error:
            end = error
        queue.put(end)

    thread = Thread(target=run, daemon=True, name="selfreflect-requests")
    thread.start()
    try:
        while isinstance(item := queue.get(), tuple):
            yield item[0]
        if item is not None:
            raise item
    finally:
        with suppress(RuntimeError):  # the loop is closed where the work has ended
            loop.call_soon_threadsafe(_cancel, loop)
        thread.join(_GRACE)


def _cancel(loop: asyncio.AbstractEventLoop) -> None:
    for task in asyncio.all_tasks(loop):
        task.cancel()
