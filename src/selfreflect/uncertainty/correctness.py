"""Decide which answers are correct: by gold answers, with a stated threshold, or by a person's labels."""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Iterable

from selfreflect.errors import ConfigError, nearest
from selfreflect.uncertainty.classes import last_number, normalised, threshold_of
from selfreflect.uncertainty.question import AnsweredQuestion
from selfreflect.uncertainty.similarity import EmbeddingSimilarity, rouge_l, words

THRESHOLDS = {"squad_f1": 0.5, "rouge": 0.3, "embedding": 0.7}
"""From which similarity with a gold answer an answer counts as correct."""
CORRECTNESS = ("human", "exact", "numeric", *THRESHOLDS)

_ARTICLE = re.compile(r"\b(a|an|the)\b")
_WITHOUT_PUNCTUATION = str.maketrans("", "", string.punctuation)


class Correctness:
    """Labels an answer correct if it is close enough to any gold answer of its question.

    Args:
        name: one of ``CORRECTNESS``; ``squad_f1``, ``rouge`` and ``embedding`` take a threshold, as in
            ``rouge:0.5``. ``human`` reads the label in the record.

    Raises:
        ConfigError: there is no such function, or the threshold is not in (0, 1].
        MissingExtraError: ``embedding`` without the ``embed`` extra.
    """

    def __init__(self, name: str) -> None:
        self._kind, _, written = name.partition(":")
        if self._kind not in CORRECTNESS:
            known = ", ".join(CORRECTNESS)
            hint = nearest(self._kind, list(CORRECTNESS))
            raise ConfigError(f"no correctness function {name!r}.{hint} Known: {known}")
        self.name = self._kind
        self._threshold = 1.0
        self._embed: EmbeddingSimilarity | None = None
        if self._kind in THRESHOLDS:
            self._threshold = threshold_of(name, THRESHOLDS[self._kind])
            self.name = f"{self._kind}:{self._threshold:g}"
        elif written:
            raise ConfigError(f"{self._kind!r} has no threshold")
        if self._kind == "embedding":
            self._embed = EmbeddingSimilarity()

    def prepare(self, questions: Iterable[AnsweredQuestion], answers: Iterable[str | None]) -> None:
        """Let a function that needs a model see all texts at once."""
        if self._embed is not None:
            gold = [text for question in questions for text in question.gold]
            self._embed.prepare([*gold, *(text for text in answers if text is not None)])

    def __call__(self, question: AnsweredQuestion, answer: str | None) -> bool | None:
        """Label an answer; None if the question has no gold answer or label."""
        if self._kind == "human":
            return question.correct
        if answer is None or not question.gold:
            return None
        return max(self._closeness(answer, gold) for gold in question.gold) >= self._threshold

    def _closeness(self, answer: str, gold: str) -> float:
        if self._kind == "exact":
            return float(normalised(answer) == normalised(gold))
        if self._kind == "numeric":
            number, wanted = last_number(answer), last_number(gold)
            if number is None or wanted is None:
                return float(normalised(answer) == normalised(gold))
            return float(abs(number - wanted) <= 1e-6 * abs(wanted))
        if self._kind == "squad_f1":
            return squad_f1(answer, gold)
        if self._kind == "rouge":
            return rouge_l(words(answer), words(gold))
        assert self._embed is not None
        return float(self._embed([answer, gold])[0, 1])


def squad_f1(answer: str, gold: str) -> float:
    """F1 of the words that two texts share, without case, punctuation and articles (Rajpurkar et al. 2016,
    arXiv 1606.05250). Two texts without words are equal."""
    one, other = _squad_words(answer), _squad_words(gold)
    if not one or not other:
        return float(one == other)
    shared = (Counter(one) & Counter(other)).total()
    return 2 * shared / (len(one) + len(other))


def _squad_words(text: str) -> list[str]:
    return _ARTICLE.sub(" ", text.lower().translate(_WITHOUT_PUNCTUATION)).split()
