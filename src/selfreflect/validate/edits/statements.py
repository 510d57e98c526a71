"""What the answers of an item say and how often, as a plain statement, and edits that make a statement or a
summary worse in a known way."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from selfreflect.grouping import normal_form
from selfreflect.sources.items import Item

Grouping = Callable[..., list[list[int]]]
"""Indices of the answers that say the same, the one to quote first: by spelling
(:func:`~selfreflect.grouping.group_indices`) or by meaning (``models.embedder.MeaningGroups``)."""

CORRELATION = "+z.2f"
RESPONSES = {
    1: "gets worse with the distance, as it must",
    0: "shows no clear response to the distance",
    -1: "gets BETTER with the distance",
}
"""How a metric follows statements that are wrong by a known distance, by the sign of the correlation."""

NAMED = 5
"""The most possibilities that a statement names. The others are "something else"."""

LIST = "[LIST]"
FRAME = f"I would say {LIST}."
"""How a statement reads. The list of possibilities replaces its marker."""

_WORDS, _LETTERS = 20, 160
_SENTENCE_END = re.compile(r"(?<=[.!?。！？])\s+")
_SENTENCE_WORDS = 4  # fewer may be an abbreviation, such as "Dr."


@dataclass(frozen=True)
class Possibility:
    """``weight`` is a number of answers or of percentage points: only its share of the total counts."""

    text: str
    weight: int


@dataclass(frozen=True)
class Statement:
    """At least one possibility, the most frequent first unless edited, with a total weight above 0."""

    possibilities: tuple[Possibility, ...]
    rest: int = 0
    """The weight of all others."""
    frame: str = FRAME
    """Holds :data:`LIST` once."""

    @property
    def percentages(self) -> tuple[int, ...]:
        """Of the possibilities, then of the rest; they sum to 100."""
        return apportioned([*(possibility.weight for possibility in self.possibilities), self.rest], 100)

    def text(self) -> str:
        """``I would say “Paris” (60%), “Lyon” (30%) or something else (10%).`` Texts are quoted unchanged."""
        *shares, rest = self.percentages
        parts = []
        for possibility, share in zip(self.possibilities, shares, strict=True):
            parts.append(f"“{possibility.text}” ({share}%)")
        if rest:
            parts.append(f"something else ({rest}%)")
        if len(parts) > 1:
            parts = [", ".join(parts[:-1]), parts[-1]]
        return self.frame.replace(LIST, " or ".join(parts))


def apportioned(weights: Sequence[int], total: int) -> tuple[int, ...]:
    """Share out ``total`` in whole parts, in proportion to ``weights``, by largest remainder; ties go to the
    first."""
    whole = sum(weights)
    parts = [weight * total // whole for weight in weights]
    by_remainder = sorted(range(len(weights)), key=lambda index: -(weights[index] * total % whole))
    for index in by_remainder[: total - sum(parts)]:
        parts[index] += 1
    return tuple(parts)


def stated(item: Item, grouping: Grouping) -> Statement | None:
    """State what all answers of an item say; None if no possibility has 1% of them, or all are blank.

    Both halves count: a statement of one half would favour the metrics that read that half. Blank answers are
    left out, as by the metric. Long answers are cut, and count together if they are then spelt alike.
    """
    answers = [answer for answer in item.masked_out + item.conditioning if answer.strip()]
    counts: dict[str, int] = {}
    texts: dict[str, str] = {}
    for group in grouping(answers) if answers else []:
        text = short(answers[group[0]])
        form = normal_form(text)
        texts.setdefault(form, text)
        counts[form] = counts.get(form, 0) + len(group)
    by_count = sorted(counts, key=lambda form: (-counts[form], texts[form]))
    frequent = [form for form in by_count[:NAMED] if counts[form] * 100 >= len(answers)]
    if not frequent:
        return None
    possibilities = [Possibility(texts[form], counts[form]) for form in frequent]
    others = len(answers) - sum(possibility.weight for possibility in possibilities)
    return Statement(tuple(possibilities), others)


def short(text: str) -> str:
    """Put an answer on one line: all of it if it has at most 20 words, else the sentences that fit, else its
    beginning and ``…``."""
    words = text.split()
    line = " ".join(words)
    if _fits(line):
        return line
    sentences = ""
    for sentence in _SENTENCE_END.split(line):
        longer = f"{sentences} {sentence}".lstrip()
        if not _fits(longer):
            break
        sentences = longer
    if len(sentences.split()) >= _SENTENCE_WORDS:
        return sentences
    return " ".join(words[:_WORDS])[:_LETTERS].rstrip() + "…"


def _fits(line: str) -> bool:
    return len(line.split()) <= _WORDS and len(line) <= _LETTERS


PAD, DETAIL = "pad with filler", "replace a detail"
FILLER = (
    "This is a matter that can be looked at from more than one side, and it is worth a moment of thought. "
    "There is of course more to say, and others may well put it in their own way."
)
_NEW = "Nobody has ever found out"
_NAMES = ("Lisbon", "Nairobi", "Hanoi", "Quito", "Oslo", "Perth")
_SCALE = 4
"""Makes an added possibility weigh a quarter of all others together: 20% of the statement."""
_TRIES = 20
_WORD = re.compile(r"\w+")
_DETAIL = re.compile(r"(?P<number>\d+(?:[.,]\d+)*)|(?P<name>[^\W\d_]{2,})")


class CannotEditError(Exception):
    """An edit does not apply. Its message is the reason, in the same words for all items."""


@dataclass(frozen=True)
class Material:
    """What an edit may add to an item: nothing that is in the item's own answers."""

    answers: tuple[str, ...]
    possibilities: Sequence[str]
    """Of other items, in an order that does not depend on the order of items."""
    rng: random.Random

    def new_possibility(self) -> str:
        """A possibility that no answer gives, not even in part; CannotEditError if there is none."""
        answers = list(filter(None, map(_words, self.answers)))
        for text in (*self._shuffled(), _NEW):
            words = _words(text)
            if words and not any(words <= answer or answer <= words for answer in answers):
                return text
        raise CannotEditError("every possibility at hand was given")

    def replace_detail(self, text: str) -> str:
        """Change one number or name to one that the item does not have; CannotEditError if that cannot be."""
        matches = _details(text)
        old = _words(text).union(*map(_words, self.answers))
        for match in self.rng.sample(matches, len(matches)):
            other = self._number(match[0], old) if match["number"] else self._name(old)
            if other:
                return text[: match.start()] + other + text[match.end() :]
        raise CannotEditError("it has no number or name to replace")

    def _shuffled(self) -> list[str]:
        return self.rng.sample(self.possibilities, len(self.possibilities))

    def _number(self, number: str, old: set[str]) -> str | None:
        """Another number of the same shape: its last two digits are drawn again."""
        digits = [index for index, letter in enumerate(number) if letter.isdigit()]
        for _ in range(_TRIES):
            letters = list(number)
            for index in digits[-2:]:
                letters[index] = self.rng.choice("123456789")
            other = "".join(letters)
            if not _words(other) <= old:
                return other
        return None

    def _name(self, old: set[str]) -> str | None:
        sources: list[Sequence[str]] = []
        for text in self._shuffled():
            sources.append([match["name"] for match in _details(text) if match["name"]])
        for names in (*sources, _NAMES):
            new = [name for name in names if name.casefold() not in old]
            if new:
                return self.rng.choice(new)
        return None


