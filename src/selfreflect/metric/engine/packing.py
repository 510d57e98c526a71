"""Token ids only: which rows of which contexts go through the model together, and what each may attend to.

A batch is one row of tokens: shared prefixes and tree nodes of one or several contexts, each node at its own
position. A node attends to the whole prefix of its context and to its ancestors. The latter are few, so the
nodes are cut into blocks of neighbours in depth-first order, and each block looks only at the path that leads
to its first node and at itself.

Shapes: T rows in a batch, W of them outputs, C rows carried over from the batch before, B blocks of at most R
queries and K keys.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from selfreflect.metric.engine.tree import Bools, Ints, PrefixTree

_NO_NODES: Ints = np.zeros(0, dtype=np.int64)


@dataclass(frozen=True)
class Segment:
    """What a batch holds of one context: its whole prefix or none of it, and nodes ``start`` to ``stop``."""

    context: int
    """Index of the context's tree."""
    first_row: int
    prefix: int
    """Rows of the prefix: its whole length, or 0."""
    start: int
    stop: int
    finishes: bool
    """Whether no later batch needs this context."""

    @property
    def nodes_row(self) -> int:
        """The row of node ``start``."""
        return self.first_row + self.prefix

    @property
    def rows(self) -> int:
        return self.prefix + self.stop - self.start

    def outputs(self, tree: PrefixTree) -> Ints:
        """The output nodes of its tree that lie in this segment."""
        return _between(tree.outputs, self.start, self.stop)


@dataclass(frozen=True)
class Blocks:
    """Queries and the keys that they may see, in B blocks. Short blocks are padded."""

    queries: Ints
    """Row of each query, shape (B, R)."""
    real: Ints
    """Where the queries that are no padding lie in the flattened ``queries``."""
    keys: Ints
    """Key of each block's columns, shape (B, K). Keys 0 to C - 1 are the carried rows, then come the T rows."""
    visible: Bools
    """Shape (B, R, K)."""
    contexts: tuple[tuple[int, int, int], ...]
    """(context, first block, one past its last block), in order."""


@dataclass(frozen=True)
class PackedBatch:
    """One trip through the model."""

    segments: tuple[Segment, ...]
    tokens: Ints
    """Shape (T,)."""
    positions: Ints
    """Shape (T,)."""
    key_positions: Ints
    """Shape (C + T,)."""
    outputs: Ints
    """Rows whose states are the result, shape (W,), in the order of contexts and nodes."""
    nodes: Blocks
    """All tree nodes of the batch."""
    last: Blocks
    """Only the output rows, counted by their index in ``outputs``: all that the last layer has to compute."""
    carry: Ints
    """Keys that the next batch needs: the path to its first node."""


def pack(trees: Sequence[PrefixTree], max_rows: int, block: int) -> Iterator[PackedBatch]:
    """Batches of nearly equal size that hold every prefix and every node once, in order.

    Args:
        max_rows: rows of a batch at most, unless a single prefix is longer.
        block: queries of a block at most.
    """
    path = _NO_NODES
    for segments in _segments(trees, max_rows):
        carried = path
        final = segments[-1]
        path = _NO_NODES if final.finishes else trees[final.context].ancestors(final.stop)
        yield _batch(trees, segments, carried, path, block)


