"""When scoring stops, on synthetic distances: budgets hold, errors are reached, and a race rarely names a
wrong order."""

from __future__ import annotations

import math

import numpy as np
import pytest

from selfreflect.metric.engine.tree import Prompt, build_tree
from selfreflect.metric.limits import Limits
from selfreflect.metric.prompts import masked_words
from selfreflect.metric.sampling.population import Cost, Population
from selfreflect.metric.sampling.sequential import FIRST_ROUND, OverBudgetError, SequentialScoring
from selfreflect.metric.scorer import finite
from selfreflect.records import WordDistance


class Synthetic:
    """A question with made-up distances. ``rates`` has a row per summary and a column per word: distance per
    token task."""

    def __init__(self, rates, answers=12, seed=0, count=True):
        self.count = count
        rng = np.random.default_rng(seed)
        self.rates = np.atleast_2d(rates)
        length = self.rates.shape[1] // answers
        self.words = masked_words([" ".join(f"word{a}x{w}" for w in range(length)) for a in range(answers)])
        self.sizes = rng.integers(1, 5, len(self.words)).tolist()
        self.prompts = [
            self._context(name, length) if count else [name] for name in range(len(self.rates) + 1)
        ]
        self.population = Population(self.words, self.sizes, seed, "q")
        self.computed = 0
        self.scored = np.zeros(len(self.rates), dtype=int)

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

    def measure(self, words, live):
        if self.count:
            self.computed += sum(
                build_tree([self.prompts[i][word] for word in words]).computed_tokens
                for i in (0, *(1 + i for i in live))
            )
        found = []
        for index in live:
            self.scored[index] += len(words)
            found.append(
                [
                    WordDistance(
                        answer=0, word=w, text="x", distances=(self.rates[index][w],) * self.sizes[w]
                    )
                    for w in words
                ]
            )
        return found

    def rounds(self, budget=None, standard_error=None, race=None, seed=0, **given):
        limits = Limits.parse(budget, standard_error, race, seed)
        return SequentialScoring(
            self.population, self.prompts[0], self.prompts[1:], limits, self.measure, **given
        )

    @property
    def exact(self):
        return self.rates @ self.sizes / sum(self.sizes)


def noisy(gaps, words=240, noise=0.02, seed=0, common=0.03):
    """Summaries whose mean rates differ by ``gaps``, with noise of their own over a common one: distances are
    skewed, as real ones are."""
    rng = np.random.default_rng(seed)
    shared = 0.05 + common * rng.gamma(2, 0.5, words)
    return np.array([np.clip(shared + gap + noise * (rng.gamma(2, 0.7, words) - 1.4), 0, 1) for gap in gaps])


# --- budgets


@pytest.mark.parametrize("budget", [400, 1500, 4000, 9000, 20_000])
def test_a_token_budget_is_used_and_never_exceeded(budget):
    question = Synthetic(noisy([0, 0.01]))
    outcomes = question.rounds(budget=budget).run()
    assert question.computed <= budget
    assert question.computed > 0.7 * min(
        budget, sum(Cost(question.population, p).tokens(0, 240) for p in question.prompts)
    )
    assert {outcome.size for outcome in outcomes} == {outcomes[0].size}
    assert (
        set(outcomes[0].distances)
        == set(outcomes[1].distances)
        == set(question.population.indices(outcomes[0].size))
    )


@pytest.mark.parametrize(
    "others", [{"standard_error": 1e-4}, {"race": 0.95}, {"standard_error": 1e-4, "race": 0.95}]
)
def test_a_token_budget_holds_over_several_rounds_too(others):
    question = Synthetic(noisy([0, 0.0001]))
    outcomes = question.rounds(budget=9000, **others).run()
    assert 3000 < question.computed <= 9000
    assert {outcome.stopped for outcome in outcomes} == {"budget"}


def test_a_bigger_budget_scores_more_of_the_same_words():
    smaller, larger = (Synthetic(noisy([0])).rounds(budget=budget).run()[0] for budget in (2000, 4000))
    assert set(smaller.distances) < set(larger.distances)


def test_a_budget_for_everything_scores_every_word_in_one_round():
    question = Synthetic(noisy([0]))
    need = sum(build_tree(prompts).computed_tokens for prompts in question.prompts)
    assert question.rounds(budget=need).run()[0].size == question.population.size
    assert question.computed == need


def test_a_budget_without_room_for_one_word_says_what_is_needed():
    question = Synthetic(noisy([0, 0]))
    with pytest.raises(OverBudgetError) as caught:
        question.rounds(budget=100).run()
    assert question.computed == 0
    assert Synthetic(noisy([0, 0])).rounds(budget=caught.value.needed).run()[0].size == 1


