"""Queries of a batch as tiles for the compiled attention: a few neighbouring rows, how much of a prefix they
see, and which other keys. Indices only.

Shapes: T tiles of N queries; K keys in the longest list of a tile.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from selfreflect.metric.engine.packing import Neighbours, PackedBatch
from selfreflect.metric.engine.tree import Ints


@dataclass(frozen=True)
class Tiles:
    """Every query of a batch once."""

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


def cut_tiles(batch: PackedBatch, size: int, group: int, *, outputs_only: bool) -> Tiles:
    """Tiles of the nodes and prefixes of a batch, or of its outputs only.

    Args:
        size: queries of a tile.
        group: query heads that share a key.
    """
    prefixes = {segment.context: len(segment.tree.prefix) for segment in batch.segments}
    tiles = [(tile, prefixes[tile.context]) for tile in batch.neighbours(size, outputs_only=outputs_only)]
    if not outputs_only:
        tiles += _prefix_tiles(batch, size)
    contexts = tuple(sorted(prefixes))
    widest = max((len(tile.keys) for tile, _ in tiles), default=0)
    queries = np.full((len(tiles), size), -1, dtype=np.int64)
    keys = np.zeros((len(tiles), widest), dtype=np.int64)
    seen = np.zeros((len(tiles), widest), dtype=np.uint64)
    heads = (1 << group) - 1
    lanes = np.array([heads << (query * group) for query in range(size)], dtype=np.uint64)
    for i, (tile, _) in enumerate(tiles):
        queries[i, : len(tile.queries)] = tile.queries
        keys[i, : len(tile.keys)] = tile.keys
        seen[i, : len(tile.keys)] = tile.visible.T.astype(np.uint64) @ lanes[: len(tile.queries)]
    return Tiles(
        contexts=contexts,
        context=np.array([contexts.index(tile.context) for tile, _ in tiles], dtype=np.int64),
        before=np.array([before for _, before in tiles], dtype=np.int64),
        queries=queries,
        keys=keys,
        count=np.array([len(tile.keys) for tile, _ in tiles], dtype=np.int64),
        seen=seen,
    )


def _prefix_tiles(batch: PackedBatch, size: int) -> Iterator[tuple[Neighbours, int]]:
    """Rows of a prefix see the rows of it before them, and themselves."""
    for segment in batch.segments:
        for start in range(0, segment.prefix, size):
            rows = segment.first_row + np.arange(start, min(start + size, segment.prefix))
            causal = np.tri(len(rows), dtype=np.bool_)
            yield Neighbours(segment.context, rows, len(batch.carried) + rows, causal), start
