"""Maps from scores to confidences, against closed forms and against what they must not see."""

from __future__ import annotations

import math
from typing import Any, get_args

import numpy as np
import pytest

from selfreflect.errors import DataError
from selfreflect.uncertainty.calibrators import CalibrationMethod, cross_fit, fit, map_quality

METHODS = get_args(CalibrationMethod)


def logistic(logit: float) -> float:
    return 1 / (1 + math.exp(-logit))


def test_isotonic_pools_what_is_in_the_wrong_order() -> None:
    """Shares 1/4, 1/2, 1/2 and 3/4 of the scores 1 to 4, counting the two answers that are added."""
    scores, labels = [1] * 3 + [2] * 2 + [3] * 2 + [4] * 3, [0, 0, 0, 0, 1, 0, 1, 1, 1, 1]
    curve = fit("isotonic", scores, labels)
    assert curve([1, 2, 3, 4]) == pytest.approx([0.25, 0.5, 0.5, 0.75])
    assert curve([1.5, 3.25]) == pytest.approx([0.375, 0.5625])  # between scores it is a line
    assert curve([-100, 100]) == pytest.approx([0.25, 0.75])  # and beyond them it is flat


@pytest.mark.parametrize(("right", "wrong"), [(3, 3), (50, 50), (0, 7), (7, 0)])
def test_isotonic_never_states_certainty(right: int, wrong: int) -> None:
    """Also where scores separate perfectly: m equal answers of one kind leave 1 in m + 1 of doubt."""
    curve = fit("isotonic", [0] * wrong + [1] * right, [0] * wrong + [1] * right)
    if right and wrong:
        assert curve([-1, 0, 1, 2]) == pytest.approx([1 / (wrong + 1)] * 2 + [right / (right + 1)] * 2)
    else:
        assert curve([0.5]) == pytest.approx([(right + 1) / (right + wrong + 2)])


@pytest.mark.parametrize("scale", [1.0, 1000.0])
def test_platt_goes_through_the_mean_targets_of_two_scores(scale: float) -> None:
    """Two parameters fit two points exactly. Of 4 right and 2 wrong answers the targets are 5/6 and 1/4."""
    low, high = [1, 0, 0], [1, 1, 1]
    curve = fit("platt", [scale] * 3 + [3 * scale] * 3, [*low, *high])
    targets = [(5 / 6 + 1 / 4 + 1 / 4) / 3, 5 / 6]
    assert curve([scale, 3 * scale]) == pytest.approx(targets, abs=1e-4)
    middle = (math.log(targets[0] / (1 - targets[0])) + math.log(targets[1] / (1 - targets[1]))) / 2
    assert curve([2 * scale]) == pytest.approx([logistic(middle)], abs=1e-4)


@pytest.mark.parametrize(("confidence", "right", "wrong"), [(0.9, 3, 1), (0.6, 9, 1), (0.2, 1, 1)])
def test_a_temperature_brings_one_confidence_to_its_accuracy(
    confidence: float, right: int, wrong: int
) -> None:
    curve = fit("temperature", [confidence] * (right + wrong), [1] * right + [0] * wrong)
    if right == wrong:
        assert curve([confidence])[0] == pytest.approx(0.5, abs=1e-3)  # the highest temperature
        return
    ratio = math.log(confidence / (1 - confidence)) / math.log(right / wrong)
    assert curve.x == pytest.approx((ratio,), rel=1e-6)
    assert curve([confidence]) == pytest.approx([right / (right + wrong)])


@pytest.mark.parametrize(
    ("method", "scores", "labels", "message"),
    [
        ("isotonic", [0.5], [1], "1 labelled answers are too few"),
        ("temperature", [0.5, 1.2], [0, 1], "needs confidences in"),
        ("temperature", [-0.1, 0.5], [0, 1], "needs confidences in"),
        ("platt", [0.5, 0.6], [0, 0.5], "label 1 is 0.5"),
    ],
)
def test_what_cannot_be_fitted_is_refused(method: Any, scores: Any, labels: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        fit(method, scores, labels)


# --- calibrated on the other folds


def test_weights_of_few_answers_are_fitted_without_an_error() -> None:
    columns = np.arange(10.0).reshape(5, 2) % 3
    calibrated = cross_fit("weights", columns, [1, 0, 1, 0, 1])
    assert ((calibrated > 0) & (calibrated < 1)).all()


@pytest.mark.parametrize("method", METHODS)
def test_the_label_of_an_answer_does_not_touch_its_own_confidence(method: CalibrationMethod) -> None:
    rng = np.random.default_rng(0)
    scores = rng.permutation(12) / 12
    labels = (rng.random(12) < scores).astype(float)
    calibrated = cross_fit(method, scores, labels)
    touched = []
    for place in range(12):
        changed = labels.copy()
        changed[place] = 1 - changed[place]
        other = cross_fit(method, scores, changed)
        assert other[place] == calibrated[place]
        touched.append((other != calibrated).any())
    assert any(touched)


def test_each_fold_is_calibrated_by_all_others() -> None:
    """Of scores that tell nothing, isotonic calibration makes the share of right answers in other folds."""
    labels = np.array([1.0, 0, 0, 0, 0, 0, 0, 0, 0, 0])
    calibrated = cross_fit("isotonic", np.zeros(10), labels)
    assert sorted(calibrated) == pytest.approx([0.1] * 2 + [0.2] * 8)  # Laplace's rule on eight others
    assert calibrated[0] == pytest.approx(0.1)
    tenths = cross_fit("isotonic", np.zeros(10), labels, folds=10)
    assert sorted(tenths) == pytest.approx([1 / 11] + [2 / 11] * 9)


def test_folds_do_not_follow_the_order_of_a_file() -> None:
    rng = np.random.default_rng(3)
    scores = rng.integers(0, 12, 40) / 12
    labels = (rng.random(40) < scores).astype(float)
    order = rng.permutation(40)
    one, shuffled = cross_fit("isotonic", scores, labels), cross_fit("isotonic", scores[order], labels[order])
    triples = sorted(zip(scores, labels, one, strict=True))
    assert triples == sorted(zip(scores[order], labels[order], shuffled, strict=True))


def test_a_map_is_compared_with_doing_without_it() -> None:
    """Confidences of no use, all right on average: the map of twelve answers is worse than either."""
    rng = np.random.default_rng(0)
    scores = rng.random(12)
    labels = np.array([1.0, 0] * 6)
    bad = map_quality("isotonic", scores, labels, probability=True)
    assert bad.calibrated > bad.constant
    assert bad.better["constant"] == bad.constant == pytest.approx(0.3, abs=0.05)
    assert bad.unchanged == pytest.approx(((scores - labels) ** 2).mean())
    confident = rng.random(400)
    correct = (rng.random(400) < 0.3 + 0.4 * (confident > 0.5)).astype(float)
    good = map_quality("isotonic", confident, correct, probability=False)
    assert good.better == {}
    assert good.unchanged is None
