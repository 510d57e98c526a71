"""Which words are scored under a limit, what they may cost, and that estimates from them are unbiased."""

from __future__ import annotations

from itertools import pairwise, permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from selfreflect.metric.engine.tree import Prompt, build_tree
from selfreflect.metric.prompts import masked_words
from selfreflect.metric.sampling import Cost, Population, WordSample

ANSWERS = [
    "Radishes grow very fast indeed.",
    "Lettuce, peas",
    "",
    "Radishes grow very fast indeed.",
    "kale",
    "Perhaps early tomatoes, basil",
]


def population(answers=ANSWERS, seed=0, question="q", sizes=None) -> Population:
    words = masked_words(answers)
    return Population(words, sizes or [1 + len(word.text) // 3 for word in words], seed, question)


# --- which words


def test_a_bigger_sample_extends_a_smaller_one():
    words = population()
    samples = [set(words.indices(size)) for size in range(words.size + 1)]
    assert samples[0] == set()
    assert all(smaller < larger for smaller, larger in pairwise(samples))
    assert samples[-1] == set(range(len(masked_words(ANSWERS))))


def test_equal_answers_are_scored_together_and_count_twice():
    words, all_words = population(), masked_words(ANSWERS)
    assert words.size == len(all_words) - sum(word.answer == 3 for word in all_words)
    for size in range(words.size + 1):
        chosen = [all_words[index] for index in words.indices(size)]
        assert [w.word for w in chosen if w.answer == 0] == [w.word for w in chosen if w.answer == 3]
    values = dict.fromkeys(range(len(all_words)), 1.0)
    assert sorted(drawn.copies for drawn in words.samples(words.size, values)) == [1, 1, 1, 2]


def test_every_answer_has_a_word_before_one_has_two_and_then_shares_follow_token_tasks():
    words = population(["a b c d e f g h i j k l", "m n o", "p q r"], sizes=[4] * 12 + [4] * 6)
    assert sorted(words.quotas(2)) == [0, 1, 1]
    assert words.quotas(3) == [1, 1, 1]
    assert words.quotas(9) == [7, 1, 1]
    assert words.quotas(18) == [12, 3, 3]


def test_the_subset_depends_on_seed_and_question_alone():
    assert population().indices(5) == population().indices(5)
    assert len({tuple(population(seed=seed).indices(5)) for seed in range(20)}) > 5
    assert len({tuple(population(question=f"q{number}").indices(5)) for number in range(20)}) > 5
    assert population(question="\ud800").indices(2)


def test_first_words_come_with_probability_by_their_token_tasks():
    firsts = [population(["a b"], seed, sizes=[1, 4]).indices(1)[0] for seed in range(2000)]
    assert np.mean(firsts) == pytest.approx(0.8, abs=0.03)


@pytest.mark.parametrize("size", [1, 3, 4, 6, 9])
def test_the_size_of_an_earlier_sample_is_found_again(size):
    words = population()
    assert words.size_within(len(words.indices(size))) == size


def test_a_sample_has_a_word_even_if_its_copies_are_more_than_wanted():
    words = population(["a b"] * 5)
    assert len(words.indices(1)) == 5
    assert words.size_within(2) == 1


def test_drawn_words_carry_their_values_in_the_order_of_the_draws():
    words = population(["a b c", "d e"], sizes=[1, 2, 3, 4, 5])
    for drawn in words.samples(5, {index: 10.0 * (1 + index) for index in range(5)}):
        assert [value / size for value, size in zip(drawn.values, drawn.sizes, strict=True)] == [10.0] * len(
            drawn.sizes
        )
        assert sum(drawn.sizes) == drawn.total_size
    assert isinstance(words.samples(1, dict.fromkeys(range(5), 1.0))[0], WordSample)


def test_answer_means_are_those_of_the_words_that_were_drawn():
    words = population(["a b", "c", "a b"], sizes=[1, 1, 2, 1, 1])
    values = {0: 0.2, 1: 0.4, 2: 0.6, 3: 0.2, 4: 0.4}
    assert words.answer_means(3, values) == pytest.approx({0: 0.3, 1: 0.3, 2: 0.3})
    partial = words.answer_means(1, values)
    assert set(partial) in ({0, 2}, {1})


# --- what they may cost

TOKENS = st.integers(0, 2)


@st.composite
def some_prompts(draw):
    """Prompts of masked words with much in common, as token ids of three letters make them."""
    answers = draw(
        st.lists(
            st.lists(st.sampled_from(["x", "y", "zz"]), min_size=1, max_size=4).map(" ".join),
            min_size=1,
            max_size=4,
        )
    )
    words = masked_words(answers)
    shared = tuple(draw(st.lists(TOKENS, min_size=1, max_size=3)))
    prompts = []
    for word in words:
        ids = (*shared, *({"_": 3, "x": 0, "y": 1, "zz": 2}[w] for w in word.masked.split()), 7)
        prompts.append(Prompt(ids=(*ids, *[5] * len(word.text)), first=len(ids)))
    return words, prompts


@given(some_prompts(), st.integers(1, 30), st.integers(0, 5))
def test_no_sample_costs_more_than_its_bound(made, size, seed):
    words, prompts = made
    found = Population(words, [len(p.ids) - p.first for p in prompts], seed, "q")
    size = min(size, found.size)
    tree = build_tree([prompts[index] for index in sorted(found.indices(size))])
    assert tree.computed_tokens <= Cost(found, prompts).tokens(size)


@given(some_prompts())
def test_all_words_cost_what_the_tree_has_and_bounds_grow(made):
    words, prompts = made
    found = Population(words, [len(p.ids) - p.first for p in prompts], 0, "q")
    cost = Cost(found, prompts)
    bounds = [cost.tokens(size) for size in range(1, found.size + 1)]
    assert bounds == sorted(bounds)
    assert bounds[-1] == build_tree(prompts).computed_tokens


def test_the_bound_of_one_answer_is_reached_by_its_dearest_words():
    """Exact, not only safe: with one answer some choice of words costs as much."""
    words = masked_words(["x y zz x"])
    prompts = []
    for word in words:
        ids = (9, *({"_": 3, "x": 0, "y": 1, "zz": 2}[w] for w in word.masked.split()), 7)
        prompts.append(Prompt(ids=(*ids, *[5] * len(word.text)), first=len(ids)))
    found = Population(words, [len(p.ids) - p.first for p in prompts], 0, "q")
    for size in range(1, 5):
        dearest = max(
            build_tree([prompts[i] for i in some]).computed_tokens for some in permutations(range(4), size)
        )
        assert Cost(found, prompts).tokens(size) == dearest
