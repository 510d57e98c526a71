"""Count requests without sending them: a generator that replies with placeholders.

And a short trial of a local generator, for the length and pace of its completions.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from selfreflect.models.base import Completion, Refusal, Reply, Request, Sampling
from selfreflect.pipeline.cost import Amount

if TYPE_CHECKING:
    from selfreflect.models.local.generator import HFGenerator

TRIAL_COMPLETIONS = 16
TRIAL_TOKENS = 32

_PLACEHOLDER = re.compile(r"⟦reply \d+⟧")

TokenCounter = Callable[[Sequence[Request]], list[Amount]]
"""Tokens of the prompts of requests."""


class Kind(NamedTuple):
    """How a completion is drawn. Completions of one kind are expected to be equally long."""

    model: str
    sampling: Sampling


@dataclass(frozen=True)
class Call:
    """``n`` completions of one conversation."""

    kind: Kind
    n: int
    prompt: Amount
    """Tokens of the prompt, without the replies that it shows."""
    replies: Sequence[Kind]
    """The replies that it shows."""


class Placeholders:
    """Texts that stand for completions to come. Each is different, as completions are."""

    def __init__(self) -> None:
        self._kinds: dict[str, Kind] = {}

    def add(self, kind: Kind) -> str:
        text = f"⟦reply {len(self._kinds)}⟧"
        self._kinds[text] = kind
        return text

    def kinds(self, text: str) -> list[Kind]:
        """What the placeholders in ``text`` stand for."""
        return [self._kinds[match] for match in _PLACEHOLDER.findall(text) if match in self._kinds]

    @staticmethod
    def strip(text: str) -> str:
        """``text`` with one letter in place of each placeholder."""
        return _PLACEHOLDER.sub("x", text)


class RequestCounter:
    """A :class:`~selfreflect.models.base.Generator` that records calls and replies with placeholders."""

    revision = ""

    def __init__(self, name: str, placeholders: Placeholders, count_tokens: TokenCounter) -> None:
        self.name = name
        self.calls: list[Call] = []
        self.examples: dict[Kind, Request] = {}
        """A request of each kind, without placeholders."""
        self._placeholders = placeholders
        self._count_tokens = count_tokens

    def generate(self, requests: Sequence[Request]) -> list[Reply | Refusal]:
        stripped = [_strip(request) for request in requests]
        replies: list[Reply | Refusal] = []
        for request, bare, tokens in zip(requests, stripped, self._count_tokens(stripped), strict=True):
            kind = Kind(self.name, request.sampling)
            replies_in_prompt: list[Kind] = []
            for message in request.messages:
                replies_in_prompt += self._placeholders.kinds(message.content)
            self.calls.append(Call(kind, request.n, tokens, replies_in_prompt))
            self.examples.setdefault(kind, bare)
            texts = [self._placeholders.add(kind) for _ in range(request.n)]
            completions = tuple(Completion(text=text, finish="stop", tokens=0) for text in texts)
            replies.append(Reply(completions=completions))
        return replies


def _strip(request: Request) -> Request:
    messages = tuple(replace(one, content=Placeholders.strip(one.content)) for one in request.messages)
    return replace(request, messages=messages)


def count_with(generator: HFGenerator) -> TokenCounter:
    """Count prompts exactly, with a model's own tokenizer."""

    def count(requests: Sequence[Request]) -> list[Amount]:
        texts = [generator.chat.render(request.messages, thinking=request.thinking) for request in requests]
        return [Amount.exactly(len(ids)) for ids in generator.chat.encode(texts)]

    return count


def count_bytes(requests: Sequence[Request]) -> list[Amount]:
    """Guess prompts without a tokenizer: four bytes of UTF-8 per token, at least one.

    Each turn, and the one to come, gets eight tokens for its markers.
    """
    amounts = []
    for request in requests:
        size = sum(len(message.content.encode("utf-8", "surrogatepass")) for message in request.messages)
        markers = 8 * (1 + len(request.messages))
        amounts.append(Amount(expected=size // 4 + markers, most=size + markers))
    return amounts


def try_out(generator: HFGenerator, request: Request) -> tuple[float, float]:
    """Draw the start of some completions.

    Returns:
        Expected tokens of a completion, and seconds per token, which include reading the prompt.
    """
    limit = request.sampling.max_new_tokens
    sampling = replace(request.sampling, max_new_tokens=min(TRIAL_TOKENS, limit))
    trial = replace(request, n=TRIAL_COMPLETIONS, sampling=sampling)
    generator.generate([replace(trial, n=1)])  # the first call of a process is slower
    start = time.monotonic()
    [reply] = generator.generate([trial])
    seconds = time.monotonic() - start
    if isinstance(reply, Refusal):
        return 0, 0
    ended = sum(completion.finish == "stop" for completion in reply.completions)
    tokens = max(1, reply.tokens)
    return (min(limit, tokens / ended) if ended else limit), seconds / tokens
