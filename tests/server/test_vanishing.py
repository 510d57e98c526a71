"""Clients that vanish: their slots are free, the calls to the upstream are stopped, and they are counted.
Over real sockets."""

from __future__ import annotations

import json
import socket
import struct
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import pytest
from endpoint import EndpointClient, endpoint_server
from fault_server import Action, FaultServer, events, no_event, until_hung_up
from served import QUICK

from selfreflect.records import Question, Score
from selfreflect.server import connections as server
from selfreflect.server import upstream as remote

CLIENTS = 6


def request(model: str, stream: bool) -> bytes:
    body = json.dumps({"model": model, "stream": stream, "messages": [{"role": "user", "content": "?"}]})
    head = "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n{body}".encode()


def close(client: socket.socket) -> None:
    client.close()


def reset(client: socket.socket) -> None:
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.close()


def half_close(client: socket.socket) -> None:
    client.shutdown(socket.SHUT_WR)


def read_nothing(client: socket.socket) -> None:
    """It stays, and so does its connection."""


def ask_again_and_close(client: socket.socket) -> None:
    client.sendall(request("m", True) * 30)
    client.close()


def counts(client: EndpointClient) -> list[str]:
    return [line for line in client.http.get("/metrics").text.splitlines() if not line.startswith("#")]


def wait_until(condition: Callable[[], Any], seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "RETRIES", QUICK)
    monkeypatch.setattr(server, "READ_SECONDS", 0.5)


WAYS = (close, reset, half_close, ask_again_and_close)
ROUTES = [
    *((events, "m", True, way) for way in (*WAYS, read_nothing)),
    *((no_event, "m", True, way) for way in WAYS),
    *((until_hung_up, "m", False, way) for way in WAYS),
    *((until_hung_up, "selfreflect/m", stream, way) for stream in (False, True) for way in WAYS),
]


@pytest.mark.parametrize(("action", "model", "stream", "vanish"), ROUTES)
def test_a_client_that_vanishes_frees_its_slot_and_stops_the_upstream(
    action: Action, model: str, stream: bool, vanish: Callable[[socket.socket], None]
) -> None:
    limits = {"running": CLIENTS, "waiting": 0, "per_client": CLIENTS}
    with (
        FaultServer(lambda call: action) as upstream,
        endpoint_server(upstream=upstream.url, admission=limits) as served,
        ExitStack() as stack,
    ):
        clients = []
        for _ in range(CLIENTS):
            client = stack.enter_context(socket.socket())
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.connect(served.address)
            client.sendall(request(model, stream))
            clients.append(client)
        wait_until(lambda: upstream.under_way == CLIENTS)
        if action is not until_hung_up:
            for client in clients:
                assert client.recv(12) == b"HTTP/1.1 200"
        assert served.chat(model=model).status_code == 429
        for client in clients:
            vanish(client)
        wait_until(lambda: upstream.under_way == 0)
        wait_until(lambda: "selfreflect_running 0.0" in counts(served))
        assert f'selfreflect_responses_total{{outcome="cancelled"}} {CLIENTS}.0' in counts(served)


class SlowJudge:
    """Waits, and says how often it began."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.begun = 0

    def measure(self, question: Question, *_: Any, **__: Any) -> list[Score]:
        self.begun += 1
        self.go.wait(20)
        names = {"question_id": question.id, "summary": "sample_and_summarize", "judge": "j"}
        return [Score(**names, value=0.25, stderr=None, token_tasks=1)]


def test_a_judge_goes_on_alone_until_it_has_finished_for_a_client_that_vanished() -> None:
    judge = SlowJudge()
    with (
        endpoint_server(judge={"information": judge}, measures=("information",)) as served,
        ThreadPoolExecutor() as pool,
    ):
        with socket.create_connection(served.address) as client:
            client.sendall(request("selfreflect/m", False))
            wait_until(lambda: judge.begun == 1)
        second = pool.submit(served.chat)
        time.sleep(0.3)
        assert judge.begun == 1
        judge.go.set()
        assert second.result(20).status_code == 200
        wait_until(lambda: 'selfreflect_responses_total{outcome="cancelled"} 1.0' in counts(served))
    assert judge.begun == 2


@pytest.mark.parametrize("vanish", [close, reset, read_nothing])
def test_a_server_that_is_told_to_stop_ends_streams_that_pass_through(
    vanish: Callable[[socket.socket], None], caplog: pytest.LogCaptureFixture
) -> None:
    with (
        FaultServer(lambda call: events) as upstream,
        endpoint_server(upstream=upstream.url, graceful=0.2) as served,
        socket.create_connection(served.address) as client,
    ):
        client.sendall(request("m", True))
        assert client.recv(12) == b"HTTP/1.1 200"
        vanish(client)
        served.server.should_exit = True
        wait_until(lambda: upstream.under_way == 0)
    assert not [
        record
        for record in caplog.records
        if record.name in ("asyncio", "uvicorn.error") and record.levelname not in ("DEBUG", "INFO")
    ]
