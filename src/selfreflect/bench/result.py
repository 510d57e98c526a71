"""What a benchmark has measured, and the figures that follow from it."""

from __future__ import annotations

from dataclasses import dataclass, field
from statistics import median
from typing import Any

SCHEDULES = {"a": "requests", "b": "batched", "c": "engine"}
"""The letters of ``--only`` and what the keys of ``--json`` call them."""

NAMES = {"a": "(a) one request per token", "b": "(b) requests in batches", "c": "(c) this engine"}

TOLERANCE = 1e-5
"""How far two schedules may differ in one distance, in float32."""


@dataclass(frozen=True)
class Timing:
    """One schedule on one item, from texts to distances."""

    seconds: float
    tokens: int
    """Tokens that went through the model, padding included."""
    memory: int | None
    """Bytes at most above the loaded model; None where the system does not tell."""


@dataclass(frozen=True)
class Measured:
    """One item."""

    id: str
    requests: int
    tree_tokens: int
    timings: dict[str, Timing]
    """By letter."""
    difference: float | None
    """Largest between two schedules in any distance; None where only one ran."""
    model_seconds: float | None = None
    """What the engine takes from trees to distances at best, measured apart; None where it did not run."""
    flops: int | None = None
    """None for architectures whose operations are not counted, and where the engine did not run."""
    peak_seconds: float | None = None
    """What its operations would take at the peak of the machine."""
    usual_seconds: float | None = None
    """The same with the kernel that torch itself chooses for matrix products."""

    def seconds(self, letter: str) -> float | None:
        return self.timings[letter].seconds if letter in self.timings else None

    def speedup(self, letter: str) -> float | None:
        """How many times faster the engine is."""
        other, own = self.seconds(letter), self.seconds("c")
        return None if other is None or own is None else other / own

    @property
    def efficiency(self) -> float | None:
        """Share of the machine's peak that the engine reaches."""
        return (
            None
            if self.peak_seconds is None or self.model_seconds is None
            else self.peak_seconds / self.model_seconds
        )

    @property
    def efficiency_with_text(self) -> float | None:
        """The same with everything that is not model: tokenising, building trees, records."""
        own = self.seconds("c")
        return None if self.peak_seconds is None or own is None else self.peak_seconds / own


@dataclass(frozen=True)
class Scaled:
    """One point of a curve."""

    axis: str
    value: int
    measured: Measured


@dataclass
class Result:
    """Filled while a benchmark runs, so that one that is stopped keeps what it has."""

    machine: dict[str, Any]
    only: tuple[str, ...]
    """Letters of the schedules."""
    batch_size: int | None = None
    batch_trials: dict[int, float] = field(default_factory=dict)
    """Size to seconds, on the reference and the first summary of an item of middling size."""
    items: list[Measured] = field(default_factory=list)
    scaling: list[Scaled] = field(default_factory=list)

    @property
    def everything(self) -> list[Measured]:
        return [*self.items, *(point.measured for point in self.scaling)]

    @property
    def difference(self) -> float | None:
        return max((one.difference for one in self.everything if one.difference is not None), default=None)

    @property
    def disagreeing(self) -> list[Measured]:
        """Items whose schedules differ by more than they may; only float32 is held to it."""
        if self.machine["dtype"] != "float32":
            return []
        return [one for one in self.everything if one.difference is not None and one.difference > TOLERANCE]


def figures(result: Result) -> dict[str, Any]:
    """What ``--json`` prints: medians over the items, sums of tokens, the largest memory, then everything in
    full. None is not measured."""
    items = result.items
    found: dict[str, Any] = {
        "machine": result.machine,
        "n_items": len(items),
        "batch_size": result.batch_size,
    }
    for letter, name in SCHEDULES.items():
        found[f"seconds_{name}"] = _median([one.seconds(letter) for one in items])
        found[f"tokens_{name}"] = _sum(
            [one.timings[letter].tokens if letter in one.timings else None for one in items]
        )
        found[f"memory_{name}_bytes"] = most_memory(items, letter)
        if letter != "c":
            found[f"speedup_against_{name}"] = _median([one.speedup(letter) for one in items])
    found |= {
        "tokens_tree": _sum([one.tree_tokens for one in items]),
        "requests": _sum([one.requests for one in items]),
        "efficiency_of_gemm_peak": _median([one.efficiency for one in items]),
        "efficiency_with_text": _median([one.efficiency_with_text for one in items]),
        "flop_per_second_engine": _median([rate(one.flops, one.model_seconds) for one in items]),
        "flop_per_second_gemm_peak": _median([rate(one.flops, one.peak_seconds) for one in items]),
        "flop_per_second_torch_gemm": _median([rate(one.flops, one.usual_seconds) for one in items]),
        "difference_largest": result.difference,
        "tolerance": TOLERANCE if result.machine["dtype"] == "float32" else None,
        "batch_trials": [{"size": size, "seconds": seconds} for size, seconds in result.batch_trials.items()],
        "items": [_line(one) for one in items],
        "scaling": [
            {"axis": point.axis, "value": point.value, **_line(point.measured)} for point in result.scaling
        ],
    }
    return found


def most_memory(items: list[Measured], letter: str) -> int | None:
    peaks = [one.timings[letter].memory for one in items if letter in one.timings]
    return max((peak for peak in peaks if peak is not None), default=None)


def rate(flops: int | None, seconds: float | None) -> float | None:
    return None if flops is None or seconds is None else flops / seconds


def _line(one: Measured) -> dict[str, Any]:
    line: dict[str, Any] = {"id": one.id, "requests": one.requests, "tokens_tree": one.tree_tokens}
    for letter, name in SCHEDULES.items():
        if (timing := one.timings.get(letter)) is not None:
            line |= {
                f"seconds_{name}": timing.seconds,
                f"tokens_{name}": timing.tokens,
                f"memory_{name}_bytes": timing.memory,
            }
        if letter != "c" and (speedup := one.speedup(letter)) is not None:
            line[f"speedup_against_{name}"] = speedup
    return line | {
        "difference": one.difference,
        "flops": one.flops,
        "model_seconds_engine": one.model_seconds,
        "efficiency_of_gemm_peak": one.efficiency,
        "efficiency_with_text": one.efficiency_with_text,
    }


def _median(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None


def _sum(values: list[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None
