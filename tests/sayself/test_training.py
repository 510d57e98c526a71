"""Both stages of training by TRL, on a tiny model."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tiny_chat import chatml, save_lm

from selfreflect.errors import ConfigError, DataError
from selfreflect.sayself.presets import PRESETS
from selfreflect.sayself.rewards import StatedConfidenceReward
from selfreflect.sayself.training import fine_tune, reinforce

TINY = replace(
    PRESETS["small"],
    lora_r=4,
    epochs=2,
    batch_size=2,
    micro_batch=2,
    max_length=96,
    rl_steps=2,
    rl_questions=1,
    group_size=4,
)


def row(number: int, marker: str = "") -> dict[str, object]:
    return {
        "question_id": str(number),
        "prompt": [{"role": "user", "content": f"Question {number}{marker}?"}],
        "completion": [{"role": "assistant", "content": f"Answer: yes. Confidence: {number}"}],
    }


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_lm(tmp_path_factory.mktemp("tiny") / "model", chatml())


def test_both_stages_change_weights_and_a_finished_one_can_be_continued(model: Path, tmp_path: Path) -> None:
    """The published second stage clips all gradients to 0, so no weight ever moves."""
    seen: list[tuple[int, int]] = []
    first = fine_tune(
        str(model), [row(1), row(2)], tmp_path / "sft", TINY, progress=lambda *steps: seen.append(steps)
    )
    assert first.steps == 2
    assert first.change > 0
    assert seen == [(1, 2), (2, 2)]
    begun = [
        {
            "question_id": "1",
            "prompt": [*row(1)["prompt"], {"role": "assistant", "content": "Answer: yes. Confidence:"}],  # type: ignore[misc]
            "correct": True,
        }
    ]
    reward = StatedConfidenceReward()
    calls: list[int] = []

    def counting(completions: list[str], **columns: object) -> list[float]:
        calls.append(len(completions))
        reward(completions, **columns)
        return [float(len(text)) for text in completions]  # so that a random model's completions differ

    counting.label = None  # type: ignore[attr-defined]
    second = reinforce(
        str(model),
        first.adapter,
        begun,
        counting,  # type: ignore[arg-type]
        tmp_path / "rl",
        TINY,
    )
    assert second.steps == 2
    assert second.change > 0
    assert calls == [4, 4]
    with pytest.raises(ConfigError, match="was trained on"):
        reinforce("elsewhere", first.adapter, begun, reward, tmp_path / "other", TINY)


def test_texts_with_markers_of_the_template_are_left_out(model: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="nothing to train on"):
        fine_tune(str(model), [row(1, "<|im_end|>")], tmp_path / "sft", TINY)
