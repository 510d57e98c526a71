"""Words of probability as numbers, and words that stay unread."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from selfreflect.uncertainty.asking.asker import Hedge, read_hedge
from selfreflect.uncertainty.question import NoValue


@pytest.mark.parametrize(
    ("text", "middle"),
    [
        ("It is almost certainly Paris.", 0.95),
        ("Highly likely Paris", 0.9),
        ("Probably Paris, likely in 1969? No: probably Paris.", None),
        ("It is probably not Lyon", 0.25),
        ("It's very\nunlikely to be Lyon.", 0.05),
        ("I believe it is Paris", 0.75),
    ],
)
def test_phrases_have_the_numbers_of_the_study(text: str, middle: float | None) -> None:
    hedge = read_hedge(text)
    assert (hedge.band.middle if isinstance(hedge, Hedge) else None) == middle


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("Paris", "no_hedge"),
        ("Maybe Paris; it might possibly be Lyon", "no_hedge"),
        ("It is not likely", "unknown_hedge"),
        ("It isn't very likely", "unknown_hedge"),
        ("Most likely Paris", "unknown_hedge"),
        ("80% likely", "unknown_hedge"),
        ("I don't think that it is likely to be Lyon", "unknown_hedge"),
        ("Probably Paris, unlikely Lyon", "several_hedges"),
        ("unlikelyhood of improbablesque", "no_hedge"),
    ],
)
def test_what_no_study_covers_is_unknown(text: str, reason: str) -> None:
    hedge = read_hedge(text)
    assert isinstance(hedge, NoValue)
    assert hedge.reason == reason


@given(st.text(max_size=80))
def test_any_text_gives_a_hedge_or_a_reason(text: str) -> None:
    assert isinstance(read_hedge(text), Hedge | NoValue)


@pytest.mark.parametrize("word", ["no", "never", "hardly", "quite", "as", "so", "extremely", "80 %"])
def test_a_changed_phrase_is_quoted_with_what_changes_it(word: str) -> None:
    hedge = read_hedge(f"Whoever asks me hears that it is {word} likely to rain.")
    assert isinstance(hedge, NoValue)
    assert hedge.reason == "unknown_hedge"
    assert f"{word} likely'" in hedge.message
    assert "Whoever" not in hedge.message


@pytest.mark.parametrize(
    ("text", "phrase"),
    [
        ("No, it is likely", "likely"),
        ("I never think, but it is likely", "likely"),
        ("I do not know. I think that it is likely", "likely"),
        ("knot likely", "likely"),
        ("Likely, likely.", "likely"),
        ("Highly probable, very likely", "highly probable"),
        ("Not all be likely", None),
        ("I cannot really say that it is likely", None),
        ("I don’t actually believe it is likely", None),
    ],
)
def test_a_denial_reaches_to_the_end_of_its_clause(text: str, phrase: str | None) -> None:
    hedge = read_hedge(text)
    assert (hedge.phrase if isinstance(hedge, Hedge) else None) == phrase
