"""Executor on Ray (``--executor ray``).

Ray gets a separate process, because it ends the process without a word when it loses its cluster.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import queue
import signal
import socket
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace as replace_field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from selfreflect.errors import (
    BackendError,
    ConfigError,
    SelfReflectError,
    excerpt,
    optional,
)
from selfreflect.models.backend import backend_of
from selfreflect.run.stages import (
    Outcome,
    StageSpec,
    StageTask,
    StageWorker,
    split_into_batches,
    without_results,
)
from selfreflect.settings import Placement

TRIES = 4
"""Number of attempts at a batch, or at loading a model, before the run ends."""

# Defaults for the environment. Without the last, Ray prints to standard output.
_QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_BACKEND_LOG_LEVEL": "fatal", "RAY_DEDUP_LOGS_SKIP_REGEX": "."}

_TOKEN_ADVICE = (
    " If the cluster requires a token, set RAY_AUTH_MODE=token and put its token into ~/.ray/auth_token or "
    "RAY_AUTH_TOKEN."
)

_SAME_MACHINES = "All machines need the same selfreflect, extras and models."

SECONDS_TO_END = 30
"""Seconds for a driver to end its actors, and the cluster that it started."""


class RayExecutor:
    """Executor of stages on Ray actors.

    Args:
        address: of a running cluster; None starts one on this machine that ends with :meth:`close`.

    Raises:
        MissingExtraError: Ray is not installed.
        ConfigError: addresses of this kind are not supported.
        BackendError: there is no cluster at the address, or none can be started.
    """

    def __init__(self, address: str | None) -> None:
        # spawn: a fork would copy the threads and locks of this process
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=drive, args=(theirs, address), daemon=True)
        self._process.start()
        # while this process holds the driver's end, the driver's death does not close the pipe
        theirs.close()
        try:
            # the first message says that there is a cluster
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
        """Run tasks; see :meth:`~selfreflect.run.experiment.Executors.outcomes`."""
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
        """Wait for the driver's next message.

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
        if isinstance(message, SelfReflectError):
            raise message
        return message


def drive(connection: Connection, address: str | None) -> None:
    """Run the driver process: join or start a cluster, then answer each received stage.

    The answers are the outcomes of its batches, and None at the end; or class and message of an expected
    error. The process ends when the experiment closes the connection or is killed.
    """
    # Ctrl-C reaches the whole process group, but only the experiment may decide to end
    ending = threading.Event()

    def on_interrupt(*_: object) -> None:
        if ending.is_set():  # the experiment handles other interrupts
            sys.exit()

    signal.signal(signal.SIGINT, on_interrupt)
    # Ray's objects may be deleted after their cluster or during an interrupt, and nobody can act on that
    sys.unraisablehook = lambda _: None
    os.dup2(2, 1)  # standard output belongs to the experiment
    stages: queue.SimpleQueue[tuple[StageSpec, Sequence[StageTask]]] = queue.SimpleQueue()
    # a thread notices at once when the experiment has ended, even while Ray computes
    threading.Thread(target=_listen, args=(connection, stages, ending), daemon=True).start()

    ray: Any = None
    try:
        ray = start_ray(address)
        connection.send(None)
        while True:
            spec, tasks = stages.get()
            with _ray_errors(ray):
                for outcome in work(ray, spec, tasks):
                    connection.send(outcome)
            connection.send(None)
    except SelfReflectError as error:
        # the experiment closes the connection on this message; an interrupt then could strike
        # while Ray's objects of the failed stage are deleted, which Python reports with a traceback
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        with suppress(OSError):
            connection.send(error)
    except (BrokenPipeError, ConnectionResetError, KeyboardInterrupt):  # the experiment has ended
        pass
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # it is ending already
        if ray is not None:
            ray.shutdown()


def _listen(
    connection: Connection,
    stages: queue.SimpleQueue[tuple[StageSpec, Sequence[StageTask]]],
    ending: threading.Event,
) -> None:
    """Pass on stages until the experiment ends, then end this process."""
    try:
        while True:
            stages.put(connection.recv())
    except (EOFError, OSError):
        ending.set()
        # the only signal on which Ray prints nothing
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        time.sleep(SECONDS_TO_END - 5)
        os._exit(1)


