"""Clients that connect and send nothing, or too much, or too slowly, do not lock others out. Over real
sockets."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress

import httpx2
import pytest
from app_server import Client, serving

from selfreflect.web import guard, server

TOKEN = "a-token-that-nobody-guesses"
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


@pytest.mark.parametrize("sent", [HALF, b""], ids=["half a head", "nothing"])
def test_many_silent_connections_leave_room_for_a_request(
    client: Client, sent: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "HEAD_SECONDS", 1000)  # so that nothing else makes room
    with ExitStack() as stack:
        silent = []
        for _ in range(server.MAX_CONNECTIONS + 10):
            raw = stack.enter_context(connect(client))
            raw.sendall(sent)
            silent.append(raw)
        assert client.get("/api/runs").status_code == 200
        assert all(ended(raw) for raw in silent[:10])  # the oldest made room
        silent[-1].settimeout(0.2)
        assert not ended(silent[-1])


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


def test_a_job_that_is_followed_for_long_keeps_its_connection(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    go = threading.Event()
    with serving(tmp_path_factory.mktemp("root"), work=lambda job: go.wait(200)) as client:
        path = f"/api/jobs/{client.ask()}/events"
        monkeypatch.setattr(server, "HEAD_SECONDS", 0.5)
        monkeypatch.setattr(guard, "BODY_SECONDS", 0.5)
        with ExitStack() as stack:
            response = None
            while response is None:
                with suppress(httpx2.TransportError):  # on a busy machine the head may come too late
                    response = stack.enter_context(client.http.stream("GET", path))
            time.sleep(1)
            go.set()
            assert b"event: end" in response.read()


def test_a_body_that_does_not_arrive_in_time_is_refused(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guard, "BODY_SECONDS", 0.3)
    head = f"POST /api/ask HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n"
    with connect(client) as raw:
        raw.sendall(f"{head}Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{{".encode())
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
