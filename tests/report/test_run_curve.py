"""A run's strategies beside its mean paste curve."""

import pytest
from msgspec.structs import replace
from synthetic import informed_run, synthetic_run

from selfreflect.report.paste_curve import paste_table, run_curve


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
