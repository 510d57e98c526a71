"""The paste curve: straight lines between known points, what is said at its ends, and strategies beside."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from synthetic import informed_run, synthetic_run

from selfreflect.report.comparison import PasteCurve, mean_curve, paste_table, run_curve

CURVE = PasteCurve((0, 1, 2, 4), (0, 5, 10, 20), (0.0, 4.0, 3.0, 8.0))


def test_it_is_straight_between_points_and_ends_with_all_answers():
    assert CURVE.at(2.5) == 2
    assert CURVE.at(7.5) == 3.5
    assert CURVE.at(100) == 8


def test_equal_bits_are_those_of_the_fewest_answers_that_tell_as_much():
    assert CURVE.equal(2.0) == (0.5, 2.5)
    assert CURVE.equal(4.0) == (1, 5)
    assert CURVE.equal(5.5) == (3, 15)
    assert CURVE.equal(9.0) is None
    assert CURVE.equal(0.0) is None


def test_the_sentence_says_which_side_of_the_curve():
    assert CURVE.sentence("a", 9, 5.5) == "a tells as much in 9 words as pasting 3.0 answers (15 words)."
    assert CURVE.sentence("good", 9, 8.5) == "good tells more in 9 words than all answers pasted (20 words)."
    assert CURVE.sentence("bad", 9, -0.5) == "bad tells nothing, in 9 words."
    assert CURVE.sentence("poor", 9, 0.05) == "poor tells hardly anything, in 9 words."


def test_a_mean_leaves_out_curves_with_fewer_points():
    other = PasteCurve((0, 1, 2, 6), (0, 7, 12, 40), (0.0, 2.0, 4.0, 10.0))
    short = PasteCurve((0, 1), (0, 100), (0.0, 50.0))
    mean = mean_curve([CURVE, other, short])
    assert mean.answers == [0, 1, 2, 5]
    assert mean.words == [0, 6, 11, 30]
    assert mean.bits == pytest.approx([0, 3, 3.5, 9])


def test_strategies_stand_beside_the_mean_curve_of_the_questions_with_controls():
    run = informed_run()
    curve, points = run_curve(run)
    assert (curve.answers, curve.words, curve.bits) == ([0, 1, 2], [0, 1, 2], [0, 5, 10])
    assert [(point.strategy, point.words, point.bits.mean, point.bits.n) for point in points] == [
        ("good", 3, 6, 1),
        ("bad", 3, -1, 1),
    ]
    table = paste_table(curve, points)
    assert table.notes == (
        "On average, good tells as much in 3 words as pasting 1.2 answers (1 word).",
        "On average, bad tells nothing, in 3 words.",
    )
    assert [row[0] for row in table.rows] == [
        "good",
        "bad",
        "control: 1 answer pasted",
        "control: 2 answers pasted",
    ]


def test_questions_with_fewer_pasted_answers_or_nothing_to_tell_do_not_count():
    run = informed_run()
    controls = run.controls["q0"]
    run.controls["q1"] = replace(controls, question_id="q1", controls=controls.controls[:3])
    curve, points = run_curve(run)
    assert curve.bits == [0, 5, 10]
    assert {point.bits.n for point in points} == {1}
    for name in run.strategies:
        run.information["q0", name] = replace(run.information["q0", name], recovered=None, undefined="known")
    curve, _ = run_curve(run)
    assert curve.bits == [0, pytest.approx(5)]


def test_without_controls_there_is_no_curve():
    assert run_curve(synthetic_run(2, num_answers=2, informed=True)) is None
    assert run_curve(synthetic_run(2, num_answers=2)) is None


def test_a_strategy_is_compared_with_pasting_on_its_own_questions():
    run = informed_run()
    before = paste_table(*run_curve(run)).notes
    controls = run.controls["q0"]
    doubled = [replace(one, bits=None if one.bits is None else 2 * one.bits) for one in controls.controls]
    run.controls["q1"] = replace(controls, question_id="q1", controls=tuple(doubled))
    run.information.pop(("q1", "good"))
    curve, points = run_curve(run)
    assert curve.bits == [0, 7.5, 15]
    assert paste_table(curve, points).notes[0] == before[0]


def test_questions_of_two_readers_are_not_averaged():
    run = informed_run()
    controls = run.controls["q0"]
    for number, reader in ((1, "blind"), (2, "informed")):
        loud = [replace(one, bits=None if one.bits is None else 9 * one.bits) for one in controls.controls]
        texts = tuple(loud) if reader == "blind" else controls.controls
        id_ = f"q{number}"
        run.questions[id_] = replace(run.questions["q0"], id=id_)
        run.controls[id_] = replace(controls, question_id=id_, controls=texts, reader=reader)
        for name in run.strategies:
            run.information[id_, name] = replace(run.information["q0", name], question_id=id_)
    curve, points = run_curve(run)
    assert curve.bits == [0, 5, 10]
    assert {point.bits.total for point in points} == {2}
    assert paste_table(curve, points).notes[-1] == (
        "words and bits are of the 2 questions with the informed reader only"
    )
