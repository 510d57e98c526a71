"""The reward of a stated confidence whose answer is given."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from selfreflect.errors import DataError
from selfreflect.sayself.statement import parse_confidence, parse_statement
from selfreflect.train.parsing import StatedBelief
from selfreflect.train.rewards.base import BatchColumns
from selfreflect.train.rewards.stated import GoldReward, StatedReward
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


class StatedConfidenceReward(StatedReward):
    """Rewards the end of a statement that the prompt has begun, up to ``Confidence:``.

    So only the confidence is trained, and every token before it is masked. A model that is rewarded for its
    answer, too, learns that a wrong answer with confidence 0 is as good as a right one with 1. The column
    ``correct`` says whether the answer in the prompt is right.
    """

    def __init__(self, kind: RewardKind = "brier") -> None:
        self.kind = kind
        self.__name__ = f"confidence_{kind}"
        super().__init__()

    def parse(self, text: str) -> StatedBelief:
        return StatedBelief("", parse_confidence(text))

    def truths(self, answers: Sequence[str | None], columns: BatchColumns) -> list[float | None]:
        return [float(bool(correct)) for correct in columns.values("correct")]

    def grade(self, truth: float, confidence: float) -> float:
        return confidence_reward(bool(truth), confidence, self.kind)


class StatementReward(GoldReward):
    """Rewards a whole statement, whose own answer is compared with the right ones in the column ``gold``.

    Every token is trained. With ``brier`` a wrong answer with confidence 0 is then worth as much as a right
    one with 1; ``rlcr`` also pays for being right.

    Args:
        correctness: see :class:`~selfreflect.train.rewards.stated.GoldReward`.
    """

    def __init__(self, kind: RewardKind = "rlcr", correctness: str = "squad_f1") -> None:
        self.kind = kind
        self.__name__ = f"statement_{kind}"
        super().__init__(correctness)

    def parse(self, text: str) -> StatedBelief:
        statement = parse_statement(text)
        if statement.answer or isinstance(statement.confidence, NoValue):
            return statement
        return StatedBelief("", NoValue("no_answer", "a confidence is stated and no answer"))

    def grade(self, truth: float, confidence: float) -> float:
        return confidence_reward(bool(truth), confidence, self.kind)
