"""Many short requests to one model: none is asked twice, and all say what they are for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
from scripted import Scripted

from selfreflect.models.base import Completion, Message, ModelSpec, Refusal, Reply
from selfreflect.uncertainty.asking.asker import Asker, Inquiry, model_name, reply_text
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
