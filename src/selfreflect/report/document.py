"""The tables of runs in one text, as Markdown or CSV, and as the lines of JSON that commands print."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any

from selfreflect.metric.measure import Measure
from selfreflect.records import metadata_headings
from selfreflect.report.compare import (
    Contender,
    common_measures,
    compare,
    comparisons,
    contenders,
    divided_contenders,
    judge_tables,
)
from selfreflect.report.findings import headline
from selfreflect.report.length import pasted_table, run_pasted
from selfreflect.report.measures import INFORMATION, SELFREFLECT, MeasureView, run_measures
from selfreflect.report.overview import failure_table, overview
from selfreflect.report.results import (
    StrategyResult,
    approximate,
    breakdown,
    by_value,
    differing_halves,
    estimated_from,
    no_interval,
    strategy_results,
)
from selfreflect.report.run_records import RunRecords, SummaryOutcome
from selfreflect.stats import CONFIDENCE, Estimate
from selfreflect.table import Cell, Column, Table, joined, to_csv, to_latex, to_markdown
from selfreflect.text import markdown_text

QUESTION_COLUMNS = (
    Column("question_id"),
    Column("question"),
    Column("kind"),
    Column("strategy"),
    Column("score", SELFREFLECT.form),
    Column("stderr", SELFREFLECT.form),
    Column("token_tasks", "d"),
    Column("estimated_from"),
    Column("bits", ".1f"),
    Column("bits_available", ".1f"),
    Column("recovered", INFORMATION.form),
    Column("recovered_low", INFORMATION.form),
    Column("recovered_high", INFORMATION.form),
    Column("reader"),
    Column("zero"),
    Column("anchor"),
    Column("undefined"),
    Column("summary"),
    Column("summary_words", "d"),
    Column("failure"),
)


def judge_tables_of(by_run: Sequence[Sequence[RunRecords]]) -> list[Table]:
    """Tables of the judges of each run that has several."""
    return list(chain.from_iterable(map(judge_tables, by_run)))


def markdown(by_run: Sequence[Sequence[RunRecords]], by: str | None) -> str:
    """Results of each run and judge, by the values of a column too if it is named, and what failed."""
    tables = []
    records = list(chain.from_iterable(by_run))
    for run in records:
        label = f"**{markdown_text(run.label)}.** " if len(records) > 1 else ""
        tables.append(f"{label}{markdown_text(headline(run))}\n")
        tables.append(to_markdown(overview(run)))
        if by is not None:
            tables.append(to_markdown(breakdown(run, by)))
        pasted = run_pasted(run)
        if pasted is not None:
            tables.append(to_markdown(pasted_table(*pasted)))
        if run.failures:
            tables.append(to_markdown(failure_table(run)))
    tables += map(to_markdown, judge_tables_of(by_run))
    return "\n".join(tables)


def latex(by_run: Sequence[Sequence[RunRecords]], by: str | None = None) -> str:
    """Write the results of each run and judge as LaTeX tables for the package booktabs.

    Several runs also get a table of the differences from the first.
    """
    records = list(chain.from_iterable(by_run))
    tables = ["% \\usepackage{booktabs}\n"]
    for run in records:
        tables.append(to_latex(overview(run)))
        if by is not None:
            tables.append(to_latex(breakdown(run, by)))
    sides = contenders([of_run[0] for of_run in by_run], None)
    if len(sides) > 1:
        tables += [to_latex(table) for table, _ in comparisons(sides[0], sides[1:])]
    tables += map(to_latex, judge_tables_of(by_run))
    return "\n".join(tables)


def csv(records: Sequence[RunRecords]) -> str:
    """Write a row for each question and strategy."""
    return to_csv(joined({run.label: question_table(run) for run in records}))


def result_lines(records: RunRecords) -> Iterator[dict[str, Any]]:
    """Give the results of each strategy of a run."""
    differing = len(differing_halves(records))
    for result in strategy_results(records):
        score = result.estimate(SELFREFLECT)
        line: dict[str, Any] = {
            "run": records.label,
            "strategy": result.strategy,
            "score": score.mean,
            **_ends(score),
            "confidence": CONFIDENCE,
            "n": score.n,
            "questions": score.total,
            "coverage": score.coverage,
            "no_interval": no_interval(score),
            "median_words": result.median_words,
            "failures": result.failures,
            "judge": records.judge,
            "halves_differ": differing,
        }
        if records.information:
            line |= _information_fields(records, result)
        if result.estimated:
            line["estimated"] = result.estimated
        for measure in run_measures(records):
            if not measure.is_bundled:
                measurements = measure.records(records, result.strategy).values()
                counts = Counter(record.undefined for record in measurements if record.undefined)
                line[measure.key] = {**_estimate_fields(result.estimate(measure)), "undefined": dict(counts)}
        yield line


def _estimate_fields(estimate: Estimate) -> dict[str, Any]:
    return {"mean": estimate.mean, **_ends(estimate), "n": estimate.n}


def _information_fields(records: RunRecords, result: StrategyResult) -> dict[str, Any]:
    recovered = result.estimate(INFORMATION)
    return {
        "bits": result.bits,
        "bits_available": result.bits_available,
        "recovered": recovered.mean,
        **_ends(recovered, "recovered_"),
        "recovered_no_interval": no_interval(recovered),
        "reader": ", ".join(result.readers) or None,
        "zero": records.zero,
        "scale": records.scale,
        "undefined": dict(result.undefined),
        "undefined_reasons": dict(result.reasons),
    }


def _ends(estimate: Estimate, prefix: str = "") -> dict[str, float | None]:
    return {f"{prefix}low": estimate.low, f"{prefix}high": estimate.high}


def breakdown_lines(run: RunRecords, name: str) -> list[dict[str, Any]]:
    """Write the rows of :func:`breakdown` as JSON."""
    lines = []
    for value, part in by_value(run, name).items():
        for result in strategy_results(part):
            line: dict[str, Any] = {"run": run.label, "by": name, "value": value, "strategy": result.strategy}
            score = result.estimate(SELFREFLECT)
            line |= {"score": score.mean, **_ends(score), "n": score.n, "no_interval": no_interval(score)}
            if run.information:
                recovered = result.estimate(INFORMATION)
                line |= {"recovered": recovered.mean, **_ends(recovered, "recovered_")}
                line |= {"recovered_n": recovered.n, "recovered_no_interval": no_interval(recovered)}
            for measure in run_measures(part):
                if not measure.is_bundled:
                    line[measure.key] = _estimate_fields(result.estimate(measure))
            lines.append({**line, "questions": len(part.questions)})
    return lines


def comparison_line(base: Contender, candidate: Contender) -> dict[str, Any]:
    """Write a comparison as a line of JSON."""
    line = {
        "baseline": {"run": base.label, "strategy": base.strategy},
        "run": candidate.label,
        "strategy": candidate.strategy,
        "judge": candidate.run.judge,
        **_difference(base, candidate, SELFREFLECT),
    }
    for measure in common_measures(base, [candidate]):
        if measure is not SELFREFLECT:
            line[measure.key] = _difference(base, candidate, measure)
    return line


def _difference(base: Contender, candidate: Contender, measure: MeasureView) -> dict[str, Any]:
    result = compare(base, candidate, measure)
    paired = result.paired
    return {
        "difference": paired.difference.mean,
        **_ends(paired.difference),
        "no_interval": no_interval(paired.difference),
        "n": paired.difference.n,
        "questions": paired.difference.total,
        "wins": paired.wins,
        "ties": paired.ties,
        "losses": paired.losses,
        "p_value": paired.p_value,
        "verdict": result.verdict,
        "testable": result.is_testable,
        "sentence": result.sentence,
    }


def comparison_lines_by(
    base: Contender, candidates: Sequence[Contender], by: str
) -> Iterator[dict[str, Any]]:
    """Write the lines of a comparison for each value of a column."""
    for value, (part, sides) in divided_contenders(base, candidates, by).items():
        for side in sides:
            yield {"by": by, "value": value, **comparison_line(part, side)}


def question_columns(run: RunRecords) -> list[Column]:
    """List the columns of the table of questions, with those of measures of other packages at last."""
    columns = [*QUESTION_COLUMNS]
    for measure in _packaged(run):
        for name in measure.columns:
            is_number = name == measure.columns[0] or name in measure.numbers
            columns.append(Column(name, measure.form if is_number else ""))
    return columns


def _packaged(run: RunRecords) -> list[Measure]:
    """List the measures of a run that are of other packages."""
    return [view.measure for view in run_measures(run) if not view.is_bundled]


def question_table(run: RunRecords) -> Table:
    """Tabulate every question and strategy; ``failure`` says why a score is missing.

    The questions' metadata follow in columns of their own.
    """
    packaged = _packaged(run)
    columns = question_columns(run)
    reserved = [*(column.heading for column in columns), "run"]  # joined tables have that, too
    headings = metadata_headings(run.questions.values(), reserved)
    rows: list[tuple[Cell, ...]] = []
    for question in run.questions.values():
        cells = (question.id, question.text, question.kind)
        metadata = list(map(question.metadata.get, headings))
        for outcome in run.outcomes(question.id):
            measure_cells: list[Cell] = []
            for measure in packaged:
                record = run.results(measure).get((question.id, outcome.strategy))
                measure_cells += [None] * len(measure.columns) if record is None else measure.cells(record)
            rows.append((*cells, *_outcome_cells(outcome), *measure_cells, *metadata))
    return Table("Questions", (*columns, *map(Column, headings.values())), tuple(rows))


def _outcome_cells(outcome: SummaryOutcome) -> tuple[Cell, ...]:
    strategy, summary, score, failure, information, _ = outcome
    score_cells: tuple[Cell, ...] = (None, None, None, None)
    if score:
        value = approximate(score.value, score.estimate is not None)
        score_cells = (value, score.stderr, score.token_tasks, estimated_from(score))
    information_cells: tuple[Cell, ...] = (None,) * 9
    if information:
        low, high = information.interval or (None, None)
        bits = (information.bits, information.bits_available, information.recovered, low, high)
        undefined: str | None = information.undefined
        if detail := information.cause or information.why:
            undefined = f"{undefined}: {detail}"
        of_scale = (information.reader, information.zero, information.anchor)
        information_cells = (*bits, *of_scale, undefined)
    summary_cells: tuple[Cell, ...] = (None, None)
    if summary:
        summary_cells = (summary.text, len(summary.text.split()))
    reason = f"{failure.kind}: {failure.message}" if failure else None
    return (strategy, *score_cells, *information_cells, *summary_cells, reason)
