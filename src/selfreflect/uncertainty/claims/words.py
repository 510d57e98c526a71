"""Claims without a model: each sentence is one, and equal words make a claim the same."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from selfreflect.grouping import unified
from selfreflect.quantities import Quantity, quantities, readable
from selfreflect.sameness import FUNCTION_WORDS, are_opposite, is_negation
from selfreflect.stats import Floats
from selfreflect.uncertainty.claims.sentences import sentences
from selfreflect.uncertainty.claims.support import Reader, Stance

SAID = 0.8
"""Share of a claim's content words from which on a sentence says it."""
ABOUT = 0.6
"""From which on a sentence speaks of the same, so that another number contradicts the claim."""
_FIRST: list[Stance] = ["says", "contradicts", "silent"]
"""The first of the stances of a text's sentences is that of the text."""
_WORD = re.compile(r"[^\W\d_]+(?:['-][^\W\d_]+)*")
_TOKEN = re.compile(r"[^\W_]+")
_BLOCK = 500
_ENDINGS = re.compile(r"(?:'s|ies|es|s|ed|ing|en|e|n)\Z")
_JOINT = r"(?:or|but|oder|aber)\b"
# white space is read from its first character on: long runs of it would take quadratic time
_CLAUSE_END = re.compile(
    rf"(?<!\s)\s*[;,](?!\d)\s*(?:{_JOINT}\s*)?|:\s+|(?<!\s)\s+{_JOINT}\s*", re.IGNORECASE
)
_SHARE = re.compile(r"\(?\b\d+(?:[.,]\d+)?\s*(?:%|percent\b|per cent\b|Prozent\b)\)?", re.IGNORECASE)
_FREQUENCY = frozenset(
    "mostly mainly most often sometimes occasionally rarely rather otherwise else alternatively "
    "equally certain certainty unlikely likelihood chance chances possibility either majority "
    "minority or but oder aber more less few fewer some many half percent answer answers other others "
    "case cases meist meistens oft manchmal selten sonst andernfalls gewiss möglich antworten".split()
)
"""Words by which a summary joins answers and says how often they are given, which no answer says."""


class Number(NamedTuple):
    """A number of a text."""

    key: tuple[str, str]
    """Equal for equal quantities in other units."""
    value: str
    """In its own unit; the text of a date, time or range, which has no value."""
    unit: str

    @classmethod
    def of(cls, quantity: Quantity) -> Number:
        """Read a quantity."""
        value = quantity.text if quantity.value is None else f"{quantity.value:.10g}"
        return cls(quantity.key, value, quantity.unit)

    def is_in(self, number: Number) -> bool:
        """Tell whether another number says this one, which may lack a unit, or be the year of a date."""
        if self.key == number.key or number.value.startswith(f"{self.value}-"):
            return True
        return self.value == number.value and not (self.unit and number.unit)


class ClaimContent(NamedTuple):
    """What is compared of a sentence."""

    text: str
    plain: str
    """``text`` with one spelling of quotes and dashes, in lower case."""
    words: frozenset[str]
    """Content words without their endings, but for those of numbers."""
    numbers: frozenset[Number]
    is_negated: bool
    tokens: frozenset[str]
    """Content words and numbers as they are written."""

    def has_numbers_in(self, sentence: ClaimContent) -> bool:
        """Tell whether a sentence has all numbers: 10 is in "10 years", and 1949 in "18 December 1949"."""
        return all(any(map(number.is_in, sentence.numbers)) for number in self.numbers)


@lru_cache(maxsize=2**14)
def content_of(text: str) -> ClaimContent:
    """Read what is compared of a sentence."""
    plain = unified(text).casefold()
    readable_text = readable(text)
    found = quantities(readable_text)
    rest = _without(readable_text, found).casefold()
    negations = sum(map(is_negation, re.findall(r"[^\W\d_]+(?:'[^\W\d_]+)?", plain)))
    words = frozenset(_stems(_WORD.findall(rest)))
    tokens = frozenset(_stems(_TOKEN.findall(plain)))
    return ClaimContent(text, plain, words, frozenset(map(Number.of, found)), negations % 2 == 1, tokens)


