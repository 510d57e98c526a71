"""Records of a run directory for reports, studies and estimators."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import to_builtins

from selfreflect.errors import ConfigError, excerpt, nearest
from selfreflect.prompts import Prompts, load_prompts, stored_prompts
from selfreflect.records import AnswerSet, Graded, Stage, latest_scale
from selfreflect.report.run_records import RECORD_FIELDS, RunRecords
from selfreflect.run.resume import sampling_checks, scoring_label
from selfreflect.sources.answer_values import are_labels, label
from selfreflect.sources.item_rows import list_in
from selfreflect.sources.items import Item, items_from_records
from selfreflect.sources.names import CORRECT, GOLD, RESPONSE
from selfreflect.sources.rows import Row, is_text_list
from selfreflect.store.run import Run
from selfreflect.text import one_line
from selfreflect.uncertainty.question import AnsweredQuestion, NoValue, has_gold, not_blank, token_fields
from selfreflect.uncertainty.reading import labelled_claims

if TYPE_CHECKING:
    from selfreflect.report.page.frame import UncertaintyPart

BASELINE = "greedy"
"""Strategy of the model's most likely answer, a baseline whose measures are also estimators."""


def run_records(run: Run, label: str | None = None) -> RunRecords:
    """Collect a run's records for a report, with the selected judge's scores.

    Strategies are in the order of :func:`strategy_order`, so the first is the baseline. Bits on the scale
    of an earlier version are left out as soon as some are on a later one: they cannot be compared.
    """
    # bits of two scales in one mean would be a number of nothing
    scale = latest_scale(record.scale for record in run.information.values())
    results = (run.summaries, run.scores, run.information, run.measurements)
    names = dict.fromkeys(name for *_, name in chain.from_iterable(results))
    names |= dict.fromkeys(failure.name for failure in run.failures if failure.name)
    manifest = to_builtins(run.manifest)
    bundled = load_prompts()  # older runs kept only the hash of their prompts
    manifest["prompt_texts"] = {bundled.hash: to_builtins(bundled), **manifest["prompt_texts"]}
    records = RunRecords(
        label=label or run.path.name or str(run.path),
        strategies=strategy_order(run, names),
        failures=run.failures,
        **{name: getattr(run, name) for name in RECORD_FIELDS},
        sampling=sampling_checks(run.manifest),
        judge=scoring_label(run.manifest.config["scores"]) if "scores" in run.manifest.config else "",
        manifest=manifest,
    )
    return records.with_scale(scale)


def strategy_order(run: Run, names: Iterable[str]) -> list[str]:
    """Sort strategies as the user listed them.

    Summaries by hand keep the order of their file. Where nothing says more, greedy comes first, then the rest
    by name.
    """
    plan = list(run.manifest.plan.get("strategies", ()))
    by_model = {name for (_, name), summary in run.summaries.items() if summary.model}
    by_hand = list(dict.fromkeys(name for _, name in run.summaries if name not in by_model))

    def rank(name: str) -> tuple[int, int, str]:
        if name in plan:
            return 0, plan.index(name), ""
        if name == BASELINE and not plan:
            return 0, 0, ""
        return (1, by_hand.index(name), "") if name in by_hand else (2, 0, name)

    return sorted(set(names), key=rank)


def records_by_judge(run: Run, label: str | None = None) -> list[RunRecords]:
    """Collect a run's records for each judge, labelled if there are several."""
    records = []
    for name in run.scorings:
        run.select_scoring(name)
        records.append(run_records(run, label))
    if len(records) == 1:
        return records
    return [replace(scoring, label=f"{scoring.label}, judge {scoring.judge}") for scoring in records]


def scorings_by(records: Sequence[RunRecords], judge: str | None, path: Path) -> list[RunRecords]:
    """Select a run's scores by judge or label; None selects all.

    Raises:
        ConfigError: there is none.
    """
    if judge is None:
        return list(records)
    matches = [scoring for scoring in records if scoring.judge == judge]
    # a judge with other settings is labelled "NAME, dtype float32"
    matches = matches or [scoring for scoring in records if scoring.judge.startswith(f"{judge}, ")]
    if not matches:
        if not any(scoring.scores or scoring.information for scoring in records):
            raise ConfigError(
                f"{path} has no scores by any judge",
                code="no_scores",
                remedy=f"Add some: selfreflect score --out {path}",
            )
        judges = [scoring.judge for scoring in records]
        names = "; ".join(map(one_line, filter(None, judges))) or "a judge without a name"
        raise ConfigError(
            f"{path} has scores by {names}, not by {excerpt(judge)}.{nearest(judge, judges)}",
            code="other_judge",
            remedy="Give {judge} one of these names.",
        )
    return matches


def run_prompts(run: Run, stage: Stage) -> Prompts:
    """Load a stage's prompts, or the bundled ones if unrecorded."""
    texts = run.manifest.prompt_texts.get(run.manifest.prompts.get(stage, ""))
    return load_prompts() if texts is None else stored_prompts(texts)


