"""Estimators and labels of the same questions: what is joined, what is left out, and the baselines."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from selfreflect.logprobs import TokenValues
from selfreflect.uncertainty.assess import (
    Assessment,
    Method,
    Prediction,
    predictions,
    subsample,
)
from selfreflect.uncertainty.calibrators import cross_fit
from selfreflect.uncertainty.classes import ClassRule
from selfreflect.uncertainty.question import AnsweredQuestion

EXACT = Method(ClassRule(), correctness=("exact",))
NAMED = {"answers": ("Paris", "paris.", "Lyon"), "gold": ("Paris",)}


def stated(
    confidences: list[float], labels: list[bool | None], lengths: list[float | None] | None = None
) -> Assessment:
    questions = []
    for number, (confidence, label) in enumerate(zip(confidences, labels, strict=True)):
        length = None if lengths is None else lengths[number]
        one = AnsweredQuestion(id=f"q{number}", confidence=confidence, correct=label, length=length)
        questions.append(one)
    return Assessment(questions, ["stated"], Method(ClassRule(), correctness=("human",)))


def by_name(assessment: Assessment, correctness: str = "human", **options: Any) -> dict[str, Prediction]:
    return {one.estimator: one for one in predictions(assessment, correctness, **options)}


def test_scores_are_of_questions_with_a_value_and_a_label() -> None:
    questions = [
        AnsweredQuestion(id="a", **NAMED),
        AnsweredQuestion(id="b", answers=("Paris",)),  # no right answer
        AnsweredQuestion(id="c", gold=("Paris",), confidence=0.5),  # no answer
        AnsweredQuestion(id="d", answers=("Nice", "Nice"), gold=("Paris",)),
    ]
    assessment = Assessment(questions, ["entropy", "modal_share"], EXACT)
    assert assessment.judged.texts == ["Paris", "Paris", None, "Nice"]
    assert assessment.judged.labels == {"exact": [True, None, None, False]}
    indices, scores, labels, *_ = assessment.labelled_scores("modal_share", "exact")
    assert (indices, scores.tolist(), labels.tolist()) == ([0, 3], [0.666666666667, 1.0], [1.0, 0.0])
    assert assessment.labelled_scores("entropy", "exact")[1].tolist() == [-0.636514168295, 0.0]


def test_stated_confidences_are_compared_with_the_share_of_the_modal_answer() -> None:
    questions = [
        AnsweredQuestion(id="a", answers=("x", "x"), confidence=0.75),
        AnsweredQuestion(id="b", answers=("x", "y"), confidence=0.5),
        AnsweredQuestion(id="c", answers=("x", "y")),
        AnsweredQuestion(id="d", confidence=0.5),
    ]
    assert Assessment(questions, ["entropy"], EXACT).stated_faithfulness == ((0.75 + 1) / 2, 2)
    assert Assessment(questions[2:], ["entropy"], EXACT).stated_faithfulness is None


CONFIDENCES = [0.9, 0.8, 0.7, 0.6, 0.4, 0.35, 0.3, 0.2, 0.1, 0.05]
LABELS: list[bool | None] = [True, True, False, True, True, True, False, False, False, False]


def test_two_baselines_stand_beside_the_estimators() -> None:
    lengths: list[float | None] = [1.0, 2, 3, 4, 5, 6, 7, 8, 9, 10]
    rows = by_name(stated(CONFIDENCES, LABELS, lengths), measures=("auroc", "brier"))
    assert list(rows) == ["stated", "constant", "length"]
    assert [row.baseline for row in rows.values()] == [False, True, True]
    assert {(row.n, row.total, row.correctness) for row in rows.values()} == {(10, 10, "human")}
    assert rows["constant"].measures["brier"].value == pytest.approx(0.25)
    assert rows["constant"].measures["auroc"].value == 0.5
    scores, labels = np.array(CONFIDENCES), np.array(LABELS, dtype=float)
    calibrated = ((cross_fit("isotonic", scores, labels) - labels) ** 2).mean()
    assert rows["stated"].isotonic["brier"].value == pytest.approx(calibrated)
    assert rows["length"].measures["auroc"].value == rows["stated"].measures["auroc"].value == 22 / 25
    assert "brier" not in rows["length"].measures  # which is not a probability
    by_length = ((cross_fit("isotonic", -np.arange(1.0, 11), labels) - labels) ** 2).mean()
    assert rows["length"].isotonic["brier"].value == pytest.approx(by_length)
    assert rows["constant"].isotonic == {}
    audit = rows["stated"].audit
    assert audit is not None
    assert (audit.n, audit.score_with_length) == (10, pytest.approx(-1))
    assert rows["constant"].audit is None


def test_without_labels_nothing_is_measured() -> None:
    rows = by_name(stated(CONFIDENCES, [None] * 10))
    assert list(rows) == ["stated"]
    assert (rows["stated"].n, rows["stated"].measures, rows["stated"].audit) == (0, {}, None)


def test_a_subsample_keeps_order_and_what_belongs_to_each_answer() -> None:
    full = AnsweredQuestion(
        id="q",
        answers=tuple("abcdefgh"),
        token_values=TokenValues(
            logprobs=tuple((-float(number),) for number in range(8)),
            tokens=tuple((letter,) for letter in "abcdefgh"),
            self_certainty=tuple(map(float, range(8))),
        ),
        gold=("a",),
    )
    some = subsample(full, 3)
    assert len(some.answers) == 3
    assert list(some.answers) == sorted(some.answers)
    places = ["abcdefgh".index(letter) for letter in some.answers]
    assert some.token_values.logprobs == tuple((-float(place),) for place in places)
    assert some.token_values.tokens == tuple((letter,) for letter in some.answers)
    assert some.token_values.self_certainty == tuple(map(float, places))
    assert some.gold == ("a",)
    assert subsample(full, 3) == some
    assert {subsample(full, 3, seed).answers for seed in range(9)} != {some.answers}
    assert subsample(full, 8) == full
