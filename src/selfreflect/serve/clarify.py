"""Find the question that, asked back, tells most about which of the sampled answers is meant.

The expected information gain of a question is H(reply) - E_h H(reply | h): how uncertain its reply is, less
how uncertain it stays where the answer ``h`` is known. It is the mutual information of reply and answer, and
what Bayesian experimental design maximises (Lindley 1956, Ann. Math. Stat. 27, 986-1005; for language models
BED-LLM, Choudhury et al. 2026, ICLR, arXiv 2508.21184). As there, a model proposes candidates with the
sampled answers before its eyes, and predicts the replies for each answer. BED-LLM reads the predictions off
log-probabilities; here they are the shares of a few sampled predictions, because many servers give no
log-probabilities, and the gain is corrected for that. All numbers below are our choice.
"""

from __future__ import annotations

import math
import re
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from selfreflect.errors import excerpt
from selfreflect.grouping import normal_form
from selfreflect.models.base import Message, Refusal, Reply, Request, Sampling, seed_for
from selfreflect.render.text import one_line
from selfreflect.serve.reply import AnswerShare
from selfreflect.serve.texts import texts
from selfreflect.stats import Floats, defined
from selfreflect.text import fill, numbered, quoted
from selfreflect.uncertainty.asking.parsing import parse_numbered
from selfreflect.uncertainty.asking.prompts import described
from selfreflect.uncertainty.question import AnsweredQuestion, NoValue

CANDIDATES = 5
HYPOTHESES = 5
"""The most frequent classes; the others are left out."""
PREDICTIONS = 8
"""Of the replies to each candidate, half of which must be legible."""
OPTIONS = (2, 4)
"""Fewest and most replies that a candidate names."""
LEAST_BITS = 0.4
"""A question that tells less is not asked. If the predictions are random, the best of all candidates seems to
tell so much in 3 of 100 cases."""
_LONGEST_QUESTION = 300
_LONGEST_OPTION = 100

_OPTION = re.compile(r"\(?(\d{1,2})\b|(\?)")

Conversation: TypeAlias = Generator[
    list[Request], Sequence[Reply | Refusal], "Clarification | NoClarification"
]
"""Yields requests, receives their replies in order, returns what came of it."""


@dataclass(frozen=True)
class Clarification:
    """A question to ask back. Its texts are a model's, on one line, without control characters."""

    question: str
    options: tuple[str, ...]
    """Possible replies."""
    gain: float
    """Expected information, in bits, about which class is meant."""
    entropy: float
    """What there is to learn: the entropy of the classes, in bits."""


@dataclass(frozen=True)
class NoClarification:
    """Why there is no question to ask back."""

    reason: Literal["one_class", "no_reply", "unparsed", "no_gain"]
    message: str


@dataclass(frozen=True)
class _Candidate:
    question: str
    options: tuple[str, ...]


def entropy_bits(shares: ArrayLike) -> Floats:
    """Compute the entropy, in bits, of distributions in the last axis; shape (..., K) to (...)."""
    p = np.asarray(shares, dtype=np.float64)
    positive = np.where(p > 0, p, 1)
    bits: Floats = -(p * np.log2(positive)).sum(-1)
    return bits


def expected_information_gain(shares: ArrayLike, replies: ArrayLike) -> float:
    """Compute H(reply) - E_h H(reply | h), in bits.

    Args:
        shares: of the hypotheses, not all 0; they need not add up to 1. Shape (H,).
        replies: how likely each reply is if a hypothesis is right; rows add up to 1. Shape (H, K).
    """
    weights = np.asarray(shares, dtype=np.float64)
    weights = weights / weights.sum()
    table = np.asarray(replies, dtype=np.float64)
    gain = entropy_bits(weights @ table) - weights @ entropy_bits(table)
    return max(0.0, float(gain))


def corrected_gain(shares: ArrayLike, replies: ArrayLike, predictions: int) -> float:
    """Compute the expected information gain where each row of ``replies`` is the shares of a few predictions.

    The entropy of ``n`` samples with ``m`` different values comes out too low by about (m - 1) / 2n nats
    (Miller 1955). That of a reply whose answer is known is raised by so much, which lowers the gain, to below
    0 for random predictions. The entropy of the reply stays as it is: too low, if anything.
    """
    weights = np.asarray(shares, dtype=np.float64)
    values = (np.asarray(replies) > 0).sum(-1)
    bias = weights @ (values - 1) / weights.sum() / (2 * predictions * math.log(2))
    return expected_information_gain(shares, replies) - float(bias)


