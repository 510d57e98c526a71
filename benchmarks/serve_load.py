"""What the endpoint adds to its upstream, under load, and whether it leaks.

    python benchmarks/serve_load.py --minutes 10

Starts a scripted upstream and ``selfreflect serve`` in front of it, as processes of their own. Clients send
one question after the other, in turns: to the endpoint, then directly to the upstream with the same calls
(one for all answers, one for the summary). The difference is the endpoint's own time. Linux only: reads
``/proc``.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
import numpy as np

ANSWERS = 10
TURN = {"endpoint": 2 / 3, "upstream": 1 / 3}
"""Which part of a turn is for which."""
TURN_SECONDS = 30.0
_ADDRESS = re.compile(rb"http://127\.0\.0\.1:\d+")


@dataclass
class Tally:
    """What came back."""

    seconds: dict[str, list[float]] = field(default_factory=lambda: {kind: [] for kind in TURN})
    errors: Counter[str] = field(default_factory=Counter)
    memory: list[tuple[float, float]] = field(default_factory=list)
    """Minutes since the start, and resident memory of the endpoint in MB."""
    busy: float = 0.0
    """Seconds of processor time that the endpoint took."""


def upstream(latency: float) -> Any:
    """An ASGI application that answers any chat completion after some time, as a busy model does."""

    async def application(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        body = b""
        while True:
            message = await receive()
            body += message.get("body", b"")
            if not message.get("more_body"):
                break
        if scope["path"].endswith("/models"):
            said: Any = {"object": "list", "data": [{"id": "scripted", "object": "model"}]}
        else:
            await asyncio.sleep(latency)
            said = _completion(json.loads(body).get("n") or 1)
        data = json.dumps(said).encode()
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(data)).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": data})

    return application


def _completion(n: int) -> dict[str, Any]:
    texts = ["Paris, I think." if place % 3 else f"Lyon, or {place}." for place in range(n)]
    choices = [
        {"index": place, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
        for place, text in enumerate(texts)
    ]
    usage = {"prompt_tokens": 20, "completion_tokens": 5 * n, "total_tokens": 20 + 5 * n}
    return {"id": "c", "object": "chat.completion", "created": 1, "choices": choices, "usage": usage}


@contextmanager
def process(*command: str) -> Iterator[tuple[int, str]]:
    """A server: its process id, and the address that it prints."""
    environment = {**os.environ, "SELFREFLECT_API_KEY": "none"}
    with tempfile.NamedTemporaryFile() as log:
        started = subprocess.Popen(
            [sys.executable, *command], stdout=log, stderr=subprocess.STDOUT, env=environment
        )
        try:
            while (match := _ADDRESS.search(said := Path(log.name).read_bytes())) is None:
                if started.poll() is not None:
                    sys.exit(f"{' '.join(command)} ended:\n{said.decode(errors='replace')}")
                time.sleep(0.1)
            yield started.pid, match[0].decode()
        finally:
            started.send_signal(signal.SIGTERM)
            started.wait(30)


def _question(number: int) -> list[dict[str, str]]:
    return [{"role": "user", "content": f"What is the capital of country number {number}?"}]


async def ask_endpoint(client: httpx2.AsyncClient, url: str, number: int) -> None:
    body = {"model": "selfreflect/scripted", "messages": _question(number)}
    response = await client.post(f"{url}/v1/chat/completions", json=body)
    response.raise_for_status()
    assert response.json()["selfreflect"]["num_answers"] == ANSWERS


async def ask_upstream(client: httpx2.AsyncClient, url: str, number: int) -> None:
    """The calls that the endpoint makes for one question."""
    for n in (ANSWERS, 1):
        body = {"model": "scripted", "messages": _question(number), "n": n}
        response = await client.post(f"{url}/v1/chat/completions", json=body)
        response.raise_for_status()
        assert len(response.json()["choices"]) == n


def memory_of(process_id: int) -> float:
    """Resident memory in MB."""
    status = Path(f"/proc/{process_id}/status").read_text(encoding="ascii")
    return int(status.partition("VmRSS:")[2].split()[0]) / 1024


def busy_seconds(process_id: int) -> float:
    """Processor time so far, of the user and of the system."""
    fields = Path(f"/proc/{process_id}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@asynccontextmanager
async def watching(tally: Tally, process_id: int) -> AsyncIterator[None]:
    async def watch() -> None:
        began = time.monotonic()
        while True:
            tally.memory.append(((time.monotonic() - began) / 60, memory_of(process_id)))
            await asyncio.sleep(1)

    task = asyncio.create_task(watch())
    before = busy_seconds(process_id)
    yield
    tally.busy = busy_seconds(process_id) - before
    task.cancel()


async def load(urls: dict[str, str], process_id: int, clients: int, minutes: float, latency: float) -> Tally:
    """All clients at once, each with one question after the other. They start one by one within the time of a
    question: in step they would wait for each other."""
    tally = Tally()
    asks = {"endpoint": ask_endpoint, "upstream": ask_upstream}
    limits = httpx2.Limits(max_connections=clients, max_keepalive_connections=clients)
    end = time.monotonic() + 60 * minutes
    turn = min(TURN_SECONDS, 60 * minutes)

    async def work(client: httpx2.AsyncClient, kind: str, until: float, first: int) -> None:
        number = first
        await asyncio.sleep(2 * latency * first / clients)
        while time.monotonic() < until:
            began = time.perf_counter()
            try:
                await asks[kind](client, urls[kind], number)
                tally.seconds[kind].append(time.perf_counter() - began)
            except (httpx2.HTTPError, AssertionError, KeyError) as error:
                tally.errors[f"{kind}: {type(error).__name__} {error}"[:120]] += 1
            number += clients

    http = httpx2.AsyncClient(limits=limits, timeout=60, trust_env=False)
    async with http as client, watching(tally, process_id):
        while time.monotonic() < end:
            for kind, part in TURN.items():
                until = time.monotonic() + turn * part
                await asyncio.gather(*(work(client, kind, until, first) for first in range(clients)))
    return tally


def report(tally: Tally) -> None:
    """Print Markdown."""
    print("| calls | questions | p50 | p99 |")
    print("| --- | --- | --- | --- |")
    marks = {}
    for kind, seconds in tally.seconds.items():
        marks[kind] = np.quantile(seconds, [0.5, 0.99]) * 1000
        print(f"| {kind} | {len(seconds)} | {marks[kind][0]:.1f} ms | {marks[kind][1]:.1f} ms |")
    more, ratio = marks["endpoint"] - marks["upstream"], marks["endpoint"] / marks["upstream"]
    print(f"| difference | | {more[0]:.1f} ms | {more[1]:.1f} ms |")
    print(f"| ratio | | {ratio[0]:.3f} | {ratio[1]:.3f} |")
    print(f"\nErrors: {sum(tally.errors.values())}", *tally.errors.items())
    cost = 1000 * tally.busy / len(tally.seconds["endpoint"])
    print(f"Processor time of the endpoint: {cost:.1f} ms for each question.")
    minutes, memory = np.array(tally.memory).T
    print("\n| minute | resident memory |\n| --- | --- |")
    for minute in range(int(minutes[-1]) + 1):
        print(f"| {minute} | {memory[np.searchsorted(minutes, minute)]:.0f} MB |")
    later = minutes >= minutes[-1] / 2
    slope = float(np.polyfit(minutes[later], memory[later], 1)[0])
    print(
        f"\nResident memory: {memory[0]:.0f} MB at the start, {memory[later][0]:.0f} MB half-way, "
        f"{memory[-1]:.0f} MB at the end, {slope:+.2f} MB a minute in the second half."
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--clients", type=int, default=50)
    parser.add_argument(
        "--latency", type=float, default=2.0, help="seconds that the upstream takes for a call"
    )
    parser.add_argument("--upstream", action="store_true", help="only serve the scripted upstream")
    options = parser.parse_args()
    if options.upstream:
        serve_upstream(options.latency)
        return
    before = os.getloadavg()[0]
    with process(__file__, "--upstream", "--latency", str(options.latency)) as (_, direct):
        command = f"-m selfreflect serve --model openai:scripted --base-url {direct}/v1 --port 0"
        sizes = f"--num-answers {ANSWERS}"
        with process(*command.split(), *sizes.split()) as (process_id, endpoint):
            urls = {"endpoint": endpoint, "upstream": direct}
            tally = asyncio.run(load(urls, process_id, options.clients, options.minutes, options.latency))
    report(tally)
    after = os.getloadavg()[0]
    print(f"Load of the machine: {before:.1f} before, {after:.1f} at the end, {os.cpu_count()} cores.")


def serve_upstream(latency: float) -> None:
    """Serve until a signal."""
    import uvicorn

    from selfreflect.web.access import listen

    bound = listen("127.0.0.1", 0)
    print(f"http://127.0.0.1:{bound.getsockname()[1]}", flush=True)
    config = uvicorn.Config(upstream(latency), log_level="warning", timeout_keep_alive=120)
    uvicorn.Server(config).run(sockets=[bound])


if __name__ == "__main__":
    main()
