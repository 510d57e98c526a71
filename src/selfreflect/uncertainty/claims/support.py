"""Which answers say a claim, which contradict it, and which are silent."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import fmean
from typing import Any, Literal, NamedTuple, Protocol

from selfreflect.grouping import unified
from selfreflect.quantities import quantities, readable
from selfreflect.sameness import FUNCTION_WORDS, are_opposite, is_negation
from selfreflect.uncertainty.claims.sentences import sentences

Stance = Literal["says", "contradicts", "silent"]
_FIRST: list[Stance] = ["says", "contradicts", "silent"]
"""The first of the stances of a text's sentences is that of the text."""

SAID = 0.8
"""Share of a claim's content words from which on a sentence says it."""
ABOUT = 0.6
"""From which on a sentence speaks of the same, so that another number contradicts the claim."""
LOW_SUPPORT = 0.5
"""Below which a claim counts as weakly supported."""
_Z = 1.959963984540054
_WORD = re.compile(r"[^\W\d_]+(?:['-][^\W\d_]+)*")
_ENDINGS = re.compile(r"(?:'s|ies|es|s|ed|ing|en|e|n)\Z")


class Support(NamedTuple):
    """How many answers say a claim."""

    says: int
    contradicts: int
    silent: int

    @property
    def share(self) -> float | None:
        """Of the answers with a verdict that say it; None without any."""
        total = sum(self)
        return self.says / total if total else None

    @property
    def interval(self) -> tuple[float, float] | None:
        """Wilson's 95 % interval of the share (1927, Journal of the American Statistical Association 22)."""
        total = sum(self)
        if not total:
            return None
        share, square = self.says / total, _Z**2 / total
        middle = (share + square / 2) / (1 + square)
        reach = _Z / (1 + square) * math.sqrt(share * (1 - share) / total + square / (4 * total))
        return max(0.0, middle - reach), min(1.0, middle + reach)


@dataclass(frozen=True)
class Claim:
    """Something that at least one answer says."""

    text: str
    stances: tuple[Stance | None, ...]
    """Of each answer; None where a model gave no verdict."""

    @property
    def support(self) -> Support:
        counts = Counter(self.stances)
        return Support(counts["says"], counts["contradicts"], counts["silent"])


@dataclass(frozen=True)
class Coverage:
    """A summary read claim by claim."""

    covered: float | None
    """Share of what the answers say that the summary says, each claim weighed by its support; None if no
    answer says anything."""
    precision: float | None
    """Share of the summary's claims that an answer says; None if it says nothing."""
    added: tuple[str, ...]
    """Its claims that no answer says."""
    says: tuple[bool, ...]
    """For each claim of the answers, whether the summary says it."""


class Reader(Protocol):
    """Splits texts into claims and compares claims with texts."""

    name: str

    def split(self, question: str, texts: Sequence[str]) -> list[list[str]]:
        """List the claims of each text."""

    def stances(
        self, question: str, claims: Sequence[str], texts: Sequence[str]
    ) -> list[list[Stance | None]]:
        """Say what each text does with each claim: shape (texts, claims)."""


class WordReader:
    """Reads claims without a model: each sentence is one, and equal words make a claim the same.

    A text says a claim if one of its sentences has ``SAID`` of the claim's content words, all its numbers and
    as many negations; it contradicts the claim if such a sentence has other numbers, one negation more or
    less, or an opposite. So a claim in other words counts as silent.
    """

    name = "words"

    def split(self, question: str, texts: Sequence[str]) -> list[list[str]]:
        return [[sentence.text for sentence in sentences(text)] for text in texts]

    def stances(
        self, question: str, claims: Sequence[str], texts: Sequence[str]
    ) -> list[list[Stance | None]]:
        asked = frozenset(_content(question))
        return [self._of(text, claims, asked) for text in texts]

    def _of(self, text: str, claims: Sequence[str], asked: frozenset[str]) -> list[Stance | None]:
        parts = [sentence.text for sentence in sentences(text)]
        return [_closest([_stance(claim, part, asked) for part in parts]) for claim in claims]


def _closest(stances: Sequence[Stance]) -> Stance:
    return min(stances, key=_FIRST.index, default="silent")


def overlap(claim: str, sentence: str, question: str = "") -> float:
    """Compute the share of a claim's content words, without those of the question, that a sentence has."""
    return _overlap(_content(claim), _content(sentence), frozenset(_content(question)))


def _overlap(claim: Sequence[str], sentence: Sequence[str], asked: frozenset[str]) -> float:
    content = [word for word in dict.fromkeys(claim) if word not in asked] or list(dict.fromkeys(claim))
    return fmean(word in sentence for word in content) if content else 0.0


def _stance(claim: str, sentence: str, asked: frozenset[str]) -> Stance:
    if unified(claim).casefold() == unified(sentence).casefold():
        return "says"
    shared = _overlap(_content(claim), _content(sentence), asked)
    if shared < ABOUT:
        return "silent"
    numbers, others = _numbers(claim), _numbers(sentence)
    if _negations(claim) != _negations(sentence) or are_opposite(claim, sentence):
        return "contradicts"
    if not numbers <= others:
        # without any number it leaves open what the claim says
        return "contradicts" if others else "silent"
    return "says" if shared >= SAID else "silent"


@lru_cache(maxsize=2**14)
def _content(text: str) -> tuple[str, ...]:
    """List the content words of a text, without their endings."""
    words = (match[0].casefold() for match in _WORD.finditer(unified(text)))
    return tuple(_stem(word) for word in words if word not in FUNCTION_WORDS and not is_negation(word))


