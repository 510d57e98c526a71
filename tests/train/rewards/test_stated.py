"""Rewards of stated confidences, called as TRL calls them."""

from __future__ import annotations

import math
import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from selfreflect.errors import ConfigError
from selfreflect.train.rewards import BrierReward, ConsistencyReward, LogReward, MultiAnswerBrier, RLCRReward
from selfreflect.train.rewards.base import Reward
from selfreflect.train.rewards.stated import confidence_reward

RIGHT = "Answer: Paris\nConfidence: 80%"
WRONG = "Answer: Rome\nConfidence: 80%"
SAMPLES = ["Paris", "paris.", "Lyon", "Rome"]
GUESSES = "Paris | 60%\nRome | 30%"


def called(reward: Reward, texts: list[str], **columns: Any) -> list[float | None]:
    """Call a reward as TRL's GRPO does with one question."""
    count = len(texts)
    columns = {"gold": [["Paris"]] * count, "answers": [SAMPLES] * count, **columns}
    prompts = [[{"role": "user", "content": "What is the capital of France?"}]] * count
    completions = [[{"role": "assistant", "content": text}] for text in texts]
    return reward(
        prompts, completions, [[1, 2]] * count, trainer_state=object(), question_id=["q"] * count, **columns
    )


STATED = "Answer: 4\nConfidence: 80%"
TAGGED = "<answer>4</answer><analysis>a</analysis><confidence>0.8</confidence>"


@pytest.mark.parametrize(
    ("completion", "gold"),
    [
        (f"<think>t <answer>5</answer></think>{TAGGED}", ["4"]),
        (TAGGED, "4"),
        (f"<think>t</think>\n{TAGGED}\nThat is all.", ["3", "4"]),
        (STATED, 4),
        (STATED, [4]),
        (STATED, 4.0),
        (STATED, np.int64(4)),
        (STATED, np.array([3, 4])),
        (STATED, np.array("4")),
        (
            [
                {"role": "assistant", "content": None, "tool_calls": []},
                {"role": "tool", "content": "4"},
                {"role": "assistant", "content": STATED},
            ],
            "4",
        ),
        ([{"role": "assistant", "content": [{"type": "text", "text": TAGGED}]}], [4]),
    ],
)
def test_what_trainers_hand_over_is_read(completion: Any, gold: Any) -> None:
    assert RLCRReward()(None, [completion], gold=[gold]) == [pytest.approx(0.96)]


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


@pytest.mark.parametrize(
    ("reward", "right", "wrong"),
    [
        (BrierReward(), 1 - 2 * 0.04, 1 - 2 * 0.64),
        (RLCRReward(), 1 - 0.04, -0.64),
        (LogReward(), math.log(0.8), math.log(0.2)),
        (LogReward(scale=10, clip=0.4), 10 * math.log(0.6), 10 * math.log(0.4)),
        (ConsistencyReward(), 1 - abs(0.8 - 0.5), 1 - abs(0.8 - 0.25)),
    ],
)
def test_the_formulas(reward: Reward, right: float, wrong: float) -> None:
    assert called(reward, [RIGHT, WRONG]) == pytest.approx([right, wrong])


@pytest.mark.parametrize(
    ("reward", "value"),
    [(MultiAnswerBrier(), 1 - (0.4**2 + 0.3**2)), (MultiAnswerBrier("answers"), 0.75 - (0.1**2 + 0.05**2))],
)
def test_several_answers(reward: Reward, value: float) -> None:
    repeated = "Paris | 50%\nthe Paris. | 50%"
    many = "\n".join(f"guess {number} | 1%" for number in range(11))
    assert called(reward, [GUESSES, repeated, many]) == pytest.approx([value, -10, -10])


ALL = [
    BrierReward(),
    RLCRReward("squad_f1:0.5"),
    LogReward(),
    ConsistencyReward(classes="jaccard"),
    MultiAnswerBrier(),
    MultiAnswerBrier("answers"),
]


