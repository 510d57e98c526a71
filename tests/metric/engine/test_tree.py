from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from masked_prompts import prompts

from selfreflect.metric.engine.attention import Tiles, cut_tiles
from selfreflect.metric.engine.tree import Neighbours, PackedBatch, PrefixTree, Prompt, build_tree, pack


def spell(tree: PrefixTree, node: int) -> tuple[int, ...]:
    """The whole sequence that ends in ``node``."""
    path = [*tree.ancestors(node).tolist(), node]
    return (*tree.prefix, *tree.tokens[path].tolist())


def common_prefix(sequences: list[tuple[int, ...]]) -> int:
    return next(
        (i for i in range(min(map(len, sequences))) if len({ids[i] for ids in sequences}) > 1),
        min(map(len, sequences)),
    )


def is_ancestor(tree: PrefixTree, above: int, node: int) -> bool:
    return above == node or above in tree.ancestors(node)


@given(prompts())
def test_the_nodes_are_the_distinct_sequences_that_are_fed(asked):
    tree = build_tree(asked)
    shared = len(tree.prefix)
    # The last token of a word is predicted but never fed.
    fed = {prompt.ids[:stop] for prompt in asked for stop in range(shared + 1, len(prompt.ids))}
    spelled = [spell(tree, node) for node in range(len(tree.tokens))]
    assert len(spelled) == len(fed)
    assert set(spelled) == fed
    assert tree.computed_tokens == shared + len(fed)
    assert tree.longest == max(len(prompt.ids) - 1 for prompt in asked)
    assert [len(sequence) - shared - 1 for sequence in spelled] == tree.depth.tolist()


@given(prompts())
def test_the_prefix_is_as_long_as_it_may_be(asked):
    # The position that predicts a word's first token must be a node, so the prefix ends before it.
    cap = min(prompt.first for prompt in asked) - 1
    assert len(build_tree(asked).prefix) == min(common_prefix([prompt.ids for prompt in asked]), cap)


@given(prompts())
def test_each_token_of_a_word_is_predicted_from_all_tokens_before_it(asked):
    tree = build_tree(asked)
    assert len(tree.rows) == len(asked)
    for prompt, rows in zip(asked, tree.rows, strict=True):
        assert [spell(tree, tree.outputs[row]) for row in rows] == [
            prompt.ids[:at] for at in range(prompt.first, len(prompt.ids))
        ]
    assert tree.outputs.tolist() == sorted(set(tree.outputs.tolist()))
    assert {row for rows in tree.rows for row in rows} == set(range(len(tree.outputs)))


@given(prompts())
def test_a_node_sees_itself_and_its_ancestors(asked):
    tree = build_tree(asked)
    nodes = np.arange(len(tree.tokens))
    expected = [[is_ancestor(tree, key, query) for key in nodes] for query in nodes]
    assert tree.visible(nodes, nodes).tolist() == expected
    assert tree.visible(nodes[-2:], nodes[:3]).tolist() == [row[:3] for row in expected[-2:]]


@given(prompts(), st.randoms(use_true_random=False))
def test_the_order_of_the_prompts_does_not_matter(asked, random):
    order = list(range(len(asked)))
    random.shuffle(order)
    tree, other = build_tree(asked), build_tree([asked[i] for i in order])
    assert tree.tokens.tolist() == other.tokens.tolist()
    assert [tree.rows[i] for i in order] == list(other.rows)


def test_one_prompt_is_a_chain_below_all_that_comes_before_its_word():
    tree = build_tree([Prompt(ids=(5, 6, 7, 8, 9), first=3)])
    assert tree.prefix == (5, 6)
    assert tree.tokens.tolist() == [7, 8]
    assert tree.parent.tolist() == [-1, 0]
    assert tree.outputs.tolist() == [0, 1]
    assert tree.rows == ((0, 1),)


@pytest.mark.parametrize(
    "asked", [[], [Prompt(ids=(1, 2), first=2)], [Prompt(ids=(1, 2), first=0)], [Prompt(ids=(), first=0)]]
)
def test_a_tree_without_anything_to_predict_is_refused(asked):
    with pytest.raises(ValueError, match="at least one token before and in its masked word"):
        build_tree(asked)


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
        whole = {row: truth.get(row, set()) | before(trees, row) for row in rows}
        for group in (1, 3):
            assert seen_by_lanes(cut_tiles(batch, tile, group), group, rows, keys) == whole
        done += rows
        outputs += [rows[row] for row in batch.outputs]
        carried = [keys[key] for key in batch.carry]
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
