"""How and where the work is done, and who watches it: what changes no results."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Protocol

from selfreflect.config import ExecutionConfig, Flag, Range
from selfreflect.errors import ConfigError

GUESSES = Range("from 0 to 100", lambda value: 0 <= value <= 100)


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
    planned: int = 0
    """Tokens of what was begun: of sequences at most, of what a judge reads about."""

    def __add__(self, other: WorkDone) -> WorkDone:
        return WorkDone(
            self.units + other.units,
            self.asked + other.asked,
            self.ended + other.ended,
            self.tokens + other.tokens,
            self.planned + other.planned,
        )


class Counter(Protocol):
    def advance(self, count: int = 1, failures: int = 0) -> None:
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

    def advance(self, count: int = 1, failures: int = 0) -> None:
        pass


class ExecutionOptions(ExecutionConfig, frozen=True, kw_only=True):
    """How and where the work is done: what files of settings may say of it, and what only a command or a
    caller may.

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
            "Store the judge's states after the conditioning answers in DIR, so that one more"
            " summary of a question is cheap to score: about 1 MB per question for smollm2, 4"
            " GB at most. With limits, such as --budget, this helps only if the same words "
            "are scored again.",
        ),
    ] = None
    devices: tuple[str, ...] | None = ()
    """One process with a copy of a local model for each, such as ``("cuda:0", "cuda:1")``; None for all
    visible GPUs."""
    batch_questions: int = 8
    """Questions that a worker elsewhere takes at a time."""
    trust_remote_code: Annotated[
        bool, Flag("--trust-remote-code", "Run code that comes with a model from the hub.")
    ] = False

    def __post_init__(self) -> None:
        self.check()
        if self.ray_address is not None and self.executor != "ray":
            raise ConfigError("--ray-address needs --executor ray")
