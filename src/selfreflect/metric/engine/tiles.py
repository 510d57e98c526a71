"""Queries of a pass as tiles for the compiled attention: a few neighbouring rows, the start of a prefix, and
some more keys. Indices only.

Shapes: T tiles of N queries; K keys in the longest list of a tile.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from selfreflect.metric.engine.packing import Blocks, PackedBatch
from selfreflect.metric.engine.tree import Ints


@dataclass(frozen=True)
class Tiles:
    """Every real query of a pass once."""

    context: Ints
    """Whose prefix a tile sees, shape (T,): a place in ``contexts``."""
    before: Ints
    """How many of the first keys of that prefix all its queries see, shape (T,)."""
    queries: Ints
    """Rows of its queries, shape (T, N); -1 where there are fewer."""
    keys: Ints
    """Its other keys, shape (T, K): first the carried rows count, then those of the pass."""
    count: Ints
    """How many these are, shape (T,)."""
    seen: npt.NDArray[np.uint64]
    """Which lanes see a key, shape (T, K): lane ``query * group + head`` is a bit."""
    contexts: tuple[int, ...]


def cut(packed: PackedBatch, prefixes: Mapping[int, int], size: int, group: int, *, last: bool) -> Tiles:
    """Tiles for the nodes and prefixes of a pass, or for its wanted rows.

    Args:
        prefixes: length of the prefix of each context of the pass.
        size: queries of a tile.
        group: query heads that share a key.
    """
    found = _of_blocks(packed.last if last else packed.nodes, prefixes, size)
    if not last:
        found += _of_prefixes(packed, size)
    contexts = tuple(sorted({tile.context for tile in found}))
    widest = max((len(tile.keys) for tile in found), default=0)
    queries = np.full((len(found), size), -1, dtype=np.int64)
    keys = np.zeros((len(found), widest), dtype=np.int64)
    seen = np.zeros((len(found), widest), dtype=np.uint64)
    lanes = np.array([((1 << group) - 1) << (i * group) for i in range(size)], dtype=np.uint64)
    for i, tile in enumerate(found):
        queries[i, : len(tile.queries)] = tile.queries
        keys[i, : len(tile.keys)] = tile.keys
        seen[i, : len(tile.keys)] = tile.visible.T.astype(np.uint64) @ lanes[: len(tile.queries)]
    return Tiles(
        context=np.array([contexts.index(tile.context) for tile in found], dtype=np.int64),
        before=np.array([tile.before for tile in found], dtype=np.int64),
        queries=queries,
        keys=keys,
        count=np.array([len(tile.keys) for tile in found], dtype=np.int64),
        seen=seen,
        contexts=contexts,
    )


@dataclass(frozen=True)
class _Tile:
    context: int
    before: int
    queries: Ints
    keys: Ints
    visible: npt.NDArray[np.bool_]
    """Shape (queries, keys)."""


def _of_blocks(blocks: Blocks, prefixes: Mapping[int, int], size: int) -> list[_Tile]:
    count, most = blocks.queries.shape
    real = np.bincount(blocks.real // max(1, most), minlength=count)
    tiles = []
    for context, first, stop in blocks.contexts:
        for block in range(first, stop):
            for start in range(0, int(real[block]), size):
                rows = slice(start, min(start + size, int(real[block])))
                visible = blocks.visible[block, rows]
                (columns,) = np.nonzero(visible.any(axis=0))
                tiles.append(
                    _Tile(
                        context,
                        prefixes[context],
                        blocks.queries[block, rows],
                        blocks.keys[block, columns],
                        visible[:, columns],
                    )
                )
    return tiles


def _of_prefixes(packed: PackedBatch, size: int) -> list[_Tile]:
    """Rows of a prefix see what comes before them in it."""
    carried = len(packed.key_positions) - len(packed.tokens)
    tiles = []
    for s in packed.segments:
        for start in range(0, s.prefix, size):
            rows = s.first_row + np.arange(start, min(start + size, s.prefix))
            tiles.append(_Tile(s.context, start, rows, carried + rows, np.tri(len(rows), dtype=np.bool_)))
    return tiles
