"""Data sets as TRL's trainers take them: loaded from the folder, with all columns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import tiny
from command import run
from learnable_run import write_learnable

TEXTS = {
    "basic#1": ("Paris or Lyon, maybe.", [8.0, 7.0, 8.0, 6.0, 7.0]),
    "basic#2": ("It is not Rome.", [1.0, 2.0, 1.0, 2.0, 1.0]),
}


@pytest.mark.slow  # test_dataset.py proves by default that the rows load, and which columns they have
@pytest.mark.parametrize("kind", ["sft", "dpo", "hedge"])
def test_a_trainer_takes_a_data_set_as_it_is(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_DISABLE_TELEMETRY", "1")
    from datasets import load_dataset
    from trl import DPOConfig, DPOTrainer, SFTConfig, SFTTrainer

    questions = {f"q{number}": f"Which city is number {number}?" for number in range(12)}
    path = write_learnable(tmp_path / "run", TEXTS, questions=questions)
    outcome = run("dataset", kind, path, "--output", tmp_path / "set")
    assert outcome.code == 0, outcome.stderr
    data = load_dataset(str(tmp_path / "set"), split="train", cache_dir=str(tmp_path / "cache"))
    settings: dict[str, Any] = {
        "output_dir": str(tmp_path / "trainer"),
        "use_cpu": True,
        "bf16": False,
        "gradient_checkpointing": False,
        "report_to": [],
        "save_strategy": "no",
        "max_steps": 1,
        "per_device_train_batch_size": 2,
        "max_length": 1500,
    }
    model = str(tiny.save(tmp_path / "model", "llama"))
    trainer: Any
    if kind == "dpo":
        trainer = DPOTrainer(model, args=DPOConfig(**settings), train_dataset=data)
    else:
        trainer = SFTTrainer(model, args=SFTConfig(**settings), train_dataset=data)
    trainer.train()
    [loss] = [entry["train_loss"] for entry in trainer.state.log_history if "train_loss" in entry]
    assert loss > 0
