"""What a benchmark measures, and the figures that follow from it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from selfreflect.bench.scaling import ScalingPoint

SCHEDULES = {"a": "requests", "b": "batched", "c": "engine"}
"""The letters of ``--only``, and the names in the keys of ``--json``."""

LABELS = {"a": "(a) one request per token", "b": "(b) requests in batches", "c": "(c) this engine"}

TOLERANCE = 1e-5
"""Largest allowed difference between two schedules in one distance, in float32."""

SUMMARY: dict[str, Callable[[list[float]], float]] = {
    "seconds_requests": median,
    "seconds_batched": median,
    "seconds_engine": median,
    "speedup_against_requests": median,
    "speedup_against_batched": median,
    "tokens_requests": sum,
    "tokens_batched": sum,
    "tokens_engine": sum,
    "tokens_tree": sum,
    "requests": sum,
    "memory_requests_bytes": max,
    "memory_batched_bytes": max,
    "memory_engine_bytes": max,
    "efficiency_of_gemm_peak": median,
    "efficiency_with_text": median,
    "flop_per_second_engine": median,
    "flop_per_second_gemm_peak": median,
    "flop_per_second_torch_gemm": median,
}
"""Figures of an item, and how those of all items become one."""


@dataclass(frozen=True)
class Timing:
    """One schedule on one item, from texts to distances."""

    seconds: float
    tokens: int
    """Tokens that went through the model, with padding."""
    memory: int | None
    """Peak bytes above the loaded model; None where the system does not tell."""


@dataclass(frozen=True)
class MachineSpeed:
    """The operations that an item needs, and their seconds at the machine's speed in matrix products."""

    flops: int
    peak_seconds: float
    """With the fastest kernel for each shape."""
    torch_gemm_seconds: float
    """With the kernel that torch chooses."""


@dataclass(frozen=True)
class Measured:
    """One item."""

    id: str
    requests: int
    tree_tokens: int
    timings: dict[str, Timing]
    """By the schedule's letter."""
    difference: float | None
    """Largest difference between two schedules in any distance; None if only one ran."""
    model_seconds: float | None = None
    """Seconds of the engine from trees to distances; None if it did not run."""
    machine: MachineSpeed | None = None
    """None for architectures whose operations are not counted, and if the engine did not run."""

    @property
    def figures(self) -> dict[str, Any]:
        """What ``--json`` prints of an item."""
        figures: dict[str, Any] = {
            "id": self.id,
            "requests": self.requests,
            "tokens_tree": self.tree_tokens,
            "difference": self.difference,
            "flops": None,
            "model_seconds_engine": self.model_seconds,
            "efficiency_of_gemm_peak": None,
            "efficiency_with_text": None,
        }
        engine = self.timings.get("c")
        for letter, timing in self.timings.items():
            name = SCHEDULES[letter]
            figures[f"seconds_{name}"] = timing.seconds
            figures[f"tokens_{name}"] = timing.tokens
            figures[f"memory_{name}_bytes"] = timing.memory
            if letter != "c" and engine:
                figures[f"speedup_against_{name}"] = timing.seconds / engine.seconds
        if self.machine and self.model_seconds and engine:
            flops = self.machine.flops
            figures |= {
                "flops": flops,
                "efficiency_of_gemm_peak": self.machine.peak_seconds / self.model_seconds,
                "efficiency_with_text": self.machine.peak_seconds / engine.seconds,
                "flop_per_second_engine": flops / self.model_seconds,
                "flop_per_second_gemm_peak": flops / self.machine.peak_seconds,
                "flop_per_second_torch_gemm": flops / self.machine.torch_gemm_seconds,
            }
        return figures


@dataclass
class Result:
    """Filled while a benchmark runs, so that an interrupted one keeps what it has."""

    machine: dict[str, Any]
    only: tuple[str, ...]
    """Letters of the schedules."""
    batch_size: int | None = None
    """Requests that (b) computes together."""
    batch_trials: dict[int, float] = field(default_factory=dict)
    """Batch size to seconds, on the reference and the first summary of an item of median size."""
    items: list[Measured] = field(default_factory=list)
    scaling: list[tuple[ScalingPoint, Measured]] = field(default_factory=list)
    """The points of the curves."""

    @property
    def everything(self) -> list[Measured]:
        return [*self.items, *(measured for _, measured in self.scaling)]

    @property
    def difference(self) -> float | None:
        """Largest difference between two schedules; None if only one ran."""
        if len(self.only) < 2 or not self.everything:
            return None
        return max(item.difference or 0 for item in self.everything)

    @property
    def disagreeing(self) -> list[Measured]:
        """The items whose schedules differ by more than the tolerance, which holds for float32 only."""
        if self.machine["dtype"] != "float32":
            return []
        return [item for item in self.everything if (item.difference or 0) > TOLERANCE]


def to_json(result: Result) -> dict[str, Any]:
    """What ``--json`` prints: each figure over all items, then every item. None means not measured."""
    items = [item.figures for item in result.items]
    figures: dict[str, Any] = {
        "machine": result.machine,
        "n_items": len(items),
        "batch_size": result.batch_size,
        "difference_largest": result.difference,
        "tolerance": TOLERANCE if result.machine["dtype"] == "float32" else None,
    }
    for name, combine in SUMMARY.items():
        values = [item[name] for item in items if item.get(name) is not None]
        figures[name] = combine(values) if values else None
    figures |= {"batch_trials": [], "items": items, "scaling": []}
    for size, seconds in result.batch_trials.items():
        figures["batch_trials"].append({"size": size, "seconds": seconds})
    for point, measured in result.scaling:
        figures["scaling"].append({"axis": point.axis, "value": point.value, **measured.figures})
    return figures
