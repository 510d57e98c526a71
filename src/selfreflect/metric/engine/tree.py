"""Prefix trees of all masked-word prompts of a context, and their batches, on token ids alone.

All prompts of a context begin alike, the masks of one answer share the words before the first of them, and
equal answers share everything. Sorted lexicographically, each prompt repeats the start of the one before it
and adds new tokens, so walking the sorted list visits the tree in depth-first order. In that order node j is
an ancestor of node i (or i itself) exactly when ``j <= i < end[j]``.

Trees go through the model in batches. A node attends to the whole prefix of its context and to its ancestors.
The ancestors of neighbouring nodes are few: the path to the first of them, and themselves. Shapes: T rows in
a batch, W of them outputs, C rows carried over from the batch before. Keys 0 to C - 1 are the carried rows,
then the T rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from selfreflect.text import common_prefix

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Prompt:
    """One tokenised conversation. Tokens ``first:`` are the masked word, each of them a token task."""

    ids: tuple[int, ...]
    first: int

    @property
    def tasks(self) -> int:
        return len(self.ids) - self.first


@dataclass(frozen=True)
class PrefixTree:
    """The computation for one context, with each tree node once.

    ``prefix`` is shared by all prompts. The tree below it has M nodes: ``tokens``, ``depth`` (0 for the first
    token after the prefix), ``parent`` (-1 for the prefix) and ``end`` (one past the last descendant), each
    of shape (M,). ``outputs`` lists, ascending, the W nodes whose next-token distribution is a token task.
    ``rows[i]`` holds, for prompt i, the index into ``outputs`` of each token of its word.
    """

    prefix: tuple[int, ...]
    tokens: Ints
    depth: Ints
    parent: Ints
    end: Ints
    outputs: Ints
    rows: tuple[tuple[int, ...], ...]

    @property
    def computed_tokens(self) -> int:
        """Tokens that go through the model, each tree node once."""
        return len(self.prefix) + len(self.tokens)

    @property
    def longest(self) -> int:
        return len(self.prefix) + int(self.depth.max()) + 1

    def ancestors(self, node: int) -> Ints:
        """List the nodes from the prefix down to ``node``, excluding it."""
        path = []
        while (node := int(self.parent[node])) >= 0:
            path.append(node)
        return np.array(path[::-1], dtype=np.int64)

    def path(self, node: int) -> Ints:
        """List the nodes from the prefix down to ``node``, including it."""
        return np.append(self.ancestors(node), node)

    def visible(self, queries: Ints, keys: Ints) -> Bools:
        """Mask the key nodes visible to each query node, its ancestors and itself: (queries, keys)."""
        # above: a node comes after its ancestors in depth-first order
        above = keys[None, :] <= queries[:, None]
        inside = queries[:, None] < self.end[keys][None, :]
        return above & inside


def build_tree(prompts: Sequence[Prompt]) -> PrefixTree:
    """Merge prompts into their prefix tree. The last token of a word is never fed, so it is not a node.

    Raises:
        ValueError: there are no prompts, or one of them has no token to predict.
    """
    if not prompts or any(not 0 < prompt.first < len(prompt.ids) for prompt in prompts):
        raise ValueError("a tree needs prompts, each with at least one token before and in its masked word")
    prefix_size = _prefix_length(prompts)
    branches = [prompt.ids[prefix_size:-1] for prompt in prompts]

    tokens: list[int] = []
    depth: list[int] = []
    parent: list[int] = []
    paths: dict[tuple[int, ...], list[int]] = {}
    previous: tuple[int, ...] = ()
    path: list[int] = []
    # sorted, the beginnings that branches share stand side by side: that is the depth-first order
    for branch in sorted(set(branches)):
        keep = common_prefix(previous, branch)
        path = path[:keep]
        for token in branch[keep:]:
            parent.append(path[-1] if path else -1)
            depth.append(len(path))
            path.append(len(tokens))
            tokens.append(token)
        paths[branch] = path
        previous = branch

    word_nodes = []
    # the state before a token predicts it, so a word's nodes begin one before its first token
    for branch, prompt in zip(branches, prompts, strict=True):
        word_nodes.append(paths[branch][prompt.first - 1 - prefix_size :])
    outputs = sorted(set().union(*word_nodes))
    row_of = {node: row for row, node in enumerate(outputs)}
    rows = []
    for nodes in word_nodes:
        rows.append(tuple(row_of[node] for node in nodes))
    return PrefixTree(
        prefix=prompts[0].ids[:prefix_size],
        tokens=np.array(tokens, dtype=np.int64),
        depth=np.array(depth, dtype=np.int64),
        parent=np.array(parent, dtype=np.int64),
        end=_subtree_ends(parent),
        outputs=np.array(outputs, dtype=np.int64),
        rows=tuple(rows),
    )


def _prefix_length(prompts: Sequence[Prompt]) -> int:
    """Count the tokens that all prompts share before the first word's prediction."""
    sequences = [prompt.ids for prompt in prompts]
    # what the least and the greatest sequence share, all sequences share
    size = common_prefix(min(sequences), max(sequences))
    # at most up to the token before the earliest word: the state there predicts, so it must be a node
    return min(size, min(prompt.first for prompt in prompts) - 1)


