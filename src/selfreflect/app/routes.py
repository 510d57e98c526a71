"""The routes of the API: jobs (ask, score, follow, cancel) and runs (list, open, export)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from inspect import getdoc
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Header, Path, Query, Request
from fastapi.responses import Response, StreamingResponse
from msgspec.structs import replace
from starlette.exceptions import HTTPException

from selfreflect import __version__
from selfreflect.app.checks import Preflight
from selfreflect.app.choices import ModelChoices
from selfreflect.app.jobs import WAITING, Job, JobQueue
from selfreflect.app.library import TITLE, Library
from selfreflect.app.meaning import Meaning
from selfreflect.app.schemas import (
    MAX_ANSWERS,
    MAX_QUESTION,
    MAX_SUMMARIES,
    MAX_TEXT,
    AskBody,
    CheckAnswer,
    ErrorAnswer,
    EstimateAnswer,
    GroupsAnswer,
    JobAnswer,
    JobsAnswer,
    JudgeBody,
    ModelChoice,
    OptionsAnswer,
    QuestionEntry,
    RunAnswer,
    RunsAnswer,
    ScoreBody,
    ScoringEntry,
    ShareEntry,
    StrategyEntry,
)
from selfreflect.app.words import CUT_OFF, in_app_words
from selfreflect.app.work import RunToJudge
from selfreflect.errors import ConfigError, DataError
from selfreflect.records import Question, dump_line
from selfreflect.report.document import question_table
from selfreflect.report.measures import INFORMATION, SELFREFLECT, judges
from selfreflect.report.page.view import guesses_view, question_view
from selfreflect.report.results import StrategyResult, strategy_results
from selfreflect.report.run_records import RunRecords
from selfreflect.strategies import STRATEGIES
from selfreflect.table import to_csv
from selfreflect.traits import traits_of
from selfreflect.web.paths import without_paths

_POLL = 0.1
"""Seconds between two looks for new events of a job."""


@dataclass(frozen=True)
class Services:
    """What all routes share."""

    queue: JobQueue
    library: Library
    models: ModelChoices
    meaning: Meaning
    checks: Preflight


async def _services(request: Request) -> Services:
    services: Services = request.app.state.services
    return services


Shared = Annotated[Services, Depends(_services)]
Id = Annotated[str, Path(pattern="^[0-9a-f]{16}$")]
Index = Annotated[int, Path(ge=0, lt=10**9)]
Place = Annotated[int, Query(ge=0, lt=10**9)]
Scoring = Annotated[
    str, Query(pattern=r"^[a-z0-9.-]{0,80}$", description="A judge, by the id that the run gives it.")
]
Form = Annotated[str, Query(alias="format", pattern="^(json|csv)$")]

Errors = dict[int | str, dict[str, Any]]
_UNKNOWN: Errors = {404: {"model": ErrorAnswer}}
_BAD_BODY: Errors = {413: {"model": ErrorAnswer}, 415: {"model": ErrorAnswer}}
_SUBMITTED: Errors = {**_BAD_BODY, 429: {"model": ErrorAnswer}}
_EVENT_STREAM: Errors = {200: {"content": {"text/event-stream": {"schema": {"type": "string"}}}}}
_EXPORT: Errors = {200: {"content": {"application/json": {"schema": {"type": "object"}}, "text/csv": {}}}}

job_routes = APIRouter(tags=["jobs"])
run_routes = APIRouter(tags=["runs"])


@job_routes.get("/options", summary="List what can be requested")
def options(services: Shared) -> OptionsAnswer:
    models = services.models.offered
    choices = [ModelChoice(name=name, note="embedded" if name == "smollm2" else "") for name in models]
    return OptionsAnswer(
        version=__version__,
        models=choices,
        strategies=list(STRATEGIES),
        about={name: (getdoc(function) or "").partition("\n")[0] for name, function in STRATEGIES.items()},
        server=services.models.server,
        meaning=services.meaning.installed,
        defaults=AskBody.model_validate(
            {
                "question": "?",
                "model": models[0],
                "judge": services.models.judge,
                "measures": traits_of(services.models.judge).measures.split(","),
                "brief": True,
            }
        ),
        limits={
            "question": MAX_QUESTION,
            "context": MAX_TEXT,
            "num_answers": MAX_ANSWERS,
            "strategies": MAX_SUMMARIES,
            "waiting": WAITING,
        },
    )


@job_routes.post(
    "/ask", response_model=JobAnswer, status_code=202, responses=_SUBMITTED, summary="Ask a question"
)
def ask(body: AskBody, services: Shared) -> Any:
    _check_body(body, services)
    return services.queue.submit(Job(body, "ask", body.question))


@job_routes.post(
    "/check",
    responses=_BAD_BODY,
    summary="Check what could fail, before a question is asked; a server is asked for two samples",
)
def check(body: AskBody, services: Shared) -> CheckAnswer:
    _check_body(body, services)
    return services.checks.check(body)


@job_routes.post(
    "/estimate", responses=_BAD_BODY, summary="Estimate what a question takes; no server is asked"
)
def estimate(body: AskBody, services: Shared) -> EstimateAnswer:
    _check_body(body, services)
    return services.checks.estimate(body)


def _check_body(body: AskBody, services: Services) -> None:
    """Raise ConfigError for a model that may not be used, or an unknown strategy."""
    services.models.config(body)
    for name in body.strategies:
        if name not in STRATEGIES:  # the name of a user's own strategy would be code to import
            raise ConfigError(f"unknown strategy {name!r}. Known: {', '.join(STRATEGIES)}")


@job_routes.post(
    "/score",
    response_model=JobAnswer,
    status_code=202,
    responses=_SUBMITTED,
    summary="Score summaries of given answers",
)
def score(body: ScoreBody, services: Shared) -> Any:
    services.models.config(body)
    return services.queue.submit(Job(body, "score", body.question))


@job_routes.get(
    "/jobs", response_model=JobsAnswer, summary="List waiting, running and recently finished jobs"
)
def jobs(services: Shared) -> Any:
    return {"jobs": services.queue.all()}


@job_routes.get("/jobs/{id}", response_model=JobAnswer, responses=_UNKNOWN, summary="Show one job")
def job(id: Id, services: Shared) -> Any:
    return _find_job(services, id)


@job_routes.post(
    "/jobs/{id}/cancel",
    response_model=JobAnswer,
    status_code=202,
    responses={**_UNKNOWN, **_BAD_BODY},
    summary="Cancel a job",
)
def cancel(id: Id, services: Shared) -> Any:
    job = _find_job(services, id)
    services.queue.cancel(job)
    return job


@job_routes.get(
    "/jobs/{id}/events",
    responses={**_UNKNOWN, **_EVENT_STREAM},
    response_class=StreamingResponse,
    summary="Follow a job by server-sent events; Last-Event-ID resumes after that event, and wait=false "
    "ends with the events so far",
)
async def events(
    id: Id,
    services: Shared,
    last_event_id: Annotated[str | None, Header(max_length=20)] = None,
    wait: bool = True,
) -> StreamingResponse:
    number = last_event_id or ""
    after = int(number) if number.isascii() and number.isdigit() else 0
    job = _find_job(services, id)
    return StreamingResponse(_stream(services.queue, job, after, wait), media_type="text/event-stream")


@job_routes.get("/jobs/{id}/groups", responses=_UNKNOWN, summary="Group the answers so far by meaning")
async def job_groups(id: Id, services: Shared) -> GroupsAnswer:
    job = _find_job(services, id)
    count, groups = await services.meaning.groups(lambda: (job.question, job.events.answers))
    return GroupsAnswer(answers=count, groups=groups)


def _find_job(services: Services, id_: str) -> Job:
    job = services.queue.get(id_)
    if job is None:
        raise HTTPException(
            404, "there is no job of that id, or no longer; look for its run in the list of runs"
        )
    return job


async def _stream(queue: JobQueue, job: Job, after: int, wait: bool) -> AsyncIterator[str]:
    """Yield the job's events that follow number ``after``, until its last one or, unless ``wait``, its latest
    one. A queue that is closed ends the stream too: the job may go on for some time."""
    while True:
        over = job.over or queue.closed
        for number, kind, data in job.events.after(after):
            after = number
            yield f"id: {number}\nevent: {kind}\ndata: {data}\n\n"
        if over or not wait:
            return
        await asyncio.sleep(_POLL)


@run_routes.get("/runs", summary="List the run directories under the root, latest first")
def runs(
    services: Shared,
    offset: Annotated[int, Query(ge=0, le=10**6)] = 0,
    limit: Annotated[int, Query(ge=1, le=100)] = 20,
) -> RunsAnswer:
    directories = services.library.listing()
    end = offset + limit
    entries = list(map(services.library.entry, directories[offset:end]))
    return RunsAnswer(runs=entries, more=len(directories) > end)


@run_routes.post(
    "/runs/{id}/judges",
    response_model=JobAnswer,
    status_code=202,
    responses={**_UNKNOWN, **_SUBMITTED},
    summary="Score a run by one more judge, beside the scores that it has",
)
def add_judge(id: Id, body: JudgeBody, services: Shared) -> Any:
    services.models.config(body)
    records = services.library.records(id)
    if not records.summaries:
        raise DataError("this run has no summaries, so there is nothing to score")
    first = next(iter(records.questions.values()), None)
    return services.queue.submit(Job(RunToJudge(id, body), "judge", first.text if first else records.label))


@run_routes.get("/runs/{id}", responses=_UNKNOWN, summary="Show the strategies and questions of a run")
def run(
    id: Id,
    services: Shared,
    offset: Annotated[int, Query(ge=0, le=10**9)] = 0,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
    judge: Scoring = "",
) -> RunAnswer:
    records, labels = services.library.open(id, judge)
    questions = list(records.questions.values())
    page = enumerate(questions[offset : offset + limit], offset)
    scores = [score for (question_id, _), score in records.scores.items() if question_id in records.questions]
    return RunAnswer(
        id=id,
        name=records.label,
        judge=list(map(without_paths, judges(scores))),
        scorings=[ScoringEntry(id=name, judge=label) for name, label in labels.items()],
        scoring=judge,
        models=list(map(without_paths, records.models)),
        strategies=list(map(_strategy_entry, strategy_results(records))),
        total=len(questions),
        questions=[_question_entry(records, index, question) for index, question in page],
    )


@run_routes.get("/runs/{id}/questions/{index}", responses=_UNKNOWN, summary="Show one question in full")
def question(id: Id, index: Index, services: Shared, judge: Scoring = "") -> dict[str, Any]:
    """Guesses are not part of it; they are fetched answer by answer."""
    records, question = _find_question(services, id, index, judge)
    outcomes = []
    for outcome in records.outcomes(question.id):
        if outcome.failure is not None:
            message = " ".join(_in_words(outcome.failure.message)).strip()
            outcome = outcome._replace(failure=replace(outcome.failure, message=message))
        if outcome.information is not None:
            why = without_paths(outcome.information.why)
            outcome = outcome._replace(information=replace(outcome.information, why=why))
        outcomes.append(outcome)
    answers = records.answers.get(question.id)
    controls = records.controls.get(question.id)
    view: dict[str, Any] = question_view(question, answers, outcomes, controls=controls, guesses=False)
    view["groups"].sort(key=lambda group: (-len(group), min(group)))  # as while the answers arrived
    view["problems"] = []
    for failure in records.failures:
        if failure.question_id == question.id and not failure.name:
            message, details = _in_words(failure.message)
            view["problems"].append({"message": message, "details": details})
    cut = {name for (id_, name), one in records.summaries.items() if id_ == question.id and one.truncated}
    for summary in view["summaries"]:
        if summary["name"] in cut:
            summary["warnings"] = [CUT_OFF, *summary["warnings"]]
    return view


def _in_words(message: str) -> tuple[str, str]:
    sentence, details = in_app_words(message)
    return without_paths(sentence), without_paths(details)


@run_routes.get(
    "/runs/{id}/questions/{index}/groups",
    responses=_UNKNOWN,
    summary="Group the answers to one question by meaning",
)
async def question_groups(id: Id, index: Index, services: Shared) -> GroupsAnswer:
    def read() -> tuple[str, Sequence[str]]:
        records, question = _find_question(services, id, index)
        answer_set = records.answers.get(question.id)
        return question.text, answer_set.answers if answer_set else ()

    count, groups = await services.meaning.groups(read)
    return GroupsAnswer(answers=count, groups=groups)


@run_routes.get(
    "/runs/{id}/questions/{index}/guesses",
    responses=_UNKNOWN,
    summary="Show the judge's likeliest tokens for each masked word of one masked-out answer, under one "
    "summary; words by their index",
)
def guesses(
    id: Id, index: Index, summary: Place, answer: Place, services: Shared, judge: Scoring = ""
) -> dict[str, Any]:
    records, question = _find_question(services, id, index, judge)
    answer_set = records.answers.get(question.id)
    names = list(records.strategies)
    score = records.scores.get((question.id, names[summary])) if summary < len(names) else None
    if score is None or answer_set is None:
        raise HTTPException(404, "this summary has no score")
    return {str(word): tokens for word, tokens in guesses_view(score, answer_set, answer).items()}


@run_routes.get(
    "/runs/{id}/export",
    responses={**_UNKNOWN, **_EXPORT},
    response_class=Response,
    summary="Export all records of a run as JSON, or its scores as CSV",
)
def export(id: Id, services: Shared, form: Form = "json", judge: Scoring = "") -> Response:
    records = services.library.records(id, judge)
    if form == "csv":
        text = to_csv(question_table(records))
        media_type = "text/csv; charset=utf-8"
    else:
        text = dump_line(
            {
                "questions": list(records.questions.values()),
                "answers": list(records.answers.values()),
                "summaries": list(records.summaries.values()),
                "scores": list(records.scores.values()),
                "information": list(records.information.values()),
                "controls": list(records.controls.values()),
                "failures": list(records.failures),
            }
        )
        media_type = "application/json"
    headers = {"Content-Disposition": f'attachment; filename="selfreflect-{id}.{form}"'}
    return Response(text.encode("utf-8", "backslashreplace"), media_type=media_type, headers=headers)


def _find_question(services: Services, id_: str, index: int, judge: str = "") -> tuple[RunRecords, Question]:
    records = services.library.records(id_, judge)
    questions = list(records.questions.values())
    if index >= len(questions):
        raise HTTPException(404, f"this run has {len(questions)} questions")
    return records, questions[index]


def _strategy_entry(result: StrategyResult) -> StrategyEntry:
    score, recovered = result.estimate(SELFREFLECT), result.estimate(INFORMATION)
    return StrategyEntry(
        name=result.strategy,
        mean=score.mean,
        low=score.low,
        high=score.high,
        n=score.n,
        told=ShareEntry(share=recovered.mean, low=recovered.low, high=recovered.high, n=recovered.n),
        failures=result.failures,
        pending=result.pending,
    )


def _question_entry(records: RunRecords, index: int, question: Question) -> QuestionEntry:
    values: list[float | None] = []
    shares: list[float | None] = []
    for outcome in records.outcomes(question.id):
        values.append(outcome.score.value if outcome.score else None)
        shares.append(outcome.information.recovered if outcome.information else None)
    return QuestionEntry(index=index, question=question.text[:TITLE], scores=values, shares=shares)
