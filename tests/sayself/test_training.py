"""Both stages of training, on a tiny model."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tiny_chat import chatml, save_lm

from selfreflect.errors import DataError
from selfreflect.sayself.presets import PRESETS
from selfreflect.sayself.rewards import StatedConfidenceReward
from selfreflect.train.rewards.base import BatchColumns, Outcome
from selfreflect.train.trainers import RECORD, fine_tune, reinforce

TINY = replace(
    PRESETS["small"].training,
    lora_rank=4,
    epochs=1,
    batch=2,
    micro_batch=2,
    max_length=96,
    steps=2,
    questions=1,
    completions=4,
)


class LongestText(StatedConfidenceReward):
    """A random model states no confidence. So that its completions differ, longer ones are better."""

    def outcomes(self, texts: Any, columns: BatchColumns) -> list[Outcome]:
        super().outcomes(texts, columns)
        return [float(len(str(text))) for text in texts]


def row(number: int, marker: str = "") -> dict[str, Any]:
    return {
        "question_id": str(number),
        "prompt": [{"role": "user", "content": f"Question {number}{marker}?"}],
        "completion": [{"role": "assistant", "content": f"Answer: yes. Confidence: {number}"}],
    }


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return save_lm(tmp_path_factory.mktemp("tiny") / "model", chatml())


def record(folder: Path) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((folder / RECORD).read_text())
    return loaded


def test_both_stages_change_weights(model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The published second stage clips all gradients to 0, so no weight ever moves."""
    first = fine_tune(model, [row(1), row(2), row(3, "<|im_end|>")], tmp_path / "sft", TINY)
    assert record(first)["rows"] == 2  # not the one with a marker of the template
    assert record(first)["metrics"]["change"] > 0
    begun = {
        "question_id": "1",
        "prompt": [*row(1)["prompt"], {"role": "assistant", "content": "Answer: yes. Confidence:"}],
        "correct": True,
    }
    seen: list[str] = []
    called = LongestText.__call__

    def spy(self: Any, prompts: Any, completions: Any, *rest: Any, **columns: Any) -> Any:
        seen.extend(prompts)
        return called(self, prompts, completions, *rest, **columns)

    monkeypatch.setattr(LongestText, "__call__", spy)
    second = reinforce(model, [begun], LongestText(), tmp_path / "rl", TINY, adapter=first)
    assert record(second)["metrics"]["change"] > 0
    assert len(seen) == 8
    assert all(text.endswith("Answer: yes. Confidence:") for text in seen)


def test_a_text_that_closes_its_own_turn_is_not_trained_on(model: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="nothing to train on"):
        fine_tune(model, [row(1, "<|im_end|>")], tmp_path / "sft", TINY)
