"""A server on a real socket that speaks chat completions, and breaks in every way in which servers do.

A script decides what each call gets: a function of the call (:class:`Call`) that returns one of the actions
below.
"""

from __future__ import annotations

import json
import random
import select
import socket
import ssl
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

CERTIFICATE = Path(__file__).parents[1] / "data" / "self_signed.pem"
"""A certificate for 127.0.0.1 that nobody vouches for, with its key, which protects nothing."""


@dataclass
class Call:
    number: int
    """Counts from 0."""
    path: str
    headers: dict[str, str]
    """Names in lower case."""
    body: dict[str, Any]

    @property
    def seed(self) -> int:
        return int(self.body.get("seed", 0))

    @property
    def n(self) -> int:
        return int(self.body.get("n", 1))


Action = Callable[["Handler", Call], None]
Script = Callable[[Call], Action]


def choice(text: str | None, finish: str | None = "stop", **message: Any) -> dict[str, Any]:
    return {"index": 0, "message": {"role": "assistant", "content": text, **message}, "finish_reason": finish}


def chat(*choices: dict[str, Any], **fields: Any) -> Action:
    """A response with these choices."""
    return lambda handler, call: handler.give(
        200, {"object": "chat.completion", "choices": list(choices), **fields}
    )


def answers(most: int | None = None) -> Action:
    """As many completions as asked for, or ``most``; the text of each tells its seed. Usage counts 3 tokens
    each."""

    def give(handler: Handler, call: Call) -> None:
        texts = [f"answer {call.seed + place}" for place in range(min(call.n, most or call.n))]
        usage = {"prompt_tokens": 7, "completion_tokens": 3 * len(texts)}
        chat(*map(choice, texts), usage=usage)(handler, call)

    return give


def status(code: int, said: Any = None, **headers: str) -> Action:
    body = {"error": {"message": said}} if isinstance(said, str) else said
    return lambda handler, call: handler.give(
        code, body, **{name.replace("_", "-"): value for name, value in headers.items()}
    )


def raw(data: bytes, kind: str = "application/json") -> Action:
    return lambda handler, call: handler.send(200, data, {"Content-Type": kind})


def text(code: int, said: str, kind: str = "text/plain") -> Action:
    """A response that is no JSON."""
    return lambda handler, call: handler.send(code, said.encode(), {"Content-Type": kind})


HALF = raw(b'{"choices": [{"message": {"content": "hal')
HTML = raw(b"<html>Welcome</html>", "text/html")
ERROR_OBJECT = raw(json.dumps({"error": {"code": 502, "message": "upstream is gone"}}).encode())
EMPTY = chat()


def reset(handler: Handler, call: Call) -> None:
    """Break off in the middle of the body with a TCP reset."""
    handler.start(200, {"Content-Type": "application/json", "Content-Length": "1000"})
    handler.wfile.write(b'{"choices": [')
    handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    handler.drop()


def huge(handler: Handler, call: Call) -> None:
    """A body of 100 MB; ``server.sent`` counts what got away before the client hung up."""
    handler.start(
        handler.server.huge_status, {"Content-Type": "application/json", "Content-Length": str(100 * 2**20)}
    )
    for _ in range(100):
        handler.wfile.write(b" " * 2**20)
        handler.server.sent += 2**20


def endless(handler: Handler, call: Call) -> None:
    """A response that always has one more byte."""
    handler.start(200, {"Content-Type": "application/json", "Transfer-Encoding": "chunked"})
    while not handler.server.stopped.wait(0.01):
        handler.wfile.write(b"1\r\n \r\n")


def events(handler: Handler, call: Call) -> None:
    """A stream of events without an end, as fast as they are taken."""
    handler.start(200, {"Content-Type": "text/event-stream", "Transfer-Encoding": "chunked"})
    event = b'data: {"choices": [{"delta": {"content": "%s"}}]}\n\n' % (b"word " * 20_000)
    while not handler.server.stopped.is_set():
        handler.wfile.write(b"%x\r\n%s\r\n" % (len(event), event))


def no_event(handler: Handler, call: Call) -> None:
    """The head of a stream of events, and nothing more."""
    handler.start(200, {"Content-Type": "text/event-stream", "Transfer-Encoding": "chunked"})
    until_hung_up(handler, call)


