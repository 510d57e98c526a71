"""Work of a job: stages of an experiment in a killable process."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

from msgspec.structs import replace

from selfreflect.errors import BackendError, SelfReflectError
from selfreflect.records import STAGES
from selfreflect.report.page.view import information_view
from selfreflect.run.experiment import open_experiment
from selfreflect.run.models import WorkDone
from selfreflect.server.errors import CUT_OFF, failure_problem, problem_text, without_paths
from selfreflect.server.jobs import Job, Stop, StopRequested
from selfreflect.server.library import Library
from selfreflect.server.requests import AskBody, ModelChoices, prompts_of, question_of
from selfreflect.settings import ExecutionOptions
from selfreflect.store.run import Run

GUESSES = 5
"""Number of likeliest tokens kept for every masked word; the page shows them on a click."""

# Seconds.
_BETWEEN_ADVANCES = 1.0


class JobRunner:
    """Runner that fills a new run directory for each job."""

    def __init__(self, library: Library, choices: ModelChoices, options: ExecutionOptions) -> None:
        self._library = library
        self._choices = choices
        self._options = options
        self._known: dict[str, dict[str, Any]] = {}
        """Facts of earlier jobs' models, to avoid probing servers again."""

    def __call__(self, job: Job) -> None:
        body: AskBody = job.request
        config = self._choices.config(body)
        progress = JobProgress(job)
        with prompts_of(body) as prompts:
            options = replace(self._options, prompts=prompts, guesses=GUESSES)
            path = self._library.begin()
            with open_experiment(
                path, config, STAGES[1:], options=options, progress=progress, known=self._known
            ) as experiment:
                job.run = self._library.id_of(path)
                progress.run = experiment.run
                experiment.run.append(question_of(body))
                experiment.check(("answers", "summaries", "scores"), body.strategies)
                experiment.fill("answers")
                progress.show_records()
                if experiment.run.answers:
                    experiment.fill("summaries", body.strategies)
                if experiment.run.summaries:
                    experiment.fill("scores")
                progress.show_records()
                self._known |= experiment.run.manifest.models


class JobProgress:
    """The :class:`~selfreflect.run.models.Progress` of a job."""

    run: Run
    """Run directory of the job, set before any stage."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self._done = 0
        """Number of questions or summaries finished in the current stage."""
        self._work = WorkDone()
        """Work of the current stage, if scoring."""
        self._shown_at = 0.0
        self._warnings: list[str] = []

    def note(self, line: str) -> None:
        self.job.check()
        self.job.show(note=without_paths(line))

    def warn(self, line: str) -> None:
        self._warnings.append(without_paths(line))
        self.show_records()

    @contextmanager
    def stage(self, name: str, total: int) -> Iterator[JobProgress]:
        self.job.check()
        self._done = 0
        self._work = WorkDone()
        if name == "answers":
            total = 2 * self.job.request.num_answers  # which are shown one by one
        self.job.show(stage=name, note="", done=0, total=total, stage_began=time.time())
        yield self

    def advance(self, count: int = 1, failures: int = 0) -> None:
        self.job.check()
        self.show_records()
        self._done += count
        if self._stage != "answers":
            self.job.show(done=self._done)

    def add(self, work: WorkDone) -> None:
        """Show newly drawn answers, and occasionally the judge's progress. Cancelled jobs end here, before a
        local model's next pass."""
        self.job.check()
        if work.units:  # the model is loaded
            self.job.show(note="")
        if self._stage == "answers" and work.texts:
            self.job.show_answers(work.texts)
            self.job.show(done=len(self.job.answers))
        if self._stage != "scores":
            return
        self._work += work
        now = time.monotonic()
        if work.tokens and self._work.planned > 0 and now - self._shown_at >= _BETWEEN_ADVANCES:
            self._shown_at = now
            share = min(1.0, self._work.tokens / self._work.planned)
            self.job.show(done=round(max(self._done, share * self._work.units), 3))

    @property
    def _stage(self) -> str | None:
        stage: str | None = self.job.view.get("stage")
        return stage

    def show_records(self) -> None:
        """Show summaries, results and failures of a run with one question."""
        summaries: dict[str, dict[str, Any]] = {}
        problems = [{"message": warning, "remedy": ""} for warning in self._warnings]
        if len(self.run.questions) <= 1:
            for (_, name), summary in self.run.summaries.items():
                warnings = [CUT_OFF] if summary.truncated else []
                summaries[name] = {"name": name, "text": summary.text, "warnings": warnings}
            for (_, name), score in self.run.scores.items():
                summaries.setdefault(name, {"name": name})["score"] = score.value
            for (id_, name), information in self.run.information.items():
                information = replace(information, why=without_paths(information.why))
                view = information_view(information, self.run.answers.get(id_))
                summaries.setdefault(name, {"name": name})["information"] = view
        for failure in self.run.failures:
            entry = failure_problem(failure)
            if failure.name:
                summaries.setdefault(failure.name, {"name": failure.name})["why"] = problem_text(entry)
            else:
                problems.append(entry)
        self.job.show(summaries=list(summaries.values()), problems=problems)