def other_possibilities(statements: Mapping[str, Statement | None], item: str) -> list[str]:
    """The most frequent possibility of every other item, sorted."""
    others = {id_: statement for id_, statement in statements.items() if id_ != item}
    return sorted({statement.possibilities[0].text for statement in others.values() if statement})


def _details(text: str) -> list[re.Match[str]]:
    """Numbers, and words whose capital letter no sentence start explains; the only word of a text is a name
    if it has a capital."""
    single = len(text.split()) == 1
    details = []
    for match in _DETAIL.finditer(text):
        before = text[: match.start()].rstrip("\"'“‘(*_ \t\n")
        opens_sentence = not before or before[-1] in ".!?:…。！？"
        if match["number"] or (match[0][0].isupper() and (single or not opens_sentence)):
            details.append(match)
    return details


def _words(text: str) -> set[str]:
    return set(_WORD.findall(text.casefold()))


def _drop_most_frequent(statement: Statement, material: Material) -> str:
    return replace(statement, possibilities=_uneven(statement)[1:]).text()


def _drop_least_frequent(statement: Statement, material: Material) -> str:
    return replace(statement, possibilities=_uneven(statement)[:-1]).text()


def _swap_two_frequencies(statement: Statement, material: Material) -> str:
    """Of the most and the least frequent possibility. They stay in place, so that only two numbers differ."""
    first, *middle, last = _uneven(statement)
    swapped = replace(first, weight=last.weight), *middle, replace(last, weight=first.weight)
    return replace(statement, possibilities=swapped).text()


def _add_a_possibility(statement: Statement, material: Material) -> str:
    """One that nobody gave, at 20%; the others keep their proportions."""
    total = sum(possibility.weight for possibility in statement.possibilities) + statement.rest
    scaled = [
        replace(possibility, weight=possibility.weight * _SCALE) for possibility in statement.possibilities
    ]
    added = Possibility(material.new_possibility(), total)
    return replace(statement, possibilities=(*scaled, added), rest=statement.rest * _SCALE).text()


def _replace_a_detail(statement: Statement, material: Material) -> str:
    """In the most frequent possibility that has one."""
    possibilities = list(statement.possibilities)
    for index, possibility in enumerate(possibilities):
        try:
            possibilities[index] = replace(possibility, text=material.replace_detail(possibility.text))
        except CannotEditError as error:
            reason = error
        else:
            return replace(statement, possibilities=tuple(possibilities)).text()
    raise reason


def _cut_to_the_majority(statement: Statement, material: Material) -> str:
    first, second, *_ = _several(statement)
    if first.weight == second.weight:
        raise CannotEditError("no possibility is more frequent than all others")
    return replace(statement, possibilities=(first,), rest=0).text()


def _several(statement: Statement) -> tuple[Possibility, ...]:
    if len(statement.possibilities) < 2:
        raise CannotEditError("it names one possibility only")
    return statement.possibilities


def _uneven(statement: Statement) -> tuple[Possibility, ...]:
    possibilities = _several(statement)
    if possibilities[0].weight == possibilities[-1].weight:
        raise CannotEditError("all its possibilities are equally frequent")
    return possibilities


STATEMENT_EDITS: Mapping[str, Callable[[Statement, Material], str]] = {
    "drop most frequent": _drop_most_frequent,
    "drop least frequent": _drop_least_frequent,
    "swap two frequencies": _swap_two_frequencies,
    "add a possibility": _add_a_possibility,
    DETAIL: _replace_a_detail,
    "cut to the majority": _cut_to_the_majority,
}

TEXT_EDITS: Mapping[str, Callable[[str, Material], str]] = {
    PAD: lambda text, material: f"{text.rstrip()} {FILLER}",
    DETAIL: lambda text, material: material.replace_detail(text),
}
"""Edits of summaries in any wording."""
