"""Edits that make a statement or a summary worse in a known way. Each has a label, and its seed decides
it."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from selfreflect.validate.edits.statements import Possibility, Statement

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
_ONE = "it names one possibility only"

_WORD = re.compile(r"\w+")
_DETAIL = re.compile(r"(?P<number>\d+(?:[.,]\d+)*)|(?P<name>[^\W\d_]{2,})")


class CannotEditError(Exception):
    """An edit does not apply. Its message is the reason, in the same words for all items."""


@dataclass(frozen=True)
class Material:
    """What an edit may add to an item: nothing that is in the item's ``own`` texts."""

    own: tuple[str, ...]
    possibilities: Sequence[str]
    """Of other items, in an order that does not depend on the order of items."""
    rng: random.Random

    def new_possibility(self) -> str:
        """A possibility that no text of the item gives, not even in part.

        Raises:
            CannotEditError: the item gives all of them.
        """
        answers = list(filter(None, map(_words, self.own)))
        for text in (*self._shuffled(), _NEW):
            words = _words(text)
            if words and not any(words <= answer or answer <= words for answer in answers):
                return text
        raise CannotEditError("every possibility at hand was given")

    def replace_detail(self, text: str) -> str:
        """Change one number or name in ``text`` to one that the item does not have.

        Raises:
            CannotEditError: there is none, or none to replace it.
        """
        matches = _details(text)
        old = _words(text).union(*map(_words, self.own))
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
        sources = [[match["name"] for match in _details(text) if match["name"]] for text in self._shuffled()]
        for names in (*sources, _NAMES):
            new = [name for name in names if name.casefold() not in old]
            if new:
                return self.rng.choice(new)
        return None


def other_possibilities(statements: Mapping[str, Statement | None], item: str) -> list[str]:
    """The most frequent possibility of every other item, sorted."""
    others = {id_: statement for id_, statement in statements.items() if id_ != item}
    return sorted({statement.named[0].text for statement in others.values() if statement})


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


def drop_most_frequent(statement: Statement, material: Material) -> Statement:
    _check_uneven(statement)
    return replace(statement, named=statement.named[1:])


def drop_least_frequent(statement: Statement, material: Material) -> Statement:
    _check_uneven(statement)
    return replace(statement, named=statement.named[:-1])


def swap_two_frequencies(statement: Statement, material: Material) -> Statement:
    """Of the most and the least frequent possibility. They stay in place, so that only two numbers differ."""
    _check_uneven(statement)
    first, *middle, last = statement.named
    swapped = replace(first, weight=last.weight), *middle, replace(last, weight=first.weight)
    return replace(statement, named=swapped)


def add_a_possibility(statement: Statement, material: Material) -> Statement:
    """One that nobody gave, at 20%; the others keep their proportions."""
    total = sum(possibility.weight for possibility in statement.named) + statement.rest
    scaled = [replace(possibility, weight=possibility.weight * _SCALE) for possibility in statement.named]
    added = Possibility(material.new_possibility(), total)
    return Statement((*scaled, added), statement.rest * _SCALE)


def replace_a_detail(statement: Statement, material: Material) -> Statement:
    """In the most frequent possibility that has one."""
    named = list(statement.named)
    for index, possibility in enumerate(named):
        try:
            named[index] = replace(possibility, text=material.replace_detail(possibility.text))
        except CannotEditError as error:
            reason = error
        else:
            return replace(statement, named=tuple(named))
    raise reason


def cut_to_the_majority(statement: Statement, material: Material) -> Statement:
    if len(statement.named) < 2:
        raise CannotEditError(_ONE)
    if statement.named[0].weight == statement.named[1].weight:
        raise CannotEditError("no possibility is more frequent than all others")
    return Statement(statement.named[:1])


def _check_uneven(statement: Statement) -> None:
    if len(statement.named) < 2:
        raise CannotEditError(_ONE)
    if statement.named[0].weight == statement.named[-1].weight:
        raise CannotEditError("all its possibilities are equally frequent")


StatementEdit = Callable[[Statement, Material], Statement]
STATEMENT_EDITS: Mapping[str, StatementEdit] = {
    "drop most frequent": drop_most_frequent,
    "drop least frequent": drop_least_frequent,
    "swap two frequencies": swap_two_frequencies,
    "add a possibility": add_a_possibility,
    DETAIL: replace_a_detail,
    "cut to the majority": cut_to_the_majority,
}

TEXT_EDITS: Mapping[str, Callable[[str, Material], str]] = {
    PAD: lambda text, material: f"{text.rstrip()} {FILLER}",
    DETAIL: lambda text, material: material.replace_detail(text),
}
"""Edits of summaries in any wording."""
