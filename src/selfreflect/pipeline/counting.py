"""Amounts that are expected or known only at most, and the tokens of requests that models would get."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from selfreflect.models.base import Message, Request

if TYPE_CHECKING:
    from selfreflect.models.chat import ChatTokenizer


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


def prompt_tokens(chat: ChatTokenizer | None, messages: Sequence[Message], thinking: bool = False) -> Amount:
    """Tokens of a conversation, exact with its tokenizer.

    Without one, a token has four bytes of UTF-8, at least one; each turn, and the one to come, gets eight
    tokens for its markers.
    """
    if chat is not None:
        [ids] = chat.encode([chat.render(messages, thinking=thinking)])
        return Amount(len(ids), len(ids))
    size = sum(len(message.content.encode("utf-8", "surrogatepass")) for message in messages)
    markers = 8 * (1 + len(messages))
    return Amount(size // 4 + markers, size + markers)


class RequestCount:
    """Adds up what requests to one model take.

    Args:
        chat: a local model's. Of a server it is not known, nor whether it gives one completion per call and
            reads the prompt for each.
    """

    def __init__(self, chat: ChatTokenizer | None) -> None:
        self._chat = chat
        self.calls = NOTHING
        self.completions = NOTHING
        self.prompt_tokens = NOTHING
        self.most_completion_tokens = NOTHING

    def add(self, request: Request, done: int = 0, shown: float | None = None) -> float:
        """Count a request, and return how many tokens its replies have at most.

        Args:
            done: completions that are there already.
            shown: tokens that replies to come add to the prompt at most; None if it shows none.
        """
        to_draw = request.n - done
        most_calls = to_draw if self._chat is None else 1
        prompt = prompt_tokens(self._chat, request.messages, request.thinking)
        if shown is not None:
            prompt += Amount(None, shown)
        limit = request.sampling.max_new_tokens
        self.calls += Amount(1, most_calls)
        self.completions += Amount(to_draw, to_draw)
        self.prompt_tokens += Amount(prompt.expected, (prompt * most_calls).most)
        self.most_completion_tokens += Amount(None, to_draw * limit)
        return request.n * limit
