"""The statistics of the studies: closed forms, what is undefined, and what an interval must hold."""

from __future__ import annotations

import math

import numpy as np
import pytest

from selfreflect.stats import Estimate, pearson, spearman
from selfreflect.validate.statistics import (
    bounded_mean,
    column_shuffle_p,
    correlation_interval,
    detectable_rate,
    interaction,
    kendall,
    side_of_chance,
    somers,
)

CORRELATIONS = (pearson, spearman, kendall)


def win_rate(wins: int, n: int) -> Estimate:
    return bounded_mean([1.0] * wins + [0.0] * (n - wins), 0, 1)


def test_all_wins_are_no_certainty():
    found = win_rate(60, 60)
    assert (found.mean, found.high) == (1, 1)
    assert found.low == pytest.approx(0.025 ** (1 / 60))  # Clopper and Pearson
    none = win_rate(0, 60)
    assert (none.low, none.high) == (0, pytest.approx(1 - 0.025 ** (1 / 60)))


def test_a_rate_is_on_a_side_of_chance_if_its_interval_is_and_a_coin_is_ruled_out():
    assert side_of_chance(win_rate(20, 20)) == 1
    assert side_of_chance(win_rate(0, 20)) == -1
    assert side_of_chance(win_rate(5, 5)) == 0
    assert side_of_chance(win_rate(10, 20)) == 0


def test_correlations_of_known_points():
    x, y = [1.0, 2, 3, 4], [1.0, 3, 2, 4]
    assert spearman(x, y) == pytest.approx(0.8)  # 1 - 6 * 2 / (4 * 15)
    assert kendall(x, y) == pytest.approx(4 / 6)
    assert pearson(x, y) == pytest.approx(0.8)
    assert pearson([1, 2, 3], [2, 4, 7]) == pytest.approx(15 / math.sqrt(6 * 38))


def test_ties_have_the_mean_of_their_ranks():
    assert spearman([1, 1, 2], [1, 2, 3]) == pytest.approx(math.sqrt(3) / 2)
    assert kendall([1, 1, 2], [1, 2, 3]) == pytest.approx(2 / math.sqrt(2 * 3))  # tau-b
    assert somers([1, 1, 2], [1, 2, 3]) == 1  # both pairs that differ in x
    assert somers([1, 2, 3], [1, 1, 2]) == pytest.approx(2 / 3)


@pytest.mark.parametrize("correlation", CORRELATIONS)
def test_no_correlation_of_two_points_or_of_a_constant(correlation):
    assert correlation([1, 2], [1, 2]) is None
    assert correlation([], []) is None
    assert correlation([1, 1, 1], [1, 2, 3]) is None
    assert correlation([1, 2, 3], [0.1, 0.1, 0.1]) is None


def test_no_interval_where_a_bootstrap_knows_nothing():
    assert correlation_interval([1, 2, 3, 4], [1, 3, 2, 4]).mean is None  # too few
    sure = correlation_interval(range(9), range(9))
    assert (sure.mean, sure.low, sure.high) == (1, None, None)
    undefined = correlation_interval([1, 1, 1], [1, 2, 3])
    assert (undefined.mean, undefined.low) == (None, None)
    rare = correlation_interval([0.0] * 9 + [1], [*map(float, range(9)), 3.5])
    assert rare.mean is not None
    assert rare.low is None  # a third of the resamples lack the one point that differs


def test_what_a_number_of_pairs_can_show():
    assert detectable_rate(5) is None  # five wins of five: p = 0.06
    assert detectable_rate(6) == pytest.approx(0.8 ** (1 / 6))  # all six must be won
    assert detectable_rate(60) < detectable_rate(30) < detectable_rate(10)
    assert 0.5 < detectable_rate(5000) < 0.53  # coefficients beyond the range of floats


def test_an_interaction_is_what_row_and_column_do_not_explain():
    def rest(*rows):
        return interaction(np.array(rows)).tolist()

    assert rest([1.0, 2], [11, 12]) == [[0, 0], [0, 0]]
    assert rest([3.0, 2], [11, 12]) == [pytest.approx([0.5, -0.5]), pytest.approx([-0.5, 0.5])]
    assert rest([0.1, 0.1], [0.1, 0.1]) == [[0, 0], [0, 0]]  # not what rounding leaves of it
    assert rest([0.0, 0.0]) == [[0, 0]]


def test_columns_that_are_shuffled_give_the_p_of_all_orders():
    rows, columns = np.indices((4, 4))
    x = ((rows - columns) % 4).astype(float)
    assert column_shuffle_p([x], [x]) == column_shuffle_p([x], [-x]) == pytest.approx(1 / 24)
    assert column_shuffle_p([x], [np.ones_like(x)]) is None
    assert column_shuffle_p([x, x], [x, x]) == pytest.approx(1 / 24**2)
