"""When scoring stops, on synthetic distances: budgets hold, and every summary gets the same words."""

from __future__ import annotations

import numpy as np
import pytest

from selfreflect.metric.engine.tree import Prompt, build_tree
from selfreflect.metric.inputs import Limits
from selfreflect.metric.prompts import masked_words
from selfreflect.metric.sampling import BudgetScoring, Cost, OverBudgetError, Population
from selfreflect.records import WordDistance


class Synthetic:
    """A question with made-up distances. ``rates`` has a row per summary and a column per word: distance per
    token task."""

    def __init__(self, rates, answers=12, seed=0):
        rng = np.random.default_rng(seed)
        self.rates = np.atleast_2d(rates)
        length = self.rates.shape[1] // answers
        self.words = masked_words([" ".join(f"word{a}x{w}" for w in range(length)) for a in range(answers)])
        self.sizes = rng.integers(1, 5, len(self.words)).tolist()
        self.prompts = [self._context(name, length) for name in range(len(self.rates) + 1)]
        self.population = Population(self.words, self.sizes, seed, "q")
        self.computed = 0

    def _context(self, name, length):
        start = (1000 + name, *range(40))
        return [
            Prompt(
                ids=(
                    *start,
                    w.answer + 100,
                    *[50] * w.word,
                    60,
                    *[51] * (length - w.word),
                    *range(70, 70 + k),
                ),
                first=43 + length,
            )
            for w, k in zip(self.words, self.sizes, strict=True)
        ]

    def measure(self, words):
        for prompts in self.prompts:
            self.computed += build_tree([prompts[word] for word in words]).computed_tokens
        return [
            [WordDistance(answer=0, word=w, text="x", distances=(rates[w],) * self.sizes[w]) for w in words]
            for rates in self.rates
        ]

    def run(self, budget, **given):
        scoring = BudgetScoring(self.population, self.prompts, Limits.parse(budget), self.measure, **given)
        scoring.run()
        return scoring


def noisy(gaps, words=240, noise=0.02, seed=0, common=0.03):
    """Summaries whose mean rates differ by ``gaps``, with noise of their own over a common one: distances are
    skewed, as real ones are."""
    rng = np.random.default_rng(seed)
    shared = 0.05 + common * rng.gamma(2, 0.5, words)
    return np.array([np.clip(shared + gap + noise * (rng.gamma(2, 0.7, words) - 1.4), 0, 1) for gap in gaps])


@pytest.mark.parametrize("budget", [400, 1500, 4000, 9000, 20_000])
def test_a_token_budget_is_used_and_never_exceeded(budget):
    question = Synthetic(noisy([0, 0.01]))
    scoring = question.run(budget)
    assert question.computed <= budget
    assert question.computed > 0.7 * min(
        budget, sum(Cost(question.population, p).tokens(240) for p in question.prompts)
    )
    assert [set(of_one) for of_one in scoring.distances] == [
        set(question.population.indices(scoring.size))
    ] * 2


def test_a_bigger_budget_scores_more_of_the_same_words():
    smaller, larger = (Synthetic(noisy([0])).run(budget).distances[0] for budget in (2000, 4000))
    assert set(smaller) < set(larger)


def test_a_budget_for_everything_scores_every_word_in_one_round():
    question = Synthetic(noisy([0]))
    need = sum(build_tree(prompts).computed_tokens for prompts in question.prompts)
    assert question.run(need).size == question.population.size
    assert question.computed == need


def test_a_budget_without_room_for_one_word_says_what_is_needed():
    question = Synthetic(noisy([0, 0]))
    with pytest.raises(OverBudgetError) as caught:
        question.run(100)
    assert question.computed == 0
    assert Synthetic(noisy([0, 0])).run(caught.value.needed).size == 1


def test_no_more_words_than_earlier_scores_have():
    scoring = Synthetic(noisy([0])).run(10**6, max_words=50)
    assert (scoring.size, scoring.stopped) == (50, "paired")
