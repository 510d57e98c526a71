"""What the endpoint adds to its upstream under load, in each form of requests.

    python benchmarks/serve_load.py --seconds 60
    python benchmarks/serve_load.py --seconds 60 --one-call

Starts a scripted upstream and ``selfreflect serve`` in front of it, as processes of their own. Clients ask
one question after the other, in turns: the endpoint, then the upstream directly with the same calls (one for
all answers and one for the summary; with ``--one-call`` one for the answer with its log-probabilities). The
difference is the endpoint's own time. Processor time and texts are those of the questions after the first two
turns, which open connections and import libraries.
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
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))
from saved_calibrator import write_saved

ANSWERS = 10
FORMS = ("chat/completions", "responses", "messages")
TURN_SECONDS = 5.0
"""At most: a short run has shorter turns."""
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
        if json.loads(body).get("logprobs"):
            tokens = [
                {"token": token, "logprob": -0.1, "top_logprobs": [{"token": token, "logprob": -0.1}]}
                for token in re.findall(r"\s*\S+", texts[0])
            ]
            choices[0]["logprobs"] = {"content": tokens}
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


async def ask_endpoint(client: httpx2.AsyncClient, url: str, form: str, number: int) -> int:
    """Ask a question; give the number of texts that it took."""
    question = f"What is the capital of country number {number}?"
    turns = {"messages": [{"role": "user", "content": question}]}
    body = {"model": "selfreflect/scripted", **({"input": question} if form == "responses" else turns)}
    response = await client.post(f"{url}/v1/{form}", json=body)
    response.raise_for_status()
    belief = response.json()["selfreflect"]
    assert belief["num_answers"] == (1 if belief["strategy"] == "one_call" else ANSWERS)
    return int(belief["cost"]["completions"])


async def ask_upstream(client: httpx2.AsyncClient, url: str, number: int, calls: Sequence[int]) -> int:
    """Send the calls that the endpoint makes for one question."""
    for n in calls:
        turns = [{"role": "user", "content": f"What is the capital of country number {number}?"}]
        response = await client.post(f"{url}/v1/chat/completions", json={"messages": turns, "n": n})
        response.raise_for_status()
    return sum(calls)


def busy_seconds(process_id: int) -> float:
    """Read the processor time that a process took so far."""
    fields = Path(f"/proc/{process_id}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def load(
    form: str,
    served: str,
    upstream_url: str,
    process_id: int,
    calls: Sequence[int],
    clients: int,
    seconds: float,
) -> None:
    """Print what the endpoint adds in one form."""
    took: dict[str, list[float]] = {"endpoint": [], "upstream": []}
    texts: list[int] = []
    errors: Counter[str] = Counter()
    began = time.monotonic()
    busy = 0.0
    turn = min(TURN_SECONDS, seconds / 8)

    async def note_busy() -> None:
        nonlocal busy
        await asyncio.sleep(2 * turn)
        busy = busy_seconds(process_id)

    async def client_loop(client: httpx2.AsyncClient, number: int) -> None:
        # clients of the world do not ask in the same millisecond
        await asyncio.sleep(random.random() * turn)
        while (elapsed := time.monotonic() - began) < seconds:
            name = "endpoint" if int(elapsed / turn) % 2 == 0 else "upstream"
            start = time.perf_counter()
            try:
                if name == "endpoint":
                    count = await ask_endpoint(client, served, form, number)
                else:
                    count = await ask_upstream(client, upstream_url, number, calls)
            except (httpx2.HTTPError, AssertionError) as error:
                errors[type(error).__name__] += 1
                continue
            # the first turns open connections and import libraries
            if elapsed > 2 * turn:
                took[name].append(time.perf_counter() - start)
                if name == "endpoint":
                    texts.append(count)

    # one client: each would read the certificates of the system for a tenth of a second
    limits = httpx2.Limits(max_connections=2 * clients, max_keepalive_connections=2 * clients)
    async with httpx2.AsyncClient(timeout=60, trust_env=False, verify=False, limits=limits) as client:
        await asyncio.gather(note_busy(), *(client_loop(client, number) for number in range(clients)))
    busy = busy_seconds(process_id) - busy
    if not all(took.values()):
        print(f"{form}: no questions after the first two turns: more --seconds; errors {dict(errors)}")
        return
    milliseconds = {name: np.percentile(values, [50, 95]) * 1000 for name, values in took.items()}
    added = milliseconds["endpoint"] - milliseconds["upstream"]
    print(
        f"{form}: {len(took['endpoint'])} questions, {clients} clients; adds {added[0]:.1f} ms (p50), "
        f"{added[1]:.1f} ms (p95) to {milliseconds['upstream'][0]:.0f} ms; {np.mean(texts):.1f} texts and "
        f"{1000 * busy / max(1, len(texts)):.1f} ms of processor time per question; errors {dict(errors)}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--clients", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=60.0, help="for each form")
    parser.add_argument("--latency", type=float, default=1.0, help="seconds of a call to the upstream")
    parser.add_argument("--one-call", action="store_true", help="answer with one response each")
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
    calls = (1,) if options.one_call else (ANSWERS, 1)
    with tempfile.TemporaryDirectory() as folder, process(*command) as (_, upstream_url):
        if options.one_call:
            one_response = {"estimator": "normalised_prob", "classes": "same", "samples": (1,)}
            saved = write_saved(Path(folder), correctness="contains", **one_response)
            settings += ["--one-call", "--calibrator", str(saved)]
        with process(*serve, *settings) as (process_id, printed):
            served = printed.replace("localhost", "127.0.0.1")
            for form in FORMS:
                asyncio.run(
                    load(form, served, upstream_url, process_id, calls, options.clients, options.seconds)
                )


if __name__ == "__main__":
    main()
