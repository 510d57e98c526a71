"""The measures against published numbers, closed forms, and slow computations of their definitions."""

from __future__ import annotations

import json
import math
from itertools import permutations
from statistics import fmean
from typing import Any, get_args

import numpy as np
import pytest
import uq_data
from hypothesis import given, settings
from hypothesis import strategies as st

from selfreflect.errors import ConfigError, DataError
from selfreflect.uncertainty.calibrators import CalibrationMethod, fit
from selfreflect.uncertainty.measures import (
    MEASURES,
    audit_length,
    faithfulness,
    measure,
    measure_all,
)
from selfreflect.uncertainty.prediction import Tally, smooth_ece

COLUMNS = "accuracy ece_10_left ece_exact brier constant auroc length aurc".split()
GOLDEN = {
    "csqa/Base": (0.886, 0.004, 0.025, 0.099, 0.101, 0.620, 0.558, 0.0896),
    "csqa/RLVR": (0.908, 0.092, 0.092, 0.092, 0.083, 0.500, 0.629, 0.0917),
    "csqa/RLVR-Classifier": (0.908, 0.183, 0.194, 0.118, 0.083, 0.653, 0.629, 0.0576),
    "csqa/Answer-Prob": (0.908, 0.031, 0.147, 0.083, 0.083, 0.603, 0.629, 0.0657),
    "csqa/RLCR": (0.913, 0.302, 0.303, 0.167, 0.079, 0.728, 0.593, 0.0411),
    "gpqa/Base": (0.395, 0.509, 0.509, 0.504, 0.239, 0.492, 0.469, 0.6038),
    "gpqa/RLVR": (0.395, 0.605, 0.605, 0.605, 0.239, 0.500, 0.467, 0.6049),
    "gpqa/RLVR-Classifier": (0.395, 0.161, 0.349, 0.279, 0.239, 0.523, 0.467, 0.6094),
    "gpqa/Answer-Prob": (0.395, 0.544, 0.584, 0.537, 0.239, 0.526, 0.467, 0.5872),
    "gpqa/RLCR": (0.415, 0.155, 0.157, 0.267, 0.243, 0.550, 0.512, 0.5318),
}
"""Computed by other programs from the confidences of Damani et al. 2025 (RLCR)."""

answered = st.lists(
    st.tuples(st.sampled_from([0.0, 0.1, 0.25, 0.3, 0.6, 0.7, 1.0]), st.booleans()), min_size=1, max_size=30
)


def value(name: str, scores: Any, correct: Any) -> float:
    """Without an interval, which takes most of the time."""
    return float(MEASURES[name].compute(Tally.of(scores, correct)))


@pytest.mark.parametrize("name", GOLDEN)
def test_published_confidences(name: str) -> None:
    columns = json.loads(uq_data.find("rlcr_confidences.json").read_text())[name]
    confidence, correct = np.clip(columns["confidence"], 0, 1), columns["correct"]
    accuracy = fmean(correct)
    tally = Tally.of(confidence, correct)
    computed = {column: float(info.compute(tally)) for column, info in MEASURES.items()}
    computed |= {"accuracy": accuracy, "constant": accuracy * (1 - accuracy)}
    computed["length"] = float(MEASURES["auroc"].compute(Tally.of(columns["length"], correct)))
    for column, golden in zip(COLUMNS, GOLDEN[name], strict=True):
        digits = 4 if column == "aurc" else 3
        ours = computed[column]
        if column == "length":  # the table does not say which end it calls confident
            ours = max(ours, 1 - ours) if golden > 0.5 else min(ours, 1 - ours)
        assert abs(ours - golden) <= 0.5001 * 10**-digits, column


def test_zero_and_one_are_in_the_outermost_bins() -> None:
    assert value("ece_10_left", [0.95, 1.0], [1, 0]) == pytest.approx(0.475)


