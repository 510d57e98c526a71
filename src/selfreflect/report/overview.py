"""Tables of a run: strategies with controls and notes, and failures."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from statistics import median

from selfreflect.errors import worded
from selfreflect.metric.measure import Measure, measure_names
from selfreflect.records import STAGES, FailureKind
from selfreflect.report.findings import HEDGES, show_case_note
from selfreflect.report.measures import (
    Values,
    mean_columns,
    run_measures,
    settings_of,
)
from selfreflect.report.results import (
    ControlValues,
    StrategyResult,
    approximate,
    control_values,
    coverage_text,
    estimate_note,
    is_uneven,
    main_measure,
    method_note,
    sorted_results,
)
from selfreflect.report.run_records import RunRecords
from selfreflect.report.wording import say
from selfreflect.stats import Estimate
from selfreflect.table import Cell, Column, Table
from selfreflect.text import one_line
from selfreflect.traits import traits_of

CONTROL = "control: "
"""Prefix of a control's name in tables."""

INCOMPLETE = ", incomplete"
"""Suffix of the coverage of an incomplete strategy."""

FAILURE_COLUMNS = (
    Column("kind"),
    Column("count", "d"),
    Column("question"),
    Column("example"),
)

REMEDIES: Mapping[FailureKind, str] = {
    "no_answers": "most answers are blank or refused; use another model or prompt ({prompts})",
    "blank_summary": "the model wrote nothing; use another strategy or prompt ({prompts})",
    "too_long": (
        "use a model or judge with a larger context window, or shorter answers ({answers.max_new_tokens})"
    ),
    "unclosed_reasoning": (
        "in a new run (another {out}), raise {STAGE.max_new_tokens} or leave out {STAGE.thinking}"
    ),
    "cut_off": "in a new run (another {out}), raise {STAGE.max_new_tokens}",
    "over_budget": "raise {scores.budget}",
    "refused": "rephrase the question, or use another model",
    "content_filter": "rephrase the question, or use another server",
    "empty": "run the same command again; it tries only what failed",
    "backend": "see the message; then run the same command again, which tries only what failed",
    "malformed": "the model did not reply in the requested form; use another model or strategy",
    "strategy": "fix the strategy and run the same command again, which tries only what failed",
}
"""User's remedies by kind of failure; braces hold settings, with ``STAGE`` for the failure's stage."""


def overview(run: RunRecords, *, with_controls: bool = True) -> Table:
    """Tabulate the strategies with means, intervals, coverage, lengths and failures, and optionally controls.

    Where a measure rests on other questions than the last one, it has an n of its own.
    """
    results = sorted_results(run)
    controls = control_values(run)
    measures = run_measures(run)
    main = main_measure(run, results)
    rows = [_strategy_row(run, result, measures, main) for result in results]
    if with_controls:
        rows += [row for control in controls if (row := _control_row(control, measures))["n"]]
    columns = [Column("strategy", shown=run.noun)]
    for measure in measures:
        columns += mean_columns(measure)
        counts = [(result.estimate(measure).n, result.estimate(main).n) for result in results]
        if any(n for n, _ in counts) and any(n != n_of_main for n, n_of_main in counts):
            columns.append(Column(_own_n(measure), "d", short="n"))
    columns += [Column("n", "d", shown="questions"), Column("coverage", is_detail=True, has_percent=True)]
    columns += [Column("median words", "g"), Column("failures", "d")]
    title = "; ".join(measure.title for measure in measures) if with_controls else "Results"
    if run.label:
        title += f" ({run.label})"
    notes, details = _overview_notes(run, results, measures)
    headings = [column.heading for column in columns]
    cells = [tuple(map(row.get, headings)) for row in rows]
    return Table(title, tuple(columns), tuple(cells), tuple(notes), frozenset(details))


def _own_n(measure: Measure) -> str:
    """Name the column for a measure's number of questions, if it differs from the main measure's number."""
    return f"{measure.heading} n"


def _strategy_row(
    run: RunRecords, result: StrategyResult, measures: Sequence[Measure], main: Measure
) -> dict[str, Cell]:
    """Build all cells of a strategy by heading, including hidden columns."""
    row: dict[str, Cell] = {"strategy": run.display_name(result.strategy)}
    for measure in measures:
        is_estimated = measure.name in result.estimated
        row |= _estimate_cells(measure, result.estimate(measure), is_estimated)
    estimate = result.estimate(main)
    coverage = coverage_text(estimate)
    if coverage and result.missing and estimate.n:
        coverage += INCOMPLETE
    row |= {"n": estimate.n, "coverage": coverage}
    return row | {"median words": result.median_words, "failures": result.failures}


def _control_row(control: ControlValues, measures: Sequence[Measure]) -> dict[str, Cell]:
    """Build a control's cells by heading, with ``n`` 0 if nothing was measured."""
    row: dict[str, Cell] = {"strategy": CONTROL + control.name}
    counts = []
    for measure in measures:
        values = control.by_measure.get(measure.name, Values({}))
        estimate = values.estimate(len(control.words))
        row |= _estimate_cells(measure, estimate)
        counts.append(estimate.n)
    return row | {"n": max(counts), "median words": float(median(control.words))}


