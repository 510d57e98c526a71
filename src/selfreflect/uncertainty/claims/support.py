"""Which answers say a claim, which contradict it, and which are silent."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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
    mentioned: float | None = None
    """Mean over the answers of the largest :func:`overlap` of one of their sentences with it, in [0, 1]: it
    tells more than counts where answers are few, and knows neither numbers nor negations."""

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
        asked = _content(question)
        readings = [_Content.of(claim, asked) for claim in claims]
        rows: list[list[Stance | None]] = []
        for text in texts:
            parts = [_Content.of(sentence.text, asked) for sentence in sentences(text)]
            rows.append([_closest([_stance(claim, part) for part in parts]) for claim in readings])
        return rows


def _closest(stances: Sequence[Stance]) -> Stance:
    return min(stances, key=_FIRST.index, default="silent")


class _Content(NamedTuple):
    """What is compared of a sentence."""

    text: str
    plain: str
    words: frozenset[str]
    content: frozenset[str]
    """``words`` without those of the question, unless nothing is left."""
    numbers: frozenset[tuple[str, str]]
    is_negated: bool

    @classmethod
    def of(cls, text: str, asked: frozenset[str]) -> _Content:
        words = _content(text)
        numbers = frozenset(quantity.key for quantity in quantities(readable(text)))
        plain = unified(text).casefold()
        negations = sum(map(is_negation, re.findall(r"[^\W\d_]+(?:'[^\W\d_]+)?", plain)))
        return cls(text, plain, words, words - asked or words, numbers, negations % 2 == 1)

    def shared(self, sentence: _Content) -> float:
        """Compute the share of the content words that another sentence has."""
        return len(self.content & sentence.words) / len(self.content) if self.content else 0.0


def overlap(claim: str, sentence: str, question: str = "") -> float:
    """Compute the share of a claim's content words, without those of the question, that a sentence has."""
    asked = _content(question)
    return _Content.of(claim, asked).shared(_Content.of(sentence, asked))


def _stance(claim: _Content, sentence: _Content) -> Stance:
    if claim.plain == sentence.plain:
        return "says"
    shared = claim.shared(sentence)
    is_opposite = shared > 0 and are_opposite(claim.text, sentence.text)
    if shared < ABOUT and not is_opposite:
        return "silent"
    if is_opposite or claim.is_negated != sentence.is_negated:
        return "contradicts"
    if not claim.numbers <= sentence.numbers:
        # without any number it leaves open what the claim says
        return "contradicts" if sentence.numbers else "silent"
    return "says" if shared >= SAID else "silent"


def _content(text: str) -> frozenset[str]:
    """List the content words of a text, without their endings."""
    words = (match[0].casefold() for match in _WORD.finditer(unified(text)))
    return frozenset(_stem(word) for word in words if word not in FUNCTION_WORDS and not is_negation(word))


def _stem(word: str) -> str:
    shorter = _ENDINGS.sub("", word)
    return shorter if len(shorter) >= 3 else word


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
                    "mentioned": claim.mentioned,
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
    texts = _distinct(question, split[: len(answers)])
    columns = reader.stances(question, texts, [*answers, *named.values()])
    for column, parts in zip(columns, split, strict=True):
        for index, text in enumerate(texts):
            if text in parts:
                column[index] = "says"
    of_answers = columns[: len(answers)]
    asked = _content(question)
    readings = [[_Content.of(sentence.text, asked) for sentence in sentences(answer)] for answer in answers]
    claims = []
    for index, text in enumerate(texts):
        claim = _Content.of(text, asked)
        best = [max(map(claim.shared, parts), default=0.0) for parts in readings]
        stances = tuple(column[index] for column in of_answers)
        claims.append(Claim(text, stances, fmean(best) if best else None))
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


def _distinct(question: str, parts: Sequence[Sequence[str]]) -> list[str]:
    """List different claims: a later one is the same as an earlier one if each says the other."""
    asked = _content(question)
    kept: list[str] = []
    by_word: dict[str, list[_Content]] = {}
    for text in dict.fromkeys(text for claims in parts for text in claims):
        reading = _Content.of(text, asked)
        # only claims that share a word can be the same
        candidates = {claim.text: claim for word in reading.words for claim in by_word.get(word, ())}
        pairs = [(reading, claim) for claim in candidates.values()]
        if any(_stance(first, second) == _stance(second, first) == "says" for first, second in pairs):
            continue
        kept.append(text)
        for word in reading.words:
            by_word.setdefault(word, []).append(reading)
    return kept


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
