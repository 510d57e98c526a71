"""Claims without a model: one per sentence, equal if their words are."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import chain
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from selfreflect.grouping import unified
from selfreflect.quantities import Quantity, quantities, with_month
from selfreflect.sameness import (
    BOUNDS,
    FUNCTION_WORDS,
    OPPOSITES,
    Exchange,
    count_negations,
    exchange,
    is_negation,
    opposites_of,
    spelled,
    word_list,
)
from selfreflect.stats import Floats
from selfreflect.uncertainty.claims.sentences import sentences
from selfreflect.uncertainty.claims.support import Stance

T = TypeVar("T", bound=Hashable)
Booleans = NDArray[np.bool_]

SAID = 0.8
"""Minimum share of a claim's content words in a sentence that states the claim."""
ABOUT = 0.6
"""Minimum share of these words in a sentence about the claim, which a different number then contradicts."""
_FIRST: list[Stance] = ["says", "contradicts", "silent"]
"""Order of precedence in which sentences' stances decide a text's stance."""
_TURNED: dict[Exchange, Stance] = {"same": "says", "opposite": "contradicts", "unlike": "silent"}
_WORD = re.compile(r"[^\W\d_]+(?:['-][^\W\d_]+)*")
_FIRST_WORD = re.compile(rf"\W*({_WORD.pattern})(,)?")
_TOKEN = re.compile(r"[^\W_]+")
_LACK = re.compile(r"\b(?:lack(?:s|ed|ing)?|fehl(?:t|en|te|ten))\b", re.IGNORECASE)
"""Words that deny presence in a claim, but in an answer name the missing thing ("It lacks iron.")."""
_BLOCK = 500
_ENDINGS = re.compile(r"(?:'s|ies|ied|es|s|ed|ing|en|e|n|y)\Z")
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
    "case cases however moreover furthermore additionally besides therefore thus hence indeed overall "
    "finally similarly meanwhile consequently jedoch außerdem zudem daher deshalb somit insgesamt "
    "schließlich meist meistens oft manchmal selten sonst andernfalls gewiss möglich antworten".split()
)
"""Words that join sentences, or state how often answers occur."""


class Number(NamedTuple):
    """A number in a text."""

    key: tuple[str, str]
    """Key that is equal for equal quantities in other units."""
    value: str
    """Number in its own unit; the text of a date, time or range."""
    unit: str

    base: str
    """Base unit; only numbers with equal base can differ."""

    @classmethod
    def of(cls, quantity: Quantity) -> Number:
        """Make a number from a quantity."""
        if quantity.value is None:  # times can differ, whatever half of the day they name
            return cls(quantity.key, quantity.text, quantity.unit, "")
        return cls(quantity.key, f"{quantity.value:.10g}", quantity.unit, quantity.in_base[1])

    @property
    def sought(self) -> tuple[Hashable, ...]:
        """Labels that an equal number may have, without unit or as a date's year."""
        # a number without a unit is found beside any unit
        any_unit = () if self.unit else (("value in any unit", self.value),)
        return self.key, ("beginning", self.value), ("value", self.value), *any_unit

    @property
    def labels(self) -> Iterator[Hashable]:
        """Labels for looking up the number."""
        yield self.key
        yield ("value in any unit", self.value)
        if not self.unit:
            yield ("value", self.value)
        parts = self.value.split("-")
        # 1949 is found in "18 December 1949"
        yield from (("beginning", "-".join(parts[:end])) for end in range(1, len(parts)))


class ClaimContent(NamedTuple):
    """Content words and numbers of a sentence, for comparison."""

    text: str
    plain: str
    """Sentence with uniform quotes and dashes, in lower case."""
    words: frozenset[str]
    """Content words without endings, except words of numbers."""
    numbers: frozenset[Number]
    is_negated: bool
    tokens: frozenset[str]
    """Content words and numbers as written."""
    names: frozenset[str]
    """Capitalised ``words`` that do not begin the sentence."""
    subject: frozenset[str]
    """First word of the sentence, if among ``words``."""

    @property
    def labels(self) -> frozenset[Hashable]:
        """Labels of all numbers."""
        return frozenset(chain.from_iterable(number.labels for number in self.numbers))