def run_items(run: Run) -> list[Item]:
    """List a run's answered questions with their summaries as items."""
    return items_from_records(run.questions.values(), run.answers, run.summaries.values())


# Estimators of a run's page, beside what its judge measured: those that need only classes or stored
# log-probabilities, so that a page takes no longer.
_ON_PAGE = ("modal_share", "split_half", "entropy", "entropy_mm", "classes")
_OF_TOKENS = {"logprobs": ("normalised_prob", "min_prob"), "top_logprobs": ("epr",)}


def labelled_part(run: RunRecords, name: str) -> UncertaintyPart | None:
    """Build the page section on uncertainty and correctness; None without right answers.

    Args:
        name: identifies it on its page.
    """
    from selfreflect.uncertainty.assess import Assessment, Method, predictions
    from selfreflect.uncertainty.classes import DEFAULT, ClassRule
    from selfreflect.uncertainty.correctness import default_correctness
    from selfreflect.uncertainty.page import shaded_answers, uncertainty_part

    questions = run_questions(run, run, GOLD) if is_labelled(run) else []
    if not has_gold(questions):
        return None  # right answers, but no sampled ones yet
    correctness = default_correctness(questions) or ""
    method = Method(ClassRule(DEFAULT), correctness=(correctness,))
    estimators = [*_ON_PAGE]
    for column, of_tokens in _OF_TOKENS.items():
        if any(getattr(question.token_values, column) for question in questions):
            estimators += of_tokens
    estimators += dict.fromkeys(measured for question in questions for measured in question.values)
    assessment = Assessment(questions, estimators, method)
    rows = predictions(assessment, correctness)
    part = uncertainty_part(assessment, correctness, rows, name=name, label=run.label)
    part.shaded += shaded_answers(assessment)
    part.notes.append("selfreflect uncertainty measures more estimators, with other classes and labels.")
    return part


def is_labelled(run: RunRecords) -> bool:
    """Check whether any question of a run has a right answer."""
    return any(question.gold for question in run.questions.values())


def run_questions(run: RunRecords, scoring: RunRecords, gold: str) -> list[AnsweredQuestion]:
    """List a run's answered questions for estimators of uncertainty.

    Right answers come from the field ``gold``, and measures of the greedy answer from ``scoring``. Labels of
    answers and claims, and scores in further columns, are those of an imported file: they are not about other
    answers. Blank answers are left out. Questions are in their order: the order of answers changes if a
    command is interrupted.

    Raises:
        DataError: a claim is labelled both right and wrong.
    """
    result = []
    has_labels = are_labels(question.metadata.get(CORRECT) for question in run.questions.values())
    for question in run.questions.values():
        answers = run.answers.get(question.id)
        if answers is None or not answers.answers:
            continue
        indices = not_blank(answers.answers)
        labels = Row(run.label, question.id, {} if answers.model else {**question.metadata})
        gold_value = question.metadata.get(gold, question.gold if gold == GOLD else ())
        gold_texts = gold_value if isinstance(gold_value, tuple) else (str(gold_value),)
        if isinstance(gold_value, str) and gold_value.startswith("["):
            spellings = list_in(gold_value)
            # "[0, 1]" may be an interval
            if spellings and is_text_list(spellings):
                gold_texts = tuple(spellings)
        greedy = run.summaries.get((question.id, BASELINE))
        result.append(
            AnsweredQuestion(
                id=question.id,
                text=question.text,
                context=question.context,
                answers=tuple(answers.answers[index] for index in indices),
                gold=gold_texts,
                aliases=run.merged_texts(question.id),
                greedy=None if greedy is None else greedy.text,
                answer=labels.optional_text(RESPONSE) or None,
                grades=_grades(answers),
                correct=label(labels.fields.get(CORRECT)) if has_labels else None,
                claims=tuple(labelled_claims(labels)),
                columns=labels.fields,
                model=answers.model,
                temperature=answers.temperature,
                top_p=answers.top_p,
                values=_measured_values(scoring, question.id),
                **token_fields([answers.logprobs[index] for index in indices] if answers.logprobs else ()),
            )
        )
    return result


def _grades(answers: AnswerSet) -> dict[str, tuple[Graded, ...]]:
    """List the verdicts of each grader, on answers and on other texts."""
    grades = {name: tuple(map(Graded, answers.answers, column)) for name, column in answers.grades.items()}
    return grades | {
        name: (*grades.get(name, ()), *further) for name, further in answers.further_grades.items()
    }


def _measured_values(run: RunRecords, question: str) -> dict[str, float | NoValue]:
    """Collect the measures of a question's greedy answer, keyed by estimator name."""
    values: dict[str, float | NoValue] = {}
    for measure in run.measures:
        record = run.results(measure).get((question, BASELINE))
        if record is None:
            continue
        measurement = measure.measurement(record)
        for name, part, *_ in measure.estimators:
            value = measurement.parts.get(part) if part else measurement.value
            reason = f"the {measure.name} of the greedy answer is {measurement.undefined}"
            values[name] = NoValue("not_measured", reason) if value is None else value
    return values
