"""Requests to the app: bodies and permitted models."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints

from selfreflect.errors import ConfigError, excerpt
from selfreflect.metric.measure import default_measures
from selfreflect.models.backend import backend_of, on_server
from selfreflect.records import Question, question_id
from selfreflect.settings import Config, load_config, sampling_of

MAX_QUESTION = 10_000
MAX_TEXT = 100_000
MAX_ANSWERS = 200
"""Maximum number of answers per half."""
MAX_SUMMARIES = 8


def _unique(names: list[str]) -> list[str]:
    if len(set(names)) < len(names):
        raise ValueError("a name occurs twice")
    return names


QuestionText = Annotated[str, StringConstraints(min_length=1, max_length=MAX_QUESTION, pattern=r"\S")]
ModelName = Annotated[str, StringConstraints(min_length=1, max_length=200)]
Text = Annotated[str, StringConstraints(max_length=MAX_TEXT)]
Name = Annotated[str, StringConstraints(min_length=1, max_length=100, pattern=r"\S")]


class MergeBody(BaseModel):
    """Request body that merges groups of answers."""

    model_config = ConfigDict(extra="forbid", strict=True)

    answers: Annotated[list[Annotated[int, Field(ge=0)]], Field(max_length=MAX_ANSWERS)]


class AskBody(BaseModel):
    """Request body to draw answers to a question, summarise with every strategy, and score."""

    model_config = ConfigDict(extra="forbid", strict=True)

    question: QuestionText
    context: Text = Field(
        default="", description="Context that the model reads with the question, and the judge does not see."
    )
    judge: ModelName = "smollm2"
    measures: Annotated[list[Name], Field(min_length=1), AfterValidator(_unique)] | None = Field(
        default=None, description="Names of known measures; the default depends on the judge."
    )
    reader: Literal["auto", "informed", "blind"] = Field(
        default="auto", description="Whether the judge sees the question when information is measured."
    )
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
        default=None,
        ge=0,
        le=100,
        description="Sampling temperature of the answers; the default depends on the model.",
    )
    top_p: float | None = Field(default=None, gt=0, le=1)
    answer_tokens: int = Field(default=64, ge=1, le=4096, description="Maximum tokens per answer.")
    summary_tokens: int = Field(default=256, ge=1, le=4096, description="Maximum tokens per summary.")
    brief: bool = Field(default=False, description="Ask for answers of a few words, with the demo's prompts.")
    # numbers of JavaScript are exact up to there
    seed: int = Field(default=0, ge=0, lt=2**53)


class Problem(BaseModel):
    code: str
    message: str
    remedy: str = Field(description="What to do about it on the page; empty if nothing there helps.")


class ErrorAnswer(BaseModel):
    error: Problem


_HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*(?:/[A-Za-z0-9][\w.-]*)?", re.ASCII)


def is_served(name: str) -> bool:
    """Check whether a name is a text model on a server."""
    backend = backend_of(name)
    return backend.is_remote and backend.can_generate


class ModelChoices:
    """Models open to clients: smollm2, models named at the start, and hub names.

    A client never names a directory. Directories named at the start are offered by their last part. A client
    never names an address either: models of a server are asked for at ``base_url``, any of
    them if it is set, else only those named at the start. The key comes from the environment.
    """

    def __init__(
        self,
        names: Sequence[str] = (),
        base_url: str | None = None,
        extra_body: Mapping[str, Any] | None = None,
    ) -> None:
        self.base_url = base_url
        self.extra_body = extra_body
        self._names = {"smollm2": "smollm2"}
        for name in names:
            if not backend_of(name).can_generate:
                raise ConfigError(
                    f"the app cannot use a judge on a server, such as {excerpt(name)}",
                    code="remote_judge",
                    remedy="Use that judge with the command `score`; the app then shows these scores too.",
                )
            # clients see the last part only, never where it is
            label = Path(name).resolve().name if Path(name).is_dir() else name
            self._names[label] = name

    @property
    def offered(self) -> list[str]:
        """Names for a list of choices, models named at the start first."""
        return [*list(self._names)[1:], "smollm2"]

    @property
    def judge(self) -> str:
        """The first offered model that can judge in this process."""
        backends = {name: backend_of(self._names[name]) for name in self.offered}
        return next(name for name, backend in backends.items() if backend.can_judge and not backend.is_remote)

    @property
    def server(self) -> str | None:
        """The server's address without credentials; None without a permitted server."""
        served = next(filter(is_served, self._names), None)
        if self.base_url is None and served is None:
            return None
        return backend_of(served or on_server("NAME")).server(self.base_url).url

    def resolve(self, name: str) -> str:
        """Find the name to load for a requested model.

        Raises:
            ConfigError: ``name`` is neither offered nor the name of a model on the hub.
        """
        if name in self._names or (self.base_url is not None and is_served(name)):
            return self._names.get(name, name)
        if is_served(name):
            raise ConfigError(
                f"{excerpt(name)} is a model on a server, and the app was not started with it",
                code="not_offered",
                remedy="Restart the app with {model} and, unless the server is OpenAI's, {base_url}.",
            )
        # what exists on this disk is no hub name, so that no client can probe for files
        if not _HUB_NAME.fullmatch(name) or ".." in name or Path(name).exists():
            raise ConfigError(
                f"unknown model {excerpt(name)}",
                code="unknown_model",
                remedy=f"Choose one of {', '.join(self.offered)}, or a hub name such as "
                "Qwen/Qwen2.5-7B-Instruct, or give a directory as {model}.",
            )
        return name

    def config(self, body: AskBody) -> Config:
        """Build the settings of a request.

        Raises:
            ConfigError: a model may not be used, or a value is out of range.
        """
        judge, model = self.resolve(body.judge), self.resolve(body.model)
        scores = {
            "judge": judge,
            "measures": ",".join(body.measures or default_measures(judge)),
            "reader": body.reader,
        }
        common: dict[str, Any] = {"model": model, "seed": body.seed}
        if is_served(model):
            common |= {"base_url": self.base_url, "extra_body": self.extra_body}
        sampling = {"temperature": body.temperature, "top_p": body.top_p}
        answers = {
            **common,
            **sampling_of(model),
            **{name: value for name, value in sampling.items() if value is not None},
            "num_answers": body.num_answers,
            "max_new_tokens": body.answer_tokens,
        }
        summaries = {
            **common,
            "max_new_tokens": body.summary_tokens,
            "sample_max_new_tokens": body.answer_tokens,
            # as many as both halves of the answers
            "num_samples": 2 * body.num_answers,
        }
        return load_config(None, {"answers": answers, "summaries": summaries, "scores": scores})


@contextmanager
def prompts_of(body: AskBody) -> Iterator[Path | None]:
    """Open the prompt file of a request; None for the paper's prompts."""
    short_answers = resources.files("selfreflect") / "data" / "demo_prompts.toml"
    with resources.as_file(short_answers) as path:
        yield path if body.brief else None


def question_of(body: AskBody) -> Question:
    context = body.context.strip()
    return Question(id=question_id(body.question, context), text=body.question, context=context)