@lru_cache(maxsize=2**14)
def content_of(text: str) -> ClaimContent:
    """Extract the content of a sentence."""
    plain = unified(text).casefold()
    spelled_text = spelled(text)
    found = [with_month(spelled_text, quantity) for quantity in quantities(spelled_text)]
    rest = _without(spelled_text, found)
    first = _FIRST_WORD.match(spelled_text)
    # the first word has a capital wherever it comes from, so it is no sign of a name
    begin = first.end() if first and rest.startswith(first[0]) else 0
    capitals = [word for word in _WORD.findall(rest[begin:]) if word[0].isupper()]
    return ClaimContent(
        text=text,
        plain=plain,
        words=_stems(_WORD.findall(rest)),
        numbers=frozenset(map(Number.of, found)),
        # two negations cancel: "did not lack iron"
        is_negated=(count_negations(spelled_text) + len(_LACK.findall(spelled_text))) % 2 == 1,
        tokens=_stems(_TOKEN.findall(plain)),
        names=_stems(capitals),
        # behind a comma the first word is an adverb ("However, …") and no subject
        subject=_stems([first[1]] if first and begin and first[1][0].isupper() and not first[2] else []),
    )


def _without(text: str, found: Sequence[Quantity]) -> str:
    """Remove quantities from a text, with their units and months."""
    ends = [0, *(quantity.end for quantity in found)]
    starts = [*(quantity.start for quantity in found), len(text)]
    return " ".join(text[end:start] for end, start in zip(ends, starts, strict=True))


def _stems(words: Sequence[str]) -> frozenset[str]:
    """Stem content words."""
    stems = set()
    for word in map(str.casefold, words):
        if (
            word not in FUNCTION_WORDS
            and word not in _FREQUENCY
            and not (is_negation(word) or _LACK.fullmatch(word))
        ):
            # a stem has at least three letters
            shorter = _ENDINGS.sub("", word)
            stems.add(shorter if len(shorter) >= 3 else word)
    return frozenset(stems)


def shares(sets: Sequence[frozenset[str]], parts: Sequence[frozenset[str]]) -> Floats:
    """Compute the share of each set's elements in each part, 0 for empty sets: shape (parts, sets)."""
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
    """Compute the share of each claim's tokens, without the question's, that each part contains: shape
    (parts, claims)."""
    asked = content_of(question).tokens
    wanted = [content_of(claim).tokens for claim in claims]
    # a claim of the question's words alone is compared by these
    return shares(
        [tokens - asked or tokens for tokens in wanted], [content_of(part).tokens for part in parts]
    )


def holds(
    wanted: Sequence[Iterable[T]],
    sets: Sequence[frozenset[Hashable]],
    sought: Callable[[T], Iterable[Hashable]] = lambda item: (item,),
) -> Booleans:
    """Check which sets contain all wanted elements: shape (sets, wanted).

    Args:
        sought: what a set may hold in place of an item, one of which is enough.
    """
    # which sets hold an item is looked up once, since many claims share their words
    rows_of: dict[Hashable, list[int]] = {}
    for row, items in enumerate(sets):
        for item in items:
            rows_of.setdefault(item, []).append(row)
    holders: dict[T, Booleans] = {}
    result = np.ones((len(wanted), len(sets)), dtype=np.bool_)
    for column, parts in zip(result, wanted, strict=True):
        for part in parts:
            if part not in holders:
                holders[part] = np.zeros(len(sets), dtype=np.bool_)
                for label in sought(part):
                    holders[part][rows_of.get(label, [])] = True
            column &= holders[part]
    return result.T


def _have_numbers(claims: Sequence[Iterable[Number]], sentences: Sequence[ClaimContent]) -> Booleans:
    """Check which sentences contain all numbers, as "10 years" contains 10."""
    return holds(claims, [sentence.labels for sentence in sentences], lambda number: number.sought)


def _numbers_differ(claims: Sequence[ClaimContent], sentences: Sequence[ClaimContent]) -> Booleans:
    """Check where sentence and claim have different numbers of the same kind: shape (sentences, claims)."""
    result = np.zeros((len(sentences), len(claims)), dtype=np.bool_)
    for base in {number.base for claim in claims for number in claim.numbers}:
        sides = [
            [[number for number in content.numbers if number.base == base] for content in side]
            for side in (claims, sentences)
        ]
        # both sides need a number of this kind that the other lacks: "in 1815" adds, "1816" contradicts
        result |= ~_have_numbers(sides[0], sentences) & ~_have_numbers(sides[1], claims).T
    return result


