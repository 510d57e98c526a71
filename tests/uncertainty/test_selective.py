"""Risk against coverage of a few answers, worked out by hand."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from selfreflect.uncertainty.prediction import Tally, augrc, aurc, best_aurc, excess_aurc, expected_risks, prr

FOUR = Tally.of([4, 3, 2, 1], [1, 0, 1, 0])
"""Errors among the first 1, 2, 3, 4 answers: 0, 1, 1, 2."""
answered = st.lists(st.tuples(st.integers(0, 3), st.booleans()), min_size=1, max_size=12)


def test_areas_of_four_answers() -> None:
    assert expected_risks(FOUR) == pytest.approx([0, 1 / 2, 1 / 3, 2 / 4])
    assert float(aurc(FOUR)) == pytest.approx((0 + 1 / 2 + 1 / 3 + 2 / 4) / 4)
    best = (0 + 0 + 1 / 3 + 2 / 4) / 4
    assert float(best_aurc(FOUR)) == pytest.approx(best)
    assert float(excess_aurc(FOUR)) == pytest.approx((1 / 2) / 4)
    assert float(prr(FOUR)) == pytest.approx((0.5 - (1 / 2 + 1 / 3 + 1 / 2) / 4) / (0.5 - best))
    assert float(augrc(FOUR)) == pytest.approx((0 + 1 / 2 + 1 + 3 / 2) / 16)


def test_within_a_tie_the_risk_is_that_of_a_random_order() -> None:
    tied = Tally.of([2, 1, 1, 1], [1, 0, 0, 1])
    assert expected_risks(tied) == pytest.approx([0, 1 / 3, 4 / 9, 1 / 2])


@given(answered)
def test_the_area_is_the_mean_of_the_curve(answers: list[tuple[int, bool]]) -> None:
    tally = Tally.of(*zip(*answers, strict=True))
    curve = expected_risks(tally)
    assert len(curve) == len(answers)
    assert float(aurc(tally)) == pytest.approx(curve.mean())
    assert curve[-1] == pytest.approx(1 - float(tally.accuracy))


@given(st.integers(0, 9), st.integers(0, 9))
def test_the_best_order_answers_all_that_is_right_first(right: int, wrong: int) -> None:
    if not right + wrong:
        return
    errors = [Fraction(max(0, taken - right), taken) for taken in range(1, right + wrong + 1)]
    labels = [1] * right + [0] * wrong
    tally = Tally.of([0] * len(labels), labels)
    assert float(best_aurc(tally)) == pytest.approx(float(sum(errors) / len(errors)))


def test_the_worst_order_loses_more_than_a_random_one() -> None:
    worst = Tally.of([4, 3, 2, 1], [0, 0, 1, 1])
    area = (1 + 1 + 2 / 3 + 2 / 4) / 4
    best = (1 / 3 + 2 / 4) / 4
    assert float(prr(worst)) == pytest.approx((0.5 - area) / (0.5 - best))
    assert float(prr(worst)) < -0.9


@pytest.mark.parametrize("label", [0, 1])
def test_where_no_order_gains_anything_there_is_no_ratio(label: int) -> None:
    assert np.isnan(prr(Tally.of([1, 2, 3], [label] * 3)))


def test_equal_scores_gain_exactly_nothing() -> None:
    for right in range(1, 12):
        ratio = float(prr(Tally.of([0.3] * 12, [1] * right + [0] * (12 - right))))
        assert (ratio, str(ratio)) == (0, "0.0")  # not -0.0, which a table would show
