"""The queue: one job at a time, each with a numbered log of events that any number of readers can follow and
resume."""

from __future__ import annotations

import json
import logging
import secrets
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

from selfreflect.app.safe import without_paths
from selfreflect.errors import SelfReflectError

Status = Literal["waiting", "running", "done", "failed", "cancelled"]

WAITING = 50
"""Jobs that may wait at one time."""

FINISHED = 50
"""Finished jobs that are remembered; all they made is on disk."""

REPLAYED = 4
"""Finished jobs whose events can still be read from the start. Of the others only the last event is kept."""

EVENTS = 2000
"""Events kept of one job, more than the limits on requests let it have."""

log = logging.getLogger("selfreflect.app")


# like KeyboardInterrupt: a request, and nothing that `except Exception` may swallow
class StopRequested(BaseException):
    """Somebody cancelled the job."""


class QueueFullError(SelfReflectError):
    """As many jobs wait as may."""


class Event(NamedTuple):
    number: int
    """From 1, without gaps: the id that a reader names to resume."""
    kind: str
    data: str
    """JSON in ASCII, so that no line end in a text can end the event."""


class EventLog:
    """What one job said. Written by the worker's thread, read by any."""

    def __init__(self) -> None:
        self._events: deque[Event] = deque(maxlen=EVENTS)
        self._number = 0
        self._lock = threading.RLock()  # a signal handler ends jobs, maybe while its own thread reads
        self._listeners: set[Callable[[], None]] = set()

    def add(self, kind: str, /, **data: Any) -> None:
        with self._lock:
            self._number += 1
            self._events.append(Event(self._number, kind, json.dumps(data, allow_nan=False)))
            listeners = list(self._listeners)
        for listener in listeners:
            listener()

    def after(self, number: int) -> list[Event]:
        with self._lock:
            return [event for event in self._events if event.number > number]

    @property
    def answers(self) -> list[str]:
        """The texts that were drawn so far, as its events tell them."""
        return [
            text
            for event in self.after(0)
            if event.kind == "answers"
            for text in json.loads(event.data)["texts"]
        ]

    def keep_last(self) -> None:
        with self._lock:
            while len(self._events) > 1:
                self._events.popleft()

    def subscribe(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Have ``listener`` called, from any thread, after each event; the result ends that."""
        with self._lock:
            self._listeners.add(listener)

        def end() -> None:
            with self._lock:
                self._listeners.discard(listener)

        return end


class Job:
    """A request in the queue and what became of it."""

    def __init__(self, request: Any, kind: Literal["ask", "score"], question: str) -> None:
        self.id = secrets.token_hex(8)
        self.request = request
        self.kind = kind
        self.question = question
        self.created = time.time()
        self.status: Status = "waiting"
        self.place = -1
        """How many jobs are before it, once it is in the queue."""
        self.run: str | None = None
        """Where its records are: an id in the library."""
        self.error: dict[str, str] | None = None
        self.events = EventLog()
        self.over = False
        """Whether the last event is in the log: a reader that looked between status and event would miss
        it."""
        self._stop = threading.Event()

    @property
    def finished(self) -> bool:
        return self.status in ("done", "failed", "cancelled")

    def stop(self) -> None:
        self._stop.set()

    def check(self) -> None:
        """Raises StopRequested once the job was cancelled."""
        if self._stop.is_set():
            raise StopRequested

    def end(self, status: Status, error: dict[str, str] | None = None) -> None:
        self.status, self.error, self.place, self.request = status, error, 0, None
        self.events.add("end", status=status, error=error, run=self.run)
        self.over = True


class JobQueue:
    """Does jobs one after the other in a thread of its own, so that a process loads and runs one model at a
    time."""

    def __init__(self, work: Callable[[Job], None]) -> None:
        self._work = work
        self._jobs: OrderedDict[str, Job] = OrderedDict()
        self._waiting: deque[Job] = deque()
        self._running: Job | None = None
        self._closed = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._loop, name="jobs", daemon=True)
        self._thread.start()

    def submit(self, job: Job) -> None:
        """Put a job at the end of the queue.

        Raises:
            QueueFullError: too many wait.
        """
        with self._changed:
            if len(self._waiting) >= WAITING or self._closed:
                raise QueueFullError(
                    f"{WAITING} questions are waiting already. Try again when some are done, or cancel some."
                )
            self._jobs[job.id] = job
            self._waiting.append(job)
            self._tell_places()
            self._changed.notify()

    def get(self, id_: str) -> Job | None:
        with self._changed:
            return self._jobs.get(id_)

    def all(self) -> list[Job]:
        """Every job that is remembered, oldest first."""
        with self._changed:
            return list(self._jobs.values())

    def cancel(self, job: Job) -> None:
        """Take a waiting job out, or have the running one stop at its next forward pass; nothing happens to a
        finished one."""
        job.stop()
        with self._changed:
            if job in self._waiting:
                self._waiting.remove(job)
                job.end("cancelled")
                self._tell_places()

    def close(self, patience: float = 0.0) -> None:
        """Cancel everything and take nothing more. Waits ``patience`` seconds at most for the running job."""
        with self._changed:
            self._closed = True
            while self._waiting:
                self._waiting.popleft().end("cancelled")
            if self._running:
                self._running.stop()
            self._changed.notify()
        if patience:
            self._thread.join(patience)

    def _loop(self) -> None:
        while (job := self._next()) is not None:
            status, error = self._outcome(job)
            with self._changed:
                self._running = None
                job.end(status, error)
                self._forget()

    def _next(self) -> Job | None:
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._closed)
            if self._closed:
                return None
            job = self._running = self._waiting.popleft()
            job.status, job.place = "running", 0
            job.events.add("status", status="running", place=0)
            self._tell_places()
            return job

    def _outcome(self, job: Job) -> tuple[Status, dict[str, str] | None]:
        try:
            job.check()
            self._work(job)
        except StopRequested:
            return "cancelled", None
        except SelfReflectError as error:
            log.warning("job %s failed: %s", job.id, error)
            kind = type(error).__name__.removesuffix("Error").lower()
            return "failed", {"kind": kind, "message": without_paths(str(error))}
        except (
            BaseException
        ):  # whatever a model raises, a panic of its tokenizer too, must cost this job and no other
            log.exception("job %s failed", job.id)
            return "failed", {
                "kind": "internal",
                "message": "Something went wrong. The terminal in which the app was started says what.",
            }
        return "done", None

    def _tell_places(self) -> None:
        for number, job in enumerate(self._waiting):
            place = number + (self._running is not None)
            if job.place != place:
                job.place = place
                job.events.add("status", status="waiting", place=place)

    def _forget(self) -> None:
        finished = [job for job in self._jobs.values() if job.finished]
        for job in finished[:-REPLAYED]:
            job.events.keep_last()
        for job in finished[:-FINISHED]:
            del self._jobs[job.id]
