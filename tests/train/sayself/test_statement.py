"""Statements that models are trained to say, and the strategy and rewards that read them."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scripted import Scripted

from selfreflect.records import Failure, Question, StatedParts, Summary
from selfreflect.store.journal import Journal
from selfreflect.strategies.driver import summarize
from selfreflect.train.sayself.comparison import StatedConfidenceReward
from selfreflect.train.sayself.statement import parse_confidence, parse_statement, write_statement
from selfreflect.uncertainty.question import NoValue

PLAIN = st.text("abcdefghijklmnopqrstuvwxyz äß,'", min_size=1).map(lambda text: " ".join(text.split()))
WORDS = PLAIN.filter(bool)


def test_the_published_line_is_read_in_parts() -> None:
    text = (
        "The lake is near the hotel. Answer: Nam Van Lake. Self-reflection: I am not sure which lake it is. "
        "Confidence: 7"
    )
    statement = parse_statement(text)
    assert statement.reasoning == "The lake is near the hotel."
    assert statement.answer == "Nam Van Lake"
    assert statement.reflection == "I am not sure which lake it is."
    assert statement.confidence == 0.7
    assert statement.is_complete


@given(reasoning=st.just("") | WORDS, answer=WORDS, reflection=st.just("") | WORDS, tenths=st.integers(0, 10))
def test_what_is_written_is_read_back(reasoning: str, answer: str, reflection: str, tenths: int) -> None:
    statement = parse_statement(write_statement(reasoning, answer, reflection, tenths))
    assert statement.reasoning == reasoning
    assert statement.answer == answer
    assert statement.reflection == reflection
    assert statement.confidence == pytest.approx(tenths / 10)


@pytest.mark.parametrize(
    ("text", "value"),
    [("7", 0.7), ("10", 1.0), ("0", 0.0), ("1", 0.1), ("7.5.", 0.75), ("8/10", 0.8), ("8 out of 10", 0.8)],
)
def test_confidences_that_can_be_read(text: str, value: float) -> None:
    assert parse_confidence(text) == pytest.approx(value)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("85", "out_of_range"),  # the published code makes it 1 of 10 here, and 8.5 there
        ("11", "out_of_range"),
        ("-3", "out_of_range"),
        ("150%", "out_of_range"),
        ("0.8", "ambiguous_number"),
        ("7 or 8", "several_numbers"),
        ("high", "no_number"),
        ("", "no_number"),
        ("\n7", "no_number"),
    ],
)
def test_confidences_that_cannot_be_read_are_refused_and_never_clamped(text: str, reason: str) -> None:
    if text == "\n7":  # leading line ends are stripped, text after the first line is not read
        assert parse_confidence("high\n7") == NoValue("no_number", "no number in 'high'")
        return
    value = parse_confidence(text)
    assert isinstance(value, NoValue)
    assert value.reason == reason


@given(st.text())
def test_any_text_is_read_or_refused(text: str) -> None:
    statement = parse_statement(text)
    assert isinstance(statement.confidence, NoValue) or 0 <= statement.confidence <= 1


TEXT = "Answer: Seine. Self-reflection: I am not sure of the spelling. Confidence: 8"


def outcome(text: str, strategy: str = "sayself") -> Summary | Failure:
    [one] = summarize([Question(id="q", text="Which river?")], [strategy], Scripted(text))
    return one


def test_the_parts_are_in_the_record_and_come_back_from_disk(tmp_path: Path) -> None:
    summary = outcome(TEXT)
    assert isinstance(summary, Summary)
    assert summary.text == TEXT
    assert summary.parts == StatedParts(
        answer="Seine", reflection="I am not sure of the spelling.", confidence=0.8
    )
    journal = Journal(tmp_path / "summaries.jsonl", Summary, lambda one: one.question_id)
    journal.append_all([summary])
    again = Journal(tmp_path / "summaries.jsonl", Summary, lambda one: one.question_id)
    assert list(again.records.values()) == [summary]


@pytest.mark.parametrize("text", ["It is the Seine.", "Answer: Seine. Confidence: 85", "Confidence: 8"])
def test_a_statement_that_cannot_be_read_is_a_failure(text: str) -> None:
    failure = outcome(text)
    assert isinstance(failure, Failure)
    assert failure.kind == "malformed"


def test_completions_are_the_end_of_a_statement() -> None:
    reward = StatedConfidenceReward()
    counted = {}
    values = reward(
        None,
        [" 8", " 85", [{"role": "assistant", "content": "3"}], " sure"],
        correct=[True, True, False, False],
        log_metric=lambda name, value: counted.update({name: value}),
    )
    assert values == pytest.approx([1 - 2 * 0.04, -1, 1 - 2 * 0.09, -1])
    assert counted["confidence_brier/failed"] == 0.5


@pytest.mark.parametrize("kind", ["brier", "linear", "rlcr"])
def test_unreadable_confidences_never_win(kind: str) -> None:
    values = StatedConfidenceReward(kind)(None, ["10", "85"], correct=[False] * 2)  # type: ignore[arg-type]
    assert values[1] <= values[0]  # type: ignore[operator]


def test_a_reward_can_be_pickled() -> None:
    again = pickle.loads(pickle.dumps(StatedConfidenceReward("linear")))
    assert again(None, ["5"], correct=[True]) == [0.5]
    assert again.__name__ == "confidence_linear"