@pytest.mark.parametrize("reward", ALL)
@given(confidence=st.integers(0, 100), answer=st.sampled_from(["Paris", "Rome", "Berlin"]))
def test_no_failure_gets_more_than_any_other_completion(reward: Reward, confidence: int, answer: str) -> None:
    stated = f"Answer: {answer}\nConfidence: {confidence}%"
    listed = "\n".join(f"{answer} {number} | {confidence}%" for number in range(10))
    texts = [listed if isinstance(reward, MultiAnswerBrier) else stated, "", "no idea", "<think>never ends"]
    valid, *failed = called(reward, texts)
    assert valid is not None
    assert all(one is not None and one <= valid for one in failed)


@pytest.mark.parametrize("reward", ALL)
def test_a_pickled_reward_is_the_same_reward(reward: Reward) -> None:
    texts = [RIGHT, WRONG, GUESSES, ""]
    copy = pickle.loads(pickle.dumps(reward))
    assert called(copy, texts) == called(reward, texts)
    assert copy.__name__ == reward.__name__ != "reward"


def test_without_gold_no_completion_of_the_question_has_a_reward() -> None:
    metrics: dict[str, float] = {}
    extra: dict[str, list[Any]] = {}
    gold = [None, [], ["Paris"], ["Paris"]]
    texts = [RIGHT, "", "I do not know", RIGHT]
    rewards = called(
        BrierReward(), texts, gold=gold, log_metric=metrics.__setitem__, log_extra=extra.__setitem__
    )
    assert rewards == [None, None, -1.0, pytest.approx(0.92)]
    assert metrics == {"brier_reward/failed": 0.25, "brier_reward/undefined": 0.5}
    assert extra == {"brier_reward/failure": ["", "", "no_answer", ""]}


@pytest.mark.parametrize(
    ("make", "setting"),
    [
        (lambda: BrierReward(failed=0), "failed=0"),
        (lambda: LogReward(failed=-6), "failed=-6"),
        (lambda: LogReward(clip=0.5), "clip"),
        (lambda: LogReward(scale=0), "scale"),
        (lambda: BrierReward(out_of=0), "out_of"),
        (lambda: BrierReward("judge"), "'judge'"),
        (lambda: BrierReward("exat"), "'exact'"),
        (lambda: ConsistencyReward(classes="judge"), "classes"),
        (lambda: MultiAnswerBrier("samples"), "against"),  # type: ignore[arg-type]
        (lambda: MultiAnswerBrier(most=0), "most"),
    ],
)
def test_settings_that_make_no_sense_are_refused(make: Any, setting: str) -> None:
    with pytest.raises(ConfigError, match=setting):
        make()
    assert LogReward(failed=-100).failed == -100


def test_consistency_counts_what_says_the_same() -> None:
    texts = ["Answer: 12\nConfidence: 50%", "Answer: 12 men\nConfidence: 50%", "Answer: 7\nConfidence: 0%"]
    samples = [["12", "about 12", "9", "8"]] * 3
    numeric = ConsistencyReward(classes="numeric")
    assert called(numeric, texts, answers=samples) == pytest.approx([1, 1, 1])
    assert called(ConsistencyReward(), texts, answers=samples) == pytest.approx([0.75, 0.5, 1])
    assert called(ConsistencyReward(answers="own"), texts[:1], own=[["12"]]) == pytest.approx([0.5])
    assert called(ConsistencyReward(), texts[:2], answers=[[], None]) == [None, None]


def test_why_a_list_failed_is_told_and_its_length_has_a_limit() -> None:
    noted: dict[str, list[str]] = {}
    texts = ["a | 1%\nb | 1%", "a | 1%\nb | 1%\nc | 1%", "a | 1%\nA. | 1%", "a", ""]
    reward = MultiAnswerBrier(most=2)
    values = called(reward, texts, log_extra=noted.__setitem__)
    assert values[1:] == [-2.0] * 4
    assert noted == {"multi_answer_brier/failure": ["", "too_many", "repeated", "unparsed", "blank"]}
    assert called(MultiAnswerBrier(most=1), ["Paris | 100%"]) == [1.0]
