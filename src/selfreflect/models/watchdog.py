"""End a chat template that takes too long or too much memory, which its sandbox does not bound."""

from __future__ import annotations

import ctypes
import resource
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

SECONDS = 10.0
"""For a call, besides ``SECONDS_EACH`` for every conversation. Templates in use need 0.1 ms for one."""
SECONDS_EACH = 0.01
MEMORY = 2 * 2**30
"""Bytes by which the process may grow meanwhile."""
_LOOK = 0.05
_SHORT = 0.5
"""Seconds in which memory is not looked at: another thread may be loading a model."""


class TemplateLimitError(Exception):
    """A template was ended."""

    def __str__(self) -> str:
        return f"it takes longer than {SECONDS:g} s or more than {MEMORY / 2**30:g} GB"


@contextmanager
def limited(conversations: int) -> Iterator[None]:
    """Raise TemplateLimitError in this thread when rendering so many conversations passes a limit.

    A single operation, such as a power of large numbers, is not interrupted.
    """
    thread = threading.get_ident()
    ended = threading.Event()
    lock = threading.Lock()
    most = SECONDS + SECONDS_EACH * conversations

    def watch() -> None:
        start, before = time.monotonic(), _peak_memory()
        seconds = 0.0
        while seconds < most and (seconds < _SHORT or _peak_memory() - before < MEMORY):
            if ended.wait(_LOOK):
                return
            seconds = time.monotonic() - start
        with lock:
            if not ended.is_set():
                _raise_in(thread, TemplateLimitError)

    threading.Thread(target=watch, name="template-limits", daemon=True).start()
    try:
        yield
    finally:
        with lock:
            ended.set()
            _raise_in(thread, None)


def _raise_in(thread: int, error: type[Exception] | None) -> None:
    """Raise an error in a thread before its next instruction of Python; None takes it back."""
    kind = None if error is None else ctypes.py_object(error)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), kind)


def _peak_memory() -> int:
    """The most bytes that this process has had in memory."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
