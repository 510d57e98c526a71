"""Correctness of answers by gold answers, human labels, or another program's grades."""

from __future__ import annotations

import re
import string
import unicodedata
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from selfreflect.errors import ConfigError, unknown_name
from selfreflect.grouping import unified
from selfreflect.quantities import Quantity, last_quantity
from selfreflect.removed import CORRECTNESS as REMOVED
from selfreflect.sameness import contains_answer
from selfreflect.text import UNSPACED
from selfreflect.uncertainty.asking.asker import Asker, judge_answers, required
from selfreflect.uncertainty.classes import normalised, threshold_of
from selfreflect.uncertainty.question import AnsweredQuestion, NoValue, graded_by, has_gold

SHARED_WORDS = 0.5
"""Minimum F1 of shared words for which ``squad_f1`` calls an answer correct."""
DEFAULT = "contains"
GRADED = "graded"
CORRECTNESS = ("human", GRADED, "contains", "exact", "numeric", "substring", "squad_f1", "judge")

_ARTICLE = re.compile(r"\b(a|an|the)\b")
_UNSPACED = re.compile(f"[{UNSPACED}]")
# Marks that divide words without a space, which no ASCII twin may join.
_BREAK = re.compile("[—―…，；：！？]")
_WITHOUT_PUNCTUATION = str.maketrans("", "", string.punctuation)


def default_correctness(questions: Sequence[AnsweredQuestion]) -> str | None:
    """Choose the default correctness: labels, grades or right answers; None if there are none of these."""
    if any(question.correct is not None for question in questions):
        return "human"
    if graded_by(questions):
        return GRADED
    return DEFAULT if has_gold(questions) else None


class Correctness:
    """A function that labels answers as correct if close enough to a gold answer.

    Args:
        name: one of ``CORRECTNESS``; ``squad_f1`` takes a threshold, as in ``squad_f1:0.8``. ``contains``
            looks for the same answer, or a gold answer among the words of a short one that neither negates it
            nor offers others (:func:`~selfreflect.sameness.contains_answer`). ``numeric`` compares the last
            numbers, with their units where both have one. ``substring`` looks
            for a gold answer anywhere in the answer, in lower case, even inside of words, as the published
            code of SaySelf does (arXiv 2405.20974). ``human`` reads the label in the record, ``graded`` the
            verdicts that another program stored on answers, by the first grader of each question, and
            ``graded:NAME`` those of one grader. ``judge`` asks a model about answers that are not spelled
            like a gold answer.
        asker: the model that ``judge`` asks.

    Raises:
        ConfigError: there is no such function, the threshold is not in (0, 1], or ``judge`` has no model.
    """

    def __init__(self, name: str, asker: Asker | None = None) -> None:
        self._kind, _, argument = name.partition(":")
        if self._kind in REMOVED:
            raise ConfigError(f"{self._kind} is no longer a correctness function", remedy=REMOVED[self._kind])
        if self._kind not in CORRECTNESS:
            raise unknown_name("correctness function", self._kind, CORRECTNESS)
        self.name = self._kind
        self._threshold = 1.0
        self._grader = ""
        if self._kind == "squad_f1":
            self._threshold = threshold_of(name, SHARED_WORDS)
            self.name = f"{self._kind}:{self._threshold:g}"
        elif self._kind == GRADED:
            self._grader = argument
            self.name = name
        elif argument:
            raise ConfigError(
                f"the correctness function {self._kind!r} takes no threshold. Leave out what follows "
                "the colon"
            )
        self._asker = required(asker, "correctness by 'judge'") if self._kind == "judge" else None
        self._verdicts: dict[tuple[str, str], bool | None] = {}

    def label_all(
        self,
        questions: Sequence[AnsweredQuestion],
        answers: Sequence[str | None],
        judged: Sequence[str | None] | None = None,
    ) -> list[bool | None]:
        """Label one answer per question. Model-based functions process all texts at once.

        Raises:
            ConfigError: ``graded:NAME`` names a grader that no question has.
        """
        if self._kind == GRADED:
            graders = graded_by(questions)
            # an unknown grader would leave every answer without a label
            if self._grader and graders and self._grader not in graders:
                raise unknown_name("grader", self._grader, graders)
        if self._asker is not None:
            self._judge(self._asker, questions, answers)
        judged_texts = [None] * len(questions) if judged is None else judged
        return [self(*arguments) for arguments in zip(questions, answers, judged_texts, strict=True)]

    def __call__(
        self, question: AnsweredQuestion, answer: str | None, judged: str | None = None
    ) -> bool | None:
        """Label an answer; None without a gold answer, label or verdict.

        A person's label is of the answer ``judged``, and of others with the same spelling.
        """
        if self._kind == "human":
            is_other = judged is not None and normalised(judged) != normalised(answer or "")
            return None if is_other else question.correct
        if self._kind == GRADED:
            # tasks in one file have graders of their own
            grader = self._grader or next(iter(question.grades), "")
            return graded(question, grader, answer, answer == judged)
        if answer is None or not question.gold:
            return None
        if question.keys:
            # answers with keys are compared by these alone
            keys = question.keys
            if answer in keys:
                return any(keys.get(gold) == keys[answer] for gold in question.gold)
            texts = tuple(gold for gold in question.gold if gold not in keys)
            question = replace(question, gold=texts, keys={})
            if not texts:
                return False
        if self._asker is not None:
            if _is_gold(question, answer):
                return True
            return self._verdicts.get((question.id, answer))
        if self._kind == "contains":
            return any(contains_answer(question.text, answer, gold) for gold in question.gold)
        return max(self._closeness(answer, gold) for gold in question.gold) >= self._threshold

    def _judge(
        self, asker: Asker, questions: Sequence[AnsweredQuestion], answers: Sequence[str | None]
    ) -> None:
        """Ask about all answers in one batch."""
        pairs = []
        for question, answer in zip(questions, answers, strict=True):
            if answer is not None and question.gold and not _is_gold(question, answer):
                pairs.append((question, answer))
        for (question, answer), verdict in zip(pairs, judge_answers(asker, pairs), strict=True):
            self._verdicts[question.id, answer] = None if isinstance(verdict, NoValue) else verdict

    def _closeness(self, answer: str, gold: str) -> float:
        if self._kind == "exact":
            return float(normalised(answer) == normalised(gold))
        if self._kind == "numeric":
            number, target = last_quantity(answer), last_quantity(gold)
            if number is None or target is None:
                # answers without numbers are compared as texts
                return float(normalised(answer) == normalised(gold))
            return float(_equal(number, target))
        if self._kind == "substring":
            part = unified(gold).lower()
            return float(bool(part) and part in unified(answer).lower())
        return squad_f1(answer, gold)


