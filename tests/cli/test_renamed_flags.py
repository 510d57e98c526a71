"""Flags of an earlier release work for one more, with a hint, or name the flag that took their place."""

from __future__ import annotations

from pathlib import Path

import pytest
from command import run, written


@pytest.mark.parametrize("old", [["--part", "1/32"], ["--part=1/32"]])
def test_a_former_name_works_with_a_hint(old: list[str]) -> None:
    outcome = run("questions", *old)
    assert outcome.code == 0
    assert "--part is now called --shard" in outcome.said
    assert outcome.stdout == run("questions", "--shard", "1/32").stdout
    assert "now called" not in run("questions", "--shard", "1/32").said


def test_a_separator_by_its_former_name(tmp_path: Path) -> None:
    path = written(tmp_path / "a.csv", "question,answer\nWhat first?,Radishes; Lettuce\n")
    former, present = (run("convert", path, flag, ";") for flag in ("--split", "--separator"))
    assert former.code == present.code == 0
    assert "--split is now called --separator" in former.said
    assert former.stdout == present.stdout


def test_an_executor_by_its_former_name(tmp_path: Path) -> None:
    outcome = run("run", "--engine", "rai", "--out", tmp_path / "r")
    assert outcome.code == 2
    assert "--engine is now called --executor" in outcome.said
    assert "Invalid value for '--executor': 'rai' is not one of 'local', 'ray'." in outcome.said


@pytest.mark.parametrize(
    ("command", "advice"),
    [
        ("run --se 0.002", "--budget"),
        ("score --race=0.95", "--budget"),
        ("bench --no-scaling", "--items"),
    ],
)
def test_a_flag_that_has_gone_says_what_to_do_instead(command: str, advice: str) -> None:
    outcome = run(*command.split())
    assert outcome.code == 2
    assert "is no longer an option" in outcome.said
    assert advice in outcome.said


@pytest.mark.parametrize(("section", "line", "advice"), [("scores", "race = 0.95", "--budget")])
def test_a_setting_that_has_gone_says_what_to_do_instead(
    section: str, line: str, advice: str, tmp_path: Path
) -> None:
    file = written(tmp_path / "c.toml", f"[{section}]\n{line}\n")
    outcome = run("run", "--out", tmp_path / "r", "--config", file)
    assert outcome.code == 2
    assert f"{line.split()[0]} in [{section}] is no longer a setting" in outcome.said
    assert advice in outcome.said
