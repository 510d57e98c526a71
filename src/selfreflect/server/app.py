"""The local page: JSON API, files and server."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from dataclasses import replace as replace_fields
from http import HTTPStatus
from importlib import resources
from inspect import getdoc
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import Annotated, Any
from urllib.parse import quote

from fastapi import APIRouter, Depends, FastAPI, Query, Request
from fastapi import Path as InPath
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from msgspec.structs import replace
from starlette.exceptions import HTTPException

from selfreflect import __version__
from selfreflect.errors import ConfigError, SelfReflectError
from selfreflect.metric.measure import Measure, default_measures
from selfreflect.records import Question
from selfreflect.report.measures import run_measures
from selfreflect.report.page.frame import part_html
from selfreflect.report.page.view import guesses_view, question_cells, question_view
from selfreflect.report.results import StrategyResult, strategy_results
from selfreflect.report.run_records import RunRecords
from selfreflect.run.records import is_labelled, labelled_part
from selfreflect.server.connections import HttpServer, log_to_stderr
from selfreflect.server.errors import CUT_OFF, failure_problem, problem, problem_text, without_paths
from selfreflect.server.guard import Access, Guard, Policy
from selfreflect.server.jobs import WAITING, Job, JobQueue
from selfreflect.server.library import TITLE, Library
from selfreflect.server.requests import (
    MAX_ANSWERS,
    MAX_QUESTION,
    MAX_SUMMARIES,
    MAX_TEXT,
    AskBody,
    ErrorAnswer,
    MergeBody,
    ModelChoices,
)
from selfreflect.server.work import PATIENCE, JobProcess
from selfreflect.settings import ExecutionOptions
from selfreflect.strategies import STRATEGIES
from selfreflect.uncertainty.claims.placed import claims_of

MAX_BODY = 1_000_000
"""Maximum size of a request body in bytes."""

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)

HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}

log = logging.getLogger("selfreflect.app")


APP_POLICY = Policy(
    protects=lambda path: path.startswith("/api"),
    refuse=lambda path, status, kind, message, headers: _respond(
        status, {"code": kind, "message": message}, headers
    ),
    headers=HEADERS,
    max_body=MAX_BODY,
    token_advice="The token is missing or wrong. Open the address that the app printed when it started.",
    log=log,
)


@dataclass(frozen=True)
class Services:
    """Objects shared by all routes."""

    queue: JobQueue
    library: Library
    models: ModelChoices


async def _services(request: Request) -> Services:
    services: Services = request.app.state.services
    return services


Shared = Annotated[Services, Depends(_services)]
Id = Annotated[str, InPath(pattern="^[0-9a-f]{16}$")]
Index = Annotated[int, InPath(ge=0, lt=10**9)]
Number = Annotated[int, Query(ge=0, lt=10**9)]

# matplotlib draws one figure at a time.
_DRAWING = threading.Lock()

_UNKNOWN: dict[int | str, dict[str, Any]] = {404: {"model": ErrorAnswer}}
_BAD_BODY: dict[int | str, dict[str, Any]] = {413: {"model": ErrorAnswer}, 415: {"model": ErrorAnswer}}
_SUBMITTED: dict[int | str, dict[str, Any]] = {**_BAD_BODY, 429: {"model": ErrorAnswer}}

routes = APIRouter(prefix="/api")


@routes.get("/options", summary="List what can be requested")
def options(services: Shared) -> dict[str, Any]:
    models = services.models.offered
    judge = services.models.judge
    defaults = AskBody(
        question="?",
        model=models[0],
        judge=judge,
        measures=list(default_measures(judge)),
        brief=True,
    )
    return {
        "version": __version__,
        "models": [{"name": name, "note": "embedded" if name == "smollm2" else ""} for name in models],
        "strategies": list(STRATEGIES),
        "about": {name: (getdoc(function) or "").partition("\n")[0] for name, function in STRATEGIES.items()},
        "server": services.models.server,
        "defaults": defaults.model_dump(),
        "limits": {
            "question": MAX_QUESTION,
            "context": MAX_TEXT,
            "num_answers": MAX_ANSWERS,
            "strategies": MAX_SUMMARIES,
            "waiting": WAITING,
        },
    }


@routes.post("/ask", status_code=202, responses=_SUBMITTED, summary="Ask a question")
def ask(body: AskBody, services: Shared) -> dict[str, Any]:
    # refuses what could not run before it waits in the queue
    services.models.config(body)
    for name in body.strategies:
        if name not in STRATEGIES:  # the name of a user's own strategy would be code to import
            raise ConfigError(f"unknown strategy {name!r}. Known: {', '.join(STRATEGIES)}")
    return services.queue.submit(Job(body, body.question)).to_dict()


@routes.get("/jobs", summary="List waiting, running and recently finished jobs")
def jobs(services: Shared) -> dict[str, Any]:
    return {"jobs": [job.to_dict() for job in services.queue.all()]}


@routes.get(
    "/jobs/{id}",
    responses=_UNKNOWN,
    summary="Show a job and its results so far, with the answers from number `after` on",
)
def job(id: Id, services: Shared, after: Number = 0) -> dict[str, Any]:
    return _find_job(services, id).to_dict(after)


@routes.post(
    "/jobs/{id}/cancel", status_code=202, responses={**_UNKNOWN, **_BAD_BODY}, summary="Cancel a job"
)
def cancel(id: Id, services: Shared) -> dict[str, Any]:
    job = _find_job(services, id)
    services.queue.cancel(job)
    return job.to_dict()


def _find_job(services: Services, id_: str) -> Job:
    job = services.queue.get(id_)
    if job is None:
        raise HTTPException(
            404, "no job with this id is waiting, running or recent; look for its run in the list of runs"
        )
    return job


@routes.get("/runs", summary="List the run directories under the root, latest first")
def runs(
    services: Shared,
    offset: Annotated[int, Query(ge=0, le=10**6)] = 0,
    limit: Annotated[int, Query(ge=1, le=100)] = 20,
) -> dict[str, Any]:
    directories = services.library.listing()
    end = offset + limit
    entries = list(map(services.library.entry, directories[offset:end]))
    return {"runs": entries, "more": len(directories) > end}


@routes.get("/runs/{id}", responses=_UNKNOWN, summary="Show the strategies and questions of a run")
def run(
    id: Id,
    services: Shared,
    offset: Number = 0,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
) -> dict[str, Any]:
    records = services.library.records(id)
    measures = run_measures(records)
    page = dict(islice(records.questions.items(), offset, offset + limit))
    cells = question_cells(replace_fields(records, questions=page), measures)
    judges = {
        without_paths(measure.settings_text(record))
        for measure in measures
        for (question_id, _), record in records.results(measure).items()
        if question_id in records.questions
    }
    return {
        "id": id,
        "name": records.label,
        "judge": sorted(judges),
        "models": list(map(without_paths, records.models)),
        "measures": [{"heading": measure.heading, "title": measure.title} for measure in measures],
        "strategies": [_strategy_entry(result, measures) for result in strategy_results(records)],
        "labelled": is_labelled(records),
        "total": len(records.questions),
        "questions": [
            {
                "index": index,
                "question": question.text[:TITLE],
                "cells": [[text for _, text in row] for row in cells[question.id]],
            }
            for index, question in enumerate(page.values(), offset)
        ],
    }


@routes.get(
    "/runs/{id}/uncertainty",
    responses=_UNKNOWN,
    summary="Show how well uncertainty predicts correctness, and what may be shown at each risk",
)
def uncertainty(id: Id, services: Shared) -> dict[str, Any]:
    """Show a run's uncertainty as an escaped HTML section; null without right answers."""
    records = services.library.records(id)
    with _DRAWING:
        part = labelled_part(records, "uncertainty")
    return {"html": part and part_html(part), "csv": part.csv if part else {}}


