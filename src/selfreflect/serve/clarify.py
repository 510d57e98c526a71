"""Find the question that, asked back, tells most about which of the sampled answers is meant.

It is the one with the largest expected information gain, as in BED-LLM (Choudhury et al. 2026, ICLR, arXiv
2508.21184): a model proposes candidates with the sampled answers before its eyes, and further ones without
them if those are too few; and the probabilities of the replies, given an answer, are those of the token that
the model would reply with. Where a server tells no probabilities of tokens, they are the shares of a few
sampled predictions, and the gain is corrected for that.
"""

from __future__ import annotations

import math
import re
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from selfreflect.errors import excerpt
from selfreflect.grouping import normal_form
from selfreflect.logprobs import LikelyToken
from selfreflect.models.base import Message, Refusal, Reply, Request, Sampling, seed_for
from selfreflect.prompts import bundled_texts
from selfreflect.serve.reply import AnswerShare
from selfreflect.stats import Floats, defined
from selfreflect.text import fill, numbered, one_line, quoted
from selfreflect.uncertainty.asking.verdicts import described, parse_numbered
from selfreflect.uncertainty.question import AnsweredQuestion, NoValue

CANDIDATES = 15
HYPOTHESES = 15
"""The most frequent classes; the others are left out."""
REPLY_TEMPERATURE = 0.7
LIKELY_TOKENS = 20
"""First tokens of a reply among which the numbers are looked for: the most that servers give."""
PREDICTIONS = 8
"""Samples for each candidate where a model tells no probabilities; half of them must be legible."""
OPTIONS = (2, 4)
"""Fewest and most replies that a candidate names."""
LEAST_BITS = 0.5
"""A question that tells less is not asked. If the predictions are random samples, the best of 15 candidates
seems to tell so much in 3 of 100 cases at most (``benchmarks/asking_back.py``)."""
_LONGEST_QUESTION = 300
_LONGEST_OPTION = 100

_OPTION = re.compile(r"\(?(\d{1,2})\b|(\?)")

T = TypeVar("T")
_Rounds: TypeAlias = Generator[list[Request], Sequence[Reply | Refusal], T]
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


Conversation: TypeAlias = _Rounds[Clarification | NoClarification]


@dataclass(frozen=True)
class _Candidate:
    question: str
    options: tuple[str, ...]


_Gains: TypeAlias = list[tuple[float, _Candidate]]
"""Of the candidates whose replies can be predicted."""


@dataclass(frozen=True)
class _Case:
    """A question, and the answers that are to be told apart."""

    question: str
    hypotheses: tuple[str, ...]
    shares: tuple[float, ...]
    """Of the hypotheses."""
    seed: int

    def request(self, step: str, values: dict[str, str], **options: Any) -> Request:
        """Fill in the prompt of a step; ``options`` are fields of the request."""
        own = {"question": self.question, "hypotheses": numbered(self.hypotheses)}
        content = fill(texts()[step]["user"], {**own, **values}).strip()
        seed = seed_for(self.seed, step, content)
        return Request(messages=(Message(role="user", content=content),), seed=seed, **options)


def texts() -> Mapping[str, Mapping[str, str]]:
    """Prompts and sentences of ``data/serve_prompts.toml``, by table and name."""
    return bundled_texts("serve_prompts.toml")


def clarify(
    question: AnsweredQuestion,
    classes: Sequence[AnswerShare],
    *,
    candidates: int = CANDIDATES,
    hypotheses: int = HYPOTHESES,
    seed: int = 0,
) -> Conversation:
    """Ask a model for questions to ask back, and choose the one that tells most about the class.

    The requests of a round do not depend on each other. Of candidates with the same gain the first is taken.

    Args:
        question: what somebody asks, with its context.
        classes: of the sampled answers, by falling share.
        candidates: how many questions to choose from.
        hypotheses: how many classes to tell apart, at most.
        seed: of the requests.
    """
    likely = [one for one in classes if one.share > 0][:hypotheses]
    if len(likely) < 2:
        return NoClarification("one_class", "all answers mean the same, so a question would tell nothing")
    names, shares = tuple(one.text for one in likely), tuple(one.share for one in likely)
    case = _Case(described(question), names, shares, seed)
    first = yield from _propose(case, "candidates", candidates)
    if isinstance(first, Refusal):
        return NoClarification("no_reply", f"the model proposed no question ({first.kind}): {first.message}")
    proposals = parse_candidates(_whole_lines(first))[:candidates]
    if not proposals:
        message = f"no question with two to four replies in {excerpt(first.text, 80)}"
        return NoClarification("unparsed", message)
    if missing := candidates - len(proposals):
        second = yield from _propose(case, "further_candidates", missing, proposals)
        proposals = _distinct([*proposals, *parse_candidates(_whole_lines(second))])[:candidates]
    gains: _Gains = []
    if first.completions[0].first_tokens:
        gains = yield from _gains_by_token(case, proposals)
    if not gains:
        gains, sample = yield from _gains_by_samples(case, proposals)
        if not gains:
            return NoClarification("unparsed", f"too few predictions can be read: {sample}")
    gain, best = max(gains, key=lambda pair: pair[0])
    if gain < LEAST_BITS:
        bits = max(gain, 0.0)
        return NoClarification("no_gain", f"the best question would tell {bits:.2f} bits, under {LEAST_BITS}")
    weights = np.array(shares) / sum(shares)
    return Clarification(best.question, best.options, gain, float(entropy_bits(weights)))


