"""The scripted generator replies as told and keeps what it was asked."""

from __future__ import annotations

import pytest

from selfreflect.errors import BackendError
from selfreflect.models.base import Completion, Generator, Message, Refusal, Reply, Request, Sampling
from selfreflect.models.scripted import Scripted


def ask(text: str, n: int = 1) -> Request:
    return Request(messages=(Message(role="user", content=text),), sampling=Sampling(), n=n)


def test_it_is_a_generator():
    generator: Generator = Scripted("yes")
    assert (generator.name, generator.revision) == ("scripted", "")


def test_one_text_answers_everything_and_requests_are_kept_by_call():
    scripted = Scripted(" two words ")
    [one, two] = scripted.generate([ask("a"), ask("b", n=2)])
    assert one == Reply(completions=(Completion(text="two words", finish="stop", tokens=2),))
    assert [completion.text for completion in two.completions] == ["two words", "two words"]
    scripted.generate([ask("c")])
    assert [len(batch) for batch in scripted.batches] == [2, 1]
    assert [request.messages[0].content for request in scripted.requests] == ["a", "b", "c"]


def test_a_list_is_given_in_order_and_may_run_out():
    refusal = Refusal(kind="too_long", message="too long")
    scripted = Scripted(["first", refusal, ["x", "y"]])
    replies = scripted.generate([ask("a"), ask("b"), ask("c", n=3)])
    assert replies[0].text == "first"
    assert replies[1] is refusal
    assert [completion.text for completion in replies[2].completions] == ["x", "y", "x"]
    with pytest.raises(BackendError, match=r"used up.*'d'"):
        scripted.generate([ask("d")])


def test_a_mapping_is_searched_for_a_key_in_the_last_message():
    scripted = Scripted({"France": "Paris", "capital": "unknown"})
    assert [
        reply.text for reply in scripted.generate([ask("capital of France"), ask("capital of Spain")])
    ] == ["Paris", "unknown"]
    with pytest.raises(BackendError, match=r"no key.*'moons'"):
        scripted.generate([ask("moons")])


def test_a_function_sees_the_request():
    reply = Reply(completions=(Completion(text="", finish="length", tokens=9),))
    scripted = Scripted(lambda request: reply if request.n == 2 else request.messages[0].content.upper())
    assert scripted.generate([ask("a"), ask("b", n=2)]) == [
        Reply(completions=(Completion(text="A", finish="stop", tokens=1),)),
        reply,
    ]
