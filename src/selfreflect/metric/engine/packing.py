"""Token ids only: which rows of which contexts go through the model together, and what each of them may
attend to.

A pass is one row of tokens: shared prefixes and tree nodes of one or of several contexts, each node at its
own position. A node attends to the whole prefix of its context and to its ancestors. The latter are few, so
the nodes are cut into blocks of neighbours in depth-first order, and each block looks only at the path that
leads to its first node and at itself.

Shapes: T rows in a pass, W of them wanted, C rows carried over from the pass before, B blocks of at most R
queries and K keys.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from selfreflect.metric.engine.tree import Ints, PrefixTree

Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Segment:
    """What a pass holds of one context: its whole prefix or none of it, and the nodes ``start`` to
    ``stop``."""

    context: int
    first_row: int
    prefix: int
    """Rows of the prefix; it is always whole, so this is its length or 0."""
    start: int
    stop: int
    finishes: bool
    """Whether no later pass needs this context."""

    @property
    def nodes_row(self) -> int:
        """The row of node ``start``."""
        return self.first_row + self.prefix

    @property
    def rows(self) -> int:
        return self.prefix + self.stop - self.start


@dataclass(frozen=True)
class Blocks:
    """Queries and the keys that they may see, in B blocks. Short blocks are padded; what is computed for a
    padded query is dropped."""

    queries: Ints
    """Row of each query, shape (B, R)."""
    real: Ints
    """Where the queries that are no padding lie in the flattened ``queries``."""
    keys: Ints
    """Key of each block's columns, shape (B, K): first the C carried rows count, then the T rows of this
    pass."""
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
    wanted: Ints
    """Rows whose states are the result, shape (W,), in the order of contexts and nodes."""
    nodes: Blocks
    """All tree nodes of the pass."""
    last: Blocks
    """Only the wanted rows, counted by their place in ``wanted``: all that the last layer has to compute."""
    keep: Ints
    """Keys that the next pass needs: the path to its first node."""

    def wanted_of(self, plans: Sequence[PrefixTree]) -> list[tuple[int, int]]:
        """(context, how many of ``wanted`` are its) for each segment."""
        return [
            (s.context, int(_within(plans[s.context].wanted, s.start, s.stop).size)) for s in self.segments
        ]


def pack(plans: Sequence[PrefixTree], budget: int, block: int) -> Iterator[PackedBatch]:
    """Passes of nearly equal size, at most ``budget`` rows where no prefix alone is longer, with blocks of at
    most ``block`` queries."""
    carried: Ints = np.zeros(0, dtype=np.int64)
    for segments in _segments(plans, budget):
        final = segments[-1]
        plan = plans[final.context]
        path = np.zeros(0, dtype=np.int64) if final.finishes else plan.ancestors(final.stop)
        yield _pass(plans, segments, carried, path, block)
        carried = path


def _segments(plans: Sequence[PrefixTree], budget: int) -> Iterator[tuple[Segment, ...]]:
    total = sum(plan.computed_tokens for plan in plans)
    # equal passes: a short one at the end would run the hardware half empty
    size = -(-total // max(1, -(-total // budget)))
    held: list[Segment] = []
    row = 0
    for context, plan in enumerate(plans):
        prefix, start, count = len(plan.prefix), 0, len(plan.tokens)
        while start < count:
            if held and size - row < prefix + 1:
                yield tuple(held)
                held, row = [], 0
            stop = min(count, start + max(1, size - row - prefix))
            held.append(
                Segment(
                    context=context,
                    first_row=row,
                    prefix=prefix,
                    start=start,
                    stop=stop,
                    finishes=stop == count,
                )
            )
            row, start, prefix = row + held[-1].rows, stop, 0
    if held:
        yield tuple(held)


def _pass(
    plans: Sequence[PrefixTree], segments: tuple[Segment, ...], carried: Ints, path: Ints, block: int
) -> PackedBatch:
    """``carried`` and ``path`` are nodes: the path to the first node of this pass, and to that of the
    next."""
    tokens, positions, wanted = [], [], []
    for s in segments:
        plan = plans[s.context]
        tokens += [np.array(plan.prefix[: s.prefix], dtype=np.int64), plan.tokens[s.start : s.stop]]
        positions += [np.arange(s.prefix), len(plan.prefix) + plan.depth[s.start : s.stop]]
        wanted.append(_within(plan.wanted, s.start, s.stop) - s.start + s.nodes_row)
    first, final = plans[segments[0].context], segments[-1]
    rows = np.concatenate(positions)
    targets = np.concatenate(wanted)
    columns = [_Columns(s, carried if s.start else carried[:0], len(carried)) for s in segments]
    return PackedBatch(
        segments=segments,
        tokens=np.concatenate(tokens),
        positions=rows,
        key_positions=np.concatenate([len(first.prefix) + first.depth[carried], rows]),
        wanted=targets,
        nodes=_blocks(plans, columns, block, np.arange(len(rows)), every=True),
        last=_blocks(plans, columns, block, targets, every=False),
        keep=columns[-1].of(path) if not final.finishes else path,
    )


@dataclass(frozen=True)
class _Columns:
    """Where a segment's nodes and their ancestors stand among the keys of a pass: first the path that was
    carried over, then the rows.

    A segment that goes on with nodes 5, 6, 7 of a tree whose node 5 has the ancestors 0, 1, 4 finds those
    three carried, at keys 0, 1, 2. If it is the first of its pass, its own nodes follow as keys 3, 4, 5.
    """

    segment: Segment
    carried: Ints
    offset: int

    def of(self, nodes: Ints) -> Ints:
        """The key of each node; one from before the segment is on the path, whose nodes ascend."""
        here = nodes - self.segment.start + self.segment.nodes_row + self.offset
        return np.where(nodes < self.segment.start, np.searchsorted(self.carried, nodes), here)


def _blocks(
    plans: Sequence[PrefixTree], columns: Sequence[_Columns], size: int, rows: Ints, every: bool
) -> Blocks:
    """Blocks for all nodes, or for the wanted ones among them; ``rows`` are the rows that the queries are
    counted among, ascending."""
    queries: list[Ints] = []
    keys: list[Ints] = []
    visible: list[Bools] = []
    contexts = []
    for c in columns:
        plan, s = plans[c.segment.context], c.segment
        first = len(queries)
        for start in range(s.start, s.stop, size):
            stop = min(start + size, s.stop)
            nodes = np.arange(start, stop) if every else _within(plan.wanted, start, stop)
            if not nodes.size:
                continue
            seen = np.concatenate([plan.ancestors(start), np.arange(start, int(nodes[-1]) + 1)])
            queries.append(np.searchsorted(rows, nodes - s.start + s.nodes_row))
            keys.append(c.of(seen))
            visible.append(plan.visible(nodes, seen))
        if len(queries) > first:
            contexts.append((s.context, first, len(queries)))
    most, widest = max(map(len, queries), default=0), max(map(len, keys), default=0)
    widest += -widest % 8  # kernels want rows of masks that start at round addresses
    all_queries = np.zeros((len(queries), most), dtype=np.int64)
    all_keys = np.zeros((len(queries), widest), dtype=np.int64)
    all_visible = np.zeros((len(queries), most, widest), dtype=np.bool_)
    real = []
    for i, (q, k, v) in enumerate(zip(queries, keys, visible, strict=True)):
        all_queries[i, : len(q)] = q
        all_keys[i, : len(k)] = k
        all_visible[i, : len(q), : len(k)] = v
        all_visible[i, len(q) :, 0] = True  # a softmax over nothing is undefined, also where nobody reads it
        real.append(i * most + np.arange(len(q)))
    return Blocks(
        all_queries,
        np.concatenate(real) if real else np.zeros(0, dtype=np.int64),
        all_keys,
        all_visible,
        tuple(contexts),
    )


def _within(sorted_nodes: Ints, start: int, stop: int) -> Ints:
    low, high = np.searchsorted(sorted_nodes, [start, stop])
    return sorted_nodes[low:high]
