"""The scripts of ``benchmarks/``, whose commands stand beside published figures, load."""

from __future__ import annotations

from pathlib import Path

import pytest
from script import load_benchmark

SCRIPTS = sorted(path.stem for path in (Path(__file__).parents[1] / "benchmarks").glob("*.py"))


@pytest.mark.parametrize("name", SCRIPTS)
def test_every_script_finds_what_it_names(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "benchmarks"))
    assert load_benchmark(name).__doc__
