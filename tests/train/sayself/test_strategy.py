"""A trained model's statement as a summary with parts."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec import UNSET
from scripted import Scripted

from selfreflect.records import Failure, Question, StatedParts, Summary
from selfreflect.store.journal import Journal
from selfreflect.strategies.driver import summarize

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


def test_other_strategies_have_no_parts() -> None:
    summary = outcome(TEXT, "greedy")
    assert isinstance(summary, Summary)
    assert summary.parts is UNSET
    assert "parts" not in summary.to_dict()


@pytest.mark.parametrize("text", ["It is the Seine.", "Answer: Seine. Confidence: 85", "Confidence: 8"])
def test_a_statement_that_cannot_be_read_is_a_failure(text: str) -> None:
    failure = outcome(text)
    assert isinstance(failure, Failure)
    assert failure.kind == "malformed"
