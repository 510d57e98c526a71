from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from masked_prompts import prompts

from selfreflect.metric.engine.tree import PrefixTree, Prompt, build_tree


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


def test_a_prompt_that_begins_another_is_no_branch_of_its_own():
    tree = build_tree([Prompt(ids=(1, 2, 3, 4, 5), first=4), Prompt(ids=(1, 2, 3), first=2)])
    assert tree.prefix == (1,)
    assert tree.tokens.tolist() == [2, 3, 4]
    assert tree.rows == ((1,), (0,))


def test_equal_prompts_share_their_rows():
    tree = build_tree([Prompt(ids=(1, 2, 3), first=1)] * 3)
    assert tree.rows == ((0, 1),) * 3
    assert tree.tokens.tolist() == [1, 2]


def test_branches_with_equal_ends_are_different_nodes():
    tree = build_tree([Prompt(ids=(1, 2, 7, 7, 9), first=4), Prompt(ids=(1, 3, 7, 7, 9), first=4)])
    assert tree.tokens.tolist() == [2, 7, 7, 3, 7, 7]
    assert tree.end.tolist() == [3, 3, 3, 6, 6, 6]
    assert tree.rows == ((0,), (1,))


def test_a_word_that_begins_the_sequence_leaves_no_prefix():
    assert build_tree([Prompt(ids=(1, 2, 3), first=1), Prompt(ids=(1, 2, 4), first=2)]).prefix == ()


@pytest.mark.parametrize(
    "asked", [[], [Prompt(ids=(1, 2), first=2)], [Prompt(ids=(1, 2), first=0)], [Prompt(ids=(), first=0)]]
)
def test_a_tree_without_anything_to_predict_is_refused(asked):
    with pytest.raises(ValueError, match="at least one token before and in its masked word"):
        build_tree(asked)
