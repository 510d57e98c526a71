"""The endpoint in front of another OpenAI-compatible server: what that gets, and what its faults become."""

from __future__ import annotations

import gzip
import json
import threading
import time
import zlib
from collections.abc import Iterator
from typing import Any

import pytest
from endpoint import EndpointClient, endpoint_server
from fault_server import (
    HALF,
    HTML,
    Action,
    Call,
    FaultServer,
    Handler,
    answers,
    chat,
    choice,
    in_turn,
    raw,
    reset,
    status,
    unused_port,
)
from served import KEY, QUICK

from selfreflect.server import upstream as remote
from selfreflect.settings import Price

TOKEN = "the-token-of-the-endpoint"
EVENTS = b'data: {"choices": [{"delta": {"content": "Hi"}}]}\n\ndata: [DONE]\n\n'


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SELFREFLECT_API_KEY", KEY)
    monkeypatch.setattr(remote, "RETRIES", QUICK)


def cities(call: Call) -> Action:
    """Answers from the model, then a summary of them."""
    usage = {"prompt_tokens": 10 * call.n, "completion_tokens": 2 * call.n}
    if "thoughts about a question" in str(call.body["messages"][-1]["content"]):
        return chat(choice("Most likely Ankara."), usage=usage)
    texts = ["Ankara", "Ankara.", "Istanbul", "ankara"]
    return chat(*(choice(texts[place % 4]) for place in range(call.n)), usage=usage)


@pytest.fixture
def upstream() -> Iterator[FaultServer]:
    with FaultServer(cities) as server:
        yield server


@pytest.fixture
def client(upstream: FaultServer) -> Iterator[EndpointClient]:
    with endpoint_server(upstream=upstream.url, token=TOKEN) as served:
        yield served


def error(response: Any, expected: int) -> dict[str, Any]:
    assert response.status_code == expected, response.text
    assert KEY not in response.text
    return dict(response.json()["error"])


def test_a_question_takes_one_call_for_the_answers_and_one_for_the_summary(
    upstream: FaultServer, client: EndpointClient
) -> None:
    body = client.chat().json()
    assert body["choices"][0]["message"]["content"] == "Most likely Ankara."
    assert body["selfreflect"]["classes"][0] == {"text": "Ankara", "share": 0.75}
    assert body["usage"] == {"prompt_tokens": 50, "completion_tokens": 10, "total_tokens": 60}
    drawing, summarizing = upstream.calls
    assert (drawing.body["model"], drawing.n, summarizing.n) == ("m", 4, 1)
    assert drawing.body["messages"] == [{"role": "user", "content": "What is the capital of Turkey?"}]


def test_what_a_question_cost_is_in_money_where_the_model_has_a_price(upstream: FaultServer) -> None:
    price = Price(input_per_million=1.0, output_per_million=10.0)
    free = Price(input_per_million=0.0, output_per_million=0.0)
    prices = {"openai:m": price.cost, "openai:other": free.cost}
    with endpoint_server(upstream=upstream.url, prices=prices) as client:
        assert client.chat().json()["selfreflect"]["cost"]["money"] == pytest.approx(50e-6 + 100e-6)
        assert client.chat(model="selfreflect/free").json()["selfreflect"]["cost"]["money"] is None


