"""The engine behind ``--executor ray``: a process of its own drives Ray, which ends a driver whose cluster it
loses, without a word."""

from __future__ import annotations

import multiprocessing
import os
import queue
import signal
import sys
import threading
import time
from collections.abc import Generator, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any

from selfreflect.errors import BackendError, SelfReflectError, revived
from selfreflect.pipeline.stages import StageSpec, StageTask
from selfreflect.pipeline.wire import BatchOutcome, each_once

SECONDS_TO_END = 30
"""How long a driver may take to end its actors, and the cluster that it started."""


class RayExecutor:
    """An :class:`~selfreflect.pipeline.executors.Executor` of Ray actors.

    Args:
        address: of a running cluster; None starts one on this machine, which ends with :meth:`close`.

    Raises:
        MissingExtraError: Ray is not installed.
        ConfigError: the address is of a kind that is not served.
        BackendError: there is no cluster at the address, or none can be started.
    """

    def __init__(self, address: str | None) -> None:
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=drive, args=(theirs, address), daemon=True)
        self._process.start()
        theirs.close()
        try:
            self._received()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self._connection.close()  # which tells the driver to end
        self._process.join(SECONDS_TO_END)
        self._process.kill()
        self._process.join()

    def outcomes(self, job: StageSpec, tasks: Sequence[StageTask]) -> Generator[BatchOutcome, None, None]:
        """See :class:`~selfreflect.pipeline.executors.Executor`."""
        done = False
        try:
            with suppress(OSError):  # an end of the driver shows when it is waited for
                self._connection.send((job, tuple(tasks)))
            batches = self._received()
            yield from each_once(iter(self._received, None), batches)
            done = True
        finally:
            if not done:  # an error of one, or an interrupt: what the others are at is of no use
                self.close()

    def _received(self) -> Any:
        """What the driver says next.

        Raises:
            SelfReflectError: the driver's own error.
            BackendError: it has ended.
        """
        try:
            got = self._connection.recv()
        except (EOFError, OSError):
            self._process.join(SECONDS_TO_END)
            raise BackendError(
                f"The process that drives Ray ended with status {self._process.exitcode}. Ray ends it where the head of its cluster cannot "
                "be reached for a minute; a lack of memory may show as -9."
            ) from None
        if isinstance(got, tuple):
            raise revived(*got)
        return got


def drive(connection: Connection, address: str | None) -> None:
    """What the driver's process does: joins or starts a cluster, then sends what comes of each job, and None
    after its last outcome.

    An expected error is sent as its class and message. The process ends when its experiment closes the
    connection, or is no more.
    """
    ending = threading.Event()
    signal.signal(
        signal.SIGINT, lambda *_: sys.exit() if ending.is_set() else None
    )  # other interrupts are the experiment's
    os.dup2(2, 1)  # standard output is the experiment's too
    jobs: queue.SimpleQueue[tuple[StageSpec, tuple[StageTask, ...]]] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(connection, jobs, ending), daemon=True).start()

    from selfreflect.pipeline.ray_driver import Driver

    driver: Driver | None = None
    try:
        driver = Driver(address)
        connection.send(0)
        while True:
            for found in driver.streams(*jobs.get()):
                connection.send(found)
            connection.send(None)
    except SelfReflectError as error:
        with suppress(OSError):
            connection.send((type(error).__name__, str(error)))
    except (BrokenPipeError, ConnectionResetError):  # nobody listens any more
        pass
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # it is ending already
        if driver is not None:
            driver.close()


def _listen(
    connection: Connection,
    jobs: queue.SimpleQueue[tuple[StageSpec, tuple[StageTask, ...]]],
    ending: threading.Event,
) -> None:
    """Pass jobs on until the experiment is gone, then end this process, whatever it is at."""
    try:
        while True:
            jobs.put(connection.recv())
    except (EOFError, OSError):
        ending.set()
        # the only signal on which Ray says nothing
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        time.sleep(SECONDS_TO_END - 5)
        os._exit(1)
