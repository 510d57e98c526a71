"""The highest memory of a piece of work."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
import torch

from selfreflect import bench
from selfreflect.models.local.machine import free_memory

CPU = torch.device("cpu")
MIB = 2**20

pytestmark = pytest.mark.usefixtures("small_heap")


def peak_above(mebibytes: int) -> float:
    before = bench.allocated(CPU)
    assert bench.reset_peak(CPU)
    block = torch.ones(mebibytes * MIB // 4)
    del block
    return (bench.peak(CPU) - before) / MIB


def test_it_sees_what_was_freed_again_and_forgets_it_for_the_next() -> None:
    assert 190 < peak_above(200) < 300
    assert peak_above(20) < 120


def test_where_the_peak_cannot_be_reset_it_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(bench, "_RESET", tmp_path / "absent" / "clear_refs")
    assert not bench.reset_peak(CPU)
    assert bench.allocated(CPU) > 10 * MIB


@pytest.mark.parametrize(
    ("limit", "used", "left"),
    [("max", 0, 8000 * 1024), (f"{5 * MIB}", 3 * MIB, 2 * MIB), (f"{MIB}", 2 * MIB, 0)],
)
def test_available_memory_is_the_machine_s_or_the_container_s(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, limit: str, used: int, left: int
) -> None:
    (tmp_path / "memory.max").write_text(limit + "\n")
    (tmp_path / "memory.current").write_text(f"{used + MIB}\n")
    # of which a MiB is reclaimable
    (tmp_path / "memory.stat").write_text(f"anon {used}\ninactive_file {MIB}\nactive_file 5\n")
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=8000 * 1024))
    monkeypatch.setattr("selfreflect.models.local.machine._CONTROL_GROUP", tmp_path)
    assert free_memory() == left
