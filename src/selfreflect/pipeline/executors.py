"""Where a stage's work happens when it is not in this process, and how tasks get there and results come back.

Only workers are elsewhere. The experiment stays the one writer of the run directory, and an engine gives it
every batch's outcome once.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from typing import Protocol, cast

from msgspec.structs import replace

from selfreflect.errors import BackendError, ConfigError, excerpt
from selfreflect.pipeline.options import ExecutionOptions
from selfreflect.pipeline.stages import StageSpec, StageTask
from selfreflect.pipeline.wire import BatchOutcome, StageWorker, each_once, split_into_batches
from selfreflect.text import without_credentials


class Executor(Protocol):
    """Workers that are started for a job and given its tasks."""

    def outcomes(self, job: StageSpec, tasks: Sequence[StageTask]) -> Generator[BatchOutcome, None, None]:
        """What became of the tasks, batch by batch and in any order; the first one with an error is the last.

        Raises:
            BackendError: workers are lost.
        """

    def close(self) -> None:
        """End what was started."""


class Executors:
    """The engines of one experiment, each started when it is first needed."""

    def __init__(self, options: ExecutionOptions) -> None:
        self._options = options
        self._started: dict[str, Executor] = {}

    def pick(self, job: StageSpec, tasks: int) -> Executor | None:
        """Where a job with so many tasks is done; None for this process.

        Raises:
            ConfigError: it cannot be done there.
            MissingExtraError: Ray is not installed.
        """
        if self._options.executor == "ray":
            return self._ray(job)
        if (
            not job.local
            or self._options.device_map is not None
            or any(not isinstance(strategy, str) for strategy in job.strategies)
        ):
            return None
        devices = self._devices()
        if min(len(devices), tasks) < 2:
            return None
        if "devices" not in self._started:
            self._started["devices"] = ProcessExecutor(devices)
        return self._started["devices"]

    def close(self) -> None:
        while self._started:
            self._started.popitem()[1].close()

    def _ray(self, job: StageSpec) -> Executor:
        for strategy in job.strategies:
            if not isinstance(strategy, str):
                raise ConfigError(
                    f"strategy {excerpt(strategy[0])} is a function; with Ray name it as package.module:function"
                )
        # all of the settings travel with a job, those of other stages too
        urls = [getattr(job.config, stage).base_url for stage in ("answers", "summaries", "scores")]
        if any(url is not None and without_credentials(url) != url for url in urls):
            raise ConfigError(
                "--executor ray takes no base URL with credentials, since they would travel through Ray. "
                "Set SELFREFLECT_API_KEY in the environment of the workers."
            )
        if "ray" not in self._started:
            from selfreflect.pipeline.ray_executor import RayExecutor

            self._started["ray"] = RayExecutor(self._options.ray_address)
        return self._started["ray"]

    def _devices(self) -> tuple[str, ...]:
        if self._options.devices is not None:
            return self._options.devices
        if self._options.device not in ("auto", "cuda"):
            return ()
        from selfreflect.models.local.device_map import visible_gpus

        return visible_gpus()


class ProcessExecutor:
    """Processes on this machine with a copy of the model each, on a device each, that take batches from one
    queue.

    Processes, because threads would wait for each other between any two operations of their models.

    Args:
        devices: ``cuda:INDEX`` counts the GPUs that this process sees.
    """

    def __init__(self, devices: Sequence[str]) -> None:
        self._devices = devices
        self._replicas: list[_Replica] = []

    def outcomes(self, job: StageSpec, tasks: Sequence[StageTask]) -> Generator[BatchOutcome, None, None]:
        waiting = deque(split_into_batches(tasks, len(self._devices), job.batch_size))
        yield from each_once(self._done(job, waiting), len(waiting))

    def close(self) -> None:
        while self._replicas:
            self._replicas.pop().end()

    def _done(self, job: StageSpec, waiting: deque[bytes]) -> Iterator[bytes]:
        crew = self._started(min(len(self._devices), len(waiting)))
        busy = {replica.connection: replica for replica in crew}
        for replica in crew:
            replica.begin(job)
        try:
            while busy:
                for ready in wait(list(busy)):
                    replica = busy[cast(Connection, ready)]
                    if data := replica.received():
                        yield data
                    if waiting:
                        replica.send(waiting.popleft())
                    else:
                        del busy[replica.connection]
        finally:
            if busy:  # an error of one, or an interrupt: what the others are at is of no use
                self.close()

    def _started(self, count: int) -> list[_Replica]:
        for device in self._devices[len(self._replicas) : count]:
            self._replicas.append(_Replica(device))
        return self._replicas[:count]


class _Replica:
    def __init__(self, device: str) -> None:
        context = multiprocessing.get_context("spawn")  # a forked process could not use CUDA
        self.device = device
        self.connection, theirs = context.Pipe()
        self._process = context.Process(target=serve, args=(theirs, environment_of(device)), daemon=True)
        self._process.start()
        theirs.close()

    def begin(self, job: StageSpec) -> None:
        kind = self.device.partition(":")[0]
        self.send(
            StageSpec(job.stage, job.config, job.prompts, replace(job.options, device=kind), job.strategies)
        )

    def received(self) -> bytes:
        """The next outcome; empty when a job's model is ready for its first batch."""
        try:
            return self.connection.recv_bytes()
        except (EOFError, OSError):
            self._process.join()
            raise BackendError(
                f"The process on {self.device} ended with status {self._process.exitcode}, in which a lack of memory may show as -9."
            ) from None

    def send(self, message: object) -> None:
        with suppress(OSError):  # an end of the process shows when it is waited for
            self.connection.send(message)

    def end(self) -> None:
        self._process.terminate()
        self._process.join(10)
        self._process.kill()  # one that is deep in its model's code need not listen
        self._process.join()
        self.connection.close()


def environment_of(device: str) -> dict[str, str]:
    """Environment of the process on a device, which shows it that GPU alone."""
    kind, _, index = device.partition(":")
    if kind != "cuda":
        return {}
    visible = [name.strip() for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name.strip()]
    return {"CUDA_VISIBLE_DEVICES": visible[int(index)] if visible else index}


def serve(connection: Connection, environment: Mapping[str, str]) -> None:
    """What a replica's process does: makes a worker of every job, and gives every batch to the latest one."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interrupt is the experiment's, which ends this process
    threading.Thread(target=_end_with_parent, daemon=True).start()
    os.environ.update(environment)
    worker: StageWorker | None = None
    with suppress(EOFError, OSError):  # the experiment has ended
        while True:
            message = connection.recv()
            if isinstance(message, StageSpec):
                worker = None  # frees its memory for the next one
                worker = StageWorker(message)
                connection.send_bytes(b"")
            else:
                assert worker is not None  # a job comes before its batches
                connection.send_bytes(worker(message))


def _end_with_parent() -> None:
    """A killed experiment cannot end its replicas, and one at work would hold its GPU until it wants to tell
    of its batch."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