@settings(max_examples=8)
@given(answered, st.integers(0, 9))
def test_a_block_of_resamples_is_measured_like_each_alone(
    answers: list[tuple[float, bool]], seed: int
) -> None:
    [block] = Tally.of(*zip(*answers, strict=True)).resamples(3, seed)
    for name, info in MEASURES.items():
        values = info.compute(block)
        assert values.shape == (3,), name
        for value, counts, correct in zip(values, block.counts, block.correct, strict=True):
            drawn = counts > 0  # a score that no answer of the resample has makes no difference
            alone = Tally(block.values[drawn], counts[drawn], correct[drawn])
            assert value == pytest.approx(float(info.compute(alone)), nan_ok=True, abs=1e-9), name


@given(answered)
def test_auroc_is_that_of_scikit_learn(answers: list[tuple[float, bool]]) -> None:
    from sklearn.metrics import roc_auc_score

    scores, correct = zip(*answers, strict=True)
    if len(set(correct)) < 2:
        assert math.isnan(value("auroc", scores, correct))
    else:
        assert value("auroc", scores, correct) == pytest.approx(roc_auc_score(correct, scores))


@given(st.lists(st.tuples(st.sampled_from([0.2, 0.5, 0.9]), st.booleans()), min_size=1, max_size=6))
def test_aurc_is_the_mean_over_all_orders_of_ties(answers: list[tuple[float, bool]]) -> None:
    areas, augrcs = [], []
    for order in permutations(answers):
        errors = [not correct for score, correct in sorted(order, key=lambda answer: -answer[0])]
        sums = np.cumsum(errors)
        areas.append(fmean(sums / np.arange(1, len(errors) + 1)))
        augrcs.append(fmean((sums - np.array(errors) / 2) / len(errors)))
    scores, correct = zip(*answers, strict=True)
    assert value("aurc", scores, correct) == pytest.approx(fmean(areas))
    assert value("augrc", scores, correct) == pytest.approx(fmean(augrcs))


@given(answered)
def test_identities(answers: list[tuple[float, bool]]) -> None:
    scores, correct = zip(*answers, strict=True)
    assert value("brier", scores, correct) == pytest.approx(fmean((c - y) ** 2 for c, y in answers))
    assert value("mae", scores, correct) == pytest.approx(fmean(abs(c - y) for c, y in answers))
    assert value("ece_10_left", scores, correct) <= value("ece_exact", scores, correct) + 1e-12
    accuracy = fmean(correct)
    auroc = value("auroc", scores, correct)
    ranked = 0.0 if math.isnan(auroc) else (1 - auroc) * accuracy * (1 - accuracy)
    assert value("augrc", scores, correct) == pytest.approx(ranked + (1 - accuracy) ** 2 / 2)
    if len(set(correct)) == 2:
        assert value("prr", correct, correct) == pytest.approx(1)
        assert value("prr", [0.5] * len(answers), correct) == 0


@given(answered)
def test_smooth_error_is_that_of_a_reflected_kernel(answers: list[tuple[float, bool]]) -> None:
    """The definition, with the kernel's mirror images summed on a fine grid."""
    scores, correct = (np.array(column, float) for column in zip(*answers, strict=True))
    bandwidth = float(smooth_ece(Tally.of(scores, correct)))
    if bandwidth < 0.01:
        assert abs(scores - correct).mean() < 0.5
        return
    grid = (np.arange(2000) + 0.5) / 2000
    images = [sign * scores + 2 * shift for shift in range(-6, 7) for sign in (1, -1)]
    kernel = sum(np.exp(-0.5 * ((grid[:, None] - image) / bandwidth) ** 2) for image in images)
    kernel = kernel / (bandwidth * math.sqrt(2 * math.pi))
    smoothed = np.abs(kernel @ (scores - correct)).mean() / len(scores)
    assert smoothed == pytest.approx(bandwidth, abs=2e-4)


