"""The executor behind ``--executor ray``.

Ray gets a separate process, because it ends the process without a word when it loses its cluster.
"""

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

from selfreflect.errors import BackendError, SelfReflectError, rebuild_error
from selfreflect.pipeline.stages import Outcome, StageSpec, StageTask

SECONDS_TO_END = 30
"""Time for a driver to end its actors, and the cluster that it started."""


class RayExecutor:
    """An :class:`~selfreflect.pipeline.executors.Executor` of Ray actors.

    Args:
        address: of a running cluster; None starts one on this machine that ends with :meth:`close`.

    Raises:
        MissingExtraError: Ray is not installed.
        ConfigError: addresses of this kind are not supported.
        BackendError: there is no cluster at the address, or none can be started.
    """

    def __init__(self, address: str | None) -> None:
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=drive, args=(theirs, address), daemon=True)
        self._process.start()
        theirs.close()
        try:
            self._receive()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self._connection.close()  # tells the driver to end
        self._process.join(SECONDS_TO_END)
        self._process.kill()
        self._process.join()

    def outcomes(self, spec: StageSpec, tasks: Sequence[StageTask]) -> Generator[Outcome, None, None]:
        """See :class:`~selfreflect.pipeline.executors.Executor`."""
        is_complete = False
        try:
            with suppress(OSError):  # _receive() reports a driver that has ended
                self._connection.send((spec, tasks))
            yield from iter(self._receive, None)
            is_complete = True
        finally:
            if not is_complete:  # after an error or an interrupt, nothing waits for the batches under way
                self.close()

    def _receive(self) -> Any:
        """The driver's next message.

        Raises:
            SelfReflectError: the driver's own error.
            BackendError: the driver has ended.
        """
        try:
            message = self._connection.recv()
        except (EOFError, OSError):
            self._process.join(SECONDS_TO_END)
            raise BackendError(
                f"The process that drives Ray ended with status {self._process.exitcode}. Ray ends it when "
                "the head of its cluster cannot be reached for a minute; -9 may mean that memory ran out."
            ) from None
        if isinstance(message, tuple):
            raise rebuild_error(*message)
        return message


def drive(connection: Connection, address: str | None) -> None:
    """Run in the driver's process: join or start a cluster, then answer each stage that is received.

    The answers are the outcomes of its batches, and None at the end; or class and message of an expected
    error. The process ends when the experiment closes the connection or is killed.
    """
    ending = threading.Event()

    def on_interrupt(*_: object) -> None:
        if ending.is_set():  # the experiment handles other interrupts
            sys.exit()

    signal.signal(signal.SIGINT, on_interrupt)
    os.dup2(2, 1)  # standard output belongs to the experiment
    stages: queue.SimpleQueue[tuple[StageSpec, Sequence[StageTask]]] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(connection, stages, ending), daemon=True).start()

    from selfreflect.pipeline.ray_driver import Driver

    driver: Driver | None = None
    try:
        driver = Driver(address)
        connection.send(None)
        while True:
            spec, tasks = stages.get()
            for outcome in driver.run(spec, tasks):
                connection.send(outcome)
            connection.send(None)
    except SelfReflectError as error:
        with suppress(OSError):
            connection.send((type(error).__name__, str(error)))
    except (BrokenPipeError, ConnectionResetError, KeyboardInterrupt):  # the experiment has ended
        pass
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # it is ending already
        if driver is not None:
            driver.close()


def _listen(
    connection: Connection,
    stages: queue.SimpleQueue[tuple[StageSpec, Sequence[StageTask]]],
    ending: threading.Event,
) -> None:
    """Pass stages on until the experiment has ended, then end this process, whatever it is doing."""
    try:
        while True:
            stages.put(connection.recv())
    except (EOFError, OSError):
        ending.set()
        # the only signal on which Ray prints nothing
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        time.sleep(SECONDS_TO_END - 5)
        os._exit(1)