def until_hung_up(handler: Handler, call: Call) -> None:
    """Nothing until the client hangs up."""
    while not handler.server.stopped.is_set():
        readable, _, _ = select.select([handler.connection], [], [], 0.02)
        if readable and not handler.connection.recv(1, socket.MSG_PEEK):
            break
    handler.drop()


def silent(handler: Handler, call: Call) -> None:
    """No response at all while the server lives."""
    handler.server.stopped.wait(250)
    handler.drop()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: FaultServer

    def do_POST(self) -> None:
        if self.server.stopped.is_set():  # a connection kept open ends with its server
            self.drop()
            return
        # A call that is broken off in its body is none: json.loads raises.
        body = (
            json.loads(self.rfile.read(int(self.headers["Content-Length"]))) if self.command == "POST" else {}
        )
        headers = {name.lower(): value for name, value in self.headers.items()}
        with self.server.lock:
            call = Call(len(self.server.calls), self.path, headers, body)
            self.server.calls.append(call)
            self.server.under_way += 1
            action = self.server.script(call)
        try:
            time.sleep(self.server.delay)
            action(self, call)
        except OSError:
            self.close_connection = True
        finally:
            with self.server.lock:
                self.server.under_way -= 1

    do_GET = do_POST  # noqa: N815  # the name is the base class's

    def give(self, code: int, body: Any, **headers: str) -> None:
        self.send(code, json.dumps(body).encode(), {"Content-Type": "application/json", **headers})

    def send(self, code: int, data: bytes, headers: dict[str, str]) -> None:
        self.start(code, {**headers, "Content-Length": str(len(data))})
        self.wfile.write(data)

    def start(self, code: int, headers: dict[str, str]) -> None:
        self.send_response(code)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()

    def drop(self) -> None:
        self.close_connection = True
        self.connection.close()

    def log_message(self, *_: Any) -> None:
        pass


class FaultServer(ThreadingHTTPServer):
    """A context manager. ``calls`` holds what was asked; the script may be changed while it runs.

    The first ``hangs_up`` connections are closed before a byte is read.
    """

    daemon_threads = True
    request_queue_size = 128

    def __init__(
        self, script: Script | None = None, *, tls: bool = False, port: int = 0, delay: float = 0.0
    ) -> None:
        super().__init__(("127.0.0.1", port), Handler)
        self.script: Script = script if script is not None else lambda call: answers()
        self.calls: list[Call] = []
        self.lock = threading.Lock()
        self.stopped = threading.Event()
        self.delay = delay
        self.under_way = self.sent = 0
        self.huge_status = 200
        self.hangs_up = 0
        self.port = self.server_address[1]
        self.url = f"{'https' if tls else 'http'}://127.0.0.1:{self.port}/v1"
        if tls:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(CERTIFICATE)
            self.socket = context.wrap_socket(self.socket, server_side=True, do_handshake_on_connect=False)

    def verify_request(self, *_: Any) -> bool:
        self.hangs_up -= 1
        return self.hangs_up < 0

    def handle_error(self, *_: Any) -> None:
        """A client that goes away is no news here."""

    def __enter__(self) -> FaultServer:
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stopped.set()
        self.shutdown()
        self.server_close()


def in_turn(*actions: Action) -> Script:
    """The first call gets the first action, and so on; the last one stays."""
    return lambda call: actions[min(call.number, len(actions) - 1)]


PASSING: tuple[Action, ...] = (
    status(429, "slow down"),
    status(429, "slow down", Retry_After="0"),
    status(500, "boom"),
    status(503, {"detail": "loading"}),
    raw(b""),
    raw(b"[1]"),
    reset,
    HALF,
    ERROR_OBJECT,
    EMPTY,
    answers(1),
)
"""Faults at once of servers that do better the next time."""


def faulty(share: float, faults: Sequence[Action]) -> Script:
    """That share of calls meets a random one of these faults, which depends on what is asked and how often,
    not on the order of calls."""
    asked: Counter[str] = Counter()

    def script(call: Call) -> Action:
        text = call.body["messages"][-1]["content"]
        asked[text] += 1
        chance = random.Random(f"{text} {asked[text]}")
        return chance.choice(faults) if chance.random() < share else answers()

    return script


def unused_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
