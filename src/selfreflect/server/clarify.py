"""Clarification: the response to low confidence, such as a question that separates the answers.

It is the one with the largest expected information gain, as in BED-LLM (Choudhury et al. 2026, ICLR, arXiv
2508.21184): a model proposes candidates with the sampled answers before its eyes, and further ones without
them if those are too few; and the probabilities of the replies, given an answer, are those of the token that
the model would reply with.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeAlias, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from selfreflect.errors import excerpt
from selfreflect.grouping import normal_form
from selfreflect.logprobs import LikelyToken
from selfreflect.models.base import Message, Refusal, Reply, Request, Sampling, seed_for
from selfreflect.prompts import bundled_texts
from selfreflect.server.reply import AnswerShare, Confidence
from selfreflect.stats import Floats, defined
from selfreflect.text import counted, fill, numbered, one_line, quoted
from selfreflect.uncertainty.asking.asker import PHRASES, Hedge, described, parse_numbered, read_hedge
from selfreflect.uncertainty.question import AnsweredQuestion, NoValue

CANDIDATES = 15
HYPOTHESES = 15
"""Maximum number of classes to tell apart, the most frequent first."""
REPLY_TEMPERATURE = 0.7
LIKELY_TOKENS = 20
"""Number of likely first tokens of a reply to search for numbers, the most that servers return."""
OPTIONS = (2, 4)
"""Minimum and maximum number of replies of a candidate."""
LEAST_BITS = 0.5
"""Minimum information in bits for asking a question."""
_LONGEST_QUESTION = 300
_LONGEST_OPTION = 100

T = TypeVar("T")
# Yields requests, receives their replies in order, returns what came of it.
_Rounds: TypeAlias = Generator[list[Request], Sequence[Reply | Refusal], T]


@dataclass(frozen=True)
class Clarification:
    """A clarifying question, with a model's texts on one line, without control characters."""

    question: str
    options: tuple[str, ...]
    """Possible replies."""
    gain: float
    """Expected information, in bits, about which class is meant."""
    entropy: float
    """Entropy of the classes in bits, the most that can be learned."""


@dataclass(frozen=True)
class NoClarification:
    """The reason for a missing clarifying question."""

    reason: Literal["one_class", "no_reply", "unparsed", "no_logprobs", "no_gain"]
    message: str


Conversation: TypeAlias = _Rounds[Clarification | NoClarification]


@dataclass(frozen=True)
class _Candidate:
    question: str
    options: tuple[str, ...]


# Of the candidates whose replies can be predicted.
_Gains: TypeAlias = list[tuple[float, _Candidate]]


@dataclass(frozen=True)
class _Case:
    """A question with the answers to tell apart."""

    question: str
    hypotheses: tuple[str, ...]
    shares: tuple[float, ...]
    """Shares of the hypotheses."""
    seed: int

    def request(self, step: str, values: dict[str, str], **options: Any) -> Request:
        """Fill in the prompt of a step, with request fields as ``options``."""
        common = {"question": self.question, "hypotheses": numbered(self.hypotheses)}
        content = fill(texts()[step]["user"], {**common, **values}).strip()
        seed = seed_for(self.seed, step, content)
        return Request(messages=(Message(role="user", content=content),), seed=seed, **options)


def texts() -> Mapping[str, Mapping[str, str]]:
    """Read the prompts and sentences of ``data/serve_prompts.toml``, by table and name."""
    return bundled_texts("serve_prompts.toml")


def clarify(
    question: AnsweredQuestion,
    classes: Sequence[AnswerShare],
    *,
    candidates: int = CANDIDATES,
    hypotheses: int = HYPOTHESES,
    seed: int = 0,
) -> Conversation:
    """Ask a model for clarifying questions, and choose the most informative about the class.

    The requests of a round do not depend on each other. Of candidates with the same gain the first is taken.

    Args:
        question: what somebody asks, with its context.
        classes: of the sampled answers, by falling share.
        candidates: how many questions to choose from.
        hypotheses: how many classes to tell apart, at most.
        seed: of the requests.
    """
    likely = [entry for entry in classes if entry.share > 0][:hypotheses]
    if len(likely) < 2:
        return NoClarification(
            "one_class", "all answers mean the same, so a question would not tell them apart"
        )
    names, shares = tuple(entry.text for entry in likely), tuple(entry.share for entry in likely)
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
    # before the predictions: up to 15 times 15 requests, which are of no use without log-probabilities
    if not first.completions[0].first_tokens:
        return NoClarification("no_logprobs", "the model gives no log-probabilities")
    gains = yield from _gains_by_token(case, proposals)
    if not gains:
        return NoClarification("unparsed", "the model does not begin its predictions with a number")
    gain, best = max(gains, key=lambda pair: pair[0])
    if gain < LEAST_BITS:
        bits = max(gain, 0.0)
        return NoClarification(
            "no_gain",
            f"the best question would give only {bits:.2f} bits about the answer, fewer than {LEAST_BITS}",
        )
    # the shares of the classes left out are spread over the others
    weights = np.array(shares) / sum(shares)
    return Clarification(best.question, best.options, gain, float(entropy_bits(weights)))