@routes.get("/runs/{id}/questions/{index}", responses=_UNKNOWN, summary="Show one question in full")
def question(id: Id, index: Index, services: Shared) -> dict[str, Any]:
    """Show a question without guesses, which are fetched per answer."""
    records, question = _find_question(services, id, index)
    outcomes = []
    for outcome in records.outcomes(question.id):
        if outcome.failure is not None:
            message = problem_text(failure_problem(outcome.failure))
            outcome = outcome._replace(failure=replace(outcome.failure, message=message))
        if outcome.information is not None:
            why = without_paths(outcome.information.why)
            outcome = outcome._replace(information=replace(outcome.information, why=why))
        outcomes.append(outcome)
    answers = records.answers.get(question.id)
    controls = records.controls.get(question.id)
    view: dict[str, Any] = question_view(
        question,
        answers,
        outcomes,
        merged=records.merged_texts(question.id),
        controls=controls,
        guesses=False,
        claims_of=claims_of,
    )
    view["problems"] = [
        failure_problem(failure)
        for failure in records.failures
        if failure.question_id == question.id and not failure.name
    ]
    cut = {
        name for (id_, name), summary in records.summaries.items() if id_ == question.id and summary.truncated
    }
    for summary in view["summaries"]:
        if summary["name"] in cut:
            summary["warnings"] = [CUT_OFF, *summary["warnings"]]
    return view


