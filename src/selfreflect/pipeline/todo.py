"""What is still to do in a run, as tasks: plain functions of its records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from selfreflect.errors import StoreError
from selfreflect.pipeline.tasks import ModelStage, StageTask
from selfreflect.records import RETRIED, TODAYS_SCALE, Controls, Information, Question, Score, Stage, Summary
from selfreflect.settings import ScoresConfig
from selfreflect.store.run import Run


def run_strategies(run: Run) -> list[str]:
    """The strategies that the run was made with; summaries by hand have none."""
    names = dict.fromkeys(run.manifest.plan.get("strategies", ()))
    names |= dict.fromkeys(summary.name for summary in run.summaries.values() if summary.model)
    names |= dict.fromkeys(one.name for one in run.failures if one.stage == "summaries" and one.name)
    return list(names)


def strategies_to_continue(run: Run) -> list[str]:
    """The run's strategies that lack summaries."""
    return [name for name in run_strategies(run) if missing_summaries(run, [name])]


def stages_with_work(
    run: Run, stages: Sequence[Stage], strategies: Sequence[str], settings: ScoresConfig
) -> list[ModelStage]:
    """Those of ``stages`` that have something to do, or will have it once an earlier one is done.

    Raises:
        StoreError: the run has no questions.
    """
    work: list[ModelStage] = []
    if "answers" in stages and missing_answers(run):
        work.append("answers")
    if "summaries" in stages and missing_summaries(run, strategies):
        work.append("summaries")
    if "scores" in stages and (work or (run.summaries and missing_scores(run, settings))):
        work.append("scores")
    return work


def missing_answers(run: Run) -> list[StageTask]:
    """One task per question that may still get answers.

    Raises:
        StoreError: the run has no questions.
    """
    final = final_failures(run, "answers")
    tasks = []
    for key, question in _questions(run).items():
        if key not in run.answers and (key, "") not in final:
            tasks.append(StageTask(question=question, samples=run.samples(key)))
    return tasks


def missing_summaries(run: Run, strategies: Sequence[str]) -> list[StageTask]:
    """One task per question that may still get summaries by some of these strategies.

    Raises:
        StoreError: the run has no questions.
    """
    finished = {*run.summaries, *final_failures(run, "summaries")}
    tasks = []
    for key, question in _questions(run).items():
        missing = tuple(name for name in strategies if (key, name) not in finished)
        if missing:
            tasks.append(StageTask(question=question, strategies=missing))
    return tasks


def missing_scores(run: Run, settings: ScoresConfig) -> list[StageTask]:
    """One task per question that has answers and summaries of which a measure is missing.

    Raises:
        StoreError: the run has no questions, or nothing to score.
    """
    questions = _questions(run)
    if not run.summaries and not run.failures:
        raise StoreError(
            f"{run.path} holds no summaries yet. Make some with: selfreflect summarize --out {run.path}"
        )
    measures = settings.measure_names
    closed_keys = {*run.scores, *final_failures(run, "scores")}
    unscored: dict[str, list[Summary]] = {}
    uninformed: dict[str, list[Summary]] = {}
    candidates: dict[str, None] = {}
    for key, summary in run.summaries.items():
        question = summary.question_id
        if question not in run.answers or question not in questions:
            continue
        candidates[question] = None
        if "selfreflect" in measures and key not in closed_keys:
            unscored.setdefault(question, []).append(summary)
        if "information" in measures and _is_unread(run.information.get(key), settings):
            uninformed.setdefault(question, []).append(summary)
    earlier: dict[str, list[Score]] = {}
    for (question, _), score in run.scores.items():
        if question in unscored:
            earlier.setdefault(question, []).append(replace(score, words=()))
    most_answers: dict[str, int] = {}
    for (question, _), information in run.information.items():
        count = sum(map(bool, information.answers))
        if question in uninformed and count:
            most_answers[question] = max(count, most_answers.get(question, 0))
    tasks = []
    for question in candidates:
        task = StageTask(
            question=questions[question],
            answers=run.answers[question],
            summaries=tuple(unscored.get(question, ())),
            earlier_scores=tuple(earlier.get(question, ())),
            uninformed=tuple(uninformed.get(question, ())),
            most_answers=most_answers.get(question),
            controls=_lacks_controls(run.controls.get(question), settings),
            earlier_controls=run.controls.get(question),
        )
        if task.summaries or task.uninformed or task.controls:
            tasks.append(task)
    return tasks


def copied_results(run: Run, settings: ScoresConfig) -> list[Score | Information]:
    """Results of summaries whose text another summary of the question has: they are not measured twice.

    Measured apart, equal texts would differ in the eighth digit, and be ranked by it.
    """
    names: dict[tuple[str, str], list[str]] = {}
    for (question, name), summary in run.summaries.items():
        names.setdefault((question, summary.text), []).append(name)
    measures = settings.measure_names
    copies: list[Score | Information] = []
    for (question, _), alike in names.items():
        if len(alike) == 1:
            continue
        scores = {name: run.scores.get((question, name)) for name in alike}
        told = {name: run.information.get((question, name)) for name in alike}
        score = next(filter(None, scores.values()), None)
        informed = [one for one in told.values() if one is not None and not _is_unread(one, settings)]
        for name in alike:
            if "selfreflect" in measures and score is not None and scores[name] is None:
                copies.append(replace(score, summary=name))
            if "information" in measures and informed and _is_unread(told[name], settings):
                copies.append(replace(informed[0], summary=name))
    return copies


def _is_unread(record: Information | Controls | None, settings: ScoresConfig) -> bool:
    """Whether bits are missing, may be measured in another try, or were measured on the scale of an earlier
    version, or by another reader than the one asked for."""
    if record is None or record.reader is None or record.scale != TODAYS_SCALE:
        return True
    if isinstance(record, Information) and record.kind in RETRIED:
        return True
    return settings.reader not in ("auto", record.reader)


def _lacks_controls(controls: Controls | None, settings: ScoresConfig) -> bool:
    if not settings.controls or settings.limits is not None:
        return False
    if controls is None:
        return True
    measures = settings.measure_names
    lacks_bits = "information" in measures and _is_unread(controls, settings)
    return lacks_bits or ("selfreflect" in measures and controls.temperature is None)


def final_failures(run: Run, stage: Stage) -> set[tuple[str, str]]:
    """(question id, name) of the stage's failures that another try would only repeat."""
    final = set()
    for failure in run.failures:
        if failure.stage == stage and failure.kind not in RETRIED:
            final.add((failure.question_id, failure.name))
    return final


def _questions(run: Run) -> Mapping[str, Question]:
    if not run.questions:
        raise StoreError(f"{run.path} holds no questions yet. Give some with --questions SOURCE.")
    return run.questions
