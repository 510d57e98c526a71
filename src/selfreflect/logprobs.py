"""Log-probabilities of the tokens that spell an answer.

They are the model's own, in nats, at temperature 1 and before top-p, whatever the tokens were sampled with;
those of a server are what it returns. A token of the chat format, such as the one that ends a turn, has no
text and is left out, because most servers leave it out.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

LOWEST = -1e9

UNKNOWN_LOGPROB = -9999.0
"""What OpenAI and vLLM send for a token that is too unlikely to say how unlikely."""

NoLogprobs = Literal[
    "not_returned",  # the server sent none
    "other_text",  # the tokens that came with the answer do not spell it
    "out_of_range",  # a value is no number up to 0, or a server's mark for an unknown one
]
"""Why an answer has no log-probabilities although they were asked for."""

WHY: dict[NoLogprobs, str] = {
    "not_returned": "the server does not return log-probabilities",
    "other_text": "the tokens that came with the answer do not spell it, as if from another tokenizer",
    "out_of_range": "a log-probability is -9999, which means unknown, or no number up to 0",
}

_MARKER = re.compile(r"<\S+>")
"""How tokens of a chat format look, such as ``<|im_end|>`` and ``</s>``."""

_DIGITS = 6
"""Decimals that are stored: more than float32 logits give."""


class AnswerTokens(msgspec.Struct, frozen=True, array_like=True):
    """The tokens of one answer, stored as a list of these values.

    Raises:
        ValueError: there is not one log-probability for each token.
    """

    texts: tuple[str, ...]
    """Together they are the answer. A token that is a part of a character has no text; the one that completes
    it has the character."""
    logprobs: tuple[Annotated[float, Meta(ge=LOWEST, le=0)], ...]
    self_certainty: Annotated[float, Meta(ge=0, le=1e9)] | None = None
    """Mean over the tokens of KL(uniform, prediction), in nats; None where only a part of the vocabulary is
    known, or without tokens."""

    def __post_init__(self) -> None:
        if len(self.texts) != len(self.logprobs):
            raise ValueError(f"{len(self.texts)} tokens have {len(self.logprobs)} log-probabilities")


def answer_tokens(
    answer: str,
    texts: Sequence[str | None],
    logprobs: Sequence[float | None],
    divergences: Sequence[float | None] = (),
) -> AnswerTokens | NoLogprobs:
    """Choose those tokens of a completion that spell its answer, without its reasoning.

    Args:
        texts: of all tokens, in order, (T,); None for those of the chat format.
        logprobs: of all tokens, (T,).
        divergences: KL(uniform, prediction) where each token was drawn, (T,); empty or None if unknown.
    """
    if len(texts) != len(logprobs):
        return "other_text"
    whole = "".join(text or "" for text in texts)
    start = whole.rfind(answer, 0, len(whole) - len(_end_of_turn(answer, texts)))
    if start < 0:
        return "other_text"
    end = start + len(answer)
    after = 0
    kept = []
    pieces = []
    for index, text in enumerate(texts):
        if text is None:
            continue
        before, after = after, after + len(text)
        # one without text may begin the first character
        if before < end and (after > start or before == start):
            kept.append(index)
            pieces.append(text[max(0, start - before) : end - before])
    values = []
    for index in kept:
        value = logprobs[index]
        if value is None or not LOWEST <= value <= 0:  # which NaN is not, either
            return "out_of_range"
        values.append(round(value, _DIGITS) + 0.0)
    own = [divergences[index] for index in kept] if divergences else []
    return AnswerTokens(tuple(pieces), tuple(values), _mean(own))


def _end_of_turn(answer: str, texts: Sequence[str | None]) -> str:
    """The last token if it is one of the chat format, which some servers send as text; a short answer may
    occur in it."""
    last = next((text for text in reversed(texts) if text), "")
    return last if _MARKER.fullmatch(last) and not answer.endswith(last) else ""


def _mean(divergences: Sequence[float | None]) -> float | None:
    known = [value for value in divergences if value is not None]
    if not known or len(known) < len(divergences):
        return None
    mean = sum(known) / len(known)
    return round(max(0.0, mean), _DIGITS) if math.isfinite(mean) else None
