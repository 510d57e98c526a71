"""Pasted answers: straight lines between known points, what is said at their ends, and strategies beside."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from synthetic import informed_run, synthetic_run

from selfreflect.records import Score, Summary
from selfreflect.report.length import (
    PastedAnswers,
    length_audit,
    length_table,
    mean_pasted,
    pasted_table,
    run_pasted,
)

CURVE = PastedAnswers((0, 1, 2, 4), (0, 5, 10, 20), (0.0, 4.0, 3.0, 8.0))


@pytest.mark.parametrize(
    ("bits", "equal", "end"),
    [
        (2.0, (0.5, 2.5), "as much in 9 words as 0.5 pasted answers (2 words)."),
        (4.0, (1, 5), "as much in 9 words as 1.0 pasted answers (5 words)."),
        (5.5, (3, 15), "as much in 9 words as 3.0 pasted answers (15 words)."),
        (9.0, None, "more in 9 words than all answers pasted (20 words)."),
        (0.05, (0.0125, 0.0625), "hardly anything, in 9 words."),
        (0.0, None, "nothing, in 9 words."),
    ],
)
def test_equal_bits_are_those_of_the_fewest_answers_with_as_many(bits, equal, end):
    assert CURVE.equal(bits) == (equal and pytest.approx(equal))
    assert CURVE.sentence("basic", 9, bits) == f"basic recovers {end}"


def test_a_mean_leaves_out_curves_with_fewer_points():
    longer = PastedAnswers((0, 1, 2, 6), (0, 7, 12, 40), (0.0, 2.0, 4.0, 10.0))
    short = PastedAnswers((0, 1), (0, 100), (0.0, 50.0))
    mean = mean_pasted([CURVE, longer, short])
    assert (mean.answers, mean.words, mean.bits) == (
        [0, 1, 2, 5],
        [0, 6, 11, 30],
        pytest.approx([0, 3, 3.5, 9]),
    )


def test_strategies_stand_beside_the_mean_of_the_questions_with_controls():
    pasted, points = run_pasted(informed_run())
    assert (pasted.answers, pasted.words, pasted.bits) == ([0, 1, 2], [0, 1, 2], [0, 5, 10])
    values = [(point.strategy, point.words, point.bits.mean, point.bits.n) for point in points]
    assert values == [("good", 3, 6, 1), ("bad", 3, -1, 1)]
    table = pasted_table(pasted, points)
    assert ["1.2 pasted answers" in note for note in table.notes] == [True, False]
    names = ["good", "bad", "control: 1 answer pasted", "control: 2 answers pasted"]
    assert [row[0] for row in table.rows] == names
    assert run_pasted(synthetic_run(2, num_answers=2, informed=True)) is None
    assert run_pasted(synthetic_run(2, num_answers=2)) is None


def test_questions_with_fewer_pasted_answers_or_without_a_share_do_not_count():
    run = informed_run()
    controls = run.controls["q0"]
    run.controls["q1"] = replace(controls, question_id="q1", controls=controls.controls[:3])
    pasted, points = run_pasted(run)
    assert pasted.bits == [0, 5, 10]
    assert {point.bits.n for point in points} == {1}
    for name in run.strategies:
        run.information["q0", name] = replace(run.information["q0", name], recovered=None, undefined="known")
    assert run_pasted(run)[0].bits == [0, pytest.approx(5)]


def test_a_strategy_is_compared_with_pasting_on_its_own_questions():
    run = informed_run()
    before = pasted_table(*run_pasted(run)).notes
    controls = run.controls["q0"]
    texts = [replace(text, bits=None if text.bits is None else 2 * text.bits) for text in controls.controls]
    run.controls["q1"] = replace(controls, question_id="q1", controls=tuple(texts))
    run.information.pop(("q1", "good"))
    pasted, points = run_pasted(run)
    assert pasted.bits == [0, 7.5, 15]
    assert pasted_table(pasted, points).notes[0] == before[0]


def test_questions_of_two_readers_are_not_averaged():
    run = informed_run()
    controls = run.controls["q0"]
    for number, reader in ((1, "blind"), (2, "informed")):
        loud = [
            replace(text, bits=None if text.bits is None else 9 * text.bits) for text in controls.controls
        ]
        texts = tuple(loud) if reader == "blind" else controls.controls
        id_ = f"q{number}"
        run.questions[id_] = replace(run.questions["q0"], id=id_)
        run.controls[id_] = replace(controls, question_id=id_, controls=texts, reader=reader)
        for name in run.strategies:
            run.information[id_, name] = replace(run.information["q0", name], question_id=id_)
    pasted, points = run_pasted(run)
    assert pasted.bits == [0, 5, 10]
    assert {point.bits.total for point in points} == {2}
    assert "the 2 questions with the informed reader only" in pasted_table(pasted, points).notes[-1]


def test_the_length_audit_says_how_the_longer_of_two_fares():
    run = synthetic_run(3, strategies=("short", "long"), num_answers=2)
    texts = {"short": "one", "long": "one two three"}
    values = {"short": 0.5, "long": 0.1}
    for id_, name in run.summaries:
        run.summaries[id_, name] = Summary(question_id=id_, name=name, text=texts[name])
        fields = {"value": values[name], "stderr": None, "token_tasks": 1, "judge": "j"}
        run.scores[id_, name] = Score(question_id=id_, summary=name, **fields)
    table = length_table(length_audit(run))
    assert "in 3 of 3 pairs (100 %)" in table.notes[0]
    assert [row[:2] for row in table.rows] == [("short", None), ("long", None)]


@pytest.mark.parametrize(("low", "is_more"), [(8.5, True), (7.0, False), (None, False)])
def test_a_mean_recovers_more_than_all_answers_only_clearly(low, is_more):
    assert (CURVE.sentence("basic", 9, 9.0, low) == CURVE.sentence("basic", 9, 9.0)) == is_more
