"""Missing tasks of a run, as plain functions of its records."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

from msgspec.structs import asdict, replace

from selfreflect.errors import StoreError
from selfreflect.metric.measure import Measure, measures_of
from selfreflect.records import RETRIED, ModelStage, Question, Stage, Summary
from selfreflect.run.stages import StageTask
from selfreflect.settings import ScoresConfig
from selfreflect.store.run import Run


def run_strategies(run: Run) -> list[str]:
    """List the run's strategies, leaving out hand-written summaries."""
    names = dict.fromkeys(run.manifest.plan.get("strategies", ()))
    # older directories have no plan, and their records say what was asked for
    names |= dict.fromkeys(summary.name for summary in run.summaries.values() if summary.model)
    names |= dict.fromkeys(
        failure.name for failure in run.failures if failure.stage == "summaries" and failure.name
    )
    return list(names)


def strategies_to_continue(run: Run) -> list[str]:
    """List the run's strategies with missing summaries."""
    return [name for name in run_strategies(run) if any_task(missing_summaries(run, [name]))]


def stages_with_work(
    run: Run, stages: Sequence[Stage], strategies: Sequence[str], settings: ScoresConfig
) -> list[ModelStage]:
    """List the stages with work to do, now or after an earlier stage.

    Raises:
        StoreError: the run has no questions.
    """
    work: list[ModelStage] = []
    if "answers" in stages and any_task(missing_answers(run)):
        work.append("answers")
    if "summaries" in stages and any_task(missing_summaries(run, strategies)):
        work.append("summaries")
    if "scores" in stages and (work or (run.summaries and missing_scores(run, settings))):
        work.append("scores")
    return work


def any_task(tasks: Iterator[StageTask]) -> bool:
    """Check whether any task is left."""
    return next(tasks, None) is not None


def halves_note(num_answers: int) -> str:
    """Say how many answers a question gets, of which a setting counts those in a half."""
    return f"each question gets {2 * num_answers} answers, {num_answers} in each half"


def missing_answers(run: Run) -> Iterator[StageTask]:
    """Yield a task for each question without answers.

    Raises:
        StoreError: the run has no questions.
    """
    # a failure that would only repeat is not tried again
    final = final_failures(run, "answers")
    for key, question in _questions(run).items():
        if key not in run.answers and (key, "") not in final:
            yield StageTask(question=question, samples=run.samples(key))


def missing_summaries(run: Run, strategies: Sequence[str]) -> Iterator[StageTask]:
    """Yield a task for each question that still needs summaries by these strategies.

    Raises:
        StoreError: the run has no questions.
    """
    finished = {*run.summaries, *final_failures(run, "summaries")}
    for key, question in _questions(run).items():
        missing = tuple(name for name in strategies if (key, name) not in finished)
        if missing:
            yield StageTask(question=question, strategies=missing)


def missing_scores(run: Run, settings: ScoresConfig) -> list[StageTask]:
    """List a task for each question with unmeasured summaries.

    Raises:
        StoreError: the run has no questions, or nothing to score.
    """
    questions = _questions(run)
    if not run.summaries and not run.failures:
        raise StoreError(
            f"{run.path} has no summaries yet",
            code="no_summaries",
            remedy=f"Make them with: selfreflect summarize --out {run.path}",
        )
    plain = asdict(settings)
    measures = measures_of(settings.measure_names)
    failures = final_failures(run, "scores")
    # by question, then by measure: a question is one task, whatever it lacks
    missing: dict[str, dict[str, list[Summary]]] = {}
    records_of: dict[str, dict[str, list[Any]]] = {}
    candidates: dict[str, None] = {}
    with_controls = [measure for measure in measures if measure.control]
    controls_wanted = bool(with_controls) and settings.controls and settings.limits is None
    for measure in measures:
        results = run.results(measure)
        for key, summary in run.summaries.items():
            question = summary.question_id
            if question not in run.answers or question not in questions:
                continue
            candidates[question] = None
            record = results.get(key)
            if record is not None:
                records_of.setdefault(question, {}).setdefault(measure.name, []).append(record)
            # a final failure would only be repeated
            if _is_missing(measure, record, plain) and not (measure.fails and key in failures):
                missing.setdefault(question, {}).setdefault(measure.name, []).append(summary)
    tasks = []
    for question in candidates:
        controls = run.controls.get(question)
        by_measure = {name: tuple(summaries) for name, summaries in missing.get(question, {}).items()}
        lacks_controls = controls_wanted and (
            controls is None or not all(measure.has_controls(controls, plain) for measure in with_controls)
        )
        if by_measure or lacks_controls:
            # a summary that lacks two measures is one summary of the task
            summaries = {
                summary_record.name: summary_record
                for summary_record in chain.from_iterable(by_measure.values())
            }
            present = {name: tuple(records_of.get(question, {}).get(name, ())) for name in by_measure}
            task = StageTask(
                question=questions[question],
                answers=run.answers[question],
                summaries=tuple(summaries.values()),
                missing=by_measure,
                other_records=present,
                controls=lacks_controls,
                earlier_controls=controls,
            )
            tasks.append(task)
    return tasks


def copied_results(run: Run, settings: ScoresConfig) -> list[Any]:
    """Copy results between summaries of a question with equal text, to avoid measuring twice.

    Measured apart, equal texts would differ in the eighth digit, and be ranked by it.
    """
    plain = asdict(settings)
    names: dict[tuple[str, str], list[str]] = {}
    for (question, name), summary in run.summaries.items():
        names.setdefault((question, summary.text), []).append(name)
    copies = []
    for measure in measures_of(settings.measure_names):
        results = run.results(measure)
        for (question, _), alike in names.items():
            records = {name: results.get((question, name)) for name in alike}
            missing = [name for name, record in records.items() if _is_missing(measure, record, plain)]
            # equal texts of which all lack the measure are measured once, by the scorer
            if missing and len(missing) < len(alike):
                record: Any = next(
                    record_of_name for name, record_of_name in records.items() if name not in missing
                )
                copies += [replace(record, summary=name) for name in missing]
    return copies


def _is_missing(measure: Measure, record: Any, settings: Mapping[str, Any]) -> bool:
    return record is None or not measure.is_current(record, settings)


def final_failures(run: Run, stage: Stage) -> set[tuple[str, str]]:
    """Collect keys (question id, name) of failures that would only repeat."""
    final = set()
    for failure in run.failures:
        if failure.stage == stage and failure.kind not in RETRIED:
            final.add((failure.question_id, failure.name))
    return final


def _questions(run: Run) -> Mapping[str, Question]:
    if not run.questions:
        raise StoreError(
            f"{run.path} has no questions yet",
            code="no_questions",
            remedy="Add some with {questions.source} SOURCE.",
        )
    return run.questions
