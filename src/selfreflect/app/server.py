"""The application: routes, the answers to errors, and the files of the page."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from functools import partial
from http import HTTPStatus
from importlib import resources
from pathlib import PurePosixPath
from typing import Annotated, Any

from fastapi import APIRouter, FastAPI, Header, Path, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response, StreamingResponse
from msgspec.structs import replace
from starlette.exceptions import HTTPException

from selfreflect import __version__
from selfreflect.app.grouping import Meaning
from selfreflect.app.guard import Access, Guard
from selfreflect.app.jobs import WAITING, Job, JobQueue, QueueFullError
from selfreflect.app.library import Library, RunDirectory, UnknownRunError, models
from selfreflect.app.safe import without_paths
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
    QuestionEntry,
    RunAnswer,
    RunEntry,
    RunsAnswer,
    ScoreBody,
    StrategyEntry,
)
from selfreflect.app.work import ModelChoices
from selfreflect.errors import ConfigError, SelfReflectError
from selfreflect.records import Failure, Question, dump_line
from selfreflect.render.table import to_csv
from selfreflect.report.overview import RunRecords, judges, question_table, strategy_results
from selfreflect.report.page.view import SummaryOutcome, guesses_view, question_view
from selfreflect.strategies import STRATEGIES

_HEARTBEAT = 15.0
"""Seconds after which a silent stream of events says that it is still there."""

_PAGES = {"/": "index.html", "/docs": "docs.html"}

_SHARED = ("style.css", "dom.js", "question.js", "csv.js", "rows.js")
"""What the page takes from the report's."""