def test_smoothing_sees_through_errors_that_cancel_close_by() -> None:
    """Confidences a hair apart, one too high and one too low: an error for bins of their own alone."""
    near, far = ([0.499] * 500 + [0.501] * 500), ([0.2] * 500 + [0.8] * 500)
    labels = [1] * 500 + [0] * 500
    assert value("ece_exact", near, labels) == pytest.approx(0.5, abs=0.01)
    assert value("smooth_ece", near, labels) < 0.04
    assert value("smooth_ece", far, labels) > 0.2


def test_log_loss_states_its_clip_and_stays_finite() -> None:
    assert value("log_loss", [1.0, 0.5], [0, 1]) == pytest.approx((-math.log(1e-6) + math.log(2)) / 2)
    assert "1e-06" in MEASURES["log_loss"].definition


def test_with_one_class_there_is_a_reason_and_no_number() -> None:
    results = measure_all(list(MEASURES), Tally.of([0.2, 0.4, 0.6, 0.8, 0.9], [1] * 5))
    undefined = {name for name, result in results.items() if result.value is None}
    assert undefined == {"auroc", "prr"}
    assert results["auroc"].undefined == "all answers are correct, or all are wrong"
    assert results["auroc"].low is None


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_no_map_is_fitted_on_undefined_scores_or_applied_to_them(bad: float) -> None:
    scores, labels = [0.1, 0.2, bad], [0, 1, 1]
    for method in get_args(CalibrationMethod):
        with pytest.raises(DataError, match="score 2 is"):
            fit(method, scores, labels)
        with pytest.raises(DataError, match="score 2 is"):
            fit(method, [0.1, 0.2, 0.3], labels)(scores)


@pytest.mark.parametrize("bad", [-0.01, 1.01])
@pytest.mark.parametrize("name", [name for name, info in MEASURES.items() if info.probability])
def test_calibration_refuses_what_is_no_probability(name: str, bad: float) -> None:
    with pytest.raises(DataError, match="is not a probability"):
        measure(name, [0.5, bad], [0, 1])
    assert measure("auroc", [0.5, bad] * 5, [0, 1] * 5).value is not None


def test_unknown_and_removed_names_are_refused_with_advice() -> None:
    for name, said in (("aurok", "'auroc'"), ("ece_10_right", "ece_10_left"), ("e_aurc", "prr")):
        with pytest.raises(ConfigError, match=said):
            measure(name, [0.1], [1])


def test_auroc_is_covered_about_as_often_as_it_says() -> None:
    rng = np.random.default_rng(1)
    covered = 0
    for seed in range(100):
        confidence = rng.random(120)
        tally = Tally.of(confidence, rng.random(120) < confidence)
        result = measure_all(["auroc"], tally, resamples=200, seed=seed)["auroc"]
        assert result.low is not None
        assert result.high is not None
        covered += result.low <= 5 / 6 <= result.high
    assert 86 <= covered <= 100


@pytest.mark.parametrize(("right", "wrong"), [(4, 4), (100, 4), (4, 100)])
def test_order_is_not_judged_by_a_few_answers_of_one_kind(right: int, wrong: int) -> None:
    scores, labels = np.arange(right + wrong) / 1000, [0] * wrong + [1] * right
    results = measure_all(list(MEASURES), Tally.of(scores, labels))
    undefined = {name for name, result in results.items() if result.value is None}
    assert undefined == {"auroc", "prr"}
    assert len({results[name].undefined for name in undefined}) == 1
    assert measure("auroc", np.arange(10), [0] * 5 + [1] * 5).value == 1


@pytest.mark.parametrize("name", MEASURES)
def test_no_interval_has_a_width_of_zero(name: str) -> None:
    labels = [0] * 20 + [1] * 20
    for scores in (labels, [0.5] * 40, [1 - label for label in labels]):
        result = measure(name, scores, labels)
        if result.low is None or result.high is None:
            assert result.low is result.high is None
        else:
            assert result.high - result.low > 0.01


