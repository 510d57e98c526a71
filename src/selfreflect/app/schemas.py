"""The bodies of requests and answers: what the OpenAPI document is made from, and the limits on what may be
sent."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints, model_validator

MAX_QUESTION = 10_000
MAX_TEXT = 100_000
MAX_ANSWERS = 200
"""Answers per half."""
MAX_SUMMARIES = 8


def _unique(names: list[str]) -> list[str]:
    if len(set(names)) < len(names):
        raise ValueError("each may be given once")
    return names


QuestionText = Annotated[str, StringConstraints(min_length=1, max_length=MAX_QUESTION, pattern=r"\S")]
ModelName = Annotated[str, StringConstraints(min_length=1, max_length=200)]
Text = Annotated[str, StringConstraints(max_length=MAX_TEXT)]
Name = Annotated[str, StringConstraints(min_length=1, max_length=100, pattern=r"\S")]
Half = Annotated[list[Text], Field(min_length=1, max_length=MAX_ANSWERS)]


class RequestBody(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class AskBody(RequestBody):
    """A question for a model: its answers are drawn, every strategy summarises them, and the judge scores the
    summaries."""

    question: QuestionText
    model: ModelName = "smollm2"
    judge: ModelName = "smollm2"
    strategies: Annotated[
        list[Annotated[str, StringConstraints(max_length=100)]],
        Field(min_length=1, max_length=MAX_SUMMARIES),
        AfterValidator(_unique),
    ] = ["sample_and_summarize"]
    num_answers: Annotated[
        int, Field(ge=1, le=MAX_ANSWERS, description="Answers per half; twice as many are drawn.")
    ] = 10
    brief: Annotated[
        bool, Field(description="Ask for answers of a few words, with the prompts of the demo.")
    ] = False
    seed: Annotated[int, Field(ge=0, lt=2**53)] = 0


class ScoreBody(RequestBody):
    """Summaries to score against given answers: one list, which is halved, or both halves."""

    question: QuestionText
    answers: Annotated[list[Text], Field(min_length=2, max_length=2 * MAX_ANSWERS)] | None = None
    masked_out: Half | None = None
    conditioning: Half | None = None
    summaries: Annotated[dict[Name, Text], Field(min_length=1, max_length=MAX_SUMMARIES)]
    judge: ModelName = "smollm2"

    @model_validator(mode="after")
    def _one_way(self) -> ScoreBody:
        given = (self.answers is not None, self.masked_out is not None, self.conditioning is not None)
        if given not in ((True, False, False), (False, True, True)):
            raise ValueError("give either answers, or both masked_out and conditioning")
        return self


class Problem(BaseModel):
    kind: str
    message: str


class ErrorAnswer(BaseModel):
    error: Problem


class JobAnswer(BaseModel):
    id: str
    kind: Literal["ask", "score"]
    question: str
    status: Literal["waiting", "running", "done", "failed", "cancelled"]
    place: Annotated[int, Field(description="How many jobs are before it.")]
    run: Annotated[str | None, Field(description="The run that holds its records, once it has begun.")]
    error: Problem | None
    created: Annotated[float, Field(description="Seconds since 1970.")]


class JobsAnswer(BaseModel):
    jobs: list[JobAnswer]


class ModelChoice(BaseModel):
    name: str
    note: str


class OptionsAnswer(BaseModel):
    """What may be asked for."""

    version: str
    models: list[ModelChoice]
    strategies: list[str]
    meaning: Annotated[
        bool, Field(description="Whether answers can be grouped by meaning; that needs the extra embed.")
    ]
    defaults: AskBody | None = None
    limits: dict[str, int]


class RunEntry(BaseModel):
    id: str
    name: str
    changed: Annotated[float, Field(description="When it was last written to, in seconds since 1970.")]
    question: Annotated[str | None, Field(description="The first question, cut.")]
    questions: int | None
    models: list[str]
    problem: Annotated[str | None, Field(description="Why it cannot be opened.")]


class RunsAnswer(BaseModel):
    runs: list[RunEntry]
    more: Annotated[bool, Field(description="Whether there are more than are listed.")]


class GroupsAnswer(BaseModel):
    answers: Annotated[int, Field(description="How many answers there were to group.")]
    groups: Annotated[
        list[list[int]], Field(description="Indices of answers that mean the same, the typical one first.")
    ]


class StrategyEntry(BaseModel):
    name: str
    mean: float | None
    low: float | None
    high: float | None
    n: int
    failures: int
    pending: int


class QuestionEntry(BaseModel):
    index: int
    question: str
    scores: list[float | None]


class RunAnswer(BaseModel):
    id: str
    name: str
    judge: list[str]
    models: list[str]
    strategies: list[StrategyEntry]
    total: int
    questions: list[QuestionEntry]