@routes.post(
    "/runs/{id}/questions/{index}/merged",
    responses={**_UNKNOWN, **_BAD_BODY},
    summary="Merge the groups of some answers to a question, by their index; none undoes all merges",
)
def merge_answers(id: Id, index: Index, body: MergeBody, services: Shared) -> dict[str, Any]:
    records, question = _find_question(services, id, index)
    answers = records.answers.get(question.id)
    texts = answers.answers if answers else ()
    if any(number >= len(texts) for number in body.answers):
        raise HTTPException(404, f"this question has {len(texts)} answers")
    texts_to_merge = dict.fromkeys(texts[number] for number in body.answers)
    if len(texts_to_merge) == 1:
        raise HTTPException(422, "a merge needs answers from two groups, but these have the same text")
    return {"merged": services.library.merge_answers(id, question.id, list(texts_to_merge))}


@routes.get(
    "/runs/{id}/questions/{index}/guesses",
    responses=_UNKNOWN,
    summary="Show the judge's likeliest tokens for each masked word of one test answer, under one "
    "summary; words by their index",
)
def guesses(id: Id, index: Index, summary: Number, answer: Number, services: Shared) -> dict[str, Any]:
    records, question = _find_question(services, id, index)
    answer_set = records.answers.get(question.id)
    names = list(records.strategies)
    score = records.scores.get((question.id, names[summary])) if summary < len(names) else None
    if score is None or answer_set is None:
        raise HTTPException(404, "this summary has no score")
    return {str(word): tokens for word, tokens in guesses_view(score, answer_set, answer).items()}


def _find_question(services: Services, id_: str, index: int) -> tuple[RunRecords, Question]:
    records = services.library.records(id_)
    questions = list(records.questions.values())
    if index >= len(questions):
        raise HTTPException(404, f"this run has {len(questions)} questions")
    return records, questions[index]


def _strategy_entry(result: StrategyResult, measures: Sequence[Measure]) -> dict[str, Any]:
    values = []
    for measure in measures:
        estimate = result.estimate(measure)
        mean, low, high = (
            None if value is None else measure.text(value)
            for value in (estimate.mean, estimate.low, estimate.high)
        )
        interval = None if low is None else f"{low} to {high}"
        values.append({"mean": mean, "interval": interval, "n": estimate.n})
    name, failures, pending = result.strategy, result.failures, result.pending
    return {"name": name, "values": values, "failures": failures, "pending": pending}


# Files that the page shares with the report page.
_REPORT_FILES = (
    "style.css",
    "dom.js",
    "bits.js",
    "agreement.js",
    "claims.js",
    "question.js",
    "csv.js",
    "frame.js",
    "rows.js",
)

