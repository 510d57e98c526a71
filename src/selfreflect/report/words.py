"""Covered, missed and misleading words of an answer.

And the answers and words that show it best.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from functools import lru_cache
from typing import Literal, NamedTuple

from selfreflect.grouping import most_common, normal_form
from selfreflect.records import WordBits, WordDistance

MarkKind = Literal["plain", "covered", "missed", "misleading"]

PLAIN_BELOW = 2.0
"""Bits below which a word stays plain: neither the summary nor the answers change its probability by a factor
of 4."""

FULL = 8.0
"""Bits at which a mark has its full strength, a factor of 256. It is fixed, so that pages are comparable."""


class Mark(NamedTuple):
    """A word's mark in an answer."""

    kind: MarkKind
    bits: float
    """Bits covered, missed or lost; at least 0."""

    @property
    def strength(self) -> float:
        """Strength of the mark from 0 to 1."""
        return min(self.bits / FULL, 1.0)


def marks(words: Sequence[WordBits], summary: str) -> list[Mark]:
    """Label the words of an answer as covered, missed or misleading."""
    looks = list(map(mark, words))
    for index, look in enumerate(looks):
        # the comparison is slow, and changes this label alone
        if look.kind == "missed" and _stands_in(normal_form(words[index].text), _forms(summary)):
            looks[index] = mark(words[index], is_said=True)
    return looks


@lru_cache(maxsize=256)
def _forms(summary: str) -> str:
    """Normalise a summary's words for comparison."""
    return f" {' '.join(map(normal_form, summary.split()))} "


def _stands_in(form: str, summary_forms: str) -> bool:
    if form.lower() == form.upper() and not form.isnumeric():  # scripts that may put no spaces between words
        return len(form) > 1 and form in summary_forms
    # most words are not there, and a pattern of each would have to be compiled
    place = summary_forms.find(form)
    while place >= 0:
        after = place + len(form)
        if not (_is_letter(summary_forms[place - 1]) or _is_letter(summary_forms[after : after + 1])):
            return True
        place = summary_forms.find(form, place + 1)
    return False


def _is_letter(character: str) -> bool:
    return character.isalnum() or character == "_"


def mark(word: WordBits, is_said: bool = False) -> Mark:
    """Choose the mark of one word.

    A summary misleads where it makes a word less believable than the reference answers do: what they make
    unlikely too, such as a rare answer, is not its fault. This comes first, because a false statement is
    worse than a gap. Of a word that is covered in part, the larger part counts. What the summary says is
    never missed, however little the judge makes of it.

    Args:
        is_said: whether the word stands in the summary.
    """
    # what the answers themselves make unlikely is no loss
    loss = min(word.available, 0.0) - word.told
    if loss >= PLAIN_BELOW:
        return Mark("misleading", loss)
    gained = max(word.told, 0.0)
    lacking = max(word.available - gained, 0.0)
    if max(gained, lacking) < PLAIN_BELOW:
        return Mark("plain", gained)
    return Mark("covered", gained) if is_said or gained >= lacking else Mark("missed", lacking)


def telling_answers(results: Sequence[tuple[Sequence[Sequence[WordBits]], str]], limit: int) -> list[int]:
    """Choose distinct test answers with the most bits covered, missed or lost over all summaries.

    Args:
        results: the words of each test answer under a summary, and its text.

    Returns:
        Indices into the test answers.
    """
    at_stake: defaultdict[int, float] = defaultdict(float)
    texts = {}
    for answers, summary in results:
        for index, words in enumerate(answers):
            if not words:
                continue
            looks = marks(words, summary)
            at_stake[index] += sum(look.bits for look in looks if look.kind != "plain")
            texts[index] = normal_form(" ".join(word.text for word in words))
    by_text: dict[str, int] = {}
    for index in sorted(at_stake, key=lambda index: (-at_stake[index], index)):
        by_text.setdefault(texts[index], index)
    return list(by_text.values())[:limit]


def worst_words(words: Sequence[WordDistance], limit: int) -> list[tuple[str, float]]:
    """Find the ``limit`` words with the largest mean distance, ignoring case and punctuation."""
    occurrences = defaultdict(list)
    for word in words:
        if word.distances:
            occurrences[normal_form(word.text)].append(word)
    means = []
    for repeats in occurrences.values():
        mean = math.fsum(word.mean for word in repeats) / len(repeats)
        means.append((most_common(word.text for word in repeats), mean))
    means.sort(key=lambda pair: (-pair[1], pair[0]))
    return means[:limit]