def _are_opposite(claims: Sequence[ClaimContent], sentences: Sequence[ClaimContent]) -> Booleans:
    """Check where sentence and claim have opposite content words or number limits."""
    result = np.zeros((len(sentences), len(claims)), dtype=np.bool_)
    for table in (OPPOSITES, BOUNDS):
        sides = [
            [
                # limits such as "at least" mean something beside numbers only
                frozenset(word_list(content.text)) if content.numbers or table is OPPOSITES else frozenset()
                for content in side
            ]
            for side in (claims, sentences)
        ]
        present = [frozenset[str]().union(*side) for side in sides]
        for word in (present[0] & table.keys()) - FUNCTION_WORDS:
            for opposite in (table[word] & present[1]) - FUNCTION_WORDS:
                # a side that has both words ("from low to high") is no opposite of either
                columns = [word in words and opposite not in words for words in sides[0]]
                rows = [opposite in words and word not in words for words in sides[1]]
                result |= np.outer(rows, columns)
    return result


def clauses(text: str) -> list[str]:
    """List the clauses of a text that say more than a frequency."""
    found = []
    for sentence in sentences(text):
        for part in _CLAUSE_END.split(sentence.text):
            stated = _SHARE.sub(" ", part).strip()
            # a clause of nothing but a share is kept as it is, and dropped below if it says nothing
            found.append(stated if content_of(stated).tokens else part)
    return [part for part in found if content_of(part).tokens]