def _propose(
    case: _Case, step: str, count: int, proposals: Sequence[_Candidate] = ()
) -> _Rounds[Reply | Refusal]:
    """Request candidates, and test whether the model returns probabilities."""
    values = {"k": str(count), "earlier": numbered([proposal.question for proposal in proposals])}
    # 48 tokens for each line, which holds a question and its replies
    sampling = Sampling(temperature=0.0, max_new_tokens=48 * count)
    [reply] = yield [case.request(step, values, sampling=sampling, first_tokens=1)]
    return reply


def _whole_lines(reply: Reply | Refusal) -> str:
    """Keep a response's complete lines; empty for a refusal."""
    if isinstance(reply, Refusal):
        return ""
    [completion] = reply.completions
    return completion.text if completion.finish == "stop" else completion.text.rpartition("\n")[0]


def parse_candidates(text: str) -> list[_Candidate]:
    """Parse lines ``1. question | reply | reply``, leaving out lines in another form, with equal replies, or
    with a text that is too long."""
    lines = parse_numbered(text)
    candidates = []
    for line in () if isinstance(lines, NoValue) else lines:
        # models like to print a question in bold or in quotation marks
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
    """Keep the first candidate of each distinct question."""
    by_question: dict[str, _Candidate] = {}
    for candidate in candidates:
        by_question.setdefault(normal_form(candidate.question), candidate)
    return list(by_question.values())


def _gains_by_token(case: _Case, candidates: Sequence[_Candidate]) -> _Rounds[_Gains]:
    """Compute gains from the first tokens of predicted replies, leaving out candidates without a number."""
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
        # a candidate counts only if every class has a prediction
        if len(table) == len(rows):
            gains.append((expected_information_gain(case.shares, table), candidate))
    return gains


def reply_probabilities(tokens: Sequence[LikelyToken], options: int) -> Floats | None:
    """Compute reply probabilities at ``REPLY_TEMPERATURE`` from the tokens of their numbers.

    Args:
        tokens: the likeliest, with log-probabilities at temperature 1.

    Returns:
        Shape (options,); None if less than half of the probability is on the numbers.
    """
    numbers = {str(number): number - 1 for number in range(1, options + 1)}
    logprobs = np.full(options, -np.inf)
    for token in tokens:
        index = numbers.get(token.text.strip())
        if index is not None:
            # "1" and " 1" are different tokens for the same reply
            logprobs[index] = np.logaddexp(logprobs[index], token.logprob)
    # the model would rather begin with a word, so the numbers mean little
    if np.exp(logprobs).sum() < 0.5:
        return None
    weights = np.exp((logprobs - logprobs.max()) / REPLY_TEMPERATURE)
    shares: Floats = weights / weights.sum()
    return shares


def _values(candidate: _Candidate) -> dict[str, str]:
    return {"asked": quoted(candidate.question), "options": numbered(candidate.options)}


def entropy_bits(shares: ArrayLike) -> Floats:
    """Compute entropies in bits over the last axis, shape (..., K) to (...)."""
    p = np.asarray(shares, dtype=np.float64)
    # 0 log 0 counts as 0
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
    # rounding may leave a gain of -1e-17
    return max(0.0, float(gain))


UnsureAction = Literal["abstain", "hedge", "ask"]
"""``abstain``: say that the answer is not known well enough. ``hedge``: say how sure it is, then the summary.
``ask``: ask the question that separates the classes best."""

AGREEMENTS = ("modal_share", "split_half")
"""Kinds of confidence that are shares of samples, not probabilities of being right."""

# Beginnings of a sentence with a phrase of ``asker.PHRASES``.
_WORDS = {
    "almost certain": "It is almost certain",
    "very likely": "It is very likely",
    "very good chance": "There is a very good chance",
    "likely": "It is likely",
    "probable": "It is probable",
    "better than even": "The chances are better than even",
    "about even": "The chances are about even",
    "unlikely": "It is unlikely",
    "very unlikely": "It is very unlikely",
    "almost no chance": "There is almost no chance",
}


