"""What a record may hold: whatever a file says, no number in it is beyond what the reports can show."""

from __future__ import annotations

import json
import pydoc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec.inspect as inspect
import pytest
import rich.pretty

import selfreflect
from selfreflect.errors import StoreError
from selfreflect.records import (
    AnswerSample,
    AnswerSet,
    Control,
    Controls,
    Failure,
    Information,
    Question,
    SamplingCheck,
    Score,
    Summary,
    WordBits,
    WordDistance,
)
from selfreflect.store.run import Run

STORED = (AnswerSample, AnswerSet, Controls, Failure, Information, Question, SamplingCheck, Score, Summary)
ANY = {"AnswerSet.seed", "Summary.seed", "Sampled.seed", "Question.metadata"}
"""Numbers with which nothing is computed."""


def unbounded(kind: Any, place: str) -> Iterator[str]:
    """Fields of a record, and of the records in it, that take any number."""
    if isinstance(kind, inspect.IntType | inspect.FloatType):
        if kind.ge is None or kind.le is None:
            yield place
    elif isinstance(kind, inspect.StructType):
        for field in kind.fields:
            yield from unbounded(field.type, f"{kind.cls.__name__}.{field.name}")
    for part in (*getattr(kind, "types", ()), *getattr(kind, "item_types", ())):
        yield from unbounded(part, place)
    for name in ("item_type", "value_type"):
        if hasattr(kind, name):
            yield from unbounded(getattr(kind, name), place)


@pytest.mark.parametrize("record", STORED)
def test_every_number_has_a_range(record: type) -> None:
    assert {*unbounded(inspect.type_info(record), "")} <= ANY


@pytest.mark.parametrize(
    ("field", "value"),
    [("value", 1e308), ("value", -1), ("stderr", -0.5), ("token_tasks", -1), ("token_tasks", 10**400)],
)
def test_a_number_out_of_range_is_named_with_file_and_line(tmp_path: Path, field: str, value: float) -> None:
    score = {"question_id": "q", "summary": "s", "value": 0.5, "stderr": None, "token_tasks": 3, "judge": "j"}
    Run.open(tmp_path / "r", {}).close()
    lines = [score, {**score, "summary": "t", field: value}]
    (tmp_path / "r" / "scores.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    with pytest.raises(StoreError, match=r"scores\.jsonl, line 2: .*" + field):
        _ = Run.load(tmp_path / "r").scores


HOSTILE = "<b onclick=x>\x1b[31m\u202e\"'&"
WORDS = tuple(
    WordDistance(answer=number // 3, word=number % 3, text=HOSTILE, distances=(0.5,)) for number in range(900)
)
SCORE = Score(
    question_id="q",
    summary=HOSTILE,
    value=0.095440591,
    stderr=0.0025238,
    token_tasks=900,
    judge="smollm2",
    words=WORDS,
)
INFORMATION = Information(
    question_id="q",
    summary="mine",
    zero="empty",
    anchor="distinct",
    reader="informed",
    bits=4.0,
    bits_available=8.0,
    recovered=0.5,
    interval=(0.25, 0.75),
    answers=((WordBits(HOSTILE, 4.0, 8.0),),) * 50,
)
ANSWERS = AnswerSet(question_id="q", masked_out=(HOSTILE,) * 30, conditioning=("Paris.",) * 20 + ("Rome.",))


@pytest.mark.parametrize("record", [SCORE, INFORMATION, ANSWERS])
def test_a_record_is_shown_in_a_line_or_two(record) -> None:
    for text in (repr(record), rich.pretty.pretty_repr(record)):
        assert len(text) < 400
        assert "\x1b" not in text
        assert "\u202e" not in text


def test_a_record_as_plain_values_is_complete() -> None:
    plain = json.loads(json.dumps(SCORE.to_dict()))
    assert plain["value"] == SCORE.value
    assert len(plain["words"]) == 900
    assert plain["words"][0]["distances"] == [0.5]


def test_help_starts_with_an_example_and_shows_fields_not_plumbing() -> None:
    text = pydoc.render_doc(selfreflect, renderer=pydoc.plaintext)
    assert "from selfreflect import reflect" in "\n".join(text.splitlines()[:14])
    assert "__struct_fields__" not in text
    plumbing = [line for line in text.splitlines() if "|  _" in line]
    assert len(plumbing) < len(text.splitlines()) / 10
    for field in ("answer_means: mean distance", "masked_out: the first half", "recovered: the share"):
        assert field in text


def test_the_score_of_all_answers_stays_where_bits_count_equal_ones_once() -> None:
    distinct = Control(name="pasted", answers=1, words=1, bits=0.5)
    every = Control(name="pasted", answers=6, words=6, score=0.25)
    bits = Controls(question_id="q", controls=(distinct,), reader="informed", anchor="distinct")
    scores = Controls(question_id="q", controls=(every,), temperature=5.0)
    [both] = bits.completed_by(scores).controls
    assert (both.answers, both.bits, both.score) == (1, 0.5, 0.25)
