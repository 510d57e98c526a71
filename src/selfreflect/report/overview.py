"""The table of one run: its strategies, the controls below them, and notes; and the table of what failed."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from itertools import chain
from statistics import median

from selfreflect.records import STAGES, TODAYS_SCALE, FailureKind, Information, NothingToTell, UnclearCause
from selfreflect.report.results import (
    INFORMATION,
    SELFREFLECT,
    ControlValues,
    Measure,
    StrategyResult,
    approximate,
    best_strategy,
    conditioning_count,
    control_lead,
    control_values,
    coverage_text,
    estimate_note,
    method_note,
    run_measures,
    sorted_results,
)
from selfreflect.report.run_records import RunRecords
from selfreflect.report.sentences import (
    HEDGES,
    OTHER_JUDGE,
    OTHER_READER,
    answers_text,
    reason_of,
    show_case_note,
    tentative,
)
from selfreflect.stats import Estimate
from selfreflect.table import Cell, Column, Table
from selfreflect.text import counted, one_line
from selfreflect.traits import traits_of

CONTROL = "control: "
"""In front of the name of a control, where tables list it below strategies."""

INCOMPLETE = ", incomplete"
"""Behind the coverage of a strategy that lacks results."""

TELLS_N = "tells n"
"""Questions that a share rests on, where that is not the number of scores."""

SHOWN_ROWS = 20
"""Summaries that :func:`summary_table` shows."""

FAILURE_COLUMNS = (
    Column("stage"),
    Column("strategy"),
    Column("kind"),
    Column("count", "d"),
    Column("question"),
    Column("example"),
)

REMEDIES: Mapping[FailureKind, str] = {
    "no_answers": "most answers are blank or refused; take another model or prompt (--prompts)",
    "blank_summary": "the model wrote nothing; take another strategy or prompt (--prompts)",
    "too_long": "use a model or judge with a larger context window, or shorter answers (--max-new-tokens)",
    "unclosed_reasoning": "in a new run (another --out), raise {tokens} or leave out --thinking",
    "cut_off": "in a new run (another --out), raise {tokens}",
    "over_budget": "raise --budget",
    "refused": "rephrase the question, or take another model",
    "content_filter": "rephrase the question, or take another server",
    "empty": "run the same command again; it tries only what failed",
    "backend": "see the message; then run the same command again, which tries only what failed",
    "malformed": "the model did not keep to the form it was asked for; take another model or strategy",
    "strategy": "mend the strategy and run the same command again, which tries only what failed",
}
"""What a user can do about a failure."""


def overview(run: RunRecords) -> Table:
    """Tabulate the strategies: what they tell and their mean score, each with its interval, n, coverage,
    length of summaries, failures; and the controls below them. Where shares rest on other questions than
    scores, they have an n of their own.

    If the strategies were measured on different questions, further columns compare them on common questions.
    """
    results = sorted_results(run)
    controls = control_values(run)
    measures = run_measures(run)
    rows = [_strategy_row(result, measures) for result in results]
    for control in controls:
        row = _control_row(control, measures)
        if row["n"]:
            rows.append(row)
    different = any(result.common or result.common_recovered for result in results)
    uneven = []
    for measure in measures:
        if any(row.get(measure.common) is not None for row in rows):
            uneven.append(measure)
    columns = [Column("strategy")]
    fewer = len(measures) > 1 and any(result.recovered.n != result.score.n for result in results)
    for measure in measures:
        columns += measure.columns
        if fewer and measure is INFORMATION:
            columns.append(Column(TELLS_N, "d"))
    columns += [Column("n", "d"), Column("coverage"), Column("median words", "g"), Column("failures", "d")]
    columns += [Column(measure.common, measure.form) for measure in uneven]
    if uneven:
        columns.append(Column("common n", "d"))
        for row in rows:
            row["common n"] = row.get(f"{uneven[-1].common} n")
    title = "; ".join(measure.title for measure in measures)
    if run.label:
        title += f" ({run.label})"
    notes = _overview_notes(run, results, measures, uneven)
    if different and not uneven:
        notes.append(
            "the strategies were scored on different questions, none in common: do not compare their means"
        )
    notes += _control_notes(run, results, controls)
    headings = [column.heading for column in columns]
    cells = [tuple(map(row.get, headings)) for row in rows]
    return Table(title, tuple(columns), tuple(cells), tuple(notes))


def _strategy_row(result: StrategyResult, measures: Sequence[Measure]) -> dict[str, Cell]:
    """The cells of a strategy by heading, those of columns that no table shows included."""
    row: dict[str, Cell] = {"strategy": result.strategy, TELLS_N: result.recovered.n}
    for measure in measures:
        estimated = measure is SELFREFLECT and result.estimated > 0
        row |= _estimate_cells(measure, result.estimate(measure), estimated)
        common = result.common_estimate(measure)
        if common:
            row[measure.common] = approximate(common.mean, estimated)
            row[f"{measure.common} n"] = common.n
    main = result.estimate(measures[-1])
    coverage = coverage_text(main)
    if coverage and result.missing and main.n:
        coverage += INCOMPLETE
    row |= {"n": main.n, "coverage": coverage}
    return row | {"median words": result.median_words, "failures": result.failures}


def _control_row(control: ControlValues, measures: Sequence[Measure]) -> dict[str, Cell]:
    """The cells of a control by heading; ``n`` is 0 if nothing of it was measured."""
    row: dict[str, Cell] = {"strategy": CONTROL + control.name}
    counts = []
    for measure in measures:
        estimate = control.by_measure[measure.mean].estimate(len(control.words))
        row |= _estimate_cells(measure, estimate)
        if measure is INFORMATION:
            row[TELLS_N] = estimate.n
        counts.append(estimate.n)
    return row | {"n": max(counts), "median words": float(median(control.words))}


def _estimate_cells(measure: Measure, estimate: Estimate, estimated: bool = False) -> dict[str, Cell]:
    mean = approximate(estimate.mean, estimated)
    return {measure.mean: mean, measure.low: estimate.low, measure.high: estimate.high}


def _overview_notes(
    run: RunRecords, results: Sequence[StrategyResult], measures: Sequence[Measure], uneven: Sequence[Measure]
) -> list[str]:
    first = list(filter(None, [show_case_note(run)]))
    notes = []
    if INFORMATION in measures:
        notes += _information_notes(run, results)
    for measure in measures:
        notes += _settings_note(run, measure)
    method = method_note(result.estimate(measure) for result in results for measure in measures)
    if notes and len(measures) == 1 and notes[-1].startswith("judge of "):
        notes[-1] += f"; {method}"
    elif notes:
        notes.append(method)
    scores = list(chain.from_iterable(run.strategy_scores(name).values() for name in run.strategies))
    if any(traits_of(judge).is_show_case for judge in run.judges):
        notes.append(HEDGES)
    notes += estimate_note(scores)
    if uneven:
        commons = [result.common_estimate(uneven[-1]) for result in results]
        coverage = coverage_text(max(filter(None, commons), key=lambda estimate: estimate.n))
        notes.append(
            "the strategies were scored on different questions: compare them only by the common mean, "
            f"coverage {coverage}"
        )
    pending = sum(result.pending for result in results)
    if pending:
        what = "1 score is" if pending == 1 else f"{pending} scores are"
        notes.append(f"the run is not finished: {what} still missing; add with: selfreflect score --out DIR")
    return first + notes


def _settings_note(run: RunRecords, measure: Measure) -> list[str]:
    """Name the judge and its settings, or warn that there are several."""
    by_question: dict[str, set[str]] = defaultdict(set)
    for name in run.strategies:
        for id_, text in measure.settings(run, name).items():
            by_question[id_].add(text)
    settings = sorted(set().union(*by_question.values()))
    if len(settings) < 2:
        of = "what summaries tell" if measure is INFORMATION else "the SelfReflect scores"
        return [f"judge of {of}: {text}" for text in settings]
    if measure is INFORMATION and all(len(texts) == 1 for texts in by_question.values()):
        counts = Counter(text for (text,) in by_question.values())
        parts = []
        for text, count in sorted(counts.items()):
            parts.append(f"{text}: {counted(count, 'question')}")
        shares = "; ".join(parts)
        return [f"compare strategies, not questions, which were not all measured alike: {shares}"]
    what = "what summaries tell was measured" if measure is INFORMATION else "scored"
    return [f"NOT DIRECTLY COMPARABLE: {what} with different judges or settings ({'; '.join(settings)})"]


def zero_text(run: RunRecords) -> str:
    """Say what 0 % is."""
    if run.scale == "question":
        return "the question alone, as in earlier versions (`selfreflect score` measures anew)"
    names = {"empty": "an empty summary", "repeated": "the repeated question where the judge does not see it"}
    return " or ".join(names[zero] for zero in run.zero.split(", "))


def _information_notes(run: RunRecords, results: Sequence[StrategyResult]) -> list[str]:
    """Explain the share, its reader, and the questions without one."""
    answers = answers_text(conditioning_count(run))
    readers = set(chain.from_iterable(result.readers for result in results))
    notes = [
        f"tells: how far a summary helps the judge to predict fresh answers; 0% is {zero_text(run)}, "
        f"100% is what {answers} would"
    ]
    if run.scale == TODAYS_SCALE:
        notes[0] += ", each different one said once"
    elif run.information:
        notes[0] += ", repetitions included, as in earlier versions (`selfreflect score` measures anew)"
    if any((result.recovered.mean or 0) > 1 for result in results):
        notes[0] += ", and above that a summary helps more than they do"
    if readers == {"blind"} and run.scale != TODAYS_SCALE:
        notes[0] += "; the judge is blind: it does not see the question, so repeating it tells much, too"
    reasons: Counter[NothingToTell | UnclearCause] = Counter()
    for result in results:
        reasons |= Counter(result.reasons)  # mostly the same questions for every strategy
    for reason, count in reasons.items():
        notes.append(f"no share on {count} of {len(run.questions)} questions: {reason_of(reason).short}")
        if reason == "known":
            notes[-1] += f"; use {OTHER_JUDGE if readers == {'blind'} else OTHER_READER}"
    unmeasured = len(run.scores.keys() - run.information.keys())
    if unmeasured:
        notes.append(
            f"what {unmeasured} scored summaries tell has not been measured: run `selfreflect score`"
        )
    return notes


def _control_notes(
    run: RunRecords, results: Sequence[StrategyResult], controls: Sequence[ControlValues]
) -> list[str]:
    """Name every control that says nothing and does better than a strategy on the same questions, and whether
    that is clear. The headline names those that are ahead of the best strategy: it is not named again, nor is
    anything of a control that is clearly ahead of it."""
    notes = []
    for control in controls:
        for measure in run_measures(run):
            best = best_strategy(results, measure)
            if best is None:
                continue
            of_best = control_lead(run, control, best, measure)
            if of_best is not None and of_best.is_clear:
                continue
            behind: dict[bool, list[str]] = {True: [], False: []}
            for name in run.strategies:
                lead = control_lead(run, control, name, measure)
                if lead is None or name == best:
                    continue
                control_mean = format(lead.mean, measure.form)
                own_mean = format(lead.strategy_mean, measure.form)
                if control_mean != own_mean:
                    behind[lead.is_clear].append(f"{name} ({control_mean} against {own_mean})")
            text = measure.higher_text if measure.higher_is_better else measure.lower_text
            for is_clear, strategies in behind.items():
                if strategies:
                    prefix = "CONTROL AHEAD" if is_clear else "control ahead, but not clearly"
                    notes.append(f"{prefix}: {control.name} {text} {', '.join(strategies)}")
    return notes


def summary_table(records: RunRecords) -> Table:
    """A row for each summary of the first questions."""
    measures = run_measures(records)
    columns = [Column("question"), Column("name"), Column("summary")]
    columns += [Column(measure.mean.removeprefix("mean "), measure.form) for measure in measures]
    rows: list[tuple[Cell, ...]] = []
    for question in records.questions.values():
        for outcome in records.outcomes(question.id):
            if outcome.summary is None:
                continue
            cells: list[Cell] = [one_line(question.text, 60), outcome.strategy]
            cells.append(one_line(outcome.summary.text, 80))
            for measure in measures:
                score = outcome.score.value if outcome.score else None
                cells.append(_share_cell(outcome.information) if measure.higher_is_better else score)
            rows.append(tuple(cells))
    notes = []
    if len(rows) > SHOWN_ROWS:
        notes.append(f"and {len(rows) - SHOWN_ROWS} more; --json shows all")
    return Table("Summaries", tuple(columns), tuple(rows[:SHOWN_ROWS]), tuple(notes))


def _share_cell(information: Information | None) -> Cell:
    """A share, or in brackets what it would be and why it does not count."""
    if information is None or information.recovered is not None or information.undefined is None:
        return None if information is None else information.recovered
    doubtful = tentative(information)
    return reason_of(information.reason or information.undefined).word if doubtful is None else doubtful.text


def failure_table(run: RunRecords) -> Table:
    """Count failures by stage, strategy and kind, each with its first message as an example."""
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
    reasons = {(kind, stage == "answers"): REMEDIES[kind] for stage, _, kind, *_ in rows}
    notes = []
    for (kind, drawing), remedy in reasons.items():
        tokens = "--max-new-tokens" if drawing else "--summary-tokens"
        notes.append(f"{kind}: {remedy.format(tokens=tokens)}")
    return Table("Failures", FAILURE_COLUMNS, tuple(rows), tuple(notes))
