"""Whether right answers get higher scores, counted pair by pair and by hand."""

from __future__ import annotations

from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from selfreflect.uncertainty.measures import MEASURES
from selfreflect.uncertainty.prediction import Tally, auprc, auroc, recall_at_fpr

scored = st.lists(st.tuples(st.integers(-2, 2), st.booleans()), min_size=1, max_size=8)


@given(scored)
def test_auroc_is_the_share_of_pairs_in_the_right_order(answers: list[tuple[int, bool]]) -> None:
    right = [score for score, label in answers if label]
    wrong = [score for score, label in answers if not label]
    area = float(auroc(Tally.of(*zip(*answers, strict=True))))
    if not right or not wrong:
        assert np.isnan(area)
        return
    wins = [Fraction(1 + (a > b) - (a < b), 2) for a, b in product(right, wrong)]
    assert area == pytest.approx(float(sum(wins) / len(wins)))


def test_average_precision_by_hand() -> None:
    """From the highest score: right; wrong and right in a tie; wrong."""
    tally = Tally.of([4, 3, 3, 1], [1, 1, 0, 0])
    assert float(auprc(tally)) == pytest.approx((1 + 2 / 3) / 2)
    assert float(auprc(tally, "wrong")) == pytest.approx((1 + 2 / 3) / 2)
    uneven = Tally.of([4, 3, 2, 1], [0, 1, 0, 1])
    assert float(auprc(uneven)) == pytest.approx((1 / 2 + 2 / 4) / 2)
    assert float(auprc(uneven, "wrong")) == pytest.approx((1 / 2 + 2 / 4) / 2)
    assert float(auprc(Tally.of([1, 2, 3], [1, 0, 0]), "wrong")) == pytest.approx((1 / 2 + 2 / 3) / 2)


def test_without_what_is_looked_for_there_is_no_precision() -> None:
    assert np.isnan(auprc(Tally.of([1, 2], [0, 0])))
    assert float(auprc(Tally.of([1, 2], [0, 0]), "wrong")) == 1
    assert np.isnan(auprc(Tally.of([1, 2], [1, 1]), "wrong"))


def test_recall_at_the_rates_by_hand() -> None:
    """From the highest score: two right; one right, one wrong in a tie; one right; three wrong."""
    tally = Tally.of([5, 5, 4, 4, 3, 2, 2, 1], [1, 1, 1, 0, 1, 0, 0, 0])
    expected = {0: 2 / 4, 0.125: 2.5 / 4, 0.25: 4 / 4, 0.5: 4 / 4, 1: 4 / 4}
    for rate, recall in expected.items():
        assert float(recall_at_fpr(tally, rate)) == pytest.approx(recall), rate


def test_the_rate_in_the_table_is_a_twentieth() -> None:
    """Ten right and ten wrong answers in one tie: with 5% of the wrong 5% of the right are accepted."""
    tied = Tally.of([1] * 20, [1] * 10 + [0] * 10)
    assert float(MEASURES["recall_at_fpr_05"].compute(tied)) == pytest.approx(0.05)