def _without(text: str, found: Sequence[Quantity]) -> str:
    """Cut quantities out of a text, with their units and months."""
    ends = [0, *(quantity.end for quantity in found)]
    starts = [*(quantity.start for quantity in found), len(text)]
    return " ".join(text[end:start] for end, start in zip(ends, starts, strict=True))


def _stems(words: Sequence[str]) -> Iterator[str]:
    for word in words:
        if word not in FUNCTION_WORDS and word not in _FREQUENCY and not is_negation(word):
            shorter = _ENDINGS.sub("", word)
            yield shorter if len(shorter) >= 3 else word


def shares(sets: Sequence[frozenset[str]], parts: Sequence[frozenset[str]]) -> Floats:
    """Compute which share of each set is in each part, 0 for empty sets: shape (parts, sets)."""
    columns = {word: column for column, word in enumerate(frozenset().union(*sets))}

    def present(rows: Sequence[frozenset[str]]) -> NDArray[np.float32]:
        found = np.zeros((len(rows), len(columns)), dtype=np.float32)
        for row, words in zip(found, rows, strict=True):
            row[[columns[word] for word in words if word in columns]] = 1
        return found

    wanted = present(sets)
    # in blocks, since a matrix of all words of all texts may not fit into memory
    blocks = [parts[start : start + _BLOCK] for start in range(0, len(parts), _BLOCK)]
    counts = [present(block) @ wanted.T for block in blocks]
    sizes = np.maximum(wanted.sum(1), 1)
    result: Floats = np.concatenate([np.zeros((0, len(sets)), np.float32), *counts]) / sizes
    return result.astype(np.float64)


def overlaps(question: str, claims: Sequence[str], parts: Sequence[str]) -> Floats:
    """Compute the share of each claim's content words and numbers, without those of the question, that each
    part of a text has: shape (parts, claims)."""
    asked = content_of(question).tokens
    wanted = [content_of(claim).tokens for claim in claims]
    return shares(
        [tokens - asked or tokens for tokens in wanted], [content_of(part).tokens for part in parts]
    )


def stance(claim: ClaimContent, sentence: ClaimContent, shared: float, said: float, about: float) -> Stance:
    """Say what a sentence does with a claim.

    Args:
        shared: how close they are.
        said, about: from which on the sentence says the claim, and speaks of the same.
    """
    is_opposite = are_opposite(claim.text, sentence.text)
    if shared < about and not is_opposite:
        return "silent"
    if is_opposite or claim.is_negated != sentence.is_negated:
        return "contradicts"
    if not claim.has_numbers_in(sentence):
        # without any number it leaves open what the claim says
        return "contradicts" if sentence.numbers else "silent"
    return "says" if shared >= said else "silent"


def clauses(text: str) -> list[str]:
    """List the clauses of a text that say more than how often something is answered."""
    found = []
    for sentence in sentences(text):
        for part in _CLAUSE_END.split(sentence.text):
            stated = _SHARE.sub(" ", part).strip()
            found.append(stated if content_of(stated).tokens else part)
    return [part for part in found if content_of(part).tokens]


