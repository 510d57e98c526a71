"""The three forms of requests on one path, and the fields that newer clients send."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from endpoint import EndpointClient, endpoint_server
from fault_server import FaultServer, answers, chat, choice, raw, reset, status

QUESTION = "What is the capital of Turkey?"
PATHS = ("/v1/chat/completions", "/v1/responses", "/v1/messages")


@pytest.fixture(scope="module")
def local() -> Iterator[EndpointClient]:
    with endpoint_server() as client:
        yield client


def asked(path: str, text: str = QUESTION, /, **fields: Any) -> dict[str, Any]:
    """The body of a question in the form of a path."""
    body: dict[str, Any] = {"model": "selfreflect/m", **fields}
    turns = [{"role": "user", "content": text}]
    if path == "/v1/responses":
        return {"input": text, **body}
    return (
        {"messages": turns, "max_tokens": 64, **body} if "messages" in path else {"messages": turns, **body}
    )


def text_of(path: str, body: dict[str, Any]) -> Any:
    if path == "/v1/responses":
        return body["output"][0]["content"][0]["text"]
    return body["content"][0]["text"] if path == "/v1/messages" else body["choices"][0]["message"]["content"]


def events_of(text: str) -> list[dict[str, Any]]:
    lines = [line[6:] for line in text.splitlines() if line.startswith("data: ") and line != "data: [DONE]"]
    return [json.loads(line) for line in lines]


@pytest.mark.parametrize("path", PATHS)
def test_a_question_has_the_same_distribution_in_every_form(local: EndpointClient, path: str) -> None:
    response = local.http.post(path, json=asked(path))
    body = response.json()
    assert text_of(path, body) == "Ankara"
    assert body["selfreflect"]["classes"][0] == {"text": "Ankara", "share": 0.75}
    assert response.headers["x-selfreflect-confidence"] == "0.7500"
    assert local.http.get(f"/v1/selfreflect/{body['id']}").json()["num_answers"] == 4
    streamed = events_of(local.http.post(path, json=asked(path, stream=True)).text)
    [belief] = [
        found
        for event in streamed
        if (found := event.get("selfreflect") or event.get("response", {}).get("selfreflect"))
    ]
    assert belief["confidence"] == 0.75


SILENT = {
    "reasoning_effort": "none",
    "verbosity": "low",
    "chat_template_kwargs": {"enable_thinking": False},
    "metadata": {"a": "b"},
    "user": "ann",
    "service_tier": "flex",
    "a_field_of_next_year": {"on": 1},
}
"""Fields that change no text of ours."""


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("name", SILENT)
def test_a_local_model_reflects_whatever_changes_no_text_and_names_it(
    local: EndpointClient, path: str, name: str
) -> None:
    response = local.http.post(path, json=asked(path, **{name: SILENT[name]}))
    assert response.status_code == 200, response.text
    belief = response.json()["selfreflect"]
    assert belief["num_answers"] == 4
    assert any(name in note for note in belief["notes"])


@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens", "seed", "top_k"])
def test_minus_one_means_no_limit(local: EndpointClient, name: str) -> None:
    assert local.chat(**{name: -1}).json()["selfreflect"]["num_answers"] == 4
    assert local.chat(**{name: -2 if name != "seed" else 2**70}).status_code == 400


def test_fields_reach_the_server_of_the_model_with_every_call() -> None:
    with (
        FaultServer(lambda call: answers()) as upstream,
        endpoint_server(upstream=upstream.url, names=["m"]) as client,
    ):
        belief = client.chat(
            reasoning_effort="low", chat_template_kwargs={"a": 1}, metadata={"b": "c"}
        ).json()
        sent = [call.body for call in upstream.calls]
        assert len(sent) >= 2
        assert {body["reasoning_effort"] for body in sent} == {"low"}
        assert all(body["chat_template_kwargs"]["a"] == 1 for body in sent)
        assert not any("metadata" in body for body in sent)
        notes = " ".join(belief["selfreflect"]["notes"])
        assert all(name in notes for name in ("reasoning_effort", "chat_template_kwargs", "metadata"))
        response = client.http.post(
            "/v1/responses",
            json=asked("/v1/responses", reasoning={"effort": "high"}, text={"verbosity": "low"}),
        )
        assert response.json()["selfreflect"]["num_answers"] == 4
        assert upstream.calls[-1].body["reasoning_effort"] == "high"
        assert upstream.calls[-1].body["verbosity"] == "low"
        client.chat()
        assert "reasoning_effort" not in upstream.calls[-1].body


@pytest.mark.parametrize("refusal", ["unknown field verbosity", "Bad Request"])
def test_a_field_that_the_server_refuses_costs_no_answer(refusal: str) -> None:
    refused = status(400, refusal)
    with (
        FaultServer(lambda call: refused if "verbosity" in call.body else answers()) as upstream,
        endpoint_server(upstream=upstream.url, names=["m"]) as client,
    ):
        belief = client.chat(verbosity="low").json()["selfreflect"]
    assert belief["num_answers"] == 4
    assert any("verbosity" in note and note.startswith("ignored") for note in belief["notes"])


def test_turns_with_names_and_system_turns_anywhere_are_reflected(local: EndpointClient) -> None:
    turns = [
        {"role": "user", "content": "Hello", "name": "ann"},
        {"role": "assistant", "content": "Hi."},
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": QUESTION, "name": "ann"},
        {"role": "system", "content": "Use no markup."},
    ]
    belief = local.chat(messages=turns).json()
    detail = local.http.get(f"/v1/selfreflect/{belief['id']}").json()
    assert detail["question"] == QUESTION
    assert detail["context"].startswith("Be brief.\n\nUse no markup.")
    assert any("messages.name" in note for note in belief["selfreflect"]["notes"])


@pytest.mark.parametrize(
    ("path", "fields", "reason"),
    [
        ("/v1/responses", {"tools": [{"type": "web_search"}]}, "tools"),
        ("/v1/responses", {"text": {"format": {"type": "grammar"}}}, "text.format"),
        ("/v1/responses", {"background": True}, "background"),
        ("/v1/chat/completions", {"web_search_options": {}}, "web_search_options"),
        (
            "/v1/responses",
            {"input": [{"type": "function_call_output", "output": "4"}]},
            "input.function_call_output",
        ),
        (
            "/v1/responses",
            {"input": [{"role": "user", "content": [{"type": "input_image"}]}]},
            "input.content",
        ),
        (
            "/v1/responses",
            {"input": [{"role": "user", "content": [{"type": "input_text", "text": None}]}]},
            "input.content",
        ),
        ("/v1/responses", {"previous_response_id": "resp_1"}, "previous_response_id"),
        ("/v1/messages", {"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, "tools"),
        (
            "/v1/messages",
            {"messages": [{"role": "user", "content": [{"type": "image"}]}]},
            "messages.content",
        ),
        (
            "/v1/messages",
            {"messages": [{"role": "user", "content": [{"type": "text", "text": 4}]}]},
            "messages.content",
        ),
    ],
)
def test_what_cannot_be_reflected_passes_through_and_says_why(
    local: EndpointClient, path: str, fields: dict[str, Any], reason: str
) -> None:
    body = asked(path, **fields)
    with (
        FaultServer(lambda call: raw(b'{"ok": true}')) as upstream,
        endpoint_server(upstream=upstream.url, names=["m"]) as client,
    ):
        response = client.http.post(path, json=body, headers={"anthropic-version": "2023-06-01"})
        assert response.json() == {"ok": True}
        assert response.headers["x-selfreflect-passthrough"] == reason
        [call] = upstream.calls
        assert call.path == path
        assert call.body == {**body, "model": "m"}
        assert ("anthropic-version" in call.headers) == (path == "/v1/messages")
    refused = local.http.post(path, json=body)
    assert refused.status_code == 400
    assert refused.json()["error"]["code"] == "unsupported"


def test_a_conversation_goes_on_from_a_response(local: EndpointClient) -> None:
    def respond(**fields: Any) -> Any:
        return local.http.post("/v1/responses", json=asked("/v1/responses", **fields)).json()

    nulls = {"tool_choice": None, "parallel_tool_calls": None}
    first = respond(instructions="Be brief.", metadata={"a": "b"}, reasoning={"effort": "low"}, **nulls)
    assert (first["tool_choice"], first["parallel_tool_calls"]) == ("auto", True)
    assert first["instructions"] == "Be brief."
    assert (first["metadata"], first["reasoning"]["effort"]) == ({"a": "b"}, "low")
    detail = local.http.get(f"/v1/selfreflect/{first['id']}").json()
    assert detail["context"] == "Be brief."
    second = respond(input="And of Italy?", previous_response_id=first["id"])
    assert second["previous_response_id"] == first["id"]
    detail = local.http.get(f"/v1/selfreflect/{second['id']}").json()
    assert detail["context"] == f"user: {QUESTION}\n\nassistant: Ankara"
    plain = respond(model="m", input="And you?", previous_response_id=second["id"])
    third = respond(input="And of Oz?", previous_response_id=plain["id"])
    detail = local.http.get(f"/v1/selfreflect/{third['id']}").json()
    assert "And of Italy?" in detail["context"]
    assert "And you?" in detail["context"]
    forgotten = respond(store=False)
    assert forgotten["store"] is False
    assert local.http.get(f"/v1/selfreflect/{forgotten['id']}").status_code == 404
    assert respond(previous_response_id=forgotten["id"])["error"]["code"] == "previous_response_not_found"


def test_the_turns_that_are_remembered_here_go_to_the_upstream() -> None:
    def script(call: Any) -> Any:
        return answers() if call.path.endswith("completions") else raw(b"{}")

    with FaultServer(script) as upstream, endpoint_server(upstream=upstream.url, names=["m"]) as client:
        first = client.http.post("/v1/responses", json=asked("/v1/responses")).json()
        client.http.post(
            "/v1/responses",
            json=asked("/v1/responses", input="Look it up.", tools=[1], previous_response_id=first["id"]),
        )
        sent = upstream.calls[-1].body
    assert "previous_response_id" not in sent
    assert [turn["role"] for turn in sent["input"]] == ["user", "assistant", "user"]
    assert sent["input"][-1]["content"] == "Look it up."


def test_a_greeting_takes_one_call_and_says_so() -> None:
    whole = chat(choice("Hello!"), usage={"prompt_tokens": 1, "completion_tokens": 2})
    with (
        FaultServer(lambda call: whole) as upstream,
        endpoint_server(upstream=upstream.url, names=["m"]) as client,
    ):
        for path in PATHS:
            response = client.http.post(path, json=asked(path, "Hi there!"))
            assert text_of(path, response.json()) == "Hello!"
            belief = response.json()["selfreflect"]
            assert (belief["reflected"], belief["reason"], belief["confidence"]) == (
                False,
                "small_talk",
                None,
            )
            assert response.headers["x-selfreflect-passthrough"] == "small_talk"
        assert len(upstream.calls) == len(PATHS)
        assert 'outcome="plain"} 3.0' in client.http.get("/metrics").text


@pytest.mark.parametrize("path", PATHS)
def test_an_order_may_fill_what_its_client_allows(path: str) -> None:
    limit = "max_output_tokens" if path == "/v1/responses" else "max_tokens"
    with (
        FaultServer(lambda call: answers()) as upstream,
        endpoint_server(upstream=upstream.url, names=["m"]) as client,
    ):
        client.http.post(path, json=asked(path, "Write an essay about autumn.", **{limit: 4000}))
        assert upstream.calls[-1].body["max_tokens"] == 4000


def test_a_stream_that_passes_through_gets_the_reason_with_its_end() -> None:
    events = (
        b'data: {"choices": [{"delta": {"content": "Hel"}, "finish_reason": null}]}\n\n'
        b'data: {"choices": [{"delta": {"content": "lo"}, "finish_reason": null}], "x": 1.0}\n\n'
        b'data: {"choices": [{"delta": null, "finish_reason": "stop"}]}\n\n'
        b"data: [DONE]\n\n"
    )
    with (
        FaultServer(lambda call: raw(events, "text/event-stream")) as upstream,
        endpoint_server(upstream=upstream.url, names=["m"]) as client,
    ):
        response = client.chat("Thanks!", stream=True)
    ends = events_of(response.text)
    assert [event.get("selfreflect", {}).get("reason") for event in ends] == [None, None, "small_talk"]
    assert response.text.startswith(events[:150].decode())
    assert response.text.endswith("data: [DONE]\n\n")


@pytest.mark.parametrize(
    ("reflect", "text", "is_reflected"),
    [("always", "hi", True), ("auto", "hi", False), ("auto", QUESTION, True), ("never", QUESTION, False)],
)
def test_the_rule_is_the_choice_of_server_and_request(reflect: str, text: str, is_reflected: bool) -> None:
    with endpoint_server(reflect=reflect) as client:
        belief = client.chat(text).json()["selfreflect"]
        assert belief["reflected"] is is_reflected
        assert belief["cost"]["completions"] == (5 if is_reflected else 1)
    with endpoint_server() as client:
        belief = client.chat(text, selfreflect={"reflect": reflect}).json()["selfreflect"]
        assert belief["reflected"] is is_reflected


def test_what_questions_cost_is_in_the_metrics() -> None:
    with endpoint_server() as client:
        for text in (QUESTION, QUESTION, "Hi!"):
            client.chat(text)
        lines = client.http.get("/metrics").text.splitlines()
    values = dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    assert float(values["selfreflect_question_completions_count"]) == 2
    assert float(values["selfreflect_question_completions_sum"]) == 10
    assert float(values["selfreflect_cost_multiplier"]) == 5
    assert float(values["selfreflect_latency_multiplier"]) >= 1
    assert float(values['selfreflect_responses_total{outcome="plain"}']) == 1


@pytest.mark.parametrize("path", PATHS[1:])
def test_the_text_of_the_server_comes_live_in_other_forms(path: str) -> None:
    go = threading.Event()

    def live(handler: Any, call: Any) -> None:
        def say(**fields: Any) -> None:
            data = b"data: " + json.dumps(fields).encode() + b"\n\n"
            handler.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))

        handler.start(200, {"Content-Type": "text/event-stream", "Transfer-Encoding": "chunked"})
        say(choices=[{"delta": {"content": "<think>A poem."}}])
        # some servers count on in each piece, from nothing
        usage = {"prompt_tokens": 3, "completion_tokens": 0}
        say(choices=[{"delta": {"content": "</think>Leaves"}}], usage=usage)
        go.wait(20)
        say(choices=[{"delta": {"content": " fall."}, "finish_reason": "stop"}])
        say(choices=[], usage={"prompt_tokens": 3, "completion_tokens": 2})
        handler.wfile.write(b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n")

    body = asked(path, "Write a poem about autumn.", stream=True, verbosity="low")
    with (
        FaultServer(lambda call: live) as upstream,
        endpoint_server(
            upstream=upstream.url, names=["m"], prices={"openai:m": lambda read, written: read + 10 * written}
        ) as client,
    ):
        with client.http.stream("POST", path, json=body) as response:
            text = ""
            for part in response.iter_text():
                text += part
                if "Leaves" in text:
                    go.set()
        events = events_of(text)
        upstream.script = lambda call: reset
        broken = client.http.post(path, json=body).text
        assert gauge_of(client, "selfreflect_running") == 0
    assert "poem" not in text
    end = events[-2] if "messages" in path else events[-1]["response"]
    assert (end["selfreflect"]["reason"], end["selfreflect"]["cost"]["completions"]) == ("long_text", 1)
    assert end["usage"]["output_tokens"] == 2
    assert end["selfreflect"]["cost"]["money"] == 23
    assert upstream.calls[0].body["verbosity"] == "low"
    assert '"upstream_error"' in broken or '"api_error"' in broken


STREAMS: dict[str, tuple[list[str], str]] = {
    "a last piece without a delta": ([r'{"delta": null, "finish_reason": "length"}'], "incomplete"),
    "a limit by another name": ([r'{"delta": {}, "finish_reason": "MAX_TOKENS"}'], "incomplete"),
    "a filter": ([r'{"delta": {}, "finish_reason": "content_filter"}'], "incomplete"),
    "content as an object": (
        [r'{"delta": {"content": {"text": ""}}, "finish_reason": {"type": "stop"}}'],
        "completed",
    ),
    "an end that is no word": ([r'{"delta": {"content": ""}, "finish_reason": ""}'], "error"),
    "an end by an error": ([r'{"delta": {}, "finish_reason": "error"}'], "error"),
    "an error in a choice": ([r'{"delta": {}, "error": {"code": 502, "message": "gone"}}'], "error"),
    "half of an event": ([r'{"delta": {"content": "fal', r'{"finish_reason": "stop"}'], "error"),
    "deep nesting": (
        ['{"delta": {"content": ' + "[" * 5000 + "]" * 5000 + '}, "finish_reason": "stop"}'],
        "error",
    ),
}
"""Choices at the end of a stream, and how the response ends."""


@pytest.mark.parametrize("name", STREAMS)
def test_part_of_a_streamed_text_never_passes_for_the_whole(name: str) -> None:
    choices, ending = STREAMS[name]
    pieces = ['{"delta": {"content": "Leaves fall."}}', *choices]
    stream = "".join(f'data: {{"choices": [{piece}]}}\n\n' for piece in pieces).encode()
    body = asked("/v1/responses", "Write a poem about autumn.", stream=True)
    with (
        FaultServer(lambda call: raw(stream, "text/event-stream")) as upstream,
        endpoint_server(upstream=upstream.url, names=["m"]) as client,
    ):
        last = events_of(client.http.post("/v1/responses", json=body).text)[-1]
    assert last["type"] == ("error" if ending == "error" else f"response.{ending}")
    if ending != "error":
        assert text_of("/v1/responses", last["response"]) == "Leaves fall."


def test_a_character_that_two_pieces_share_arrives_whole() -> None:
    pieces = (
        r'{"delta": {"content": "Oz \ud83d"}}',
        r'{"delta": {"content": "\ude00"}, "finish_reason": "stop"}',
    )
    stream = "".join(f'data: {{"choices": [{piece}]}}\n\n' for piece in pieces).encode()
    body = asked("/v1/responses", "Write a poem about autumn.", stream=True)
    with (
        FaultServer(lambda call: raw(stream, "text/event-stream")) as upstream,
        endpoint_server(upstream=upstream.url, names=["m"]) as client,
    ):
        last = events_of(client.http.post("/v1/responses", json=body).text)[-1]
    assert text_of("/v1/responses", last["response"]) == "Oz \U0001f600"


def test_a_streamed_text_of_reasoning_alone_is_not_whole() -> None:
    piece = b'data: {"choices": [{"delta": {"content": "<think>A poem."}, "finish_reason": "stop"}]}\n\n'
    body = asked("/v1/messages", "Write a poem about autumn.", stream=True)
    with (
        FaultServer(lambda call: raw(piece, "text/event-stream")) as upstream,
        endpoint_server(upstream=upstream.url, names=["m"]) as client,
    ):
        *_, end, _ = events_of(client.http.post("/v1/messages", json=body).text)
    assert end["delta"]["stop_reason"] == "max_tokens"


@pytest.mark.parametrize("path", PATHS[:2])
def test_an_event_without_an_end_holds_up_nobody(path: str) -> None:
    endless = raw(b"data: " + b"x" * 40 * 2**20, "text/event-stream")
    body = asked(path, "Write a poem about autumn.", stream=True)
    with (
        FaultServer(lambda call: endless) as upstream,
        endpoint_server(upstream=upstream.url, names=["m"]) as client,
    ):
        began = time.monotonic()
        text = client.http.post(path, json=body).text
        assert "event: error" in text or '"error"' in text
        # a minute where each part copies all before it
        assert time.monotonic() - began < 15


def gauge_of(client: EndpointClient, name: str) -> float:
    [line] = [line for line in client.http.get("/metrics").text.splitlines() if line.startswith(f"{name} ")]
    return float(line.rpartition(" ")[2])


@pytest.mark.parametrize(
    ("path", "fields", "param"),
    [
        ("/v1/responses", {"max_output_tokens": 0}, "max_output_tokens"),
        ("/v1/responses", {"input": []}, "input"),
        ("/v1/responses", {"input": 3}, "input"),
        ("/v1/chat/completions", {"max_tokens": 0}, "max_tokens"),
        ("/v1/chat/completions", {"messages": []}, "messages"),
    ],
)
def test_an_error_names_the_field_as_the_client_does(
    local: EndpointClient, path: str, fields: dict[str, Any], param: str
) -> None:
    response = local.http.post(path, json=asked(path, **fields))
    assert (response.status_code, response.json()["error"]["param"]) == (400, param)
