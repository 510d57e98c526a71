"""What a response holds, whole and as a stream."""

from __future__ import annotations

import json
from typing import Any

import pytest

from selfreflect.server.reply import AnswerShare, Belief, ChatChoice, ChatResponse, Spending

COST = Spending(completions=4, prompt_tokens=30, completion_tokens=12, seconds=0.5)
BELIEF = Belief(
    id="sr-1",
    model="m",
    strategy="basic",
    num_answers=3,
    classes=(AnswerShare(text="Ann", share=1.0),),
    entropy=0.0,
    cost=COST,
)
TEXT = "Most likely Ann,\n\n  but  perhaps\tBob. " + "and so on " * 30


def events(data: bytes) -> list[Any]:
    parts = data.decode().split("\n\n")
    assert parts.pop() == ""
    assert parts.pop() == "data: [DONE]"
    assert all(part.startswith("data: ") for part in parts)
    return [json.loads(part[6:]) for part in parts]


def test_a_completion_has_the_text_and_the_belief_beside_it() -> None:
    body = json.loads(
        ChatResponse("chatcmpl-1", 5, (ChatChoice(text="Ann."),), COST, BELIEF).body("selfreflect/m")
    )
    assert body["choices"][0]["message"]["content"] == "Ann."
    assert body["usage"] == {"prompt_tokens": 30, "completion_tokens": 12, "total_tokens": 42}
    assert body["selfreflect"]["confidence"] is None
    assert body["selfreflect"]["classes"] == [{"text": "Ann", "share": 1.0}]


@pytest.mark.parametrize("include_usage", [False, True])
def test_a_stream_spells_the_text_and_ends_with_the_belief(include_usage: bool) -> None:
    choices = (ChatChoice(text=TEXT), ChatChoice(text="", finish="length"))
    stream = events(b"".join(ChatResponse("c-1", 5, choices, COST, BELIEF).events("m", include_usage)))
    assert {(one["id"], one["object"], one["created"], one["model"]) for one in stream} == {
        ("c-1", "chat.completion.chunk", 5, "m")
    }
    parts = [choice for one in stream for choice in one["choices"]]
    first = [part for part in parts if part["index"] == 0]
    assert first[0]["delta"] == {"role": "assistant", "content": ""}
    assert "".join(part["delta"].get("content", "") for part in first) == TEXT
    assert [part["finish_reason"] for part in parts if part["finish_reason"]] == ["stop", "length"]
    assert [("selfreflect" in one) for one in stream] == [False] * (len(stream) - 1) + [True]
    assert stream[-1]["selfreflect"]["id"] == "sr-1"
    assert ("usage" in stream[-1]) is include_usage
