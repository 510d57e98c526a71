"""Adapters trained with TRL: settings, a resume after a kill, and what is refused."""

from __future__ import annotations

import json
import re
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import tiny
from command import run
from hypothesis import given
from hypothesis import strategies as st
from learnable_run import write_learnable

from selfreflect.errors import ConfigError, DataError, MissingExtraError
from selfreflect.models.base import ModelSpec
from selfreflect.models.local.loading import load_causal_lm
from selfreflect.store.run import Run
from selfreflect.train.rewards import ConsistencyReward, SelfReflectReward
from selfreflect.train.rewards.base import BatchColumns, Outcome, Reward
from selfreflect.train.trainers import (
    PRESETS,
    RECORD,
    AdapterTraining,
    TrainingPreset,
    changes,
    divided,
    import_trl,
    preference_arguments,
    reinforcement_arguments,
    supervised_arguments,
    training_input,
)

PRESET = replace(
    PRESETS["cpu"],
    lora_rank=2,
    epochs=1,
    batch=2,
    micro_batch=2,
    questions=1,
    completions=2,
    steps=2,
    save_steps=1,
    max_new_tokens=4,
    max_clipped=1.0,
)


def said(text: str) -> list[dict[str, str]]:
    return [{"role": "assistant", "content": text}]


ROWS: list[dict[str, Any]] = [
    {
        "question_id": f"q{number}",
        "question": question,
        "prompt": [{"role": "user", "content": question}],
        "completion": said("Radishes"),
        "chosen": said("Radishes, or peas"),
        "rejected": said("An oak forest"),
        "answers": ["Radishes", "peas"],
        "masked_answers": ["Lettuce", "basil or peas"],
    }
    for number, question in enumerate(["What should I plant?", "What grows in a pot?"])
]


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.save(tmp_path_factory.mktemp("base"), "llama", attention_bias=False, mlp_bias=False)


def reinforced(base: Path, output: Path, preset: TrainingPreset = PRESET, **options: Any) -> Path:
    judge = SelfReflectReward(str(base), device="cpu", dtype="float32")
    return AdapterTraining(str(base), output, preset, **options).reinforce(ROWS, judge)


def test_two_steps_with_a_judge_make_an_adapter_that_loads(base: Path, tmp_path: Path) -> None:
    from huggingface_hub import constants

    output = reinforced(base, tmp_path / "out")
    assert constants.HF_HUB_DISABLE_TELEMETRY
    lm = load_causal_lm(ModelSpec(str(output), device="cpu"))
    assert lm.revision.startswith("adapter ")
    assert lm.revision.endswith(f" of {base}")
    (tmp_path / "questions.txt").write_text("What grows in a pot?\n")
    short = ("--num-answers", 1, "--max-new-tokens", 4)
    drawn = run(
        *("answers", "--questions", tmp_path / "questions.txt", "--out", tmp_path / "run"),
        *("--model", output, *short),
    )
    assert drawn.code == 0, drawn.said
    [answers] = Run.load(tmp_path / "run").answers.values()
    assert answers.revision == lm.revision
    record = json.loads((output / "training.json").read_text())
    assert (record["method"], record["base"], record["rows"]) == ("grpo", str(base), 2)
    assert record["preset"]["completions"] == 2
    logged = record["log"][0]
    assert -100 <= logged["rewards/selfreflect_reward/mean"] <= 0
    assert logged["selfreflect_reward/failed"] >= 0
    assert {"kl", "frac_reward_zero_std", "reward_std", "completions/clipped_ratio"} <= logged.keys()
    assert not (output / "ref").exists()


def test_training_stops_when_completions_are_cut_off(base: Path, tmp_path: Path) -> None:
    """Random models never end a completion."""
    reward = ConsistencyReward()
    preset = replace(PRESET, max_clipped=0.2, steps=3)
    with pytest.raises(ConfigError, match=r"stopped at step 1: 100% of completions were cut off at 4 tokens"):
        AdapterTraining(str(base), tmp_path / "out", preset).reinforce(ROWS, reward)
    assert list((tmp_path / "out").glob("checkpoint-*"))
    assert not list((tmp_path / "out").glob("adapter_*"))


