"""Closed answers, such as yes and no: what a text of their form tells that says another answer."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import numpy as np

CLOSED = (
    "yes no",
    "true false",
    "correct incorrect",
    "right wrong",
    "agree disagree",
    "ja nein",
    "wahr falsch",
    "oui non",
    "vrai faux",
    "sí no",
    "si no",
    "verdadero falso",
    "sim não",
    "a b c d e",
)
"""Words that closed answers begin with, one set of alternatives a row."""

MOST_ALTERNATIVES = max(len(row.split()) for row in CLOSED)

_FIRST = re.compile(r"\W*(\w+)(?=\W*\Z|[.,;:!)])")
"""A first word that punctuation or the end follows; "No idea" and "A heron" are no closed answers."""


class ClosedAnswers:
    """The alternatives of closed answers, as texts that have their form.

    Args:
        answers: the held-out answers.
        told: distinct conditioning answers, the most frequent first.

    Attributes:
        texts: of each alternative a text in the form of the answers, by its word; empty if the answers are
            not closed.
    """

    def __init__(self, answers: Sequence[str], told: Sequence[str]) -> None:
        self._words = [_first_word(answer) for answer in answers]
        self.texts: dict[str, str] = {}
        words = [_first_word(text) for text in told]
        every = {*self._words, *words}
        row = next((row.split() for row in CLOSED if every <= set(row.split())), None)
        if row is None or not told:
            return
        for word, text in zip(words, told, strict=True):
            self.texts.setdefault(word, text)
        if len(self.texts) == 1:
            [(word, text)] = self.texts.items()
            other = row[(row.index(word) + 1) % len(row)]
            self.texts[other] = _in_form_of(text, other)

    def wrong_bits(self, bits: Mapping[str, Sequence[float]]) -> float:
        """Average over answers what the alternatives to each tell about it.

        Args:
            bits: of each held-out answer, by text.
        """
        told = []
        for index, word in enumerate(self._words):
            others = [bits[text][index] for other, text in self.texts.items() if other != word]
            told.append(float(np.mean(others)))
        return float(np.mean(told))


def _first_word(answer: str) -> str:
    match = _FIRST.match(answer)
    return match[1].casefold() if match else ""


def _in_form_of(text: str, word: str) -> str:
    """Write a word with the capitals of a text's first word, and with the mark that follows it there."""
    match = _FIRST.match(text)
    assert match is not None
    shown = match[1]
    cased = word.upper() if shown.isupper() and len(shown) > 1 else word
    if shown[0].isupper():
        cased = cased[0].upper() + cased[1:]
    mark = text[match.end() : match.end() + 1]
    return cased + (mark if mark in ("", "!", ")") else ".")
