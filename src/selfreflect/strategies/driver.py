"""Run strategies on many questions in lock step, so that each round is one call of the generator."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from functools import partial
from typing import TypeAlias

from selfreflect.errors import ConfigError, excerpt
from selfreflect.models.base import Generator, Refusal, Reply, Request, Sampling, as_done
from selfreflect.prompts import Prompts, load_prompts
from selfreflect.records import Question
from selfreflect.strategies import load_strategy
from selfreflect.strategies.run import StrategyOutcome, StrategyRun
from selfreflect.strategies.task import FRESH, GREEDY, THINKING, StrategyFunction, Task

Named: TypeAlias = str | tuple[str, StrategyFunction]
"""A strategy: a name for ``load_strategy``, or any name with its function."""


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
    batch_questions: int = 64,
    done: Container[tuple[str, str]] = (),
) -> Iterator[StrategyOutcome]:
    """Summarise every question with every strategy, yielding each summary or failure as soon as it is known.

    A summary cut off at the token limit is kept if it has text; strategies with a final part need one that
    has begun. Seeds do not depend on ``batch_questions`` or ``done``, so a resumed run gives the same texts.

    Args:
        sampling: of the summary; by default ``GREEDY``, or ``THINKING`` if ``thinking``.
        batch_questions: how many questions run in lock step.
        done: pairs (question id, strategy name) to leave out.

    Raises:
        ConfigError: at once, for an unknown or repeated strategy or a count below 1.
        BackendError: while iterating, if the generator breaks its contract or gives up.
    """
    functions = _functions(strategies)
    for option, count in (("num_samples", num_samples), ("batch_questions", batch_questions)):
        if count < 1:
            raise ConfigError(f"{option} must be at least 1, not {count}")
    task = partial(
        Task,
        prompts=prompts or load_prompts(),
        sampling=sampling or (THINKING if thinking else GREEDY),
        sample_sampling=sample_sampling,
        num_samples=num_samples,
        seed=seed,
        thinking=thinking,
    )

    def outcomes() -> Iterator[StrategyOutcome]:
        for start in range(0, len(questions), batch_questions):
            runs = []
            for question in questions[start : start + batch_questions]:
                for name, function in functions.items():
                    if (question.id, name) not in done:
                        runs.append(StrategyRun(task(question=question, name=name), function, generator))
            yield from _lock_step(runs, generator)

    return outcomes()


def _functions(strategies: Iterable[Named]) -> dict[str, StrategyFunction]:
    functions: dict[str, StrategyFunction] = {}
    for strategy in strategies:
        if isinstance(strategy, str):
            name = strategy
            function = load_strategy(strategy)
        else:
            name, function = strategy
        if name in functions:
            raise ConfigError(
                f"strategy {excerpt(name)} is given twice; its name must identify its summaries"
            )
        functions[name] = function
    return functions


def _lock_step(runs: Sequence[StrategyRun], generator: Generator) -> Iterator[StrategyOutcome]:
    """Repeat rounds of one generator call for all waiting runs. In the first round no run has requests
    yet."""
    current = list(runs)
    try:
        while current:
            waiting = []
            for run, replies in _round(current, generator):
                outcome = run.advance(replies)
                if outcome is None:
                    waiting.append(run)
                else:
                    yield outcome
            current = waiting
    finally:
        for run in runs:
            run.close()


def _round(
    runs: Sequence[StrategyRun], generator: Generator
) -> Iterator[tuple[StrategyRun, list[Reply | Refusal]]]:
    """Yield each run with its replies, as soon as all have arrived. Equal requests are sent once and share
    the reply."""
    needs = [list(run.requests) for run in runs]  # copies, because an advanced run has new requests
    missing = [len(set(need)) for need in needs]
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
    for index, reply in as_done(generator, requests):
        request = requests[index]
        replies[request] = _complete(request, reply)
        for number in users[request]:
            missing[number] -= 1
            if not missing[number]:
                yield runs[number], [replies[needed] for needed in needs[number]]


def _complete(request: Request, reply: Reply | Refusal) -> Reply | Refusal:
    if isinstance(reply, Refusal) or len(reply.completions) == request.n:
        return reply
    return Refusal(
        kind="backend",
        message=f"the generator gave {len(reply.completions)} completions instead of {request.n}",
    )
