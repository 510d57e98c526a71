"""A server ends in time and without a word, whatever its clients do. Over real sockets."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx2
import pytest
from endpoint import endpoint_server
from http_server import guarded, running
from starlette.types import Message, Receive, Scope, Send

from selfreflect.models.base import Request
from selfreflect.server.connections import HttpServer
from selfreflect.server.guard import listen

HEAD = b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 5\r\n\r\n"


@pytest.fixture(autouse=True)
def _silence(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Nothing is printed to people who did nothing but stop a server."""
    yield
    said = [record for record in caplog.get_records("call") if not record.name.startswith("selfreflect")]
    assert not [record for record in said if record.levelname not in ("DEBUG", "INFO")], caplog.text


async def respond(send: Send, body: bytes, *, more: bool) -> None:
    head: Message = {"type": "http.response.start", "status": 200, "headers": []}
    await send(head)
    await send({"type": "http.response.body", "body": body, "more_body": more})


async def endless(scope: Scope, receive: Receive, send: Send) -> None:
    await respond(send, b"begun", more=True)
    while True:
        await send({"type": "http.response.body", "body": b"x" * 100_000, "more_body": True})
        await asyncio.sleep(0)


async def whole(scope: Scope, receive: Receive, send: Send) -> None:
    await respond(send, b"begun" + b"x" * 50_000_000, more=False)


async def thinking(scope: Scope, receive: Receive, send: Send) -> None:
    await respond(send, b"begun", more=True)
    await asyncio.Event().wait()


async def reading(scope: Scope, receive: Receive, send: Send) -> None:
    await respond(send, b"begun", more=True)
    while (await receive())["type"] != "http.disconnect":
        pass


@pytest.mark.parametrize("again", [False, True], ids=["once", "twice"])
@pytest.mark.parametrize("app", [endless, whole, thinking, reading])
def test_a_client_that_reads_nothing_does_not_hold_up_the_end(app: Any, again: bool) -> None:
    """Told once, the server waits for a time; told twice, not at all."""
    server = HttpServer(guarded(app), graceful=1000 if again else 0.2)
    with running(server) as url, socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect(("127.0.0.1", int(url.rpartition(":")[2])))
        client.sendall(HEAD)
        received = b""
        while b"begun" not in received:
            received += client.recv(100)
        server.should_exit, server.force_exit = True, again


def test_the_endpoint_ends_streams_when_their_time_is_over() -> None:
    gate = threading.Event()

    def script(_: Request) -> str:
        gate.wait(200)
        return "Ankara"

    with ThreadPoolExecutor() as pool:
        with endpoint_server(script, graceful=0.2) as client:
            page = pool.submit(client.chat, stream=True)
            while "selfreflect_running 1.0" not in client.http.get("/metrics").text:
                time.sleep(0.01)
            client.server.should_exit = True
            assert isinstance(page.exception(60), httpx2.RemoteProtocolError)
        gate.set()


def test_small_packets_do_not_wait_for_acknowledgements() -> None:
    """Else each response on a connection that is kept open takes 40 ms more."""
    with listen("127.0.0.1", 0) as bound, socket.create_connection(bound.getsockname()):
        accepted, _ = bound.accept()
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
