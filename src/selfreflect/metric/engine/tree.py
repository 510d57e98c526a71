"""Token ids only: the prefix tree of all masked-out prompts behind one context.

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

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Prompt:
    """One tokenised conversation; tokens ``first:`` are the masked word, each predicted from the position
    before it."""

    ids: tuple[int, ...]
    first: int


@dataclass(frozen=True)
class PrefixTree:
    """What has to be computed for one context, every tree node once.

    ``prefix`` is shared by all prompts. The tree below it has M nodes: ``tokens``, ``depth`` (0 for the first
    token after the prefix), ``parent`` (-1 for the prefix) and ``end`` (one past the last descendant), each
    of shape (M,). ``wanted`` lists the W nodes whose next-token distribution is a token task. ``rows[i]``
    holds, for prompt i, the index into ``wanted`` of each token of its word.
    """

    prefix: tuple[int, ...]
    tokens: Ints
    depth: Ints
    parent: Ints
    end: Ints
    wanted: Ints
    rows: tuple[tuple[int, ...], ...]

    @property
    def computed_tokens(self) -> int:
        """Tokens that go through the model: the lower bound for this context."""
        return len(self.prefix) + len(self.tokens)

    @property
    def longest(self) -> int:
        """Tokens of the longest sequence."""
        return len(self.prefix) + int(self.depth.max()) + 1

    def ancestors(self, node: int) -> Ints:
        """The path from the prefix to ``node``, without it."""
        path = []
        while (node := int(self.parent[node])) >= 0:
            path.append(node)
        return np.array(path[::-1], dtype=np.int64)

    def visible(self, queries: Ints, keys: Ints) -> npt.NDArray[np.bool_]:
        """Which key nodes each query node may attend to: its ancestors and itself. Shape (queries, keys)."""
        return (keys[None, :] <= queries[:, None]) & (queries[:, None] < self.end[keys][None, :])


def build_tree(prompts: Sequence[Prompt]) -> PrefixTree:
    """Merge prompts into their prefix tree. The last token of a word is only predicted, never fed, so it is
    no node.

    Raises:
        ValueError: there are no prompts, or one of them has no token to predict.
    """
    if not prompts or any(not 0 < p.first < len(p.ids) for p in prompts):
        raise ValueError("a plan needs prompts, each with at least one token before and in its masked word")
    shared = _shared(prompts)
    fed = [p.ids[shared:-1] for p in prompts]

    tokens: list[int] = []
    depth: list[int] = []
    parent: list[int] = []
    paths: dict[tuple[int, ...], list[int]] = {}
    previous: tuple[int, ...] = ()
    path: list[int] = []
    for branch in sorted(set(fed)):
        keep = _common(previous, branch)
        new = range(len(tokens), len(tokens) + len(branch) - keep)
        parent.extend([path[keep - 1] if keep else -1, *new][: len(new)])
        tokens.extend(branch[keep:])
        depth.extend(range(keep, len(branch)))
        path = path[:keep] + list(new)
        paths[branch], previous = path, branch

    word_nodes = [paths[f][p.first - 1 - shared :] for f, p in zip(fed, prompts, strict=True)]
    wanted = sorted({node for nodes in word_nodes for node in nodes})
    row_of = {node: row for row, node in enumerate(wanted)}
    return PrefixTree(
        prefix=prompts[0].ids[:shared],
        tokens=np.array(tokens, dtype=np.int64),
        depth=np.array(depth, dtype=np.int64),
        parent=np.array(parent, dtype=np.int64),
        end=_subtree_ends(parent),
        wanted=np.array(wanted, dtype=np.int64),
        rows=tuple(tuple(row_of[node] for node in nodes) for nodes in word_nodes),
    )


def _shared(prompts: Sequence[Prompt]) -> int:
    """Length of the prefix: what all prompts begin with, before the position that predicts the first of their
    words."""
    start = prompts[0].ids[: min(p.first for p in prompts) - 1]
    for prompt in prompts:
        # one fast comparison; only where it fails is the place looked for
        if prompt.ids[: len(start)] != start:
            start = start[: _common(start, prompt.ids)]
    return len(start)


def _subtree_ends(parent: list[int]) -> Ints:
    """One past each node's last descendant; children come after their parents, so one backward sweep is
    enough."""
    end = list(range(1, len(parent) + 1))
    for node in range(len(parent) - 1, -1, -1):
        if (above := parent[node]) >= 0 and end[node] > end[above]:
            end[above] = end[node]
    return np.array(end, dtype=np.int64)


def _common(a: Sequence[int], b: Sequence[int]) -> int:
    """Length of the longest common prefix."""
    for i, (x, y) in enumerate(zip(a, b, strict=False)):
        if x != y:
            return i
    return min(len(a), len(b))
