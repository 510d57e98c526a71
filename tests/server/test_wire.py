"""The bytes that clients without a library see, with curl."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator

import pytest
from endpoint import EndpointClient, endpoint_server

MESSAGES = [{"role": "user", "content": "What is the capital of Turkey?"}]


@pytest.fixture(scope="module")
def served() -> Iterator[EndpointClient]:
    with endpoint_server(["Ankara it is,\nthe capital since 1923.\n"]) as client:
        yield client


def curl(served: EndpointClient, **fields: object) -> tuple[str, bytes]:
    """Head and body of a response."""
    body = json.dumps({"model": "selfreflect/m", "messages": MESSAGES, **fields})
    command = ["curl", "--silent", "--show-error", "--no-buffer", "--include", "--noproxy", "*"]
    header = ["--header", "Content-Type: application/json"]
    done = subprocess.run(
        [*command, *header, "--data-binary", "@-", f"{served.url}/chat/completions"],
        input=body.encode(),
        capture_output=True,
        timeout=30,
        check=True,
    )
    head, _, said = done.stdout.partition(b"\r\n\r\n")
    return head.decode("ascii").lower(), said


def test_a_completion_is_one_json_object(served: EndpointClient) -> None:
    head, body = curl(served)
    assert head.startswith("http/1.1 200")
    assert f"content-length: {len(body)}\r\n" in head + "\r\n"
    assert "content-type: application/json" in head
    response = json.loads(body)
    assert response["object"] == "chat.completion"
    assert response["choices"][0]["message"]["role"] == "assistant"
    assert f"x-selfreflect-id: {response['id'].lower()}" in head


def test_a_stream_is_a_series_of_events_with_an_end(served: EndpointClient) -> None:
    head, body = curl(served, stream=True)
    assert "content-type: text/event-stream" in head
    assert "transfer-encoding: chunked" in head
    assert "content-length" not in head  # both at once would let proxies disagree on where it ends
    *events, done, rest = body.decode().split("\n\n")
    assert (done, rest) == ("data: [DONE]", "")
    chunks = [json.loads(event.removeprefix("data: ")) for event in events if not event.startswith(":")]
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks]
    finishes = [chunk["choices"][0]["finish_reason"] for chunk in chunks]
    assert deltas[0]["role"] == "assistant"
    assert all("role" not in delta for delta in deltas[1:])
    assert "".join(delta.get("content", "") for delta in deltas) == "Ankara it is,\nthe capital since 1923."
    assert finishes == [None] * (len(chunks) - 1) + ["stop"]
    assert {chunk["object"] for chunk in chunks} == {"chat.completion.chunk"}
    assert len({(chunk["id"], chunk["created"], chunk["model"]) for chunk in chunks}) == 1
    assert [chunk for chunk in chunks if "selfreflect" in chunk] == [chunks[-1]]
