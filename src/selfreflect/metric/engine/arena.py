"""Tensors that outlive the layer or the pass that made them, where they are in nobody's way.

On a CPU large tensors come and go on the heap with every layer. What stays there among them takes a corner of
the space that they leave behind, so that those of the next layer do not fit and the heap grows: with SmolLM2
such space came to as much as twice what was in use. So what stays is copied into memory of its own, which
goes back to the system with the tensor. A GPU has torch's own allocator for that.
"""

from __future__ import annotations

import math
import mmap
from collections.abc import Sequence
from contextlib import suppress

import torch

TOGETHER = 16
"""Copies of a shape that share a mapping: with one each there would be thousands in a long pass of a deep
model."""


class Arena:
    """Keeps copies. A mapping lives as long as any of the copies in it, so what lies on one shelf should go
    at about the same time."""

    def __init__(self) -> None:
        self._empty: dict[tuple[torch.Size, torch.dtype, torch.device], list[torch.Tensor]] = {}

    def put(self, values: torch.Tensor) -> torch.Tensor:
        """A contiguous copy."""
        empty = self._empty.setdefault((values.shape, values.dtype, values.device), [])
        if not empty:
            empty += room((TOGETHER if _mapped(values) else 1, *values.shape), values).unbind()
        return empty.pop().copy_(values)


def room(shape: Sequence[int], like: torch.Tensor) -> torch.Tensor:
    """A tensor to be filled, of the type of ``like`` and on its device."""
    if _mapped(like) and (size := math.prod(shape) * like.element_size()):
        with suppress(OSError):  # too many mappings, or no memory: torch says which
            # Private, since shared memory, the default, is what containers give little of.
            memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
            return torch.frombuffer(memory, dtype=like.dtype).view(*shape)
    return like.new_empty(*shape)


def _mapped(values: torch.Tensor) -> bool:
    return values.device == torch.device("cpu") and hasattr(mmap, "MAP_ANONYMOUS")
