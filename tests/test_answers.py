from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from scripted import Scripted

from selfreflect.answers import _digest, draw_answers
from selfreflect.errors import BackendError
from selfreflect.logprobs import AnswerTokens
from selfreflect.models.base import Completion, Message, Refusal, Reply, Request, Sampling
from selfreflect.prompts import load_prompts
from selfreflect.records import AnswerSet, Failure, Question

QUESTIONS = [Question(id=f"q{number}", text=f"Who is number {number}?") for number in range(5)]


def draw(
    script: Any, *, count: int = 2, questions: list[Question] = QUESTIONS, **options: Any
) -> tuple[list[AnswerSet | Failure], Scripted]:
    generator = Scripted(script)
    sampling = Sampling(temperature=0.7, top_p=0.9, max_new_tokens=5)
    return list(
        draw_answers(
            questions, generator, num_answers=count, prompts=load_prompts(), sampling=sampling, **options
        )
    ), generator


def only(script: Any, **options: Any) -> AnswerSet | Failure:
    [record] = draw(script, questions=QUESTIONS[:1], **options)[0]
    return record


def reply(*completions: tuple[str, str]) -> Reply:
    return Reply(
        completions=tuple(Completion(text=text, finish=finish, tokens=3) for text, finish in completions)
    )  # type: ignore[arg-type]


def test_the_first_half_is_masked_and_the_second_conditions() -> None:
    record = only(lambda _: ["one", "two", "three", "four", "five", "six"], count=3)
    assert isinstance(record, AnswerSet)
    assert record.masked_out == ("one", "two", "three")
    assert record.conditioning == ("four", "five", "six")
    assert (record.model, record.temperature, record.top_p, record.max_new_tokens, record.seed) == (
        "scripted",
        0.7,
        0.9,
        5,
        0,
    )
    assert (record.tokens, record.truncated) == (6, 0)


def test_answers_are_drawn_with_the_context_of_the_question() -> None:
    question = Question(id="q", text="Which colour?", context="Anna: red.")
    _, generator = draw("red", questions=[question, *QUESTIONS], thinking=True)
    assert [request.messages for request in generator.requests] == [
        load_prompts().messages(question) for question in (question, *QUESTIONS)
    ]
    settings = {(request.n, request.thinking, request.sampling.temperature) for request in generator.requests}
    assert settings == {(4, True, 0.7)}
    assert '\n"""\nAnna: red.\n"""\n' in generator.requests[0].messages[1].content


@given(first=st.integers(0, 4), count=st.integers(1, 7))
def test_seeds_depend_on_the_question_alone(first: int, count: int) -> None:
    whole = {request.messages: request for request in draw("yes")[1].requests}
    _, part = draw("yes", questions=QUESTIONS[first : first + count])
    assert [whole[request.messages] for request in part.requests] == part.requests
    assert len({request.seed for request in whole.values()}) == len(QUESTIONS)


def test_another_seed_gives_other_random_numbers() -> None:
    assert {request.seed for request in draw("yes")[1].requests}.isdisjoint(
        request.seed for request in draw("yes", seed=1)[1].requests
    )


def failing(kind: str) -> Callable[[Request], Any]:
    """Something goes wrong with question 1 alone."""
    wrong: dict[str, Any] = {
        "too_long": Refusal(kind="too_long", message="900 tokens"),
        "unclosed_reasoning": reply(
            ("yes", "stop"), ("", "unclosed_reasoning"), ("no", "stop"), ("", "unclosed_reasoning")
        ),
        "no_answers": [" ", "\n"],
    }
    return lambda request: wrong[kind] if "number 1" in request.messages[-1].content else "yes"


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("too_long", "900 tokens"),
        ("unclosed_reasoning", "2 of 4 answers never ended"),
        ("no_answers", "all 4 answers are blank"),
    ],
)
def test_a_failure_names_its_question_and_spares_the_others(kind: str, message: str) -> None:
    records, _ = draw(failing(kind))
    assert [record.question_id for record in records] == [question.id for question in QUESTIONS]
    failed = records[1]
    assert isinstance(failed, Failure)
    assert (failed.stage, failed.kind) == ("answers", kind)
    assert message in failed.message
    assert all(isinstance(record, AnswerSet) for record in records[:1] + records[2:])


def test_some_blank_and_some_cut_answers_are_kept_and_counted() -> None:
    record = only(lambda _: reply(("", "stop"), ("Mars is", "length"), ("yes", "stop"), ("", "length")))
    assert isinstance(record, AnswerSet)
    assert (record.masked_out, record.conditioning) == (("", "Mars is"), ("yes", ""))
    assert (record.truncated, record.tokens) == (2, 12)


@pytest.mark.parametrize(
    ("given", "message"),
    [(0, "returned only 0 replies to 5 requests"), (6, "returned more replies than the 5 that")],
)
def test_a_generator_that_breaks_its_contract_is_found_out(given: int, message: str) -> None:
    class Wrong(Scripted):
        def generate(self, requests: Any) -> Any:
            return (super().generate([*requests, *requests]))[:given]

    with pytest.raises(BackendError, match=message):
        list(
            draw_answers(QUESTIONS, Wrong("yes"), num_answers=1, prompts=load_prompts(), sampling=Sampling())
        )


def test_withheld_answers_leave_no_distribution_and_refusals_are_answers_that_are_counted() -> None:
    withheld = only(lambda _: reply(("yes", "stop"), ("", "content_filter"), ("no", "stop"), ("no", "stop")))
    assert isinstance(withheld, Failure)
    assert (withheld.kind, withheld.message) == (
        "content_filter",
        "1 of 4 answers were withheld by the server's content filter",
    )
    refused = only(lambda _: reply(("yes", "stop"), ("I cannot.", "refused"), ("no", "stop"), ("no", "stop")))
    assert isinstance(refused, AnswerSet)
    assert (refused.answers[1], refused.refused) == ("I cannot.", 1)


# --- log-probabilities


def test_each_answer_has_its_log_probabilities_or_says_why_not() -> None:
    tokens = AnswerTokens(("Par", "is"), (-1.0, -2.0), 3.0)
    completions = [
        Completion(text="Paris", finish="stop", tokens=2, logprobs=tokens),
        Completion(text="Lyon", finish="stop", tokens=1, logprobs="other_text"),
        Completion(text="Nice", finish="stop", tokens=1),
        Completion(text="Paris", finish="stop", tokens=2, logprobs=tokens),
    ]
    record = only(lambda _: Reply(completions=tuple(completions)), logprobs=True)
    assert isinstance(record, AnswerSet)
    assert record.logprobs == (tokens, "other_text", "not_returned", tokens)
    record = only(lambda _: Reply(completions=tuple(completions)))
    assert isinstance(record, AnswerSet)
    assert record.logprobs == ()


def test_answers_that_older_versions_had_begun_are_still_those_of_their_request() -> None:
    """The digest is what a version without log-probabilities wrote."""
    message = Message(role="user", content="Who?")
    request = Request(messages=(message,), sampling=Sampling(), n=4, seed=7)
    generator = SimpleNamespace(name="m", revision="r")
    assert _digest(request, generator) == "8be17fcd77ca8d43265411274e40e918"  # type: ignore[arg-type]
    assert _digest(replace(request, logprobs=True), generator) != _digest(request, generator)  # type: ignore[arg-type]
