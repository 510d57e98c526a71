"""mmap-backed buffers for tensors that outlive a layer or a pass, to avoid heap fragmentation on a CPU.

Among the large tensors that every layer makes and frees, those that stay let the heap grow: with SmolLM2 up
to twice what was in use. On a GPU torch's allocator takes care of that.
"""

from __future__ import annotations

import math
import mmap
from collections.abc import Sequence
from contextlib import suppress

import torch

COPIES_PER_MAPPING = 16
"""With one mapping per copy there would be thousands in a long pass of a deep model."""


class Arena:
    """Keeps contiguous copies of tensors that die at about the same time: a mapping outlives them all."""

    def __init__(self) -> None:
        self._free: dict[tuple[torch.Size, torch.dtype, torch.device], list[torch.Tensor]] = {}

    def copy(self, values: torch.Tensor) -> torch.Tensor:
        free = self._free.setdefault((values.shape, values.dtype, values.device), [])
        if not free:
            count = COPIES_PER_MAPPING if _is_mapped(values) else 1
            free += mapped_empty((count, *values.shape), values).unbind()
        return free.pop().copy_(values)


def mapped_empty(shape: Sequence[int], like: torch.Tensor) -> torch.Tensor:
    """An uninitialised tensor with the dtype and device of ``like``."""
    size = math.prod(shape) * like.element_size()
    if size and _is_mapped(like):
        with suppress(OSError):  # too many mappings, or no memory: torch says which
            # Private: shared memory, the default, is scarce in containers.
            memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
            return torch.frombuffer(memory, dtype=like.dtype).view(*shape)
    return like.new_empty(*shape)


def _is_mapped(values: torch.Tensor) -> bool:
    return values.device == torch.device("cpu") and hasattr(mmap, "MAP_ANONYMOUS")
