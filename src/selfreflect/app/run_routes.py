"""Routes of runs: list, open, export."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query
from fastapi.responses import Response
from msgspec.structs import replace
from starlette.exceptions import HTTPException

from selfreflect.app.library import Library
from selfreflect.app.safe import without_paths
from selfreflect.app.schemas import (
    ErrorAnswer,
    GroupsAnswer,
    QuestionEntry,
    RunAnswer,
    RunsAnswer,
    StrategyEntry,
)
from selfreflect.app.services import Shared
from selfreflect.records import Question, dump_line
from selfreflect.render.table import to_csv
from selfreflect.report.overview import judges, question_table, strategy_results
from selfreflect.report.page.view import guesses_view, question_view
from selfreflect.report.run_records import RunRecords

_TITLE = 300
"""Characters of a question that a list shows."""

routes = APIRouter(tags=["runs"])

Id = Annotated[str, Path(pattern="^[0-9a-f]{16}$")]
Index = Annotated[int, Path(ge=0, lt=10**9)]
Place = Annotated[int, Query(ge=0, lt=10**9)]

_UNKNOWN_RUN: dict[int | str, dict[str, Any]] = {404: {"model": ErrorAnswer}}
_EXPORT: dict[int | str, dict[str, Any]] = {
    200: {"content": {"application/json": {"schema": {"type": "object"}}, "text/csv": {}}}
}


@routes.get("/runs", summary="List the run directories under the root, latest first")
def runs(
    services: Shared,
    offset: Annotated[int, Query(ge=0, le=10**6)] = 0,
    limit: Annotated[int, Query(ge=1, le=100)] = 20,
) -> RunsAnswer:
    directories = services.library.listing()
    end = offset + limit
    entries = [services.library.entry(directory) for directory in directories[offset:end]]
    return RunsAnswer(runs=entries, more=len(directories) > end)


@routes.get("/runs/{id}", responses=_UNKNOWN_RUN, summary="Show the strategies and questions of a run")
def run(
    id: Id,
    services: Shared,
    offset: Annotated[int, Query(ge=0, le=10**9)] = 0,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
) -> RunAnswer:
    records = services.library.records(id)
    questions = list(records.questions.values())
    shown = enumerate(questions[offset : offset + limit], offset)
    models = dict.fromkeys(answers.model for answers in records.answers.values() if answers.model)
    scores = [score for (question_id, _), score in records.scores.items() if question_id in records.questions]
    return RunAnswer(
        id=id,
        name=records.label,
        judge=[without_paths(judge) for judge in judges(scores)],
        models=[without_paths(model) for model in models],
        strategies=_strategy_entries(records),
        total=len(questions),
        questions=[_question_entry(records, index, question) for index, question in shown],
    )


@routes.get("/runs/{id}/questions/{index}", responses=_UNKNOWN_RUN, summary="Show one question in full")
def question(id: Id, index: Index, services: Shared) -> dict[str, Any]:
    return _view(*_find_question(services.library, id, index))


@routes.get(
    "/runs/{id}/questions/{index}/groups",
    responses=_UNKNOWN_RUN,
    summary="Group the answers to one question by meaning",
)
async def groups(id: Id, index: Index, services: Shared) -> GroupsAnswer:
    def answers() -> Sequence[str]:
        records, question = _find_question(services.library, id, index)
        answer_set = records.answers.get(question.id)
        return answer_set.answers if answer_set else ()

    count, grouped = await services.meaning.groups(answers)
    return GroupsAnswer(answers=count, groups=grouped)


@routes.get(
    "/runs/{id}/questions/{index}/guesses",
    responses=_UNKNOWN_RUN,
    summary="Show the judge's likeliest tokens for each masked word of one masked-out answer, under one "
    "summary; words by their index",
)
def guesses(id: Id, index: Index, summary: Place, answer: Place, services: Shared) -> dict[str, Any]:
    records, question = _find_question(services.library, id, index)
    answer_set = records.answers.get(question.id)
    names = list(records.strategies)
    score = records.scores.get((question.id, names[summary])) if summary < len(names) else None
    if score is None or answer_set is None:
        raise HTTPException(404, "this summary has no score")
    return {str(word): tokens for word, tokens in guesses_view(score, answer_set, answer).items()}


@routes.get(
    "/runs/{id}/export",
    responses={**_UNKNOWN_RUN, **_EXPORT},
    response_class=Response,
    summary="Export all records of a run as JSON, or its scores as CSV",
)
def export(
    id: Id,
    services: Shared,
    form: Annotated[str, Query(alias="format", pattern="^(json|csv)$")] = "json",
) -> Response:
    records = services.library.records(id)
    if form == "csv":
        text = to_csv(question_table(records))
        media_type = "text/csv; charset=utf-8"
    else:
        text = _to_json(records)
        media_type = "application/json"
    headers = {"Content-Disposition": f'attachment; filename="selfreflect-{id}.{form}"'}
    return Response(text.encode("utf-8", "backslashreplace"), media_type=media_type, headers=headers)


def _find_question(library: Library, id_: str, index: int) -> tuple[RunRecords, Question]:
    records = library.records(id_)
    questions = list(records.questions.values())
    if index >= len(questions):
        raise HTTPException(404, f"this run has {len(questions)} questions")
    return records, questions[index]


def _strategy_entries(records: RunRecords) -> list[StrategyEntry]:
    entries = []
    for result in strategy_results(records):
        score = result.score
        entries.append(
            StrategyEntry(
                name=result.strategy,
                mean=score.mean,
                low=score.low,
                high=score.high,
                n=score.n,
                failures=result.failures,
                pending=result.pending,
            )
        )
    return entries


def _question_entry(records: RunRecords, index: int, question: Question) -> QuestionEntry:
    scores = [records.scores.get((question.id, name)) for name in records.strategies]
    values = [score.value if score else None for score in scores]
    return QuestionEntry(index=index, question=question.text[:_TITLE], scores=values)


def _view(records: RunRecords, question: Question) -> dict[str, Any]:
    """What the page shows of one question; guesses are fetched answer by answer."""
    outcomes = []
    for outcome in records.outcomes(question.id):
        if outcome.failure is not None:
            message = without_paths(outcome.failure.message)
            outcome = outcome._replace(failure=replace(outcome.failure, message=message))
        outcomes.append(outcome)
    view: dict[str, Any] = question_view(question, records.answers.get(question.id), outcomes, guesses=False)
    view["problems"] = []
    for failure in records.failures:
        if failure.question_id == question.id and not failure.name:
            view["problems"].append(f"{failure.kind}: {without_paths(failure.message)}")
    return view


def _to_json(records: RunRecords) -> str:
    return dump_line(
        {
            "questions": list(records.questions.values()),
            "answers": list(records.answers.values()),
            "summaries": list(records.summaries.values()),
            "scores": list(records.scores.values()),
            "failures": list(records.failures),
        }
    )
