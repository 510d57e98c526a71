"""Short inquiries to a model, with stored responses and costs."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from selfreflect.errors import ConfigError, excerpt
from selfreflect.models.base import (
    Generator,
    Message,
    ModelSpec,
    Refusal,
    Reply,
    Request,
    Sampling,
    as_done,
    seed_for,
)
from selfreflect.prompts import bundled_texts
from selfreflect.records import dump_line
from selfreflect.sameness import abstains
from selfreflect.store.journal import Journal, ModelReplies, RepliesInMemory
from selfreflect.table import Cell, Column, Table
from selfreflect.text import fenced, fill, normalise_question, numbered, quoted, without_credentials
from selfreflect.uncertainty.question import AnsweredQuestion, NoValue

SAME_MEANING = "same_meaning"
"""Step that asks whether two answers mean the same."""
CONTROL = "control"
"""Step that asks the same about pairs with known result."""
VERDICT_TOKENS = 16
"""Token limit for a response that begins with Yes or No."""


class Inquiry(NamedTuple):
    """A conversation for a model to continue."""

    step: str
    """Purpose of the inquiry, such as ``p_true``."""
    messages: tuple[Message, ...]
    n: int = 1
    temperature: float = 0.0
    max_new_tokens: int = 64
    first_tokens: int = 0
    """Number of likely first tokens per response."""

    @property
    def characters(self) -> int:
        """Length of the prompt."""
        return sum(len(message.content) for message in self.messages)


def inquiry(step: str, values: Mapping[str, str], max_new_tokens: int) -> Inquiry:
    """Make an inquiry from a step's prompt, filled with ``values``."""
    return Inquiry(step, (user_turn(step, values),), max_new_tokens=max_new_tokens)


def user_turn(name: str, values: Mapping[str, str], text: str = "user") -> Message:
    """Make a user turn from the text of a step's prompt, filled with ``values``."""
    return Message(role="user", content=fill(prompts()[name][text], values).strip())


def required(asker: Asker | None, purpose: str) -> Asker:
    """Return the model to ask. Raises ConfigError if there is none."""
    if asker is None:
        raise ConfigError(f"{purpose} needs a model to ask", code="no_model", remedy="Name one with {model}.")
    return asker


class ReplyCounter(Protocol):
    """Protocol of progress counters for responses."""

    def advance(self, count: int = 1, failures: int = 0) -> None: ...


class Asker:
    """Client of one model that reuses stored responses.

    Args:
        model: its :func:`model_name`, under which replies are kept.
        load: loads it, when the first inquiry has no stored reply.
        store: where replies are kept; None keeps them for the life of this object.
        confirm: called with the inquiries that have no stored reply, before each batch; it may raise.
        progress: opens a display for a step and a number of inquiries.
        samples_p_true: whether P(True) is counted in replies even where the model tells probabilities.
    """

    def __init__(
        self,
        model: str,
        load: Callable[[], Generator],
        store: Journal[ModelReplies] | RepliesInMemory | None = None,
        *,
        confirm: Callable[[Sequence[Inquiry]], None] = lambda inquiries: None,
        progress: Callable[[str, int], AbstractContextManager[ReplyCounter | None]] | None = None,
        samples_p_true: bool = False,
    ) -> None:
        self.model = model
        self.samples_p_true = samples_p_true
        self._load = load
        self._generator: Generator | None = None
        self._store = RepliesInMemory() if store is None else store
        self._confirm = confirm
        self._progress = progress or (lambda name, total: nullcontext(None))

    def ask(self, inquiries: Sequence[Inquiry]) -> list[ModelReplies]:
        """Get the responses to inquiries, in order. Equal inquiries are asked once, and each response is on
        disk before the wait for the next one.

        Raises:
            BackendError: the model has stopped working. What it replied before is kept.
            StoreError: the disk refuses.
        """
        keys = list(map(self._digest, inquiries))
        records = self._store.records
        missing: dict[str, Inquiry] = {}
        for key, inquiry in zip(keys, inquiries, strict=True):
            # a failure that may pass is asked about again
            if key not in records or not records[key].is_final:
                missing.setdefault(key, inquiry)
        if missing:
            # once for a batch: a user confirms the cost of all of it
            self._confirm(list(missing.values()))
            self._ask(missing)
        return [records[key] for key in keys]

    def _ask(self, inquiries: dict[str, Inquiry]) -> None:
        if self._generator is None:
            self._generator = self._load()
        digests = list(inquiries)
        requests = [_request(digest, inquiry) for digest, inquiry in inquiries.items()]
        steps = ", ".join(dict.fromkeys(inquiry.step for inquiry in inquiries.values()))
        with self._progress(steps, len(requests)) as counter:
            for index, result in as_done(self._generator, requests):
                digest = digests[index]
                replies = self._replies(digest, inquiries[digest], result)
                # written before the next reply is waited for, so an interruption loses one at most
                self._store.append_all([replies])
                if counter is not None:
                    counter.advance(int(replies.failure is None), int(replies.failure is not None))

    def _replies(self, digest: str, inquiry: Inquiry, result: Reply | Refusal) -> ModelReplies:
        facts: dict[str, Any] = {"step": inquiry.step, "request": digest, "model": self.model}
        if isinstance(result, Refusal):
            return ModelReplies(**facts, failure=result.kind, message=result.message)
        return ModelReplies(
            **facts,
            texts=result.texts,
            finishes=tuple(completion.finish for completion in result.completions),
            first_tokens=result.completions[0].first_tokens,
            tokens=result.tokens,
        )

    def _digest(self, inquiry: Inquiry) -> str:
        turns = [[message.role, message.content] for message in inquiry.messages]
        parts = [self.model, turns, inquiry.n, inquiry.temperature, inquiry.max_new_tokens]
        # only where it is asked for, so that replies of earlier versions keep their keys
        if inquiry.first_tokens:
            parts.append(inquiry.first_tokens)
        line = dump_line(parts)
        return hashlib.sha256(line.encode()).hexdigest()[:32]