def graded(
    question: AnsweredQuestion, grader: str, answer: str | None, is_judged: bool = True
) -> bool | None:
    """Return the majority of an answer's verdicts, including equal spellings; None in a tie."""
    spelling = normalised(answer or "")
    verdicts = [
        right
        for text, right in question.grades.get(grader, ())
        if right is not None and (is_judged if text is None else normalised(text) == spelling)
    ]
    twice = 2 * sum(verdicts)
    return None if twice == len(verdicts) else twice > len(verdicts)


def _equal(number: Quantity, target: Quantity) -> bool:
    """Compare two quantities to a millionth. "50 %" equals both 0.5 and 50."""
    # dates and ranges have no value
    if number.value is None or target.value is None:
        return number.key == target.key
    number_value, target_value = number.value, target.value
    # 5 km and 5000 m are equal; a number without a unit is compared as it stands
    if number.unit and target.unit:
        (number_value, base), (target_value, target_base) = number.in_base, target.in_base
        if base != target_base:
            return False
    values = (
        [number_value, number_value * 100] if number.is_percent and not target.is_percent else [number_value]
    )
    return any(abs(value - target_value) <= 1e-6 * abs(target_value) for value in values)


def _is_gold(question: AnsweredQuestion, answer: str) -> bool:
    return normalised(answer) in map(normalised, question.gold)


def squad_f1(answer: str, gold: str) -> float:
    """Compute the F1 of words shared by two texts, as SQuAD does (Rajpurkar et al. 2016, arXiv 1606.05250).
    In scripts without spaces each character is a word. Two texts without words are equal.
    """
    answer_words, gold_words = _squad_words(answer), _squad_words(gold)
    if not answer_words or not gold_words:
        return float(answer_words == gold_words)
    overlap = (Counter(answer_words) & Counter(gold_words)).total()
    return 2 * overlap / (len(answer_words) + len(gold_words))


def _squad_words(text: str) -> list[str]:
    # without a change to ASCII, as published: O’Brien is O'Brien
    plain = unified(_BREAK.sub(" ", text)).lower().translate(_WITHOUT_PUNCTUATION)
    # string.punctuation is ASCII alone
    if not plain.isascii():  # "。" and other marks, and words that no spaces divide
        plain = "".join(" " if unicodedata.category(mark).startswith("P") else mark for mark in plain)
        plain = _UNSPACED.sub(r" \g<0> ", plain)
    return _ARTICLE.sub(" ", plain).split()
