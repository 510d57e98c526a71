"""Count what models would be asked: requests with placeholders for texts to come, and amounts that are
expected or known only at most."""

from __future__ import annotations

import re
import secrets
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING

from msgspec.structs import replace

from selfreflect.models.base import Completion, Message, Refusal, Reply, Request

if TYPE_CHECKING:
    from selfreflect.models.chat import ChatTokenizer

MOST_STEPS = 20
"""Steps after which strategies are stopped: with placeholders for replies they may never end."""

_TYPICAL_TOKENS = 40
_TYPICAL_SHARE = 0.4
"""A text to come has so many tokens, or this share of its limit if that is less. Answers of the embedded
model at temperature 0.7 had 0.33 to 0.56 of limits of 24 to 40 tokens, at temperature 1 up to 0.75."""

_NUMBERS = count()
_SECRET = secrets.token_hex(8)
"""Part of each placeholder, so that no question or answer can contain one."""
_PLACEHOLDER = re.compile(rf"⟦{_SECRET}: reply \d+ of (\d+) tokens⟧")


@dataclass(frozen=True)
class Amount:
    """An expected value and an upper bound; None if not known."""

    expected: float | None
    most: float | None

    def __add__(self, other: Amount) -> Amount:
        mean = most = None
        if self.expected is not None and other.expected is not None:
            mean = self.expected + other.expected
        if self.most is not None and other.most is not None:
            most = self.most + other.most
        return Amount(mean, most)

    def __mul__(self, factor: float) -> Amount:
        mean = None if self.expected is None else self.expected * factor
        return Amount(mean, None if self.most is None else self.most * factor)


NOTHING = Amount(0, 0)
UNKNOWN = Amount(None, None)


def placeholder(limit: int) -> str:
    """A text that stands for a reply to come. Each is different, as replies are."""
    return f"⟦{_SECRET}: reply {next(_NUMBERS)} of {limit} tokens⟧"


def limits_of(text: str) -> list[int]:
    """The most tokens of each reply to come that ``text`` shows."""
    return list(map(int, _PLACEHOLDER.findall(text)))


def strip(text: str) -> str:
    """``text`` with one letter in place of each placeholder."""
    return _PLACEHOLDER.sub("x", text)


def prompt_tokens(chat: ChatTokenizer | None, messages: Sequence[Message], thinking: bool = False) -> Amount:
    """Tokens of a conversation, exact if it shows only texts that exist.

    Without a tokenizer, a token has four bytes of UTF-8, at least one; each turn, and the one to come, gets
    eight tokens for its markers.
    """
    bare = [replace(message, content=strip(message.content)) for message in messages]
    if chat is not None:
        [ids] = chat.encode([chat.render(bare, thinking=thinking)])
        tokens = Amount(len(ids), len(ids))
    else:
        size = sum(len(message.content.encode("utf-8", "surrogatepass")) for message in bare)
        markers = 8 * (1 + len(bare))
        tokens = Amount(size // 4 + markers, size + markers)
    for message in messages:
        for limit in limits_of(message.content):
            tokens += Amount(None, limit)
    return tokens


class RequestCounter:
    """A :class:`~selfreflect.models.base.Generator` that adds up requests and replies with placeholders.

    Args:
        chat: a local model's. Of a server it is not known, nor whether it gives one completion per call and
            reads the prompt for each.
        revision: of the model that drew answers of unfinished questions, which count only for it.
    """

    def __init__(self, name: str, chat: ChatTokenizer | None, revision: str = "") -> None:
        self.name = name
        self.revision = revision
        self.calls = NOTHING
        self.completions = 0
        self.prompt_tokens = NOTHING
        self.most_completion_tokens = 0
        self.typical_tokens: Counter[int] = Counter()
        """Tokens that the completions may well have, by how many of them are asked for together."""
        self.steps = 0
        """Of the current strategies."""
        self._chat = chat

    def generate(self, requests: Sequence[Request]) -> list[Reply | Refusal]:
        self.steps += 1
        if self.steps > MOST_STEPS:
            return [Refusal(kind="strategy", message=f"more than {MOST_STEPS} steps") for _ in requests]
        together = sum(len(request.missing) for request in requests)
        for request in requests:
            length = _typical_tokens(request.sampling.max_new_tokens)
            self.typical_tokens[together] += round(len(request.missing) * length)
        return list(map(self._reply, requests))

    def _reply(self, request: Request) -> Reply:
        most_calls = len(request.missing) if self._chat is None else 1
        prompt = prompt_tokens(self._chat, request.messages, request.thinking)
        limit = request.sampling.max_new_tokens
        self.calls += Amount(1, most_calls)
        to_draw = len(request.missing)
        self.completions += to_draw
        self.prompt_tokens += Amount(prompt.expected, (prompt * most_calls).most)
        self.most_completion_tokens += to_draw * limit
        texts = [placeholder(limit) for _ in range(request.n)]
        return Reply(completions=tuple(Completion(text=text, finish="stop", tokens=0) for text in texts))


def _typical_tokens(limit: int) -> float:
    return min(_TYPICAL_SHARE * limit, _TYPICAL_TOKENS)


def typical_length(text: str) -> float:
    """How many tokens a text has, or may well have where it is to come."""
    limits = limits_of(text)
    if limits:
        return _typical_tokens(sum(limits))
    return len(text.encode("utf-8", "surrogatepass")) / 4
