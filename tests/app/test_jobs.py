"""The queue: one job at a time, places, cancelling, and how little it remembers."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from contextlib import suppress

import pytest

from selfreflect.app.jobs import (
    EVENTS,
    FINISHED,
    REPLAYED,
    WAITING,
    EventLog,
    Job,
    JobQueue,
    QueueFullError,
    StopRequested,
)
from selfreflect.errors import BackendError


class Gate:
    """Work that goes on when it is let, and notices that it was cancelled."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.at_once = 0
        self.most_at_once = 0
        self.open = threading.Event()

    def __call__(self, job: Job) -> None:
        self.begun.append(job.question)
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            while not self.open.wait(0.005):
                job.check()
            job.events.add("note", text="worked")
        finally:
            self.at_once -= 1


def job(question: str = "?") -> Job:
    return Job(None, "ask", question)


def until(true: Callable[[], bool]) -> None:
    for _ in range(12_000):
        if true():
            return
        time.sleep(0.005)
    raise AssertionError("it does not happen")


def test_one_job_runs_at_a_time_in_order_and_the_others_know_their_place() -> None:
    gate = Gate()
    queue = JobQueue(gate)
    jobs = [job(str(number)) for number in range(4)]
    for one in jobs:
        queue.submit(one)
    until(lambda: jobs[0].status == "running")
    assert [one.place for one in jobs] == [0, 1, 2, 3]
    queue.cancel(jobs[1])
    assert [one.place for one in jobs] == [0, 0, 1, 2]
    gate.open.set()
    until(lambda: all(one.over for one in jobs))
    assert [one.status for one in jobs] == ["done", "cancelled", "done", "done"]
    assert gate.begun == ["0", "2", "3"]
    assert gate.most_at_once == 1
    places = [
        json.loads(event.data).get("place") for event in jobs[3].events.after(0) if event.kind == "status"
    ]
    assert places == [3, 2, 1, 0]


def test_a_running_job_stops_at_its_next_check_and_the_next_one_begins() -> None:
    gate = Gate()
    queue = JobQueue(gate)
    first, second = job("first"), job("second")
    queue.submit(first)
    queue.submit(second)
    until(lambda: first.status == "running")
    queue.cancel(first)
    until(lambda: first.status == "cancelled" and second.status == "running")
    queue.cancel(first)  # once more changes nothing
    gate.open.set()
    until(lambda: second.status == "done")


def test_too_many_are_refused_and_there_is_room_again_later() -> None:
    gate = Gate()
    queue = JobQueue(gate)
    running = job()
    queue.submit(running)
    until(lambda: running.status == "running")
    waiting = [job() for _ in range(WAITING)]
    for one in waiting:
        queue.submit(one)
    with pytest.raises(QueueFullError, match=f"{WAITING} questions are waiting"):
        queue.submit(job())
    queue.cancel(waiting[0])
    queue.submit(job())
    queue.close(5)
    assert running.status == "cancelled"
    assert {one.status for one in waiting} == {"cancelled"}


def test_what_fails_says_why_without_paths_and_costs_no_other_job() -> None:
    def work(one: Job) -> None:
        if one.question == "expected":
            raise BackendError("no weights in '/home/somebody/models/tiny' at all")
        if one.question == "bug":
            raise ValueError("/home/somebody/secret")

    queue = JobQueue(work)
    jobs = [job("expected"), job("bug"), job("fine")]
    for one in jobs:
        queue.submit(one)
    until(lambda: jobs[-1].over)
    assert jobs[0].error == {"kind": "backend", "message": "no weights in '…/tiny' at all"}
    assert jobs[1].error is not None
    assert jobs[1].error["kind"] == "internal"
    assert "somebody" not in jobs[1].error["message"]
    assert [one.status for one in jobs] == ["failed", "failed", "done"]


def test_finished_jobs_are_forgotten_and_their_events_before_them() -> None:
    def work(one: Job) -> None:
        for number in range(10):
            one.events.add("note", text=f"{number}")

    queue = JobQueue(work)
    jobs = [job(str(number)) for number in range(FINISHED + 10)]
    for one in jobs:
        queue.submit(one)
        until(lambda one=one: one.over)  # type: ignore[misc]
    until(lambda: queue.get(jobs[9].id) is None)
    assert queue.get(jobs[10].id) is jobs[10]
    assert [len(one.events.after(0)) > 1 for one in jobs[-REPLAYED - 1 :]] == [False] + [True] * REPLAYED
    assert jobs[20].events.after(0)[0].kind == "end"
    assert all(one.request is None for one in jobs)


def test_events_are_numbered_bounded_and_can_be_read_from_anywhere() -> None:
    events = EventLog()
    for number in range(EVENTS + 5):
        events.add("note", text=f"a\nb\u2028{number}")
    kept = events.after(0)
    assert (len(kept), kept[0].number, kept[-1].number) == (EVENTS, 6, EVENTS + 5)
    assert [event.number for event in events.after(EVENTS + 3)] == [EVENTS + 4, EVENTS + 5]
    assert "\n" not in kept[0].data
    assert kept[0].data.isascii()


def test_a_stop_is_no_ordinary_exception() -> None:
    one = job()
    one.stop()
    with pytest.raises(StopRequested), suppress(Exception):  # as a strategy or a model library may well write
        one.check()
