"""How the tests serve the app: over a real socket, from a thread of this process or as a process of its
own."""

from __future__ import annotations

import secrets
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
from command import COMMAND, environment, run
from http_server import running

from selfreflect.records import AnswerSet, Question, Summary
from selfreflect.server.app import AppServer, Services
from selfreflect.server.guard import LOCAL, Access
from selfreflect.server.jobs import Job, JobQueue
from selfreflect.server.library import Library
from selfreflect.server.requests import ModelChoices
from selfreflect.server.work import JobRunner
from selfreflect.settings import ExecutionOptions
from selfreflect.store.run import Run

ANSWERS = ["Radishes, quickly.", "Lettuce.", "radishes soon", "Tomatoes and basil."]


class Client:
    """Talks to a server as the page does; its address may hold the token."""

    root = Path()
    judge: Path | str | None = None

    def __init__(self, address: str, token: str | None = None, server: AppServer | None = None) -> None:
        self.server = server
        self.url, _, in_address = address.partition("/#token=")
        token = token or in_address
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        self.http = httpx2.Client(base_url=self.url, headers=headers, timeout=200, trust_env=False)

    def get(self, path: str, **options: Any) -> httpx2.Response:
        return self.http.get(path, **options)

    def post(self, path: str, **options: Any) -> httpx2.Response:
        return self.http.post(path, **options)

    def ask(self, question: str = "What first?", model: str = "model", **changes: Any) -> str:
        """The id of a new job."""
        body = {
            "question": question,
            "model": model,
            "judge": model,
            "strategies": ["greedy"],
            "num_answers": 2,
            **changes,
        }
        response = self.post("/api/ask", json=body)
        assert response.status_code == 202, response.text
        return str(response.json()["id"])

    def until(self, job: str, holds: Callable[[Any], bool]) -> Any:
        """The state of a job as soon as something holds of it."""
        for _ in range(4000):
            state = self.get(f"/api/jobs/{job}").json()
            if holds(state):
                return state
            time.sleep(0.05)
        raise AssertionError(state)

    def finished(self, job: str) -> Any:
        """The state of a job once it has ended."""
        return self.until(job, lambda state: state["status"] in ("done", "failed", "cancelled"))

    def scored(self, question: str, summaries: Mapping[str, str], *options: str) -> str:
        """The run below the root whose summaries of ``ANSWERS`` the command ``score`` has scored."""
        path = self.root / f"scored-{secrets.token_hex(4)}"
        with Run.open(path, {}) as stored:
            stored.append(Question(id="q", text=question))
            halves = {"masked_out": tuple(ANSWERS[:2]), "conditioning": tuple(ANSWERS[2:])}
            stored.append(AnswerSet(question_id="q", **halves))
            for name, text in summaries.items():
                stored.append(Summary(question_id="q", name=name, text=text))
        outcome = run("score", "--out", path, "--judge", self.judge, "--device", "cpu", *options)
        assert outcome.code == 0, outcome.said
        return Library(self.root).id_of(path.resolve())


@contextmanager
def serving(
    root: Path,
    *,
    model: Path | str | None = None,
    others: Sequence[Path] = (),
    work: Callable[[Job], None] | None = None,
    token: str | None = None,
    host: str = "127.0.0.1",
    base_url: str | None = None,
    extra_body: Mapping[str, Any] | None = None,
) -> Iterator[Client]:
    """A server in a thread. ``work`` replaces what a job does."""
    models = ModelChoices([str(path) for path in (model, *others) if path], base_url, extra_body)
    library, options = Library(root), ExecutionOptions(device="cpu")
    queue = JobQueue(work or JobRunner(library, models, options))
    services = Services(queue, library, models)
    try:
        server = AppServer(services, Access(LOCAL, token=token))
        with running(server, host) as url:
            client = Client(url, token, server)
            client.root, client.judge = root, model
            with client.http:
                yield client
    finally:
        queue.close(10)


@contextmanager
def process(root: Path, *arguments: object, **variables: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """``selfreflect app`` as a process of its own, and the address that it printed."""
    command = [*COMMAND, "app", "--root", str(root), "--port", "0", "--device", "cpu", *map(str, arguments)]
    with subprocess.Popen(
        command, env=environment(**variables), stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as started:
        try:
            assert started.stderr is not None
            line = started.stderr.readline()
            assert "selfreflect is at http" in line, line
            yield started, line.split()[-1]
        finally:
            if started.poll() is None:
                started.send_signal(signal.SIGKILL)