# Content types by suffix, because the machine's own registry may be wrong, and browsers refuse
# scripts of another type.
_TYPES = {".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}


# Seconds that the running job has to end, or its process to be killed, when the server stops.
_SHUTDOWN = PATIENCE + 5.0


class _AsciiResponse(JSONResponse):
    """JSON response in ASCII, since texts may hold lone surrogates."""

    def render(self, content: Any) -> bytes:
        return json.dumps(content, allow_nan=False, separators=(",", ":")).encode()


def application(services: Services, access: Access) -> Guard:
    """Build the application with its guard."""
    app = FastAPI(
        title="selfreflect",
        version=__version__,
        description="Ask a question, draw the answer distribution, summarise it, and score how faithful the "
        "summaries are.",
        docs_url=None,  # FastAPI's pages load scripts from other sites
        redoc_url=None,
        openapi_url="/api/openapi.json",
        default_response_class=_AsciiResponse,
        responses={status: {"model": ErrorAnswer} for status in (400, 401, 403, 421, 422)},
    )
    app.state.services = services
    app.include_router(routes)
    app.include_router(_page_routes())
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(RequestValidationError, _invalid_request)
    app.add_exception_handler(SelfReflectError, _failure)
    app.add_exception_handler(Exception, _failure)
    return Guard(app, access, APP_POLICY)


def _page_routes() -> APIRouter:
    """Make the routes ``/`` and ``/static/NAME``, from files that are read once."""
    routes = APIRouter(include_in_schema=False)
    report = resources.files("selfreflect.report") / "page"
    # read once: no request can name another file
    files = {name: (report / name).read_bytes() for name in _REPORT_FILES}
    for file in (resources.files("selfreflect.server") / "static").iterdir():
        files[file.name] = file.read_bytes()

    @routes.get("/static/{name}")
    def static(name: str) -> Response:
        if name not in files:
            raise HTTPException(404)
        return Response(files[name], media_type=_TYPES[PurePosixPath(name).suffix])

    @routes.api_route("/", methods=["GET", "HEAD"])
    def index() -> Response:
        return static("index.html")

    return routes


def _respond(status: int, error: dict[str, str], headers: Any = None) -> JSONResponse:
    return _AsciiResponse({"error": {"remedy": "", **error}}, status, headers)


def _http_error(_: Request, error: Any) -> JSONResponse:
    phrase = HTTPStatus(error.status_code).phrase
    code = "too_large" if error.status_code == 413 else phrase.lower().replace(" ", "_")
    return _respond(error.status_code, {"code": code, "message": error.detail or phrase}, error.headers)


def _invalid_request(_: Request, error: Any) -> JSONResponse:
    """Name each wrong field with the reason, without repeating its value."""
    lines = []
    for failure in error.errors()[:5]:
        # the first part says whether it was in the body or the query
        field = ".".join(map(str, failure["loc"][1:])) or "body"
        lines.append(f"{field}: {failure['msg']}")
    return _respond(422, {"code": "invalid", "message": without_paths("; ".join(lines))})


# HTTP statuses of errors by their code. Any other error on purpose is 422, an unexpected one 500.
_STATUS = {"busy": 429, "unknown_run": 404}


def _failure(_: Request, error: Any) -> JSONResponse:
    entry = problem(error)
    status = _STATUS.get(entry["code"], 422 if isinstance(error, SelfReflectError) else 500)
    return _respond(status, entry, {"Retry-After": "10"} if status == 429 else None)


def url(host: str, port: int, token: str | None) -> str:
    """Write the address to open, with the token in the fragment, which browsers do not send."""
    name = socket.gethostname() if host in ("0.0.0.0", "::") else host
    if ":" in name:
        name = f"[{name}]"
    fragment = f"#token={quote(token, safe='')}" if token else ""
    return f"http://{name}:{port}/{fragment}"


def serve(
    bound: socket.socket, root: Path, *, models: ModelChoices, options: ExecutionOptions, allowed: Access
) -> None:
    """Serve until SIGINT or SIGTERM, which also stop the running job."""
    log_to_stderr(logging.getLogger("selfreflect.app"))
    library = Library(root)
    work = JobProcess(root, models, options)
    queue = JobQueue(work)
    services = Services(queue, library, models)
    try:
        AppServer(services, allowed).run([bound])
    finally:
        work.close()


class AppServer(HttpServer):
    """A server that stops its jobs and their event streams when it ends."""

    def __init__(self, services: Services, allowed: Access) -> None:
        super().__init__(application(services, allowed))
        self._queue = services.queue

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        # before the connections, or a running job would hold them up
        self._queue.close()
        await super().shutdown(sockets)
        await asyncio.to_thread(self._queue.close, _SHUTDOWN)  # after SIGTERM nothing follows
