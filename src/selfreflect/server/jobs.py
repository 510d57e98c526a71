"""Queue of jobs that run one at a time, and their state for the page."""

from __future__ import annotations

import logging
import secrets
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Literal, Protocol

from selfreflect.errors import SelfReflectError
from selfreflect.grouping import group_indices
from selfreflect.sameness import same_groups
from selfreflect.server.errors import problem

Status = Literal["waiting", "running", "done", "failed", "cancelled"]

WAITING = 50
"""Maximum number of waiting jobs."""

FINISHED = 50
"""Number of finished jobs kept in memory; their records are on disk."""

SHOWN = 4
"""Number of finished jobs kept with answers and view."""

MOST_COMPARED = 100_000
"""Maximum total length in characters of a running job's answers that the class rule groups; longer ones are
grouped by spelling."""
MOST_SPELLINGS = 100
"""Maximum number of different answers that the class rule groups, which compares pairs."""

log = logging.getLogger("selfreflect.app")


# not an Exception, so that no `except Exception` in a strategy or a library swallows it
class StopRequested(BaseException):
    """Raised in a job that was cancelled."""


class Stop(Protocol):
    """Protocol of thread and process events."""

    def set(self) -> None: ...

    def is_set(self) -> bool: ...


class Job:
    """A queued request with its progress and outcome."""

    def __init__(self, request: Any, question: str, stop: Stop | None = None) -> None:
        self.id = secrets.token_hex(8)
        self.request = request
        self.question = question
        self.created = time.time()
        self.status: Status = "waiting"
        self.ahead = -1
        """Number of jobs ahead, set on joining the queue."""
        self.run: str | None = None
        """Library id of the run with the records."""
        self.error: dict[str, str] | None = None
        self.answers: list[str] = []
        self.view: dict[str, Any] = {}
        """Fields that a page shows with the answers. Replaced as a whole, so that threads may share it."""
        self._stop = stop or threading.Event()

    @property
    def is_stopped(self) -> bool:
        """Whether the job was cancelled."""
        return self._stop.is_set()

    @property
    def is_over(self) -> bool:
        return self.status not in ("waiting", "running")

    def stop(self) -> None:
        self._stop.set()

    def check(self) -> None:
        """Raise StopRequested if the job was cancelled."""
        if self.is_stopped:
            raise StopRequested

    def show(self, **fields: Any) -> None:
        """Replace fields of the view."""
        # a new dict, so that a reader in another thread sees one state
        self.view = {**self.view, **fields}

    def show_answers(self, texts: Sequence[str]) -> None:
        """Add newly drawn answers."""
        self.answers += texts

    def end(self, status: Status, error: dict[str, str] | None = None) -> None:
        self.error = error
        self.ahead = 0
        self.request = None  # which may hold a megabyte
        self.status = status

    def to_dict(self, after: int | None = None) -> dict[str, Any]:
        """Describe the job, with its view and the answers from number ``after`` if given."""
        names = ("id", "question", "status", "ahead", "run", "error", "created")
        facts = {name: getattr(self, name) for name in names}
        if after is None:
            return facts
        # a copy, since the thread of the job adds more meanwhile
        answers = list(self.answers)
        # every poll groups them anew, and comparing many long ones takes minutes
        is_short = len({*answers}) <= MOST_SPELLINGS and sum(map(len, answers)) <= MOST_COMPARED
        return {
            **facts,
            **self.view,
            "seconds_left": self._seconds_left(),
            "answers": answers[after:],
            "groups": same_groups(answers, self.question) if is_short else group_indices(answers),
        }

    def _seconds_left(self) -> float | None:
        """Estimate the time left in the current stage; None before any progress."""
        done: float = self.view.get("done", 0)
        total: float = self.view.get("total", 0)
        if self.is_over or not 0 < done < total:
            return None
        seconds: float = time.time() - self.view["stage_began"]
        return seconds / done * (total - done)


class JobQueue:
    """Queue that runs jobs one after the other in a thread."""

    def __init__(self, work: Callable[[Job], None]) -> None:
        self._work = work
        self._jobs: dict[str, Job] = {}
        self._waiting: deque[Job] = deque()
        self._running: Job | None = None
        self._is_closed = False
        self._changed = threading.Condition()
        # a daemon, so that the end of the program does not wait for a job
        self._thread = threading.Thread(target=self._loop, name="jobs", daemon=True)
        self._thread.start()

    def submit(self, job: Job) -> Job:
        """Append a job to the queue, and return it.

        Raises:
            SelfReflectError: too many jobs wait, or the queue is closed (code ``busy``).
        """
        with self._changed:
            if len(self._waiting) >= WAITING or self._is_closed:
                raise SelfReflectError(
                    f"{WAITING} questions are waiting already",
                    code="busy",
                    remedy="Try again when some are done, or cancel some.",
                )
            self._jobs[job.id] = job
            self._waiting.append(job)
            self._count_ahead()
            self._changed.notify()
            return job

    def get(self, id_: str) -> Job | None:
        with self._changed:
            return self._jobs.get(id_)

    def all(self) -> list[Job]:
        """List every remembered job, oldest first."""
        with self._changed:
            return list(self._jobs.values())

    def cancel(self, job: Job) -> None:
        """Remove a waiting job, or stop the running one. A finished job stays as it is."""
        # also where it has just begun to run
        job.stop()
        with self._changed:
            if job in self._waiting:
                self._waiting.remove(job)
                job.end("cancelled")
                self._count_ahead()

    def close(self, timeout: float = 0.0) -> None:
        """Cancel all jobs and accept no more. Wait at most ``timeout`` seconds for the running job."""
        with self._changed:
            self._is_closed = True
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
                finished = [job for job in self._jobs.values() if job.is_over]
                for old in finished[:-SHOWN]:
                    old.answers, old.view = [], {}
                for old in finished[:-FINISHED]:
                    del self._jobs[old.id]

    def _next(self) -> Job | None:
        with self._changed:
            # woken by submit and close
            self._changed.wait_for(lambda: self._waiting or self._is_closed)
            if self._is_closed:
                return None
            job = self._running = self._waiting.popleft()
            job.status = "running"
            self._count_ahead()
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
            if self._is_closed:  # what a process that ends lacks, such as modules to import
                return "cancelled", None
            log.exception("job %s failed", job.id)
            return "failed", problem(error)
        return "done", None

    def _count_ahead(self) -> None:
        if self._running:
            self._running.ahead = 0
        for ahead, job in enumerate(self._waiting, 1 if self._running else 0):
            job.ahead = ahead