def test_perfect_order_has_the_exact_bound_of_a_share_of_all_pairs() -> None:
    labels = [0] * 10 + [1] * 30
    perfect, inverse = measure("auroc", labels, labels), measure("auroc", [-one for one in labels], labels)
    assert (perfect.low, perfect.high) == (pytest.approx(0.025**0.1), 1)
    assert (inverse.low, inverse.high) == (0, pytest.approx(1 - 0.025**0.1))


def test_too_few_questions_get_no_interval() -> None:
    nine = np.arange(9) / 10
    assert measure("brier", nine, [0, 1, 1] * 3).low is None
    assert measure("brier", [*nine, 0.9], [0, 1, 1] * 3 + [1]).low is not None
    assert measure("auroc", np.arange(100) % 7, [0] * 9 + [1] * 91).low is None
    assert measure("auroc", np.arange(100) % 7, [0] * 10 + [1] * 90).low is not None


def test_faithful_calibration() -> None:
    shares = np.arange(10) / 10 + 0.05
    assert faithfulness(shares, shares) == 1
    assert faithfulness([1.0] * 10, shares) == pytest.approx(0.5)
    crowded = np.concatenate([shares, [0.95] * 1000])  # a bin counts once, however full it is
    assert faithfulness([1.0] * 1010, crowded) == pytest.approx(0.5)
    with pytest.raises(DataError, match="stated confidence 1 is nan"):
        faithfulness([0.5, math.nan], [0.5, 0.5])
    with pytest.raises(DataError, match=r"intrinsic confidence 0 is 1\.5"):
        faithfulness([0.5], [1.5])


def test_a_measurement_says_what_it_was_made_of() -> None:
    tally = Tally.of([0.2, 0.2, 0.4, 0.9, 0.9, 0.9] * 2, [0, 1, 0, 1, 1, 0] * 2)
    one = measure_all(["brier", "auroc"], tally, resamples=50)
    assert {(result.n, result.distinct, result.undefined) for result in one.values()} == {(12, 3, "")}
    assert measure_all(["brier", "auroc"], tally, resamples=50) == one
    assert measure_all(["brier"], tally, resamples=50, seed=1)["brier"].low != one["brier"].low
    assert measure_all(["brier"], tally, resamples=50)["brier"] == one["brier"]  # in whatever company
    assert measure("brier", [0.2, 0.9], [0, 1]).n == 2


@pytest.mark.parametrize(
    ("labels", "clear"),
    [
        ([1, 1, 0, 0], False),  # even perfect correlations of 4 answers are below 1.96 / sqrt(3)
        ([1, 1, 1, 0, 0], False),
        ([1, 1, 1, 0, 0, 0], True),  # 0.878, and 1.96 / sqrt(5) is 0.877
        ([1, 1, 0, 0, 0, 0], False),  # 0.828
    ],
)
def test_both_correlations_must_be_clear(labels: list[int], clear: bool) -> None:
    lengths = np.arange(len(labels)) + 1.0
    audit = audit_length(-lengths, labels, lengths)
    assert audit.score_with_length == pytest.approx(-1)
    assert (audit.dependence is not None) is clear
    assert bool(audit.warning) is clear


def test_what_is_left_at_equal_length_is_the_correlation_of_residuals() -> None:
    rng = np.random.default_rng(3)
    length = rng.permutation(30) * 1.0
    score = rng.permutation(30) + length
    label = (rng.permutation(30) + length > 28).astype(float)

    def without_length(column: np.ndarray) -> np.ndarray:
        ranked = np.array([(np.sum(column < one) + np.sum(column <= one)) / 2 for one in column])
        design = np.stack([np.ones(30), length.argsort().argsort()], axis=1)
        return ranked - design @ np.linalg.lstsq(design, ranked, rcond=None)[0]

    expected = np.corrcoef(without_length(score), without_length(label))[0, 1]
    audit = audit_length(score, label, length)
    assert audit.score_with_correct_at_length == pytest.approx(expected)
    assert audit.score_with_correct != pytest.approx(expected, abs=0.05)
