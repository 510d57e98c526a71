"""What changes the speed and the place of the work but not its results, and who watches it."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Protocol

import msgspec

from selfreflect.errors import ConfigError, excerpt

EXECUTORS = ("local", "ray")


class Counter(Protocol):
    def advance(self, count: int = 1) -> None: ...


class Progress(Protocol):
    """What the experiment tells whoever watches it."""

    def note(self, line: str) -> None: ...

    def stage(self, name: str, total: int) -> AbstractContextManager[Counter]: ...


class Quiet:
    """A :class:`Progress` that says nothing."""

    def note(self, line: str) -> None:
        pass

    def stage(self, name: str, total: int) -> AbstractContextManager[Counter]:
        return nullcontext(self)

    def advance(self, count: int = 1) -> None:
        pass


class ExecutionOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Settings that change speed and place but not results; they are not part of a run's configuration."""

    device: str = "auto"
    devices: tuple[str, ...] | None = ()
    """Each gets a process with a copy of a local model, such as ``("cuda:0", "cuda:1")``; None for all GPUs
    that are visible."""
    device_map: str | None = None
    """``"auto"`` spreads one local model over all visible GPUs."""
    executor: str = "local"
    """``"ray"`` lets actors of a Ray cluster work."""
    ray_address: str | None = None
    """An existing cluster; else one is started on this machine."""
    batch_size: int | None = None
    batch_questions: int = 8
    trust_remote_code: bool = False
    max_connections: int = 16
    """Calls to a server under way at a time, from each worker."""
    timeout: float = 600.0
    """Seconds that a server has for one try of a call."""
    prompts: Path | None = None
    guesses: int = 0
    """For each token task, how many of the judge's likeliest tokens in either context are kept beside its
    distance."""
    cache: Path | None = None
    """Where reference states are kept."""

    def __post_init__(self) -> None:
        if self.device not in ("auto", "cuda", "mps", "cpu"):
            raise ConfigError(f"--device must be auto, cuda, mps or cpu, not {excerpt(self.device)}")
        if self.device_map not in (None, "auto"):
            raise ConfigError(f"--device-map must be auto, not {excerpt(self.device_map)}")
        if self.executor not in EXECUTORS:
            raise ConfigError(f"--executor must be {' or '.join(EXECUTORS)}, not {excerpt(self.executor)}")
        if self.ray_address is not None and self.executor != "ray":
            raise ConfigError("--ray-address is that of a Ray cluster and goes with --executor ray")
        if self.batch_size is not None and self.batch_size < 1:
            raise ConfigError(f"--batch-size must be at least 1, not {self.batch_size}")
        if self.max_connections < 1:
            raise ConfigError(f"--max-connections must be at least 1, not {self.max_connections}")
        if not 0 < self.timeout < float("inf"):
            raise ConfigError(f"--timeout must be a number of seconds above 0, not {self.timeout}")
        if not 0 <= self.guesses <= 100:
            raise ConfigError(f"--guesses must be between 0 and 100, not {self.guesses}")
