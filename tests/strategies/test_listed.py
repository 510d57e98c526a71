"""Strategies whose replies are lists of answers with percentages."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scripted import Scripted

from selfreflect.models.base import Completion, Reply
from selfreflect.records import RETRIED, Failure, Question, Summary
from selfreflect.strategies.builtin import MalformedReplyError, one_line_list, parse_listed
from selfreflect.strategies.driver import summarize

NAMES = ("verbalized_sampling", "multi_answer")
QUESTION = Question(id="q", text="When is the fair?", context="In May or in June.")


def outcome(name: str, text: str, finish: str = "stop") -> Summary | Failure:
    reply = Reply(completions=(Completion(text=text, finish=finish, tokens=9),))
    [result] = summarize([QUESTION], [name], Scripted([reply]))
    return result


@pytest.mark.parametrize("name", NAMES)
def test_a_list_becomes_one_line_with_the_most_probable_first(name):
    scripted = Scripted("Here you are:\n1. in June | 30%\n2) **in May** | 62.5 %\n- never. | 0%\n")
    [summary] = summarize([QUESTION], [name], scripted)
    assert summary.text == "**in May** (62.5%); in June (30%); never (0%)"
    [request] = scripted.requests
    assert "In May or in June." in request.messages[-1].content  # the model reads the context
    assert "| 60%" in request.messages[-1].content


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("In May, I am sure.", "lists no"),
        ("in May | often", "not of the form"),
        ("in May | 60", "not of the form"),
        ("in May | 150%", "above 100"),
        ("in May | -5%", "not of the form"),
        ("in May | 50-60%", "not of the form"),
        ("| 60%", "not of the form"),
        ("in May | 60%\nin june | ?", "not of the form"),
        ("in May | 60%\nIn may. | 20%", "twice"),
    ],
)
@pytest.mark.parametrize("name", NAMES)
def test_a_reply_of_another_form_is_a_failure_that_stays(name, text, reason):
    failure = outcome(name, text)
    assert isinstance(failure, Failure)
    assert failure.kind == "malformed"
    assert reason in failure.message
    assert failure.kind not in RETRIED  # the same prompt gets the same reply


def test_a_line_that_the_limit_cut_off_is_left_out():
    assert outcome("multi_answer", "in May | 60%\nin June | 2", "length").text == "in May (60%)"
    assert outcome("multi_answer", "in May | 6", "length").kind == "malformed"


def test_a_bar_in_an_answer_stays_in_it():
    assert parse_listed("p(a|b) | 5%")[0].answer == "p(a|b)"


@given(st.text(st.sampled_from("ab|%. 059\n-*\x1b")))
def test_any_text_is_read_or_refused(text):
    try:
        answers = parse_listed(text)
    except MalformedReplyError:
        return
    assert all(0 <= one.percent <= 100 and one.answer.strip() for one in answers)
    assert "\n" not in one_line_list(answers)
