"""What clients and upstreams that fail cost the endpoint, in each form of requests.

    python benchmarks/serve_faults.py

Starts ``selfreflect serve`` as a process in front of the server of the tests that breaks on purpose. Twenty
clients leave while the upstream hangs, or wait for its time limit of two seconds; then all calls are refused
as too many; then a fifth of them break off, for whole texts and streams. For each fault: how the questions
ended, the calls that they took, the time of the slowest, and how long it took after that until no question
and no call was under way.
"""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx2

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))
from fault_server import HALF, FaultServer, answers, faulty, reset, status, until_hung_up

CLIENTS = 20
FORMS: dict[str, Callable[[str], dict[str, Any]]] = {
    "chat/completions": lambda text: {"messages": [{"role": "user", "content": text}]},
    "responses": lambda text: {"input": text},
    "messages": lambda text: {"max_tokens": 64, "messages": [{"role": "user", "content": text}]},
}


class Endpoint:
    """The endpoint's process, and what it says of itself."""

    def __init__(self, upstream: FaultServer) -> None:
        command = f"serve --base-url {upstream.url} --model openai:m --port 0 --num-answers 4"
        command += " --classes same --timeout 2"
        self.process = subprocess.Popen(
            [sys.executable, "-m", "selfreflect", *command.split()], stderr=subprocess.PIPE, text=True
        )
        assert self.process.stderr is not None
        while not (found := re.search(r"at http://127\.0\.0\.1:(\d+)/v1", self.process.stderr.readline())):
            assert self.process.poll() is None
        self.port = int(found[1])
        self.upstream = upstream
        self.http = httpx2.Client(base_url=f"http://127.0.0.1:{self.port}", timeout=120, trust_env=False)

    def running(self) -> int:
        page = self.http.get("/metrics").text
        return int(float(re.findall(r"^selfreflect_running (\S+)", page, re.MULTILINE)[0]))

    def idle_after(self) -> float:
        """Wait until no question and no call is under way; seconds."""
        began = time.perf_counter()
        while self.running() or self.upstream.under_way:
            assert time.perf_counter() - began < 60, "something hangs"
            time.sleep(0.005)
        return time.perf_counter() - began

    def ask(self, form: str, number: int, stream: bool) -> tuple[str, float]:
        """Ask one question: how it ended, and its seconds."""
        body = {
            "model": "selfreflect/m",
            "stream": stream,
            **FORMS[form](f"What is the capital of {number}?"),
        }
        began = time.perf_counter()
        response = self.http.post(f"/v1/{form}", json=body)
        ending = str(response.status_code)
        if stream and response.status_code == 200:
            ending = "error event" if '"error":{' in response.text.replace(" ", "") else "whole stream"
        return ending, time.perf_counter() - began

    def leave(self, form: str) -> None:
        """Send questions from many sockets, and close them all while the upstream hangs."""
        data = json.dumps({"model": "selfreflect/m", **FORMS[form]("What is the capital of Oz?")}).encode()
        head = f"POST /v1/{form} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        sockets = [socket.create_connection(("127.0.0.1", self.port)) for _ in range(CLIENTS)]
        for connection in sockets:
            connection.sendall(f"{head}Content-Length: {len(data)}\r\n\r\n".encode() + data)
        while self.running() < CLIENTS or not self.upstream.under_way:
            time.sleep(0.01)
        for connection in sockets:
            connection.close()


def show(endpoint: Endpoint, form: str, fault: str, stream: bool) -> None:
    """Print the row of one fault."""
    calls = len(endpoint.upstream.calls)
    with ThreadPoolExecutor(CLIENTS) as pool:
        ends = list(pool.map(lambda number: endpoint.ask(form, number, stream), range(CLIENTS)))
    idle = endpoint.idle_after()
    counted = ", ".join(f"{count} x {end}" for end, count in Counter(end for end, _ in ends).most_common())
    slowest = max(seconds for _, seconds in ends)
    calls = len(endpoint.upstream.calls) - calls
    print(f"| {form} | {fault} | {counted} | {calls / CLIENTS:.1f} | {slowest:.1f} | {1000 * idle:.0f} |")


def main() -> None:
    """Print a table in Markdown."""
    print("| form | fault | ends | calls each | slowest, s | idle after, ms |")
    print("| --- | --- | --- | --- | --- | --- |")
    with FaultServer() as upstream:
        endpoint = Endpoint(upstream)
        try:
            for form in FORMS:
                upstream.script = lambda call: until_hung_up
                calls = len(upstream.calls)
                endpoint.leave(form)
                idle = endpoint.idle_after()
                calls = len(upstream.calls) - calls
                print(
                    f"| {form} | hangs, clients leave | - | {calls / CLIENTS:.1f} | - | {1000 * idle:.0f} |"
                )
                show(endpoint, form, "hangs, clients stay", stream=False)
                upstream.script = lambda call: status(429, "slow down", Retry_After="0")
                show(endpoint, form, "429 to all", stream=False)
                for stream in (False, True):
                    upstream.script = faulty(0.2, (reset, HALF))
                    show(endpoint, form, f"a fifth breaks off{', streams' if stream else ''}", stream)
                upstream.script = lambda call: answers()
                show(endpoint, form, "none", stream=False)
        finally:
            endpoint.process.terminate()
            endpoint.process.wait(30)


if __name__ == "__main__":
    main()
