"""Rewards of stated confidences."""

from __future__ import annotations

import pickle

import pytest

from selfreflect.errors import ConfigError
from selfreflect.train.sayself.training import StatedConfidenceReward, StatementReward


def test_completions_are_the_end_of_a_statement() -> None:
    reward = StatedConfidenceReward()
    counted = {}
    values = reward(
        None,
        [" 8", " 85", [{"role": "assistant", "content": "3"}], " sure"],
        correct=[True, True, False, False],
        log_metric=lambda name, value: counted.update({name: value}),
    )
    assert values == pytest.approx([1 - 2 * 0.04, -1, 1 - 2 * 0.09, -1])
    assert counted["confidence_brier/failed"] == 0.5


def test_a_whole_statement_is_rewarded_for_its_own_answer() -> None:
    reward = StatementReward("rlcr", "exact")
    texts = [
        "Answer: Seine. Confidence: 10",
        "Answer: Loire. Self-reflection: It may be the Seine. Confidence: 10",  # named, and not answered
        "Answer: Loire. Confidence: 0",
        "Answer: Seine.",
        "Confidence: 10",
    ]
    assert reward(None, texts, gold=[["Seine"]] * 5) == [1.0, -1.0, 0.0, -1.0, -1.0]
    assert reward(None, texts[:1], gold=[[]]) == [None]
    with pytest.raises(ConfigError, match="not by 'judge'"):
        StatementReward("rlcr", "judge")


@pytest.mark.parametrize("kind", ["brier", "linear", "rlcr"])
def test_unreadable_confidences_never_win(kind: str) -> None:
    values = StatedConfidenceReward(kind)(None, ["10", "85"], correct=[False] * 2)  # type: ignore[arg-type]
    assert values[1] <= values[0]  # type: ignore[operator]


def test_a_reward_can_be_pickled() -> None:
    again = pickle.loads(pickle.dumps(StatedConfidenceReward("linear")))
    assert again(None, ["5"], correct=[True]) == [0.5]
    assert again.__name__ == "confidence_linear"
