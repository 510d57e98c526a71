"""Rewards of stated confidences, for reinforcement after fine-tuning."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

from selfreflect.errors import DataError
from selfreflect.sayself.statement import parse_confidence, parse_statement
from selfreflect.uncertainty.question import NoValue

RewardKind = Literal["brier", "linear", "rlcr"]
WORST = -1.0
"""Of ``brier`` and ``linear``; ``rlcr`` reaches it too: a wrong answer of which the model is certain."""


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


class StatedConfidenceReward:
    """A reward function for TRL's GRPO trainer.

    Each completion is the end of a statement that the prompt has begun, up to ``Confidence:``, so that only
    the confidence is trained and every token before it is masked. A model that is rewarded for its answer,
    too, learns that a wrong answer with confidence 0 is as good as a right one with 1. For ``whole``
    statements the completion has an answer of its own, and ``label`` says whether it is correct.

    Args:
        label: of a question's id and an answer; needed for ``whole`` statements only.
    """

    def __init__(
        self, kind: RewardKind = "brier", label: Callable[[str, str], bool | None] | None = None
    ) -> None:
        self.kind = kind
        self.label = label
        self.__name__ = f"confidence_{kind}"

    def __call__(self, completions: Sequence[Any], **columns: Any) -> list[float]:
        """Reward completions, of which each column of the data set holds one value.

        Returns:
            One reward each; ``WORST`` where no confidence can be read, counted by ``log_metric``.

        Raises:
            DataError: a column has another length.
        """
        names = ("question_id", "correct") if self.label is None else ("question_id",)
        for name in names:
            if len(columns.get(name, ())) != len(completions):
                raise DataError(f"{len(completions)} completions and {len(columns.get(name, ()))} {name}")
        rewards = []
        unread = 0
        for place, completion in enumerate(completions):
            text = completion if isinstance(completion, str) else completion[-1]["content"]
            if self.label is None:
                confidence = parse_confidence(text)
                correct = columns["correct"][place]
            else:
                statement = parse_statement(text)
                confidence = statement.confidence
                correct = self.label(columns["question_id"][place], statement.answer)
            if isinstance(confidence, NoValue) or correct is None:
                rewards.append(WORST)
                unread += 1
            else:
                rewards.append(confidence_reward(bool(correct), confidence, self.kind))
        if "log_metric" in columns and completions:
            columns["log_metric"]("confidence_unread", unread / len(completions))
        return rewards
