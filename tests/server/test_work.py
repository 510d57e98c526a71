"""What a job shows while it runs, and how it stops."""

from __future__ import annotations

from typing import ClassVar

import pytest
from scripted import Scripted

from selfreflect.models.base import Message, Refusal, Reply, Request, Sampling
from selfreflect.run.models import WorkDone
from selfreflect.server.jobs import Job, StopRequested
from selfreflect.server.work import JobProgress, ShownAnswers


class Inner(Scripted):
    facts: ClassVar[dict[str, str]] = {}


def test_a_stopped_job_ends_at_the_next_pass_of_its_model() -> None:
    job = Job(None, "What first?")
    progress = JobProgress(job)
    with progress.stage("scores", 1):
        progress.add(WorkDone(planned=10))
        job.stop()
        with pytest.raises(StopRequested):
            progress.add(WorkDone(tokens=1))


def test_one_question_that_is_scored_shows_how_much_of_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [100.0]
    monkeypatch.setattr("selfreflect.server.work.time.monotonic", lambda: clock[0])
    job = Job(None, "What first?")
    progress = JobProgress(job)
    done = []
    with progress.stage("scores", 2):
        progress.add(WorkDone(units=2))
        progress.add(WorkDone(planned=1000))
        for _ in range(10):
            clock[0] += 0.25
            progress.add(WorkDone(tokens=50))
            done.append(job.view["done"])
    assert list(dict.fromkeys(done)) == [0.1, 0.5, 0.9], "once a second, in parts of the two summaries"


def test_answers_are_shown_once_each_and_a_refusal_shows_none() -> None:
    request = Request(messages=(Message(role="user", content="?"),), sampling=Sampling(), n=3, seed=10)
    texts = [str(number) for number in range(3)]
    job = Job(None, "?")
    [reply] = ShownAnswers(Inner(lambda request: texts), JobProgress(job)).generate([request])
    assert isinstance(reply, Reply)
    assert list(reply.texts) == job.answers == texts
    refusal = Refusal(kind="too_long", message="no")
    assert ShownAnswers(Inner(lambda _: refusal), JobProgress(job)).generate([request]) == [refusal]
    assert job.answers == texts
