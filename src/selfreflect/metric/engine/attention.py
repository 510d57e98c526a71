"""Attention over prefix trees, per layer and batch.

In float32 on a CPU ``tree_attention.c`` does all of a layer's attention in one call. It is compiled when a
process first uses it, and needs GCC on Linux. Without it, or with ``SELFREFLECT_NATIVE=0``, torch
(``kernels``) gives the same but for rounding, more slowly.

Shapes as in :mod:`~selfreflect.metric.engine.tree`; H query heads, KV key heads, head dimension D, P rows of
a prefix.
"""

from __future__ import annotations

import ctypes
import math
import mmap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import torch

from selfreflect.metric.engine.tree import Ints, Neighbours, PackedBatch
from selfreflect.models.local.layers import on_device
from selfreflect.models.local.machine import load_compiled

if TYPE_CHECKING:
    from selfreflect.metric.engine.kernels import Blocks

KeyValue = tuple[torch.Tensor, torch.Tensor]

_SOURCE = Path(__file__).with_name("tree_attention.c")


BLOCK = 64
"""Number of tree nodes that share their ancestors' keys in torch."""

COPIES_PER_MAPPING = 16
"""Copies per mapping: one mapping for each would need thousands in a deep model."""


@dataclass(frozen=True)
class Extras:
    """Extensions of plain attention in some architectures."""

    window: int | None = None
    """Number of positions that see a key, including its own."""
    softcap: float | None = None
    """Cap that squeezes logits to softcap * tanh(logits / softcap) (Gemma 2)."""
    sinks: torch.Tensor | None = None
    """One more logit per head without a value (gpt-oss): shape (H,)."""

    @property
    def plain(self) -> bool:
        return self.window is None and self.softcap is None and self.sinks is None


