"""Token ids only: the prefix tree of all masked-word prompts behind one context.

All prompts of a context begin alike, the masks of one answer share the words before the first of them, and
equal answers share everything. Sorted lexicographically, each prompt repeats the start of the one before it
and adds new tokens, so walking the sorted list visits the tree in depth-first order. In that order node j is
an ancestor of node i (or i itself) exactly when ``j <= i < end[j]``.
"""

from __future__ import annotations

from collections.abc import Sequence
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
    """What has to be computed for one context, every tree node once.

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
        """Tokens that go through the model: the lower bound for this context."""
        return len(self.prefix) + len(self.tokens)

    @property
    def longest(self) -> int:
        return len(self.prefix) + int(self.depth.max()) + 1

    def ancestors(self, node: int) -> Ints:
        """The path from the prefix to ``node``, without it."""
        path = []
        while (node := int(self.parent[node])) >= 0:
            path.append(node)
        return np.array(path[::-1], dtype=np.int64)

    def path(self, node: int) -> Ints:
        """The path from the prefix to ``node``, with it."""
        return np.append(self.ancestors(node), node)

    def visible(self, queries: Ints, keys: Ints) -> Bools:
        """Which key nodes each query node may attend to: its ancestors and itself. Shape (queries, keys)."""
        above = keys[None, :] <= queries[:, None]
        inside = queries[:, None] < self.end[keys][None, :]
        return above & inside


def build_tree(prompts: Sequence[Prompt]) -> PrefixTree:
    """Merge prompts into their prefix tree. The last token of a word is never fed, so it is no node.

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
    """How many tokens all prompts share before the position that predicts the first token of any word."""
    sequences = [prompt.ids for prompt in prompts]
    size = common_prefix(min(sequences), max(sequences))
    return min(size, min(prompt.first for prompt in prompts) - 1)


def _subtree_ends(parent: list[int]) -> Ints:
    """One past each node's last descendant. Children follow their parents, so one backward sweep suffices."""
    end = list(range(1, len(parent) + 1))
    for node in reversed(range(len(parent))):
        above = parent[node]
        if above >= 0:
            end[above] = max(end[above], end[node])
    return np.array(end, dtype=np.int64)
