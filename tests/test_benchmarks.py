"""The scripts of ``benchmarks/``, whose commands stand beside published figures, load."""

from __future__ import annotations

from pathlib import Path

import pytest
from script import load_benchmark

SCRIPTS = sorted(path.stem for path in (Path(__file__).parents[1] / "benchmarks").glob("*.py"))
FOREIGN = {"claims_uqlm", "one_call_peers"}
"""Compare with packages that are not installed here."""


@pytest.mark.parametrize("name", [name for name in SCRIPTS if name not in FOREIGN])
def test_every_script_finds_what_it_names(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for folder in ("benchmarks", "tests/support"):
        monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / folder))
    assert load_benchmark(name).__doc__
