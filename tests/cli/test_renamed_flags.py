"""Flags, steps and settings of earlier releases are refused, with what to do instead."""

from __future__ import annotations

from pathlib import Path

import pytest
from command import run, written


@pytest.mark.parametrize(
    ("command", "advice"),
    [
        ("run --se 0.002", "--budget"),
        ("score --race=0.95", "--budget"),
        ("bench --no-scaling", "--items"),
        ("questions --part=1/32", "--shard"),
        ("convert file.csv --split ;", "--separator"),
        ("run --engine ray --out r", "--executor"),
        ("sayself eval --out r", "sayself run"),
        ("sayself run --measured 3", "--strategies sayself"),
    ],
)
def test_a_flag_that_has_gone_says_what_to_do_instead(command: str, advice: str) -> None:
    outcome = run(*command.split())
    assert outcome.code == 2
    assert "is no longer " in outcome.said
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
