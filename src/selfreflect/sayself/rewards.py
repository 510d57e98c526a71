"""The reward of a stated confidence whose answer is given."""

from __future__ import annotations

from collections.abc import Sequence

from selfreflect.sayself.statement import parse_confidence, parse_statement
from selfreflect.train.parsing import StatedBelief
from selfreflect.train.rewards.base import BatchColumns
from selfreflect.train.rewards.stated import GoldReward, ScoringRule, StatedReward
from selfreflect.uncertainty.question import NoValue


class StatedConfidenceReward(StatedReward):
    """Rewards the end of a statement that the prompt has begun, up to ``Confidence:``.

    So only the confidence is trained, and every token before it is masked. A model that is rewarded for its
    answer, too, learns that a wrong answer with confidence 0 is as good as a right one with 1. The column
    ``correct`` says whether the answer in the prompt is right.
    """

    def __init__(self, scoring: ScoringRule = "brier") -> None:
        self.scoring = scoring
        self.__name__ = f"confidence_{scoring}"
        super().__init__()

    def parse(self, text: str) -> StatedBelief:
        return StatedBelief("", parse_confidence(text))

    def truths(self, answers: Sequence[str | None], columns: BatchColumns) -> list[float | None]:
        return [float(bool(correct)) for correct in columns.values("correct")]


class StatementReward(GoldReward):
    """Rewards a whole statement, whose own answer is compared with the right ones in the column ``gold``.

    Every token is trained. With ``brier`` a wrong answer with confidence 0 is then worth as much as a right
    one with 1; ``rlcr`` also pays for being right.

    Args:
        correctness: see :class:`~selfreflect.train.rewards.stated.GoldReward`.
    """

    def __init__(self, scoring: ScoringRule = "rlcr", correctness: str = "squad_f1") -> None:
        self.scoring = scoring
        self.__name__ = f"statement_{scoring}"
        super().__init__(correctness)

    def parse(self, text: str) -> StatedBelief:
        statement = parse_statement(text)
        if statement.answer or isinstance(statement.confidence, NoValue):
            return statement
        return StatedBelief("", NoValue("no_answer", "a confidence is stated and no answer"))
