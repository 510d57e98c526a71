"""How and where the work is done, and who watches it: what changes no results."""

from __future__ import annotations

import math
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Protocol

import msgspec

from selfreflect.config import POSITIVE, Flag, Range, check_values
from selfreflect.errors import ConfigError, excerpt
from selfreflect.models.spec import DEVICES

GUESSES = Range("from 0 to 100", lambda value: 0 <= value <= 100)
SECONDS = Range("a number of seconds above 0", lambda value: 0 < value < math.inf)


@dataclass(frozen=True)
class WorkDone:
    """What a stage has begun and done since the last report."""

    units: int = 0
    """Questions or summaries that were begun."""
    asked: int = 0
    """Sequences that a model was asked for."""
    ended: int = 0
    """Sequences that have ended."""
    tokens: int = 0

    def __add__(self, other: WorkDone) -> WorkDone:
        return WorkDone(
            self.units + other.units,
            self.asked + other.asked,
            self.ended + other.ended,
            self.tokens + other.tokens,
        )


class Counter(Protocol):
    def advance(self, count: int = 1, failed: int = 0) -> None:
        """Count what is finished, and what has failed and is not."""


class Progress(Protocol):
    """Watches an experiment."""

    def note(self, line: str) -> None: ...

    def warn(self, line: str) -> None:
        """Say what must not be overlooked."""

    def stage(self, name: str, total: int) -> AbstractContextManager[Counter]: ...

    def add(self, work: WorkDone) -> None:
        """Called often: for a local model with every token."""


class Quiet:
    """A :class:`Progress` that says nothing."""

    def note(self, line: str) -> None:
        pass

    def warn(self, line: str) -> None:
        pass

    def stage(self, name: str, total: int) -> AbstractContextManager[Counter]:
        return nullcontext(self)

    def add(self, work: WorkDone) -> None:
        pass

    def advance(self, count: int = 1, failed: int = 0) -> None:
        pass


class ExecutionOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How and where the work is done. A run directory does not record it, because it changes no results.

    Raises:
        ConfigError: a value is out of range, or two options contradict each other.
    """

    prompts: Annotated[Path | None, Flag("--prompts FILE", "TOML file that replaces some prompts.")] = None
    guesses: Annotated[
        int,
        Flag(
            "--guesses K",
            "For the report page, keep the judge's K likeliest tokens for every masked token.",
            range=GUESSES,
        ),
    ] = 0
    cache: Annotated[
        Path | None,
        Flag(
            "--cache DIR",
            "Keep the judge's states after the conditioning answers here, so that another summary of a "
            "question costs only itself: about 1 MB a question for smollm2, 4 GB at most. With limits, "
            "such as --budget, this helps only if the same words are scored again.",
        ),
    ] = None
    device: Annotated[
        str,
        Flag(
            "--device auto|cuda|cuda:N|mps|cpu",
            "Where local models run. All visible GPUs (CUDA_VISIBLE_DEVICES) fill a run directory together, "
            "each with a copy of the model.",
        ),
    ] = "auto"
    devices: tuple[str, ...] | None = ()
    """One process with a copy of a local model for each, such as ``("cuda:0", "cuda:1")``; None for all
    visible GPUs."""
    device_map: Annotated[
        str | None,
        Flag(
            "--device-map auto",
            "Spread one copy of a local model over all visible GPUs, for models too large for one of them.",
        ),
    ] = None
    executor: Annotated[
        str,
        Flag(
            "--executor local|ray",
            "Work on this machine, or with actors of a Ray cluster, which [ray.answers], [ray.summaries] and "
            "[ray.scores] in --config describe: actors, gpus, cpus, batch_questions. Either resumes a run.",
        ),
    ] = "local"
    ray_address: Annotated[
        str | None,
        Flag(
            "--ray-address HOST:PORT",
            "A running Ray cluster; auto finds the one on this machine. Its machines need selfreflect, the "
            "models, and API keys in the environment in which Ray was started.",
            default="a new cluster on this machine",
        ),
    ] = None
    batch_size: Annotated[
        int | None, Flag("--batch-size N", "Sequences decoded together.", range=POSITIVE)
    ] = None
    batch_questions: int = 8
    """Questions that a worker elsewhere takes at a time."""
    trust_remote_code: Annotated[
        bool, Flag("--trust-remote-code", "Run code that comes with a model from the hub.")
    ] = False
    max_connections: Annotated[
        int, Flag("--max-connections N", "Concurrent calls to a server, per Ray actor.", range=POSITIVE)
    ] = 16
    timeout: Annotated[
        float,
        Flag(
            "--timeout SECONDS",
            "Time limit for a response of a server; retries add up to twice that.",
            range=SECONDS,
        ),
    ] = 600.0

    def __post_init__(self) -> None:
        check_values(self)
        if not DEVICES.fullmatch(self.device):
            raise ConfigError(f"--device must be auto, cuda, cuda:N, mps or cpu, not {excerpt(self.device)}")
        if self.ray_address is not None and self.executor != "ray":
            raise ConfigError("--ray-address needs --executor ray")
