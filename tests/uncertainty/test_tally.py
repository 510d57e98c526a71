"""Scores counted by distinct value, and what may not be counted."""

from __future__ import annotations

import math
import tracemalloc
from typing import Any

import numpy as np
import pytest

from selfreflect.errors import DataError
from selfreflect.uncertainty import prediction as module
from selfreflect.uncertainty.prediction import Tally

TALLY = Tally.of([0.5, 0.2, 0.5, 0.9, 0.2, 0.5], [1, 0, 0, 1, 0, 1])


def drawn(tally: Tally, number: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Counts and correct answers of all resamples, shape (number, G)."""
    blocks = list(tally.resamples(number, seed))
    return np.concatenate([one.counts for one in blocks]), np.concatenate([one.correct for one in blocks])


def test_answers_are_counted_by_score_lowest_first() -> None:
    assert TALLY.values.tolist() == [0.2, 0.5, 0.9]
    assert TALLY.counts.tolist() == [2, 3, 1]
    assert TALLY.correct.tolist() == [0, 2, 1]
    assert TALLY.wrong.tolist() == [2, 1, 0]
    assert TALLY.n == 6
    assert float(TALLY.accuracy) == 0.5


def test_resamples_of_many_answers_vary_as_those_of_single_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    labels = [1, 0, 0, 1, 1, 0, 1, 1] * 1000
    tally = Tally.of([0.2, 0.5, 0.5, 0.9] * 2000, labels)
    counts, correct = drawn(tally, 2000)
    monkeypatch.setattr(module, "_MANY_ANSWERS", math.inf)
    one_by_one = drawn(tally, 2000)
    for many, single, observed in zip(
        (counts, correct), one_by_one, (tally.counts, tally.correct), strict=True
    ):
        spread = np.sqrt(observed * (1 - observed / tally.n))
        assert np.abs(many.mean(0) - observed).max() < 0.1 * spread.max()
        assert many.std(0) == pytest.approx(spread, rel=0.1)
        assert many.std(0) == pytest.approx(single.std(0), rel=0.1)
    assert (counts.sum(1) == tally.n).all()
    assert (correct <= counts).all()


def test_a_resample_has_as_many_answers_and_no_others() -> None:
    counts, correct = drawn(TALLY, 200)
    assert counts.shape == correct.shape == (200, 3)
    assert (counts.sum(1) == 6).all()
    assert (correct[:, 0] == 0).all()  # no answer with the lowest score is correct
    assert (correct[:, 2] == counts[:, 2]).all()  # and none with the highest is wrong
    assert (correct <= counts).all()
    [block] = TALLY.resamples(200, 0)
    assert block.n == 6
    assert block.accuracy == pytest.approx(correct.sum(1) / 6)


@pytest.mark.parametrize("block", [1, 6, 25, 120])
def test_blocks_save_memory_and_change_nothing(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = drawn(TALLY, 11)
    monkeypatch.setattr(module, "_BLOCK", block)
    sizes = [len(one.counts) for one in TALLY.resamples(11, 0)]
    assert max(sizes) <= max(1, block // 6)
    assert [counts.tolist() for counts in drawn(TALLY, 11)] == [counts.tolist() for counts in whole]


@pytest.mark.parametrize(
    ("scores", "correct", "message"),
    [
        ([0.1, math.nan], [0, 1], "score 1 is nan; it must be a finite number"),
        ([-math.inf, 0.1], [0, 1], "score 0 is -inf; it must be a finite number"),
        ([0.1, 0.2, 0.3], [0, 1, 2], "label 2 is 2; it must be 0 or 1"),
        ([0.1, 0.2], [0, math.nan], "label 1 is nan; it must be 0 or 1"),
        ([0.1, 0.2], [1], "lists of one length, not empty; these are 2 scores and 1 labels"),
        ([], [], "lists of one length, not empty; these are 0 scores and 0 labels"),
        ([[0.1], [0.2]], [[1], [0]], "lists of one length, not empty; these are 2 scores and 2 labels"),
    ],
)
def test_what_cannot_be_counted_is_named(scores: Any, correct: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        Tally.of(scores, correct)


@pytest.mark.parametrize("block", [1, 40, 2**20])
def test_a_drawn_group_brings_all_its_answers(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_BLOCK", block)
    tally = Tally.of([0.1, 0.1, 0.2, 0.3, 0.3, 0.3], [1, 1, 0, 1, 0, 1], ["a", "a", "a", "b", "b", "c"])
    by_group = np.array([[2, 1, 0], [0, 0, 2], [0, 0, 1]]), np.array([[2, 0, 0], [0, 0, 1], [0, 0, 1]])
    sample = np.random.default_rng(5).integers(0, 3, (9, 3))
    times = np.stack([np.bincount(row, minlength=3) for row in sample])
    counts, correct = drawn(tally, 9, seed=5)
    assert counts.tolist() == (times @ by_group[0]).tolist()
    assert correct.tolist() == (times @ by_group[1]).tolist()


def test_resampling_many_groups_takes_no_table_of_groups_by_scores() -> None:
    rng = np.random.default_rng(0)
    groups = [f"object {number // 20}" for number in range(20_000)]
    tally = Tally.of(rng.random(20_000), rng.integers(0, 2, 20_000), groups)
    tracemalloc.start()
    sizes = [len(one.counts) for one in tally.resamples(30, 0)]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert sum(sizes) == 30
    assert peak < 2**27, "a thousand groups of 40,000 cells are 320 MB"