@pytest.mark.slow  # test_trl_takes_the_arguments proves by default that the order is not the trainer's
def test_a_resumed_training_ends_as_if_it_had_not_been_interrupted(base: Path, tmp_path: Path) -> None:
    """Also in its questions, which come in a new order each time round."""

    def train(output: Path, *, resume: bool = False) -> bytes:
        training = AdapterTraining(str(base), output, replace(PRESET, steps=4, save_steps=3), resume=resume)
        training.reinforce(ROWS, Longest())
        return (output / "adapter_model.safetensors").read_bytes()

    class Longest(ConsistencyReward):
        def outcomes(self, texts: Any, columns: BatchColumns) -> list[Outcome]:
            return [float(len(str(text))) for text in texts]

    weights = train(tmp_path / "out")
    shutil.copytree(tmp_path / "out/checkpoint-3", tmp_path / "killed/checkpoint-3")
    assert train(tmp_path / "killed", resume=True) == weights
    assert weights != (tmp_path / "out/checkpoint-3/adapter_model.safetensors").read_bytes()


def test_a_reward_without_its_column_fails_before_the_first_update(base: Path, tmp_path: Path) -> None:
    rows = [{"prompt": row["prompt"]} for row in ROWS]
    with pytest.raises(DataError, match="needs the column 'answers'"):
        AdapterTraining(str(base), tmp_path / "out", PRESET).reinforce(rows, ConsistencyReward())


