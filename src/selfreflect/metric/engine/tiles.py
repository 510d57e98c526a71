"""Queries of a batch as tiles for the compiled attention: a few neighbouring rows, how much of a prefix they
see, and which other keys. Indices only.

Shapes: T tiles of N queries; K keys in the longest list of a tile.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from selfreflect.metric.engine.packing import Blocks, PackedBatch
from selfreflect.metric.engine.tree import Bools, Ints


@dataclass(frozen=True)
class Tiles:
    """Every real query of a batch once."""

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
    seen: npt.NDArray[np.uint64]
    """Which lanes see a key, shape (T, K): lane ``query * group + head`` is a bit."""


def cut_tiles(batch: PackedBatch, prefixes: Mapping[int, int], size: int, group: int, *, last: bool) -> Tiles:
    """Tiles of the nodes and prefixes of a batch; with ``last``, of its outputs only.

    Args:
        prefixes: length of the prefix of each context of the batch.
        size: queries of a tile.
        group: query heads that share a key.
    """
    tiles = list(_block_tiles(batch.last if last else batch.nodes, prefixes, size))
    if not last:
        tiles += _prefix_tiles(batch, size)
    contexts = tuple(sorted({tile.context for tile in tiles}))
    widest = max((len(tile.keys) for tile in tiles), default=0)
    queries = np.full((len(tiles), size), -1, dtype=np.int64)
    keys = np.zeros((len(tiles), widest), dtype=np.int64)
    seen = np.zeros((len(tiles), widest), dtype=np.uint64)
    heads = (1 << group) - 1
    lanes = np.array([heads << (query * group) for query in range(size)], dtype=np.uint64)
    for i, tile in enumerate(tiles):
        queries[i, : len(tile.queries)] = tile.queries
        keys[i, : len(tile.keys)] = tile.keys
        seen[i, : len(tile.keys)] = tile.visible.T.astype(np.uint64) @ lanes[: len(tile.queries)]
    return Tiles(
        contexts=contexts,
        context=np.array([contexts.index(tile.context) for tile in tiles], dtype=np.int64),
        before=np.array([tile.before for tile in tiles], dtype=np.int64),
        queries=queries,
        keys=keys,
        count=np.array([len(tile.keys) for tile in tiles], dtype=np.int64),
        seen=seen,
    )


@dataclass(frozen=True)
class _Tile:
    context: int
    before: int
    queries: Ints
    keys: Ints
    visible: Bools
    """Shape (queries, keys)."""


def _block_tiles(blocks: Blocks, prefixes: Mapping[int, int], size: int) -> Iterator[_Tile]:
    count, longest = blocks.queries.shape
    lengths = np.bincount(blocks.real // max(1, longest), minlength=count).tolist()
    for context, first, stop in blocks.contexts:
        for block in range(first, stop):
            for start in range(0, lengths[block], size):
                rows = slice(start, min(start + size, lengths[block]))
                visible = blocks.visible[block, rows]
                columns = np.flatnonzero(visible.any(axis=0))
                queries = blocks.queries[block, rows]
                keys = blocks.keys[block, columns]
                yield _Tile(context, prefixes[context], queries, keys, visible[:, columns])


def _prefix_tiles(batch: PackedBatch, size: int) -> Iterator[_Tile]:
    """Rows of a prefix see the rows of it before them, and themselves."""
    carried = len(batch.key_positions) - len(batch.tokens)
    for segment in batch.segments:
        for start in range(0, segment.prefix, size):
            rows = segment.first_row + np.arange(start, min(start + size, segment.prefix))
            causal = np.tri(len(rows), dtype=np.bool_)
            yield _Tile(segment.context, start, rows, carried + rows, causal)
