"""Tensors that outlive the layer or the pass that made them, where they are in nobody's way.

On a CPU large tensors come and go on the heap with every layer. What stays there among them takes a corner of the space that they leave
behind, so that those of the next layer do not fit and the heap grows: after thirty layers most of it was such space, several times what was
in use, and more with every question. So what stays is copied into memory of its own, which goes back to the system with the tensor. A GPU
has torch's own allocator for that.
"""

from __future__ import annotations

import mmap

import torch

TOGETHER = 16
"""Copies of a shape that share a piece of memory: each in a mapping of its own would be thousands in a long pass of a deep model."""


class Shelf:
    """Keeps copies. A piece of memory lives as long as any of the copies in it, so those of one shelf should go at about the same time."""

    def __init__(self) -> None:
        self._empty: dict[tuple[torch.Size, torch.dtype, torch.device], list[torch.Tensor]] = {}

    def put(self, values: torch.Tensor) -> torch.Tensor:
        """A contiguous copy."""
        empty = self._empty.setdefault((values.shape, values.dtype, values.device), [])
        if not empty:
            empty += _piece(values, TOGETHER).unbind()
        return empty.pop().copy_(values)


def keep(values: torch.Tensor) -> torch.Tensor:
    """A contiguous copy in a piece of its own."""
    return _piece(values, 1)[0].copy_(values)


def _piece(like: torch.Tensor, count: int) -> torch.Tensor:
    """Room for ``count`` tensors, shape (count, *shape of ``like``), uninitialised."""
    size = count * like.numel() * like.element_size()
    if like.device.type != "cpu" or not size or not hasattr(mmap, "MAP_ANONYMOUS"):
        return like.new_empty(count, *like.shape)
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)  # its default is shared memory, which containers limit
    return torch.frombuffer(memory, dtype=like.dtype).view(count, *like.shape)
