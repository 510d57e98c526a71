"""Tables of runs joined as Markdown, CSV or LaTeX, and the JSON lines of commands."""

from __future__ import annotations

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
from selfreflect.report.measures import bundled_measures, plain_measure, records_of, run_measures
from selfreflect.report.overview import failure_table, overview
from selfreflect.report.results import (
    StrategyResult,
    breakdown,
    by_value,
    differing_halves,
    no_interval,
    strategy_results,
)
from selfreflect.report.run_records import RunRecords
from selfreflect.stats import CONFIDENCE, Estimate
from selfreflect.table import Cell, Column, Table, joined, to_csv, to_latex, to_markdown
from selfreflect.text import markdown_text


def judge_tables_of(by_run: Sequence[Sequence[RunRecords]]) -> list[Table]:
    """Tabulate the judges of each run that has several."""
    return list(chain.from_iterable(map(judge_tables, by_run)))


def markdown(by_run: Sequence[Sequence[RunRecords]], by: str | None) -> str:
    """Write results and failures of each run and judge as Markdown, in total and by a column's values."""
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
    """Write the results of each run and judge as LaTeX tables for booktabs.

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
    """Write one row per question and strategy."""
    return to_csv(joined({run.label: question_table(run) for run in records}))


def result_lines(records: RunRecords) -> Iterator[dict[str, Any]]:
    """Yield the results of each strategy of a run."""
    differing = len(differing_halves(records))
    for result in strategy_results(records):
        yield {
            "run": records.label,
            "strategy": result.strategy,
            **measure_fields(records, result),
            "confidence": CONFIDENCE,
            "questions": len(records.questions),
            "coverage": result.estimate(plain_measure()).coverage,
            "median_words": result.median_words,
            "failures": result.failures,
            "judge": records.judge,
            "halves_differ": differing,
        }


def measure_fields(run: RunRecords, result: StrategyResult) -> dict[str, Any]:
    """Build a strategy's JSON keys for the plain measure and for each measure of the run."""
    fields: dict[str, Any] = {}
    for measure in dict.fromkeys([plain_measure(), *run_measures(run)]):
        estimate = result.estimate(measure)
        numbers: dict[str, Any] = {"mean": estimate.mean, **_ends(estimate), "n": estimate.n}
        numbers["no_interval"] = no_interval(estimate)
        fields |= measure.result_fields(numbers, list(records_of(measure, run, result.strategy).values()))
    return fields


def _ends(estimate: Estimate) -> dict[str, float | None]:
    return {"low": estimate.low, "high": estimate.high}


def breakdown_lines(run: RunRecords, name: str) -> list[dict[str, Any]]:
    """Build the rows of :func:`breakdown` as JSON."""
    lines = []
    for value, part in by_value(run, name).items():
        for result in strategy_results(part):
            line = {"run": run.label, "by": name, "value": value, "strategy": result.strategy}
            lines.append({**line, **measure_fields(part, result), "questions": len(part.questions)})
    return lines


def comparison_line(base: Contender, candidate: Contender) -> dict[str, Any]:
    """Build the JSON line of a comparison, for the plain measure and for all common measures."""
    line: dict[str, Any] = {
        "baseline": {"run": base.label, "strategy": base.strategy},
        "run": candidate.label,
        "strategy": candidate.strategy,
        "judge": candidate.run.judge,
    }
    for measure in dict.fromkeys([plain_measure(), *common_measures(base, [candidate])]):
        fields = _difference(base, candidate, measure)
        line |= fields if measure.is_plain else {measure.key: fields}
    return line


def _difference(base: Contender, candidate: Contender, measure: Measure) -> dict[str, Any]:
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
    """Yield the comparison lines for each value of a column."""
    for value, (part, sides) in divided_contenders(base, candidates, by).items():
        for side in sides:
            yield {"by": by, "value": value, **comparison_line(part, side)}


def question_columns(run: RunRecords) -> list[Column]:
    """List the columns of the table of questions, with plug-in measures last."""
    names = {"question_id": "", "question": "", "kind": "", "strategy": ""}
    for measure in _plain_first():
        names |= measure.table_columns
    names |= {"summary": "", "summary_words": "d", "failure": ""}
    for measure in _packaged(run):
        names |= measure.table_columns
    return [Column(name, form) for name, form in names.items()]


def _plain_first() -> list[Measure]:
    return sorted(bundled_measures(), key=lambda measure: not measure.is_plain)


def _packaged(run: RunRecords) -> list[Measure]:
    """List a run's measures that have no record type of their own."""
    return [measure for measure in run_measures(run) if not measure.is_bundled]


def question_table(run: RunRecords) -> Table:
    """Tabulate every question and strategy, with the reason for a missing score in ``failure``.

    The questions' metadata follow in columns of their own.
    """
    columns = question_columns(run)
    reserved = [*(column.heading for column in columns), "run"]  # joined tables have that, too
    headings = metadata_headings(run.questions.values(), reserved)
    rows: list[tuple[Cell, ...]] = []
    for question in run.questions.values():
        metadata = list(map(question.metadata.get, headings))
        for outcome in run.outcomes(question.id):
            cells: dict[str, Cell] = {"question_id": question.id, "question": question.text}
            cells |= {"kind": question.kind, "strategy": outcome.strategy}
            for measure in (*_plain_first(), *_packaged(run)):
                record = run.results(measure).get((question.id, outcome.strategy))
                if record is not None:
                    cells |= zip(measure.table_columns, measure.table_cells(record), strict=True)
            if outcome.summary is not None:
                text = outcome.summary.text
                cells |= {"summary": text, "summary_words": len(text.split())}
            if outcome.failure is not None:
                cells["failure"] = f"{outcome.failure.kind}: {outcome.failure.message}"
            rows.append((*(cells.get(column.heading) for column in columns), *metadata))
    return Table("Questions", (*columns, *map(Column, headings.values())), tuple(rows))
