"""The process in which jobs run. Work that never ends, as a model's files may want it, ends with it."""

from __future__ import annotations

import multiprocessing
import os
import queue
import signal
import threading
import time
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from selfreflect.app.checks import Preflight
from selfreflect.app.choices import ModelChoices
from selfreflect.app.jobs import Job, Kind, StopRequested
from selfreflect.app.library import Library
from selfreflect.app.work import JobRunner
from selfreflect.errors import BackendError, SelfReflectError
from selfreflect.settings import ExecutionOptions

PATIENCE = 5.0
"""Seconds that a cancelled job has to reach its next check before its process is killed."""

_POLL = 0.1


@dataclass(frozen=True)
class _Order:
    """What the process needs to know to do a job."""

    id: str
    request: Any
    kind: Kind
    question: str
    checked: Mapping[Any, Any]
    """What the app found out about servers, which are not asked again."""


@dataclass(frozen=True)
class _News:
    """What a page is to show of a job from now on."""

    fields: dict[str, Any]
    answers: Sequence[str]
    run: str | None


@dataclass(frozen=True)
class _End:
    """How a job ended in its process."""

    error: SelfReflectError | StopRequested | None = None
    traceback: str = ""

    def raise_error(self) -> None:
        if self.traceback:
            raise RuntimeError(self.traceback)
        if self.error is not None:
            raise self.error


class JobProcess:
    """Does jobs in a process of its own, which is started with the first job and again after it was killed.

    The models stay loaded from job to job.
    """

    def __init__(
        self, root: Path, choices: ModelChoices, options: ExecutionOptions, checks: Preflight
    ) -> None:
        self._setup = (root, choices, options)
        self._checks = checks
        self._process: Any = None
        self._connection: Connection | None = None

    def __call__(self, job: Job) -> None:
        """Do a job, and pass on what comes of it.

        Raises:
            StopRequested: the job was cancelled.
            SelfReflectError: as the work raised it; or the process has ended.
        """
        try:
            end = self._follow(job)
        except BaseException:
            self.close()
            raise
        end.raise_error()

    def close(self) -> None:
        """Kill the process, if there is one."""
        if self._process is not None:
            self._process.kill()
            self._process.join()
            self._process = None
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _follow(self, job: Job) -> _End:
        connection = self._connection or self._start()
        last_moment: float | None = None
        try:
            connection.send(_Order(job.id, job.request, job.kind, job.question, self._checks.checked))
            while last_moment is None or time.monotonic() < last_moment:
                if job.is_stopped and last_moment is None:
                    connection.send(job.id)
                    last_moment = time.monotonic() + PATIENCE
                if not connection.poll(_POLL):
                    continue
                message = connection.recv()
                if isinstance(message, _End):
                    return message
                job.run = message.run
                job.show(**message.fields)
                job.show_answers(message.answers)
        except (EOFError, OSError):
            self._process.join(PATIENCE)
            raise BackendError(
                f"The process that ran the models ended with status {self._process.exitcode}; -9 may mean "
                "that memory ran out. Ask again, or take a smaller model."
            ) from None
        raise StopRequested

    def _start(self) -> Connection:
        context = multiprocessing.get_context("spawn")  # a forked process could not use CUDA
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, *self._setup))  # vLLM has children
        self._process.start()
        theirs.close()
        return self._connection


def _serve(connection: Connection, root: Path, choices: ModelChoices, options: ExecutionOptions) -> None:
    """Do one job after the other, until the app ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the app handles interrupts and ends this process
    checks = Preflight(choices, options)
    work = JobRunner(Library(root), choices, options, checks)
    inbox = _Inbox(connection)
    while True:
        order, job = inbox.next()
        checks.checked = dict(order.checked)
        end = _End()
        try:
            work(job)
        except (StopRequested, SelfReflectError) as error:
            end = _End(error)
        # a model may raise anything, even a panic of its tokenizer; it must cost only this job
        except BaseException:
            end = _End(traceback=traceback.format_exc())
        inbox.send(end)


class _Inbox:
    """Takes orders, and stops the job that an id names, also while it runs. Threads may share it."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._sending = threading.Lock()
        self._orders: queue.Queue[tuple[_Order, Job]] = queue.Queue()
        threading.Thread(target=self._receive, daemon=True).start()

    def next(self) -> tuple[_Order, Job]:
        return self._orders.get()

    def send(self, message: _News | _End) -> None:
        with self._sending:
            self._connection.send(message)

    def _receive(self) -> None:
        jobs: dict[str, Job] = {}
        try:
            while True:
                message = self._connection.recv()
                if isinstance(message, _Order):
                    job = _ForwardedJob(message, self)
                    jobs = {message.id: job}
                    self._orders.put((message, job))
                elif message in jobs:
                    jobs[message].stop()
        except (EOFError, OSError):  # the app has ended
            os._exit(1)


class _ForwardedJob(Job):
    """A job that shows in the app what comes of it here."""

    def __init__(self, order: _Order, inbox: _Inbox) -> None:
        super().__init__(order.request, order.kind, order.question)
        self._inbox = inbox

    def show(self, **fields: Any) -> None:
        super().show(**fields)
        self._inbox.send(_News(fields, (), self.run))

    def show_answers(self, texts: Sequence[str]) -> None:
        super().show_answers(texts)
        self._inbox.send(_News({}, texts, self.run))
