"""Presets are TRL's arguments; `test_trainers` gives them to TRL."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from selfreflect.errors import ConfigError
from selfreflect.train.trainers import (
    PRESETS,
    TrainingPreset,
    divided,
    preference_arguments,
    reinforcement_arguments,
    supervised_arguments,
)


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


@pytest.mark.parametrize(
    ("stage", "setting", "value", "argument"),
    [
        ("sft", "supervised_rate", 0.5, "learning_rate"),
        ("sft", "warmup", 0.25, "warmup_steps"),
        ("sft", "epochs", 7, "num_train_epochs"),
        ("sft", "max_length", 99, "max_length"),
        ("sft", "save_steps", 9, "save_steps"),
        ("sft", "logging_steps", 9, "logging_steps"),
        ("dpo", "preference_rate", 0.5, "learning_rate"),
        ("dpo", "preference_beta", 0.5, "beta"),
        ("dpo", "epochs", 7, "num_train_epochs"),
        ("grpo", "reinforcement_rate", 0.5, "learning_rate"),
        ("grpo", "steps", 9, "max_steps"),
        ("grpo", "max_new_tokens", 9, "max_completion_length"),
        ("grpo", "kl", 0.5, "beta"),
        ("grpo", "temperature", 0.5, "temperature"),
        ("grpo", "top_k", 5, "top_k"),
    ],
)
def test_each_setting_is_one_argument_of_its_stage(
    stage: str, setting: str, value: float, argument: str
) -> None:
    preset = PRESETS["cpu"]
    before, after = (arguments_of(stage, one) for one in (preset, replace(preset, **{setting: value})))
    assert {name for name in after if after[name] != before[name]} == {argument}
    assert after[argument] == value


def arguments_of(stage: str, preset: TrainingPreset, seed: int = 3) -> dict[str, Any]:
    if stage == "grpo":
        return reinforcement_arguments(preset, Path("out"), seed, "batch")
    return STAGES[stage](preset, Path("out"), seed)


@pytest.mark.parametrize("stage", ["sft", "dpo", "grpo"])
def test_all_stages_write_here_and_nowhere_else(stage: str) -> None:
    cpu, gpu = (arguments_of(stage, PRESETS[name]) for name in ("cpu", "gpu"))
    assert (cpu["output_dir"], cpu["seed"], cpu["report_to"], cpu["save_total_limit"]) == ("out", 3, [], 2)
    assert (cpu["use_cpu"], cpu["bf16"], cpu["gradient_checkpointing"]) == (True, False, False)
    assert (gpu["use_cpu"], gpu["bf16"], gpu["gradient_checkpointing"]) == (False, True, True)


def test_rows_of_a_step_are_those_of_the_batch() -> None:
    for batch, micro in ((8, 8), (8, 4), (6, 4), (1, 8)):
        preset = replace(PRESETS["cpu"], batch=batch, micro_batch=micro)
        for stage in STAGES:
            arguments = arguments_of(stage, preset)
            size = arguments["per_device_train_batch_size"]
            assert size <= micro
            assert size * arguments["gradient_accumulation_steps"] == batch


def test_the_reward_says_how_its_differences_are_scaled() -> None:
    arguments = arguments_of("grpo", PRESETS["cpu"])
    assert arguments["scale_rewards"] == "batch"
    assert arguments["shuffle_dataset"] is False
    assert (arguments["num_generations"], arguments["generation_batch_size"]) == (8, 32)


@pytest.mark.parametrize("name", ["lora_dropout", "warmup", "preference_beta", "kl", "max_clipped", "top_k"])
def test_what_may_be_off_may_be_0(name: str) -> None:
    assert getattr(replace(PRESETS["cpu"], **{name: 0}), name) == 0
    with pytest.raises(ConfigError, match=f"{name} must be 0 or more, not -1"):
        replace(PRESETS["cpu"], **{name: -1})
    with pytest.raises(ConfigError, match=f"{name} must be 0 or more, not inf"):
        replace(PRESETS["cpu"], **{name: float("inf")})
