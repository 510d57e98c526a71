"""Token ids only: which rows of which contexts go through the model together, and what each may attend to.

A node attends to the whole prefix of its context and to its ancestors. The ancestors of neighbouring nodes in
depth-first order are few: the path to the first of them, and themselves. Shapes: T rows in a batch, W of them
outputs, C rows carried over from the batch before. Keys 0 to C - 1 are the carried rows, then the T rows.
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
    tree: PrefixTree
    first_row: int
    prefix: int
    """Rows of the prefix: its whole length, or 0."""
    start: int
    stop: int

    @property
    def nodes_row(self) -> int:
        """The row of node ``start``."""
        return self.first_row + self.prefix

    @property
    def rows(self) -> int:
        return self.prefix + self.stop - self.start

    def row_of(self, nodes: Ints) -> Ints:
        return nodes - self.start + self.nodes_row

    def outputs(self, start: int, stop: int) -> Ints:
        """The output nodes in ``range(start, stop)``."""
        low, high = np.searchsorted(self.tree.outputs, [start, stop])
        return self.tree.outputs[low:high]


@dataclass(frozen=True)
class Neighbours:
    """Nodes that share one look at their keys: N queries, K keys."""

    context: int
    queries: Ints
    """Shape (N,): rows, or with outputs only, indices into :attr:`PackedBatch.outputs`."""
    keys: Ints
    """Shape (K,): the path to the first node, and the nodes up to the last one."""
    visible: Bools
    """Shape (N, K)."""


@dataclass(frozen=True)
class PackedBatch:
    """One forward pass: prefixes and nodes of one or several contexts in a row, at their own positions."""

    segments: tuple[Segment, ...]
    tokens: Ints
    positions: Ints
    """Shape (T,), as ``tokens``."""
    key_positions: Ints
    """Shape (C + T,)."""
    outputs: Ints
    """Rows whose states are the result, shape (W,), in the order of contexts and nodes."""
    carried: Ints
    """The C carried rows as nodes of the first segment's tree: the path to its first node."""
    carry: Ints
    """Keys that the next batch needs: the path to its first node."""

    def neighbours(self, size: int, *, outputs_only: bool = False) -> Iterator[Neighbours]:
        """All tree nodes, at most ``size`` together; only the output nodes for the last layer."""
        for segment in self.segments:
            for start in range(segment.start, segment.stop, size):
                stop = min(start + size, segment.stop)
                nodes = segment.outputs(start, stop) if outputs_only else np.arange(start, stop)
                if not nodes.size:
                    continue
                path = segment.tree.ancestors(start)
                keys = np.concatenate([path, np.arange(start, int(nodes[-1]) + 1)])
                queries = segment.row_of(nodes)
                if outputs_only:
                    queries = np.searchsorted(self.outputs, queries)
                visible = segment.tree.visible(nodes, keys)
                yield Neighbours(segment.context, queries, _keys(segment, self.carried, keys), visible)


def pack(trees: Sequence[PrefixTree], max_rows: int) -> Iterator[PackedBatch]:
    """Batches of equal size, every node once, in order; at most ``max_rows`` unless a prefix is longer."""
    path = _NO_NODES
    for segments in _segments(trees, max_rows):
        carried = path
        final = segments[-1]
        path = _NO_NODES
        if final.stop < len(final.tree.tokens):
            path = final.tree.ancestors(final.stop)
        yield _batch(segments, carried, path)


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
            segments.append(Segment(context, tree, row, prefix, start, stop))
            row += segments[-1].rows
            start = stop
            prefix = 0
    if segments:
        yield tuple(segments)


def _batch(segments: tuple[Segment, ...], carried: Ints, path: Ints) -> PackedBatch:
    """``carried`` and ``path`` are nodes: the paths to the first node of this batch and of the next one."""
    tokens, positions, outputs = [], [], []
    for segment in segments:
        tree = segment.tree
        nodes = slice(segment.start, segment.stop)
        tokens += [np.array(tree.prefix[: segment.prefix], dtype=np.int64), tree.tokens[nodes]]
        positions += [np.arange(segment.prefix), len(tree.prefix) + tree.depth[nodes]]
        outputs.append(segment.row_of(segment.outputs(segment.start, segment.stop)))
    first = segments[0].tree
    row_positions = np.concatenate(positions)
    return PackedBatch(
        segments=segments,
        tokens=np.concatenate(tokens),
        positions=row_positions,
        key_positions=np.concatenate([len(first.prefix) + first.depth[carried], row_positions]),
        outputs=np.concatenate(outputs),
        carried=carried,
        carry=_keys(segments[-1], carried, path),
    )


def _keys(segment: Segment, carried: Ints, nodes: Ints) -> Ints:
    """The key of each node of a segment and of its ancestors in earlier batches.

    A segment that goes on with nodes 5, 6, 7 of a tree whose node 5 has the ancestors 0, 1, 4 finds those
    three carried, at keys 0, 1, 2. If it is the first of its batch, its own nodes follow as keys 3, 4, 5.
    """
    own = len(carried) + segment.row_of(nodes)
    return np.where(nodes < segment.start, np.searchsorted(carried, nodes), own)
