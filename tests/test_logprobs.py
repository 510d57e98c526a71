"""Which tokens of a completion are those of its answer, and which log-probabilities are refused."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from selfreflect.logprobs import AnswerTokens, answer_tokens
from selfreflect.records import AnswerSet, from_plain

pieces = st.lists(st.one_of(st.none(), st.text("ab \n", max_size=3)), max_size=12)


@given(before=pieces, own=pieces, after=st.lists(st.sampled_from([None, "\n", " ", ""]), max_size=3))
def test_the_tokens_of_an_answer_spell_it(
    before: list[str | None], own: list[str | None], after: list[str | None]
) -> None:
    answer = "".join(text or "" for text in own).strip()
    tokens = [*before, "#", *own, *after]
    logprobs = [-float(place) for place in range(len(tokens))]
    chosen = answer_tokens(answer, tokens, logprobs)
    assert isinstance(chosen, AnswerTokens)
    assert "".join(chosen.texts) == answer
    first = len(before) + 1
    assert all(-value >= first for value in chosen.logprobs), "what came before is not counted"
    stripped = AnswerSet(question_id="q", masked_out=(answer,), conditioning=(), logprobs=(chosen,))
    assert from_plain(AnswerSet, stripped.to_dict()) == stripped


def test_reasoning_special_tokens_and_the_end_of_the_turn_are_left_out() -> None:
    texts = ["<think>", "Paris", "?", "</think>", "\n\n", "Par", "is", ".", "\n", "<|im_end|>"]
    logprobs = [-9.0, -9, -9, -9, -8, -1, -2, -3, -7, -9]
    assert answer_tokens("Paris.", texts, logprobs) == AnswerTokens(("Par", "is", "."), (-1.0, -2.0, -3.0))
    assert answer_tokens("4", [None, "4", None], [-9.0, -1, -9]) == AnswerTokens(("4",), (-1.0,))
    assert answer_tokens("e", ["e", "<|im_end|>"], [-1.0, -9]) == AnswerTokens(("e",), (-1.0,))
    assert answer_tokens("a <b>", ["a", " ", "<b>"], [-1.0, -2, -3]) == AnswerTokens(
        ("a", " ", "<b>"), (-1.0, -2.0, -3.0)
    )


@pytest.mark.parametrize("wrong", [math.nan, math.inf, -math.inf, 0.1, -1e10, None])
def test_what_is_no_log_probability_is_refused(wrong: float | None) -> None:
    assert answer_tokens("ab", ["a", "b"], [-1.0, wrong]) == "out_of_range"


def test_other_tokens_are_refused() -> None:
    assert answer_tokens("ab", ["a", "c"], [-1.0, -1.0]) == "other_text"
    assert answer_tokens("ab", ["a", "b"], [-1.0]) == "other_text"
    assert answer_tokens("ab", [], []) == "other_text"


@pytest.mark.parametrize("divergences", [(1.0, math.inf), (1.0, None), ()])
def test_self_certainty_is_left_out_where_it_is_not_known(divergences: tuple[float | None, ...]) -> None:
    chosen = answer_tokens("ab", ["a", "b"], [-1.0, -1.0], divergences)
    assert chosen == AnswerTokens(("a", "b"), (-1.0, -1.0), None)


@pytest.mark.parametrize(
    ("logprobs", "part"),
    [
        ([[["a"], [-1.0, -2.0], 3.0]] * 2, "1 tokens have 2 log-probabilities"),
        ([[["b"], [-1.0], 3.0]] * 2, "do not spell their answer"),
        ([[["a"], [-1.0], 3.0]], "there are 2 answers, but log-probabilities of 1"),
        ([[["a"], [0.5], 3.0]] * 2, "<= 0"),
        ([[["a"], [-1.0], -3.0]] * 2, ">= 0"),
        (["because"] * 2, "because"),
    ],
)
def test_a_stored_record_with_wrong_log_probabilities_is_refused(logprobs: list[object], part: str) -> None:
    plain = {"question_id": "q", "masked_out": ["a"], "conditioning": ["a"], "logprobs": logprobs}
    with pytest.raises(ValueError, match=part):
        from_plain(AnswerSet, plain)


def test_tokens_that_are_part_of_a_character_belong_to_it() -> None:
    chosen = answer_tokens("é!", ["", "é", "!", ""], [-1.0, -2, -3, -9], [1.0, 2, 3, 9])
    assert chosen == AnswerTokens(("", "é", "!"), (-1.0, -2.0, -3.0), 2.0)