def _segments(trees: Sequence[PrefixTree], max_rows: int) -> Iterator[tuple[Segment, ...]]:
    total = sum(tree.computed_tokens for tree in trees)
    batches = max(1, -(-total // max_rows))
    # equal batches: a short one at the end would run the hardware half empty
    size = -(-total // batches)
    segments: list[Segment] = []
    row = 0
    for context, tree in enumerate(trees):
        prefix = len(tree.prefix)
        start = 0
        count = len(tree.tokens)
        while start < count:
            if segments and size - row < prefix + 1:
                yield tuple(segments)
                segments = []
                row = 0
            stop = min(count, start + max(1, size - row - prefix))
            segment = Segment(context, row, prefix, start, stop, finishes=stop == count)
            segments.append(segment)
            row += segment.rows
            start = stop
            prefix = 0
    if segments:
        yield tuple(segments)


def _batch(
    trees: Sequence[PrefixTree], segments: tuple[Segment, ...], carried: Ints, path: Ints, block: int
) -> PackedBatch:
    """``carried`` and ``path`` are nodes: the paths to the first node of this batch and of the next one."""
    tokens, positions, outputs = [], [], []
    for segment in segments:
        tree = trees[segment.context]
        nodes = slice(segment.start, segment.stop)
        tokens += [np.array(tree.prefix[: segment.prefix], dtype=np.int64), tree.tokens[nodes]]
        positions += [np.arange(segment.prefix), len(tree.prefix) + tree.depth[nodes]]
        outputs.append(segment.outputs(tree) - segment.start + segment.nodes_row)
    row_positions = np.concatenate(positions)
    output_rows = np.concatenate(outputs)
    first = trees[segments[0].context]
    key_maps = [
        _KeyMap(segment, carried if segment.start else _NO_NODES, len(carried)) for segment in segments
    ]
    return PackedBatch(
        segments=segments,
        tokens=np.concatenate(tokens),
        positions=row_positions,
        key_positions=np.concatenate([len(first.prefix) + first.depth[carried], row_positions]),
        outputs=output_rows,
        nodes=_blocks(trees, key_maps, block),
        last=_blocks(trees, key_maps, block, output_rows),
        carry=key_maps[-1].keys(path),
    )


@dataclass(frozen=True)
class _KeyMap:
    """Where a segment's nodes and their ancestors stand among the keys of a batch.

    A segment that goes on with nodes 5, 6, 7 of a tree whose node 5 has the ancestors 0, 1, 4 finds those
    three carried, at keys 0, 1, 2. If it is the first of its batch, its own nodes follow as keys 3, 4, 5.
    """

    segment: Segment
    carried: Ints
    """The ancestors of its first node that lie in earlier batches, ascending."""
    offset: int
    """C, the number of carried keys."""

    def keys(self, nodes: Ints) -> Ints:
        """The key of each node."""
        own = nodes - self.segment.start + self.segment.nodes_row + self.offset
        return np.where(nodes < self.segment.start, np.searchsorted(self.carried, nodes), own)


def _blocks(
    trees: Sequence[PrefixTree], key_maps: Sequence[_KeyMap], size: int, output_rows: Ints | None = None
) -> Blocks:
    """Blocks of all nodes; with ``output_rows``, of the outputs only, their queries counted by index in it."""
    queries: list[Ints] = []
    keys: list[Ints] = []
    visible: list[Bools] = []
    contexts = []
    for key_map in key_maps:
        segment = key_map.segment
        tree = trees[segment.context]
        first = len(queries)
        for start in range(segment.start, segment.stop, size):
            stop = min(start + size, segment.stop)
            nodes = np.arange(start, stop) if output_rows is None else _between(tree.outputs, start, stop)
            if not nodes.size:
                continue
            seen = np.concatenate([tree.ancestors(start), np.arange(start, int(nodes[-1]) + 1)])
            rows = nodes - segment.start + segment.nodes_row
            queries.append(rows if output_rows is None else np.searchsorted(output_rows, rows))
            keys.append(key_map.keys(seen))
            visible.append(tree.visible(nodes, seen))
        if len(queries) > first:
            contexts.append((segment.context, first, len(queries)))
    return _padded(queries, keys, visible, tuple(contexts))


def _padded(
    queries: list[Ints], keys: list[Ints], visible: list[Bools], contexts: tuple[tuple[int, int, int], ...]
) -> Blocks:
    longest = max(map(len, queries), default=0)
    widest = max(map(len, keys), default=0)
    widest += -widest % 8  # kernels want rows of masks that start at round addresses
    all_queries = np.zeros((len(queries), longest), dtype=np.int64)
    all_keys = np.zeros((len(queries), widest), dtype=np.int64)
    all_visible = np.zeros((len(queries), longest, widest), dtype=np.bool_)
    real = [_NO_NODES]
    for block, rows in enumerate(queries):
        all_queries[block, : len(rows)] = rows
        all_keys[block, : len(keys[block])] = keys[block]
        all_visible[block, : len(rows), : len(keys[block])] = visible[block]
        all_visible[block, len(rows) :, 0] = True  # a softmax over nothing would be NaN, also in padding
        real.append(block * longest + np.arange(len(rows)))
    return Blocks(all_queries, np.concatenate(real), all_keys, all_visible, contexts)


def _between(ascending: Ints, start: int, stop: int) -> Ints:
    """The values from ``start`` up to, without, ``stop``."""
    low, high = np.searchsorted(ascending, [start, stop])
    return ascending[low:high]
