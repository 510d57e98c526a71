"""The queue of jobs. It runs one job at a time; each has a numbered log of events that any number of readers
can follow and resume."""

from __future__ import annotations

import json
import logging
import secrets
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

from selfreflect.app.guard import problem
from selfreflect.errors import SelfReflectError

Kind = Literal["ask", "score", "judge"]
Status = Literal["waiting", "running", "done", "failed", "cancelled"]

WAITING = 50
"""Jobs that may wait at one time."""

FINISHED = 50
"""Finished jobs that are remembered; their records are on disk."""

REPLAYED = 4
"""Finished jobs whose events can still be read from the start. The others keep only their last event."""

EVENTS = 2000
"""Events kept of one job, more than the limits on requests let it have."""

log = logging.getLogger("selfreflect.app")


# not an Exception, so that no `except Exception` in a strategy or a library swallows it
class StopRequested(BaseException):
    """The job was cancelled."""


class QueueFullError(SelfReflectError):
    """The queue takes no more jobs."""


class JobEvent(NamedTuple):
    number: int
    """From 1, without gaps. Readers resume after a number."""
    kind: str
    data: str
    """JSON in ASCII, so that no line end in a text can end the event."""


class EventLog:
    """The events of one job. Threads may share it."""

    def __init__(self) -> None:
        self._events: deque[JobEvent] = deque(maxlen=EVENTS)
        self._number = 0
        self._lock = threading.Lock()

    def add(self, kind: str, /, **data: Any) -> None:
        with self._lock:
            self._number += 1
            self._events.append(JobEvent(self._number, kind, json.dumps(data, allow_nan=False)))

    def after(self, number: int) -> list[JobEvent]:
        with self._lock:
            return [event for event in self._events if event.number > number]

    @property
    def answers(self) -> list[str]:
        """The answers drawn so far."""
        texts: list[str] = []
        for event in self.after(0):
            if event.kind == "answers":
                texts += json.loads(event.data)["texts"]
        return texts

    def keep_last(self) -> None:
        """Drop all events but the last."""
        with self._lock:
            while len(self._events) > 1:
                self._events.popleft()


class Job:
    """A request in the queue, and its outcome."""

    def __init__(self, request: Any, kind: Kind, question: str) -> None:
        self.id = secrets.token_hex(8)
        self.request = request
        self.kind = kind
        self.question = question
        self.created = time.time()
        self.status: Status = "waiting"
        self.place = -1
        """Number of jobs before it, set when it joins the queue."""
        self.run: str | None = None
        """The library's id of the run that holds its records."""
        self.error: dict[str, str] | None = None
        self.events = EventLog()
        self.over = False
        """Whether the last event is in the log. It is set after ``status``, so readers miss no event."""
        self._stopped = False

    def stop(self) -> None:
        self._stopped = True

    @property
    def is_stopped(self) -> bool:
        """Whether the job was cancelled."""
        return self._stopped

    def check(self) -> None:
        """Raise StopRequested if the job was cancelled."""
        if self._stopped:
            raise StopRequested

    def end(self, status: Status, error: dict[str, str] | None = None) -> None:
        self.status = status
        self.error = error
        self.place = 0
        self.request = None  # which may hold a megabyte
        self.events.add("end", status=status, error=error, run=self.run)
        self.over = True


class JobQueue:
    """Runs jobs one after the other in a thread, so that a process loads and runs one model at a time."""

    def __init__(self, work: Callable[[Job], None]) -> None:
        self._work = work
        self._jobs: dict[str, Job] = {}
        self._waiting: deque[Job] = deque()
        self._running: Job | None = None
        self.closed = False
        """Whether no more jobs are accepted or begun."""
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._loop, name="jobs", daemon=True)
        self._thread.start()

    def submit(self, job: Job) -> Job:
        """Put a job at the end of the queue, and return it.

        Raises:
            QueueFullError: too many jobs wait, or the queue is closed.
        """
        with self._changed:
            if len(self._waiting) >= WAITING or self.closed:
                raise QueueFullError(
                    f"{WAITING} questions are waiting already. Try again when some are done, or cancel some."
                )
            self._jobs[job.id] = job
            self._waiting.append(job)
            self._announce_places()
            self._changed.notify()
            return job

    def get(self, id_: str) -> Job | None:
        with self._changed:
            return self._jobs.get(id_)

    def all(self) -> list[Job]:
        """Every remembered job, oldest first."""
        with self._changed:
            return list(self._jobs.values())

    def cancel(self, job: Job) -> None:
        """Remove a waiting job, or stop the running one. A finished job stays as it is."""
        job.stop()
        with self._changed:
            if job in self._waiting:
                self._waiting.remove(job)
                job.end("cancelled")
                self._announce_places()

    def close(self, timeout: float = 0.0) -> None:
        """Cancel all jobs and accept no more. Wait at most ``timeout`` seconds for the running job."""
        with self._changed:
            self.closed = True
            while self._waiting:
                self._waiting.popleft().end("cancelled")
            if self._running:
                self._running.stop()
            self._changed.notify()
        if timeout:
            self._thread.join(timeout)

    def _loop(self) -> None:
        while (job := self._next()) is not None:
            status, error = self._run(job)
            with self._changed:
                self._running = None
                job.end(status, error)
                self._forget()

    def _next(self) -> Job | None:
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self.closed)
            if self.closed:
                return None
            job = self._running = self._waiting.popleft()
            job.status = "running"
            job.place = 0
            job.events.add("status", status="running", place=0)
            self._announce_places()
            return job

    def _run(self, job: Job) -> tuple[Status, dict[str, str] | None]:
        try:
            job.check()
            self._work(job)
        except StopRequested:
            return "cancelled", None
        except SelfReflectError as error:
            log.warning("job %s failed: %s", job.id, error)
            return "failed", problem(error)
        # a model may raise anything, even a panic of its tokenizer; it must cost only this job
        except BaseException as error:
            if self.closed:  # what a process that ends lacks, such as modules to import
                return "cancelled", None
            log.exception("job %s failed", job.id)
            return "failed", problem(error)
        return "done", None

    def _announce_places(self) -> None:
        before = 1 if self._running else 0
        for place, job in enumerate(self._waiting, before):
            if job.place != place:
                job.place = place
                job.events.add("status", status="waiting", place=place)

    def _forget(self) -> None:
        finished = [job for job in self._jobs.values() if job.over]
        for job in finished[:-REPLAYED]:
            job.events.keep_last()
        for job in finished[:-FINISHED]:
            del self._jobs[job.id]