@pytest.mark.parametrize("tells", [True, False])
def test_asking_back_reads_the_probabilities_of_replies_where_the_upstream_tells_them(tells: bool) -> None:
    """All calls of a round are under way at once, and the usage counts them."""
    others = threading.Barrier(4, timeout=20)

    def upstream(call: Call) -> Action:
        text = str(call.body["messages"][-1]["content"])
        usage = {"prompt_tokens": 10, "completion_tokens": call.n}
        if "logprobs" in call.body and not tells:
            return status(400, "logprobs are not supported")
        if "vertical bars" in text:
            lines = "1. In 1920 or now? | 1920 | now\n2. Is it urgent? | yes | no"
            return chat(likely(lines) if tells else choice(lines), usage=usage)
        if "They were asked back" not in text:
            return cities(call)
        is_second = "1920" in text and "Istanbul" in text.rpartition("\n")[2]

        def at_once(handler: Handler, call: Call) -> None:
            others.wait()
            chat(likely("2" if is_second else "1"), usage=usage)(handler, call)

        return at_once

    settings: dict[str, Any] = {"when_unsure": "ask", "below": 0.8, "ask_candidates": 2}
    with FaultServer(upstream) as server, endpoint_server(upstream=server.url, **settings) as client:
        body = client.chat().json()
        calls = len(server.calls)
    belief = body["selfreflect"]
    if not tells:
        assert (belief["action"], len(belief["notes"])) == ("hedge", 1)
        return
    assert belief["action"] == "ask"
    assert "In 1920 or now?\n- 1920\n- now" in body["choices"][0]["message"]["content"]
    assert (calls, belief["cost"]["completions"]) == (2 + 1 + 4, 5 + 1 + 4)
    assert body["usage"]["prompt_tokens"] == 50 + 10 + 4 * 10


def likely(text: str) -> dict[str, Any]:
    """A choice whose text is one token, which is certain."""
    token = {"token": text, "logprob": 0.0}
    return {**choice(text), "logprobs": {"content": [{**token, "top_logprobs": [token]}]}}


def test_only_our_key_reaches_the_upstream_and_only_it(upstream: FaultServer, client: EndpointClient) -> None:
    client.chat()
    client.chat(tools=[{"type": "function"}])
    client.chat(model="m")
    client.http.get("/v1/models")
    assert {call.headers["authorization"] for call in upstream.calls} == {f"Bearer {KEY}"}


def send(client: EndpointClient, data: bytes) -> Any:
    headers = {"Content-Type": "application/json"}
    return client.http.post("/v1/chat/completions", content=data, headers=headers)


def test_other_requests_pass_through_byte_for_byte(upstream: FaultServer, client: EndpointClient) -> None:
    reply = b'{"choices":  [{"message": {"tool_calls": [1.50e+3]}}], "model": "m"}'
    upstream.script = lambda call: raw(reply)
    tools = b'"tools": [{"x" : 1.50e+3, "y": 123456789012345678901234567890}]'
    response = send(client, b'{"model": "selfreflect/m", "messages": [], ' + tools + b"}")
    assert response.content == reply
    assert response.headers["x-selfreflect-passthrough"] == "tools"
    assert (
        json.dumps(upstream.calls[-1].body["tools"]) == '[{"x": 1500.0, "y": 123456789012345678901234567890}]'
    )
    response = send(client, b'{"model": "m", "anything": {"at": "all"}}')
    assert response.headers["x-selfreflect-passthrough"] == "model"
    assert upstream.calls[-1].body == {"model": "m", "anything": {"at": "all"}}
    upstream.script = lambda call: raw(EVENTS, "text/event-stream")
    response = send(client, b'{"model": "m", "stream": true}')
    assert response.content == EVENTS
    assert response.headers["content-type"] == "text/event-stream"


def test_errors_of_what_passes_through_are_the_upstreams_without_the_key(
    upstream: FaultServer, client: EndpointClient
) -> None:
    upstream.script = lambda call: status(429, f"slow down, {KEY}", Retry_After="7", X_Secret="no")
    response = client.chat(model="m")
    assert error(response, 429)["message"] == "slow down, ***"
    assert response.headers["retry-after"] == "7"
    assert "x-secret" not in response.headers
    upstream.script = lambda call: status(302, "elsewhere", Location="http://evil.example")
    assert error(client.chat(model="m"), 502)["code"] == "redirect"
    upstream.script = lambda call: reset
    assert error(client.chat(model="m"), 502)["type"] == "upstream_error"


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        (status(500, "boom"), 502),
        (status(429, f"slow down {KEY}"), 429),
        (status(429, "insufficient_quota"), 502),
        (status(401, f"bad key {KEY}"), 502),
        (status(404, "no model"), 502),
        (status(400, "maximum context length is 5"), 400),
        (HTML, 502),
        (HALF, 502),
        (reset, 502),
        (chat(), 502),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_lasting_faults_are_typed_before_any_status_is_sent(
    upstream: FaultServer, client: EndpointClient, fault: Action, expected: int, stream: bool
) -> None:
    upstream.script = lambda call: fault
    assert error(client.chat(stream=stream), expected)["message"]