_SHARE = re.compile(
    r"\d ?%|\b(?:per ?cent|prozent|half|hälfte|third|thirds|drittel|quarters?|viertel|majority|mehrheit)\b"
    r"|\bmost of (?:my|the|all|these)\b|\b\w+ (?:out of|of|von) (?:my |the |all )?\d+\b",
    re.IGNORECASE,
)


class FinalText(NamedTuple):
    """The final text for a client."""

    text: str
    action: UnsureAction | None
    """Action taken; None for the unchanged summary."""
    note: str = ""
    """Reason for an action other than the configured one."""


@dataclass(frozen=True)
class UnsurePolicy:
    """Action below a confidence threshold in (0, 1]."""

    action: UnsureAction
    below: float
    candidates: int = CANDIDATES
    """Number of questions for ``ask`` to choose from."""
    hypotheses: int = HYPOTHESES
    """Number of largest classes that the question should distinguish."""

    def is_unsure(self, confidence: Confidence) -> bool:
        """Check whether a confidence is below the threshold; an unknown confidence is not.

        Where there is a guarantee, its threshold decides, and what it does not cover is unsure, also
        without a confidence.
        """
        if confidence.guarantee is not None or confidence.no_guarantee is not None:
            # drift concerns all questions of late; this answer itself scored above the threshold
            return confidence.no_guarantee not in (None, "drift")
        return confidence.value is not None and confidence.value < self.below

    def word(
        self,
        confidence: Confidence,
        summary: str,
        clarification: Clarification | NoClarification | None,
    ) -> FinalText:
        """Phrase a summary to fit its confidence.

        Args:
            clarification: for ``ask``, where the lack of a question makes a hedge with a note; None for other
                actions.
        """
        value = confidence.value
        if not self.is_unsure(confidence):
            unknown = f"whether to {self.action} is not known without a confidence"
            return FinalText(summary, None, unknown if value is None else "")
        if self.action == "abstain":
            return FinalText(_said("abstain", certainty=certainty(confidence)).rstrip(), "abstain")
        if isinstance(clarification, Clarification) and self.action == "ask":
            options = "\n".join(f"- {option}" for option in clarification.options)
            return FinalText(_said("ask", asked=clarification.question, options=options), "ask")
        note = ""
        if isinstance(clarification, NoClarification):
            note = f"there is no question to ask back: {clarification.message}"
        if value is None:  # a guarantee does not cover what has no score
            return FinalText(_said("bare_hedge", summary=summary), "hedge", note)
        is_share = confidence.kind in AGREEMENTS and confidence.calibrator_id is None
        if is_share and tells_other_share(summary, value):
            reason = "the summary already states shares, so the text does not repeat the confidence"
            note = "; ".join(filter(None, (note, reason)))
            return FinalText(_said("bare_hedge", summary=summary), "hedge", note)
        return FinalText(_said("hedge", certainty=certainty(confidence), summary=summary), "hedge", note)


def tells_other_share(summary: str, value: float) -> bool:
    """Check whether a text states shares, or a probability that does not fit ``value``."""
    hedge = read_hedge(summary)
    is_other = isinstance(hedge, Hedge) and not hedge.band.low <= value <= hedge.band.high
    return is_other or bool(_SHARE.search(summary))


def certainty(confidence: Confidence) -> str:
    """Phrase a confidence as a sentence; empty if there is none.

    A calibrated confidence speaks of being right, a share of samples of saying the same again. The sentence
    has a word of probability only if the number is in the band that people give to it.
    """
    value = confidence.value
    if value is None:
        return ""
    name = "stated"
    if confidence.calibrator_id is not None:
        name = "calibrated"
    elif confidence.kind in AGREEMENTS:
        name = "again"
    words = _words_for(value)
    values = {"percent": _percent(value), "samples": counted(confidence.num_answers, "sample")}
    template = texts()["certainty"][name if words else f"{name}_number"]
    return fill(template, {**values, "words": words or ""})


def _words_for(value: float) -> str | None:
    """Find the sentence opening for a probability, by its band."""
    # people disagree on words: only those whose band holds the number
    fitting = [phrase for phrase in _WORDS if PHRASES[phrase].low <= value <= PHRASES[phrase].high]
    if not fitting:
        return None
    return _WORDS[min(fitting, key=lambda phrase: abs(PHRASES[phrase].middle - value))]


def _percent(value: float) -> str:
    # "0%" and "100%" would claim to be certain
    if 0 < value < 0.005:
        return "under 1%"
    if 0.995 <= value < 1:
        return "over 99%"
    return f"{value:.0%}"


def _said(name: str, **values: str) -> str:
    return fill(texts()["unsure"][name].strip(), values)
