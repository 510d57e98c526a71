"""What a strategy is given: the question, the prompts, and how to draw tokens."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from selfreflect.models.base import Message, Reply, Request, Sampling, seed_for
from selfreflect.prompts import Prompts
from selfreflect.records import Question

GREEDY = Sampling(temperature=0.0, max_new_tokens=4096)
"""How a summary is drawn."""

THINKING = Sampling(temperature=0.6, top_p=0.95, top_k=20, max_new_tokens=4096)
"""How a reasoning model draws a summary: greedy decoding makes such models repeat themselves without end."""

FRESH = Sampling(temperature=1.0, max_new_tokens=256)
"""How a strategy draws samples of its own: as the answer distribution is drawn."""


@dataclass(frozen=True, kw_only=True)
class Task:
    """One question for one strategy, ``name``."""

    question: Question
    prompts: Prompts
    name: str
    sampling: Sampling = GREEDY
    """For the summary and the steps that lead to it."""
    sample_sampling: Sampling = FRESH
    num_samples: int = 50
    seed: int = 0
    """The run's seed; each request derives its own from it."""
    thinking: bool = False

    def messages(self, template: str | None = None, **values: str) -> tuple[Message, ...]:
        """Open a conversation with a prompt (default: the plain question). ``{question}`` is filled in
        anyway, the rest by name."""
        return self.prompts.messages(self.question, template, **values)

    def request(self, messages: Sequence[Message], step: str) -> Request:
        """Ask for one reply; ``step`` names it within the strategy and makes its random numbers its own."""
        seed = seed_for(self.seed, self.question.id, self.name, step)
        return Request(messages=tuple(messages), sampling=self.sampling, seed=seed, thinking=self.thinking)

    def sample_request(self) -> Request:
        """Ask for fresh answers. Their seed leaves the strategy's name out, so strategies run together share
        one set of samples."""
        seed = seed_for(self.seed, self.question.id, "fresh samples")
        sampling, n = self.sample_sampling, self.num_samples
        return Request(messages=self.messages(), sampling=sampling, n=n, seed=seed, thinking=self.thinking)


Strategy: TypeAlias = Generator[Request | Sequence[Request], list[Reply], str]
"""A strategy at work: yields requests, is sent one reply for each in order, returns the summary."""

StrategyFunction: TypeAlias = Callable[[Task], Strategy]


def draw_samples(task: Task) -> Generator[Request | Sequence[Request], list[Reply], list[str]]:
    """Fresh answers, to be used as ``samples = yield from draw_samples(task)``; an empty list when all of
    them are blank."""
    [reply] = yield task.sample_request()
    samples = [completion.text for completion in reply.completions]
    return samples if any(sample.strip() for sample in samples) else []