def test_a_model_that_cannot_be_greedy_is_paid_for_one_question_and_then_for_what_it_takes(
    upstream: FaultServer, client: EndpointClient
) -> None:
    usual = upstream.script
    upstream.script = lambda call: (
        usual(call) if call.body["temperature"] == 1 else status(400, "temperature must be 1")
    )
    assert "basic#1-2" in error(client.chat(), 400)["message"]
    calls = len(upstream.calls)
    for fields in ({}, {"stream": True}, {"max_tokens": 9}):
        refusal = error(client.chat(**fields), 400)
        assert "basic#1-2" in refusal["message"]
        assert refusal["code"] == "unsupported_value"
    assert len(upstream.calls) == calls
    # a summary that the model takes goes on
    assert client.chat(temperature=1).status_code == 200


def test_passing_faults_are_tried_again(upstream: FaultServer, client: EndpointClient) -> None:
    upstream.script = in_turn(status(503, "loading"), reset, answers())
    assert client.chat(selfreflect={"strategy": "greedy"}).status_code == 200


def test_an_upstream_that_is_not_there_is_a_typed_error() -> None:
    with endpoint_server(upstream=f"http://127.0.0.1:{unused_port()}/v1") as client:
        assert error(client.chat(), 502)["type"] == "upstream_error"
        assert error(client.chat(model="m"), 502)["type"] == "upstream_error"
        assert error(client.http.get("/v1/models"), 502)["type"] == "upstream_error"


def test_models_are_those_that_the_upstream_lists_or_those_that_are_named(upstream: FaultServer) -> None:
    listed = {"data": [{"id": "a"}, {"id": "org/b"}]}
    upstream.script = lambda call: raw(json.dumps(listed).encode())
    with endpoint_server(upstream=upstream.url) as client:
        names = [one["id"] for one in client.http.get("/v1/models").json()["data"]]
        assert names == ["selfreflect/a", "a", "selfreflect/org/b", "org/b"]
        client.http.get("/v1/models")
        assert [call.path for call in upstream.calls] == ["/v1/models"]  # the list is remembered
    with endpoint_server(upstream=upstream.url, names=["a"]) as client:
        assert len(client.http.get("/v1/models").json()["data"]) == 2
        assert error(client.chat(model="selfreflect/org/b"), 404)["code"] == "model_not_found"
    upstream.script = lambda call: HTML
    with endpoint_server(upstream=upstream.url) as client:
        assert error(client.http.get("/v1/models"), 502)["code"] == "no_models"


def answering(head: bytes, body: bytes = b"{}") -> Action:
    """A response with this status line and these headers, byte by byte."""

    def give(handler: Handler, call: Call) -> None:
        handler.wfile.write(b"HTTP/1.1 " + head + b"\r\nContent-Length: %d\r\n" % len(body))
        handler.wfile.write(b"Connection: close\r\n\r\n" + body)
        handler.drop()

    return give


@pytest.mark.parametrize("code", [101, 199, 304, 600, 999])
def test_a_status_that_no_response_has_is_a_fault_of_the_upstream(
    upstream: FaultServer, client: EndpointClient, code: int, caplog: pytest.LogCaptureFixture
) -> None:
    upstream.script = lambda call: answering(b"%d Odd\r\nContent-Type: application/json" % code)
    for response in (client.chat(model="m"), client.chat(), client.http.get("/v1/models")):
        assert error(response, 502)["type"] == "upstream_error"
    assert not [record for record in caplog.records if record.exc_info]


