"""Many short requests to one model: none is asked twice, and all say what they are for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
from scripted import Scripted

from selfreflect.models.base import Completion, Message, ModelSpec, Refusal, Reply
from selfreflect.uncertainty.asking.asker import Asker, Inquiry, cost_table, model_name, reply_text
from selfreflect.uncertainty.question import NoValue


def inquiry(text: str, **fields: Any) -> Inquiry:
    return Inquiry("step", (Message(role="user", content=text),), **fields)


def test_equal_inquiries_are_asked_once_and_in_order() -> None:
    model = Scripted(lambda request: request.messages[-1].content.upper())
    asker = Asker("m", lambda: model)
    replies = asker.ask([inquiry("b"), inquiry("a"), inquiry("b")])
    assert [reply.texts for reply in replies] == [("B",), ("A",), ("B",)]
    assert [reply.texts for reply in asker.ask([inquiry("c"), inquiry("a")])] == [("C",), ("A",)]
    assert [request.messages[-1].content for request in model.requests] == ["b", "a", "c"]
    assert {(reply.step, reply.model, reply.tokens) for reply in replies} == {("step", "m", 1)}


@pytest.mark.parametrize(
    "change",
    [
        {"n": 2},
        {"temperature": 0.5},
        {"max_new_tokens": 65},
        {"first_tokens": 3},
        {"messages": (Message(role="assistant", content="a"),)},
        {"messages": (Message(role="user", content="a "),)},
    ],
)
def test_another_sampling_or_conversation_is_another_inquiry(change: dict[str, Any]) -> None:
    model = Scripted("x")
    asker = Asker("m", lambda: model)
    asker.ask([inquiry("a"), inquiry("a")._replace(**change)])
    assert len(model.requests) == 2
    assert len({request.seed for request in model.requests}) == 2
    sampling = model.requests[1].sampling
    expected = inquiry("a")._replace(**change)
    assert (sampling.temperature, sampling.max_new_tokens) == (expected.temperature, expected.max_new_tokens)
    assert (model.requests[1].n, model.requests[1].first_tokens) == (expected.n, expected.first_tokens)


def test_what_an_inquiry_is_for_does_not_make_it_another_one() -> None:
    model = Scripted("x")
    Asker("m", lambda: model).ask([inquiry("a"), inquiry("a")._replace(step="other")])
    assert len(model.requests) == 1


def test_failures_that_may_pass_are_tried_again_and_others_are_kept() -> None:
    gone, declined = Refusal(kind="backend", message="gone"), Refusal(kind="refused", message="no")
    model = Scripted([gone, declined, "back"])
    asker = Asker("m", lambda: model)
    first = asker.ask([inquiry("a"), inquiry("b")])
    assert [(reply.failure, reply.message) for reply in first] == [("backend", "gone"), ("refused", "no")]
    second = asker.ask([inquiry("a"), inquiry("b")])
    assert [(reply.failure, reply.texts) for reply in second] == [(None, ("back",)), ("refused", ())]


class Display:
    """Notes what is shown."""

    def __init__(self) -> None:
        self.events: list[object] = []

    @contextmanager
    def __call__(self, name: str, total: int) -> Iterator[Display]:
        self.events.append((name, total))
        yield self

    def advance(self, count: int = 1, failures: int = 0) -> None:
        self.events.append((count, failures))


def test_what_is_new_is_confirmed_shown_and_only_then_asked() -> None:
    display, confirmed = Display(), []
    loaded: list[str] = []
    model = Scripted(["x", Refusal(kind="refused", message="no")])

    def load() -> Scripted:
        loaded.append("loaded")
        return model

    def confirm(inquiries: Sequence[Inquiry]) -> None:
        assert not loaded
        confirmed.append([one.messages[0].content for one in inquiries])

    asker = Asker("m", load, confirm=confirm, progress=display)
    assert asker.ask([]) == []
    assert not loaded
    asker.ask([inquiry("a"), inquiry("a"), inquiry("b")._replace(step="other")])
    asker.ask([inquiry("a")])
    assert confirmed == [["a", "b"]]
    assert display.events == [("step, other", 2), (1, 0), (0, 1)]
    assert loaded == ["loaded"]


@pytest.mark.parametrize(
    ("spec", "name"),
    [
        (ModelSpec("smollm2"), "smollm2"),
        (ModelSpec("a/b", revision="main"), "a/b@main"),
        (ModelSpec("openai:x", base_url="http://user:key@h:1/v1"), "openai:x at http://***@h:1/v1"),
    ],
)
def test_a_model_is_named_without_credentials(spec: ModelSpec, name: str) -> None:
    assert model_name(spec) == name


@pytest.mark.parametrize(
    ("finish", "reason"),
    [("stop", None), ("length", "cut_off"), ("refused", "no_reply"), ("content_filter", "no_reply")],
)
def test_only_whole_texts_are_read(finish: Any, reason: str | None) -> None:
    reply = Reply(completions=(Completion(text="so", finish=finish, tokens=1),))
    [stored] = Asker("m", lambda: Scripted([reply])).ask([inquiry("a")])
    text = reply_text(stored)
    assert text == "so" if reason is None else isinstance(text, NoValue) and text.reason == reason


def test_costs_are_counted_by_step() -> None:
    """Four characters are a token, and a part of one is one."""
    inquiries = [
        inquiry("a" * 5, n=10, max_new_tokens=8),
        inquiry("a" * 4, max_new_tokens=100),
        inquiry("b")._replace(step="other"),
    ]
    table = cost_table(inquiries, "m", None)
    assert table.title == "What m is asked"
    assert table.rows == (("step", 2, 11, 3, 180), ("other", 1, 1, 1, 64))
    priced = cost_table(inquiries, "m", lambda prompt, reply: prompt + reply / 1000)
    assert priced.rows[0][5] == pytest.approx(3.18)
    assert [column.heading for column in priced.columns][-1] == "money, at most"
    assert len(table.columns) == 5