def _stem(word: str) -> str:
    shorter = _ENDINGS.sub("", word)
    return shorter if len(shorter) >= 3 else word


@lru_cache(maxsize=2**14)
def _numbers(text: str) -> frozenset[tuple[str, str]]:
    return frozenset(quantity.key for quantity in quantities(readable(text)))


@lru_cache(maxsize=2**14)
def _negations(text: str) -> int:
    """Count negations, of which two make none."""
    return sum(map(is_negation, re.findall(r"[^\W\d_]+(?:['’][^\W\d_]+)?", text.casefold()))) % 2


@dataclass(frozen=True)
class ClaimDistribution:
    """The claims that the answers to a question make."""

    id: str
    question: str
    claims: tuple[Claim, ...]
    """Those that most answers say first."""
    answers: tuple[str, ...]
    coverages: Mapping[str, Coverage]
    """By the name of a summary."""
    reader: str = "words"
    """What split and compared."""

    @property
    def mean_support(self) -> float | None:
        """Mean share of answers that say a claim; None without claims."""
        shares = self._shares
        return fmean(shares) if shares else None

    @property
    def least_support(self) -> float | None:
        """Share of the claim that the fewest answers say."""
        return min(self._shares, default=None)

    @property
    def weak(self) -> float | None:
        """Share of claims whose support is below ``LOW_SUPPORT``."""
        shares = self._shares
        return fmean(share < LOW_SUPPORT for share in shares) if shares else None

    @property
    def _shares(self) -> list[float]:
        return [share for claim in self.claims if (share := claim.support.share) is not None]

    def to_json(self) -> dict[str, Any]:
        """Describe the distribution as a line of ``--json``."""
        return {
            "id": self.id,
            "question": self.question,
            "answers": self.answers,
            "reader": self.reader,
            "mean_support": self.mean_support,
            "least_support": self.least_support,
            "weak": self.weak,
            "claims": [
                {
                    "text": claim.text,
                    "support": claim.support.share,
                    "interval": claim.support.interval,
                    **claim.support._asdict(),
                    "stances": claim.stances,
                }
                for claim in self.claims
            ],
            "summaries": {
                name: {
                    "covered": coverage.covered,
                    "precision": coverage.precision,
                    "added": coverage.added,
                    "says": coverage.says,
                }
                for name, coverage in self.coverages.items()
            },
        }


def claim_distribution(
    reader: Reader,
    *,
    id: str,
    question: str,
    answers: Sequence[str],
    summaries: Mapping[str, str] | None = None,
) -> ClaimDistribution:
    """Find the claims of answers and their support, and read summaries claim by claim.

    A claim that is said by an answer in which it was found is never silent there.

    Raises:
        BackendError: the model that is asked has stopped working.
    """
    named = dict(summaries or {})
    split = reader.split(question, [*answers, *named.values()])
    texts = _distinct(reader, question, split[: len(answers)])
    columns = reader.stances(question, texts, [*answers, *named.values()])
    for column, parts in zip(columns, split, strict=True):
        for index, text in enumerate(texts):
            if text in parts:
                column[index] = "says"
    of_answers = columns[: len(answers)]
    claims = [Claim(text, tuple(column[index] for column in of_answers)) for index, text in enumerate(texts)]
    order = sorted(range(len(claims)), key=lambda index: -claims[index].support.says)
    coverages = {}
    for name, parts, column in zip(named, split[len(answers) :], columns[len(answers) :], strict=True):
        says = tuple(column[index] == "says" for index in order)
        ordered = [claims[index] for index in order]
        coverages[name] = _coverage(reader, question, parts, says, ordered, answers)
    return ClaimDistribution(
        id,
        question,
        tuple(claims[index] for index in order),
        answers=tuple(answers),
        coverages=coverages,
        reader=reader.name,
    )


def _distinct(reader: Reader, question: str, parts: Sequence[Sequence[str]]) -> list[str]:
    """List different claims: a later one is the same as an earlier one if each says the other."""
    texts = list(dict.fromkeys(text for claims in parts for text in claims))
    compare = WordReader() if not isinstance(reader, WordReader) else reader
    kept: list[str] = []
    by_word: dict[str, list[str]] = {}
    for text in texts:
        # only claims that share a word can be the same
        words = set(_content(text))
        candidates = dict.fromkeys(claim for word in words for claim in by_word.get(word, ()))
        if any(_are_same(compare, question, text, claim) for claim in candidates):
            continue
        kept.append(text)
        for word in words:
            by_word.setdefault(word, []).append(text)
    return kept


def _are_same(reader: WordReader, question: str, first: str, second: str) -> bool:
    asked = frozenset(_content(question))
    return _stance(first, second, asked) == "says" and _stance(second, first, asked) == "says"


def _coverage(
    reader: Reader,
    question: str,
    parts: Sequence[str],
    says: Sequence[bool],
    claims: Sequence[Claim],
    answers: Sequence[str],
) -> Coverage:
    weights = [claim.support.share or 0.0 for claim in claims]
    total = math.fsum(weights)
    covered = math.fsum(weight for weight, is_said in zip(weights, says, strict=True) if is_said)
    columns = reader.stances(question, parts, answers)
    added = tuple(
        text for index, text in enumerate(parts) if all(column[index] != "says" for column in columns)
    )
    return Coverage(
        covered=covered / total if total else None,
        precision=1 - len(added) / len(parts) if parts else None,
        added=added,
        says=tuple(says),
    )
