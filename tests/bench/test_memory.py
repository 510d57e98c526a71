"""The highest memory of a piece of work."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from selfreflect.bench import memory

CPU = torch.device("cpu")
MIB = 2**20

pytestmark = pytest.mark.usefixtures("small_heap")


def peak_above(mebibytes: int) -> float:
    before = memory.allocated(CPU)
    with memory.watch(CPU) as found:
        block = torch.ones(mebibytes * MIB // 4)
        for _ in range(20):  # long enough for one that looks now and then
            block.mul_(1.0)
        del block
    assert before is not None
    assert found.peak is not None
    return (found.peak - before) / MIB


def test_it_sees_what_was_freed_again_and_forgets_it_for_the_next() -> None:
    assert 190 < peak_above(200) < 300
    assert peak_above(20) < 120


def test_without_a_resettable_mark_it_looks_now_and_then(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(memory, "_RESET", tmp_path / "absent" / "clear_refs")
    assert 190 < peak_above(200) < 300


def test_a_system_that_does_not_tell_gives_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(memory, "_RESET", tmp_path / "absent" / "clear_refs")
    monkeypatch.setattr(memory, "_STATUS", tmp_path / "absent")
    with memory.watch(CPU) as found:
        pass
    assert (memory.allocated(CPU), found.peak) == (None, None)


@pytest.mark.parametrize(
    ("limit", "used", "left"), [("max", 0, 8000), (f"{5 * MIB}", 3 * MIB, 2048), (f"{MIB}", 2 * MIB, 0)]
)
def test_what_can_be_had_is_the_machine_s_or_the_group_s(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, limit: str, used: int, left: int
) -> None:
    (tmp_path / "meminfo").write_text("MemTotal: 9000 kB\nMemFree: 1 kB\nMemAvailable: 8000 kB\n")
    (tmp_path / "memory.max").write_text(limit + "\n")
    (tmp_path / "memory.current").write_text(f"{used + MIB}\n")
    # of which a MiB can be had back
    (tmp_path / "memory.stat").write_text(f"anon {used}\ninactive_file {MIB}\nactive_file 5\n")
    monkeypatch.setattr(memory, "_MACHINE", tmp_path / "meminfo")
    monkeypatch.setattr(memory, "_GROUP", tmp_path)
    assert memory.available(CPU) == left * 1024


def test_a_system_without_either_is_asked_for_its_size(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(memory, "_MACHINE", tmp_path / "absent")
    monkeypatch.setattr(memory, "_GROUP", tmp_path)
    assert memory.available(CPU) > 100 * MIB
