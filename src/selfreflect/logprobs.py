"""Log-probabilities of the tokens that spell an answer.

They are the model's own, in nats, at temperature 1 and before top-p, whatever the tokens were sampled with;
those of a server are what it returns. A token of the chat format, such as the one that ends a turn, has no
text and is left out, because most servers leave it out.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from typing import Annotated, Any, Literal, NamedTuple

import msgspec
from msgspec import Meta

LOWEST = -1e9

UNKNOWN_LOGPROB = -9999.0
"""Log-probability that OpenAI and vLLM report for tokens too unlikely to have a number."""

NoLogprobs = Literal[
    "not_returned",  # the server sent none
    "other_text",  # the tokens that came with the answer do not spell it
    "out_of_range",  # a value is not a number up to 0, or a server's mark for an unknown one
]
"""Reason for missing log-probabilities that were requested."""

WHY: dict[NoLogprobs, str] = {
    "not_returned": "the server does not return log-probabilities",
    "other_text": "the tokens sent with the answer do not spell its text; they may come from another "
    "tokenizer",
    "out_of_range": "a log-probability is -9999, which means unknown, or is not a number of at most 0",
}

_MARKER = re.compile(r"<\S+>")
"""Tokens of a chat format, such as ``<|im_end|>`` and ``</s>``."""

_EXCESS = 1e-4
"""Rounding error by which a log-probability may exceed 0, or probabilities 1."""

_DIGITS = 6
"""Number of stored decimals, more than float32 logits provide."""


Logprobs = tuple[tuple[float, ...], ...]
Tokens = tuple[tuple[str, ...], ...]


class LikelyToken(msgspec.Struct, frozen=True, array_like=True):
    """A likely next token, stored as a list of its text and log-probability."""

    text: str
    logprob: Annotated[float, Meta(ge=LOWEST, le=0)]


class AnswerTokens(msgspec.Struct, frozen=True, array_like=True):
    """Tokens of one answer, stored as a list of these values.

    Raises:
        ValueError: there is not one log-probability for each token.
    """

    texts: tuple[str, ...]
    """Texts that form the answer together. A token that is only part of a character has an empty text; the
    token that completes it has the character."""
    logprobs: tuple[Annotated[float, Meta(ge=LOWEST, le=0)], ...]
    self_certainty: Annotated[float, Meta(ge=0, le=1e9)] | None = None
    """Mean over the tokens of KL(uniform, prediction), in nats; None without tokens or with only part of the
    vocabulary."""
    top: tuple[tuple[Annotated[float, Meta(ge=LOWEST, le=0)], ...], ...] = ()
    """Largest log-probabilities at each token, in descending order; empty unless requested. The token itself
    need not be among them."""
    entropies: tuple[Annotated[float, Meta(ge=0, le=1e9)], ...] = ()
    """Entropy of the prediction at each token, in nats; empty with only part of the vocabulary."""

    def __post_init__(self) -> None:
        if len(self.texts) != len(self.logprobs):
            raise ValueError(f"{len(self.texts)} tokens have {len(self.logprobs)} log-probabilities")
        for values in (self.top, self.entropies):
            if values and len(values) != len(self.texts):
                raise ValueError(f"{len(self.texts)} tokens have {len(values)} lists or entropies")


def answer_tokens(
    answer: str,
    texts: Sequence[str | None],
    logprobs: Sequence[float | None],
    divergences: Sequence[float | None] = (),
    *,
    top: Sequence[Sequence[float | None]] = (),
    entropies: Sequence[float | None] = (),
    ranks: int = 0,
) -> AnswerTokens | NoLogprobs:
    """Select the tokens of a completion that spell its answer, without reasoning.

    Args:
        texts: of all tokens, in order, (T,); None for those of the chat format.
        logprobs: of all tokens, (T,).
        divergences: KL(uniform, prediction) where each token was drawn, (T,); empty or None if unknown.
        top: log-probabilities of likely tokens at each place, in any order, (T, K); empty if unknown.
        entropies: of the predictions, (T,); empty or None if unknown.
        ranks: how many of ``top`` are kept. Some servers give one more, for the token that was drawn.
    """
    pieces = _pieces(answer, texts) if len(texts) == len(logprobs) else None
    if pieces is None:
        return "other_text"
    values = []
    for index in pieces:
        value = logprobs[index]
        if value is None or not LOWEST <= value <= 0:  # which NaN is not, either
            return "out_of_range"
        # + 0.0 makes a 0 of the -0.0 that rounding leaves
        values.append(round(value, _DIGITS) + 0.0)
    own_divergences = [divergences[index] for index in pieces] if divergences else []
    lists = [ranked(top[index], ranks) for index in pieces] if ranks and len(top) == len(texts) else []
    if None in lists:
        return "out_of_range"
    own_entropies = [entropies[index] for index in pieces] if len(entropies) == len(texts) else []
    # rounding may leave an entropy a little below 0
    values_of_pieces = [round(max(0.0, value), _DIGITS) for value in own_entropies if value is not None]
    return AnswerTokens(
        tuple(pieces.values()),
        tuple(values),
        _mean(own_divergences),
        tuple(values_here or () for values_here in lists),
        tuple(values_of_pieces) if len(values_of_pieces) == len(own_entropies) else (),
    )


def ranked(values: Sequence[float | None], ranks: int) -> tuple[float, ...] | None:
    """Sort the log-probabilities at one position and keep the largest; None if they are not probabilities.

    Marks for unknown values and those of impossible tokens are left out, so the list may be shorter.
    """
    present = [value for value in values if value is not None and value >= LOWEST]  # which NaN is not
    # a value a little above 0 is a rounded 0
    falling = sorted((min(0.0, value) for value in present if value != UNKNOWN_LOGPROB), reverse=True)
    largest = falling[:ranks]
    if any(value > _EXCESS for value in present) or math.fsum(map(math.exp, largest)) > 1 + _EXCESS:
        return None
    return tuple(round(value, _DIGITS) + 0.0 for value in largest)


def likely_tokens(tokens: Iterable[tuple[str, float]]) -> tuple[LikelyToken, ...]:
    """Keep tokens that can be stored: log-probabilities in range, rounded."""
    likely = []
    for text, logprob in tokens:
        if LOWEST <= logprob <= 0:  # which NaN is not
            likely.append(LikelyToken(text, round(logprob, _DIGITS) + 0.0))
    return tuple(likely)


def first_token(answer: str, texts: Sequence[str | None]) -> int | None:
    """Find an answer's first token; None for an empty answer or tokens of another text.

    Args:
        texts: of all tokens of the completion, as in :func:`answer_tokens`.
    """
    pieces = _pieces(answer, texts) or {}
    return next((index for index, piece in pieces.items() if piece), None)


def _pieces(answer: str, texts: Sequence[str | None]) -> dict[int, str] | None:
    """Map token indices to the parts of the answer that they spell; None if they spell another text."""
    whole = "".join(text or "" for text in texts)
    limit = len(whole) - len(_end_of_turn(answer, texts))
    closing = whole.rfind("</answer>", 0, limit)  # what follows may repeat the answer
    if closing >= 0 and not whole[:limit].rstrip().endswith(answer) and answer in whole[:closing]:
        limit = closing
    # The last occurrence: a reasoning trace before it may mention the answer.
    start = whole.rfind(answer, 0, limit)
    if start < 0:
        return None
    end = start + len(answer)
    after = 0
    pieces = {}
    for index, text in enumerate(texts):
        if text is None:
            continue
        before, after = after, after + len(text)
        # one without text may begin the first character
        if before < end and (after > start or before == start):
            pieces[index] = text[max(0, start - before) : end - before]
    return pieces


def _end_of_turn(answer: str, texts: Sequence[str | None]) -> str:
    """Return the last token's text if it closes the turn, else an empty string.

    A short answer may occur in it.
    """
    last_text = next(filter(None, reversed(texts)), "")
    return last_text if _MARKER.fullmatch(last_text) and not answer.endswith(last_text) else ""


def _mean(divergences: Sequence[float | None]) -> float | None:
    values = [value for value in divergences if value is not None]
    if not values or len(values) < len(divergences):
        return None
    mean = sum(values) / len(values)
    return round(max(0.0, mean), _DIGITS) if math.isfinite(mean) else None


class TokenValues(NamedTuple):
    """Log-probabilities and tokens of M answers; fields that a file lacks are empty."""

    logprobs: Logprobs = ()
    """Log-probabilities of each answer's tokens, in nats."""
    tokens: Tokens = ()
    """Texts of each answer's tokens."""
    self_certainty: tuple[float, ...] = ()
    """Mean over an answer's tokens of KL(uniform, prediction), in nats."""
    top_logprobs: tuple[Logprobs, ...] = ()
    """Largest log-probabilities at each token of each answer, in descending order."""
    token_entropies: Logprobs = ()
    """Entropy of the prediction at each token of each answer, in nats."""

    def records(self, answers: Sequence[str]) -> tuple[AnswerTokens | NoLogprobs, ...]:
        """Make records for a run directory; empty without both log-probabilities and tokens."""
        if not self.logprobs or not self.tokens:
            return ()
        records = []
        for index, answer in enumerate(answers):
            record = answer_tokens(answer, self.tokens[index], self.logprobs[index])
            if isinstance(record, AnswerTokens):
                certainty = self.self_certainty[index] if self.self_certainty else None
                # tokens without text are left out, and then nobody knows which of the lists are theirs
                is_whole = len(record.texts) == len(self.tokens[index])
                top = self.top_logprobs[index] if self.top_logprobs and is_whole else ()
                entropies = self.token_entropies[index] if self.token_entropies and is_whole else ()
                record = AnswerTokens(record.texts, record.logprobs, certainty, top, entropies)
            records.append(record)
        return tuple(records)

    def cut(self, places: Sequence[tuple[int, int]]) -> TokenValues:
        """Keep a span of each answer's tokens, and drop the self-certainty of whole answers."""

        def rows(column: Any) -> Any:
            pairs = zip(column, places, strict=True) if column else ()
            return tuple(row[start:end] for row, (start, end) in pairs)

        return TokenValues._make(map(rows, self._replace(self_certainty=())))

    def choose(self, indices: Sequence[int]) -> TokenValues:
        """Select the values of the answers at ``indices``."""
        return TokenValues._make(
            tuple(column[index] for index in indices) if column else () for column in self
        )


def stored_values(records: Sequence[AnswerTokens | NoLogprobs]) -> TokenValues:
    """Collect the stored tokens of all answers; empty if an answer has none."""
    answers = [record for record in records if isinstance(record, AnswerTokens) and record.texts]
    if len(answers) < len(records):
        return TokenValues()
    certainties = [record.self_certainty for record in answers if record.self_certainty is not None]
    return TokenValues(
        tuple(record.logprobs for record in answers),
        tuple(record.texts for record in answers),
        tuple(certainties) if len(certainties) == len(answers) else (),
        tuple(record.top for record in answers) if all(record.top for record in answers) else (),
        tuple(record.entropies for record in answers) if all(record.entropies for record in answers) else (),
    )