def _request(digest: str, inquiry: Inquiry) -> Request:
    sampling = Sampling(temperature=inquiry.temperature, max_new_tokens=inquiry.max_new_tokens)
    return Request(
        messages=inquiry.messages,
        sampling=sampling,
        n=inquiry.n,
        # a seed of its own for each inquiry, equal in every run
        seed=seed_for(0, digest),
        first_tokens=inquiry.first_tokens,
    )


def model_name(spec: ModelSpec) -> str:
    """Name a model with its revision, address and extra settings, without credentials."""
    revision = f"@{spec.revision}" if spec.revision else ""
    address = f" at {without_credentials(spec.base_url)}" if spec.base_url else ""
    extra = f" with {dump_line(spec.extra_body)}" if spec.extra_body else ""
    return f"{spec.name}{revision}{address}{extra}"


def failure_of(replies: ModelReplies) -> NoValue | None:
    """Return the reason for a missing response; None if there is one."""
    if replies.failure is None:
        return None
    return NoValue("no_reply", f"the model gave no reply ({replies.failure}): {replies.message}")


def reply_text(replies: ModelReplies) -> str | NoValue:
    """Return the only text of a response, or the reason for its absence."""
    if failure := failure_of(replies):
        return failure
    finish = replies.finishes[0]
    if finish == "length":
        return NoValue("cut_off", "the reply was cut off at the token limit")
    if finish != "stop":
        return NoValue("no_reply", f"the model gave no reply ({finish})")
    return replies.texts[0]


CHARACTERS_PER_TOKEN = 4
"""Approximate characters per token of English prompts, as a server's tokenizer is unknown."""