def start_ray(address: str | None) -> Any:
    """Import Ray, and join or start a cluster, raising the errors of ``RayExecutor``."""
    if address is not None and "://" in address:
        raise ConfigError(
            f"a cluster must be given as HOST:PORT or auto, not {excerpt(address)}: Ray's client is not "
            "supported",
            code="value",
            remedy="Start the command on a machine of the cluster, or change {execution.ray_address}.",
        )
    if address is not None and address != "auto":
        _check_reachable(address)
    for name, value in _QUIET.items():
        os.environ.setdefault(name, value)
    with optional("--executor ray", "ray"):
        import ray
    try:
        with _muted_stderr():
            ray.init(
                address=address or "local",
                include_dashboard=None if address else False,
                log_to_driver=False,
                logging_level=logging.CRITICAL,
            )
    except (OSError, RuntimeError, ValueError, AssertionError, ray.exceptions.RayError) as error:
        location = f"at {excerpt(address)}" if address else "on this machine"
        reason = excerpt(" ".join(str(error).split()), 300)
        advice = _TOKEN_ADVICE if address else ""
        raise BackendError(f"Ray finds no cluster {location}: {reason}.{advice}") from None
    return ray


def work(ray: Any, spec: StageSpec, tasks: Sequence[StageTask]) -> Iterator[Outcome]:
    """Give batches to the actors with loaded models, and replace actors that end.

    Raises:
        ConfigError: an actor fits on no machine.
        BackendError: actors end again and again.
        ray.exceptions.RayError: Ray fails outside the actors, or there is a bug in an actor.
    """
    machines = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    placement = place_actors(spec, machines)
    if not placement.gpus and spec.options.device == "auto":
        # Ray does not hide the GPUs that others use
        spec = replace_field(spec, options=replace(spec.options, device="cpu"))
    actor_class = ray.remote(Actor).options(num_gpus=placement.gpus, num_cpus=placement.cpus)
    # small batches: an actor that is lost costs one of them
    batches = split_into_batches(tasks, placement.actors or 1, placement.batch_questions or 1)
    waiting = deque(range(len(batches)))
    actors = to_start = min(placement.actors or 1, len(batches))
    under_way: dict[Any, tuple[Any, int | None]] = {}  # an actor and its batch, None while it loads
    losses: Counter[int | None] = Counter()
    to_come = len(batches)
    while to_come:
        for _ in range(to_start):
            actor = actor_class.remote()
            under_way[actor.load.remote(spec, str(Path.cwd()))] = (actor, None)
        to_start = 0
        # one at a time: whoever is ready gets its next batch before the others are looked at
        [ready], _ = ray.wait(list(under_way), num_returns=1)
        actor, number = under_way[ready]
        try:
            outcome = _next_outcome(ray, ready)
        except ray.exceptions.RayError as error:
            # a RayTaskError may wrap a loss of the cluster, such as objects of a lost machine
            in_actor = isinstance(error, ray.exceptions.RayTaskError)
            if in_actor and not isinstance(error.cause, ray.exceptions.RayError):
                raise  # a bug, which keeps its traceback
            del under_way[ready]
            losses[number] += 1
            # a few losses while loading are normal on machines that come and go
            if number is None and losses[None] == TRIES + actors:
                raise BackendError(
                    f"Actors ended repeatedly while loading {excerpt(spec.model.name)}, usually for lack of "
                    f"memory. Use fewer actors, more memory or a smaller dtype. {_SAME_MACHINES} "
                    f"Ray's reason: {_reason(error)}"
                ) from None
            if number is not None:
                if losses[number] == TRIES:
                    raise BackendError(
                        f"{TRIES} actors in a row ended while working on the same questions, "
                        f"usually for lack of memory. {_SAME_MACHINES} Ray's reason: {_reason(error)}"
                    ) from None
                # first, so that a batch that ends every actor is found before the others wait
                waiting.appendleft(number)
            to_start = 1
            continue
        # an actor that is lost later repeats only what it has not handed over yet
        if outcome is not None:
            assert number is not None  # loading has no outcome
            batches[number] = without_results(batches[number], outcome.results)
            yield outcome
            continue
        del under_way[ready]
        if number is None:
            # one success: the model can be loaded, and losses are counted anew
            losses[None] = 0
        else:
            to_come -= 1
        if waiting:
            number = waiting.popleft()
            stream = actor.work.options(num_returns="streaming").remote(batches[number])
            under_way[stream] = (actor, number)


def _next_outcome(ray: Any, ready: Any) -> Outcome | None:
    """Get a batch's next outcome; None at its end or after loading a model."""
    if isinstance(ready, ray.ObjectRef):
        ray.get(ready)
        return None
    try:
        outcome: Outcome = ray.get(next(ready))
    except StopIteration:
        return None
    return outcome


class Actor:
    """A :class:`~selfreflect.run.stages.StageWorker` on a machine of the cluster."""

    def load(self, spec: StageSpec, directory: str) -> None:
        with suppress(OSError):  # another machine may not have it
            os.chdir(directory)  # relative paths of models and modules of strategies mean the same here
        self._worker = StageWorker(spec)

    def work(self, tasks: Sequence[StageTask]) -> Iterator[Outcome]:
        yield from self._worker.outcomes(tasks)


