"""The reward of a stated confidence whose answer is given."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from selfreflect.errors import DataError
from selfreflect.sayself.statement import parse_confidence, parse_statement
from selfreflect.train.rewards.base import BatchColumns, Outcome, Reward, Unrewarded
from selfreflect.train.rewards.stated import GoldMatch
from selfreflect.uncertainty.question import NoValue

RewardKind = Literal["brier", "linear", "rlcr"]


def confidence_reward(correct: bool, confidence: float, kind: RewardKind = "brier") -> float:
    """Reward a confidence f in [0, 1] in an answer whose correctness y is 0 or 1; the result is in [-1, 1].

    ``brier``: 1 - 2 (y - f)^2, as SaySelf's published code computes it; proper, so that stating one's true
    chance is best. ``linear``: f if correct, else -f; best at 0 or 1. ``rlcr``: y - (y - f)^2 (Damani et al.
    2025, arXiv 2507.16806), which also rewards being right.

    Raises:
        DataError: the confidence is outside [0, 1].
    """
    if not 0 <= confidence <= 1:
        raise DataError(f"a confidence is in [0, 1], not {confidence:g}")
    label = float(correct)
    if kind == "brier":
        return 1 - 2 * (label - confidence) ** 2
    if kind == "linear":
        return confidence if correct else -confidence
    return label - (label - confidence) ** 2


class StatedConfidenceReward(Reward):
    """Rewards the end of a statement that the prompt has begun, up to ``Confidence:``.

    So only the confidence is trained, and every token before it is masked. A model that is rewarded for its
    answer, too, learns that a wrong answer with confidence 0 is as good as a right one with 1. The column
    ``correct`` says whether the answer in the prompt is right.
    """

    def __init__(self, kind: RewardKind = "brier") -> None:
        self.kind = kind
        self.__name__ = f"confidence_{kind}"
        super().__init__()

    @property
    def worst(self) -> float:
        return -1.0

    def outcomes(self, texts: Sequence[str | Unrewarded], columns: BatchColumns) -> list[Outcome]:
        outcomes: list[Outcome] = []
        for text, correct in zip(texts, columns.values("correct"), strict=True):
            if isinstance(text, Unrewarded):
                outcomes.append(text)
            else:
                outcomes.append(_outcome(correct, parse_confidence(text), self.kind))
        return outcomes


class StatementReward(Reward):
    """Rewards a whole statement, whose own answer is compared with the right ones in the column ``gold``.

    Every token is trained. With ``brier`` a wrong answer with confidence 0 is then worth as much as a right
    one with 1; ``rlcr`` also pays for being right.

    Args:
        correctness: which answers are correct, as of ``selfreflect uncertainty --correctness``, but for
            ``judge`` and ``human``.

    Raises:
        ConfigError: there is no such function, or it asks a model or a person.
    """

    def __init__(self, kind: RewardKind = "rlcr", correctness: str = "squad_f1") -> None:
        self.kind = kind
        self.is_correct = GoldMatch(correctness)
        self.__name__ = f"statement_{kind}"
        super().__init__()

    @property
    def worst(self) -> float:
        return -1.0

    def outcomes(self, texts: Sequence[str | Unrewarded], columns: BatchColumns) -> list[Outcome]:
        statements = [text if isinstance(text, Unrewarded) else parse_statement(text) for text in texts]
        answers = [None if isinstance(one, Unrewarded) else one.answer or None for one in statements]
        outcomes: list[Outcome] = []
        truths = self.is_correct(answers, columns.lists("gold", single=True))
        for truth, one in zip(truths, statements, strict=True):
            if truth is None:
                outcomes.append(None)
            elif isinstance(one, Unrewarded):
                outcomes.append(one)
            elif not one.answer and not isinstance(one.confidence, NoValue):
                outcomes.append(Unrewarded("blank", "a confidence is stated and no answer"))
            else:
                outcomes.append(_outcome(truth, one.confidence, self.kind))
        return outcomes


def _outcome(correct: Any, confidence: float | NoValue, kind: RewardKind) -> Outcome:
    if isinstance(confidence, NoValue):
        return Unrewarded(confidence.reason, confidence.message)
    return confidence_reward(bool(correct), confidence, kind)
