"""Rewards of stated confidences."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from selfreflect.errors import DataError
from selfreflect.sayself.rewards import WORST, StatedConfidenceReward, confidence_reward


@pytest.mark.parametrize(
    ("correct", "confidence", "kind", "reward"),
    [
        (True, 1.0, "brier", 1.0),
        (True, 0.0, "brier", -1.0),
        (False, 0.0, "brier", 1.0),
        (False, 1.0, "brier", -1.0),
        (True, 0.5, "brier", 0.5),
        (False, 0.7, "linear", -0.7),
        (True, 0.7, "linear", 0.7),
        (True, 1.0, "rlcr", 1.0),
        (False, 0.0, "rlcr", 0.0),
        (False, 1.0, "rlcr", -1.0),
    ],
)
def test_values(correct: bool, confidence: float, kind: str, reward: float) -> None:
    assert confidence_reward(correct, confidence, kind) == pytest.approx(reward)  # type: ignore[arg-type]


@pytest.mark.parametrize("chance", [0.1, 0.35, 0.8])
def test_the_brier_reward_is_proper_and_the_linear_one_is_not(chance: float) -> None:
    grid = np.linspace(0, 1, 101)

    def expected(kind: str) -> list[float]:
        values = []
        for stated in grid:
            right, wrong = (confidence_reward(label, stated, kind) for label in (True, False))  # type: ignore[arg-type]
            values.append(chance * right + (1 - chance) * wrong)
        return values

    assert grid[int(np.argmax(expected("brier")))] == pytest.approx(chance)
    assert grid[int(np.argmax(expected("rlcr")))] == pytest.approx(chance)
    assert grid[int(np.argmax(expected("linear")))] in (0.0, 1.0)


def test_rewarding_the_answer_too_would_pay_for_a_wrong_one_with_confidence_0() -> None:
    """Why only the confidence is trained; ``rlcr`` is the reward for those who train both."""
    assert confidence_reward(False, 0.0, "brier") == confidence_reward(True, 1.0, "brier")
    assert confidence_reward(False, 0.0, "rlcr") < confidence_reward(True, 1.0, "rlcr")


def test_completions_are_the_end_of_a_statement() -> None:
    reward = StatedConfidenceReward()
    counted = {}
    values = reward(
        [" 8", " 85", [{"role": "assistant", "content": "3"}], " sure"],
        question_id=["a", "a", "b", "b"],
        correct=[True, True, False, False],
        prompts=["p"] * 4,
        log_metric=lambda name, value: counted.update({name: value}),
    )
    assert values == pytest.approx([1 - 2 * 0.04, WORST, 1 - 2 * 0.09, WORST])
    assert counted == {"confidence_unread": 0.5}


def test_unreadable_confidences_never_win() -> None:
    reward = StatedConfidenceReward()
    values = reward(["10", "85"], question_id=["a"] * 2, correct=[False] * 2)
    assert values[1] <= values[0]


def test_whole_statements_are_judged_by_their_own_answer() -> None:
    reward = StatedConfidenceReward("rlcr", label=lambda _, answer: answer == "Seine")
    texts = ["Answer: Seine. Confidence: 10", "Answer: Loire. Self-reflection: Not the Seine? Confidence: 10"]
    assert reward(texts, question_id=["a", "a"]) == pytest.approx([1.0, -1.0])


def test_columns_of_another_length_are_refused() -> None:
    with pytest.raises(DataError, match="2 completions and 1 correct"):
        StatedConfidenceReward()(["1", "2"], question_id=["a", "a"], correct=[True])


def test_a_reward_can_be_pickled() -> None:
    again = pickle.loads(pickle.dumps(StatedConfidenceReward("linear")))
    assert again(["5"], question_id=["a"], correct=[True]) == [0.5]
    assert again.__name__ == "confidence_linear"
