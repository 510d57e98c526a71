"""Settings of trainers, and what an adapter was trained on."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from selfreflect.errors import ConfigError
from selfreflect.train.rewards.base import Reward
from selfreflect.train.trainers import (
    PRESETS,
    RECORD,
    TrainingPreset,
    changes,
    divided,
    preference_arguments,
    reinforcement_arguments,
    supervised_arguments,
    training_input,
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


PRESET = PRESETS["cpu"]
ROWS = [{"prompt": "a", "correct": True}]


def test_rows_settings_and_the_adapter_before_are_compared(tmp_path: Path) -> None:
    (tmp_path / RECORD).write_text("{}")
    before = training_input(ROWS, PRESET, tmp_path)
    assert changes({}, before) == []  # nothing is known of an adapter of an earlier version
    same = training_input([{"correct": True, "prompt": "a"}], replace(PRESET, save_steps=3), tmp_path)
    assert changes(before, same) == []
    (tmp_path / RECORD).write_text("{ }")
    other = [{"prompt": "a", "correct": False}, *ROWS]
    now = training_input(other, replace(PRESET, model="larger", steps=3), tmp_path)
    rows, start, *settings = changes(before, now)
    assert re.fullmatch(r"rows \(1, \w+ then, 2, \w+ now\)", rows)
    assert start.startswith("start (")
    assert settings == ["model (smollm2 then, larger now)", "steps (40 then, 3 now)"]


class Named(Reward):
    criterion = "named by exact"  # type: ignore[assignment]
    worst = 0.0
