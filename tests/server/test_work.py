"""What a job shows while it runs, and how it stops."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from selfreflect.models.base import Completion, Message, Refusal, Reply, Request, Sample, Sampling
from selfreflect.run.models import RequestProgress, WorkDone
from selfreflect.server.jobs import Job, StopRequested
from selfreflect.server.work import JobProgress


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
    texts = [Completion(text=str(number), finish="stop", tokens=1) for number in range(3)]
    job = Job(SimpleNamespace(num_answers=3), "?")
    progress = JobProgress(job)
    watch = RequestProgress(None, progress)
    with progress.stage("answers", 1):
        tell = watch([request, request])
        tell(0, Sample(index=1, completion=texts[1]))
        assert job.answers == ["1"]
        tell(0, Reply(completions=tuple(texts)))
        assert (job.answers, job.view["done"]) == (["1", "0", "2"], 3)
        tell(1, Refusal(kind="too_long", message="no"))
        assert job.answers == ["1", "0", "2"]
    with progress.stage("summaries", 1):
        watch([request])(0, Reply(completions=tuple(texts)))
        assert len(job.answers) == 3
