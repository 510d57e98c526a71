"""What the endpoint adds to its upstream under load, in each form of requests.

    python benchmarks/serve_load.py --seconds 60

Starts a scripted upstream and ``selfreflect serve`` in front of it, as processes of their own. Clients ask
one question after the other, in turns: the endpoint, then the upstream directly with the same two calls (one
for all answers, one for the summary). The difference is the endpoint's own time.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import numpy as np

ANSWERS = 10
FORMS = ("chat/completions", "responses", "messages")
TURN_SECONDS = 5.0
_ADDRESS = re.compile(rb"http://127\.0\.0\.1:\d+")


def upstream(latency: float) -> Any:
    """Make an ASGI application that answers any chat completion after some time, as a busy model does."""

    async def application(scope: Any, receive: Any, send: Any) -> None:
        body, more = b"", scope["type"] == "http"
        while more:
            message = await receive()
            body += message.get("body", b"")
            more = message.get("more_body", False)
        await asyncio.sleep(latency)
        texts = [
            "Paris, I think." if index % 3 else f"Lyon, or {index}."
            for index in range(json.loads(body).get("n") or 1)
        ]
        choices = [
            {"index": index, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
            for index, text in enumerate(texts)
        ]
        usage = {"prompt_tokens": 20, "completion_tokens": 5 * len(texts)}
        data = json.dumps({"object": "chat.completion", "choices": choices, "usage": usage}).encode()
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(data)).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": data})

    return application


@contextmanager
def process(*command: str) -> Iterator[tuple[int, str]]:
    """Start a server; give its process id and the address that it prints."""
    environment = {**os.environ, "SELFREFLECT_API_KEY": "none"}
    with tempfile.NamedTemporaryFile() as log:
        started = subprocess.Popen([sys.executable, *command], stdout=log, stderr=log, env=environment)
        try:
            while (match := _ADDRESS.search(printed := Path(log.name).read_bytes())) is None:
                if started.poll() is not None:
                    sys.exit(f"{' '.join(command)} ended:\n{printed.decode(errors='replace')}")
                time.sleep(0.1)
            yield started.pid, match[0].decode()
        finally:
            started.send_signal(signal.SIGTERM)
            started.wait(30)


async def ask_endpoint(client: httpx2.AsyncClient, url: str, form: str, number: int) -> None:
    question = f"What is the capital of country number {number}?"
    turns = {"messages": [{"role": "user", "content": question}]}
    body = {"model": "selfreflect/scripted", **({"input": question} if form == "responses" else turns)}
    response = await client.post(f"{url}/v1/{form}", json=body)
    response.raise_for_status()
    assert response.json()["selfreflect"]["num_answers"] == ANSWERS


async def ask_upstream(client: httpx2.AsyncClient, url: str, form: str, number: int) -> None:
    """Send the calls that the endpoint makes for one question."""
    for n in (ANSWERS, 1):
        turns = [{"role": "user", "content": f"What is the capital of country number {number}?"}]
        response = await client.post(f"{url}/v1/chat/completions", json={"messages": turns, "n": n})
        response.raise_for_status()


def busy_seconds(process_id: int) -> float:
    """Read the processor time that a process took so far."""
    fields = Path(f"/proc/{process_id}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory_of(process_id: int) -> float:
    """Read the resident memory of a process, in MB."""
    status = Path(f"/proc/{process_id}/status").read_text(encoding="ascii")
    return int(status.partition("VmRSS:")[2].split()[0]) / 1024


async def load(form: str, served: str, upstream_url: str, clients: int, seconds: float) -> int:
    """Print what the endpoint adds in one form, and count its questions."""
    took: dict[str, list[float]] = {"endpoint": [], "upstream": []}
    errors: Counter[str] = Counter()
    began = time.monotonic()

    async def client_loop(client: httpx2.AsyncClient, number: int) -> None:
        # clients of the world do not ask in the same millisecond
        await asyncio.sleep(random.random() * TURN_SECONDS)
        while (elapsed := time.monotonic() - began) < seconds:
            name = "endpoint" if int(elapsed / TURN_SECONDS) % 2 == 0 else "upstream"
            ask, url = (ask_endpoint, served) if name == "endpoint" else (ask_upstream, upstream_url)
            start = time.perf_counter()
            try:
                await ask(client, url, form, number)
            except (httpx2.HTTPError, AssertionError) as error:
                errors[type(error).__name__] += 1
            # the first turn opens connections and imports libraries
            if elapsed > 2 * TURN_SECONDS:
                took[name].append(time.perf_counter() - start)

    # one client: each would read the certificates of the system for a tenth of a second
    limits = httpx2.Limits(max_connections=2 * clients, max_keepalive_connections=2 * clients)
    async with httpx2.AsyncClient(timeout=60, trust_env=False, verify=False, limits=limits) as client:
        await asyncio.gather(*(client_loop(client, number) for number in range(clients)))
    milliseconds = {name: np.percentile(values, [50, 95]) * 1000 for name, values in took.items()}
    added = milliseconds["endpoint"] - milliseconds["upstream"]
    print(
        f"{form}: {len(took['endpoint'])} questions, {clients} clients; adds {added[0]:.1f} ms (p50), "
        f"{added[1]:.1f} ms (p95) to {milliseconds['upstream'][0]:.0f} ms; errors {dict(errors)}"
    )
    return len(took["endpoint"])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--clients", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=60.0, help="for each form")
    parser.add_argument("--latency", type=float, default=1.0, help="seconds of a call to the upstream")
    parser.add_argument("--upstream-port", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.upstream_port:
        import uvicorn

        print(f"http://127.0.0.1:{options.upstream_port}", flush=True)
        uvicorn.run(upstream(options.latency), port=options.upstream_port, log_level="error", lifespan="off")
        return
    port = 20_000 + os.getpid() % 10_000
    command = [__file__, "--upstream-port", str(port), "--latency", str(options.latency)]
    serve = ["-m", "selfreflect", "serve", "--base-url", f"http://127.0.0.1:{port}/v1", "--port", "0"]
    settings = ["--num-answers", str(ANSWERS), "--classes", "same", "--max-connections", "200"]
    with process(*command) as (_, upstream_url), process(*serve, *settings) as (process_id, printed):
        served = printed.replace("localhost", "127.0.0.1")
        before = memory_of(process_id)
        for form in FORMS:
            busy = busy_seconds(process_id)
            count = asyncio.run(load(form, served, upstream_url, options.clients, options.seconds))
            busy = busy_seconds(process_id) - busy
            print(f"  {1000 * busy / count:.1f} ms of processor time per question")
        print(f"memory {before:.0f} MB before, {memory_of(process_id):.0f} MB after")


if __name__ == "__main__":
    main()
