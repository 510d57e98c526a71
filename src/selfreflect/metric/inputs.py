"""Checks of Python callers' arguments, and parsing of budgets."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from selfreflect.errors import ConfigError, DataError, excerpt
from selfreflect.records import AnswerSet, halves


def checked_text(value: object, name: str) -> str:
    """Check that an argument is text. Raises DataError."""
    if not isinstance(value, str):
        raise DataError(f"{name} must be a text, not {_shown(value)}")
    return value


def checked_question(value: object) -> str:
    """Check that an argument is a question, a non-blank text. Raises DataError."""
    if not checked_text(value, "the question").strip():
        raise DataError("the question is blank")
    return str(value)


def checked_texts(value: object, name: str) -> tuple[str, ...]:
    """Check that an argument is a list of texts: a list, tuple, array or data frame column.

    Raises:
        DataError: it is something else, such as one text, or a set, which holds equal texts once.
    """
    if isinstance(value, str):
        raise DataError(
            f"{name} must be a list of texts, not one text: every letter of it would count as an answer"
        )
    # arrays and columns of data frames become lists of plain Python texts
    if not isinstance(value, list | tuple) and hasattr(value, "tolist"):
        value = value.tolist()
    if not isinstance(value, list | tuple):
        raise DataError(f"{name} must be a list of texts, not {_shown(value)}")
    for number, text in enumerate(value, start=1):
        checked_text(text, f"{name}: entry {number}")
    return tuple(value)


def two_halves(
    question_id: str,
    answers: Sequence[str] | None,
    masked_out: Sequence[str] | None,
    conditioning: Sequence[str] | None,
    seed: int = 0,
) -> AnswerSet:
    """Check the answers of a question, and shuffle and halve a single list. Raises DataError."""
    if answers is None and masked_out is not None and conditioning is not None:
        return AnswerSet(
            question_id=question_id,
            masked_out=checked_texts(masked_out, "masked_out"),
            conditioning=checked_texts(conditioning, "conditioning"),
            halved="given",
        )
    if answers is None or masked_out is not None or conditioning is not None:
        raise DataError("give either answers=..., or both masked_out=... and conditioning=...")
    return shuffled_set(question_id, checked_texts(answers, "answers"), seed)


def shuffled_set(question_id: str, answers: Sequence[str], seed: int = 0) -> AnswerSet:
    """Shuffle and halve a list of answers. Raises DataError for fewer than two."""
    try:
        first, second = halves(answers, question_id, seed)
    except ValueError as error:
        raise DataError(str(error)) from None
    return AnswerSet(question_id=question_id, masked_out=first, conditioning=second, halved="shuffled")


def named_texts(value: object) -> dict[str, str]:
    """Name summaries by a mapping's keys; one text becomes ``summary``, a list ``summary_1``, …

    Raises:
        DataError: it is something else, or a name is blank.
    """
    if isinstance(value, str):
        return {"summary": value}
    if not isinstance(value, Mapping):
        try:
            texts = checked_texts(value, "summaries")
        except DataError:
            raise DataError(
                "summaries must be a text, a list of texts, or texts by name, as in "
                f'{{"mine": "Probably radishes."}}, not {_shown(value)}'
            ) from None
        return {f"summary_{number}": text for number, text in enumerate(texts, start=1)}
    for name, text in value.items():
        if not isinstance(name, str) or not name.strip():
            raise DataError(f"the name of a summary must be a text that is not blank, not {_shown(name)}")
        checked_text(text, f"the summary {excerpt(name)}")
    return dict(value)


def checked_number(value: Any, name: str) -> float:
    """Check that a setting is a number. Raises ConfigError."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ConfigError(f"{name} must be a number, not {_shown(value)}")
    return value


def _shown(value: object) -> str:
    return "None" if value is None else f"{type(value).__name__} {excerpt(value)}"


_BUDGET = re.compile(r"(\d+)\s*(tokens?)?", re.ASCII)


@dataclass(frozen=True)
class Limits:
    """Limits on scoring the masked words of a question. Make one with :meth:`parse`."""

    budget: str
    """Budget in the user's words."""
    tokens: int
    """Maximum number of judge tokens per question, counted as nodes of all prefix trees. A judge without tree
    attention computes more for the same nodes."""
    seed: int = 0
    """Seed of the order of words, together with the question's id."""

    @classmethod
    def parse(cls, budget: str | int | None = None, seed: int = 0) -> Limits | None:
        """Parse the limits; None if all masked words are scored.

        Args:
            budget: judge tokens (``20000``, ``"20000 tokens"``).

        Raises:
            ConfigError: ``budget`` is no count of tokens above 0.
        """
        if budget is None:
            return None
        match = _BUDGET.fullmatch(str(budget).strip().lower())
        # 19 digits or more exceed 64 bits
        if match is None or not 0 < len(match[1].lstrip("0")) < 19:
            raise ConfigError(
                f"the budget {excerpt(budget)} must be judge tokens per question, such as "
                "20000. Budgets of time were removed, because each machine would score different words"
            )
        return cls(str(budget), int(match[1]), seed)

    def less(self, tokens: int) -> Limits:
        """Subtract the tokens already spent on a question."""
        return replace(self, tokens=self.tokens - tokens)