class TreeAttention:
    """Attention of all layers over consecutive batches, with the cached keys and values.

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
        """Prepare for a batch, and forget finished contexts."""
        contexts = {segment.context for segment in batch.segments}
        for prefixes in self.prefixes.values():
            for context in prefixes.keys() - contexts:
                # else memory would grow with the number of contexts
                del prefixes[context]
        self.batch = batch
        self._prefix_arenas = {context: Arena() for context in contexts}
        self._carry_arena = Arena()
        self._carry_keys: dict[torch.device, torch.Tensor] = {}
        # layers share these, unless they differ in their heads or devices
        self._tiles: dict[int, Tiles] = {}
        self._blocks: dict[tuple[torch.device, torch.dtype, int], Blocks] = {}

    def attend(
        self,
        layer: int,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        scale: float,
        extras: Extras,
    ) -> torch.Tensor:
        """Compute the attention of each row to its visible rows.

        Args:
            query: (T, H, D), with rotary embedding applied.
            key, value: (T, KV, D), the key with rotary embedding applied.
        """
        if extras.window is not None:
            self.windows.add(extras.window)
            if self.batch.positions.max() < extras.window:  # it hides nothing here
                extras = Extras(softcap=extras.softcap, sinks=extras.sinks)
        group = query.shape[1] // key.shape[1]
        compiled = serving(query, key, value) if self.fused and extras.plain else None
        prefixes = self._with_new_prefixes(layer, key, value)
        local = self._with_carried(layer, key, value)
        if compiled:
            if group not in self._tiles:
                # the C code fills whole vectors of lanes, so a tile has lanes / group queries
                self._tiles[group] = cut_tiles(self.batch, compiled.lanes // group, group)
            return compiled.attend(query, local, prefixes, self._tiles[group], scale)
        return self._attend_in_torch(query, local, prefixes, scale, extras)

    def _attend_in_torch(
        self,
        query: torch.Tensor,
        local: KeyValue,
        prefixes: Mapping[int, KeyValue],
        scale: float,
        extras: Extras,
    ) -> torch.Tensor:
        # imported here, because the C path needs none of torch's kernels
        from selfreflect.metric.engine.kernels import attend_in_blocks, attend_in_prefix, cut_blocks

        out = torch.empty_like(query)
        for segment in self.batch.segments:
            if segment.prefix:
                rows = slice(segment.first_row, segment.nodes_row)
                out[rows] = attend_in_prefix(query[rows], prefixes[segment.context], scale, extras)
        group = query.shape[1] // local[0].shape[1]
        kind = query.device, query.dtype, group
        if kind not in self._blocks:
            self._blocks[kind] = cut_blocks(self.batch, BLOCK, group, query)
        blocks = self._blocks[kind]
        nodes = attend_in_blocks(query, local, prefixes, blocks, scale, extras, fused=self.fused)
        out[blocks.queries.flatten()[blocks.real]] = nodes.flatten(0, 1)[blocks.real]
        return out

    def _with_new_prefixes(self, layer: int, key: torch.Tensor, value: torch.Tensor) -> dict[int, KeyValue]:
        """Update and return the layer's prefixes by context, including those of the batch."""
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
        """Join carried rows to the batch's keys and values, and keep rows that the next batch needs."""
        # needed by this batch alone; the path to the next one is kept below
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
    """Allocator of contiguous copies for tensors freed together, in mmap-backed buffers on a CPU.

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
    """Allocate an uninitialised tensor with the dtype and device of ``like``."""
    size = math.prod(shape) * like.element_size()
    # an mmap of 0 bytes is an error
    if size and _is_mapped(like):
        with suppress(OSError):  # too many mappings, or no memory: torch says which
            # Private: shared memory, the default, is scarce in containers.
            memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
            return torch.frombuffer(memory, dtype=like.dtype).view(*shape)
    return like.new_empty(*shape)


def _is_mapped(values: torch.Tensor) -> bool:
    return values.device == torch.device("cpu") and hasattr(mmap, "MAP_ANONYMOUS")


@dataclass(frozen=True)
class Tiles:
    """The queries of a batch in tiles of neighbouring rows, with their visible prefix and keys."""

    contexts: tuple[int, ...]
    context: Ints
    """Index into ``contexts`` of each tile's prefix: shape (T,)."""
    before: Ints
    """Number of prefix keys seen by all queries of a tile, shape (T,)."""
    queries: Ints
    """Rows of each tile's queries, shape (T, N); padded with -1."""
    keys: Ints
    """Other keys of each tile, shape (T, K): carried rows are numbered before the batch's."""
    count: Ints
    """Number of other keys of each tile, shape (T,)."""
    visible: npt.NDArray[np.uint64]
    """Lanes that see each key, shape (T, K): lane ``query * group + head`` is a bit."""


class Native:
    def __init__(self, path: Path) -> None:
        library = ctypes.CDLL(str(path))
        self.lanes = int(library.tree_attention_lanes())
        """Number of queries of one key head that are computed in parallel."""
        self.largest_head = int(library.tree_attention_most())
        self._run = library.tree_attention
        self._run.restype = None
        # ctypes checks no types of a C function: the order is that of tree_attention.c
        self._run.argtypes = [
            *[ctypes.c_void_p] * 7,
            *[ctypes.c_int64] * 3,
            *[ctypes.c_void_p] * 6,
            *[ctypes.c_int64] * 3,
            ctypes.c_float,
            ctypes.c_int,
        ]

    def attend(
        self,
        query: torch.Tensor,
        local: KeyValue,
        prefixes: Mapping[int, KeyValue],
        tiles: Tiles,
        scale: float,
    ) -> torch.Tensor:
        """Compute the attention of every query to its visible keys.

        Args:
            query: shape (rows, H, D).
            local: keys and values that ``tiles.keys`` counts, each (keys, KV, D).
            prefixes: by context, each (KV, P, D), contiguous; none where it is empty.
        """
        query = query.contiguous()
        key = local[0].contiguous()
        value = local[1].contiguous()
        out = torch.empty_like(query)
        prefix_keys, prefix_values, prefix_rows = np.zeros((3, len(tiles.contexts)), dtype=np.int64)
        for i, context in enumerate(tiles.contexts):
            if context in prefixes:
                prefix_key, prefix_value = prefixes[context]
                prefix_keys[i] = prefix_key.data_ptr()
                prefix_values[i] = prefix_value.data_ptr()
                prefix_rows[i] = prefix_key.shape[1]
        self._run(
            query.data_ptr(),
            out.data_ptr(),
            key.data_ptr(),
            value.data_ptr(),
            prefix_keys.ctypes.data,
            prefix_values.ctypes.data,
            prefix_rows.ctypes.data,
            *tiles.queries.shape,
            tiles.keys.shape[1],
            tiles.context.ctypes.data,
            tiles.before.ctypes.data,
            tiles.queries.ctypes.data,
            tiles.keys.ctypes.data,
            tiles.count.ctypes.data,
            tiles.visible.ctypes.data,
            key.shape[1],
            query.shape[1] // key.shape[1],
            query.shape[2],
            scale,
            torch.get_num_threads(),
        )
        return out


