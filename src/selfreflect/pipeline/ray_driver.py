"""The stages as Ray Data pipelines: actors with a copy of the model each take batches of tasks, and outcomes
stream back."""

from __future__ import annotations

import logging
import os
import socket
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from selfreflect.config import Placement
from selfreflect.errors import BackendError, ConfigError, MissingExtraError, excerpt
from selfreflect.models.spec import kind_of
from selfreflect.pipeline.stages import StageSpec, StageTask
from selfreflect.pipeline.wire import BatchOutcome, StageWorker, encode, split_into_batches

if TYPE_CHECKING:
    import numpy as np

TRIES = 4
"""How often a batch is begun before it is taken for what kills its actors; so for models. Ray would go on for
ever."""

_QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_BACKEND_LOG_LEVEL": "fatal", "RAY_DEDUP_LOGS_SKIP_REGEX": "."}
"""Where the environment says nothing else. Ray reads the last before it prints, and it would print to
standard output."""

_TOKEN = " For a cluster that wants a token set RAY_AUTH_MODE=token and put its token into ~/.ray/auth_token or RAY_AUTH_TOKEN."


class Tally:
    """Counts how often models and batches are begun; it outlives the actors."""

    def __init__(self) -> None:
        self._begun: Counter[tuple[int, int]] = Counter()
        self._loading: Counter[int] = Counter()

    def load(self, stage: int) -> int:
        """How many actors have begun to load their model since the last one was done with it."""
        self._loading[stage] += 1
        return self._loading[stage]

    def loaded(self, stage: int) -> None:
        """An actor is done with loading."""
        self._loading[stage] = 0

    def begin(self, stage: int, number: int) -> int:
        """Which try this is of a batch, from 1."""
        self._begun[stage, number] += 1
        return self._begun[stage, number]


class Actor:
    """A :class:`~selfreflect.pipeline.wire.StageWorker` as Ray Data calls it, with one batch in a row.

    Args:
        tally: handle of a :class:`Tally`, for which ``stage`` tells batches of this pipeline from those of
            others.
        actors: how many there are, all of which may load at once.
    """

    def __init__(self, job: StageSpec, directory: str, tally: Any, stage: int, actors: int) -> None:
        with suppress(OSError):  # another machine need not have it
            os.chdir(directory)  # relative paths of models and modules of strategies mean the same here
        self._tally, self._stage, self._model = tally, stage, job.model
        self._worker: StageWorker | None = None
        if _counted(tally.load, stage) <= TRIES + actors:
            self._worker = StageWorker(job)
            _counted(tally.loaded, stage)

    def __call__(self, rows: dict[str, np.ndarray[Any, Any]]) -> dict[str, list[bytes]]:
        return {
            "outcome": [
                self._done(int(number), bytes(batch))
                for number, batch in zip(rows["number"], rows["batch"], strict=True)
            ]
        }

    def _done(self, number: int, batch: bytes) -> bytes:
        if self._worker is None:
            told = (
                f"Actors ended again and again while they loaded {excerpt(self._model)}, mostly for lack of memory. "
                "Use fewer actors, more memory or a smaller dtype."
            )
            return encode(BatchOutcome(number=number, error=("BackendError", told)))
        if _counted(self._tally.begin, self._stage, number) > TRIES:
            told = f"{TRIES} actors in a row ended while they worked on the same questions, mostly for lack of memory."
            return encode(BatchOutcome(number=number, error=("BackendError", told)))
        return self._worker(batch)


def _counted(method: Any, *arguments: int) -> int:
    """What a tally says, or 0 where it cannot be reached: counting guards against endless repetition, and
    must not end a run itself."""
    import ray

    with suppress(ray.exceptions.RayError):
        return ray.get(method.remote(*arguments)) or 0
    return 0


class Driver:
    """What starts actors and gives them batches, in the process of
    :func:`~selfreflect.pipeline.ray_executor.drive`.

    The argument and the errors are those of :class:`~selfreflect.pipeline.ray_executor.RayExecutor`.
    """

    def __init__(self, address: str | None) -> None:
        if address is not None and "://" in address:
            raise ConfigError(
                f"--ray-address must be HOST:PORT or auto, not {excerpt(address)}: Ray's client is not served. "
                "Start the command on a machine of the cluster."
            )
        if address is not None and address != "auto":
            _knock(address)
        for name, value in _QUIET.items():
            os.environ.setdefault(name, value)
        try:
            import ray
            import ray.data
            import ray.util.scheduling_strategies
        except ImportError:
            raise MissingExtraError("--executor ray", "ray") from None
        logging.getLogger("ray.data").setLevel(logging.CRITICAL)  # what ends a run is raised as well
        try:
            with _muted():
                ray.init(
                    address=address or "local",
                    include_dashboard=None if address else False,
                    log_to_driver=False,
                    logging_level=logging.CRITICAL,
                )
        except (OSError, RuntimeError, ValueError, AssertionError, ray.exceptions.RayError) as error:
            place = f"at {excerpt(address)}" if address else "on this machine"
            hint = _TOKEN if address else ""
            raise BackendError(
                f"Ray has no cluster {place}: {excerpt(' '.join(str(error).split()), 300)}.{hint}"
            ) from None
        self._ray: Any = ray
        strategy = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy
        # without this machine nothing can go on anyway
        here = strategy(ray.get_runtime_context().get_node_id(), soft=False)
        self._tally = ray.remote(Tally).options(num_cpus=0, scheduling_strategy=here).remote()
        self._stages = count()

    def close(self) -> None:
        self._ray.shutdown()

    def streams(self, job: StageSpec, tasks: Sequence[StageTask]) -> Iterator[int | bytes]:
        """How many batches the tasks make, then an encoded ``BatchOutcome`` of each, in any order, some
        perhaps twice.

        Raises:
            ConfigError: an actor fits on no machine.
            BackendError: workers are lost.
        """
        with _losses_told():
            placement = placed(job, [node["Resources"] for node in self._ray.nodes() if node["Alive"]])
            prepared = split_into_batches(tasks, placement.actors or 1, placement.batch_questions or 1)
            yield len(prepared)
            yield from self._outcomes(job, prepared, placement)

    def _outcomes(self, job: StageSpec, prepared: Sequence[bytes], placement: Placement) -> Iterator[bytes]:
        ray = self._ray
        actors = min(placement.actors or 1, len(prepared))
        given = [{"number": number, "batch": batch} for number, batch in enumerate(prepared)]
        made = ray.data.from_items(given, override_num_blocks=len(given)).map_batches(
            Actor,
            fn_constructor_args=(
                _at(job, placement),
                str(Path.cwd()),
                self._tally,
                next(self._stages),
                actors,
            ),
            batch_size=1,
            compute=ray.data.ActorPoolStrategy(size=actors, max_tasks_in_flight_per_actor=2),
            num_gpus=placement.gpus,
            num_cpus=placement.cpus,
        )
        made.context.enable_progress_bars = False
        made.context.execution_no_progress_timeout_s = -1  # one batch may take hours
        for rows in made.iter_batches(batch_size=None, prefetch_batches=0):
            yield from (bytes(outcome) for outcome in rows["outcome"])


