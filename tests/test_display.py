"""What a Python session and a notebook show of records, and what ``help`` says."""

from __future__ import annotations

import json
import pydoc

import pytest
import rich.pretty

import selfreflect
from selfreflect.records import AnswerSet, Information, Score, WordBits, WordDistance

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
    page = record._repr_html_()
    assert "<b onclick" not in page
    assert "\x1b" not in page
    assert "\u202e" not in page


def test_the_line_says_what_counts() -> None:
    assert "value=0.09544, stderr=0.002524, judge='smollm2', words=900" in repr(SCORE)
    assert "recovered=0.5, interval=(0.25, 0.75), bits=4, bits_available=8" in repr(INFORMATION)
    assert repr(ANSWERS).startswith("AnswerSet(answers=51, kinds=3, 30x=")
    assert "20x='Paris.', 1x='Rome.'" in repr(ANSWERS)


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
