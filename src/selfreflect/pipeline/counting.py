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


_BATCH = 256
"""Conversations that are tokenised together."""

EXACT = 10_000
"""Conversations that are tokenised. Tokens of further ones are expected at the same rate per byte."""


class RequestCount:
    """Adds up what requests to one model take.

    Args:
        chat: a local model's. Of a server it is not known, nor whether it gives one completion per call and
            reads the prompt for each.
    """

    def __init__(self, chat: ChatTokenizer | None) -> None:
        self._chat = chat
        self._calls = self._most_calls = self._completions = self._most_tokens = 0
        self._prompt = self._estimated = self._most_prompt = 0
        self._estimated_of_exact = 0
        """What :func:`estimated_tokens` says of the conversations that were tokenised."""
        self._shows_replies = False
        self._is_known = True
        self._waiting: list[tuple[tuple[Message, ...], bool, int]] = []
        """Conversations of a local model that are not counted yet, and how often each is read."""

    def add(self, request: Request, done: int = 0, shown: int | None = None) -> None:
        """Count a request.

        Args:
            done: completions that are there already.
            shown: tokens that replies to come add to the prompt at most; None if it shows none.
        """
        to_draw = request.n - done
        most_calls = to_draw if self._chat is None else 1
        self._calls += 1
        self._most_calls += most_calls
        self._completions += to_draw
        self._most_tokens += to_draw * request.sampling.max_new_tokens
        if shown is not None:
            self._shows_replies = True
            self._most_prompt += shown * most_calls
        if self._chat is None or self._calls > EXACT:
            tokens, most = estimated_tokens(request.messages)
            self._estimated += tokens
            self._most_prompt += most * most_calls
            return
        self._waiting.append((request.messages, request.thinking, most_calls))
        if len(self._waiting) >= _BATCH:
            self._tokenise()

    def add_unknown(self) -> None:
        """Take in requests of which nothing is known."""
        self._is_known = False

    @property
    def calls(self) -> Amount:
        return Amount(self._calls, self._most_calls) if self._is_known else UNKNOWN

    @property
    def completions(self) -> Amount:
        return Amount(self._completions, self._completions) if self._is_known else UNKNOWN

    @property
    def prompt_tokens(self) -> Amount:
        if not self._is_known:
            return UNKNOWN
        self._tokenise()
        rate = self._prompt / self._estimated_of_exact if self._estimated_of_exact else 1
        expected = self._prompt + round(self._estimated * rate)
        return Amount(None if self._shows_replies else expected, self._most_prompt)

    @property
    def is_sampled(self) -> bool:
        """Whether some conversations of a local model were not tokenised."""
        return self._chat is not None and self._calls > EXACT

    @property
    def most_completion_tokens(self) -> int | None:
        return self._most_tokens if self._is_known else None

    def _tokenise(self) -> None:
        waiting, self._waiting = self._waiting, []
        for thinking in {thinking for _, thinking, _ in waiting}:
            batch = [(messages, calls) for messages, thinks, calls in waiting if thinks == thinking]
            assert self._chat is not None
            texts = self._chat.render_all([messages for messages, _ in batch], thinking=thinking)
            for ids, (messages, calls) in zip(self._chat.encode(texts), batch, strict=True):
                self._prompt += len(ids)
                self._estimated_of_exact += estimated_tokens(messages)[0]
                self._most_prompt += len(ids) * calls


def estimated_tokens(messages: Sequence[Message]) -> tuple[int, int]:
    """Estimate and bound the tokens of a conversation without its tokenizer.

    A token has four bytes of UTF-8, at least one; each turn, and the one to come, gets eight tokens for its
    markers.
    """
    size = sum(len(message.content.encode("utf-8", "surrogatepass")) for message in messages)
    markers = 8 * (1 + len(messages))
    return size // 4 + markers, size + markers
