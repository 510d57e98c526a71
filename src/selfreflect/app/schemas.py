"""JSON bodies of requests, with their limits. FastAPI makes the OpenAPI document from them."""

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
    code: str
    message: str
    remedy: str = Field(description="What to do about it on the page; empty if nothing there helps.")


class ErrorAnswer(BaseModel):
    error: Problem
