"""The routes of the API: jobs (ask, score, follow, cancel) and runs (list, open, export)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from inspect import getdoc
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Query, Request
from fastapi.responses import Response
from msgspec.structs import replace
from starlette.exceptions import HTTPException

from selfreflect import __version__
from selfreflect.app.checks import Preflight
from selfreflect.app.choices import ModelChoices
from selfreflect.app.guard import CUT_OFF, failure_problem, problem_text
from selfreflect.app.jobs import WAITING, Job, JobQueue
from selfreflect.app.library import TITLE, Library
from selfreflect.app.meaning import Meaning
from selfreflect.app.schemas import (
    MAX_ANSWERS,
    MAX_QUESTION,
    MAX_SUMMARIES,
    MAX_TEXT,
    AskBody,
    ErrorAnswer,
    JudgeBody,
    ScoreBody,
)
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
Number = Annotated[int, Query(ge=0, lt=10**9)]
Scoring = Annotated[
    str, Query(pattern=r"^[a-z0-9.-]{0,80}$", description="A judge, by the id that the run gives it.")
]
Form = Annotated[str, Query(alias="format", pattern="^(json|csv)$")]

_UNKNOWN: dict[int | str, dict[str, Any]] = {404: {"model": ErrorAnswer}}
_BAD_BODY: dict[int | str, dict[str, Any]] = {413: {"model": ErrorAnswer}, 415: {"model": ErrorAnswer}}
_SUBMITTED: dict[int | str, dict[str, Any]] = {**_BAD_BODY, 429: {"model": ErrorAnswer}}
_EXPORT: dict[int | str, dict[str, Any]] = {
    200: {"content": {"application/json": {"schema": {"type": "object"}}, "text/csv": {}}}
}

routes = APIRouter(prefix="/api")


@routes.get("/options", summary="List what can be requested")
def options(services: Shared) -> dict[str, Any]:
    models = services.models.offered
    judge = services.models.judge
    defaults = AskBody(
        question="?",
        model=models[0],
        judge=judge,
        measures=traits_of(judge).measures.split(","),  # type: ignore[arg-type]
        brief=True,
    )
    return {
        "version": __version__,
        "models": [{"name": name, "note": "embedded" if name == "smollm2" else ""} for name in models],
        "strategies": list(STRATEGIES),
        "about": {name: (getdoc(function) or "").partition("\n")[0] for name, function in STRATEGIES.items()},
        "server": services.models.server,
        "meaning": services.meaning.installed,
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
    _check_body(body, services)
    return services.queue.submit(Job(body, "ask", body.question)).to_dict()


@routes.post(
    "/check",
    responses=_BAD_BODY,
    summary="Check what could fail, before a question is asked; a server is asked for two samples",
)
def check(body: AskBody, services: Shared) -> dict[str, Any]:
    _check_body(body, services)
    return services.checks.check(body)


@routes.post("/estimate", responses=_BAD_BODY, summary="Count what a question takes; no server is asked")
def estimate(body: AskBody, services: Shared) -> dict[str, Any]:
    _check_body(body, services)
    return services.checks.estimate(body)


def _check_body(body: AskBody, services: Services) -> None:
    """Raise ConfigError for a model that may not be used, or an unknown strategy."""
    services.models.config(body)
    for name in body.strategies:
        if name not in STRATEGIES:  # the name of a user's own strategy would be code to import
            raise ConfigError(f"unknown strategy {name!r}. Known: {', '.join(STRATEGIES)}")


@routes.post("/score", status_code=202, responses=_SUBMITTED, summary="Score summaries of given answers")
def score(body: ScoreBody, services: Shared) -> dict[str, Any]:
    services.models.config(body)
    return services.queue.submit(Job(body, "score", body.question)).to_dict()


@routes.get("/jobs", summary="List waiting, running and recently finished jobs")
def jobs(services: Shared) -> dict[str, Any]:
    return {"jobs": [job.to_dict() for job in services.queue.all()]}


@routes.get(
    "/jobs/{id}",
    responses=_UNKNOWN,
    summary="Show a job and what has come of it so far, with the answers from number `after` on",
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
            404, "there is no job of that id, or no longer; look for its run in the list of runs"
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


@routes.post(
    "/runs/{id}/judges",
    status_code=202,
    responses={**_UNKNOWN, **_SUBMITTED},
    summary="Score a run by one more judge, beside the scores that it has",
)
def add_judge(id: Id, body: JudgeBody, services: Shared) -> dict[str, Any]:
    services.models.config(body)
    records = services.library.records(id)
    if not records.summaries:
        raise DataError("this run has no summaries, so there is nothing to score")
    first = next(iter(records.questions.values()), None)
    title = first.text if first else records.label
    return services.queue.submit(Job(RunToJudge(id, body), "judge", title)).to_dict()


@routes.get("/runs/{id}", responses=_UNKNOWN, summary="Show the strategies and questions of a run")
def run(
    id: Id,
    services: Shared,
    offset: Number = 0,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
    judge: Scoring = "",
) -> dict[str, Any]:
    records, labels = services.library.open(id, judge)
    questions = list(records.questions.values())
    page = enumerate(questions[offset : offset + limit], offset)
    scores = [score for (question_id, _), score in records.scores.items() if question_id in records.questions]
    return {
        "id": id,
        "name": records.label,
        "judge": list(map(without_paths, judges(scores))),
        "scorings": [{"id": name, "judge": label} for name, label in labels.items()],
        "scoring": judge,
        "models": list(map(without_paths, records.models)),
        "strategies": list(map(_strategy_entry, strategy_results(records))),
        "total": len(questions),
        "questions": [_question_entry(records, index, question) for index, question in page],
    }


@routes.get("/runs/{id}/questions/{index}", responses=_UNKNOWN, summary="Show one question in full")
def question(id: Id, index: Index, services: Shared, judge: Scoring = "") -> dict[str, Any]:
    """Guesses are not part of it; they are fetched answer by answer."""
    records, question = _find_question(services, id, index, judge)
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
    view: dict[str, Any] = question_view(question, answers, outcomes, controls=controls, guesses=False)
    view["groups"].sort(key=lambda group: (-len(group), min(group)))  # as while the answers arrived
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


@routes.get(
    "/runs/{id}/questions/{index}/groups",
    responses=_UNKNOWN,
    summary="Group the answers to one question by meaning",
)
async def question_groups(id: Id, index: Index, services: Shared) -> dict[str, Any]:
    def read() -> tuple[str, Sequence[str]]:
        records, question = _find_question(services, id, index)
        answer_set = records.answers.get(question.id)
        return question.text, answer_set.answers if answer_set else ()

    count, groups = await services.meaning.groups(read)
    return {"answers": count, "groups": groups}


@routes.get(
    "/runs/{id}/questions/{index}/guesses",
    responses=_UNKNOWN,
    summary="Show the judge's likeliest tokens for each masked word of one masked-out answer, under one "
    "summary; words by their index",
)
def guesses(
    id: Id, index: Index, summary: Number, answer: Number, services: Shared, judge: Scoring = ""
) -> dict[str, Any]:
    records, question = _find_question(services, id, index, judge)
    answer_set = records.answers.get(question.id)
    names = list(records.strategies)
    score = records.scores.get((question.id, names[summary])) if summary < len(names) else None
    if score is None or answer_set is None:
        raise HTTPException(404, "this summary has no score")
    return {str(word): tokens for word, tokens in guesses_view(score, answer_set, answer).items()}


@routes.get(
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


def _strategy_entry(result: StrategyResult) -> dict[str, Any]:
    score, recovered = result.estimate(SELFREFLECT), result.estimate(INFORMATION)
    share = {"share": recovered.mean, "low": recovered.low, "high": recovered.high, "n": recovered.n}
    return {
        "name": result.strategy,
        **{"mean": score.mean, "low": score.low, "high": score.high, "n": score.n},
        "told": share,
        "failures": result.failures,
        "pending": result.pending,
    }


def _question_entry(records: RunRecords, index: int, question: Question) -> dict[str, Any]:
    outcomes = records.outcomes(question.id)
    return {
        "index": index,
        "question": question.text[:TITLE],
        "scores": [outcome.score.value if outcome.score else None for outcome in outcomes],
        "shares": [outcome.information.recovered if outcome.information else None for outcome in outcomes],
    }
