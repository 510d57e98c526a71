"""Attention over prefix trees as C code, compiled when a process first uses it.

``tree_attention.c`` does all of a layer's attention in one call. It needs GCC on Linux. Without it, or with
``SELFREFLECT_NATIVE=0``, torch's kernel gives the same scores but for rounding, more slowly.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from selfreflect.metric.engine.kernels import KeyValue
from selfreflect.metric.engine.packing import Neighbours, PackedBatch
from selfreflect.metric.engine.tree import Ints
from selfreflect.models.local.machine import load_compiled

SOURCE = Path(__file__).with_name("tree_attention.c")


@dataclass(frozen=True)
class Tiles:
    """Every query of a batch once: tiles of a few neighbouring rows, how much of a prefix they see, and which
    other keys. T tiles of N queries; K keys in the longest list of a tile."""

    contexts: tuple[int, ...]
    context: Ints
    """Whose prefix a tile sees, as an index into ``contexts``: shape (T,)."""
    before: Ints
    """How many of the first keys of that prefix all its queries see, shape (T,)."""
    queries: Ints
    """Rows of its queries, shape (T, N); -1 where there are fewer."""
    keys: Ints
    """Its other keys, shape (T, K): first the carried rows count, then the rows of the batch."""
    count: Ints
    """How many other keys it has, shape (T,)."""
    visible: npt.NDArray[np.uint64]
    """Which lanes see a key, shape (T, K): lane ``query * group + head`` is a bit."""


class Native:
    def __init__(self, path: Path) -> None:
        library = ctypes.CDLL(str(path))
        self.lanes = int(library.tree_attention_lanes())
        """Queries of one key head that are computed side by side."""
        self.largest_head = int(library.tree_attention_most())
        self._run = library.tree_attention
        self._run.restype = None
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
        """What every query of the tiles takes from the keys that it may see; other rows are undefined.

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


def cut_tiles(batch: PackedBatch, size: int, group: int, *, outputs_only: bool) -> Tiles:
    """Cut the nodes and prefixes of a batch, or its outputs only, into tiles of ``size`` queries, whose
    ``group`` heads share a key."""
    prefixes = {segment.context: len(segment.tree.prefix) for segment in batch.segments}
    tiles: list[tuple[Neighbours, int]] = []
    for tile in batch.neighbours(size, outputs_only=outputs_only):
        tiles.append((tile, prefixes[tile.context]))
    if not outputs_only:
        tiles += _prefix_tiles(batch, size)
    contexts = tuple(sorted(prefixes))
    widest = max((len(tile.keys) for tile, _ in tiles), default=0)
    context, before, count = np.zeros((3, len(tiles)), dtype=np.int64)
    queries = np.full((len(tiles), size), -1, dtype=np.int64)
    keys = np.zeros((len(tiles), widest), dtype=np.int64)
    visible = np.zeros((len(tiles), widest), dtype=np.uint64)
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
    """Rows of a prefix see the rows of it before them, and themselves."""
    for segment in batch.segments:
        for start in range(0, segment.prefix, size):
            rows = segment.first_row + np.arange(start, min(start + size, segment.prefix))
            causal = np.tri(len(rows), dtype=np.bool_)
            yield Neighbours(segment.context, rows, len(batch.carried) + rows, causal), start


def serving(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> Native | None:
    """The library, if it can attend with tensors of these dtypes, devices and shapes."""
    for tensor in (query, key, value):
        if tensor.device.type != "cpu" or tensor.dtype != torch.float32:
            return None
    compiled = native()
    if compiled is None or key.shape != value.shape or key.shape[2] > compiled.largest_head:
        return None
    return compiled if query.shape[1] // key.shape[1] <= compiled.lanes else None


def native() -> Native | None:
    """The library, if this machine can have it."""
    result = library()
    return None if isinstance(result, str) else result


@cache
def library() -> Native | str:
    """The library, compiled for this process in less than a second, or why there is none."""
    return load_compiled(SOURCE, Native)
