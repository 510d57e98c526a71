"""Data sets of runs: candidates, rows, splits, and what is read back."""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from typing import Any

import pytest
from learnable_run import information
from msgspec.structs import replace

from selfreflect.errors import ConfigError
from selfreflect.metric.measure import measure_keyed
from selfreflect.records import Question, Record, Summary, WordBits
from selfreflect.report.run_records import RunRecords, records_in_memory
from selfreflect.train import folder as splits
from selfreflect.train.folder import (
    parse_percentages,
    place_of,
    split_of,
    split_questions,
)
from selfreflect.train.rows import Candidate, best, candidates, margin

RECOVERED = measure_keyed("recovered")


def run_of(*records: Record) -> RunRecords:
    return records_in_memory("run", [Question(id="q", text="Which?"), *records])


def summary(name: str, text: str, **fields: Any) -> Summary:
    return Summary(question_id="q", name=name, text=text, **fields)


def candidate(name: str, *by_answer: float | None, words: int = 3, value: float = 0.5) -> Candidate:
    return Candidate(name, name, words, value, by_answer)


def test_a_candidate_has_the_share_that_it_tells_of_each_answer() -> None:
    told = information("q", "basic", [2.0, 6.0], available=8.0)
    two_words = (WordBits("a", 1.0, 4.0), WordBits("b", 3.0, 4.0))
    told = replace(told, answers=(two_words, (), told.answers[1]))
    [one] = candidates(run_of(summary("basic", " Paris, or Lyon. "), told), "q", RECOVERED)
    assert (one.name, one.text, one.words) == ("basic", "Paris, or Lyon.", 3)
    assert one.value == one.merit == 0.5
    assert one.by_answer == (0.5, None, 0.75)  # nothing was measured of the second answer


def test_why_summaries_are_left_out_is_counted() -> None:
    unclear = replace(information("q", "d", [0.0]), recovered=None, undefined="unclear")
    nothing = replace(information("q", "e", [0.0]), bits_available=None)
    run = run_of(
        *(summary("a", " \n"), summary("b", "one two three four"), summary("c", "Paris", truncated=True)),
        *(summary("d", "Rome"), unclear, summary("e", "Nice"), nothing, summary("f", "Lyon")),
        *(summary("g", "Bonn"), information("q", "g", [1.0]), summary("h", " Bonn ")),
    )
    drops: Counter[str] = Counter()
    kept = candidates(run, "q", RECOVERED, max_words=3, drops=drops)
    assert [one.name for one in kept] == ["e", "g"]
    assert kept[0].by_answer == ()
    assert drops == {
        "blank": 1,
        "longer than 3 words": 1,
        "cut off at the limit of tokens": 1,
        "its information is undefined (unclear)": 1,
        "not measured": 1,
        "equal to another summary of the question": 1,
    }
    assert [one.name for one in candidates(run, "q", RECOVERED, max_words=4)] == ["e", "g"]
    assert candidates(run, "another", RECOVERED) == []
    assert candidates(run, "q", measure_keyed("selfreflect")) == []


def test_a_margin_is_the_mean_difference_with_its_standard_error() -> None:
    """Differences 1, 2 and 6: mean 3, variance (4 + 1 + 9) / 2 = 7."""
    better, worse = candidate("a", 2.0, 2.0, None, 9.0), candidate("b", 1.0, 0.0, 5.0, 3.0)
    assert margin(better, worse) == (3.0, pytest.approx(math.sqrt(7 / 3)))
    assert margin(worse, better) == (-3.0, pytest.approx(math.sqrt(7 / 3)))


def test_the_best_of_equals_is_the_shorter_one_then_the_first() -> None:
    long, short, twin = candidate("long", words=9), candidate("short"), candidate("twin")
    assert best([long, short, twin]).name == "short"
    assert best([short, candidate("wins", words=99, value=0.6)]).name == "wins"
    low = Candidate("low", "x", 3, 0.1, (), higher_is_better=False)
    high = Candidate("high", "x", 3, 0.2, (), higher_is_better=False)
    assert best([high, low]).name == "low"


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
    with pytest.raises(ConfigError, match=f"'{text}'") as caught:
        parse_percentages(text)
    assert "{parts}" in caught.value.remedy


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
    monkeypatch.setattr(splits, "place_of", lambda text: place)
    assert split_of("any") == default
    assert split_of("any", (50, 0, 50)) == halves
    assert split_questions([Question(id="q", text="any")], (0, 100, 0))["dev"] == ["q"]


def test_a_place_can_be_computed_elsewhere() -> None:
    number = int(hashlib.sha256(b"who is it").hexdigest()[:16], 16)
    assert place_of("Who is  it?") == number % 10_000 / 100