PATIENCE = 5.0
"""Seconds for a cancelled job to reach its next check, before its process is killed."""

_POLL = 0.1


class _News(NamedTuple):
    """Update of a job for its page; the last has the outcome."""

    fields: dict[str, Any]
    answers: Sequence[str]
    run: str | None
    is_over: bool = False
    error: SelfReflectError | StopRequested | None = None
    traceback: str = ""


class JobProcess:
    """Process that does jobs, started on demand and after being killed.

    The models stay loaded from job to job.
    """

    def __init__(self, root: Path, choices: ModelChoices, options: ExecutionOptions) -> None:
        self._setup = (root, choices, options)
        # a forked process could not use CUDA
        self._context = multiprocessing.get_context("spawn")
        self._stop: Any = None  # an event for each process
        self._process: Any = None
        self._connection: Connection | None = None

    def __call__(self, job: Job) -> None:
        """Do a job, and forward its updates.

        Raises:
            StopRequested: the job was cancelled.
            SelfReflectError: as the work raised it; or the process has ended.
        """
        try:
            end = self._follow(job)
        except BaseException:
            self.close()
            raise
        if end.traceback:
            raise RuntimeError(end.traceback)
        if end.error is not None:
            raise end.error

    def close(self) -> None:
        """Kill the process, if any."""
        if self._process is not None:
            self._process.kill()
            self._process.join()
            self._process = None
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _follow(self, job: Job) -> _News:
        connection = self._connection or self._start()
        last_moment: float | None = None
        try:
            # still set if the last job was cancelled
            self._stop.clear()
            connection.send((job.request, job.question))
            while last_moment is None or time.monotonic() < last_moment:
                if job.is_stopped and last_moment is None:
                    self._stop.set()
                    last_moment = time.monotonic() + PATIENCE
                # not blocking, because a stop may come from another thread
                if not connection.poll(_POLL):
                    continue
                news: _News = connection.recv()
                if news.is_over:
                    return news
                job.run = news.run
                job.show(**news.fields)
                job.show_answers(news.answers)
        except (EOFError, OSError):
            # its exit status says whether the system killed it
            self._process.join(PATIENCE)
            raise BackendError(
                f"The process that ran the models ended with status {self._process.exitcode}; -9 may mean "
                "that memory ran out. Ask again, or use a smaller model."
            ) from None
        raise StopRequested

    def _start(self) -> Connection:
        # a killed process may have held the lock of the event before
        self._stop = self._context.Event()
        self._connection, theirs = self._context.Pipe()
        arguments = (theirs, self._stop, *self._setup)
        self._process = self._context.Process(target=_serve, args=arguments)  # vLLM has children
        self._process.start()
        # while this end is open here, the death of the process would not end recv
        theirs.close()
        return self._connection


def _serve(
    connection: Connection, stop: Stop, root: Path, choices: ModelChoices, options: ExecutionOptions
) -> None:
    """Do jobs one after the other until the app ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the app handles interrupts and ends this process
    threading.Thread(target=_end_with_the_app, daemon=True).start()
    work = JobRunner(Library(root), choices, options)
    while True:
        try:
            request, question = connection.recv()
        except EOFError:  # the app was killed
            return
        end = _News({}, (), None, is_over=True)
        try:
            work(_ForwardedJob(request, question, stop, connection))
        except (StopRequested, SelfReflectError) as error:
            end = end._replace(error=error)
        # a model may raise anything, even a panic of its tokenizer; it must cost only this job
        except BaseException:
            end = end._replace(traceback=traceback.format_exc())
        connection.send(end)


def _end_with_the_app() -> None:
    """End this process together with the app, even during a job."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    # sys.exit would end this thread alone
    os._exit(1)


class _ForwardedJob(Job):
    """A job that forwards its updates to the app."""

    def __init__(self, request: Any, question: str, stop: Stop, connection: Connection) -> None:
        super().__init__(request, question, stop)
        self._connection = connection
        self._sending = threading.Lock()  # a client of servers tells its news from a thread of its own

    def show(self, **fields: Any) -> None:
        super().show(**fields)
        with self._sending:
            self._connection.send(_News(fields, (), self.run))

    def show_answers(self, texts: Sequence[str]) -> None:
        super().show_answers(texts)
        with self._sending:
            self._connection.send(_News({}, texts, self.run))
