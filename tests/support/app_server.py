"""How the tests serve the app: over a real socket, from a thread of this process or as a process of its
own."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
from command import COMMAND, environment
from http_server import running

from selfreflect.grouping import ordered_groups
from selfreflect.server.app import AppServer, Services
from selfreflect.server.guard import LOCAL, Access
from selfreflect.server.jobs import Job, JobQueue
from selfreflect.server.library import Library, Meaning
from selfreflect.server.requests import ModelChoices, Preflight
from selfreflect.server.work import JobRunner
from selfreflect.settings import ExecutionOptions, Price

ANSWERS = ["Radishes, quickly.", "Lettuce.", "radishes soon", "Tomatoes and basil."]


class Client:
    """Talks to a server as the page does; its address may hold the token."""

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

    def scored(self, **body: Any) -> Any:
        """The state of a job that has scored given answers."""
        answer = self.post("/api/score", json=body)
        assert answer.status_code == 202, answer.text
        return self.finished(answer.json()["id"])


def by_first_letter(answers: Sequence[str], question: str = "") -> list[list[int]]:
    """A grouping that is not the one by spelling and needs no model."""
    letters = dict.fromkeys(answer[:1].casefold() for answer in answers)
    groups = [
        [index for index, answer in enumerate(answers) if answer[:1].casefold() == letter]
        for letter in letters
    ]
    return ordered_groups(answers, groups)


@contextmanager
def serving(
    root: Path,
    *,
    model: Path | str | None = None,
    others: Sequence[Path] = (),
    work: Callable[[Job], None] | None = None,
    token: str | None = None,
    host: str = "127.0.0.1",
    meaning: Meaning | None = None,
    base_url: str | None = None,
    prices: Mapping[str, Price] | None = None,
    extra_body: Mapping[str, Any] | None = None,
) -> Iterator[Client]:
    """A server in a thread. ``work`` replaces what a job does; what means the same is, without ``meaning``,
    what begins alike."""
    models = ModelChoices([str(path) for path in (model, *others) if path], base_url, prices, extra_body)
    library, options = Library(root), ExecutionOptions(device="cpu")
    checks = Preflight(models, options)
    queue = JobQueue(work or JobRunner(library, models, options, checks))
    services = Services(queue, library, models, meaning or Meaning(lambda: by_first_letter), checks)
    try:
        server = AppServer(services, Access(LOCAL, token=token))
        with running(server, host) as url:
            client = Client(url, token, server)
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
