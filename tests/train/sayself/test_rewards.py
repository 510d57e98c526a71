"""Rewards of stated confidences."""

from __future__ import annotations

import pickle

import pytest

from selfreflect.errors import ConfigError, DataError
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


def test_10_is_more_than_1() -> None:
    """The published code ends a batch as soon as its first row says 1, which is how 10 begins."""
    values = StatedConfidenceReward()(None, ["10", "1"], correct=[True, True])
    assert values == pytest.approx([1, 1 - 2 * 0.81])


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


def test_columns_of_another_length_are_refused() -> None:
    with pytest.raises(DataError, match="'correct' has 1 values for 2 completions"):
        StatedConfidenceReward()(None, ["1", "2"], correct=[True])


def test_a_reward_can_be_pickled() -> None:
    again = pickle.loads(pickle.dumps(StatedConfidenceReward("linear")))
    assert again(None, ["5"], correct=[True]) == [0.5]
    assert again.__name__ == "confidence_linear"


def test_rewards_have_their_published_kinds_and_say_which_they_are() -> None:
    assert StatedConfidenceReward().__name__ == "confidence_brier"
    assert StatementReward().__name__ == "statement_rlcr"
    assert StatementReward("brier", "exact").criterion == "statement_brier by exact"


def test_by_default_half_of_the_words_must_be_right() -> None:
    texts = ["Answer: the Nam Van Lake, in Macau. Confidence: 10", "Answer: a big lake. Confidence: 10"]
    assert StatementReward()(None, texts, gold=[["Nam Van Lake"]] * 2) == [1.0, -1.0]


@pytest.mark.parametrize(("kind", "right", "wrong"), [("brier", 0.92, -0.28), ("rlcr", 0.96, -0.64)])
def test_a_whole_statement_has_the_reward_of_its_kind(kind: str, right: float, wrong: float) -> None:
    reward = StatementReward(kind, "exact")  # type: ignore[arg-type]
    texts = ["Answer: Seine. Confidence: 8", "Answer: Loire. Confidence: 8"]
    assert reward(None, texts, gold=[["Seine"]] * 2) == pytest.approx([right, wrong])


def test_why_a_statement_has_no_reward_of_its_own_is_told() -> None:
    noted: dict[str, list[str]] = {}
    texts = ["Confidence: 10", "Answer: Seine.", "Answer: Seine. Confidence: 11"]
    StatementReward("rlcr", "exact")(None, texts, gold=[["Seine"]] * 3, log_extra=noted.__setitem__)
    assert noted == {"statement_rlcr/failure": ["no_answer", "no_number", "out_of_range"]}
