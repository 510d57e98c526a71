"""What is said instead of a summary whose confidence is too low."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from selfreflect.server.belief import Confidence
from selfreflect.server.clarify import Clarification, NoClarification, UnsureAction, UnsurePolicy, certainty
from selfreflect.uncertainty.asking.asker import PHRASES, Hedge, read_hedge

SUMMARY = "Paris, {certainty}"
LOW = Confidence(0.25, "modal_share", num_answers=20)
QUESTION = Clarification("Which one, {summary}?", ("the first", "the second"), 1.0, 1.5)


def said(action: UnsureAction, question: Clarification | None = None) -> str:
    return UnsurePolicy(action, 0.4).word(LOW, SUMMARY, question).text


@pytest.mark.parametrize("action", ["abstain", "hedge", "ask"])
def test_a_summary_that_is_sure_enough_stays(action: UnsureAction) -> None:
    sure = Confidence(0.4, "modal_share", num_answers=20)
    assert UnsurePolicy(action, 0.4).word(sure, SUMMARY, QUESTION) == (SUMMARY, None, "")


def test_abstaining_says_no_answer() -> None:
    assert said("abstain") == (
        "I am not sure enough of my answer to give it. It is unlikely that I would give the same answer "
        "if I were asked again (25%, from 20 samples)."
    )


@pytest.mark.parametrize(
    "summary",
    [
        "Probably 146 (about half of my answers)",
        "146, 40 % of the time",
        "146 in 3 out of 10",
        "Very likely 146",
    ],
)
def test_a_hedge_and_its_summary_never_hold_two_numbers_for_one_thing(summary: str) -> None:
    wording = UnsurePolicy("hedge", 0.5).word(LOW, summary, None)
    assert wording.text.endswith(summary)
    assert "25%" not in wording.text
    assert wording.note
    calibrated = LOW._replace(calibrator_id="c")  # of being right, which is another thing
    assert "25%" in UnsurePolicy("hedge", 0.5).word(calibrated, summary, None).text


def test_a_question_comes_with_its_replies() -> None:
    assert said("ask", question=QUESTION).endswith("Which one, {summary}?\n- the first\n- the second")


def test_without_a_question_it_hedges_and_says_why() -> None:
    none = NoClarification("no_gain", "it would tell nothing")
    wording = UnsurePolicy("ask", 0.4).word(LOW, SUMMARY, none)
    assert wording.text == said("hedge")
    assert wording.action == "hedge"
    assert "it would tell nothing" in wording.note


def test_only_a_calibrated_confidence_speaks_of_known_answers_and_only_shares_of_samples() -> None:
    texts = [
        certainty(Confidence(0.2, kind, 20, calibrator_id))
        for kind, calibrator_id in [("modal_share", None), ("modal_share", "c"), ("verbalized", None)]
    ]
    assert ["asked again" in text for text in texts] == [True, False, False]
    assert ["answers are known" in text for text in texts] == [False, True, False]
    assert ["my own estimate" in text for text in texts] == [False, False, True]


@given(st.floats(0, 1), st.sampled_from(["modal_share", "p_true"]), st.sampled_from([None, "c"]))
def test_the_word_fits_the_number(value: float, kind: str, calibrator_id: str | None) -> None:
    """Who reads the sentence as the study's people do gets a band that holds the number."""
    text = certainty(Confidence(value, kind, 20, calibrator_id))
    assert "{" not in text
    hedge = read_hedge(text)
    if isinstance(hedge, Hedge):
        assert hedge.band.low <= value <= hedge.band.high
    else:
        assert hedge.reason == "no_hedge"
        assert not any(band.low <= value <= band.high for band in PHRASES.values())


@pytest.mark.parametrize(
    ("value", "percent"), [(0, " 0%"), (0.001, "under 1%"), (0.45, "45%"), (0.999, "over 99%"), (1, "100%")]
)
def test_no_doubt_is_rounded_away(value: float, percent: str) -> None:
    assert percent in certainty(Confidence(value, "modal_share", 20))
