"""Upstreams that fail, clients that are slow or vanish, and bytes that mean harm. Over real sockets."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection

import httpx2
import pytest
from endpoint import EndpointClient, endpoint_server
from fault_server import HTML, PASSING, FaultServer, chat, choice, faulty, status
from served import QUICK

from selfreflect.models.base import Request
from selfreflect.server import upstream as remote

FAULTS = (*PASSING, HTML, status(401, "who are you?"), status(400, "no"))


def outcome(response: httpx2.Response) -> str:
    """``answered``, or the type of the error that the response must hold."""
    if response.status_code == 200 and not response.headers["content-type"].startswith("text/event-stream"):
        assert response.json()["choices"][0]["message"]["content"]
        return "answered"
    if response.status_code == 200:
        *events, done = [line for line in response.text.split("\n\n") if line.startswith("data: ")]
        assert done == "data: [DONE]"
        last = json.loads(events[-1].removeprefix("data: "))
        return last["error"]["type"] if "error" in last else "answered"
    return str(response.json()["error"]["type"])


@pytest.mark.parametrize("stream", [False, True])
def test_with_a_fifth_of_calls_failing_each_question_is_answered_or_a_typed_error(
    monkeypatch: pytest.MonkeyPatch, stream: bool
) -> None:
    monkeypatch.setattr(remote, "RETRIES", QUICK)
    with (
        FaultServer(faulty(0.2, FAULTS)) as upstream,
        endpoint_server(upstream=upstream.url, names=["m"]) as served,
        ThreadPoolExecutor(10) as clients,
    ):
        asked = [
            clients.submit(served.chat, f"Who is number {number}?", stream=stream) for number in range(24)
        ]
        outcomes = Counter(outcome(one.result(30)) for one in asked)
        assert served.http.get("/health").status_code == 200
        assert "selfreflect_running 0.0" in served.http.get("/metrics").text
    assert outcomes["answered"] > 12
    # a 429 that outlasts all tries is handed on as such
    assert {"answered"} < outcomes.keys() <= {"answered", "upstream_error", "rate_limit_error"}, outcomes


@pytest.mark.parametrize("tokens", [2**63, 10**400, None, 0])
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/responses"])
def test_tokens_that_are_not_counted_are_null_and_cost_no_answer(path: str, tokens: int | None) -> None:
    usage = {"prompt_tokens": tokens, "completion_tokens": tokens}
    with (
        FaultServer(lambda call: chat(*[choice("Ankara")] * call.n, usage=usage)) as upstream,
        endpoint_server(upstream=upstream.url, names=["m"]) as served,
    ):
        turns = [{"role": "user", "content": "What is the capital of Turkey?"}]
        body = {"model": "selfreflect/m", "messages": turns, "input": turns}
        response = served.http.post(path, json=body)
    assert response.status_code == 200
    assert response.json()["usage"] is None
    belief = response.json()["selfreflect"]
    assert (belief["cost"]["prompt_tokens"], belief["cost"]["completion_tokens"]) == (None, None)
    assert any("does not count tokens" in note for note in belief["notes"])


def test_texts_of_the_upstream_reach_no_header() -> None:
    hostile = "m\r\nset-cookie: a=b"
    reply = status(400, f"bad {hostile}", x_request_id="r" * 30, set_cookie="a=b", retry_after="7")
    with (
        FaultServer(lambda call: reply) as upstream,
        endpoint_server(upstream=upstream.url, names=["m", hostile]) as served,
    ):
        responses = [
            served.chat(model="m"),
            served.chat(model=f"selfreflect/{hostile}"),
            served.chat(**{"x\r\nset-cookie: a": 1}),
            served.chat(messages=[{"role": "user", "content": "a", "n\r\nset-cookie": 1}]),
        ]
    for response in responses:
        assert response.status_code < 500 or outcome(response) == "upstream_error"
        assert "set-cookie" not in response.headers
        assert not any("\r" in value or "\n" in value for value in response.headers.values())


@pytest.fixture(scope="module")
def wordy() -> Iterator[EndpointClient]:
    """Some of its answers fill any buffer: 100 kB, as a stream a megabyte."""

    def script(request: Request) -> list[str]:
        return ["word " * 20_000 if "long" in request.messages[-1].content else "Ankara"]

    with endpoint_server(script, num_answers=2, strategies=("greedy",)) as served:
        yield served


def test_a_question_with_a_long_text_is_sorted_at_once() -> None:
    with endpoint_server(rule="same") as served:
        long = "The fair (in May) has 3 stalls, or 4 of them, of the town's traders. " * 14_000
        began = time.perf_counter()
        belief = served.chat(f"{long}\nWhat is the capital of Turkey?").json()["selfreflect"]
        assert time.perf_counter() - began < 10
    assert [entry["text"] for entry in belief["classes"]] == ["Ankara", "Istanbul"]


def test_a_client_that_still_sends_reads_why_its_body_is_refused(wordy: EndpointClient) -> None:
    connection = HTTPConnection(*wordy.address, timeout=60)
    connection.request("POST", "/v1/responses", b" " * 40_000_000, {"Content-Type": "application/json"})
    response = connection.getresponse()
    assert response.status == 413
    assert b"10,000,000" in response.read()


@pytest.mark.parametrize("model", ["m", "selfreflect/m"])
def test_megabytes_of_turns_or_of_nesting_are_refused(wordy: EndpointClient, model: str) -> None:
    """Nobody else is served while a body is read, which would take seconds."""
    turns = b'{"model": "%s", "messages": [%s]}' % (
        model.encode(),
        b",".join([b'{"role": "user", "content": "a"}'] * 200_000),
    )
    deep = b'{"model": "%s", "messages": %s}' % (model.encode(), b"[" * 5_000_000 + b"]" * 4_000_000)
    headers = {"Content-Type": "application/json"}
    for body in (turns, deep):
        refused = wordy.http.post("/v1/chat/completions", content=body, headers=headers)
        assert (refused.status_code, outcome(refused)) == (400, "invalid_request_error")