def cut_tiles(batch: PackedBatch, size: int, group: int) -> Tiles:
    """Cut a batch's nodes and prefixes into tiles of ``size`` queries, with ``group`` heads per key."""
    prefixes = {segment.context: len(segment.tree.prefix) for segment in batch.segments}
    tiles: list[tuple[Neighbours, int]] = []
    for tile in batch.neighbours(size):
        tiles.append((tile, prefixes[tile.context]))
    tiles += _prefix_tiles(batch, size)
    contexts = tuple(sorted(prefixes))
    widest = max(len(tile.keys) for tile, _ in tiles)
    context, before, count = np.zeros((3, len(tiles)), dtype=np.int64)
    queries = np.full((len(tiles), size), -1, dtype=np.int64)
    keys = np.zeros((len(tiles), widest), dtype=np.int64)
    visible = np.zeros((len(tiles), widest), dtype=np.uint64)
    # all heads of a query see the same keys, so its lanes are neighbouring bits
    heads = (1 << group) - 1
    lanes = np.array([heads << (query * group) for query in range(size)], dtype=np.uint64)
    for i, (tile, prefix_rows) in enumerate(tiles):
        context[i] = contexts.index(tile.context)
        before[i] = prefix_rows
        count[i] = len(tile.keys)
        queries[i, : len(tile.queries)] = tile.queries
        keys[i, : len(tile.keys)] = tile.keys
        visible[i, : len(tile.keys)] = tile.visible.T.astype(np.uint64) @ lanes[: len(tile.queries)]
    return Tiles(contexts, context, before, queries, keys, count, visible)


def _prefix_tiles(batch: PackedBatch, size: int) -> Iterator[tuple[Neighbours, int]]:
    """Yield the causal tiles of all prefixes."""
    for segment in batch.segments:
        for start in range(0, segment.prefix, size):
            rows = segment.first_row + np.arange(start, min(start + size, segment.prefix))
            causal = np.tri(len(rows), dtype=np.bool_)
            yield Neighbours(segment.context, rows, len(batch.carried) + rows, causal), start


def serving(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> Native | None:
    """Return the library if it supports these tensors' dtypes, devices and shapes."""
    # the C code knows float32 in main memory alone
    for tensor in (query, key, value):
        if tensor.device.type != "cpu" or tensor.dtype != torch.float32:
            return None
    compiled = native()
    if compiled is None or key.shape != value.shape or key.shape[2] > compiled.largest_head:
        return None
    # more heads per key than lanes do not fit one tile
    return compiled if query.shape[1] // key.shape[1] <= compiled.lanes else None


def native() -> Native | None:
    """Return the compiled library, or None if this machine cannot have it."""
    result = library()
    return None if isinstance(result, str) else result


@cache
def library() -> Native | str:
    """Compile the library for this process in under a second, or return the reason for failure."""
    return load_compiled(_SOURCE, Native)
