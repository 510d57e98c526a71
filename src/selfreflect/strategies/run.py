"""Run one strategy on one question, turning everything that can go wrong into a failure."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from traceback import extract_tb
from types import GeneratorType
from typing import TypeAlias, TypeVar, cast

import msgspec

from selfreflect.errors import excerpt
from selfreflect.models.base import Completion, Generator, Refusal, Reply, Request
from selfreflect.records import Failure, FailureKind, Summary, from_plain
from selfreflect.strategies.task import StrategyFunction, Task

StrategyOutcome: TypeAlias = Summary | Failure
Coroutine: TypeAlias = "GeneratorType[Request | Sequence[Request], list[Reply], str]"
T = TypeVar("T")

UNUSABLE: dict[FailureKind, str] = {
    "unclosed_reasoning": "never ended their reasoning trace",
    "content_filter": "were withheld by the server's content filter",
}
"""How a completion may end that no strategy can use."""


class StrategyRun:
    """Advances a strategy from one round of requests to the next."""

    def __init__(self, task: Task, function: StrategyFunction, generator: Generator) -> None:
        self.requests: list[Request] = []
        """The requests it waits for; empty before the first :meth:`advance`."""
        self._task = task
        self._function = function
        self._generator = generator
        self._coroutine: Coroutine | None = None
        self._tokens = 0
        self._calls = 0
        self._cut = False

    def advance(self, replies: Sequence[Reply | Refusal]) -> StrategyOutcome | None:
        """Send the strategy a reply to each of ``requests``; return the outcome, or None if it has new
        requests."""
        usable = []
        completions: list[Completion] = []
        for reply in replies:
            if isinstance(reply, Refusal):
                return self._fail(reply.kind, reply.message)
            usable.append(reply)
            completions += reply.completions
        self._tokens += sum(completion.tokens for completion in completions)
        self._calls += len(completions)
        ends: Counter[str] = Counter(completion.finish for completion in completions)
        self._cut = ends["length"] > 0
        problem = _unusable(usable, ends)
        if problem:
            return self._fail(*problem)
        result = guarded(lambda: self._resume(usable))
        if isinstance(result, StopIteration):
            return self._finish(result.value)
        if isinstance(result, Exception):
            message = f"{type(result).__name__}: {excerpt(str(result), 200)}{self._location(result)}"
            return self._fail("strategy", message)
        self.requests = result
        return None

    def close(self) -> None:
        """Let the strategy clean up, if it has not ended."""
        if self._coroutine is not None:
            guarded(self._coroutine.close)

    def _resume(self, replies: list[Reply]) -> list[Request]:
        if self._coroutine is None:
            coroutine = self._function(self._task)
            if not inspect.isgenerator(coroutine):
                raise TypeError("a strategy must be a generator function: one that yields its requests")
            self._coroutine = cast(Coroutine, coroutine)
            return _requests(next(self._coroutine))
        return _requests(self._coroutine.send(replies))

    def _finish(self, text: object) -> StrategyOutcome:
        if not isinstance(text, str):
            return self._fail("strategy", f"returned {type(text).__name__} instead of a text")
        if not text.strip():
            if self._cut:
                return self._fail("cut_off", "the token limit was reached before there was a summary")
            return self._fail("blank_summary", "the summary is blank")
        return Summary(
            question_id=self._task.question.id,
            name=self._task.name,
            text=text,
            model=self._generator.name,
            revision=self._generator.revision,
            seed=self._task.seed,
            tokens=self._tokens,
            calls=self._calls,
        )

    def _fail(self, kind: FailureKind, message: str) -> Failure:
        self.close()
        return Failure(
            question_id=self._task.question.id,
            stage="summaries",
            name=self._task.name,
            kind=kind,
            message=message,
        )

    def _location(self, error: Exception) -> str:
        """Name the line of the strategy's own file where it failed, if it was running."""
        file = self._coroutine.gi_code.co_filename if self._coroutine else None
        lines = [frame.lineno for frame in extract_tb(error.__traceback__) if frame.filename == file]
        return f" (line {lines[-1]} of {Path(str(file)).name})" if lines else ""


def _unusable(replies: Sequence[Reply], ends: Counter[str]) -> tuple[FailureKind, str] | None:
    """Say why the strategy cannot use its replies, if so. Among several samples a refusal is a valid
    answer."""
    for kind, reason in UNUSABLE.items():
        if ends[kind]:
            return kind, f"{ends[kind]} of {ends.total()} completions {reason}"
    for reply in replies:
        if len(reply.completions) == 1 and reply.completions[0].finish == "refused":
            return "refused", f"the model declined: {excerpt(reply.text, 200)}"
    return None


def _requests(yielded: object) -> list[Request]:
    """Check what a strategy yielded: one malformed request would fail the whole batch it is sent with."""
    requests = list(yielded) if isinstance(yielded, list | tuple) else [yielded]
    if not requests or not all(isinstance(request, Request) for request in requests):
        raise TypeError("a strategy must yield a Request or a list of them")
    checked = [from_plain(Request, msgspec.to_builtins(request)) for request in requests]
    if not all(request.messages and request.n > 0 for request in checked):
        raise ValueError("a Request needs at least one message and one completion")
    return checked


def guarded(call: Callable[[], T]) -> T | Exception:
    """Call a strategy, which is arbitrary code, and return its result or the exception it raised, so that an
    error costs one summary only. StopIteration means that it returned; KeyboardInterrupt passes."""
    try:
        return call()
    except Exception as error:
        return error
