"""Which part a question is in, for ever."""

from __future__ import annotations

import hashlib

import pytest

from selfreflect.errors import ConfigError
from selfreflect.records import Question
from selfreflect.train import folder
from selfreflect.train.folder import parse_percentages, place_of, split_of, split_questions


@pytest.mark.parametrize(
    ("text", "percentages"),
    [
        ("70,10,20", (70, 10, 20)),
        (" 50 , 0, 50 ", (50, 0, 50)),
        ("100,0,0", (100, 0, 0)),
        ("1,98,001", (1, 98, 1)),
    ],
)
def test_percentages_are_three_numbers(text: str, percentages: tuple[int, int, int]) -> None:
    assert parse_percentages(text) == percentages


@pytest.mark.parametrize("text", ["70,10,10", "80,30,-10", "70;10;20", "100", "50,50", "0070,10,20"])
def test_other_numbers_are_refused_by_name(text: str) -> None:
    with pytest.raises(ConfigError, match=f"as in 70,10,20; not '{text}'"):
        parse_percentages(text)


@pytest.mark.parametrize(
    ("place", "default", "halves"),
    [
        (0.0, "train", "train"),
        (49.99, "train", "train"),
        (50.0, "train", "test"),
        (69.99, "train", "test"),
        (70.0, "dev", "test"),
        (79.99, "dev", "test"),
        (80.0, "test", "test"),
        (99.99, "test", "test"),
    ],
)
def test_parts_begin_where_those_before_them_end(
    place: float, default: str, halves: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folder, "place_of", lambda text: place)
    assert split_of("any") == default
    assert split_of("any", (50, 0, 50)) == halves
    assert split_questions([Question(id="q", text="any")], (0, 100, 0))["dev"] == ["q"]


def test_a_place_can_be_computed_elsewhere() -> None:
    number = int(hashlib.sha256(b"who is it").hexdigest()[:16], 16)
    assert place_of("Who is  it?") == number % 10_000 / 100
