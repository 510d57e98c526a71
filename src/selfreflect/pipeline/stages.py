"""The work of each stage, wherever it runs: a model and tasks in, records out.

Nothing here knows the run directory. The experiment decides what is to do and stores the records.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from msgspec.structs import replace

from selfreflect.answers import draw_answers
from selfreflect.models.base import Generator, Sampling
from selfreflect.models.spec import Kind, kind_of
from selfreflect.pipeline.models import load_metric
from selfreflect.pipeline.options import ExecutionOptions, Progress
from selfreflect.prompts import Prompts
from selfreflect.records import AnswerSet, Failure, Question, Record, Score, Summary
from selfreflect.strategies.driver import Named, summarize
from selfreflect.strategies.task import GREEDY, THINKING

if TYPE_CHECKING:
    from selfreflect.config import AnswersConfig, Config, SummariesConfig
    from selfreflect.metric.scorer import SelfReflect

ModelStage = Literal["answers", "summaries", "scores"]
"""A stage that needs a model."""

Result: TypeAlias = AnswerSet | Summary | Score | Failure


@dataclass(frozen=True)
class StageSpec:
    """All that a worker needs to know. It holds no API key: workers read theirs from their environment."""

    stage: ModelStage
    config: Config
    prompts: Prompts
    options: ExecutionOptions
    strategies: tuple[Named, ...] = ()

    @property
    def model(self) -> str:
        """The name of the stage's model."""
        if self.stage == "scores":
            return self.config.scores.judge
        return str(getattr(self.config, self.stage).model)

    @property
    def kind(self) -> Kind:
        """The kind of the stage's model."""
        return kind_of(self.model)

    @property
    def batch_size(self) -> int:
        """Questions that a worker takes at a time."""
        if self.stage == "scores":
            return 1
        if self.kind == "openai":  # whose results come one by one, so that more questions keep it busy
            return max(self.options.batch_questions, 2 * self.options.max_connections)
        return self.options.batch_questions


class StageTask(Record, frozen=True, kw_only=True):
    """What is to do for one question, with all records that it needs."""

    question: Question
    strategies: tuple[str, ...] = ()
    """Names of the strategies to summarise with."""
    answers: AnswerSet | None = None
    summaries: tuple[Summary, ...] = ()
    """Summaries to score."""
    earlier_scores: tuple[Score, ...] = ()
    """Scores of the question's other summaries, which estimates are to be comparable with."""

    @property
    def size(self) -> int:
        """How many results are wanted."""
        return len(self.strategies) + len(self.summaries) or 1


StageFn: TypeAlias = Callable[[Sequence[StageTask]], Iterator[list[Result]]]
"""Turns tasks into results. Lists belong together on disk, and each comes as soon as it is ready."""


def stage_fn(spec: StageSpec, model: Any, progress: Progress) -> StageFn:
    """The work of a stage with its loaded generator or judge."""
    if spec.stage == "answers":
        return _answers_fn(spec, model)
    if spec.stage == "summaries":
        return _summaries_fn(spec, model)
    return _scores_fn(load_metric(model, spec.config, spec.options, progress))


def _answers_fn(spec: StageSpec, generator: Generator) -> StageFn:
    config = spec.config.answers

    def draw(tasks: Sequence[StageTask]) -> Iterator[list[Result]]:
        results = draw_answers(
            [task.question for task in tasks],
            generator,
            num_answers=config.num_answers,
            prompts=spec.prompts,
            sampling=answer_sampling(config),
            seed=config.seed,
            thinking=config.thinking,
            batch_questions=spec.batch_size,
        )
        return ([result] for result in results)

    return draw


def _summaries_fn(spec: StageSpec, generator: Generator) -> StageFn:
    config = spec.config.summaries
    names = strategy_names(spec.strategies)

    def summarise(tasks: Sequence[StageTask]) -> Iterator[list[Result]]:
        finished: set[tuple[str, str]] = set()
        for task in tasks:
            finished.update((task.question.id, name) for name in names if name not in task.strategies)
        results = summarize(
            [task.question for task in tasks],
            spec.strategies,
            generator,
            prompts=spec.prompts,
            sampling=summary_sampling(config),
            sample_sampling=Sampling(max_new_tokens=config.sample_max_new_tokens),
            num_samples=config.num_samples,
            seed=config.seed,
            thinking=config.thinking,
            batch_questions=spec.batch_size,
            done=finished,
        )
        return ([result] for result in results)

    return summarise


def _scores_fn(metric: SelfReflect) -> StageFn:
    def score(tasks: Sequence[StageTask]) -> Iterator[list[Result]]:
        for task in tasks:
            assert task.answers is not None  # a question without answers is not scored
            yield [
                *metric.score_records(
                    task.question, task.answers, task.summaries, earlier=task.earlier_scores
                )
            ]

    return score


def answer_sampling(config: AnswersConfig) -> Sampling:
    """How an answer is drawn."""
    return Sampling(temperature=config.temperature, top_p=config.top_p, max_new_tokens=config.max_new_tokens)


def summary_sampling(config: SummariesConfig) -> Sampling:
    """How a summary is drawn."""
    return replace(THINKING if config.thinking else GREEDY, max_new_tokens=config.max_new_tokens)


def strategy_names(strategies: Sequence[Named]) -> list[str]:
    return [strategy if isinstance(strategy, str) else strategy[0] for strategy in strategies]