def _estimate_cells(measure: Measure, estimate: Estimate, is_estimated: bool = False) -> dict[str, Cell]:
    headings = [column.heading for column in mean_columns(measure)]
    cells = (approximate(estimate.mean, is_estimated), estimate.low, estimate.high)
    return {**dict(zip(headings, cells, strict=True)), _own_n(measure): estimate.n}


def _overview_notes(
    run: RunRecords, results: Sequence[StrategyResult], measures: Sequence[Measure]
) -> tuple[list[str], list[str]]:
    """List the table's notes, cautions first, and the explanatory notes among them."""
    scale = [f"{item.short}: {reading(item, run)}" for item in measures if "{zero}" in item.reading]
    cautions: list[str] = []
    judges: list[str] = []
    for measure in measures:
        settings, warnings = _settings_notes(run, measure)
        cautions += [*undefined_notes(run, measure, results), *warnings]
        judges += settings
    method = [method_note(result.estimate(measure) for result in results for measure in measures)]
    if any(traits_of(judge).is_show_case for judge in run.judges):
        method.append(HEDGES)
    notes = [*filter(None, [show_case_note(run)]), *scale, *cautions, *judges, *method]
    for measure in measures:
        notes += estimate_note(measure, [(run, name) for name in run.strategies])
    if any(is_uneven(run, measure) for measure in measures):
        notes.append(say("uneven"))
    unknown = sorted({name for name, _, _ in run.measurements} - {*measure_names()})
    if unknown:
        notes.append(say("no_package", names=unknown))
    pending = sum(result.pending for result in results)
    if pending:
        notes.append(say("pending", count=pending))
    return notes, [*scale, *judges, *method]


def _settings_notes(run: RunRecords, measure: Measure) -> tuple[list[str], list[str]]:
    """Describe the judge and its settings, or warn about summaries measured with different settings."""
    by_question: dict[str, set[str]] = defaultdict(set)
    for name in run.strategies:
        for id_, text in settings_of(measure, run, name).items():
            by_question[id_].add(text)
    settings = sorted(set().union(*by_question.values()))
    if len(settings) < 2:
        return [say("judge", noun=measure.short, settings=text) for text in settings], []
    if any(len(texts) > 1 for texts in by_question.values()):
        return [], [say("several_judges", noun=measure.short, settings=settings)]
    counts = Counter(text for (text,) in by_question.values())
    return [say("several_readers", counts=sorted(counts.items()))], []


def reading(measure: Measure, run: RunRecords) -> str:
    """Explain how to read a measure's values in a run."""
    zeros = {
        "question": "the question alone, as in earlier versions (`selfreflect score` measures again)",
        "empty": "an empty summary",
        "repeated": "the repeated question where the judge does not see it",
    }
    names = [run.scale] if run.scale == "question" else run.zero.split(", ")
    text = measure.reading.replace("{zero}", " or ".join(map(zeros.__getitem__, names)))
    if run.scale == "pasted" and text != measure.reading:
        text += " Repetitions count, as in earlier versions (`selfreflect score` measures again)."
    return text


def undefined_notes(run: RunRecords, measure: Measure, results: Sequence[StrategyResult]) -> list[str]:
    """Explain why questions have no value."""
    # the maximum over strategies, not the sum: mostly they lack the same questions
    reasons: Counter[str] = Counter()
    for result in results:
        reasons |= Counter(result.undefined[measure.name])
    notes = []
    for reason, count in reasons.items():
        values = {"noun": measure.short, "count": count, "questions": len(run.questions)}
        notes.append(say("undefined_on", text=measure.reason(reason), **values))
    keys = [run.results(rival).keys() for rival in run.measures if rival is not measure]
    missing = set().union(*keys) - run.results(measure).keys()
    # scores have failures instead
    if missing and not measure.fails:
        notes.append(say("unmeasured", noun=measure.short, count=len(missing)))
    return notes


def failure_table(run: RunRecords, name_of: Callable[[str], str] = str) -> Table:
    """Count failures by stage, strategy and kind, each with an example message.

    Args:
        name_of: words a setting in the notes, which say what to do; by default its key.
    """
    ranks = {name: rank for rank, name in enumerate(run.strategies)}
    groups = defaultdict(list)
    for failure in run.failures:
        rank = ranks.get(failure.name, len(ranks))
        groups[STAGES.index(failure.stage), rank, failure.name, failure.kind].append(failure)
    rows = []
    for _, failures in sorted(groups.items()):
        first = failures[0]
        example = one_line(first.message, 160)
        record = run.questions.get(first.question_id)
        question = first.question_id if record is None else one_line(record.text, 160)
        rows.append((first.stage, first.name or None, first.kind, len(failures), question, example))
    columns = (Column("stage"), Column("strategy", shown=run.noun), *FAILURE_COLUMNS)
    notes: dict[str, None] = {}
    for stage, _, kind, *_ in rows:
        remedy = REMEDIES[kind].replace("STAGE", "answers" if stage == "answers" else "summaries")
        notes[f"{kind}: {worded(remedy, name_of)}"] = None
    return Table("Failures", columns, tuple(rows), tuple(notes))
