"""What a benchmark measures, and the figures that follow from it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

SCHEDULES = {"a": "requests", "b": "batched", "c": "engine"}
"""The letters of ``--only``, and the names in the keys of ``--json``."""

LABELS = {"a": "(a) one request per token", "b": "(b) requests in batches", "c": "(c) this engine"}

TOLERANCE = 1e-5
"""Largest allowed difference between two schedules in one distance, in float32."""


@dataclass(frozen=True)
class Timing:
    """One schedule on one item, from texts to distances."""

    seconds: float
    tokens: int
    """Tokens that went through the model, with padding."""
    memory: int | None
    """Peak bytes above the loaded model; None where the system does not tell."""


@dataclass(frozen=True)
class EngineSpeed:
    """The engine on one item, from trees to distances, and the machine's peak at that moment. The fields that
    may be None are so for architectures whose operations are not counted."""

    seconds: float
    flops: int | None = None
    peak_seconds: float | None = None
    """Seconds of the same operations at the machine's peak."""
    torch_gemm_seconds: float | None = None
    """The same with the kernel that torch chooses for matrix products."""


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
    engine: EngineSpeed | None = None
    """None if the engine did not run."""

    def seconds(self, letter: str) -> float | None:
        return self.timings[letter].seconds if letter in self.timings else None

    def speedup(self, letter: str) -> float | None:
        """How many times faster the engine is than another schedule."""
        return _ratio(self.seconds(letter), self.seconds("c"))

    @property
    def efficiency(self) -> float | None:
        """The share of the machine's peak that the engine reaches from trees to distances."""
        return _ratio(self.engine.peak_seconds, self.engine.seconds) if self.engine else None

    @property
    def efficiency_with_text(self) -> float | None:
        """The share from texts to scores, so with tokenising, building trees and making records."""
        return _ratio(self.engine.peak_seconds, self.seconds("c")) if self.engine else None


@dataclass(frozen=True)
class Scaled:
    """One point of a curve."""

    axis: str
    value: int
    measured: Measured


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
    scaling: list[Scaled] = field(default_factory=list)

    @property
    def everything(self) -> list[Measured]:
        return [*self.items, *(point.measured for point in self.scaling)]

    @property
    def difference(self) -> float | None:
        differences = [measured.difference for measured in self.everything]
        return max(_known(differences), default=None)

    @property
    def disagreeing(self) -> list[Measured]:
        """The items whose schedules differ by more than the tolerance, which holds for float32 only."""
        if self.machine["dtype"] != "float32":
            return []
        return [measured for measured in self.everything if (measured.difference or 0) > TOLERANCE]


def to_json(result: Result) -> dict[str, Any]:
    """What ``--json`` prints: medians over the items, sums of tokens, the largest memory, then every item in
    full. None means not measured."""
    items = result.items
    engines = [item.engine for item in items if item.engine]
    figures: dict[str, Any] = {
        "machine": result.machine,
        "n_items": len(items),
        "batch_size": result.batch_size,
    }
    for letter, name in SCHEDULES.items():
        timings = [item.timings[letter] for item in items if letter in item.timings]
        figures[f"seconds_{name}"] = _median(timing.seconds for timing in timings)
        figures[f"tokens_{name}"] = sum(timing.tokens for timing in timings) if timings else None
        figures[f"memory_{name}_bytes"] = max(_known([timing.memory for timing in timings]), default=None)
        if letter != "c":
            figures[f"speedup_against_{name}"] = _median(item.speedup(letter) for item in items)
    figures |= {
        "tokens_tree": sum(item.tree_tokens for item in items),
        "requests": sum(item.requests for item in items),
        "efficiency_of_gemm_peak": _median(item.efficiency for item in items),
        "efficiency_with_text": _median(item.efficiency_with_text for item in items),
        "flop_per_second_engine": _median(_ratio(speed.flops, speed.seconds) for speed in engines),
        "flop_per_second_gemm_peak": _median(_ratio(speed.flops, speed.peak_seconds) for speed in engines),
        "flop_per_second_torch_gemm": _median(
            _ratio(speed.flops, speed.torch_gemm_seconds) for speed in engines
        ),
        "difference_largest": result.difference,
        "tolerance": TOLERANCE if result.machine["dtype"] == "float32" else None,
        "batch_trials": [{"size": size, "seconds": seconds} for size, seconds in result.batch_trials.items()],
        "items": [_item_json(item) for item in items],
        "scaling": [
            {"axis": point.axis, "value": point.value, **_item_json(point.measured)}
            for point in result.scaling
        ],
    }
    return figures


def _item_json(measured: Measured) -> dict[str, Any]:
    figures: dict[str, Any] = {
        "id": measured.id,
        "requests": measured.requests,
        "tokens_tree": measured.tree_tokens,
    }
    for letter, timing in measured.timings.items():
        name = SCHEDULES[letter]
        figures[f"seconds_{name}"] = timing.seconds
        figures[f"tokens_{name}"] = timing.tokens
        figures[f"memory_{name}_bytes"] = timing.memory
        if letter != "c" and "c" in measured.timings:
            figures[f"speedup_against_{name}"] = measured.speedup(letter)
    engine = measured.engine
    return figures | {
        "difference": measured.difference,
        "flops": engine.flops if engine else None,
        "model_seconds_engine": engine.seconds if engine else None,
        "efficiency_of_gemm_peak": measured.efficiency,
        "efficiency_with_text": measured.efficiency_with_text,
    }


def _ratio(numerator: float | None, denominator: float | None) -> float | None:
    return None if numerator is None or denominator is None else numerator / denominator


def _known(values: Sequence[float | None]) -> list[float]:
    return [value for value in values if value is not None]


def _median(values: Iterable[float | None]) -> float | None:
    known = _known(list(values))
    return median(known) if known else None
