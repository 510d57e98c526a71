"""What changes the speed and the place of the work but not its results, and who watches it."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Annotated, Protocol

import msgspec

from selfreflect.config import Flag, check_values
from selfreflect.errors import ConfigError


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
    """How and where the work is done. A run directory does not record it, because it changes no results.

    Raises:
        ConfigError: a value is out of range, or two options contradict each other.
    """

    prompts: Annotated[Path | None, Flag("--prompts FILE", "TOML file that replaces some prompts.")] = None
    guesses: Annotated[
        int,
        Flag(
            "--guesses K",
            "Keep the judge's K likeliest tokens in both contexts for every masked token, for the report "
            "page.",
            at_least=0,
        ),
    ] = 0
    cache: Annotated[
        Path | None,
        Flag(
            "--cache DIR",
            "Keep the judge's states after the conditioning answers here (about 1 MB a question for "
            "smollm2, 4 GB at most), so that another summary of a question costs only itself.",
        ),
    ] = None
    device: Annotated[
        str,
        Flag(
            "--device DEVICE",
            "auto, cuda, mps or cpu. A run directory is filled by all visible GPUs (CUDA_VISIBLE_DEVICES), "
            "each with a copy of a local model.",
            choices=("auto", "cuda", "mps", "cpu"),
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
            choices=("auto",),
        ),
    ] = None
    executor: Annotated[
        str,
        Flag(
            "--executor local|ray",
            "Work on this machine, or with actors of a Ray cluster; [ray.answers], [ray.summaries] and "
            "[ray.scores] in --config set their number (actors), gpus and cpus of each, and "
            "batch_questions. A run can be resumed with either.",
            choices=("local", "ray"),
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
        int | None,
        Flag("--batch-size N", "Sequences decoded together; does not change results.", at_least=1),
    ] = None
    batch_questions: int = 8
    """Questions that a worker elsewhere takes at a time."""
    trust_remote_code: Annotated[
        bool, Flag("--trust-remote-code", "Run code that comes with a model from the hub.")
    ] = False
    max_connections: Annotated[
        int,
        Flag(
            "--max-connections N",
            "Concurrent calls to a server; with --executor ray, per actor.",
            at_least=1,
        ),
    ] = 16
    timeout: Annotated[
        float,
        Flag(
            "--timeout SECONDS",
            "Time limit for one response of a server; with retries a call takes up to three times as long.",
        ),
    ] = 600.0

    def __post_init__(self) -> None:
        check_values(self)
        if self.ray_address is not None and self.executor != "ray":
            raise ConfigError("--ray-address needs --executor ray")
        if not 0 < self.timeout < float("inf"):
            raise ConfigError(f"--timeout must be a number of seconds above 0, not {self.timeout}")
        if self.guesses > 100:
            raise ConfigError(f"--guesses must be at most 100, not {self.guesses}")
