"""Runs strategies on many questions in lock step, so that each round is one call of the generator."""

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
"""A strategy: a name that ``load_strategy`` knows, or any name and the function it stands for."""


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
    """Every strategy's summary of every question, or why there is none, each given as soon as it is known.

    ``batch_questions`` questions run in lock step at a time. Pairs (question id, strategy name) in ``done``
    are left out. Seeds depend on neither, so a resumed run gives the same texts. ``sampling`` is that of the
    summary; its default depends on ``thinking``. A summary that was cut off at the token limit is kept if it
    has text; strategies with a final part need one that has begun.

    Raises:
        ConfigError: at once, for an unknown or repeated strategy or a count below 1.
        BackendError: while iterating, when the generator breaks its contract or gives up.
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
            batch = questions[start : start + batch_questions]
            pairs = [
                (question, name)
                for question in batch
                for name in functions
                if (question.id, name) not in done
            ]
            runs = [
                StrategyRun(task(question=question, name=name), functions[name], generator)
                for question, name in pairs
            ]
            yield from _lock_step(runs, generator)

    return outcomes()


def _functions(strategies: Iterable[Named]) -> dict[str, StrategyFunction]:
    functions: dict[str, StrategyFunction] = {}
    for strategy in strategies:
        name, function = (strategy, load_strategy(strategy)) if isinstance(strategy, str) else strategy
        if name in functions:
            raise ConfigError(
                f"strategy {excerpt(name)} is given twice; summaries are told apart by its name"
            )
        functions[name] = function
    return functions


def _lock_step(runs: Sequence[StrategyRun], generator: Generator) -> Iterator[StrategyOutcome]:
    """Rounds of one generator call for all runs that wait. In the first, no run has asked for anything
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
    """Each run with its replies, as soon as all of them are there; equal requests are sent once and share
    theirs."""
    places = {
        request: place
        for place, request in enumerate(dict.fromkeys(request for run in runs for request in run.requests))
    }
    unique = list(places)
    needs = [[places[request] for request in run.requests] for run in runs]
    yield from ((run, []) for run, need in zip(runs, needs, strict=True) if not need)
    lacking = [set(need) for need in needs]
    users: list[list[int]] = [[] for _ in unique]
    for number, need in enumerate(lacking):
        for place in need:
            users[place].append(number)
    replies: dict[int, Reply | Refusal] = {}
    for place, reply in as_done(generator, unique) if unique else ():
        replies[place] = _complete(unique[place], reply)
        for number in users[place]:
            lacking[number].remove(place)
            if not lacking[number]:
                yield runs[number], [replies[needed] for needed in needs[number]]


def _complete(request: Request, reply: Reply | Refusal) -> Reply | Refusal:
    if isinstance(reply, Refusal) or len(reply.completions) == request.n:
        return reply
    return Refusal(
        kind="backend",
        message=f"the generator gave {len(reply.completions)} completions instead of {request.n}",
    )
