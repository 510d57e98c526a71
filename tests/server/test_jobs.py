"""The queue: one job at a time, places, cancelling, and how little it remembers."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress

import pytest

from selfreflect.errors import BackendError, SelfReflectError
from selfreflect.server.jobs import FINISHED, SHOWN, WAITING, Job, JobQueue, StopRequested


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
        finally:
            self.at_once -= 1


def job(question: str = "?") -> Job:
    return Job(None, question)


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
    for each in jobs:
        queue.submit(each)
    until(lambda: jobs[0].status == "running")
    assert [each.ahead for each in jobs] == [0, 1, 2, 3]
    queue.cancel(jobs[1])
    assert [each.ahead for each in jobs] == [0, 0, 1, 2]
    gate.open.set()
    until(lambda: all(each.is_over for each in jobs))
    assert [each.status for each in jobs] == ["done", "cancelled", "done", "done"]
    assert gate.begun == ["0", "2", "3"]
    assert gate.most_at_once == 1


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
    for each in waiting:
        queue.submit(each)
    with pytest.raises(SelfReflectError) as refused:
        queue.submit(job())
    assert refused.value.code == "busy"
    queue.cancel(waiting[0])
    queue.submit(job())
    queue.close(5)
    assert running.status == "cancelled"
    assert {each.status for each in waiting} == {"cancelled"}


def test_what_fails_says_why_without_paths_and_costs_no_other_job() -> None:
    def work(each: Job) -> None:
        if each.question == "expected":
            raise BackendError("no weights in '/home/somebody/models/tiny' at all")
        if each.question == "bug":
            raise ValueError("/home/somebody/secret")

    queue = JobQueue(work)
    jobs = [job("expected"), job("bug"), job("fine")]
    for each in jobs:
        queue.submit(each)
    until(lambda: jobs[-1].is_over)
    assert jobs[0].error == {"code": "backend", "message": "no weights in '…/tiny' at all", "remedy": ""}
    assert jobs[1].error is not None
    assert jobs[1].error["code"] == "internal"
    assert "somebody" not in jobs[1].error["message"]
    assert [each.status for each in jobs] == ["failed", "failed", "done"]


def test_finished_jobs_are_forgotten_and_their_answers_before_them() -> None:
    queue = JobQueue(lambda job: job.show_answers(["Rome"]))
    jobs = [job(str(number)) for number in range(FINISHED + 1)]
    for each in jobs:
        queue.submit(each)
        until(lambda each=each: each.is_over)  # type: ignore[misc]
    until(lambda: queue.get(jobs[0].id) is None)
    assert queue.get(jobs[1].id) is jobs[1]
    until(lambda: [len(each.answers) for each in jobs[-SHOWN - 1 :]] == [0] + [1] * SHOWN)
    assert all(each.request is None for each in jobs)


def test_what_is_shown_of_a_job_grows() -> None:
    shown = job()
    shown.show(stage="answers", done=2, total=8, stage_began=time.time() - 10)
    shown.show(note="")
    shown.show_answers(["Rome", "Lyon", "rome."])
    state = shown.to_dict(2)
    assert (state["stage"], state["note"], state["answers"]) == ("answers", "", ["rome."])
    assert state["groups"] == [[0, 2], [1]]
    assert state["seconds_left"] == pytest.approx(30, abs=3)
    shown.show_answers(["It is Rome.", *map(str, range(96))])
    assert shown.to_dict(0)["groups"][0] == [0, 2, 3]
    # every poll would compare each with each
    shown.show_answers(["a hundred and one"])
    assert shown.to_dict(0)["groups"][0] == [0, 2]


def test_a_stop_is_no_ordinary_exception() -> None:
    each = job()
    each.stop()
    with pytest.raises(StopRequested), suppress(Exception):  # as a strategy or a model library may well write
        each.check()
