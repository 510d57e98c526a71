from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from selfreflect.records import Control, Controls, Information
from selfreflect.report.sentences import (
    controls_caution,
    information_sentence,
    percent,
    place,
    place_text,
    share_sentence,
)

SHARES = st.floats(-20, 20)


def information(recovered=0.56, interval=(0.41, 0.71), **fields):
    fields = {"reader": "informed", "bits": 23.0, "bits_available": 41.0, **fields}
    return Information(question_id="q", summary="s", recovered=recovered, interval=interval, **fields)


def percents(text):
    return [int(number) for number in re.findall(r"-?\d+(?= %| to )", text)]


def test_the_first_sentence_a_person_reads():
    assert information_sentence(information(), 10) == (
        "This summary tells 56 % of what ten sampled answers would (95 % interval: 41 to 71 %)."
    )


def test_one_answer_and_many_are_counted_in_the_right_number():
    assert "of what one sampled answer would" in information_sentence(information(), 1)
    assert "of what 50 sampled answers would" in information_sentence(information(), 50)


def test_the_blind_reader_is_named():
    text = share_sentence(0.56, (0.41, 0.71), 8, "blind", "greedy")
    assert text.startswith(
        "greedy tells 56 % of what eight sampled answers would, to a judge that does not see"
    )


def test_only_a_clear_loss_is_called_misleading():
    clear = share_sentence(-0.13, (-0.2, -0.05), 10, "informed")
    assert clear.startswith("This summary misleads: after reading it, the judge expects fresh answers less")
    assert percents(clear) == [-13, 95, -20, -5]
    assert share_sentence(-0.03, (-0.1, 0.04), 10, "informed") == (
        "This summary tells nothing: -3 % of what ten sampled answers would (95 % interval: -10 to 4 %)."
    )


@given(
    SHARES, st.tuples(SHARES, SHARES).map(sorted), st.integers(1, 60), st.sampled_from(["informed", "blind"])
)
def test_the_numbers_of_the_sentence_are_those_of_the_record(share, interval, answers, reader):
    text = information_sentence(information(share, tuple(interval), reader=reader), answers)
    shown = percents(text)
    assert shown[0] == pytest.approx(100 * share, abs=0.5001)
    if percent(interval[0]) == percent(interval[1]) and interval[1] >= 0:
        assert len(shown) == 1, "an interval without width would look like certainty"
    else:
        assert shown[1] == 95
        assert shown[2:] == [pytest.approx(100 * end, abs=0.5001) for end in interval]
    assert ("misleads" in text) == (interval[1] < 0)
    assert "-0 " not in text
    assert ("does not see the question" in text) == (reader == "blind")


def test_where_the_judge_knows_the_answers_no_number_is_given_but_ways_out():
    informed, blind = (
        information_sentence(information(None, None, reader=reader, undefined="known"), 8)
        for reader in ("informed", "blind")
    )
    assert informed == (
        "The judge already knows these answers: it learns nothing from eight sampled answers, so no summary "
        "can tell it anything. Use another judge, a context that only the model reads, or the blind reader."
    )
    assert blind.endswith("Use another judge, or a context that only the model reads.")


def test_too_few_answers_are_said_to_be_too_few():
    text = information_sentence(information(None, None, undefined="unclear"), 1)
    assert text == (
        "Too few answers (one sampled answer), or too different ones, to say what a summary tells of them. "
        "Draw more answers, or shorter ones."
    )


def test_texts_that_say_nothing_and_tell_as_much_are_a_caution():
    def controls(reader, **bits):
        some = tuple(Control(name=name, words=1, bits=value) for name, value in bits.items())
        return Controls(question_id="q", controls=some, reader=reader, bits_available=10)

    best = [information(bits=5.0), information(bits=2.0)]
    assert controls_caution(controls("informed", empty=0.0, question=1.0, pasted=9.0), best) == ""
    said = controls_caution(controls("blind", empty=-1.0, question=6.0), best)
    assert "as much from the repeated question as from the best summary" in said
    assert "does not see the question" in said
    said = controls_caution(controls("informed", empty=5.0, nonsense=7.0), best)
    assert "from nothing and nonsense as" in said
    assert "does not see" not in said


def test_a_score_between_its_anchors_has_a_place():
    assert place_text(0.0749, 0.0860, 0.0680, 10) == (
        "62 % of the way from the empty summary (0.0860) to ten pasted answers (0.0680)"
    )


def test_scores_outside_their_anchors_are_said_to_be_outside():
    assert place_text(0.09, 0.086, 0.068, 10) == (
        "worse than the empty summary (0.0860); ten pasted answers: 0.0680"
    )
    assert place_text(0.06, 0.086, 0.068, 1) == (
        "better than one pasted answer (0.0680); the empty summary: 0.0860"
    )


def test_anchors_in_the_wrong_order_give_no_place():
    assert place(0.07, 0.068, 0.086) is None
    assert "the empty summary (0.0680) scores no worse than" in place_text(0.07, 0.068, 0.086, 10)


@given(st.floats(0, 1), st.floats(0, 1), st.floats(0, 1))
def test_the_place_is_linear_between_the_anchors(score, empty, pasted):
    share = place(score, empty, pasted)
    if share is None:
        assert empty - pasted <= 1e-4
    else:
        assert empty + share * (pasted - empty) == pytest.approx(score, abs=1e-9)
