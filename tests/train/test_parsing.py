"""What is read in completions that state an answer and a confidence, and what is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from selfreflect.train.rewards.stated import parse_stated
from selfreflect.uncertainty.question import NoValue


@pytest.mark.parametrize(
    ("text", "answer", "confidence"),
    [
        ("Answer: Paris\nConfidence: 85%", "Paris", 0.85),
        ("Confidence: 0.85\nAnswer: Paris", "Paris", 0.85),
        ("**Answer:** Paris\n**Confidence:** 8/10", "Paris", 0.8),
        ("It is in France. ANSWER: Paris. confidence: 17 out of 20.", "Paris.", 0.85),
        ("Answer: Rome, Self-reflection: 2 of 3 maps. Confidence: 40", "Rome,", 0.4),
        ("Answer: 1969\nConfidence: 100", "1969", 1.0),
        ("Answer: no\nConfidence: 0", "no", 0.0),
    ],
)
def test_both_are_read_in_either_order(text: str, answer: str, confidence: float) -> None:
    parsed = parse_stated(text)
    assert parsed.answer == answer
    assert parsed.confidence == pytest.approx(confidence)


@pytest.mark.parametrize(
    ("text", "answer", "confidence"),
    [
        ("<answer>4</answer><analysis>a</analysis><confidence>0.8</confidence>", "4", 0.8),
        ("<answer> 4 </answer>\nIt is four. <CONFIDENCE>80%</CONFIDENCE>\nDone: 12", "4", 0.8),
        ("<confidence>1</confidence><answer>4</answer>", "4", 1.0),
        ("<answer>4</answer> <confidence>0</confidence>", "4", 0.0),
        ("<answer>4</answer>\nConfidence: 80%", "4", 0.8),
        ("<answer>4</answer><analysis>The answer: 5?</analysis><confidence>0.8</confidence>", "4", 0.8),
        ("<answer>4</answer><answer>5</answer><confidence>0.8</confidence>", "", "unparsed"),
        ("<answer>4</answer> Answer: 5 <confidence>0.8</confidence>", "", "unparsed"),
        ("<answer>4</answer><confidence>1.5</confidence>", "4", "ambiguous_number"),
        ("<answer>4</answer>", "4", "no_confidence"),
        ("<confidence>0.8</confidence>", "", "no_answer"),
        ("<answer>4 <confidence>0.8</confidence>", "", "no_answer"),
    ],
)
def test_tags_stand_in_place_of_labels(text: str, answer: str, confidence: float | str) -> None:
    parsed = parse_stated(text)
    assert parsed.answer == answer
    read = parsed.confidence.reason if isinstance(parsed.confidence, NoValue) else parsed.confidence
    assert read == confidence


@pytest.mark.parametrize(
    ("confidence", "reason"),
    [
        ("", "no_number"),
        ("high", "no_number"),
        ("70% or 80%", "several_numbers"),
        ("85%, well, 0.6", None),  # the percentage is marked, the other number is not
        ("120%", "out_of_range"),
        ("11/10", "out_of_range"),
        ("-5%", "out_of_range"),
        ("1", "ambiguous_number"),
        ("more than 90%", "ambiguous_number"),
    ],
)
def test_no_confidence_is_guessed(confidence: str, reason: str | None) -> None:
    parsed = parse_stated(f"Answer: Paris\nConfidence: {confidence}")
    assert parsed.answer == "Paris"
    if reason is None:
        assert parsed.confidence == 0.85
    else:
        assert isinstance(parsed.confidence, NoValue)
        assert parsed.confidence.reason == reason


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "no_answer"),
        ("Paris, 85%", "no_answer"),
        ("Confidence: 85%", "no_answer"),
        ("Answer:\nConfidence: 85%", "no_answer"),
        ("Answer: Paris", "no_confidence"),
        ("Answer: Paris Confidence: 10% Confidence: 90%", "unparsed"),
        ("Answer: Paris Answer: Rome Confidence: 90%", "unparsed"),
    ],
)
def test_each_label_must_occur_once(text: str, reason: str) -> None:
    parsed = parse_stated(text)
    assert isinstance(parsed.confidence, NoValue)
    assert parsed.confidence.reason == reason


def test_a_plain_number_may_be_on_a_scale() -> None:
    assert parse_stated("Answer: a Confidence: 8", out_of=10).confidence == 0.8
    assert parse_stated("Answer: a Confidence: 1.", out_of=10).confidence == 0.1
    assert parse_stated("Answer: a Confidence: 85%", out_of=10).confidence == 0.85
    beyond = parse_stated("Answer: a Confidence: 85", out_of=10)
    assert isinstance(beyond.confidence, NoValue)
    assert beyond.confidence.reason == "out_of_range"


@given(st.text(max_size=200) | st.lists(st.sampled_from("answer: confidence: 8 /10 % Paris -".split())))
def test_any_text_gives_a_confidence_in_range_or_a_reason(text: str | list[str]) -> None:
    parsed = parse_stated(text if isinstance(text, str) else " ".join(text))
    if not isinstance(parsed.confidence, NoValue):
        assert 0 <= parsed.confidence <= 1
        assert parsed.answer
