"""Lock-step execution of strategies on many questions, with one generator call per round. Errors of
strategies become failures."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Container, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from types import GeneratorType
from typing import TypeAlias, cast

import msgspec
from msgspec import UNSET

from selfreflect.errors import excerpt
from selfreflect.models.base import (
    Completion,
    Generator,
    Refusal,
    Reply,
    Request,
    Sample,
    Sampling,
    Watch,
    as_drawn,
)
from selfreflect.plugins import USER_ERRORS, error_text
from selfreflect.prompts import Prompts, load_prompts
from selfreflect.records import Failure, FailureKind, Question, Summary, from_plain
from selfreflect.strategies import load_strategy
from selfreflect.strategies.task import (
    FRESH,
    GREEDY,
    THINKING,
    MalformedReplyError,
    StatedSummary,
    StrategyFunction,
    Task,
)

StrategyOutcome: TypeAlias = Summary | Failure
Coroutine: TypeAlias = "GeneratorType[Request | Sequence[Request], list[Reply], str | StatedSummary]"

Named: TypeAlias = str | tuple[str, StrategyFunction]
"""Strategy as a name for ``load_strategy``, or any name with its function."""

UNUSABLE: dict[FailureKind, str] = {
    "unclosed_reasoning": "never ended their reasoning trace",
    "content_filter": "were withheld by the server's content filter",
}
"""Endings of completions that no strategy can use."""


def summarize(
    questions: Sequence[Question],
    strategies: Sequence[Named],
    generator: Generator,
    *,
    prompts: Prompts | None = None,
    sampling: Sampling | None = None,
    sample_sampling: Sampling = FRESH,
    num_samples: int = 50,
    seed: int = 0,
    thinking: bool = False,
    skip: Container[tuple[str, str]] = (),
    watch: Watch | None = None,
) -> Iterator[StrategyOutcome]:
    """Summarise every question with every strategy, yielding summaries and failures as they come.

    A summary cut off at the token limit is kept if it has text; strategies with a final part need one that
    has begun. Questions run in lock step. Seeds depend neither on the other questions nor on ``skip``, so a
    resumed run gives the same texts.

    Args:
        strategies: each with a name of its own, which identifies its summaries.
        sampling: of the summary; by default ``GREEDY``, or ``THINKING`` if ``thinking``.
        skip: pairs (question id, strategy name) to leave out.
        watch: is told of the requests and of each event.

    Raises:
        ConfigError: at once, for an unknown strategy.
        BackendError: while iterating, if the generator breaks its contract or gives up.
    """
    # loaded before the first request, so that a mistyped name costs nothing
    functions: dict[str, StrategyFunction] = dict(
        strategy if isinstance(strategy, tuple) else (strategy, load_strategy(strategy))
        for strategy in strategies
    )
    task = partial(
        Task,
        prompts=prompts or load_prompts(),
        sampling=sampling or (THINKING if thinking else GREEDY),
        sample_sampling=sample_sampling,
        num_samples=num_samples,
        seed=seed,
        thinking=thinking,
    )

    runs = []
    for question in questions:
        for name, function in functions.items():
            if (question.id, name) not in skip:
                runs.append(StrategyRun(task(question=question, name=name), function, generator))
    return _lock_step(runs, generator, watch)


def _lock_step(
    runs: Sequence[StrategyRun], generator: Generator, watch: Watch | None
) -> Iterator[StrategyOutcome]:
    """Repeat rounds of one generator call for all waiting runs; the first has no requests."""
    current = list(runs)
    try:
        while current:
            waiting = []
            for run, replies in _round(current, generator, watch):
                outcome = run.advance(replies)
                if outcome is None:
                    waiting.append(run)
                else:
                    yield outcome
            current = waiting
    finally:
        # so that a strategy's finally blocks run now, and not at some later collection
        for run in runs:
            run.close()


def _round(
    runs: Sequence[StrategyRun], generator: Generator, watch: Watch | None
) -> Iterator[tuple[StrategyRun, list[Reply | Refusal]]]:
    """Yield each run with its responses as soon as all have arrived. Equal requests share one."""
    needs = [list(run.requests) for run in runs]  # copies, because an advanced run has new requests
    missing = [len(set(need)) for need in needs]
    # equal requests are sent once: strategies that draw samples share them
    users: dict[Request, list[int]] = {}
    for number, need in enumerate(needs):
        for request in dict.fromkeys(need):
            users.setdefault(request, []).append(number)
        if not need:
            yield runs[number], []
    requests = list(users)
    if not requests:
        return
    replies: dict[Request, Reply | Refusal] = {}
    for index, reply in as_drawn(generator, requests, watch):
        if isinstance(reply, Sample):  # a strategy waits for the whole reply
            continue
        request = requests[index]
        if isinstance(reply, Reply) and len(reply.completions) != request.n:
            count = f"{len(reply.completions)} completions instead of {request.n}"
            reply = Refusal(kind="backend", message=f"the generator returned {count}")
        replies[request] = reply
        for number in users[request]:
            missing[number] -= 1
            if not missing[number]:
                yield runs[number], [replies[index] for index in needs[number]]


@dataclass(eq=False)
class StrategyRun:
    """A strategy in progress, from one round of requests to the next."""

    _task: Task
    _function: StrategyFunction
    _generator: Generator
    requests: list[Request] = field(default_factory=list)
    """Pending requests; empty before the first :meth:`advance`."""
    _coroutine: Coroutine | None = None
    _tokens: int = 0
    _calls: int = 0
    _cut: bool = False
    _last: int = 0
    """Number of completions in the last step."""

    def advance(self, replies: Sequence[Reply | Refusal]) -> StrategyOutcome | None:
        """Send a response for each of ``requests``; return the outcome, or None if new requests follow."""
        usable = []
        completions: list[Completion] = []
        for reply in replies:
            if isinstance(reply, Refusal):
                return self._fail(reply.kind, reply.message, reply.code)
            usable.append(reply)
            completions += reply.completions
        self._tokens += sum(completion.tokens for completion in completions)
        self._calls += len(completions)
        self._last = len(completions)
        # cut-off texts may be used, withheld ones and endless reasoning may not
        ends: Counter[str] = Counter(completion.finish for completion in completions)
        self._cut = ends["length"] > 0
        problem = _unusable(usable, ends)
        if problem:
            return self._fail(*problem)
        try:
            if self._coroutine is None:
                coroutine = self._function(self._task)
                if not inspect.isgenerator(coroutine):
                    raise TypeError("a strategy must be a generator function: one that yields its requests")
                self._coroutine = cast(Coroutine, coroutine)
                self.requests = _requests(next(self._coroutine))
            else:
                self.requests = _requests(self._coroutine.send(usable))
        except StopIteration as end:
            return self._finish(end.value)
        except MalformedReplyError as error:
            return self._fail("malformed", str(error))
        except USER_ERRORS as error:  # an error must cost one summary only
            file = self._coroutine.gi_code.co_filename if self._coroutine else None
            return self._fail("strategy", error_text(error, file))
        return None

    def close(self) -> None:
        """Let an unfinished strategy clean up."""
        if self._coroutine is not None:
            with suppress(*USER_ERRORS):
                self._coroutine.close()

    def _finish(self, result: object) -> StrategyOutcome:
        statement = result if isinstance(result, StatedSummary) else None
        text = statement.text if statement else result
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
            truncated=self._cut and self._last == 1,
            parts=statement.parts if statement else UNSET,
        )

    def _fail(self, kind: FailureKind, message: str, code: str = "") -> Failure:
        self.close()
        return Failure(
            question_id=self._task.question.id,
            stage="summaries",
            name=self._task.name,
            kind=kind,
            message=message,
            code=code,
        )


def _unusable(replies: Sequence[Reply], ends: Counter[str]) -> tuple[FailureKind, str] | None:
    """Explain why the strategy cannot use its responses; one refusal among several samples is valid."""
    for kind, reason in UNUSABLE.items():
        if ends[kind]:
            return kind, f"{ends[kind]} of {ends.total()} completions {reason}"
    for reply in replies:
        if len(reply.completions) == 1 and reply.completions[0].finish == "refused":
            return "refused", f"the model declined: {excerpt(reply.text, 200)}"
    return None


def _requests(yielded: object) -> list[Request]:
    """Check a strategy's requests, since one malformed request would fail its whole batch."""
    requests = list(yielded) if isinstance(yielded, list | tuple) else [yielded]
    if not requests or not all(isinstance(request, Request) for request in requests):
        raise TypeError("a strategy must yield a Request or a list of them")
    # a request of a user's strategy may hold anything, whatever its class says
    copies = [from_plain(Request, msgspec.to_builtins(request)) for request in requests]
    if not all(request.messages and request.n > 0 for request in copies):
        raise ValueError("a Request needs at least one message and one completion")
    return copies
