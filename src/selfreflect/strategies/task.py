"""The task of a strategy: question, prompts and sampling settings."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from selfreflect.models.base import (
    PUBLISHED_SUMMARY_TOKENS,
    SUMMARY_TOKENS,
    Message,
    Reply,
    Request,
    Sampling,
    seed_for,
)
from selfreflect.prompts import Prompts
from selfreflect.records import Question, StatedParts

GREEDY = Sampling(temperature=0.0, max_new_tokens=SUMMARY_TOKENS)
"""Sampling settings for a summary."""

THINKING = Sampling(temperature=0.6, top_p=0.95, top_k=20, max_new_tokens=PUBLISHED_SUMMARY_TOKENS)
"""Sampling settings for a summary by a reasoning model; greedy decoding would make it repeat itself
endlessly."""

FRESH = Sampling(temperature=1.0, max_new_tokens=256)
"""Sampling settings for a strategy's own answers, as for the answer distribution."""


@dataclass(frozen=True, kw_only=True)
class Task:
    """One question for the strategy ``name``."""

    question: Question
    prompts: Prompts
    name: str
    sampling: Sampling = GREEDY
    """Sampling settings for the summary and earlier steps."""
    sample_sampling: Sampling = FRESH
    num_samples: int = 50
    seed: int = 0
    """Seed of the run, from which each request derives its own."""
    thinking: bool = False

    def messages(self, template: str | None = None, **values: str) -> tuple[Message, ...]:
        """Open a conversation with ``template``, by default the plain question, filling in ``values``."""
        return self.prompts.messages(self.question, template, **values)

    def request(self, messages: Sequence[Message], step: str) -> Request:
        """Request one response, with a seed that depends on ``step``."""
        seed = seed_for(self.seed, self.question.id, self.name, step)
        return Request(messages=tuple(messages), sampling=self.sampling, seed=seed, thinking=self.thinking)

    def sample_request(self) -> Request:
        """Request sampled answers. The seed does not depend on the strategy's name, so that strategies run
        together share one set of samples."""
        return Request(
            messages=self.messages(),
            sampling=self.sample_sampling,
            n=self.num_samples,
            seed=seed_for(self.seed, self.question.id, "fresh samples"),
            thinking=self.thinking,
        )


@dataclass(frozen=True)
class StatedSummary:
    """A summary with stated confidence, and its parts."""

    text: str
    parts: StatedParts


Strategy: TypeAlias = Generator[Request | Sequence[Request], list[Reply], str | StatedSummary]
"""Running strategy: yields requests, receives one response each in order, and returns the summary."""


class MalformedReplyError(Exception):
    """Raised by a strategy if a response is malformed. The summary fails as malformed."""


StrategyFunction: TypeAlias = Callable[[Task], Strategy]


def draw_samples(task: Task) -> Generator[Request | Sequence[Request], list[Reply], list[str]]:
    """Draw sampled answers: ``samples = yield from draw_samples(task)``. If all are blank, the list is
    empty."""
    [reply] = yield task.sample_request()
    samples = list(reply.texts)
    return samples if any(map(str.strip, samples)) else []
