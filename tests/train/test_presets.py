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


def arguments_of(stage: str, preset: TrainingPreset, seed: int = 3) -> dict[str, Any]:
    if stage == "grpo":
        return reinforcement_arguments(preset, Path("out"), seed, "batch")
    return STAGES[stage](preset, Path("out"), seed)
