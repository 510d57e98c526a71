"""Means from some of the words: unbiased, with standard errors that hold."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from selfreflect.metric.sampling import WordSample, drawn_sum, sampled_mean
from selfreflect.stats import clustered_mean

SCORES = st.floats(0, 1, allow_subnormal=False)

# answers as (copies, token tasks of each word, summed distance of each word)
POPULATION = [
    (1, (1, 3, 2), (0.1, 0.5, 0.1)),
    (2, (2, 2), (0.5, 0.1)),
    (1, (4,), (1.3,)),
    (1, (1, 1, 1), (0.9, 0.2, 0.3)),
]


def orders(sizes):
    """Every order of draws with probability proportional to size among those left, and how probable it is."""
    for order in itertools.permutations(range(len(sizes))):
        probability, left = 1.0, sum(sizes)
        for place in order:
            probability *= sizes[place] / left
            left -= sizes[place]
        yield order, probability


def drawn(answer, order, n):
    copies, sizes, values = answer
    first = order[:n]
    return WordSample(
        sum(sizes), len(sizes), copies, tuple(sizes[i] for i in first), tuple(values[i] for i in first)
    )


def outcomes(quotas, answers=POPULATION):
    """Every sample of the given sizes with its probability, as estimated means."""
    choices = [
        [(drawn(a, order, n), p) for order, p in orders(a[1])] for a, n in zip(answers, quotas, strict=True)
    ]
    for combination in itertools.product(*choices):
        yield sampled_mean([one for one, _ in combination]), math.prod(p for _, p in combination)


def truth(answers=POPULATION):
    return sum(c * sum(v) for c, _, v in answers) / sum(c * sum(s) for c, s, _ in answers)


@pytest.mark.parametrize("quotas", [(1, 1, 1, 1), (2, 1, 1, 1), (2, 1, 1, 2), (3, 1, 1, 2), (3, 2, 1, 3)])
def test_the_mean_over_all_possible_samples_of_words_is_the_exact_mean(quotas):
    possible = list(outcomes(quotas))
    assert sum(p for _, p in possible) == pytest.approx(1)
    assert sum(p * found.mean for found, p in possible) == pytest.approx(truth(), abs=1e-12)


@pytest.mark.parametrize("n", [1, 2, 3])
def test_the_mean_over_all_possible_samples_of_answers_and_words_is_the_exact_mean(n):
    total, probability = 0.0, 0.0
    for order, p in orders([c * sum(s) for c, s, _ in POPULATION]):
        words = [[(drawn(POPULATION[a], o, 1), q) for o, q in orders(POPULATION[a][1])] for a in order[:n]]
        rest = [drawn(POPULATION[a], (), 0) for a in order[n:]]
        for combination in itertools.product(*words):
            q = p * math.prod(one for _, one in combination)
            total += q * sampled_mean([*(one for one, _ in combination), *rest]).mean
            probability += q
    assert probability == pytest.approx(1)
    assert total == pytest.approx(truth(), abs=1e-12)


def test_all_words_give_the_exact_mean_and_its_clustered_standard_error():
    whole = sampled_mean([drawn(answer, range(len(answer[1])), len(answer[1])) for answer in POPULATION])
    spread = [
        [v / s] * s
        for copies, sizes, values in POPULATION
        for _ in range(copies)
        for s, v in [(sum(sizes), sum(values))]
    ]
    assert (whole.mean, whole.stderr) == pytest.approx(clustered_mean(spread))
    assert whole.sampling_error == 0.0


def test_equal_sizes_make_it_the_textbook_formula_of_simple_random_sampling():
    values = (0.1, 0.7, 0.3)
    one = WordSample(7, 7, 1, (1, 1, 1), values)
    assert drawn_sum(one) == pytest.approx(7 * np.mean(values))
    expected = np.std(values, ddof=1) / math.sqrt(3) * math.sqrt(1 - 3 / 7)
    assert sampled_mean([one]).sampling_error == pytest.approx(expected)


def test_distances_that_follow_the_token_tasks_leave_no_sampling_error():
    found = sampled_mean([WordSample(9, 4, 1, (1, 3), (0.2, 0.6)), WordSample(5, 2, 3, (2,), (0.4,))])
    assert found.mean == pytest.approx(0.2)
    assert found.sampling_error == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize(
    ("quotas", "lowest", "highest"),
    [
        ((2, 1, 1, 2), 1.0, 3.5),
        ((1, 1, 1, 1), 1.0, 3.5),
        ((2, 2, 1, 2), 0.75, 1.3),
        ((2, 2, 1, 3), 0.75, 1.3),
    ],
)
def test_the_standard_error_is_right_on_average_and_rather_too_large_for_single_words(
    quotas, lowest, highest
):
    possible = list(outcomes(quotas))
    variance = sum(p * (found.mean - truth()) ** 2 for found, p in possible)
    estimated = sum(p * found.sampling_error**2 for found, p in possible)
    assert lowest < estimated / variance < highest


def test_one_word_says_nothing_of_its_spread():
    for answers in (
        [WordSample(5, 3, 1, (2,), (0.4,))],
        [WordSample(5, 3, 2, (2,), (0.4,)), WordSample(4, 2, 1, (), ())],
    ):
        found = sampled_mean(answers)
        assert found.mean == pytest.approx(0.2)
        assert (found.sampling_error, found.stderr) == (None, None)


def test_one_answer_has_an_error_of_sampling_and_none_of_answers():
    found = sampled_mean([WordSample(6, 3, 1, (2, 2), (0.2, 0.6))])
    assert found.sampling_error > 0
    assert found.stderr is None


@given(
    st.lists(
        st.tuples(st.integers(1, 3), st.lists(st.tuples(st.integers(1, 4), SCORES), min_size=1, max_size=4)),
        min_size=1,
        max_size=5,
    )
)
def test_the_error_with_answers_is_never_below_that_of_words_alone(made):
    answers = [
        WordSample(
            sum(s for s, _ in words) + 2,
            len(words) + 1,
            copies,
            tuple(s for s, _ in words),
            tuple(s * v for s, v in words),
        )
        for copies, words in made
    ]
    found = sampled_mean(answers)
    assert math.isfinite(found.mean)
    if found.stderr is not None:
        assert found.stderr >= found.sampling_error * (1 - 1e-9)
