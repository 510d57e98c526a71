"""The scripts of ``benchmarks/``, whose commands stand beside published figures, load and run."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from script import load_benchmark

SCRIPTS = sorted(path.stem for path in (Path(__file__).parents[1] / "benchmarks").glob("*.py"))


@pytest.mark.parametrize("name", SCRIPTS)
def test_every_script_finds_what_it_names(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "benchmarks"))
    assert load_benchmark(name).__doc__


@pytest.mark.parametrize("arguments", [[], ["--measures", "selfreflect", "--budget", "0.2"]])
def test_the_order_of_summaries_is_measured(
    arguments: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    item: dict[str, Any] = {
        "question": "Who wrote the novel?",
        "answers": ["Jane Austen.", "Mary Shelley."] * 2,
        "summaries": {"good": "Jane Austen or Mary Shelley.", "bad": "A tall tree."},
    }
    file = tmp_path / "items.json"
    file.write_text(json.dumps([item]), encoding="utf-8")
    monkeypatch.setattr(sys, "argv", ["information.py", str(file), "--num-answers", "2", *arguments])
    load_benchmark("information").main()
    assert "| good > bad | " in capsys.readouterr().out
