"""Attention over prefix trees, layer by layer and batch by batch.

Shapes as in :mod:`~selfreflect.metric.engine.packing`; H query heads, KV key heads, head dimension D, P rows
of a prefix.
"""

from __future__ import annotations

import math
import mmap
from collections.abc import Sequence
from contextlib import suppress

import torch

from selfreflect.metric.engine import native
from selfreflect.metric.engine.kernels import (
    Blocks,
    Extras,
    KeyValue,
    attend_in_blocks,
    attend_in_prefix,
    cut_blocks,
)
from selfreflect.metric.engine.packing import PackedBatch
from selfreflect.models.local.layers import on_device

BLOCK = 64
"""Tree nodes that share one look at their ancestors, in torch."""

COPIES_PER_MAPPING = 16
"""With one mapping per copy there would be thousands in a long pass of a deep model."""


class TreeAttention:
    """Attention of all layers over consecutive batches, with the keys and values that later batches need.

    Call :meth:`begin` before each batch, then :meth:`attend` once for each layer. Layers may lie on several
    devices: what a layer needs and keeps is where its queries are.
    """

    def __init__(self, *, fused: bool = True) -> None:
        self.fused = fused
        self.prefixes: dict[int, dict[int, KeyValue]] = {}
        """Layer -> context -> keys and values of the shared prefix, each (KV, P, D)."""
        self.carried: dict[int, KeyValue] = {}
        """Layer -> keys and values of the path to the first node of the batch, each (C, KV, D)."""
        self.windows: set[int] = set()
        """The sliding windows that layers have asked for."""

    def begin(self, batch: PackedBatch) -> None:
        """Get ready for a batch and forget contexts that have finished."""
        contexts = {segment.context for segment in batch.segments}
        for prefixes in self.prefixes.values():
            for context in prefixes.keys() - contexts:
                del prefixes[context]
        self.batch = batch
        self._prefix_arenas = {context: Arena() for context in contexts}
        self._carry_arena = Arena()
        self._carry_keys: dict[torch.device, torch.Tensor] = {}
        # layers share these, unless they differ in their heads or devices
        self._tiles: dict[tuple[int, bool], native.Tiles] = {}
        self._blocks: dict[tuple[torch.device, torch.dtype, int, bool], Blocks] = {}

    def attend(
        self,
        layer: int,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        scale: float,
        extras: Extras,
        *,
        last: bool = False,
    ) -> torch.Tensor:
        """What each row takes from the rows that it may see.

        Args:
            query: (T, H, D), or (W, H, D) of the output rows if ``last``.
            key, value: (T, KV, D), with rotary embedding applied.
            last: only the output rows are needed, because no later layer looks at the others.
        """
        if extras.window is not None:
            self.windows.add(extras.window)
            if self.batch.positions.max() < extras.window:  # it hides nothing here
                extras = Extras(softcap=extras.softcap, sinks=extras.sinks)
        group = query.shape[1] // key.shape[1]
        compiled = native.serving(query, key, value) if self.fused and extras.plain else None
        prefixes = self._with_new_prefixes(layer, key, value)
        local = self._with_carried(layer, key, value)
        if compiled:
            if (group, last) not in self._tiles:
                size = compiled.lanes // group
                self._tiles[group, last] = native.cut_tiles(self.batch, size, group, outputs_only=last)
            return compiled.attend(query, local, prefixes, self._tiles[group, last], scale)
        out = torch.empty_like(query)
        for segment in self.batch.segments:
            if segment.prefix and not last:
                rows = slice(segment.first_row, segment.nodes_row)
                out[rows] = attend_in_prefix(query[rows], prefixes[segment.context], scale, extras)
        kind = query.device, query.dtype, group, last
        if kind not in self._blocks:
            self._blocks[kind] = cut_blocks(self.batch, BLOCK, group, query, outputs_only=last)
        blocks = self._blocks[kind]
        if blocks.real.numel():
            nodes = attend_in_blocks(query, local, prefixes, blocks, scale, extras, fused=self.fused)
            out[blocks.queries.flatten()[blocks.real]] = nodes.flatten(0, 1)[blocks.real]
        return out

    def _with_new_prefixes(self, layer: int, key: torch.Tensor, value: torch.Tensor) -> dict[int, KeyValue]:
        """The layer's prefixes by context, those of the batch included."""
        prefixes = self.prefixes.setdefault(layer, {})
        for segment in self.batch.segments:
            if segment.prefix:
                rows = slice(segment.first_row, segment.nodes_row)
                arena = self._prefix_arenas[segment.context]
                prefix_key = arena.copy(key[rows].transpose(0, 1))
                prefix_value = arena.copy(value[rows].transpose(0, 1))
                prefixes[segment.context] = prefix_key, prefix_value
        return prefixes

    def _with_carried(self, layer: int, key: torch.Tensor, value: torch.Tensor) -> KeyValue:
        """Keys and values of the carried rows and then of the batch; keeps what the next batch needs."""
        carried = self.carried.pop(layer, None)
        if carried is not None:
            key = torch.cat([carried[0], key])
            value = torch.cat([carried[1], value])
        if self.batch.carry.size:
            if key.device not in self._carry_keys:
                self._carry_keys[key.device] = on_device(self.batch.carry, key.device)
            keys = self._carry_keys[key.device]
            self.carried[layer] = self._carry_arena.copy(key[keys]), self._carry_arena.copy(value[keys])
        return key, value


class Arena:
    """Keeps contiguous copies of tensors that die at about the same time, in mmap-backed buffers on a CPU.

    Among the large tensors that every layer makes and frees, those that stay let the heap grow: with SmolLM2
    up to twice what was in use. On a GPU torch's allocator takes care of that.
    """

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
