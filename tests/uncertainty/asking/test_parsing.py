"""What is read in a model's words about its confidence, and what is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from selfreflect.uncertainty.asking.asker import (
    StatedGuess,
    join_guesses,
    parse_either,
    parse_guesses,
    parse_numbered,
    parse_probability,
    parse_verdict,
)
from selfreflect.uncertainty.question import NoValue


def true_or_false(text: str) -> bool | NoValue:
    return parse_either(text, "True", "False")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("85%", 0.85),
        ("I am about 85 % sure.", 0.85),
        ("**85 percent**", 0.85),
        ("85 per cent", 0.85),
        ("0.85", 0.85),
        (".85", 0.85),
        ("0,85", 0.85),
        ("99,5%", 0.995),
        ("Probability: 0.85.", 0.85),
        ("85", 0.85),
        ("100", 1.0),
        ("0", 0.0),
        ("1.0", 1.0),
        ("1%", 0.01),
        ("8/10", 0.8),
        ("8 out of 10", 0.8),
        ("4 in 5", 0.8),
        ("90%, that is 9/10, so 90 percent", 0.9),
        ("In 1969 it was shown: 70%", 0.7),
    ],
)
def test_every_way_to_write_a_probability(text: str, value: float) -> None:
    assert parse_probability(text) == pytest.approx(value)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "no_number"),
        ("very likely", "no_number"),
        ("70-80%", "several_numbers"),
        ("between 0.2 and 0.4", "several_numbers"),
        ("60% or 70%", "several_numbers"),
        ("120%", "out_of_range"),
        ("-5%", "out_of_range"),
        ("150", "out_of_range"),
        ("1,000%", "out_of_range"),
        ("12/10", "out_of_range"),
        ("3/0", "out_of_range"),
        ("1.5", "ambiguous_number"),
        ("1", "ambiguous_number"),
        ("less than 1%", "ambiguous_number"),
        ("at least .9", "ambiguous_number"),
        (">90%", "ambiguous_number"),
    ],
)
def test_what_is_no_single_probability_is_refused_for_a_reason(text: str, reason: str) -> None:
    value = parse_probability(text)
    assert isinstance(value, NoValue)
    assert value.reason == reason


@given(st.text(max_size=60))
def test_any_text_gives_a_probability_or_a_reason(text: str) -> None:
    value = parse_probability(text)
    assert isinstance(value, NoValue) or 0 <= value <= 1
    for parse in (parse_guesses, parse_numbered, true_or_false):
        parse(text)


def test_a_guess_whose_probability_cannot_be_read_makes_the_reply_unreadable() -> None:
    value = parse_guesses("Paris | 80%\nLyon | 10-20%")
    assert isinstance(value, NoValue)
    assert value.reason == "several_numbers"
    assert isinstance(parse_guesses("Paris (80%)"), NoValue)


def test_guesses_and_probabilities_of_two_replies_are_joined_by_their_numbers() -> None:
    stated = join_guesses("1. Paris\n2) Lyon", "1. 80%\n2. 0.1")
    assert stated == (StatedGuess("Paris", 0.8), StatedGuess("Lyon", 0.1))
    for guesses, probabilities in [
        ("1. Paris\n2. Lyon", "1. 80%"),
        ("Paris", "1. 80%"),
        ("2. Paris", "2. 80%"),
        ("1. Paris", "1. likely"),
    ]:
        assert isinstance(join_guesses(guesses, probabilities), NoValue)


def test_yes_and_no() -> None:
    assert parse_verdict("**Yes**, both name Paris") is True
    assert parse_verdict("**No**, never") is parse_verdict("no.") is False
    for text in ("", "Yes or No? It depends", "Yes and no", "No idea.", "Not sure", "Yesterday", "I say yes"):
        assert isinstance(parse_verdict(text), NoValue)
