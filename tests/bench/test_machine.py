"""The highest memory of a piece of work."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from selfreflect.bench import machine

CPU = torch.device("cpu")
MIB = 2**20

pytestmark = pytest.mark.usefixtures("small_heap")


def peak_above(mebibytes: int) -> float:
    before = machine.allocated(CPU)
    assert machine.reset_peak(CPU)
    block = torch.ones(mebibytes * MIB // 4)
    del block
    return (machine.peak(CPU) - before) / MIB


def test_it_sees_what_was_freed_again_and_forgets_it_for_the_next() -> None:
    assert 190 < peak_above(200) < 300
    assert peak_above(20) < 120


def test_where_the_peak_cannot_be_reset_it_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(machine, "_RESET", tmp_path / "absent" / "clear_refs")
    assert not machine.reset_peak(CPU)
    assert machine.allocated(CPU) > 10 * MIB
