"""Calibration errors of a few confidences, worked out by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from selfreflect.uncertainty.calibrators import cross_fit
from selfreflect.uncertainty.prediction import (
    Tally,
    brier,
    ece,
    ece_exact,
    log_loss,
    mean_absolute_error,
    smooth_ece,
)

FIVE = Tally.of([0.1, 0.3, 0.3, 0.8, 1.0], [0, 1, 0, 1, 1])
"""Sums of confidence minus correctness: 0.1 at 0.1, -0.4 at 0.3, -0.2 at 0.8, 0 at 1."""


@pytest.mark.parametrize(
    ("bins", "error"),
    [
        (1, abs(0.1 - 0.4 - 0.2) / 5),
        (2, (abs(0.1 - 0.4) + 0.2) / 5),
        (4, (0.1 + 0.4 + 0.2) / 5),
        (10, (0.1 + 0.4 + 0.2) / 5),
    ],
)
def test_errors_of_one_bin_cancel(bins: int, error: float) -> None:
    assert float(ece(FIVE, bins)) == pytest.approx(error)


def test_without_bins() -> None:
    assert float(ece_exact(FIVE)) == pytest.approx((0.1 + 0.4 + 0.2) / 5)
    assert float(mean_absolute_error(FIVE)) == pytest.approx((0.1 + 0.7 + 0.3 + 0.2 + 0) / 5)
    assert float(brier(FIVE)) == pytest.approx((0.01 + 0.49 + 0.09 + 0.04) / 5)


def test_log_loss_in_nats() -> None:
    losses = [-math.log(0.9), -math.log(0.3), -math.log(0.7), -math.log(0.8), 0]
    assert float(log_loss(FIVE)) == pytest.approx(sum(losses) / 5, abs=1e-6)
    certain = Tally.of([0.0, 1.0], [1, 1])
    assert float(log_loss(certain, clip=0.01)) == pytest.approx(-(math.log(0.01) + math.log(0.99)) / 2)


def test_smoothing_sees_through_errors_that_cancel_close_by() -> None:
    """Confidences a hair apart, one too high and one too low: an error for bins of their own alone."""
    near = Tally.of(np.repeat([0.499, 0.501], 500), np.repeat([1, 0], 500))
    far = Tally.of(np.repeat([0.2, 0.8], 500), np.repeat([1, 0], 500))
    assert float(ece_exact(near)) == pytest.approx(0.5, abs=0.01)
    assert float(smooth_ece(near)) < 0.04
    assert float(smooth_ece(far)) > 0.2


def test_weights_of_few_answers_are_fitted_without_an_error() -> None:
    columns = np.arange(10.0).reshape(5, 2) % 3
    calibrated = cross_fit("weights", columns, [1, 0, 1, 0, 1])
    assert ((calibrated > 0) & (calibrated < 1)).all()
