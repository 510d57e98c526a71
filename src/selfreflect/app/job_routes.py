"""Routes of jobs: ask, score, follow, cancel."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Annotated, Any

from fastapi import APIRouter, Header, Path
from fastapi.responses import StreamingResponse
from starlette.exceptions import HTTPException

from selfreflect import __version__
from selfreflect.app.jobs import WAITING, Job, JobQueue
from selfreflect.app.schemas import (
    MAX_ANSWERS,
    MAX_QUESTION,
    MAX_SUMMARIES,
    AskBody,
    ErrorAnswer,
    GroupsAnswer,
    JobAnswer,
    JobsAnswer,
    ModelChoice,
    OptionsAnswer,
    ScoreBody,
)
from selfreflect.app.services import Shared
from selfreflect.errors import ConfigError
from selfreflect.strategies import STRATEGIES

_HEARTBEAT = 15.0
"""Seconds without an event after which the stream sends a comment, to keep the connection open."""

routes = APIRouter(tags=["jobs"])

Id = Annotated[str, Path(pattern="^[0-9a-f]{16}$")]
Errors = dict[int | str, dict[str, Any]]

_UNKNOWN_JOB: Errors = {404: {"model": ErrorAnswer}}
_BAD_BODY: Errors = {413: {"model": ErrorAnswer}, 415: {"model": ErrorAnswer}}
_BUSY: Errors = {429: {"model": ErrorAnswer}}
_EVENT_STREAM: Errors = {200: {"content": {"text/event-stream": {"schema": {"type": "string"}}}}}


@routes.get("/options", summary="List what can be requested")
def options(services: Shared) -> OptionsAnswer:
    models = services.models.offered
    choices = [ModelChoice(name=name, note="embedded" if name == "smollm2" else "") for name in models]
    return OptionsAnswer(
        version=__version__,
        models=choices,
        strategies=list(STRATEGIES),
        meaning=services.meaning.installed,
        defaults=AskBody(question="?", model=models[0], judge=models[0], brief=True),
        limits={
            "question": MAX_QUESTION,
            "num_answers": MAX_ANSWERS,
            "strategies": MAX_SUMMARIES,
            "waiting": WAITING,
        },
    )


@routes.post("/ask", status_code=202, responses={**_BAD_BODY, **_BUSY}, summary="Ask a question")
def ask(body: AskBody, services: Shared) -> JobAnswer:
    services.models.resolve(body.model)
    services.models.resolve(body.judge)
    for name in body.strategies:
        if name not in STRATEGIES:  # the name of a user's own strategy would be code to import
            raise ConfigError(f"unknown strategy {name!r}. Known: {', '.join(STRATEGIES)}")
    return _submit(services.queue, Job(body, "ask", body.question))


@routes.post(
    "/score",
    status_code=202,
    responses={**_BAD_BODY, **_BUSY},
    summary="Score summaries of given answers",
)
def score(body: ScoreBody, services: Shared) -> JobAnswer:
    services.models.resolve(body.judge)
    return _submit(services.queue, Job(body, "score", body.question))


@routes.get("/jobs", summary="List waiting, running and recently finished jobs")
def jobs(services: Shared) -> JobsAnswer:
    return JobsAnswer(jobs=[_answer(job) for job in services.queue.all()])


@routes.get("/jobs/{id}", responses=_UNKNOWN_JOB, summary="Show one job")
def job(id: Id, services: Shared) -> JobAnswer:
    return _answer(_find(services.queue, id))


@routes.post(
    "/jobs/{id}/cancel", status_code=202, responses={**_UNKNOWN_JOB, **_BAD_BODY}, summary="Cancel a job"
)
def cancel(id: Id, services: Shared) -> JobAnswer:
    job = _find(services.queue, id)
    services.queue.cancel(job)
    return _answer(job)


@routes.get(
    "/jobs/{id}/events",
    responses={**_UNKNOWN_JOB, **_EVENT_STREAM},
    response_class=StreamingResponse,
    summary="Follow a job by server-sent events; Last-Event-ID resumes after that event",
)
async def events(
    id: Id, services: Shared, last_event_id: Annotated[str | None, Header(max_length=20)] = None
) -> StreamingResponse:
    number = last_event_id or ""
    after = int(number) if number.isascii() and number.isdigit() else 0
    return StreamingResponse(_stream(_find(services.queue, id), after), media_type="text/event-stream")


@routes.get("/jobs/{id}/groups", responses=_UNKNOWN_JOB, summary="Group the answers so far by meaning")
async def groups(id: Id, services: Shared) -> GroupsAnswer:
    job = _find(services.queue, id)
    count, grouped = await services.meaning.groups(lambda: job.events.answers)
    return GroupsAnswer(answers=count, groups=grouped)


def _submit(queue: JobQueue, job: Job) -> JobAnswer:
    queue.submit(job)
    return _answer(job)


def _find(queue: JobQueue, id_: str) -> Job:
    job = queue.get(id_)
    if job is None:
        raise HTTPException(
            404, "there is no job of that id, or no longer; look for its run in the list of runs"
        )
    return job


def _answer(job: Job) -> JobAnswer:
    return JobAnswer.model_validate(job, from_attributes=True)


async def _stream(job: Job, after: int) -> AsyncIterator[str]:
    """Yield the job's events that follow number ``after``, until its last one."""
    loop = asyncio.get_running_loop()
    news = asyncio.Event()

    def listener() -> None:
        with suppress(RuntimeError):  # the server has stopped in the meantime
            loop.call_soon_threadsafe(news.set)

    unsubscribe = job.events.subscribe(listener)
    try:
        while True:
            news.clear()
            over = job.over
            for number, kind, data in job.events.after(after):
                after = number
                yield f"id: {number}\nevent: {kind}\ndata: {data}\n\n"
                if kind == "end":
                    return
            if over:
                return
            try:
                await asyncio.wait_for(news.wait(), _HEARTBEAT)
            except TimeoutError:
                yield ": waiting\n\n"
    finally:
        unsubscribe()