@contextmanager
def _losses_told() -> Iterator[None]:
    """Ray's own errors, raised here or by what ran in an actor, as an error of ours. Any other is a mistake,
    and keeps its traceback."""
    import ray

    try:
        yield
    except ray.exceptions.RayError as error:
        if isinstance(error, ray.exceptions.RayTaskError) and not isinstance(
            error.cause, ray.exceptions.RayError
        ):
            raise
        cause = str(error).strip().rpartition("\n")[2]  # after ids and traceback
        raise BackendError(
            f"Ray lost workers or their results: {excerpt(cause, 300)}. Its machines need the same selfreflect, extras and models."
        ) from None


@contextmanager
def _muted() -> Iterator[None]:
    """Ray's core writes to standard error whatever the log level. What goes wrong at its start is raised as
    well."""
    kept = os.dup(2)
    try:
        with Path(os.devnull).open("wb") as nowhere:
            os.dup2(nowhere.fileno(), 2)
            yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def _knock(address: str) -> None:
    """Raises BackendError where nothing listens at ``HOST:PORT``, which Ray would try for minutes."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=20).close()
    except (OSError, ValueError, OverflowError) as error:
        raise BackendError(f"Ray has no cluster at {excerpt(address)}: {excerpt(str(error), 200)}") from None


def placed(job: StageSpec, machines: Sequence[Mapping[str, float]]) -> Placement:
    """How the actors of a job are laid out where the settings leave it open.

    Args:
        machines: resources (``CPU``, ``GPU``) of each machine of the cluster.

    Raises:
        ConfigError: an actor fits on no machine.
    """
    wanted: Placement = getattr(job.config.ray, job.stage)
    heavy = job.local or kind_of(job.model) == "vllm"
    total = sum(machine.get("GPU", 0) for machine in machines)
    gpus = wanted.gpus
    if gpus is None:
        gpus = 1.0 if heavy and total and job.options.device in ("auto", "cuda") else 0.0
    processors = [machine["CPU"] for machine in machines if machine.get("CPU")]
    cpus = wanted.cpus or (min(processors, default=1.0) if heavy and not gpus else 1.0)
    room = [
        min(int(machine.get("CPU", 0) / cpus), _fitting(machine.get("GPU", 0), gpus)) for machine in machines
    ]
    where = f"[ray.{job.stage}]"
    if not any(room):
        raise ConfigError(
            f"{where}: an actor with {cpus:g} cpus and {gpus:g} gpus fits on no machine of the cluster, whose largest has "
            f"{max(processors, default=0):g} CPUs and {max((machine.get('GPU', 0) for machine in machines), default=0):g} GPUs"
        )
    if heavy and not gpus and job.options.device == "cuda":
        raise ConfigError(f"{where}: with --device cuda an actor needs a GPU, and gpus is 0")
    if job.local and job.options.device_map is not None:
        if gpus < 2:
            raise ConfigError(
                f"{where}: with --device-map auto an actor needs gpus = 2 or more in --config, and has {gpus:g}"
            )
    elif gpus > 1:
        raise ConfigError(
            f"{where}: an actor with {excerpt(job.model)} uses one GPU, and gpus is {gpus:g}; --device-map auto spreads local models"
        )
    usual = sum(room) if heavy else 1
    return Placement(
        actors=wanted.actors or usual,
        gpus=gpus,
        cpus=cpus,
        batch_questions=wanted.batch_questions or job.batch_size,
    )


def _fitting(available: float, gpus: float) -> int:
    """How many actors fit on a machine's GPUs. Ray lets none have parts of two."""
    if not gpus:
        return 10**9
    return int(available) * int(1 / gpus + 1e-9) if gpus < 1 else int(available / gpus)


def _at(job: StageSpec, placement: Placement) -> StageSpec:
    """The job for actors without GPUs: Ray does not hide those that others use."""
    if placement.gpus or job.options.device != "auto":
        return job
    return StageSpec(job.stage, job.config, job.prompts, replace(job.options, device="cpu"), job.strategies)
