from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from masked_prompts import prompts

from selfreflect.metric.engine.native import Tiles, cut_tiles
from selfreflect.metric.engine.packing import Neighbours, PackedBatch, pack
from selfreflect.metric.engine.tree import PrefixTree, build_tree

Row = tuple[int, int | str]
"""(context, node), or (context, "prefix i")."""


def rows_of(batch: PackedBatch) -> list[Row]:
    rows: list[Row] = []
    for s in batch.segments:
        assert s.first_row == len(rows)
        rows += [(s.context, f"prefix {i}") for i in range(s.prefix)]
        assert s.nodes_row == len(rows)
        rows += [(s.context, node) for node in range(s.start, s.stop)]
        assert s.rows == len(rows) - s.first_row
    return rows


def seen_by(
    blocks: Iterable[Neighbours], size: int, queries: list[Row], keys: list[Row]
) -> dict[Row, set[Row]]:
    """What each query of the blocks may look at."""
    seen = {}
    for block in blocks:
        assert 0 < len(block.queries) <= size
        assert len(block.keys) == len(set(block.keys.tolist()))  # no key counts twice
        for place, row in enumerate(block.queries.tolist()):
            query = queries[row]
            assert block.context == query[0]
            assert query not in seen
            seen[query] = {keys[key] for key in block.keys[block.visible[place]]}
    return seen


def seen_by_lanes(tiles: Tiles, group: int, queries: list[Row], keys: list[Row]) -> dict[Row, set[Row]]:
    """What each query of the tiles sees, its prefix included; all heads of a query must see the same."""
    seen = {}
    for at, context in enumerate(np.array(tiles.contexts)[tiles.context].tolist()):
        listed = [keys[key] for key in tiles.keys[at, : tiles.count[at]]]
        assert len(listed) == len(set(listed))  # no key counts twice
        for i, query in enumerate(tiles.queries[at].tolist()):
            lanes = [
                [int(bits) >> (i * group + head) & 1 for head in range(group)]
                for bits in tiles.visible[at, : tiles.count[at]]
            ]
            assert all(len(set(heads)) == 1 for heads in lanes)
            found = {key for key, heads in zip(listed, lanes, strict=True) if heads[0]}
            if query < 0:
                assert not found
                continue
            assert queries[query] not in seen
            seen[queries[query]] = found | {(context, f"prefix {place}") for place in range(tiles.before[at])}
    return seen


@given(st.lists(prompts(), min_size=1, max_size=4), st.integers(1, 40), st.integers(1, 5), st.integers(1, 4))
def test_every_row_goes_through_once_and_sees_its_path(asked, max_rows, block, tile):
    trees = [build_tree(some) for some in asked]
    done: list[Row] = []
    outputs: list[Row] = []
    carried: list[Row] = []
    for batch in pack(trees, max_rows):
        rows = rows_of(batch)
        keys = carried + rows
        check_rows(batch, trees, rows, keys)
        nodes = [row for row in rows if not isinstance(row[1], str)]
        truth = {row: path(trees, row) for row in nodes}
        assert seen_by(batch.neighbours(block), block, rows, keys) == truth
        targets = [rows[row] for row in batch.outputs]
        last = batch.neighbours(block, outputs_only=True)
        assert seen_by(last, block, targets, keys) == {row: truth[row] for row in targets}
        whole = {row: truth.get(row, set()) | before(trees, row) for row in rows}
        assert seen_by_lanes(cut_tiles(batch, tile, 3, outputs_only=False), 3, rows, keys) == whole
        assert seen_by_lanes(cut_tiles(batch, tile, 1, outputs_only=True), 1, targets, keys) == {
            row: whole[row] for row in targets
        }
        done, outputs, carried = done + rows, outputs + targets, [keys[key] for key in batch.carry]
    expected = [
        [(c, f"prefix {i}") for i in range(len(p.prefix))] + [(c, n) for n in range(len(p.tokens))]
        for c, p in enumerate(trees)
    ]
    assert done == [row for rows in expected for row in rows]
    assert outputs == [(context, node) for context, tree in enumerate(trees) for node in tree.outputs]
    assert carried == []


def check_rows(batch: PackedBatch, trees: list[PrefixTree], rows: list[Row], keys: list[Row]) -> None:
    for at, (context, node) in enumerate(rows):
        tree = trees[context]
        prefix = isinstance(node, str)
        place = int(node.removeprefix("prefix ")) if prefix else len(tree.prefix) + tree.depth[node]
        assert batch.positions[at] == place
        assert batch.tokens[at] == (tree.prefix[place] if prefix else tree.tokens[node])
    assert batch.key_positions[len(keys) - len(rows) :].tolist() == batch.positions.tolist()
    for at, (context, node) in enumerate(keys[: len(keys) - len(rows)]):
        assert batch.key_positions[at] == len(trees[context].prefix) + trees[context].depth[node]


def path(trees: list[PrefixTree], row: Row) -> set[Row]:
    context, node = row
    return {row, *((context, int(above)) for above in trees[context].ancestors(node))}


def before(trees: list[PrefixTree], row: Row) -> set[Row]:
    """The rows of prefixes that a row sees."""
    context, node = row
    stop = int(node.removeprefix("prefix ")) + 1 if isinstance(node, str) else len(trees[context].prefix)
    return {(context, f"prefix {place}") for place in range(stop)}


@given(st.lists(prompts(), min_size=1, max_size=4), st.integers(1, 40))
def test_passes_are_even_and_only_a_long_prefix_exceeds_the_limit(asked, max_rows):
    trees = [build_tree(some) for some in asked]
    passes = list(pack(trees, max_rows))
    for batch in passes:
        longest = max(s.prefix for s in batch.segments)
        assert len(batch.tokens) <= max(max_rows, longest + 1)
    if max(len(tree.prefix) for tree in trees) == 0:
        sizes = [len(batch.tokens) for batch in passes]
        assert max(sizes) - min(sizes) <= len(sizes)
