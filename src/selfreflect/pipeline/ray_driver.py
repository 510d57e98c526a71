"""Run stages with Ray actors: each has a copy of the model and takes one batch after the other."""

from __future__ import annotations

import logging
import os
import socket
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace as replace_field
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from selfreflect.config import Placement
from selfreflect.errors import BackendError, ConfigError, MissingExtraError, excerpt
from selfreflect.pipeline.stages import Outcome, StageSpec, StageTask, StageWorker, split_into_batches

TRIES = 4
"""Attempts at a batch, or at loading a model, before the run ends."""

_QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_BACKEND_LOG_LEVEL": "fatal", "RAY_DEDUP_LOGS_SKIP_REGEX": "."}
"""Defaults for the environment. Without the last, Ray prints to standard output."""

_TOKEN_ADVICE = (
    " If the cluster wants a token, set RAY_AUTH_MODE=token and put its token into ~/.ray/auth_token or "
    "RAY_AUTH_TOKEN."
)


class Actor:
    """A :class:`~selfreflect.pipeline.stages.StageWorker` on some machine of the cluster."""

    def load(self, spec: StageSpec, directory: str) -> None:
        with suppress(OSError):  # another machine may not have it
            os.chdir(directory)  # relative paths of models and modules of strategies mean the same here
        self._worker = StageWorker(spec)

    def work(self, tasks: Sequence[StageTask]) -> Outcome:
        return self._worker(tasks)


class Driver:
    """Starts actors and gives them batches, in the process of ``ray_executor.drive``.

    The argument and the errors are those of :class:`~selfreflect.pipeline.ray_executor.RayExecutor`.
    """

    def __init__(self, address: str | None) -> None:
        if address is not None and "://" in address:
            raise ConfigError(
                f"--ray-address must be HOST:PORT or auto, not {excerpt(address)}: Ray's client is not "
                "supported. "
                "Start the command on a machine of the cluster."
            )
        if address is not None and address != "auto":
            _check_reachable(address)
        for name, value in _QUIET.items():
            os.environ.setdefault(name, value)
        try:
            import ray
        except ImportError:
            raise MissingExtraError("--executor ray", "ray") from None
        try:
            with _muted_stderr():
                ray.init(
                    address=address or "local",
                    include_dashboard=None if address else False,
                    log_to_driver=False,
                    logging_level=logging.CRITICAL,
                )
        except (OSError, RuntimeError, ValueError, AssertionError, ray.exceptions.RayError) as error:
            place = f"at {excerpt(address)}" if address else "on this machine"
            reason = excerpt(" ".join(str(error).split()), 300)
            advice = _TOKEN_ADVICE if address else ""
            raise BackendError(f"Ray has no cluster {place}: {reason}.{advice}") from None
        self._ray: Any = ray

    def close(self) -> None:
        self._ray.shutdown()

    def run(self, spec: StageSpec, tasks: Sequence[StageTask]) -> Iterator[Outcome]:
        """The outcome of each batch, in any order.

        Raises:
            ConfigError: an actor fits on no machine.
            BackendError: workers are lost.
        """
        machines = [node["Resources"] for node in self._ray.nodes() if node["Alive"]]
        placement = place_actors(spec, machines)
        if not placement.gpus and spec.options.device == "auto":
            # Ray does not hide the GPUs that others use
            spec = replace_field(spec, options=replace(spec.options, device="cpu"))
        yield from self._outcomes(spec, tasks, placement)

    def _outcomes(
        self, spec: StageSpec, tasks: Sequence[StageTask], placement: Placement
    ) -> Iterator[Outcome]:
        """Give each actor that has loaded the model one batch after the other, and replace those that end."""
        ray = self._ray
        actor_class = ray.remote(Actor).options(num_gpus=placement.gpus, num_cpus=placement.cpus)
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
            [ready], _ = ray.wait(list(under_way), num_returns=1)
            actor, number = under_way.pop(ready)
            try:
                outcome = ray.get(ready)
            except ray.exceptions.RayError as error:
                in_actor = isinstance(error, ray.exceptions.RayTaskError)
                if in_actor and not isinstance(error.cause, ray.exceptions.RayError):
                    raise  # a bug, which keeps its traceback
                losses[number] += 1
                if number is None and losses[None] == TRIES + actors:
                    raise BackendError(
                        f"Actors ended repeatedly while loading {excerpt(spec.model)}, usually for lack of "
                        "memory. Use fewer actors, more memory or a smaller dtype. All machines need the "
                        "same selfreflect, extras and models."
                    ) from None
                if number is not None:
                    if losses[number] == TRIES:
                        raise BackendError(
                            f"{TRIES} actors in a row ended while working on the same questions, "
                            "usually for lack of memory."
                        ) from None
                    waiting.appendleft(number)
                to_start = 1
                continue
            if number is None:
                losses[None] = 0
            else:
                to_come -= 1
                yield outcome
            if waiting:
                number = waiting.popleft()
                under_way[actor.work.remote(batches[number])] = (actor, number)


