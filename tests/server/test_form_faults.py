"""Faults of the upstream and of clients in the newer forms: places are freed, and errors keep their shape."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from endpoint import EndpointClient, endpoint_server
from fault_server import FaultServer, answers, raw, reset, silent, status

QUESTION = "What is the capital of Turkey?"
PATHS = ("/v1/responses", "/v1/messages")
BODY: dict[str, dict[str, Any]] = {
    "/v1/responses": {"model": "selfreflect/m", "input": QUESTION},
    "/v1/messages": {
        "model": "selfreflect/m",
        "max_tokens": 64,
        "messages": [{"role": "user", "content": QUESTION}],
    },
}


def gauge(client: EndpointClient, name: str) -> float:
    [line] = [line for line in client.http.get("/metrics").text.splitlines() if line.startswith(f"{name} ")]
    return float(line.rpartition(" ")[2])


def streamed_poem(path: str, upstream_stream: bytes) -> tuple[str, float]:
    """Stream an order in front of a scripted upstream; return the events, and how many responses failed."""
    turns = [{"role": "user", "content": "Write a poem about autumn."}]
    body = {**BODY[path], "stream": True, "input": turns, "messages": turns}
    with (
        FaultServer(lambda call: raw(upstream_stream, "text/event-stream")) as upstream,
        endpoint_server(upstream=upstream.url, names=["m"]) as client,
    ):
        text = client.http.post(path, json=body).text
        failed = [
            float(line.rpartition(" ")[2])
            for line in client.http.get("/metrics").text.splitlines()
            if line.startswith('selfreflect_responses_total{outcome="failed"} ')
        ]
    return text, sum(failed)


@pytest.mark.parametrize("path", PATHS)
def test_an_upstream_that_hangs_or_is_too_busy_costs_its_own_requests_only(path: str) -> None:
    with (
        FaultServer(lambda call: silent) as upstream,
        endpoint_server(upstream=upstream.url, names=["m"], timeout=0.3) as client,
    ):
        hung = client.http.post(path, json=BODY[path])
        assert hung.status_code in (502, 504)
        # a storm: four tries at most, then the upstream's own advice
        calls = len(upstream.calls)
        upstream.script = lambda call: status(429, "slow down", Retry_After="0")
        busy = client.http.post(path, json=BODY[path])
        assert (busy.status_code, busy.headers["retry-after"]) == (429, "0")
        assert len(upstream.calls) - calls <= 4
        error = busy.json()["error"]
        assert error["type"] == "rate_limit_error"
        assert ("request_id" in busy.json()) == (path == "/v1/messages")
        upstream.script = lambda call: answers()
        assert client.http.post(path, json=BODY[path]).status_code == 200
        assert gauge(client, "selfreflect_running") == 0


@pytest.mark.parametrize("path", PATHS)
def test_an_error_in_a_stream_has_the_event_of_its_form(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("selfreflect.server.endpoint.OPEN_SECONDS", 0.05)
    with (
        FaultServer(lambda call: reset) as upstream,
        endpoint_server(upstream=upstream.url, names=["m"]) as client,
    ):
        text = client.http.post(path, json={**BODY[path], "stream": True}).text
    [line] = [line for line in text.splitlines() if line.startswith("data: ")]
    assert "event: error" in text
    event = json.loads(line[6:])
    assert event["type"] == "error"
    assert event["error"]["message"]


def breaks_off(handler: Any, call: Any) -> None:
    """Begin a stream in the form that is asked for, and end it in the middle."""
    handler.start(200, {"Content-Type": "text/event-stream", "Transfer-Encoding": "chunked"})
    for number in range(3):
        event = {"type": "response.output_text.delta", "sequence_number": number, "delta": "Le"}
        event |= {"choices": [{"delta": {"content": "Leaves "}}]}
        data = b"data: " + json.dumps(event).encode() + b"\n\n"
        handler.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        handler.wfile.flush()
        time.sleep(0.05)
    handler.drop()


@pytest.mark.parametrize("path", PATHS)
def test_an_error_within_a_stream_that_began_well_is_no_whole_text(path: str) -> None:
    told = (
        b'data: {"choices": [{"delta": {"content": "Lea"}}]}\n\n'
        b'data: {"error": {"message": "overloaded", "code": 502}}\n\ndata: [DONE]\n\n'
    )
    text, failed = streamed_poem(path, told)
    assert failed == 1
    assert "event: error" in text
    assert "overloaded" in text
    assert "event: response.completed" not in text
    assert "event: message_stop" not in text


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    "end",
    [
        b"data:[DONE]\n\n",
        b"data: [DONE]",
        b'data: {"choices": [{"delta": {}, "finish_reason": "stop"}]}\r\n\r\n',
    ],
)
def test_a_stream_may_end_in_the_words_of_its_server(path: str, end: bytes) -> None:
    told = b'data: {"choices": [{"delta": {"content": [{"type": "text", "text": "Leaves"}]}}]}\n\n' + end
    text, _ = streamed_poem(path, told)
    assert "event: error" not in text
    assert "Leaves" in text
    assert ("event: response.completed" in text) == (path == "/v1/responses")


@pytest.mark.parametrize("model", ["m", "selfreflect/m"], ids=["passes through", "is written here"])
def test_the_error_of_a_response_that_breaks_off_counts_on(model: str) -> None:
    body = {"model": model, "input": "Write a poem about autumn.", "stream": True}
    with (
        FaultServer(lambda call: breaks_off) as upstream,
        endpoint_server(upstream=upstream.url, names=["m"]) as client,
    ):
        text = client.http.post("/v1/responses", json=body).text
        assert gauge(client, 'selfreflect_responses_total{outcome="failed"}') == 1
    numbers = [
        json.loads(line[6:])["sequence_number"] for line in text.splitlines() if line.startswith("data: ")
    ]
    assert len(numbers) > 3
    assert numbers == list(range(len(numbers)))
    assert "event: error" in text
