"""How the actors of a stage are laid out on a Ray cluster. Pure policy: no Ray is needed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from selfreflect.config import Placement
from selfreflect.errors import ConfigError, excerpt
from selfreflect.pipeline.stages import StageSpec


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
