"""Buffers that outlive a pass: contiguous, few, and gone at once."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
import torch

from selfreflect.metric.engine import arena as arena_module
from selfreflect.metric.engine.arena import Arena, mapped_empty


def test_a_arena_keeps_contiguous_copies_many_in_one_piece():
    arena = Arena()
    values = [torch.full((4, 3), float(i)).T for i in range(40)]
    kept = [arena.copy(value) for value in values]
    other = arena.copy(torch.ones(2, dtype=torch.bfloat16))
    for value in values:
        value.zero_()
    assert all(
        copy.is_contiguous() and copy.shape == (3, 4) and bool((copy == i).all())
        for i, copy in enumerate(kept)
    )
    assert len({copy.untyped_storage().data_ptr() for copy in kept}) == 3
    assert other.dtype == torch.bfloat16
    assert other.tolist() == [1.0, 1.0]


@pytest.mark.skipif(sys.platform != "linux", reason="resident memory is read from /proc")
def test_what_is_kept_goes_back_to_the_system_at_once():
    def resident() -> int:
        return 1024 * int(
            re.search(r"^Rss:\s+(\d+)", Path("/proc/self/smaps_rollup").read_text(), re.MULTILINE)[1]
        )

    like = torch.empty(5_000_000).fill_(1)
    # once these 20 MB are freed, malloc takes what is smaller from the heap, and keeps what is freed there
    del like
    like = torch.empty(0)
    before = resident()
    held = [mapped_empty((250_000,), like).fill_(1) for _ in range(10)]
    assert resident() - before > 9_000_000
    held.clear()
    assert resident() - before < 3_000_000


def test_room_that_cannot_be_mapped_is_tensors_like_others(monkeypatch):
    def full(*args: object, **kwargs: object) -> None:
        raise OSError(12, "Cannot allocate memory")

    monkeypatch.setattr(arena_module.mmap, "mmap", full)
    assert mapped_empty((2, 3), torch.empty(1, dtype=torch.float64)).shape == (2, 3)
    assert mapped_empty((0, 3), torch.empty(1)).shape == (0, 3)