def _subtree_ends(parent: list[int]) -> Ints:
    """Compute the index after each node's last descendant, in one backward sweep."""
    end = list(range(1, len(parent) + 1))
    for node in reversed(range(len(parent))):
        above = parent[node]
        if above >= 0:
            end[above] = max(end[above], end[node])
    return np.array(end, dtype=np.int64)


_NO_NODES: Ints = np.zeros(0, dtype=np.int64)


@dataclass(frozen=True)
class Segment:
    """A context's part in a batch: its prefix, whole or absent, and nodes ``start`` to ``stop``."""

    context: int
    tree: PrefixTree
    first_row: int
    prefix: int
    """Rows of the prefix: its length, or 0."""
    start: int
    stop: int

    @property
    def nodes_row(self) -> int:
        """Row of node ``start``."""
        return self.first_row + self.prefix

    @property
    def rows(self) -> int:
        return self.prefix + self.stop - self.start

    def row_of(self, nodes: Ints) -> Ints:
        return nodes - self.start + self.nodes_row

    @property
    def outputs(self) -> Ints:
        """Output nodes within the segment."""
        low, high = np.searchsorted(self.tree.outputs, [self.start, self.stop])
        return self.tree.outputs[low:high]


@dataclass(frozen=True)
class Neighbours:
    """Neighbouring nodes with shared keys: N queries, K keys."""

    context: int
    queries: Ints
    """Rows of the queries: shape (N,)."""
    keys: Ints
    """Keys, shape (K,): the path to the first node, and all nodes up to the last."""
    visible: Bools
    """Visibility of keys to queries: shape (N, K)."""


@dataclass(frozen=True)
class PackedBatch:
    """One forward pass over prefixes and nodes of several contexts, each at its own positions."""

    segments: tuple[Segment, ...]
    tokens: Ints
    positions: Ints
    """Positions of ``tokens``: shape (T,)."""
    key_positions: Ints
    """Positions of all keys: shape (C + T,)."""
    outputs: Ints
    """Rows of the resulting states, shape (W,), by context and node."""
    carried: Ints
    """The C carried rows as nodes of the first segment's tree, on the path to its first node."""
    carry: Ints
    """Keys for the next batch, on the path to its first node."""

    def neighbours(self, size: int) -> Iterator[Neighbours]:
        """Yield all tree nodes in blocks of at most ``size``."""
        for segment in self.segments:
            for start in range(segment.start, segment.stop, size):
                nodes = np.arange(start, min(start + size, segment.stop))
                keys = np.concatenate([segment.tree.ancestors(start), nodes])
                visible = segment.tree.visible(nodes, keys)
                queries = segment.row_of(nodes)
                yield Neighbours(segment.context, queries, _keys(segment, self.carried, keys), visible)


def pack(trees: Sequence[PrefixTree], max_rows: int) -> Iterator[PackedBatch]:
    """Pack every node once, in order, into batches of at most ``max_rows`` unless a prefix is longer."""
    path = _NO_NODES
    for segments in _segments(trees, max_rows):
        # what the batch before kept is what this one carries
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
            # a prefix is never cut, and comes with a node at least, or nothing in the batch would look at
            # it
            if segments and size - row < prefix + 1:
                yield tuple(segments)
                segments = []
                row = 0
            stop = min(count, start + max(1, size - row - prefix))
            segments.append(Segment(context, tree, row, prefix, start, stop))
            row += segments[-1].rows
            start = stop
            # the next segment of this tree finds the prefix in TreeAttention
            prefix = 0
    if segments:
        yield tuple(segments)


def _batch(segments: tuple[Segment, ...], carried: Ints, path: Ints) -> PackedBatch:
    """Build a batch, with the paths to the first node of this batch and of the next."""
    tokens, positions, outputs = [], [], []
    for segment in segments:
        tree = segment.tree
        nodes = slice(segment.start, segment.stop)
        tokens += [np.array(tree.prefix[: segment.prefix], dtype=np.int64), tree.tokens[nodes]]
        positions += [np.arange(segment.prefix), len(tree.prefix) + tree.depth[nodes]]
        outputs.append(segment.row_of(segment.outputs))
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
    """Map each node of a segment and its earlier ancestors to their keys.

    A segment that goes on with nodes 5, 6, 7 of a tree whose node 5 has the ancestors 0, 1, 4 finds those
    three carried, at keys 0, 1, 2. If it is the first of its batch, its own nodes follow as keys 3, 4, 5.
    """
    # nodes before the segment's start are ancestors, which carried lists in ascending order
    segment_keys = len(carried) + segment.row_of(nodes)
    return np.where(nodes < segment.start, np.searchsorted(carried, nodes), segment_keys)
