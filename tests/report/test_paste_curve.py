"""The paste curve: straight lines between known points, and what is said at its ends."""

from __future__ import annotations

import pytest

from selfreflect.report.paste_curve import PasteCurve, mean_curve

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