def test_time_is_kept_by_the_speed_of_the_first_round():
    """A machine of 1000 tokens per second: in 5 seconds it may compute about 5000."""
    question = Synthetic(noisy([0, 0.01]))
    outcomes = question.rounds(budget="5s", clock=lambda: question.computed / 1000).run()
    assert 3000 < question.computed <= 5000
    assert 8 < outcomes[0].size < 240
    assert outcomes[0].stopped == "budget"


def test_no_more_words_than_earlier_scores_have():
    [outcome] = Synthetic(noisy([0])).rounds(standard_error=1e-6, max_words=50).run()
    assert (outcome.size, outcome.stopped) == (50, "paired")


# --- standard errors


def test_scoring_goes_on_until_every_error_is_small_enough():
    question = Synthetic(noisy([0, 0.05]))
    rounds = question.rounds(standard_error=0.002)
    outcomes = rounds.run()
    assert {outcome.stopped for outcome in outcomes} == {"standard_error"}
    assert FIRST_ROUND < outcomes[0].size == outcomes[1].size < 240
    for outcome, exact in zip(outcomes, question.exact, strict=True):
        found = rounds._mean(outcome.size, outcome.values)
        assert found.sampling_error <= 0.002
        assert abs(found.mean - exact) < 5 * 0.002


def test_an_error_that_is_out_of_reach_ends_with_all_words():
    assert Synthetic(noisy([0])).rounds(standard_error=1e-9).run()[0].size == 240


def test_a_summary_without_finite_distances_stops_alone():
    rates = noisy([0, 0])
    rates[1, :] = math.nan
    broken = Synthetic(rates)
    fine, nonsense = broken.rounds(standard_error=0.002).run()
    assert not finite(nonsense.words)
    assert nonsense.size == FIRST_ROUND < fine.size


# --- races


def test_a_race_drops_what_is_decided_and_goes_on_with_what_is_close():
    question = Synthetic(noisy([0, 0.0005, 0.1]))
    first, second, far = question.rounds(race=0.95).run()
    assert (far.stopped, far.size) == ("race", FIRST_ROUND)
    assert set(far.ordered) == {0, 1}
    assert first.size == second.size > FIRST_ROUND
    assert 2 in first.ordered


def test_a_race_saves_most_of_the_work_where_differences_are_large():
    question = Synthetic(noisy([0, 0.05, 0.1]))
    outcomes = question.rounds(race=0.95).run()
    assert question.scored.sum() < 3 * 240 / 3
    assert [outcome.stopped for outcome in outcomes] == ["race"] * 3


def test_a_lone_summary_and_equal_ones_are_not_raced():
    assert Synthetic(noisy([0])).rounds(race=0.95).run()[0].size == 240
    twins = Synthetic(np.repeat(noisy([0]), 2, axis=0))
    twins.prompts[2] = twins.prompts[1]
    assert [outcome.size for outcome in twins.rounds(race=0.95).run()] == [240, 240]


@pytest.mark.parametrize(
    "draw",
    [
        pytest.param(lambda rng: noisy([0, 0.002, 0.004], seed=int(rng.integers(2**31))), id="close"),
        pytest.param(lambda rng: rng.beta(0.5, 6, (3, 240)), id="skewed"),
        pytest.param(
            lambda rng: 0.1 + 0.5 * (rng.random((3, 240)) < 0.05) + 0.02 * rng.random((3, 240)),
            id="rare large ones",
        ),
        pytest.param(
            lambda rng: np.repeat(rng.beta(2, 12, (3, 12)), 20, axis=1) + 0.02 * rng.random((3, 240)),
            id="answers differ",
        ),
    ],
)
def test_a_race_names_a_wrong_order_at_most_as_often_as_it_says(draw):
    """Wrong against the order that all words give, in at least one pair of the question, at the look that
    decided it."""
    rng, wrong, decided, trials = np.random.default_rng(11), 0, 0, 100
    for trial in range(trials):
        question = Synthetic(draw(rng), seed=trial, count=False)
        witness = Witness(
            question.population,
            question.prompts[0],
            question.prompts[1:],
            Limits.parse(race=0.9),
            question.measure,
        )
        witness.run()
        exact = question.exact
        wrong += any(sign != np.sign(exact[a] - exact[b]) for (a, b), sign in witness.decided.items())
        decided += len(witness.decided)
    assert decided
    assert wrong / trials <= 0.1


class Witness(SequentialScoring):
    """Remembers for each pair the sign of the difference at the look that decided it."""

    def _decide_pairs(self, size, live, error):
        before = set(self._undecided)
        super()._decide_pairs(size, live, error)
        self.decided = getattr(self, "decided", {})
        for a, b in before - self._undecided:
            one, other = self.results[a].values, self.results[b].values
            self.decided[a, b] = np.sign(
                self._mean(size, {word: one[word] - other[word] for word in one}).mean
            )