def cost_table(inquiries: Sequence[Inquiry], model: str, cost: Callable[[int, int], float] | None) -> Table:
    """Tabulate requests, responses and the maximum number of tokens of each step.

    Args:
        cost: of so many tokens of prompts and of replies, if the price of the model is known.
    """
    requests, replies = Counter[str](), Counter[str]()
    prompt_tokens, reply_tokens = Counter[str](), Counter[str]()
    for inquiry in inquiries:
        requests[inquiry.step] += 1
        replies[inquiry.step] += inquiry.n
        # rounded up: a short prompt is a token at least
        prompt_tokens[inquiry.step] += -(-inquiry.characters // CHARACTERS_PER_TOKEN)
        reply_tokens[inquiry.step] += inquiry.n * inquiry.max_new_tokens
    rows: list[tuple[Cell, ...]] = []
    for step in requests:
        counts: list[Cell] = [requests[step], replies[step], prompt_tokens[step], reply_tokens[step]]
        if cost is not None:
            counts.append(cost(prompt_tokens[step], reply_tokens[step]))
        rows.append((step, *counts))
    columns = [
        Column("asked for"),
        Column("requests", ",d"),
        Column("replies", ",d"),
        Column("prompt tokens, about", ",d"),
        Column("reply tokens, at most", ",d"),
    ]
    if cost is not None:
        columns.append(Column("money, at most", ",.4f"))
    return Table(f"What {model} is asked", tuple(columns), tuple(rows))


def prompts() -> Mapping[str, Mapping[str, str]]:
    """Load the texts of ``data/uncertainty_prompts.toml``, by estimator."""
    return bundled_texts("uncertainty_prompts.toml")


def described(question: AnsweredQuestion) -> str:
    """Write a question for prompts, with its context."""
    # an id is the only text that some files have
    plain = quoted(normalise_question(question.text or question.id))
    if not question.context:
        return plain
    values = {"question": plain, "context": fenced(question.context)}
    return user_turn("question", values, "with_context").content


_NUMBER = r"\d+(?:[.,]\d+)*"
_WORD_END = r"(?![\w]|[.,]\d)"
_PERCENT = re.compile(rf"(-?\b{_NUMBER})\s*(?:%|per\s?cent\b)", re.IGNORECASE)
_FRACTION = re.compile(
    rf"(-?\b{_NUMBER})\s*(?:/|\bout\s+of\b|\bin\b)\s*({_NUMBER}){_WORD_END}", re.IGNORECASE
)
_RANGE = re.compile(
    rf"\b{_NUMBER}\s*%?\s*(?:[-–—]|to|and)\s*{_NUMBER}\s*(?:%|per\s?cent\b)",
    re.IGNORECASE,
)
_BOUND = re.compile(
    r"(?:\b(?:(?:less|more|fewer|greater|higher|lower)\s+than|at\s+(?:least|most)|over|under|above|below|up\s+to)\b"
    r"|[<>≤≥])\s*-?\.?\d",
    re.IGNORECASE,
)
_PLAIN = re.compile(rf"(?<![\w.,])(-?(?:{_NUMBER}|\.\d+)){_WORD_END}")
_LEADING_MARK = re.compile(r"^\s*(?:[-*•]|\(?\d{1,2}[.):])\s+")
_NUMBERED = re.compile(r"^\s*\(?(\d{1,2})[.):]\s+(\S.*)$")


@dataclass(frozen=True)
class StatedGuess:
    """An answer with the probability that a model states."""

    text: str
    probability: float


def parse_probability(text: str) -> float | NoValue:
    """Parse one probability: ``85%``, ``85 percent``, ``0.85``, ``17/20``, ``8 out of 10``, or ``85``.

    Percentages and fractions count before other numbers, and the same value said twice is one. A whole number
    from 2 to 100 is a percentage, and one with a decimal point up to 1 is a probability. A plain ``1`` or
    ``1.5`` is refused, because it may be either; so are bounds ("less than 1%"), several
    different values, and values outside [0, 1].
    """
    # "less than 1 %" would be read as 1 %
    if _BOUND.search(text):
        return NoValue("ambiguous_number", f"a bound instead of a number in {excerpt(text, 80)}")
    # "between 60 and 70 %" has no single number
    if _RANGE.search(text):
        return NoValue("several_numbers", f"a range of numbers in {excerpt(text, 80)}")
    percents = [_number(match) / 100 for match in _PERCENT.findall(text)]
    # percentages first: in "90 % (9 of 10)" both say the same
    for part, whole in _FRACTION.findall(_PERCENT.sub(" ", text)):
        if not _number(whole):
            return NoValue("out_of_range", f"a fraction of nothing in {excerpt(text, 80)}")
        percents.append(_number(part) / _number(whole))
    values: list[float] = percents
    if not percents:
        numbers = _PLAIN.findall(text)
        # 1 may be 1 % or certain, 1.5 may be 1.5 % or nonsense
        if any(number == "1" or 1 < _number(number) < 2 for number in numbers):
            return NoValue(
                "ambiguous_number", f"it is unclear whether this is a percentage: {excerpt(text, 80)}"
            )
        values = list(map(_plain, numbers))
    # rounded, so that 0.9 and 90 % are one number
    distinct = sorted({round(value, 12) for value in values})
    if not distinct:
        return NoValue("no_number", f"no probability in {excerpt(text, 80)}")
    if len(distinct) > 1:
        return NoValue("several_numbers", f"{len(distinct)} different numbers in {excerpt(text, 80)}")
    if not 0 <= distinct[0] <= 1:
        return NoValue("out_of_range", f"no probability between 0 and 1 in {excerpt(text, 80)}")
    return distinct[0]


def _plain(digits: str) -> float:
    """Parse a number without unit: decimals up to 1 as probabilities, others as percentages."""
    value = _number(digits)
    is_decimal = not digits.lstrip("-").isdecimal()
    return value if is_decimal and abs(value) <= 1 else value / 100


def _number(digits: str) -> float:
    """Parse a number, with commas as decimal points unless they separate thousands."""
    # "1,000" has a comma of thousands, "0,85" a decimal one
    if re.fullmatch(r"-?\d{1,3}(,\d{3})+(\.\d+)?", digits) and not digits.lstrip("-").startswith("0,"):
        return float(digits.replace(",", ""))
    whole, *rest = re.split("[.,]", digits)
    return float(f"{whole}.{''.join(rest)}" if rest else whole)


def parse_guesses(text: str) -> tuple[StatedGuess, ...] | NoValue:
    """Parse lines ``guess | 35%``, with or without bullets or numbers. Other lines are ignored; an unreadable
    probability invalidates the response."""
    guesses = []
    for line in text.splitlines():
        # the last bar: a guess may hold one itself
        guess, bar, share = line.rpartition("|")
        guess = _LEADING_MARK.sub("", guess).strip(" \t*|")
        if not bar or not guess:
            continue
        probability = parse_probability(share)
        if isinstance(probability, NoValue):
            return probability
        guesses.append(StatedGuess(guess, probability))
    return tuple(guesses) or NoValue("unparsed", f"no line 'guess | 35%' in {excerpt(text, 80)}")


def parse_numbered(text: str) -> tuple[str, ...] | NoValue:
    """Parse lines ``1. guess``, numbered from 1 in order. Other lines are ignored."""
    matches = [match for line in text.splitlines() if (match := _NUMBERED.match(line))]
    # a number that is missing or twice would shift all probabilities after it
    if not matches or [int(match[1]) for match in matches] != list(range(1, len(matches) + 1)):
        return NoValue("unparsed", f"no lines numbered from 1 in {excerpt(text, 80)}")
    return tuple(match[2].strip(" \t*") for match in matches)


def join_guesses(guesses: str, probabilities: str) -> tuple[StatedGuess, ...] | NoValue:
    """Join a response of guesses with the next one's probabilities, line by line."""
    texts, shares = parse_numbered(guesses), parse_numbered(probabilities)
    if isinstance(texts, NoValue):
        return texts
    if isinstance(shares, NoValue):
        return shares
    if len(texts) != len(shares):
        # a line less than guesses: no pairing is certain
        return NoValue("unparsed", f"probabilities for {len(shares)} of {len(texts)} guesses")
    pairs = []
    for text, line in zip(texts, shares, strict=True):
        probability = parse_probability(line)
        if isinstance(probability, NoValue):
            return probability
        pairs.append(StatedGuess(text, probability))
    return tuple(pairs)


def truth_of_token(text: str) -> bool | None:
    """Parse a token as True or False, ignoring case; None for others."""
    return {"true": True, "false": False}.get(text.strip().lower())


def parse_either(text: str, yes: str, no: str) -> bool | NoValue:
    """Determine which of two words a response begins with; undefined if it names both."""
    words = f"{yes}|{no}"
    # "Yes or no?" names both and decides nothing
    match = re.match(rf"\W*({words})\b(?!\W*(?:(?:or|and)\W+)?(?:{words})\b)", text, re.IGNORECASE)
    if match is None:
        return NoValue("unparsed", f"neither {yes} nor {no}: {excerpt(text, 80)}")
    return match[1].lower() == yes.lower()


def parse_verdict(text: str) -> bool | NoValue:
    """Parse a response that begins with either Yes or No. "No idea" is neither."""
    if abstains(text):
        return NoValue("unparsed", f"neither Yes nor No: {excerpt(text, 80)}")
    return parse_either(text, "Yes", "No")


def judge_pairs(
    asker: Asker, pairs: Sequence[tuple[AnsweredQuestion, str, str]], step: str = SAME_MEANING
) -> list[bool | NoValue]:
    """Ask whether two answers to a question mean the same, one request per pair."""
    inquiries = []
    for question, first_answer, second_answer in pairs:
        values = {
            "question": described(question),
            "one": quoted(first_answer),
            "other": quoted(second_answer),
        }
        inquiries.append(inquiry(SAME_MEANING, values, VERDICT_TOKENS)._replace(step=step))
    return list(map(_verdict, asker.ask(inquiries)))


def judge_answers(asker: Asker, answers: Sequence[tuple[AnsweredQuestion, str]]) -> list[bool | NoValue]:
    """Ask whether an answer is correct, given its question's right answers."""
    inquiries = []
    for question, answer in answers:
        values = {"question": described(question), "answer": quoted(answer), "gold": numbered(question.gold)}
        inquiries.append(inquiry("correct", values, VERDICT_TOKENS))
    return list(map(_verdict, asker.ask(inquiries)))


def _verdict(reply: ModelReplies) -> bool | NoValue:
    """Parse the first word of a response, even if cut off."""
    # the first word decides, so a reply that was cut off behind it is whole enough
    if reply.failure is None and reply.finishes[0] == "length":
        return parse_verdict(reply.texts[0])
    text = reply_text(reply)
    return text if isinstance(text, NoValue) else parse_verdict(text)


class Band(NamedTuple):
    """Range of probabilities that people assign to a phrase."""

    low: float
    """First quartile."""
    middle: float
    """Median."""
    high: float
    """Third quartile."""


class Hedge(NamedTuple):
    """A probability phrase in a text, with its meaning."""

    phrase: str
    band: Band


# Of 123 people who put a number on each of 17 phrases, the median is the value, the quartiles are the band
# (Fagen-Ulmschneider, "Perception of Probability Words", University of Illinois 2019). After "highly" or
# "very", "probable" means the same as "likely" (Reagan, Mosteller and Youtz 1989, J. Appl. Psychol. 74,
# 433-442). "Possible" and its kin mean different things to different people (Mosteller and Youtz 1990,
# Statistical Science 5, 2-34), so they have no entry.
_MEANINGS: tuple[tuple[Band, tuple[str, ...]], ...] = (
    (Band(0.90, 0.95, 0.98), ("almost certain", "almost certainly", "nearly certain")),
    (
        Band(0.80, 0.90, 0.95),
        ("highly likely", "very likely", "highly probable", "very probable", "very probably"),
    ),
    (Band(0.75, 0.80, 0.90), ("very good chance",)),
    (Band(0.65, 0.75, 0.85), ("we believe", "i believe")),
    (Band(0.65, 0.70, 0.75), ("likely",)),
    (Band(0.60, 0.70, 0.75), ("probable", "probably")),
    (Band(0.55, 0.60, 0.60), ("better than even",)),
    (Band(0.50, 0.50, 0.50), ("about even", "roughly even")),
    (Band(0.15, 0.25, 0.30), ("probably not",)),
    (Band(0.10, 0.20, 0.30), ("unlikely", "we doubt", "i doubt")),
    (Band(0.05, 0.10, 0.225), ("improbable",)),
    (Band(0.10, 0.10, 0.20), ("chances are slight", "slight chance")),
    (Band(0.05, 0.10, 0.15), ("little chance",)),
    (Band(0.05, 0.05, 0.10), ("highly unlikely", "very unlikely", "highly improbable", "very improbable")),
    (Band(0.01, 0.02, 0.05), ("almost no chance",)),
)
PHRASES = {phrase: band for band, phrases in _MEANINGS for phrase in phrases}
"""Probability bands by phrase, in lower case."""

# Words before a phrase that change its meaning to something that the study did not ask for.
_CHANGED = (
    "not|never|no|cannot|hardly|more|less|most|least|equally|as|so|too|how|somewhat|quite|rather|fairly|pretty|"
    "extremely"
)
_BEFORE = re.compile(rf"(?:(?<!\w)(?:{_CHANGED})|n['’]t|%)(?:\s+(?:a|an|at|all|be|that|very))*\s*$")
# A denied verb earlier in the same clause: "I don't think that it is likely".
_DENIED = re.compile(
    r"(?:n['’]t|\b(?:not|never|cannot|hardly))\s+(?:really\s+|actually\s+)?"
    r"(?:think|believe|expect|say|seem|feel|consider|suppose|assume|look|sound)\b[^.!?;,]*$"
)
# "probably not" before "probably"
_LONGEST_FIRST = sorted(PHRASES, key=lambda phrase: -len(phrase))
_PHRASE = re.compile(rf"(?<!\w)(?:{'|'.join(map(re.escape, _LONGEST_FIRST))})(?!\w)")


def read_hedge(text: str) -> Hedge | NoValue:
    """Find the only probability phrase in a text.

    A phrase that is negated, compared or modified ("not likely", "more likely") is unknown, and so is every
    word that is not in the list. Several phrases with the same meaning are one.
    """
    plain = " ".join(text.lower().split())
    phrases = []
    for match in _PHRASE.finditer(plain):
        before = plain[: match.start()]
        # a study asked about the phrase by itself, not about "not likely" or "more likely"
        if _BEFORE.search(before) or _DENIED.search(before):
            around = plain[max(0, match.start() - 20) : match.end()]
            return NoValue(
                "unknown_hedge", f"no study has measured what this phrase means: {excerpt(around)}"
            )
        phrases.append(match[0])
    if not phrases:
        return NoValue("no_hedge", "no word of probability that is known")
    # several phrases of one meaning agree
    bands = {PHRASES[phrase] for phrase in phrases}
    if len(bands) > 1:
        return NoValue("several_hedges", f"several words of probability: {', '.join(dict.fromkeys(phrases))}")
    return Hedge(phrases[0], bands.pop())
