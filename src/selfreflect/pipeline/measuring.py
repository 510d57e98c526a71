"""Measure the summaries of questions with a loaded judge."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from selfreflect.pipeline.counting import typical_judge_tokens
from selfreflect.pipeline.progress import Progress, WorkDone, watched_judge
from selfreflect.pipeline.tasks import StageTask
from selfreflect.records import AnswerSet, Controls, Question, Summary

if TYPE_CHECKING:
    from selfreflect.metric.measures import Measured, Measures
    from selfreflect.models.judge import Judge


def measuring_task(question: Question, answers: AnswerSet, summaries: Sequence[Summary]) -> StageTask:
    """Everything that is wanted of a question which nothing is measured of yet."""
    texts = tuple(summaries)
    return StageTask(question=question, answers=answers, summaries=texts, uninformed=texts, controls=True)


def score_tasks(
    measures: Measures, judge: Judge, progress: Progress, tasks: Sequence[StageTask]
) -> Iterator[list[Measured]]:
    """Measure the summaries of each task, and give its results as they come."""
    for task in tasks:
        progress.add(WorkDone(units=task.size))
        planned = typical_judge_tokens(task, scores=measures.scores, information=measures.information)
        with watched_judge(judge, measures.metric, progress, round(planned)):
            results = _measure(measures, task)
        yield results


def _measure(measures: Measures, task: StageTask) -> list[Measured]:
    """All measures of a question."""
    assert task.answers is not None  # a question without answers is not scored
    results: list[Measured] = []
    for result in measures.measure(
        task.question,
        task.answers,
        task.summaries,
        uninformed=task.uninformed,
        earlier=task.earlier_scores,
        most_answers=task.most_answers,
        controls=task.controls,
    ):
        if isinstance(result, Controls) and task.earlier_controls is not None:
            result = result.completed_by(task.earlier_controls)
        results.append(result)
    return results
