"""Which requests are questions, and what becomes of the others."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import pytest

from selfreflect.models.base import Message
from selfreflect.server.chat import CHAT_DIALECT, ChatRequest, read_request
from selfreflect.server.errors import ChatError

USER = {"role": "user", "content": "Who wrote it?"}
read_chat = partial(read_request, dialect=CHAT_DIALECT)


def body(messages: Any = None, **fields: Any) -> bytes:
    return json.dumps({"model": "selfreflect/m", "messages": messages or [USER], **fields}).encode()


def test_a_question_with_its_conversation_and_sampling() -> None:
    chat = read_chat(
        body(
            [
                {"role": "developer", "content": "Be brief."},
                {
                    "role": "user",
                    "content": [{"type": "text", "text": "A "}, {"type": "text", "text": "book"}],
                },
                {"role": "assistant", "content": "Yes?"},
                USER,
            ],
            n=2,
            stop="\n",
            seed=7,
            temperature=0.5,
            max_tokens=9,
            stream=True,
            stream_options={"include_usage": True},
            selfreflect={"strategy": "basic", "num_answers": 5, "confidence": None},
        )
    )
    assert chat.messages[0] == Message(role="system", content="Be brief.")
    assert (chat.model, chat.question, chat.passthrough) == ("m", "Who wrote it?", "")
    assert chat.context == "Be brief.\n\nuser: A book\n\nassistant: Yes?"
    assert (chat.n, chat.stop, chat.seed, chat.max_tokens) == (2, ("\n",), 7, 9)
    assert chat.sampling == {"temperature": 0.5}
    assert (chat.stream, chat.include_usage) == (True, True)
    assert (chat.options.strategy, chat.options.num_answers) == ("basic", 5)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"tools": [{"type": "function"}]}, "tools"),
        ({"response_format": {"type": "json_object"}, "n": 2}, "n"),
        ({"logprobs": True}, "logprobs"),
        ({"logit_bias": {"3": 5}}, "logit_bias"),
        ({"messages": [USER], "tools": [1], "Evil\r\nHeader": 3}, "tools"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]},
            "messages.content",
        ),
        ({"messages": [{"role": "tool", "content": "4", "tool_call_id": "x"}]}, "messages.tool_call_id"),
        ({"messages": [{"role": "tool", "content": "4"}]}, "messages.role"),
        ({"messages": [USER, {"role": "assistant", "content": "It was"}]}, "messages.last"),
        (
            {"messages": [{"role": "assistant", "content": None, "tool_calls": [1]}, USER]},
            "messages.tool_calls",
        ),
    ],
)
def test_what_is_no_plain_question_passes_through(fields: dict[str, Any], reason: str) -> None:
    chat = read_chat(body(**fields))
    assert chat.passthrough == reason
    sent = json.loads(chat.data)
    assert sent["model"] == "m"
    assert "selfreflect" not in sent


def test_values_that_change_nothing_do_not_hinder() -> None:
    chat = read_chat(
        body(
            tools=[],
            tool_choice="auto",
            response_format={"type": "text"},
            frequency_penalty=0,
            logit_bias=None,
            user="somebody",
            metadata={"a": "b"},
        )
    )
    assert chat.passthrough == ""


def test_what_clients_send_back_of_our_answers_is_accepted_and_stripped() -> None:
    answer = {
        "role": "assistant",
        "content": "Perhaps Ann.",
        "refusal": None,
        "annotations": [],
        "tool_calls": None,
        "selfreflect": {"confidence": 0.5},
    }
    assert read_chat(body([USER, answer, USER])).messages[1] == Message(
        role="assistant", content="Perhaps Ann."
    )
    passed = read_chat(body([USER, answer, USER], tools=[1], selfreflect={"num_answers": 3}))
    assert json.loads(passed.data) == {
        "model": "m",
        "messages": [USER, {"role": "assistant", "content": "Perhaps Ann.", "annotations": []}, USER],
        "tools": [1],
    }


def test_the_model_itself_gets_the_body_as_it_came() -> None:
    data = b'{ "messages":  3, "model" : "m", "selfreflect": null, "stream": true }'
    assert read_chat(data) == ChatRequest(
        data=data, model="m", stream=True, reflects=False, passthrough="model"
    )


BAD = {
    "nothing": b"",
    "cut": b'{"model": "x',
    "a list": b"[]",
    "not utf-8": b'{"model": "\xff"}',
    "deep": b'{"model": "selfreflect/m", "messages": ' + b"[" * 200_000,
    "deep inside": b'{"model": "selfreflect/m", "messages": ' + b"[" * 5000 + b"]" * 5000 + b"}",
    "surrogate": b'{"model": "selfreflect/m", "messages": [{"role": "user", "content": "\\ud800"}]}',
    "no model": b'{"messages": []}',
    "no messages": b'{"model": "selfreflect/m"}',
    "no turns": b'{"model": "selfreflect/m", "messages": []}',
    "nan": b'{"model": "selfreflect/m", "messages": [{"role": "user", "content": "x"}], "temperature": NaN}',
    "n": body(n=0),
    "many": body(n=1000),
    "text for a number": body(max_tokens="5"),
    "hot": body(temperature=1e300),
    "huge": body(seed=10**30),
    "unknown option": body(selfreflect={"path": "/etc/passwd"}),
    "options": body(selfreflect=[]),
    "too many answers": body(selfreflect={"num_answers": 10**6}),
    "a number as role": b'{"model": "selfreflect/m", "messages": [{"role": 3, "content": "x"}]}',
    "a number as message": b'{"model": "selfreflect/m", "messages": [3]}',
}


@pytest.mark.parametrize("data", BAD.values(), ids=BAD)
def test_hostile_bodies_are_refused_with_a_reason(data: bytes) -> None:
    with pytest.raises(ChatError) as refused:
        read_chat(data)
    assert refused.value.status == 400
    assert 0 < len(str(refused.value)) < 300
