"""Tables of estimators: what stands in which cell, and the notes below."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from selfreflect.uncertainty.assess import Assessment, Method, predictions
from selfreflect.uncertainty.classes import ClassRule
from selfreflect.uncertainty.measures import measure_all
from selfreflect.uncertainty.prediction import Tally
from selfreflect.uncertainty.question import AnsweredQuestion
from selfreflect.uncertainty.tables import (
    calibration_table,
    interval_cells,
    length_notes,
    ranking_table,
    value_table,
)

EXACT = Method(ClassRule("exact"), correctness=("exact",))
QUESTIONS = [
    AnsweredQuestion(
        id=f"q{number}",
        answers=("a b",) * 3 if number % 3 else ("a b", "c", "d"),
        gold=("a b",) if number % 2 else ("c",),
        confidence=0.9 if number % 2 else 0.4,
    )
    for number in range(12)
]


def assessed(*names: str, questions: list[AnsweredQuestion] = QUESTIONS) -> Assessment:
    return Assessment(questions, names, EXACT)


def test_values_have_their_mean_and_ends() -> None:
    uneven = [*QUESTIONS[:2], AnsweredQuestion(id="x", confidence=0.2)]
    table = value_table(assessed("stated", "entropy", "p_true", questions=uneven))
    assert table.rows[0][:2] == ("stated", "confidence")
    assert table.rows[0][2:7] == ("probability [0, 1]", 3, pytest.approx(0.5), 0.2, 0.9)
    assert table.rows[1][1:4] == ("uncertainty", "nats [0, ∞)", 2)
    assert table.rows[2][3:7] == (0, None, None, None)
    notes = " ".join(table.notes)
    assert "3 questions, answers to each: 0 to 3. Classes: exact. Similarity of answers: " in notes
    assert "entropy: no value for 1 question: 0 of at least 1 sample." in notes
    assert "p_true: no value for 3 questions: no model was asked" in notes
    assert "cMFG " in notes
    assert "on 2 questions" in notes
    assert (
        "4 questions, answers to each: 3"
        in value_table(assessed("entropy", questions=QUESTIONS[:4])).notes[0]
    )


def test_estimators_that_follow_the_length_are_named_together() -> None:
    questions = []
    for number in range(30):
        confidence = 1 - number / 40
        questions.append(
            AnsweredQuestion(
                id=f"q{number}", confidence=confidence, correct=number < 15, length=float(number)
            )
        )
    assessment = Assessment(questions, ["stated"], Method(ClassRule("exact"), correctness=("human",)))
    rows = predictions(assessment, "human", ("auroc",))
    [note] = length_notes(rows)
    assert "and so do stated." in note
    plain = [replace(row, audit=None) for row in rows]
    assert length_notes(plain) == []


def test_calibration_before_and_after_is_of_labelled_questions() -> None:
    unlabelled = AnsweredQuestion(id="x", answers=("a",), confidence=0.3)
    assessment = assessed("stated", "entropy", questions=[*QUESTIONS[:4], unlabelled])
    after = np.array([0.8, 0.2, 0.8, 0.2])
    table = calibration_table(assessment, "stated", "exact", [1, 2, 3, 4], after, "fitted")
    assert table.title == "Calibration of stated (exact): accuracy 0.667, n = 3"
    assert [row[:2] for row in table.rows] == [
        ("before", pytest.approx((0.9 + 0.4 + 0.9) / 3)),
        ("fitted", pytest.approx(0.6)),
        ("constant (base rate)", pytest.approx(2 / 3)),
    ]
    headings = [column.heading for column in table.columns]
    brier = headings.index("brier")
    assert table.rows[1][brier] == pytest.approx((0.2**2 + 0.2**2 + 0.2**2) / 3)
    entropy = calibration_table(assessment, "entropy", "exact", [1, 2], after[:2], "fitted")
    assert [row[0] for row in entropy.rows] == ["fitted", "constant (base rate)"]
    nothing = calibration_table(assessment, "stated", "exact", [4], np.array([0.3]), "fitted")
    assert nothing.rows == (("fitted", pytest.approx(0.3)),)
    assert "n = 1" in nothing.title
    assert "nothing to compare with" in nothing.notes[0]


def test_calibration_draws_whole_objects() -> None:
    fields = [replace(one, group=f"object {place // 4}") for place, one in enumerate(QUESTIONS)]
    assessment = assessed("stated", questions=fields)
    before = [one.confidence or 0.0 for one in QUESTIONS]
    table = calibration_table(assessment, "stated", "exact", range(12), np.array(before), "fitted")
    scored = assessment.labelled_scores("stated", "exact")
    groups = [one.group for one in fields]
    expected = measure_all(["brier"], Tally.of(scored.scores, scored.labels, groups))["brier"]
    headings = [column.heading for column in table.columns]
    for row in table.rows[:2]:
        assert row[headings.index("brier") + 1] == interval_cells(expected)[1]


def test_a_ranking_has_measures_and_calibration_of_each_row() -> None:
    twice = [replace(question, id=f"{question.id}-{copy}") for question in QUESTIONS for copy in "ab"]
    assessment = assessed("stated", "entropy", questions=twice)
    rows = predictions(assessment, "exact", ("auroc",))
    table = ranking_table(rows, "exact", ["auroc"])
    assert [row[0] for row in table.rows] == ["stated", "entropy", "constant (base rate)", "length only"]
    assert table.rows[0][1:] == (24, 1.0, "0.735 to 1.000", rows[0].isotonic["brier"].value)
    assert table.rows[2][4] is None
