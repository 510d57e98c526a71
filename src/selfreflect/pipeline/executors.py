"""Where a stage runs: in this process, in one process per device, or on Ray.

Only the work runs elsewhere. The experiment stays the one writer of the run directory, and an executor gives it
each batch's outcome once.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace as replace_field
from multiprocessing.connection import Connection, wait
from typing import Protocol, cast

from msgspec.structs import replace

from selfreflect.errors import BackendError, ConfigError, excerpt
from selfreflect.pipeline.models import ModelProvider, load_stage_model
from selfreflect.pipeline.options import ExecutionOptions, Progress
from selfreflect.pipeline.stages import StageSpec, StageTask, stage_fn
from selfreflect.pipeline.wire import Batch, Outcome, StageWorker, each_once, split_into_batches
from selfreflect.text import without_credentials


class Executor(Protocol):
    """Workers that are started for a stage and given its tasks."""

    def outcomes(self, spec: StageSpec, tasks: Sequence[StageTask]) -> Generator[Outcome, None, None]:
        """The results of the tasks, batch by batch in any order. An outcome with an error is the last.

        Raises:
            BackendError: workers are lost.
        """

    def close(self) -> None:
        """Stop the workers."""


class Executors:
    """Chooses the executor of each stage, starts it when it is first needed and stops it at the end."""

    def __init__(self, options: ExecutionOptions, models: ModelProvider, progress: Progress) -> None:
        self._options = options
        self._local = LocalExecutor(models, progress)
        self._started: dict[str, Executor] = {}

    def choose(self, spec: StageSpec, tasks: int) -> Executor:
        """The executor for a stage with this many tasks.

        Raises:
            ConfigError: the stage cannot run where the options say.
            MissingExtraError: Ray is not installed.
        """
        if self._options.executor == "ray":
            return self._ray(spec)
        devices = self._devices() if _can_be_copied(spec) else ()
        if min(len(devices), tasks) < 2:
            return self._local
        if "devices" not in self._started:
            self._started["devices"] = ProcessExecutor(devices)
        return self._started["devices"]

    def close(self) -> None:
        while self._started:
            self._started.popitem()[1].close()

    def _ray(self, spec: StageSpec) -> Executor:
        for strategy in spec.strategies:
            if not isinstance(strategy, str):
                raise ConfigError(
                    f"strategy {excerpt(strategy[0])} is a function; with Ray name it as package.module:function"
                )
        # a spec carries the settings of all stages
        for stage in ("answers", "summaries", "scores"):
            url = getattr(spec.config, stage).base_url
            if url is not None and without_credentials(url) != url:
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


def _can_be_copied(spec: StageSpec) -> bool:
    """Whether each device can have a copy of the stage's model and strategies."""
    named = all(isinstance(strategy, str) for strategy in spec.strategies)
    return spec.kind == "local" and spec.options.device_map is None and named


class LocalExecutor:
    """Runs a stage in this process. The model is let go when the stage ends."""

    def __init__(self, models: ModelProvider, progress: Progress) -> None:
        self._models = models
        self._progress = progress

    def outcomes(self, spec: StageSpec, tasks: Sequence[StageTask]) -> Generator[Outcome, None, None]:
        """See :class:`Executor`. The first outcome has no results yet, only the facts of the model.

        Raises:
            SelfReflectError: at once, if the model cannot be loaded.
        """
        model = load_stage_model(spec.stage, self._models)
        facts = model.facts
        results = stage_fn(spec, model, self._progress)(tasks)

        def batches() -> Generator[Outcome, None, None]:
            yield Outcome(0, facts=facts)
            for number, group in enumerate(results, 1):
                yield Outcome(number, group, facts=facts)

        return batches()

    def close(self) -> None:
        """Nothing was started."""


class ProcessExecutor:
    """One process per device, each with a copy of the model, that take batches from one queue.

    Processes rather than threads because of the GIL.

    Args:
        devices: ``cuda:INDEX`` counts the GPUs that this process sees.
    """

    def __init__(self, devices: Sequence[str]) -> None:
        self._devices = devices
        self._processes: list[_DeviceProcess] = []

    def outcomes(self, spec: StageSpec, tasks: Sequence[StageTask]) -> Generator[Outcome, None, None]:
        """See :class:`Executor`."""
        batches = deque(split_into_batches(tasks, len(self._devices), spec.batch_size))
        yield from each_once(self._outcomes(spec, batches), len(batches))

    def close(self) -> None:
        while self._processes:
            self._processes.pop().end()

    def _outcomes(self, spec: StageSpec, batches: deque[Batch]) -> Iterator[Outcome]:
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
                    if batches:
                        process.send(batches.popleft())
                    else:
                        del busy[process.connection]
        finally:
            if busy:  # after an error or an interrupt, nothing waits for the batches under way
                self.close()


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
        """The next outcome, or None when the model is ready for its first batch."""
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
    names = [name.strip() for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")]
    visible = [name for name in names if name]
    return {"CUDA_VISIBLE_DEVICES": visible[int(index)] if visible else index}


def serve(connection: Connection, environment: Mapping[str, str]) -> None:
    """Run in a device's process: make a worker for each stage, and give it each batch."""
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
                connection.send(worker(message))


def _end_with_parent() -> None:
    """End this process when the experiment is killed, so that it does not hold its GPU any longer."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