def _propose(
    case: _Case, step: str, count: int, earlier: Sequence[_Candidate] = ()
) -> _Rounds[Reply | Refusal]:
    """Ask for candidates, and for a probability, to see whether the model tells any."""
    values = {"k": str(count), "earlier": numbered([one.question for one in earlier])}
    sampling = Sampling(temperature=0.0, max_new_tokens=48 * count)
    [reply] = yield [case.request(step, values, sampling=sampling, first_tokens=1)]
    return reply


def _whole_lines(reply: Reply | Refusal) -> str:
    """The text of a reply up to its last whole line; empty for a refusal."""
    if isinstance(reply, Refusal):
        return ""
    [completion] = reply.completions
    return completion.text if completion.finish == "stop" else completion.text.rpartition("\n")[0]


def parse_candidates(text: str) -> list[_Candidate]:
    """Read lines ``1. question | reply | reply``. A line in another form, with replies that are the same, or
    with a text that is too long, is left out."""
    lines = parse_numbered(text)
    candidates = []
    for line in () if isinstance(lines, NoValue) else lines:
        question, *options = (one_line(part.strip(' \t*"')) for part in line.split("|"))
        options = list(filter(None, options))
        distinct = set(map(normal_form, options))
        if not question or not OPTIONS[0] <= len(options) <= OPTIONS[1] or len(distinct) < len(options):
            continue
        if len(question) > _LONGEST_QUESTION or max(map(len, options)) > _LONGEST_OPTION:
            continue
        candidates.append(_Candidate(question, tuple(options)))
    return _distinct(candidates)


def _distinct(candidates: Sequence[_Candidate]) -> list[_Candidate]:
    """The first candidate with each question."""
    by_question: dict[str, _Candidate] = {}
    for candidate in candidates:
        by_question.setdefault(normal_form(candidate.question), candidate)
    return list(by_question.values())


def _gains_by_token(case: _Case, candidates: Sequence[_Candidate]) -> _Rounds[_Gains]:
    """Read how likely each reply is, for each candidate and hypothesis, off the token that the model would
    begin with. Leaves out candidates for which it would not begin with a number."""
    requests = []
    sampling = Sampling(temperature=0.0, max_new_tokens=8)
    for candidate in candidates:
        for hypothesis in case.hypotheses:
            values = {**_values(candidate), "hypothesis": quoted(hypothesis)}
            requests.append(case.request("reply", values, sampling=sampling, first_tokens=LIKELY_TOKENS))
    replies = iter((yield requests))
    gains: _Gains = []
    for candidate in candidates:
        rows = []
        for _ in case.hypotheses:
            reply = next(replies)
            tokens = () if isinstance(reply, Refusal) else reply.completions[0].first_tokens
            rows.append(reply_probabilities(tokens, len(candidate.options)))
        table = defined(rows)
        if len(table) == len(rows):
            gains.append((expected_information_gain(case.shares, table), candidate))
    return gains


def reply_probabilities(tokens: Sequence[LikelyToken], options: int) -> Floats | None:
    """Compute how likely each reply is at ``REPLY_TEMPERATURE``, from tokens that may be its number.

    Args:
        tokens: the likeliest, with log-probabilities at temperature 1.

    Returns:
        Shape (options,); None if less than half of the probability is on the numbers.
    """
    numbers = {str(number): number - 1 for number in range(1, options + 1)}
    logprobs = np.full(options, -np.inf)
    for token in tokens:
        place = numbers.get(token.text.strip())
        if place is not None:
            logprobs[place] = np.logaddexp(logprobs[place], token.logprob)
    if np.exp(logprobs).sum() < 0.5:
        return None
    weights = np.exp((logprobs - logprobs.max()) / REPLY_TEMPERATURE)
    shares: Floats = weights / weights.sum()
    return shares


def _gains_by_samples(case: _Case, candidates: Sequence[_Candidate]) -> _Rounds[tuple[_Gains, str]]:
    """Sample predictions of the replies. Leaves out candidates with too few that can be read, and returns the
    beginning of the first prediction too."""
    sampling = Sampling(temperature=REPLY_TEMPERATURE, max_new_tokens=512)
    replies = yield [
        case.request("predictions", _values(candidate), sampling=sampling, n=PREDICTIONS)
        for candidate in candidates
    ]
    gains: _Gains = []
    for candidate, reply in zip(candidates, replies, strict=True):
        size = (len(case.hypotheses), len(candidate.options))
        texts = () if isinstance(reply, Refusal) else reply.texts
        legible = defined([parse_prediction(text, *size) for text in texts])
        if 2 * len(legible) >= PREDICTIONS:
            table = np.mean(legible, axis=0)
            gains.append((corrected_gain(case.shares, table, len(legible)), candidate))
    first = replies[0]
    return gains, first.message if isinstance(first, Refusal) else excerpt(first.text, 80)


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


def _values(candidate: _Candidate) -> dict[str, str]:
    return {"asked": quoted(candidate.question), "options": numbered(candidate.options)}


def entropy_bits(shares: ArrayLike) -> Floats:
    """Compute the entropy, in bits, of distributions in the last axis; shape (..., K) to (...)."""
    p = np.asarray(shares, dtype=np.float64)
    positive = np.where(p > 0, p, 1)
    bits: Floats = -(p * np.log2(positive)).sum(-1)
    return bits


def expected_information_gain(shares: ArrayLike, replies: ArrayLike) -> float:
    """Compute H(reply) - E_h H(reply | h), in bits.

    It is the mutual information of reply and hypothesis, which Bayesian experimental design maximises
    (Lindley 1956, Ann. Math. Stat. 27, 986-1005).

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
