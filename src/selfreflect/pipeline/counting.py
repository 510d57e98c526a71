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
    shown: Sequence[Kind]
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
        self.samples: dict[Kind, list[Request]] = {}
        """The first requests of each kind, without placeholders."""
        self._placeholders = placeholders
        self._count_tokens = count_tokens

    def generate(self, requests: Sequence[Request]) -> list[Reply | Refusal]:
        stripped = [_strip(request) for request in requests]
        replies: list[Reply | Refusal] = []
        for request, bare, tokens in zip(requests, stripped, self._count_tokens(stripped), strict=True):
            kind = Kind(self.name, request.sampling)
            shown: list[Kind] = []
            for message in request.messages:
                shown += self._placeholders.kinds(message.content)
            self.calls.append(Call(kind, request.n, tokens, shown))
            samples = self.samples.setdefault(kind, [])
            if len(samples) < TRIAL_COMPLETIONS:
                samples.append(bare)
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


def try_out(generator: HFGenerator, requests: Sequence[Request]) -> tuple[float, float]:
    """Draw the start of some completions of one kind.

    Returns:
        Expected tokens of a completion, and seconds per token; reading the prompts counts as well.
    """
    sampling = requests[0].sampling
    start = replace(sampling, max_new_tokens=min(TRIAL_TOKENS, sampling.max_new_tokens))
    n = max(1, TRIAL_COMPLETIONS // len(requests))
    trial = [replace(request, n=min(n, request.n), sampling=start) for request in requests]
    generator.generate(trial[:1])  # the first call of a process is slower
    began = time.monotonic()
    replies = generator.generate(trial)
    seconds = time.monotonic() - began
    completions: list[Completion] = []
    for reply in replies:
        if isinstance(reply, Reply):
            completions += reply.completions
    tokens = sum(completion.tokens for completion in completions)
    ended = sum(completion.finish == "stop" for completion in completions)
    return expected_length(tokens, ended, sampling.max_new_tokens), seconds / max(1, tokens)


def expected_length(tokens: int, ended: int, limit: int) -> float:
    """Expected tokens of a completion of at most ``limit``, from the starts of some.

    Takes every token to be the last one with the same probability p. The mean of min(length, limit) is then
    (1 - p) / p * (1 - (1 - p)^limit).

    Args:
        tokens: of all starts.
        ended: completions that ended in them.
    """
    if not ended:
        return limit
    end = ended / (ended + tokens)
    return (1 - end) / end * (1 - (1 - end) ** limit)