_TYPES = {".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
"""Content types of the files of the page. What a machine's own registry says may differ, and a browser runs
no script of another type."""

Id = Annotated[str, Path(pattern="^[0-9a-f]{16}$")]
Index = Annotated[int, Path(ge=0, lt=10**9)]


class _Ascii(JSONResponse):
    """JSON in ASCII: texts of models and files may hold lone surrogates, which cannot be encoded."""

    def render(self, content: Any) -> bytes:
        return json.dumps(content, allow_nan=False, separators=(",", ":")).encode()


def application(
    queue: JobQueue, library: Library, choices: ModelChoices, access: Access, meaning: Meaning
) -> Guard:
    """The whole ASGI application."""
    app = FastAPI(
        title="selfreflect",
        version=__version__,
        description="Ask a question, draw the answer distribution, summarise it, and score how faithful the summaries are.",
        docs_url=None,  # its pages load their scripts from elsewhere
        redoc_url=None,
        openapi_url="/api/openapi.json",
        default_response_class=_Ascii,
        responses={status: {"model": ErrorAnswer} for status in (400, 401, 403, 421, 422)},
    )
    app.include_router(_jobs(queue, choices, meaning), prefix="/api")
    app.include_router(_runs(library, meaning), prefix="/api")
    app.include_router(_page())
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(SelfReflectError, _expected)
    app.add_exception_handler(Exception, _unexpected)
    return Guard(app, access)


def _errors(*statuses: int) -> dict[int | str, dict[str, Any]]:
    return {status: {"model": ErrorAnswer} for status in statuses}


def _jobs(queue: JobQueue, choices: ModelChoices, meaning: Meaning) -> APIRouter:
    routes = APIRouter(tags=["jobs"])

    def submit(body: AskBody | ScoreBody) -> JobAnswer:
        job = Job(body, "ask" if isinstance(body, AskBody) else "score", body.question)
        queue.submit(job)
        return _job(job)

    def known(id_: str) -> Job:
        job = queue.get(id_)
        if job is None:
            raise HTTPException(
                404, "there is no job of that id (any more); what it finished is in the list of runs"
            )
        return job

    @routes.get("/options", summary="What may be asked for")
    def options() -> OptionsAnswer:
        offered = [
            ModelChoice(name=name, note="embedded" if name == "smollm2" else "") for name in choices.offered
        ]
        defaults = AskBody(question="?", model=choices.offered[0], judge=choices.offered[0], brief=True)
        limits = {
            "question": MAX_QUESTION,
            "num_answers": MAX_ANSWERS,
            "strategies": MAX_SUMMARIES,
            "waiting": WAITING,
        }
        return OptionsAnswer(
            version=__version__,
            models=offered,
            strategies=list(STRATEGIES),
            meaning=meaning.installed,
            defaults=defaults,
            limits=limits,
        )

    @routes.post("/ask", status_code=202, responses=_errors(413, 415, 429), summary="Ask a question")
    def ask(body: AskBody) -> JobAnswer:
        for name in (body.model, body.judge):
            choices.resolve(name)
        unknown = [
            name for name in body.strategies if name not in STRATEGIES
        ]  # anyone's own would be code to import
        if unknown:
            raise ConfigError(f"unknown strategy {unknown[0]!r}. Known: {', '.join(STRATEGIES)}")
        return submit(body)

    @routes.post(
        "/score",
        status_code=202,
        responses=_errors(413, 415, 429),
        summary="Score summaries of given answers",
    )
    def score(body: ScoreBody) -> JobAnswer:
        choices.resolve(body.judge)
        return submit(body)

    @routes.get("/jobs", summary="Jobs that wait, run, or have ended lately")
    def jobs() -> JobsAnswer:
        return JobsAnswer(jobs=[_job(job) for job in queue.all()])

    @routes.get("/jobs/{id}", responses=_errors(404), summary="One job")
    def job(id: Id) -> JobAnswer:
        return _job(known(id))

    @routes.post("/jobs/{id}/cancel", status_code=202, responses=_errors(404, 413, 415), summary="Stop a job")
    def cancel(id: Id) -> JobAnswer:
        found = known(id)
        queue.cancel(found)
        return _job(found)

    @routes.get(
        "/jobs/{id}/events",
        responses={**_errors(404), 200: {"content": {"text/event-stream": {"schema": {"type": "string"}}}}},
        response_class=StreamingResponse,
        summary="What a job does, as server-sent events; Last-Event-ID resumes after that event",
    )
    async def events(
        id: Id, last_event_id: Annotated[str | None, Header(max_length=20)] = None
    ) -> StreamingResponse:
        after = (
            int(last_event_id) if last_event_id and last_event_id.isascii() and last_event_id.isdigit() else 0
        )
        return StreamingResponse(_stream(known(id), after), media_type="text/event-stream")

    @routes.get(
        "/jobs/{id}/groups", responses=_errors(404), summary="The answers of a job so far, grouped by meaning"
    )
    async def groups(id: Id) -> GroupsAnswer:
        found = known(id)
        count, grouped = await meaning.groups(lambda: found.events.answers)
        return GroupsAnswer(answers=count, groups=grouped)

    return routes


def _job(job: Job) -> JobAnswer:
    return JobAnswer.model_validate(job, from_attributes=True)


async def _stream(job: Job, after: int) -> AsyncIterator[str]:
    """The job's events from the one after ``after`` on, until the last."""
    loop, news = asyncio.get_running_loop(), asyncio.Event()

    def listener() -> None:
        with suppress(RuntimeError):  # the server has stopped in the meantime
            loop.call_soon_threadsafe(news.set)

    unsubscribe = job.events.subscribe(listener)
    try:
        while True:
            news.clear()
            finished = job.over
            for number, kind, data in job.events.after(after):
                after = number
                yield f"id: {number}\nevent: {kind}\ndata: {data}\n\n"
                if kind == "end":
                    return
            if finished:
                return
            try:
                await asyncio.wait_for(news.wait(), _HEARTBEAT)
            except TimeoutError:
                yield ": waiting\n\n"
    finally:
        unsubscribe()


def _runs(library: Library, meaning: Meaning) -> APIRouter:
    routes = APIRouter(tags=["runs"])

    def asked(id_: str, index: int) -> tuple[RunRecords, Question]:
        records = library.records(id_)
        questions = list(records.questions.values())
        if index >= len(questions):
            raise HTTPException(404, f"this run has {len(questions)} questions")
        return records, questions[index]

    @routes.get("/runs", summary="The run directories under the root, the latest first")
    def runs(
        offset: Annotated[int, Query(ge=0, le=10**6)] = 0, limit: Annotated[int, Query(ge=1, le=100)] = 20
    ) -> RunsAnswer:
        found = library.listing()
        shown = found[offset : offset + limit]
        return RunsAnswer(runs=[_entry(library, one) for one in shown], more=len(found) > offset + limit)

    @routes.get("/runs/{id}", responses=_errors(404), summary="One run: its strategies and questions")
    def run(
        id: Id,
        offset: Annotated[int, Query(ge=0, le=10**9)] = 0,
        limit: Annotated[int, Query(ge=1, le=200)] = 50,
    ) -> RunAnswer:
        records = library.records(id)
        questions = list(records.questions.values())
        used = judges(
            score for (question, _), score in records.scores.items() if question in records.questions
        )
        return RunAnswer(
            id=id,
            name=records.label,
            judge=[without_paths(name) for name in used],
            models=[without_paths(name) for name in models(records)],
            strategies=_strategies(records),
            total=len(questions),
            questions=[
                QuestionEntry(
                    index=index,
                    question=question.text[:300],
                    scores=[
                        one.value if (one := records.scores.get((question.id, name))) else None
                        for name in records.strategies
                    ],
                )
                for index, question in enumerate(questions[offset : offset + limit], offset)
            ],
        )

    @routes.get("/runs/{id}/questions/{index}", responses=_errors(404), summary="One question in full")
    def question(id: Id, index: Index) -> dict[str, Any]:
        return _view(*asked(id, index))

    @routes.get(
        "/runs/{id}/questions/{index}/groups",
        responses=_errors(404),
        summary="The answers to one question, grouped by meaning",
    )
    async def groups(id: Id, index: Index) -> GroupsAnswer:
        def answers() -> Sequence[str]:
            records, question = asked(id, index)
            drawn = records.answers.get(question.id)
            return drawn.answers if drawn else ()

        count, grouped = await meaning.groups(answers)
        return GroupsAnswer(answers=count, groups=grouped)

    @routes.get(
        "/runs/{id}/questions/{index}/guesses",
        responses=_errors(404),
        summary="What the judge held likely in each masked word of one masked-out answer, under one summary; words by their index",
    )
    def guesses(
        id: Id,
        index: Index,
        summary: Annotated[int, Query(ge=0, lt=10**9)],
        answer: Annotated[int, Query(ge=0, lt=10**9)],
    ) -> dict[str, Any]:
        records, question = asked(id, index)
        names = list(records.strategies)
        score = records.scores.get((question.id, names[summary])) if summary < len(names) else None
        drawn = records.answers.get(question.id)
        if score is None or drawn is None:
            raise HTTPException(404, "there is no score of that summary")
        return {str(word): tokens for word, tokens in guesses_view(score, drawn, answer).items()}

    @routes.get(
        "/runs/{id}/export",
        responses={
            **_errors(404),
            200: {"content": {"application/json": {"schema": {"type": "object"}}, "text/csv": {}}},
        },
        response_class=Response,
        summary="All records of a run as JSON, or its scores as CSV",
    )
    def export(
        id: Id, form: Annotated[str, Query(alias="format", pattern="^(json|csv)$")] = "json"
    ) -> Response:
        records = library.records(id)
        text, kind = (
            (to_csv(question_table(records)), "text/csv; charset=utf-8")
            if form == "csv"
            else (_json(records), "application/json")
        )
        headers = {"Content-Disposition": f'attachment; filename="selfreflect-{id}.{form}"'}
        return Response(text.encode("utf-8", "backslashreplace"), media_type=kind, headers=headers)

    return routes


def _entry(library: Library, found: RunDirectory) -> RunEntry:
    entry = partial(RunEntry, id=found.id, name=found.name, changed=found.changed)
    try:
        first, count, used = library.glance(found)
    except SelfReflectError as error:
        return entry(question=None, questions=None, models=[], problem=without_paths(str(error)))
    return entry(question=first, questions=count, models=[without_paths(name) for name in used], problem=None)


def _view(records: RunRecords, question: Question) -> dict[str, Any]:
    behind = records.failure_behind()
    keys = [(question.id, name) for name in records.strategies]
    outcomes = [
        SummaryOutcome(key[1], records.summaries.get(key), records.scores.get(key), _shown(behind.get(key)))
        for key in keys
    ]
    view: dict[str, Any] = question_view(question, records.answers.get(question.id), outcomes, guesses=False)
    alone = [
        failure for failure in records.failures if failure.question_id == question.id and not failure.name
    ]
    return {**view, "problems": [f"{one.kind}: {without_paths(one.message)}" for one in alone]}


def _shown(failure: Failure | None) -> Failure | None:
    return failure and replace(failure, message=without_paths(failure.message))


def _strategies(records: RunRecords) -> list[StrategyEntry]:
    return [
        StrategyEntry(
            name=one.strategy,
            mean=one.score.mean,
            low=one.score.low,
            high=one.score.high,
            n=one.score.n,
            failures=one.failures,
            pending=one.pending,
        )
        for one in strategy_results(records)
    ]


def _json(records: RunRecords) -> str:
    return dump_line(
        {
            "questions": list(records.questions.values()),
            "answers": list(records.answers.values()),
            "summaries": list(records.summaries.values()),
            "scores": list(records.scores.values()),
            "failures": list(records.failures),
        }
    )


def _page() -> APIRouter:
    """The files of the page, read once: what is not among them cannot be asked for."""
    routes = APIRouter(include_in_schema=False)
    shared = resources.files("selfreflect.report") / "page"
    files = {name: (shared / name).read_bytes() for name in _SHARED}
    files |= {
        entry.name: entry.read_bytes() for entry in (resources.files("selfreflect.app") / "static").iterdir()
    }

    def served(name: str) -> Response:
        return Response(files[name], media_type=_TYPES[PurePosixPath(name).suffix])

    def page(name: str) -> Callable[[], Response]:
        return lambda: served(name)

    for path, name in _PAGES.items():
        routes.add_api_route(path, page(name), methods=["GET", "HEAD"])

    @routes.get("/static/{name}")
    def static(name: str) -> Response:
        if name not in files:
            raise HTTPException(404)
        return served(name)

    return routes


def _problem(status: int, kind: str, message: str, headers: Any = None) -> JSONResponse:
    return _Ascii({"error": {"kind": kind, "message": message}}, status, headers)


def _http_error(_: Request, error: Any) -> JSONResponse:
    phrase = HTTPStatus(error.status_code).phrase
    return _problem(
        error.status_code, phrase.lower().replace(" ", "_"), error.detail or phrase, error.headers
    )


def _invalid(_: Request, error: Any) -> JSONResponse:
    """Which field is wrong and why; what was sent is not repeated."""
    lines = [f"{'.'.join(map(str, one['loc'][1:])) or 'body'}: {one['msg']}" for one in error.errors()[:5]]
    return _problem(422, "invalid", without_paths("; ".join(lines)))


def _expected(_: Request, error: Any) -> JSONResponse:
    kind = type(error).__name__.removesuffix("Error").lower()
    if isinstance(error, QueueFullError):
        return _problem(429, "busy", str(error), {"Retry-After": "10"})
    return _problem(404 if isinstance(error, UnknownRunError) else 422, kind, without_paths(str(error)))


def _unexpected(_: Request, error: Any) -> JSONResponse:
    return _problem(
        500, "internal", "Something went wrong. The terminal in which the app was started says what."
    )