@pytest.mark.parametrize("value", ["x\u2026", "\xe9"])
def test_headers_that_are_no_plain_text_are_not_handed_on(
    upstream: FaultServer, client: EndpointClient, value: str
) -> None:
    head = b"200 OK\r\nContent-Type: application/json\r\nX-Request-Id: " + value.encode()
    upstream.script = lambda call: answering(head)
    response = client.chat(model="m")
    assert (response.status_code, response.headers.get("x-request-id")) == (200, None)


@pytest.mark.parametrize(("encoding", "pack"), [("gzip", gzip.compress), ("deflate", zlib.compress)])
@pytest.mark.parametrize("kind", ["application/json", "text/event-stream"])
def test_a_compressed_response_is_handed_on_as_plain_text(
    upstream: FaultServer, client: EndpointClient, encoding: str, pack: Any, kind: str
) -> None:
    plain = EVENTS * 5000
    head = f"200 OK\r\nContent-Type: {kind}\r\nContent-Encoding: {encoding}".encode()
    upstream.script = lambda call: answering(head, pack(plain))
    response = client.chat(model="m")
    assert response.content == plain
    assert "content-encoding" not in response.headers


@pytest.mark.parametrize(
    ("encoding", "body"),
    [
        ("br", b"\x0b\x02\x80{}\x03"),
        ("gzip", b"no"),
        ("gzip", gzip.compress(b" " * 40_000_000)),
    ],
    ids=["unknown", "damaged", "bomb"],
)
def test_a_compressed_response_that_cannot_be_read_is_a_fault_of_the_upstream(
    upstream: FaultServer, client: EndpointClient, encoding: str, body: bytes
) -> None:
    head = f"200 OK\r\nContent-Type: application/json\r\nContent-Encoding: {encoding}".encode()
    upstream.script = lambda call: answering(head, body)
    assert error(client.chat(model="m"), 502)["type"] == "upstream_error"


@pytest.mark.parametrize(
    ("asked", "told"), [("60", "60"), ("300.5", "301"), ("1e400", "604800"), (None, "5"), ("soon", "5")]
)
@pytest.mark.parametrize("stream", [False, True])
def test_an_upstream_that_is_busy_is_handed_on_with_the_time_that_it_asks_for(
    upstream: FaultServer, client: EndpointClient, asked: str | None, told: str, stream: bool
) -> None:
    headers = {} if asked is None else {"Retry_After": asked}
    upstream.script = lambda call: status(429, "slow down", **headers)
    for options in ({}, {"selfreflect": {"strategy": "greedy"}}):
        for _ in range(4):  # a server that fails again and again is given up
            response = client.chat(stream=stream, **options)
            assert error(response, 429)["code"] == "upstream_busy"
            assert response.headers["retry-after"] == told
    response = client.http.get("/v1/models")
    assert error(response, 429)["code"] == "upstream_busy"
    assert response.headers["retry-after"] == told


@pytest.mark.parametrize("size", [1, 7, 10**6])
def test_a_key_in_a_successful_response_is_not_handed_on(
    upstream: FaultServer, client: EndpointClient, size: int
) -> None:
    """Nor one that is cut into pieces on its way."""
    event = f'data: {{"choices": [{{"delta": {{"content": "Bearer {KEY}"}}}}]}}\n\n'.encode()

    def pieces(handler: Handler, call: Call) -> None:
        handler.start(200, {"Content-Type": "text/event-stream", "Connection": "close"})
        for start in range(0, len(event), size):
            handler.wfile.write(event[start : start + size])
            handler.wfile.flush()
            time.sleep(0.001)
        handler.drop()

    upstream.script = lambda call: pieces
    assert client.chat(model="m", stream=True).content == event.replace(KEY.encode(), b"***")
    upstream.script = lambda call: chat(choice(f"I got {KEY}"))
    assert client.chat(model="m").json()["choices"][0]["message"]["content"] == "I got ***"
    for response in (client.chat(), client.chat(stream=True)):
        assert KEY not in response.text
        assert "I got ***" in response.text
