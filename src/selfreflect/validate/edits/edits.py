"""Edits that make a statement or a summary worse in a known way. Each is labelled, and decided by its seed
alone."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from selfreflect.validate.edits.possibilities import Possibility, Statement

PAD, DETAIL = "pad with filler", "replace a detail"

FILLER = (
    "This is a matter that can be looked at from more than one side, and it is worth a moment of thought. "
    "There is of course more to say, and others may well put it in their own way."
)
_FOREIGN = "Nobody has ever found out"
_NAMES = ("Lisbon", "Nairobi", "Hanoi", "Quito", "Oslo", "Perth")

_ADDED = 4
"""The added possibility weighs a quarter of all others together: 20% of the statement."""
_TRIES = 20
_ONE = "it names one possibility only"

_WORD = re.compile(r"\w+")
_DETAIL = re.compile(r"(?P<number>\d+(?:[.,]\d+)*)|(?P<name>[^\W\d_]{2,})")


class CannotEditError(Exception):
    """An edit that does not apply; its message is the reason, in words that are the same for all items."""


@dataclass(frozen=True)
class Elsewhere:
    """What an edit may take from outside the item. ``given`` holds the item's own texts: what is new must not
    be in them."""

    given: tuple[str, ...]
    possibilities: Sequence[str]
    """Of other items, in an order that does not depend on that of the items."""
    rng: random.Random

    def foreign(self) -> str:
        """A possibility that no text of the item gives, nor gives in part.

        Raises:
            CannotEditError: every one at hand is given.
        """
        given = [words for text in self.given if (words := _words(text))]
        for text in (*self.rng.sample(self.possibilities, len(self.possibilities)), _FOREIGN):
            words = _words(text)
            if words and not any(words <= own or own <= words for own in given):
                return text
        raise CannotEditError("every possibility at hand was given")

    def detail_replaced(self, text: str) -> str:
        """``text`` with one number or name changed to one that the item does not have.

        Raises:
            CannotEditError: there is none, or none to take its place.
        """
        found = details(text)
        taken = _words(text).union(*map(_words, self.given))
        for match in self.rng.sample(found, len(found)):
            other = self._number(match[0], taken) if match["number"] else self._name(taken)
            if other:
                return text[: match.start()] + other + text[match.end() :]
        raise CannotEditError("it has no number or name to replace")

    def _number(self, number: str, taken: set[str]) -> str | None:
        """Another number of the same shape: its last two digits are drawn anew."""
        places = [place for place, letter in enumerate(number) if letter.isdigit()][-2:]
        for _ in range(_TRIES):
            letters = list(number)
            for place in places:
                letters[place] = self.rng.choice("123456789")
            other = "".join(letters)
            if not _words(other) <= taken:
                return other
        return None

    def _name(self, taken: set[str]) -> str | None:
        for text in self.rng.sample(self.possibilities, len(self.possibilities)):
            if free := [
                match["name"]
                for match in details(text)
                if match["name"] and match["name"].casefold() not in taken
            ]:
                return self.rng.choice(free)
        free = [name for name in _NAMES if name.casefold() not in taken]
        return self.rng.choice(free) if free else None


def details(text: str) -> list[re.Match[str]]:
    """Numbers, and words with a capital letter that no sentence start explains. A text of one word is a name
    where it has a capital."""
    alone = len(text.split()) == 1
    return [
        match
        for match in _DETAIL.finditer(text)
        if match["number"] or (match[0][0].isupper() and (alone or not _opens(match, text)))
    ]


def padded(text: str) -> str:
    return f"{text.rstrip()} {FILLER}"


def drop_most_frequent(statement: Statement, elsewhere: Elsewhere) -> Statement:
    _uneven(statement)
    return replace(statement, named=statement.named[1:])


def drop_least_frequent(statement: Statement, elsewhere: Elsewhere) -> Statement:
    _uneven(statement)
    return replace(statement, named=statement.named[:-1])


def swap_two_frequencies(statement: Statement, elsewhere: Elsewhere) -> Statement:
    """Of the most and the least frequent possibility. Their places stay, so that nothing but two numbers
    differs."""
    _uneven(statement)
    first, *middle, last = statement.named
    return replace(
        statement, named=(replace(first, weight=last.weight), *middle, replace(last, weight=first.weight))
    )


def add_a_possibility(statement: Statement, elsewhere: Elsewhere) -> Statement:
    """One that nobody gave, at 20%; the others keep their proportions."""
    total = sum(one.weight for one in statement.named) + statement.rest
    scaled = (Possibility(one.text, one.weight * _ADDED) for one in statement.named)
    return Statement((*scaled, Possibility(elsewhere.foreign(), total)), statement.rest * _ADDED)


def replace_a_detail(statement: Statement, elsewhere: Elsewhere) -> Statement:
    """In the most frequent possibility that has one."""
    for place, one in enumerate(statement.named):
        try:
            changed = replace(one, text=elsewhere.detail_replaced(one.text))
        except CannotEditError as error:
            reason = error
        else:
            return replace(
                statement, named=(*statement.named[:place], changed, *statement.named[place + 1 :])
            )
    raise reason


def cut_to_the_majority(statement: Statement, elsewhere: Elsewhere) -> Statement:
    if len(statement.named) < 2:
        raise CannotEditError(_ONE)
    if statement.named[0].weight == statement.named[1].weight:
        raise CannotEditError("no possibility is more frequent than all others")
    return Statement(statement.named[:1])


StatementEdit = Callable[[Statement, Elsewhere], Statement]
STATEMENT_EDITS: Mapping[str, StatementEdit] = {
    "drop most frequent": drop_most_frequent,
    "drop least frequent": drop_least_frequent,
    "swap two frequencies": swap_two_frequencies,
    "add a possibility": add_a_possibility,
    DETAIL: replace_a_detail,
    "cut to the majority": cut_to_the_majority,
}

TEXT_EDITS: Mapping[str, Callable[[str, Elsewhere], str]] = {
    PAD: lambda text, elsewhere: padded(text),
    DETAIL: lambda text, elsewhere: elsewhere.detail_replaced(text),
}
"""Those that need no statement, for summaries of any wording."""


def foreign_texts(statements: Mapping[str, Statement | None], item: str) -> list[str]:
    """The most frequent possibility of every other item, sorted."""
    return sorted(
        {statement.named[0].text for id_, statement in statements.items() if statement and id_ != item}
    )


def _uneven(statement: Statement) -> None:
    if len(statement.named) < 2:
        raise CannotEditError(_ONE)
    if statement.named[0].weight == statement.named[-1].weight:
        raise CannotEditError("all its possibilities are equally frequent")


def _words(text: str) -> set[str]:
    return set(_WORD.findall(text.casefold()))


def _opens(match: re.Match[str], text: str) -> bool:
    """Whether a word stands where a sentence starts."""
    before = text[: match.start()].rstrip("\"'“‘(*_ \t\n")
    return not before or before[-1] in ".!?:…。！？"