def clarify(question: AnsweredQuestion, classes: Sequence[AnswerShare], *, seed: int = 0) -> Conversation:
    """Ask a model for questions to ask back, and choose the one that tells most about the class.

    Takes two rounds of requests: one for candidates, then one for each of them. Of candidates with the same
    gain the first is taken.

    Args:
        question: what somebody asks, with its context.
        classes: of the sampled answers, by falling share.
        seed: of the requests.
    """
    hypotheses = [one for one in classes if one.share > 0][:HYPOTHESES]
    if len(hypotheses) < 2:
        return NoClarification("one_class", "all answers mean the same, so a question would tell nothing")
    values = {
        "question": described(question),
        "hypotheses": numbered([one.text for one in hypotheses]),
        "k": str(CANDIDATES),
    }
    [reply] = yield [_request("candidates", values, n=1, seed=seed)]
    if isinstance(reply, Refusal):
        return NoClarification("no_reply", f"the model proposed no question ({reply.kind}): {reply.message}")
    candidates = parse_candidates(reply.text)
    if not candidates:
        return NoClarification(
            "unparsed", f"no question with two to four replies in {excerpt(reply.text, 80)}"
        )
    replies = yield [_prediction(candidate, values, seed) for candidate in candidates]
    shares = [one.share for one in hypotheses]
    gains = []
    for candidate, predicted in zip(candidates, replies, strict=True):
        legible = _legible(predicted, len(hypotheses), len(candidate.options))
        if 2 * len(legible) >= PREDICTIONS:
            table = np.mean(legible, axis=0)
            gains.append((corrected_gain(shares, table, len(legible)), candidate))
    if not gains:
        return NoClarification("unparsed", f"too few predictions can be read: {_first_fault(replies)}")
    gain, best = max(gains, key=lambda pair: pair[0])
    if gain < LEAST_BITS:
        bits = max(gain, 0.0)
        return NoClarification("no_gain", f"the best question would tell {bits:.2f} bits, under {LEAST_BITS}")
    weights = np.array(shares) / sum(shares)
    return Clarification(best.question, best.options, gain, float(entropy_bits(weights)))


def parse_candidates(text: str) -> list[_Candidate]:
    """Read lines ``1. question | reply | reply``. A line in another form, with replies that are the same, or
    with a text that is too long, is left out."""
    lines = parse_numbered(text)
    candidates: dict[str, _Candidate] = {}
    for line in () if isinstance(lines, NoValue) else lines:
        question, *options = (one_line(part.strip(' \t*"')) for part in line.split("|"))
        options = list(filter(None, options))
        distinct = set(map(normal_form, options))
        if not question or not OPTIONS[0] <= len(options) <= OPTIONS[1] or len(distinct) < len(options):
            continue
        if len(question) > _LONGEST_QUESTION or max(map(len, options)) > _LONGEST_OPTION:
            continue
        candidates.setdefault(normal_form(question), _Candidate(question, tuple(options)))
    return list(candidates.values())[:CANDIDATES]


def parse_prediction(text: str, hypotheses: int, options: int) -> Floats | None:
    """Read lines ``1. 2``: hypothesis 1 makes reply 2. A question mark makes all replies as likely.

    Returns:
        Probabilities of replies, shape (hypotheses, options); None if a line is missing or names no reply.
    """
    lines = parse_numbered(text)
    if isinstance(lines, NoValue) or len(lines) != hypotheses:
        return None
    table = np.zeros((hypotheses, options))
    for row, line in zip(table, lines, strict=True):
        match = _OPTION.match(line)
        if match is None or (match[1] and not 1 <= int(match[1]) <= options):
            return None
        if match[1]:
            row[int(match[1]) - 1] = 1
        else:
            row[:] = 1 / options
    return table


def _legible(predicted: Reply | Refusal, hypotheses: int, options: int) -> list[Floats]:
    """The predictions that can be read."""
    if isinstance(predicted, Refusal):
        return []
    tables = [parse_prediction(one.text, hypotheses, options) for one in predicted.completions]
    return defined(tables)


def _first_fault(replies: Sequence[Reply | Refusal]) -> str:
    first = replies[0]
    return first.message if isinstance(first, Refusal) else excerpt(first.text, 80)


def _prediction(candidate: _Candidate, classes: dict[str, str], seed: int) -> Request:
    values = {**classes, "asked": quoted(candidate.question), "options": numbered(candidate.options)}
    return _request("predictions", values, n=PREDICTIONS, seed=seed)


def _request(name: str, values: dict[str, str], *, n: int, seed: int) -> Request:
    content = fill(texts()[name]["user"], values).strip()
    sampling = Sampling(temperature=1.0 if n > 1 else 0.0, max_new_tokens=512)
    return Request(
        messages=(Message(role="user", content=content),),
        sampling=sampling,
        n=n,
        seed=seed_for(seed, name, content),
    )
