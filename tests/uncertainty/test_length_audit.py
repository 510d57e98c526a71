"""When length is said to explain a score, at the edge of what is clear."""

from __future__ import annotations

import math

import numpy as np
import pytest

from selfreflect.uncertainty.length_audit import ENDS, audit_length, partial_effects


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
    assert audit.confounded is clear
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


def test_dependence_on_one_score_alone_has_a_closed_form() -> None:
    """Two scores with the same lengths: the regression is that of two groups, up to its small penalty."""
    score = np.repeat([0.0, 1.0], 400)
    length = np.tile([1.0, 2.0], 400)
    label = np.concatenate([np.repeat([1.0, 0.0], [100, 300]), np.repeat([1.0, 0.0], [300, 100])])
    shuffled = np.random.default_rng(0).permutation(400)
    length[:400], length[400:] = length[:400][shuffled], length[400:][shuffled]
    result = partial_effects(score, label, length)
    assert result is not None
    # the ranks of the two scores are at -0.5 and 0.5 of the scale, whose quantiles 0.25 and 0.75 these are
    slope = 2 * math.log(3)
    low, high = (1 / (1 + math.exp(-slope * (2 * end - 1))) for end in ENDS)
    assert result.of_score == pytest.approx(high - low, abs=0.01)


def bump(rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Middling answers are right and sure; nothing else ties score and correctness."""
    length = rng.permutation(n) * 1.0
    middling = np.abs(length - (n - 1) / 2) < 0.22 * n
    label = (rng.random(n) < np.where(middling, 0.9, 0.2)).astype(float)
    return middling + rng.normal(0, 0.3, n), label, length


def test_a_dependence_that_rises_and_falls_is_seen() -> None:
    seen, monotone, left = 0, [], []
    for seed in range(40):
        score, label, length = bump(np.random.default_rng(seed), 200)
        audit = audit_length(score, label, length)
        seen += audit.confounded and bool(audit.warning)
        monotone.append(audit.score_with_correct_at_length)
        left.append(audit.score_with_correct_within_lengths)
    assert seen == 40
    assert np.mean(monotone) > 0.5  # a rank correlation takes the bump for what the score tells
    assert abs(np.mean(left)) < 0.2


def test_independent_columns_are_seldom_called_dependent() -> None:
    """One of the two depends on length: the other decides how often there is a false alarm."""
    alarms = 0
    for seed in range(200):
        rng = np.random.default_rng(seed)
        score, _, length = bump(rng, 100)
        alarms += audit_length(score, (rng.random(100) < 0.5).astype(float), length).confounded
    assert alarms <= 12
