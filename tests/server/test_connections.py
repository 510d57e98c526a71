"""Clients that connect and send nothing, or too much, or too slowly, do not lock others out. Over real
sockets."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress

import httpx2
import pytest
from app_server import Client, serving
from http_server import guarded, running
from starlette.types import Receive, Scope, Send

from selfreflect.server import connections as server
from selfreflect.server import guard

TOKEN = "a-token-that-nobody-guesses"
HALF_BODY = (
    f"POST /api/ask HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n"
    "Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{"
).encode()
HALF = b"GET /api/runs HTTP/1.1\r\nHost: 127.0.0.1\r\nX-"


@pytest.fixture
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    with serving(tmp_path_factory.mktemp("root"), work=lambda job: None, token=TOKEN) as served:
        yield served


def connect(client: Client) -> socket.socket:
    return socket.create_connection(("127.0.0.1", int(client.url.rpartition(":")[2])), timeout=60)


def ended(raw: socket.socket) -> bool:
    """Whether the server ends a connection, by a close or a reset, before the socket's time is over."""
    try:
        while raw.recv(4096):
            pass
    except ConnectionError:
        pass
    except TimeoutError:
        return False
    return True


LARGE = 400_000


async def app(scope: Scope, receive: Receive, send: Send) -> None:
    """A page, a large file and a stream without an end."""
    await send({"type": "http.response.start", "status": 200, "headers": []})
    while scope["path"] == "/stream":
        await send({"type": "http.response.body", "body": b"x" * 50_000, "more_body": True})
        await asyncio.sleep(0)
    body = b"x" * (LARGE if scope["path"] == "/large" else 4)
    await send({"type": "http.response.body", "body": body})


def get(url: str, path: str) -> socket.socket:
    """A connection that has asked for something, with little room for what comes."""
    raw = socket.socket()
    raw.settimeout(20)
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    raw.connect(("127.0.0.1", int(url.rpartition(":")[2])))
    raw.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    return raw


@pytest.mark.parametrize("sent", [HALF, b"", HALF_BODY], ids=["half a head", "nothing", "half a body"])
def test_many_idle_connections_leave_room_for_a_request(
    client: Client, sent: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "HEAD_SECONDS", 1000)  # so that nothing else makes room
    with ExitStack() as stack:
        idle = []
        for _ in range(server.MAX_CONNECTIONS + 10):
            raw = stack.enter_context(connect(client))
            raw.sendall(sent)
            idle.append(raw)
        assert client.get("/api/runs").status_code == 200
        assert all(ended(raw) for raw in idle[:10])  # the oldest made room
        idle[-1].settimeout(0.2)
        assert not ended(idle[-1])


@pytest.mark.parametrize("path", ["/large", "/stream"])
def test_clients_that_read_nothing_leave_room_for_a_page_and_are_dropped(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "MAX_CONNECTIONS", 20)
    monkeypatch.setattr(server, "READ_SECONDS", 1000)
    served = server.HttpServer(guarded(app))
    with running(served) as url, httpx2.Client(base_url=url, trust_env=False) as page, ExitStack() as stack:
        for _ in range(30):
            raw = stack.enter_context(get(url, path))
            assert raw.recv(12) == b"HTTP/1.1 200"
        for _ in range(3):
            assert page.get("/").text == "xxxx"
        monkeypatch.setattr(server, "READ_SECONDS", 0.2)
        deadline = time.monotonic() + 20
        while len(served.server_state.tasks) + len(served.server_state.connections) > 1:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert page.get("/").text == "xxxx"


def test_a_client_that_reads_slowly_gets_all_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "HEAD_SECONDS", 0.1)
    monkeypatch.setattr(server, "READ_SECONDS", 1.0)
    began = time.monotonic()
    with running(server.HttpServer(guarded(app))) as url, get(url, "/large") as raw:
        size = 0
        while size < LARGE:
            part = raw.recv(4096)
            assert part, size
            size += len(part)
            time.sleep(0.012)
    assert time.monotonic() - began > 1.1


def test_what_follows_a_request_does_not_hide_that_the_client_has_gone() -> None:
    gone = threading.Event()

    async def waiting(scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            gone.set()

    with running(server.HttpServer(guarded(waiting))) as url:
        with get(url, "/") as raw:
            raw.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n" * 10_000)
        assert gone.wait(20)


def test_a_head_that_does_not_end_in_time_closes_its_connection(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "HEAD_SECONDS", 0.5)
    started = time.monotonic()
    with connect(client) as slow, connect(client) as second:
        whole = HALF + b"A: b\r\n\r\n"
        second.sendall(whole)
        assert b" 401 " in second.recv(4096)
        with suppress(ConnectionError):
            while time.monotonic() - started < 60:  # a byte now and then does not prolong it
                slow.sendall(b"G")
                time.sleep(0.05)
        assert 0.4 < time.monotonic() - started < 60
        assert ended(second)


def test_a_second_head_on_a_connection_has_no_longer_than_the_first(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "HEAD_SECONDS", 0.5)
    with connect(client) as raw:
        raw.sendall(b"GET /static/icon.svg HTTP/1.1\r\nHost: localhost\r\n\r\n" + HALF)
        assert b" 200 " in raw.recv(4096)
        assert ended(raw)


def test_a_body_that_does_not_arrive_in_time_is_refused(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guard, "BODY_SECONDS", 0.3)
    with connect(client) as raw:
        raw.sendall(HALF_BODY)
        assert b" 408 " in raw.recv(4096)
        assert ended(raw)


@pytest.mark.parametrize("size", [20_000, 200_000])
def test_large_heads_are_refused(client: Client, size: int) -> None:
    with connect(client) as raw:
        raw.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * size + b"\r\n\r\n")
        answer = raw.recv(100)
    assert b" 431 " in answer or b" 400 " in answer
    with connect(client) as raw:
        raw.sendall(b"GET /?" + b"a" * size + b" HTTP/1.1\r\nHost: localhost\r\n\r\n")
        answer = raw.recv(100)
    assert b" 431 " in answer or b" 400 " in answer
