"""Bins of confidences with the share of right answers, and its interval."""

from __future__ import annotations

import pytest

from selfreflect.errors import DataError
from selfreflect.uncertainty.figures import reliability, wilson


def test_a_bin_has_its_means_and_interval() -> None:
    low, high = reliability([0.1, 0.4, 0.5, 0.6, 0.9], [0, 1, 1, 1, 0], bins=2)
    assert (low.low, low.high, high.low, high.high) == (0, 0.5, 0.5, 1)
    assert (low.n, high.n) == (2, 3)
    assert (low.confidence, high.confidence) == (pytest.approx(0.25), pytest.approx(2 / 3))
    assert (low.accuracy, high.accuracy) == (0.5, pytest.approx(2 / 3))
    assert (high.accuracy_low, high.accuracy_high) == pytest.approx(wilson(2 / 3, 3))
    assert (low.name, high.name) == ("[0, 0.5)", "[0.5, 1]")


def test_there_are_ten_bins_and_each_edge_opens_one() -> None:
    bins = reliability([number / 10 for number in range(11)], [1] * 11)
    assert [one.n for one in bins] == [1] * 9 + [2]
    assert [one.low for one in bins] == [number / 10 for number in range(10)]


@pytest.mark.parametrize(
    ("share", "n", "ends"),
    [
        (0.0, 10, (0.0, 0.2775)),
        (1.0, 10, (0.7225, 1.0)),
        (0.1, 50, (0.0435, 0.2136)),
        (0.5, 1, (0.0546, 0.9454)),
    ],
)
def test_intervals_of_wilson(share: float, n: int, ends: tuple[float, float]) -> None:
    """Roots of (p - share)^2 = 1.96^2 p (1 - p) / n; the first two are in tables."""
    interval = wilson(share, n)
    assert interval == pytest.approx(ends, abs=1e-4)
    for p in interval:
        assert (p - share) ** 2 == pytest.approx(1.96**2 * p * (1 - p) / n, abs=1e-9)


@pytest.mark.parametrize("bad", [-0.01, 1.01, float("nan")])
def test_what_is_no_confidence_is_refused(bad: float) -> None:
    with pytest.raises(DataError, match="needs confidences in"):
        reliability([0.5, bad], [0, 1])