@contextmanager
def _muted_stderr() -> Iterator[None]:
    """Silence Ray's core, which writes to stderr whatever the log level. Its errors are raised too."""
    stderr = os.dup(2)
    try:
        with Path(os.devnull).open("wb") as devnull:
            os.dup2(devnull.fileno(), 2)
            yield
    finally:
        os.dup2(stderr, 2)
        os.close(stderr)


def _check_reachable(address: str) -> None:
    """Raise BackendError if nothing listens at ``HOST:PORT``, which Ray would try for minutes."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=20).close()
    except (OSError, ValueError, OverflowError) as error:
        raise BackendError(f"Ray has no cluster at {excerpt(address)}: {excerpt(str(error), 200)}") from None


def place_actors(spec: StageSpec, machines: Sequence[Mapping[str, float]]) -> Placement:
    """Fill in what the settings leave open.

    Args:
        machines: resources (``CPU``, ``GPU``) of each machine of the cluster.

    Raises:
        ConfigError: an actor fits on no machine, or the settings contradict each other.
    """
    settings: Placement = getattr(spec.config.ray, spec.stage)
    loads_model = spec.kind in ("local", "vllm")
    cpu_counts = [machine["CPU"] for machine in machines if machine.get("CPU")]
    gpu_counts = [machine.get("GPU", 0) for machine in machines]
    gpus = settings.gpus
    if gpus is None:
        uses_gpu = loads_model and any(gpu_counts) and spec.options.device in ("auto", "cuda")
        gpus = 1.0 if uses_gpu else 0.0
    cpus = settings.cpus
    if cpus is None:
        cpus = min(cpu_counts, default=1.0) if loads_model and not gpus else 1.0
    slots = sum(_slots(machine, cpus, gpus) for machine in machines)
    section = f"[ray.{spec.stage}]"
    if not slots:
        raise ConfigError(
            f"{section}: an actor with {cpus:g} cpus and {gpus:g} gpus fits on no machine of the cluster, "
            f"whose largest has {max(cpu_counts, default=0):g} CPUs and {max(gpu_counts, default=0):g} GPUs"
        )
    _check_gpus(spec, section, gpus, loads_model)
    return Placement(
        actors=settings.actors or (slots if loads_model else 1),
        gpus=gpus,
        cpus=cpus,
        batch_questions=settings.batch_questions or spec.batch_size,
    )


def _check_gpus(spec: StageSpec, section: str, gpus: float, loads_model: bool) -> None:
    if loads_model and not gpus and spec.options.device == "cuda":
        raise ConfigError(f"{section}: with --device cuda an actor needs a GPU, and gpus is 0")
    spread = spec.kind == "local" and spec.options.device_map is not None
    if spread and gpus < 2:
        raise ConfigError(
            f"{section}: with --device-map auto an actor needs gpus = 2 or more in --config, and has {gpus:g}"
        )
    if gpus > 1 and not spread:
        raise ConfigError(
            f"{section}: an actor with {excerpt(spec.model)} uses one GPU, and gpus is {gpus:g}; "
            "--device-map auto spreads local models"
        )


def _slots(machine: Mapping[str, float], cpus: float, gpus: float) -> int:
    """How many actors fit on a machine. Ray gives no actor parts of two GPUs."""
    by_cpus = int(machine.get("CPU", 0) / cpus)
    available = machine.get("GPU", 0)
    if gpus >= 1:
        return min(by_cpus, int(available / gpus))
    if gpus > 0:
        per_gpu = int(1 / gpus + 1e-9)
        return min(by_cpus, int(available) * per_gpu)
    return by_cpus