class WordReader:
    """Reader without a model, which splits texts into claims and compares both by their words.

    A text says a claim if one of its sentences has ``SAID`` of the claim's content words, all its numbers and
    names, and as many negations; it contradicts the claim if a sentence with ``ABOUT`` of the words has other
    numbers of the same unit, one negation more or less, or an opposite. So a claim in other words counts as
    silent. Of a summary each clause is a claim, because one sentence of it often names several answers.
    """

    name = "words"
    said, about = SAID, ABOUT

    @property
    def caveats(self) -> list[str]:
        """Descriptions of texts that could not be read."""
        return []

    def split(self, question: str, texts: Sequence[str]) -> list[list[str]]:
        """List each text's claims, one per sentence."""
        return [[sentence.text for sentence in sentences(text)] for text in texts]

    def split_summaries(self, question: str, texts: Sequence[str]) -> list[list[str]]:
        """List each summary's claims."""
        return list(map(clauses, texts))

    def closeness(self, question: str, claims: Sequence[str], parts: Sequence[str]) -> Floats:
        """Compute how close each part of a text is to each claim, in [0, 1]: shape (parts, claims)."""
        asked = content_of(question).words
        contents, others = list(map(content_of, claims)), list(map(content_of, parts))
        wanted = [content.words - asked or content.words for content in contents]
        close = shares(wanted, [other.words for other in others])
        bare = [
            column
            for column, content in enumerate(contents)
            if content.numbers and not content.words - asked  # an answer such as "at 6:40"
        ]
        says_nothing_else = np.array([not other.words - asked for other in others], bool)
        numbers = _have_numbers([contents[column].numbers for column in bare], others)
        # a number alone is said where the number stands, or where nothing but the question is repeated
        close[:, bare] = numbers | says_nothing_else[:, None]
        return close

    def mentions(self, question: str, claims: Sequence[str], texts: Sequence[str]) -> Floats:
        """Compute the largest :func:`overlaps` of any sentence in each text."""
        return largest(overlaps, question, claims, texts)

    def stances(
        self, question: str, claims: Sequence[str], texts: Sequence[str]
    ) -> list[list[Stance | None]]:
        """Determine each text's stance on each claim, shape (texts, claims); None without a verdict."""
        parts, rows_of = pooled([list(_comparable(text)) for text in texts])
        ranks, may_turn = self._ranks(question, claims, parts)
        for row, column in np.argwhere(may_turn).tolist():
            ranks[row, column] = _turned(claims[column], parts[row], ranks[row, column])
        # the most decisive sentence of a text wins, in the order of _FIRST
        best = [ranks[rows].min(0, initial=_FIRST.index("silent")) for rows in rows_of]
        return [[_FIRST[rank] for rank in row] for row in best]

    def _ranks(
        self, question: str, claims: Sequence[str], parts: Sequence[str]
    ) -> tuple[NDArray[np.intp], Booleans]:
        """Rank the stances of texts' parts, and flag stances that word order may change.

        Both have the shape (parts, claims).
        """
        close = self.closeness(question, claims, parts)
        contents, others = list(map(content_of, claims)), list(map(content_of, parts))
        # all of a kind at once: pair by pair, some hundred claims would take minutes
        negated = [np.array([content.is_negated for content in side], bool) for side in (contents, others)]
        opposite = holds([[word_list(part)] for part in parts], list(map(opposites_of, claims))).T
        opposite |= _are_opposite(contents, others) & (close >= self.about)
        contradicts = (negated[1][:, None] != negated[0]) | _numbers_differ(contents, others)
        contradicts = (contradicts & (close >= self.about)) | opposite
        says = _have_numbers([content.numbers for content in contents], others) & (close >= self.said)
        says &= negated[1][:, None] == negated[0]
        asked = content_of(question).words
        words = [[content.words for content in side] for side in (contents, others)]
        # names in the question need not be repeated
        says &= holds([content.names - asked for content in contents], words[1])
        # who does something is another where both sentences begin with a word of their own
        subjects = [[content.subject - asked for content in side] for side in (contents, others)]
        says &= holds(subjects[0], words[1]) | holds(subjects[1], words[0]).T
        ranks = np.full(close.shape, _FIRST.index("silent"), dtype=np.intp)
        ranks[says] = _FIRST.index("says")
        ranks[contradicts] = _FIRST.index("contradicts")
        rows_of: dict[str, list[int]] = {}
        for row, other in enumerate(others):
            rows_of.setdefault(other.plain, []).append(row)
        may_turn = (says & ~contradicts) | opposite
        # equal spelling overrules numbers, names and negations
        for column, content in enumerate(contents):
            ranks[rows_of.get(content.plain, []), column] = _FIRST.index("says")
            may_turn[rows_of.get(content.plain, []), column] = False
        return ranks, may_turn

    def distinct(self, question: str, claims: Sequence[str]) -> list[str]:
        """Remove claims that are equivalent to an earlier one."""
        ranks, may_turn = self._ranks(question, claims, claims)
        said = _FIRST.index("says")
        says = (ranks == said) | may_turn
        # each must say the other: "Ann came" is said by "Ann and Bob came", not the other way round
        same = says & says.T
        kept: list[int] = []
        for index, claim in enumerate(claims):
            # word order last, since it is compared pair by pair
            near = [other for other in kept if same[index, other]]
            if not any(_turned(claim, claims[other], ranks[index, other]) == said for other in near):
                kept.append(index)
        return [claims[index] for index in kept]


def _turned(claim: str, part: str, rank: int) -> int:
    """Rank the stance of a sentence in which two terms of a claim may have swapped places."""
    kind = exchange(claim, part)
    return rank if kind is None else _FIRST.index(_TURNED[kind])


def largest(
    compare: Callable[[str, Sequence[str], Sequence[str]], Floats],
    question: str,
    claims: Sequence[str],
    texts: Sequence[str],
) -> Floats:
    """Compute the closeness of each text's closest sentence to each claim: shape (texts, claims)."""
    parts, rows_of = pooled([[sentence.text for sentence in sentences(text)] for text in texts])
    values = compare(question, claims, parts)
    return np.array([values[rows].max(0, initial=0) for rows in rows_of]).reshape(len(texts), len(claims))


def pooled(texts: Sequence[Sequence[str]]) -> tuple[list[str], list[list[int]]]:
    """List the distinct parts of all texts, and their indices by text."""
    indices: dict[str, int] = {}
    rows = [[indices.setdefault(part, len(indices)) for part in parts] for parts in texts]
    return list(indices), rows


def _comparable(text: str) -> Iterator[str]:
    """Yield the sentences of a text, and the clauses of negated sentences."""
    for sentence in sentences(text):
        yield sentence.text
        # "Not on Monday, but on Friday" denies one clause and affirms the other
        if content_of(sentence.text).is_negated:
            yield from clauses(sentence.text)
