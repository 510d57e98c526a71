"""What is to do for a question in a stage, and what came of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal, TypeAlias

from msgspec import field
from msgspec.structs import replace

from selfreflect.records import (
    AnswerSample,
    AnswerSet,
    Controls,
    Failure,
    Information,
    Measurement,
    Question,
    Record,
    Score,
    Summary,
)

ModelStage = Literal["answers", "summaries", "scores"]
"""A stage that needs a model."""

Result: TypeAlias = (
    AnswerSample | AnswerSet | Summary | Score | Information | Measurement | Controls | Failure
)


class StageTask(Record, frozen=True, kw_only=True):
    """What is to do for one question, with all records that it needs."""

    question: Question
    strategies: tuple[str, ...] = ()
    """Names of the strategies to summarise with."""
    samples: tuple[AnswerSample, ...] = ()
    """Answers from before an interruption, where others are still to be drawn."""
    answers: AnswerSet | None = None
    summaries: tuple[Summary, ...] = ()
    """Summaries of which a measure is missing."""
    missing: dict[str, tuple[Summary, ...]] | None = None
    """The summaries that lack a measure, by its name; None if ``summaries`` lack all."""
    earlier: dict[str, tuple[Any, ...]] = field(default_factory=dict)
    """Records of the question's other summaries, by measure, which estimates must be comparable with."""
    controls: bool = False
    """Whether the question's controls are to be measured."""
    earlier_controls: Controls | None = None
    """Those that were measured with another measure."""

    @property
    def size(self) -> int:
        """For how many strategies or summaries something is wanted, or 1."""
        return len(self.strategies) + len(self.summaries) or 1


def total_size(tasks: Iterable[StageTask]) -> int:
    """How many strategies or summaries tasks are about."""
    return sum(task.size for task in tasks)


def count_results(results: Sequence[Result]) -> int:
    """How much of the sizes of their tasks results make up."""
    names: dict[str, set[str]] = {}
    for result in results:
        if isinstance(result, AnswerSample):
            continue
        of_question = names.setdefault(result.question_id, set())
        if isinstance(result, Score | Information | Measurement):
            of_question.add(result.summary)
        elif isinstance(result, Summary | Failure):
            of_question.add(result.name)
    return sum(max(1, len(of_question)) for of_question in names.values())


def without_results(tasks: Sequence[StageTask], results: Sequence[Result]) -> list[StageTask]:
    """What is left of some tasks after these results of them."""
    samples: dict[str, list[AnswerSample]] = {}
    finished: dict[str, set[str]] = {}
    for result in results:
        if isinstance(result, AnswerSample):
            samples.setdefault(result.question_id, []).append(result)
        else:
            name = result.name if isinstance(result, Summary | Failure) else ""
            finished.setdefault(result.question_id, set()).add(name)
    left = []
    for task in tasks:
        names = finished.get(task.question.id, set())
        strategies = tuple(name for name in task.strategies if name not in names)
        if names and not strategies:  # answers come together, as do the measures of a question
            continue
        all_samples = (*task.samples, *samples.get(task.question.id, ()))
        left.append(replace(task, strategies=strategies, samples=all_samples))
    return left
