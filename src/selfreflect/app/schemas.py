"""JSON bodies of requests and responses, with their limits. FastAPI makes the OpenAPI document from them."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints, model_validator

from selfreflect.app.jobs import Kind, Status

MAX_QUESTION = 10_000
MAX_TEXT = 100_000
MAX_ANSWERS = 200
"""Answers per half."""
MAX_SUMMARIES = 8


def _unique(names: list[str]) -> list[str]:
    if len(set(names)) < len(names):
        raise ValueError("name each one once")
    return names


QuestionText = Annotated[str, StringConstraints(min_length=1, max_length=MAX_QUESTION, pattern=r"\S")]
ModelName = Annotated[str, StringConstraints(min_length=1, max_length=200)]
Text = Annotated[str, StringConstraints(max_length=MAX_TEXT)]
Name = Annotated[str, StringConstraints(min_length=1, max_length=100, pattern=r"\S")]
Half = Annotated[list[Text], Field(min_length=1, max_length=MAX_ANSWERS)]


class JudgeBody(BaseModel):
    """Scores a finished run with one more judge."""

    model_config = ConfigDict(extra="forbid", strict=True)

    judge: ModelName = "smollm2"
    measures: (
        Annotated[list[Literal["selfreflect", "information"]], Field(min_length=1), AfterValidator(_unique)]
        | None
    ) = Field(default=None, description="By default what suits the judge.")
    reader: Literal["auto", "informed", "blind"] = Field(
        default="auto", description="Whether the judge sees the question when information is measured."
    )


class RequestBody(JudgeBody):
    """A question, and how its summaries are measured."""

    question: QuestionText
    context: Text = Field(default="", description="What the model reads with it, and the judge does not.")


class AskBody(RequestBody):
    """Draws the answers to a question, makes a summary with every strategy, and scores the summaries."""

    model: ModelName = "smollm2"
    strategies: Annotated[
        list[Annotated[str, StringConstraints(max_length=100)]],
        Field(min_length=1, max_length=MAX_SUMMARIES),
        AfterValidator(_unique),
    ] = ["greedy", "basic"]
    num_answers: int = Field(
        default=10, ge=1, le=MAX_ANSWERS, description="Answers per half; twice as many are drawn."
    )
    temperature: float | None = Field(
        default=None, ge=0, le=100, description="Of the answers; by default what suits the model."
    )
    top_p: float | None = Field(default=None, gt=0, le=1)
    answer_tokens: int = Field(default=64, ge=1, le=4096, description="Maximum tokens per answer.")
    summary_tokens: int = Field(default=256, ge=1, le=4096, description="Maximum tokens per summary.")
    brief: bool = Field(default=False, description="Ask for answers of a few words, with the demo's prompts.")
    seed: int = Field(default=0, ge=0, lt=2**53)


class ScoreBody(RequestBody):
    """Scores summaries against given answers: one list, which is halved, or both halves."""

    answers: Annotated[list[Text], Field(min_length=2, max_length=2 * MAX_ANSWERS)] | None = None
    masked_out: Half | None = None
    conditioning: Half | None = None
    summaries: Annotated[dict[Name, Text], Field(min_length=1, max_length=MAX_SUMMARIES)]

    @model_validator(mode="after")
    def _one_way(self) -> ScoreBody:
        halves = [self.masked_out is not None, self.conditioning is not None]
        pattern = [False, False] if self.answers is not None else [True, True]
        if halves != pattern:
            raise ValueError("give either answers, or both masked_out and conditioning")
        return self


class Problem(BaseModel):
    kind: str
    message: str = Field(description="One sentence, with what to do.")
    details: str = Field(default="", description="What else a library or a server said.")


class FieldProblem(Problem):
    field: Literal["model", "judge"]


class ErrorAnswer(BaseModel):
    error: Problem


class CheckAnswer(BaseModel):
    """What would fail, and what would make results worthless."""

    problems: list[FieldProblem]
    warnings: list[str]


class AmountEntry(BaseModel):
    """None where a value is not known."""

    expected: float | None
    most: float | None


class StageCostEntry(BaseModel):
    stage: str
    model: str = Field(description="Its name, and where it is served.")
    amounts: dict[str, AmountEntry] = Field(
        description="Calls, completions, tokens, and money if the model has a price."
    )


class EstimateAnswer(BaseModel):
    """What a question takes."""

    stages: list[StageCostEntry]
    money: AmountEntry | None = Field(description="In the currency of the prices; null without prices.")
    reasons: list[str] = Field(description="Why somebody should agree before it starts.")


class JobAnswer(BaseModel):
    id: str
    kind: Kind
    question: str
    status: Status
    place: int = Field(description="Number of jobs before it.")
    run: str | None = Field(description="Id of the run with its records, once the job has started.")
    error: Problem | None
    created: float = Field(description="Seconds since 1970.")


class JobsAnswer(BaseModel):
    jobs: list[JobAnswer]


class ModelChoice(BaseModel):
    name: str
    note: str


class OptionsAnswer(BaseModel):
    """What can be requested."""

    version: str
    models: list[ModelChoice]
    strategies: list[str]
    about: dict[str, str] = Field(description="What each strategy does, in a sentence.")
    server: str | None = Field(
        description="Address of the server for models openai:NAME; null if the app allows none."
    )
    meaning: bool = Field(
        description="Whether answers can be grouped by meaning, which needs the extra embed."
    )
    defaults: AskBody | None = None
    limits: dict[str, int]


class RunEntry(BaseModel):
    id: str
    name: str
    changed: float = Field(description="Time of the last change, in seconds since 1970.")
    question: str | None = Field(description="The first question, shortened.")
    questions: int | None = Field(description="Their number, unless there are too many.")
    models: list[str]
    problem: str | None = Field(description="Why the run cannot be opened.")
    lacks: str | None = Field(default=None, description="The first stage without any record.")


class RunsAnswer(BaseModel):
    runs: list[RunEntry]
    more: bool = Field(description="Whether there are more runs.")


class GroupsAnswer(BaseModel):
    answers: int = Field(description="Number of answers that were grouped.")
    groups: list[list[int]] = Field(description="Indices of answers of one meaning, the most typical first.")


class ShareEntry(BaseModel):
    """What a strategy's summaries tell of what the sampled answers would, over questions."""

    share: float | None
    low: float | None
    high: float | None
    n: int = Field(description="Questions for which it is defined.")


class StrategyEntry(BaseModel):
    name: str
    mean: float | None
    low: float | None
    high: float | None
    n: int
    told: ShareEntry
    failures: int
    pending: int


class QuestionEntry(BaseModel):
    index: int
    question: str
    scores: list[float | None]
    shares: list[float | None] = Field(
        description="What each summary tells of what the sampled answers would."
    )


class ScoringEntry(BaseModel):
    id: str = Field(description="The value of the parameter judge; empty for the first one.")
    judge: str = Field(description="Its judge, with settings that are not the defaults; empty if unknown.")


class RunAnswer(BaseModel):
    id: str
    name: str
    judge: list[str]
    scorings: list[ScoringEntry] = Field(description="One per judge; the first made is the main one.")
    scoring: str = Field(description="The id of the one that is shown.")
    models: list[str]
    strategies: list[StrategyEntry]
    total: int
    questions: list[QuestionEntry]