class WordReader(Reader):
    """Reads claims without a model: each sentence is one, and equal words make a claim the same.

    A text says a claim if one of its sentences has ``SAID`` of the claim's content words, all its numbers and
    as many negations; it contradicts the claim if such a sentence has other numbers, one negation more or
    less, or an opposite. So a claim in other words counts as silent. Of a summary each clause is a claim,
    because one sentence of it often names several answers.
    """

    name = "words"
    said, about = SAID, ABOUT
    least = 0.49
    """From which on a part may contradict a claim by an opposite: it has one of two content words."""

    def split(self, question: str, texts: Sequence[str]) -> list[list[str]]:
        return [[sentence.text for sentence in sentences(text)] for text in texts]

    def split_summaries(self, question: str, texts: Sequence[str]) -> list[list[str]]:
        return list(map(clauses, texts))

    def closeness(self, question: str, claims: Sequence[str], parts: Sequence[str]) -> Floats:
        """Compute how close each part of a text is to each claim, in [0, 1]: shape (parts, claims)."""
        asked = content_of(question).words
        contents, others = list(map(content_of, claims)), list(map(content_of, parts))
        wanted = [content.words - asked or content.words for content in contents]
        close = shares(wanted, [other.words for other in others])
        for column, content in enumerate(contents):
            if content.numbers and not content.words - asked:  # an answer such as "at 6:40"
                close[:, column] = [
                    content.has_numbers_in(other) or not other.words - asked for other in others
                ]
        return close

    def mentions(self, question: str, claims: Sequence[str], texts: Sequence[str]) -> Floats:
        """Compute the largest :func:`overlaps` of a sentence of each text."""
        return largest(overlaps, question, claims, texts)

    def stances(
        self, question: str, claims: Sequence[str], texts: Sequence[str]
    ) -> list[list[Stance | None]]:
        parts, rows_of = pooled([list(_comparable(text)) for text in texts])
        ranks = self._ranks(question, claims, parts)
        best = [ranks[rows].min(0, initial=_FIRST.index("silent")) for rows in rows_of]
        return [[_FIRST[rank] for rank in row] for row in best]

    def _ranks(self, question: str, claims: Sequence[str], parts: Sequence[str]) -> NDArray[np.intp]:
        """Number the stances of parts of texts: shape (parts, claims)."""
        close = self.closeness(question, claims, parts)
        contents, others = list(map(content_of, claims)), list(map(content_of, parts))
        ranks = np.full(close.shape, _FIRST.index("silent"), dtype=np.intp)
        for row, column in zip(*np.nonzero(close > self.least), strict=True):
            found = stance(contents[column], others[row], close[row, column], self.said, self.about)
            ranks[row, column] = _FIRST.index(found)
        rows_of: dict[str, list[int]] = {}
        for row, other in enumerate(others):
            rows_of.setdefault(other.plain, []).append(row)
        for column, content in enumerate(contents):
            ranks[rows_of.get(content.plain, []), column] = _FIRST.index("says")
        return ranks

    def distinct(self, question: str, claims: Sequence[str]) -> list[str]:
        """Keep a claim unless it says an earlier one and is said by it."""
        says = self._ranks(question, claims, claims) == _FIRST.index("says")
        same = says & says.T
        kept: list[int] = []
        for index in range(len(claims)):
            if not same[index, kept].any():
                kept.append(index)
        return [claims[index] for index in kept]


def largest(
    compare: Callable[[str, Sequence[str], Sequence[str]], Floats],
    question: str,
    claims: Sequence[str],
    texts: Sequence[str],
) -> Floats:
    """Compute how close the closest sentence of each text is to each claim: shape (texts, claims)."""
    parts, rows_of = pooled([[sentence.text for sentence in sentences(text)] for text in texts])
    values = compare(question, claims, parts)
    return np.array([values[rows].max(0, initial=0) for rows in rows_of]).reshape(len(texts), len(claims))


def pooled(texts: Sequence[Sequence[str]]) -> tuple[list[str], list[list[int]]]:
    """List the different parts of all texts, and the indices of those of each text."""
    indices: dict[str, int] = {}
    rows = [[indices.setdefault(part, len(indices)) for part in parts] for parts in texts]
    return list(indices), rows


def _comparable(text: str) -> Iterator[str]:
    """Yield the sentences of a text, and the clauses of those in which one may be negated."""
    for sentence in sentences(text):
        yield sentence.text
        if content_of(sentence.text).is_negated:
            yield from clauses(sentence.text)