@contextmanager
def _ray_errors(ray: Any) -> Iterator[None]:
    """Convert Ray's own errors to BackendError. A bug in an actor keeps its traceback."""
    try:
        yield
    except ray.exceptions.RayTaskError:
        raise
    except ray.exceptions.RayError as error:
        raise BackendError(f"Ray failed: {_reason(error)}. {_SAME_MACHINES}") from None


def _reason(error: Exception) -> str:
    """Quote the last line of a Ray error, after ids and traceback."""
    return excerpt(str(error).strip().rpartition("\n")[2], 300)


@contextmanager
def _muted_stderr() -> Iterator[None]:
    """Silence Ray's core, which ignores the log level. Its errors are raised too."""
    stderr = os.dup(2)
    try:
        with Path(os.devnull).open("wb") as devnull:
            os.dup2(devnull.fileno(), 2)
            yield
    finally:
        os.dup2(stderr, 2)
        os.close(stderr)


def _check_reachable(address: str) -> None:
    """Raise BackendError if nothing listens at ``HOST:PORT``."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=20).close()
    except (OSError, ValueError, OverflowError) as error:
        raise BackendError(
            f"Ray finds no cluster at {excerpt(address)}: {excerpt(str(error), 200)}"
        ) from None


def place_actors(spec: StageSpec, machines: Sequence[Mapping[str, float]]) -> Placement:
    """Choose the placement that the settings leave open.

    Args:
        machines: resources (``CPU``, ``GPU``) of each machine of the cluster.

    Raises:
        ConfigError: an actor fits on no machine, or the settings contradict each other.
    """
    settings: Placement = getattr(spec.config.ray, spec.stage)
    loads_model = backend_of(spec.model.name).loads_model
    cpu_counts = [machine["CPU"] for machine in machines if machine.get("CPU")]
    gpu_counts = [machine.get("GPU", 0) for machine in machines]
    gpus = settings.gpus
    if gpus is None:
        # a stage that asks a server needs no GPU, however many there are
        uses_gpu = loads_model and any(gpu_counts) and spec.options.device.startswith(("auto", "cuda"))
        gpus = 1.0 if uses_gpu else 0.0
    cpus = settings.cpus
    if cpus is None:
        # without a GPU a local model uses all CPUs of its machine
        cpus = min(cpu_counts, default=1.0) if loads_model and not gpus else 1.0
    slots = sum(_slots(machine, cpus, gpus) for machine in machines)
    section = f"[ray.{spec.stage}]"
    if not slots:
        raise ConfigError(
            f"{section}: an actor with {cpus:g} cpus and {gpus:g} gpus does not fit on any machine of the "
            f"cluster; the largest machine has {max(cpu_counts, default=0):g} CPUs and "
            f"{max(gpu_counts, default=0):g} GPUs",
            code="placement",
        )
    _check_gpus(spec, section, gpus, loads_model)
    return Placement(
        actors=settings.actors or (slots if loads_model else 1),
        gpus=gpus,
        cpus=cpus,
        batch_questions=settings.batch_questions or spec.batch_size,
    )


def _check_gpus(spec: StageSpec, section: str, gpus: float, loads_model: bool) -> None:
    if loads_model and not gpus and spec.options.device.startswith("cuda"):
        raise ConfigError(
            f"{section}: on device {spec.options.device} an actor needs a GPU, but gpus is 0",
            code="placement",
            remedy="Change {execution.device} or the section.",
        )
    spread = backend_of(spec.model.name).is_torch and spec.options.device_map is not None
    if spread and gpus < 2:
        raise ConfigError(
            f"{section}: an actor with a model that is spread over GPUs needs gpus = 2 or more, but "
            f"has {gpus:g}",
            code="placement",
            remedy="Change the section, or leave out {execution.device_map}.",
        )
    if gpus > 1 and not spread:
        raise ConfigError(
            f"{section}: an actor with {excerpt(spec.model.name)} uses one GPU, but gpus is {gpus:g}",
            code="placement",
            remedy="Spread a local model over GPUs with {execution.device_map} auto.",
        )


def _slots(machine: Mapping[str, float], cpus: float, gpus: float) -> int:
    """Count the actors that fit on a machine. Ray gives no actor parts of two GPUs."""
    by_cpus = int(machine.get("CPU", 0) / cpus)
    available = machine.get("GPU", 0)
    if gpus >= 1:
        return min(by_cpus, int(available / gpus))
    if gpus > 0:
        per_gpu = int(1 / gpus + 1e-9)
        return min(by_cpus, int(available) * per_gpu)
    return by_cpus
