"""One process per device, each with a copy of the model.

Processes rather than threads because of the GIL.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Generator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace as replace_field
from multiprocessing.connection import Connection, wait
from typing import cast

from msgspec.structs import replace

from selfreflect.errors import BackendError
from selfreflect.pipeline.stages import Outcome, StageSpec, StageWorker, split_into_batches
from selfreflect.pipeline.tasks import StageTask
from selfreflect.text import name_list


class ProcessExecutor:
    """Processes that take batches from one queue.

    Args:
        devices: ``cuda:INDEX`` counts the GPUs that this process sees.
    """

    def __init__(self, devices: Sequence[str]) -> None:
        self._devices = devices
        self._processes: list[_DeviceProcess] = []

    def outcomes(self, spec: StageSpec, tasks: Sequence[StageTask]) -> Generator[Outcome, None, None]:
        """See :class:`~selfreflect.pipeline.executors.Executor`."""
        batches = deque(split_into_batches(tasks, len(self._devices), spec.batch_size))
        for device in self._devices[len(self._processes) : len(batches)]:
            self._processes.append(_DeviceProcess(device))
        busy = {process.connection: process for process in self._processes[: len(batches)]}
        for process in busy.values():
            process.begin(spec)
        try:
            while busy:
                for connection in wait(list(busy)):
                    process = busy[cast(Connection, connection)]
                    outcome = process.receive()
                    if outcome is not None:
                        yield outcome
                    elif batches:
                        process.send(batches.popleft())
                    else:
                        del busy[process.connection]
        finally:
            if busy:  # after an error or an interrupt, nothing waits for the batches under way
                self.close()

    def close(self) -> None:
        while self._processes:
            self._processes.pop().end()


class _DeviceProcess:
    def __init__(self, device: str) -> None:
        context = multiprocessing.get_context("spawn")  # a forked process could not use CUDA
        self.device = device
        self.connection, theirs = context.Pipe()
        self._process = context.Process(target=serve, args=(theirs, environment_of(device)), daemon=True)
        self._process.start()
        theirs.close()

    def begin(self, spec: StageSpec) -> None:
        kind = self.device.partition(":")[0]
        self.send(replace_field(spec, options=replace(spec.options, device=kind)))

    def receive(self) -> Outcome | None:
        """The next outcome, or None when the process is ready for a batch."""
        try:
            return cast("Outcome | None", self.connection.recv())
        except (EOFError, OSError):
            self._process.join()
            raise BackendError(
                f"The process on {self.device} ended with status {self._process.exitcode}; "
                "-9 may mean that memory ran out."
            ) from None

    def send(self, message: object) -> None:
        with suppress(OSError):  # receive() reports a process that has ended
            self.connection.send(message)

    def end(self) -> None:
        self._process.terminate()
        self._process.join(10)
        self._process.kill()  # a process deep in its model's code may not react to terminate
        self._process.join()
        self.connection.close()


def environment_of(device: str) -> dict[str, str]:
    """The environment that shows a process its own GPU only."""
    kind, _, index = device.partition(":")
    if kind != "cuda":
        return {}
    visible = name_list(os.environ.get("CUDA_VISIBLE_DEVICES", ""))
    return {"CUDA_VISIBLE_DEVICES": visible[int(index)] if visible else index}


def serve(connection: Connection, environment: Mapping[str, str]) -> None:
    """Run in a device's process: make a worker for each stage, give it each batch, and send what it makes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the experiment handles interrupts and ends this process
    threading.Thread(target=_end_with_parent, daemon=True).start()
    os.environ.update(environment)
    worker: StageWorker | None = None
    with suppress(EOFError, OSError):  # the experiment has ended
        while True:
            message = connection.recv()
            if isinstance(message, StageSpec):
                worker = None  # frees its memory for the next one
                worker = StageWorker(message)
                connection.send(None)
            else:
                assert worker is not None  # a stage comes before its batches
                for outcome in worker.outcomes(message):
                    connection.send(outcome)
                connection.send(None)


def _end_with_parent() -> None:
    """End this process when the experiment is killed, so that it does not hold its GPU any longer."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