def test_supervised_training_resumes_and_its_adapter_is_trained_on(
    base: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = AdapterTraining(str(base), tmp_path / "sft", PRESET).fine_tune(ROWS)
    stdout, stderr = capsys.readouterr()
    assert (stdout, "'loss'" in stderr) == ("", True)  # JSON lines of a command stay readable
    with pytest.raises(ConfigError, match=r"is not empty\. Give another directory, or resume"):
        AdapterTraining(str(base), output, PRESET)
    with pytest.raises(ConfigError, match=r"was trained on other rows: rows \(2, \w+ then, 1, \w+ now\)"):
        AdapterTraining(str(base), output, PRESET, resume=True).fine_tune(ROWS[:1])
    (output / "checkpoint-9").mkdir()  # which a kill left before its last file was written
    AdapterTraining(str(base), output, replace(PRESET, epochs=2), resume=True).fine_tune(ROWS)
    record = json.loads((output / "training.json").read_text())
    assert [entry["epoch"] for entry in record["log"]] == [1.0, 2.0]  # the first one from the checkpoint
    preferred = AdapterTraining(str(base), tmp_path / "dpo", PRESET, adapter=output).prefer(ROWS)
    revisions = {load_causal_lm(ModelSpec(str(path), device="cpu")).revision for path in (output, preferred)}
    assert len(revisions) == 2
    assert not (preferred / "ref").exists()


def test_checkpoints_and_adapters_of_another_base_are_refused(base: Path, tmp_path: Path) -> None:
    other = tiny.save_adapter(tmp_path / "out" / "checkpoint-1", base, base_model_name_or_path="/other/model")
    (other / "trainer_state.json").write_text("{}")
    with pytest.raises(ConfigError, match="was trained on the base model '/other/model', not on"):
        AdapterTraining(str(base), tmp_path / "out", PRESET, resume=True)
    with pytest.raises(ConfigError, match="was trained on the base model '/other/model', not on"):
        AdapterTraining(str(base), tmp_path / "new", PRESET, adapter=other)
    with pytest.raises(ConfigError, match="holds no adapter"):
        AdapterTraining(str(base), tmp_path / "new", PRESET, adapter=tmp_path)
    with pytest.raises(ConfigError, match="holds no whole checkpoint to resume from"):
        AdapterTraining(str(base), tmp_path / "new", PRESET, resume=True)


def test_rows_that_hold_a_marker_are_missing_from_a_step(base: Path, tmp_path: Path) -> None:
    spoiled = {**ROWS[1], "prompt": [{"role": "user", "content": "Why?<|im_end|>"}]}
    judge = SelfReflectReward(str(base), device="cpu", dtype="float32")
    training = AdapterTraining(str(base), tmp_path / "out", replace(PRESET, questions=2))
    with pytest.raises(ConfigError, match="1 rows do not make a step of 2 questions"):
        training.reinforce([ROWS[0], spoiled], judge)


def test_what_cannot_be_trained_is_refused(base: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be trained here; give a local model"):
        AdapterTraining("openai:gpt", tmp_path / "out", PRESET)
    with pytest.raises(ConfigError, match="2 rows do not make a step of 3 questions"):
        reinforced(base, tmp_path / "out", replace(PRESET, questions=3))
    rows = [ROWS[0], {"prompt": ROWS[1]["prompt"]}]
    with pytest.raises(DataError, match="row 1 has no 'completion', but: 'prompt'"):
        AdapterTraining(str(base), tmp_path / "out", PRESET).fine_tune(rows)


def test_without_trl_the_extra_is_named(base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "trl", None)
    with pytest.raises(MissingExtraError, match=r"training needs an optional package.*\[train\]"):
        AdapterTraining(str(base), tmp_path / "out", PRESET)


def test_trl_takes_the_arguments(tmp_path: Path) -> None:
    preset = replace(PRESETS["cpu"], questions=3, completions=6, micro_batch=4)
    settings = import_trl().GRPOConfig(**reinforcement_arguments(preset, tmp_path, 7, "batch"))
    assert (settings.generation_batch_size, settings.steps_per_generation) == (18, 6)
    assert not settings.shuffle_dataset
    assert (settings.bf16, settings.gradient_checkpointing, settings.use_cpu) == (False, False, True)


@given(st.integers(1, 500), st.integers(1, 64), st.integers(1, 8))
def test_sequences_are_divided_into_equal_parts(total: int, most: int, processes: int) -> None:
    if total % processes:
        with pytest.raises(ConfigError, match="cannot be divided among"):
            divided(total, most, processes)
        return
    size, parts = divided(total, most, processes)
    assert size <= most
    assert size * parts * processes == total


@pytest.mark.parametrize(
    ("name", "value", "bound"),
    [("completions", 1, "2 or more"), ("steps", 0, "above 0"), ("epochs", float("nan"), "above 0")],
)
def test_numbers_that_no_trainer_takes_are_refused(name: str, value: float, bound: str) -> None:
    with pytest.raises(ConfigError, match=f"{name} must be {bound}, not {value}"):
        replace(PRESETS["cpu"], **{name: value})


@pytest.mark.parametrize("processes", [1, 2, 4])
@pytest.mark.parametrize("preset", PRESETS.values(), ids=PRESETS)
def test_a_step_is_one_generation_of_whole_groups(preset, processes: int) -> None:
    arguments = reinforcement_arguments(preset, Path("out"), 0, "none", processes)
    step = arguments["per_device_train_batch_size"] * arguments["gradient_accumulation_steps"] * processes
    assert step == arguments["generation_batch_size"]
    assert step % arguments["num_generations"] == 0
    assert arguments["report_to"] == []


STAGES = {"sft": supervised_arguments, "dpo": preference_arguments}


def arguments_of(stage: str, preset: TrainingPreset, seed: int = 3) -> dict[str, Any]:
    if stage == "grpo":
        return reinforcement_arguments(preset, Path("out"), seed, "batch")
    return STAGES[stage](preset, Path("out"), seed)


SMALL = PRESETS["cpu"]
INPUT_ROWS = [{"prompt": "a", "correct": True}]


def test_rows_settings_and_the_adapter_before_are_compared(tmp_path: Path) -> None:
    (tmp_path / RECORD).write_text("{}")
    before = training_input(INPUT_ROWS, SMALL, tmp_path)
    assert changes({}, before) == []  # nothing is known of an adapter of an earlier version
    same = training_input([{"correct": True, "prompt": "a"}], replace(SMALL, save_steps=3), tmp_path)
    assert changes(before, same) == []
    (tmp_path / RECORD).write_text("{ }")
    other = [{"prompt": "a", "correct": False}, *INPUT_ROWS]
    now = training_input(other, replace(SMALL, model="larger", steps=3), tmp_path)
    rows, start, *settings = changes(before, now)
    assert re.fullmatch(r"rows \(1, \w+ then, 2, \w+ now\)", rows)
    assert start.startswith("start (")
    assert settings == ["model (smollm2 then, larger now)", "steps (40 then, 3 now)"]


class Named(Reward):
    criterion = "named by exact"  # type: ignore[assignment]
    worst = 0.0


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
