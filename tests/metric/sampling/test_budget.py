"""How many words a budget pays for: it is used, and never exceeded."""

from __future__ import annotations

import numpy as np
import pytest

from selfreflect.metric.engine.tree import Prompt, build_tree
from selfreflect.metric.prompts import masked_words
from selfreflect.metric.sampling import Cost, OverBudgetError, Population, size_within_budget

ANSWERS, WORDS_PER_ANSWER = 12, 20


def question(summaries: int = 1) -> tuple[Population, list[list[Prompt]]]:
    """The masked words of a question, and their prompts after the reference and each summary."""
    rng = np.random.default_rng(0)
    texts = [" ".join(f"word{a}x{w}" for w in range(WORDS_PER_ANSWER)) for a in range(ANSWERS)]
    words = masked_words(texts)
    sizes = rng.integers(1, 5, len(words)).tolist()
    contexts = []
    for name in range(summaries + 1):
        start, prompts = (1000 + name, *range(40)), []
        for word, size in zip(words, sizes, strict=True):
            masked = (word.answer + 100, *[50] * word.word, 60, *[51] * (WORDS_PER_ANSWER - word.word))
            ids = (*start, *masked, *range(70, 70 + size))
            prompts.append(Prompt(ids=ids, first=43 + WORDS_PER_ANSWER))
        contexts.append(prompts)
    return Population(words, sizes, 0, "q"), contexts


def computed(population: Population, contexts: list[list[Prompt]], size: int) -> int:
    words = population.indices(size)
    return sum(build_tree([prompts[word] for word in words]).computed_tokens for prompts in contexts)


@pytest.mark.parametrize("budget", [400, 1500, 4000, 9000, 20_000])
def test_a_token_budget_is_used_and_never_exceeded(budget):
    population, contexts = question(summaries=2)
    size = size_within_budget(population, contexts, budget, population.size)
    whole = sum(Cost(population, prompts).tokens(population.size) for prompts in contexts)
    assert 0.7 * min(budget, whole) < computed(population, contexts, size) <= budget


def test_a_budget_for_everything_scores_every_word_and_no_more_than_the_largest_size():
    population, contexts = question()
    need = sum(build_tree(prompts).computed_tokens for prompts in contexts)
    assert size_within_budget(population, contexts, need, population.size) == population.size
    assert size_within_budget(population, contexts, need, 50) == 50


def test_a_budget_without_room_for_one_word_says_what_is_needed():
    population, contexts = question(summaries=2)
    with pytest.raises(OverBudgetError) as caught:
        size_within_budget(population, contexts, 100, population.size)
    assert size_within_budget(population, contexts, caught.value.needed, population.size) == 1
