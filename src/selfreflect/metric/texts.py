"""Texts for measuring usable information: summaries, answers and controls."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Literal

import numpy as np

from selfreflect.grouping import group_indices, normal_form
from selfreflect.metric.prompts import SYSTEM
from selfreflect.models.base import Message
from selfreflect.records import Control, Reader
from selfreflect.text import common_prefix, normalise_question

GIVE_ONE = "Give one answer to this question."
TOLD = "What is known about the answer: "
BLIND_QUESTION = "What do you think?"
BLIND_GIVE_ONE = "Give one answer."

NONSENSE = "18:08:33 37 ;; qx 2044 [ok] 7f 19"
"""Control text that says nothing about any question."""

SUBSETS = 2
"""Number of subsets of the reference answers over which controls of pasted answers are averaged
(benchmarks/RESULTS.md)."""


def answering(question: str, context: str, reader: Reader) -> tuple[Message, ...]:
    """Write the turns before the judge's answer.

    The informed reader is told in the user's turn: there the repeated question and nonsense tell next to
    nothing (benchmarks/RESULTS.md). The blind one, who does not see the question, has said it.

    Args:
        context: a summary; or answers, one per line; or the zero of the measure: nothing, or to a blind
            reader the question.
    """
    system = Message(role="system", content=SYSTEM)
    if reader == "blind":
        question_turn = Message(role="user", content=BLIND_QUESTION)
        request = Message(role="user", content=BLIND_GIVE_ONE)
        return (system, question_turn, Message(role="assistant", content=context), request)
    lines = (normalise_question(question), TOLD + context, GIVE_ONE)
    return (system, Message(role="user", content="\n".join(lines)))


def pasted(answers: Sequence[str]) -> str:
    """Join answers into a text in the place of a summary."""
    return "\n".join(answers)


def pasted_subsets(answers: Sequence[str], count: int) -> list[str]:
    """Paste ``count`` answers from each of ``SUBSETS`` evenly spaced starts, wrapping around; or all answers
    once.

    Every text of more answers begins with one of fewer. So chance in which answers come first hardly disturbs
    what more answers add; subsets that share nothing would be compared with twice that noise.
    """
    if count == len(answers):
        return [pasted(answers)]
    # the first and the middle answer: the texts overlap as little as they can
    starts = dict.fromkeys(len(answers) * number // SUBSETS for number in range(SUBSETS))
    around = [*answers, *answers]
    return [pasted(around[start : start + count]) for start in starts]


def distinct(answers: Sequence[str]) -> dict[str, int]:
    """Count each distinct non-blank answer by one of its spellings, the most frequent first.

    Answers that come equally often keep their order, so where all answers differ the text holds all in order.
    """
    texts = [answer for answer in answers if answer.strip()]
    # sorting by place keeps the order of answers that come equally often
    groups = sorted(group_indices(texts), key=lambda group: (-len(group), min(group)))
    return {texts[group[0]]: len(group) for group in groups}


def anchor_texts(answers: Sequence[str]) -> list[str]:
    """Write the texts at 100 %: distinct answers, and the same with their counts if these differ.

    Repeated as often as it was given, an answer tells far more than what it says: that is repetition, which
    no summary should imitate (benchmarks/anchor.py).
    """
    counts = distinct(answers)
    texts = [pasted(list(counts))]
    if len(set(counts.values())) > 1:
        total = sum(counts.values())
        texts.append(pasted([f"{answer} ({count} of {total})" for answer, count in counts.items()]))
    return texts


def shared_phrase(answers: Sequence[str]) -> tuple[list[str], list[str]]:
    """List the words with which all distinct answers begin, and those with which all end.

    There are none where an answer has more other words than these, or none: such answers share no phrase with
    a gap, they are sentences of their own, or wordings of which one says less.
    """
    texts = [normal_words(answer) for answer in answers]
    if len(texts) < 2:
        return [], []
    # what the smallest and the greatest text share, all texts between them share
    smallest, greatest = min(texts), max(texts)
    head = smallest[: common_prefix(smallest, greatest)]
    # behind the head, so that no word counts twice
    ends = [text[len(head) :][::-1] for text in texts]
    smallest, greatest = min(ends), max(ends)
    tail = smallest[: common_prefix(smallest, greatest)][::-1]
    shared_words = len(head) + len(tail)
    if all(0 < len(text) - shared_words <= shared_words for text in texts):
        return head, tail
    return [], []


def normal_words(answer: str) -> list[str]:
    return list(map(normal_form, answer.split()))


def compared_texts(question: str, answers: Sequence[str]) -> list[str]:
    """List every comparison text that a judge may read, for checking its window."""
    total = len(answers)
    with_counts = pasted([f"{answer} ({total} of {total})" for answer in answers])
    return ["", question, NONSENSE, pasted(answers), with_counts, *answers[:MOST_ALTERNATIVES]]


def control_texts(question: str, conditioning: Sequence[str]) -> list[tuple[Control, str]]:
    """List the control texts: nothing, the question, nonsense, and pasted answers (1, 2, 5 and all distinct).

    The texts of one control are several subsets of the answers; it is measured by the mean over them, since
    what one answer tells depends much on which one it is.
    """
    pairs: list[tuple[Literal["empty", "question", "nonsense"], str]] = [
        ("empty", ""),
        ("question", question),
        ("nonsense", NONSENSE),
    ]
    controls = [(Control(name=name, words=len(text.split())), text) for name, text in pairs]
    answers = list(distinct(conditioning))
    for count in sorted({1, 2, 5, len(answers)}):
        if 1 <= count <= len(answers):
            texts = pasted_subsets(answers, count)
            words = round(fmean(len(text.split()) for text in texts))
            control = Control(name="pasted", answers=count, subsets=len(texts), words=words)
            controls += [(control, text) for text in texts]
    return controls


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
"""First words of closed answers, one set of alternatives per row."""

MOST_ALTERNATIVES = max(len(row.split()) for row in CLOSED)

# A first word that punctuation or the end follows; "No idea" and "A heron" are no closed answers.
_FIRST = re.compile(r"\W*(\w+)(?=\W*\Z|[.,;:!)])")


class ClosedAnswers:
    """Alternatives to closed answers, as texts of the same form.

    Args:
        answers: the test answers.
        told: distinct reference answers, the most frequent first.

    Attributes:
        texts: of each alternative a text in the form of the answers, by its word; empty if the answers are
            not closed.
    """

    def __init__(self, answers: Sequence[str], references: Sequence[str]) -> None:
        self._words = [_first_word(answer) for answer in answers]
        self.texts: dict[str, str] = {}
        words = [_first_word(text) for text in references]
        # one answer that fits no row, such as "It depends", makes the question an open one
        every = {*self._words, *words}
        row = next((row.split() for row in CLOSED if every <= set(row.split())), None)
        if row is None or not references:
            return
        for word, text in zip(words, references, strict=True):
            self.texts.setdefault(word, text)
        # all references agree, so nobody has written the alternative: it is put into their form
        if len(self.texts) == 1:
            [(word, text)] = self.texts.items()
            alternative = row[(row.index(word) + 1) % len(row)]
            self.texts[alternative] = _in_form_of(text, alternative)

    def wrong_bits(self, bits: Mapping[str, Sequence[float]]) -> float:
        """Average over answers the bits that wrong alternatives convey about each.

        Args:
            bits: of each test answer, by text.
        """
        means = []
        for index, word in enumerate(self._words):
            # a text that names the answer itself would carry its belief
            wrong_bits = [
                bits[text][index] for alternative, text in self.texts.items() if alternative != word
            ]
            means.append(float(np.mean(wrong_bits)))
        return float(np.mean(means))


def _first_word(answer: str) -> str:
    match = _FIRST.match(answer)
    return match[1].casefold() if match else ""


def _in_form_of(text: str, word: str) -> str:
    """Give a word the capitalisation and punctuation of a text's first word."""
    match = _FIRST.match(text)
    assert match is not None
    first = match[1]
    # "A" may be an ordinary capital, "YES" is not
    cased = word.upper() if first.isupper() and len(first) > 1 else word
    if first[0].isupper():
        cased = cased[0].upper() + cased[1:]
    mark = text[match.end() : match.end() + 1]
    return cased + (mark if mark in ("", "!", ")") else ".")
