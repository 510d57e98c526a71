"""What of a training is kept beside its adapter, and which changes are seen."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from selfreflect.errors import DataError
from selfreflect.train.rewards.base import Reward
from selfreflect.train.trainers import INPUT, PRESETS, RECORD, changes, read_input, training_input

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


@pytest.mark.parametrize("text", ["{", "3", "[1]"])
def test_a_damaged_file_is_named(tmp_path: Path, text: str) -> None:
    assert read_input(tmp_path) == {}
    (tmp_path / INPUT).write_text(text)
    with pytest.raises(DataError, match="to train anew"):
        read_input(tmp_path)


class Named(Reward):
    criterion = "named by exact"  # type: ignore[assignment]
    worst = 0.0
