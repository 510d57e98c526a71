"""Rewards of a judge, called as TRL calls them; the judge is tiny and random, and so are its weights."""

from __future__ import annotations

import pickle
from functools import partial
from typing import Any

import pytest

from selfreflect.errors import ConfigError
from selfreflect.metric.inputs import Limits
from selfreflect.metric.scorer import SelfReflect
from selfreflect.models.judge import Judge
from selfreflect.train.rewards import InformationReward, SelfReflectReward
from selfreflect.train.rewards.judged import JudgeReward

PLANT = "What should I plant?"
POT = "What grows in a pot?"
ROWS = {
    PLANT: (["Radishes grow fast.", "Lettuce, or peas"], ["basil or peas", "Radishes"]),
    POT: (["Basil", "tomatoes and basil"], ["tomatoes", "You can plant basil"]),
}
TEXTS = ["Radishes, lettuce or peas.", "An oak forest, of course.", "It is not clear"]
close = partial(pytest.approx, abs=1e-3)  # what is measured together changes the last bits
BATCH = [(question, text) for question in ROWS for text in TEXTS]


def called(reward: JudgeReward, batch: list[tuple[str, str]], **more: Any) -> list[float | None]:
    """Call a reward as TRL's GRPO does: the columns of a question once for each completion."""
    columns: dict[str, Any] = {
        "question_id": [f"id of {question}" for question, _ in batch],
        "question": [question for question, _ in batch],
        "masked_answers": [ROWS[question][0] for question, _ in batch],
        "answers": [ROWS[question][1] for question, _ in batch],
        "context": [None] * len(batch),
        **more,
    }
    completions = [[{"role": "assistant", "content": text}] for _, text in batch]
    prompts = [[{"role": "user", "content": question}] for question, _ in batch]
    return reward(prompts, completions, completion_ids=[[1]] * len(batch), trainer_state=None, **columns)


@pytest.fixture
def judge(tiny_judge) -> Judge:
    return tiny_judge("llama", seed=4)  # whose answers to one of two questions tell it something clear, blind


def test_selfreflect_reward_is_what_the_empty_summary_loses(judge: Judge) -> None:
    metric = SelfReflect(judge, reader=None)
    expected = []
    for question, text in BATCH:
        masked, conditioning = ROWS[question]
        scores = metric.score(
            question, masked_out=masked, conditioning=conditioning, summaries={"mine": text, "empty": ""}
        )
        share = 1 - scores["mine"].value / scores["empty"].value
        expected.append(100 * max(-1, share) - 0.5 * len(text.split()))
    assert called(SelfReflectReward(judge, length_penalty=0.5), BATCH) == close(expected)


def test_information_reward_is_the_recovered_share(judge: Judge) -> None:
    metric = SelfReflect(judge, reader="blind")
    reward = InformationReward(judge, scale=10, reader="blind")
    expected = []
    for question, text in BATCH:
        masked, conditioning = ROWS[question]
        [score] = metric.score(
            question, masked_out=masked, conditioning=conditioning, summaries=text
        ).values()
        expected.append(None if score.recovered is None else 10 * score.recovered)
    assert called(reward, BATCH) == close(expected)
    assert expected[3:] == [None] * 3
    assert None not in expected[:3]


def test_repeating_the_question_to_a_judge_that_does_not_see_it_earns_nothing(judge: Judge) -> None:
    assert called(InformationReward(judge, reader="blind"), [(PLANT, PLANT)]) == [0.0]


def both(judge: Judge | str, **options: Any) -> list[JudgeReward]:
    return [SelfReflectReward(judge, **options), InformationReward(judge, reader="blind", **options)]


def test_no_failure_wins_a_group(judge: Judge) -> None:
    longest = "plant " * 600
    batch = [(PLANT, text) for text in (*TEXTS, longest, "", " \n", "<think>and on", "word " * 5000)]
    for reward in both(judge, length_penalty=0.1):
        metrics: dict[str, float] = {}
        extra: dict[str, list[str]] = {}
        rewards = called(reward, batch, log_metric=metrics.__setitem__, log_extra=extra.__setitem__)
        assert rewards[4:] == [-150.0] * 4
        assert all(value is not None and value > -150 for value in rewards[:4])
        assert metrics == {f"{reward.__name__}/failed": 0.5, f"{reward.__name__}/undefined": 0.0}
        kinds = ["blank", "blank", "unclosed_reasoning", "too_long"]
        assert extra == {f"{reward.__name__}/failure": [""] * 4 + kinds}


def test_a_budget_takes_the_same_words_under_every_completion(judge: Judge) -> None:
    reward = SelfReflectReward(judge, limits=Limits.parse(900))
    rewards = called(reward, BATCH[:3])
    assert called(reward, [BATCH[2], BATCH[0], BATCH[1]]) == [rewards[2], rewards[0], rewards[1]]
    assert rewards != called(SelfReflectReward(judge), BATCH[:3])


def test_the_judge_never_sees_the_context(judge: Judge) -> None:
    for reward in both(judge):
        assert called(reward, BATCH, context=["The garden is small."] * 6) == called(reward, BATCH)


def test_pickled_rewards_load_their_judge_by_name(judge: Judge) -> None:
    for reward in (*both(judge), *both(judge.name, device="cpu", dtype="float32")):
        data = pickle.dumps(reward)
        assert len(data) < 2000  # no weights
        assert called(pickle.loads(data), BATCH) == close(called(reward, BATCH))


@pytest.mark.parametrize("options", [{"scale": 0}, {"length_penalty": -1}, {"failed": -99}, {"judge": 7}])
def test_settings_that_make_no_sense_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="|".join(options)):
        SelfReflectReward(**options)
