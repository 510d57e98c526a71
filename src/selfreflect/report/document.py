"""The tables of runs in one text, as Markdown or CSV, and as the lines of JSON that commands print."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any

from selfreflect.metric.measure import Measure as AnyMeasure
from selfreflect.records import Measurement
from selfreflect.report.breakdown import breakdown, by_value, divided_contenders
from selfreflect.report.comparison import Contender, compare, paste_table, run_curve
from selfreflect.report.judges import judge_tables
from selfreflect.report.overview import failure_table, overview
from selfreflect.report.question_table import joined, question_table
from selfreflect.report.results import (
    INFORMATION,
    SELFREFLECT,
    Measure,
    Values,
    differing_halves,
    no_interval,
    strategy_results,
)
from selfreflect.report.run_records import RunRecords
from selfreflect.report.sentences import headline
from selfreflect.stats import CONFIDENCE, Estimate
from selfreflect.table import Table, to_csv, to_markdown
from selfreflect.text import markdown_text


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
        curve = run_curve(run)
        if curve is not None:
            tables.append(to_markdown(paste_table(*curve)))
        if run.failures:
            tables.append(to_markdown(failure_table(run)))
    tables += map(to_markdown, judge_tables_of(by_run))
    return "\n".join(tables)


def csv(records: Sequence[RunRecords]) -> str:
    """A row for each question and strategy."""
    return to_csv(joined({run.label: question_table(run) for run in records}))


def result_lines(records: RunRecords) -> Iterator[dict[str, Any]]:
    """The results of each strategy of a run."""
    differing = len(differing_halves(records))
    for result in strategy_results(records):
        line: dict[str, Any] = {
            "run": records.label,
            "strategy": result.strategy,
            "score": result.score.mean,
            **_ends(result.score),
            "confidence": CONFIDENCE,
            "n": result.score.n,
            "questions": result.score.total,
            "coverage": result.score.coverage,
            "no_interval": no_interval(result.score),
            "median_words": result.median_words,
            "failures": result.failures,
            "judge": records.judge,
            "halves_differ": differing,
        }
        if records.information:
            line |= {
                "bits": result.bits,
                "bits_available": result.bits_available,
                "recovered": result.recovered.mean,
                **_ends(result.recovered, "recovered_"),
                "recovered_no_interval": no_interval(result.recovered),
                "reader": ", ".join(result.readers) or None,
                "zero": records.zero,
                "scale": records.scale,
                "undefined": dict(result.undefined),
                "undefined_reasons": dict(result.reasons),
            }
        if result.estimated:
            line["estimated"] = result.estimated
        for measure in records.measures:
            if measure.record is Measurement:
                line[measure.name] = _measured(records, measure, result.strategy)
        yield line


def _measured(run: RunRecords, measure: AnyMeasure, strategy: str) -> dict[str, Any]:
    """Write the mean of a measure of another package over the questions of a strategy."""
    measurements = [
        measure.measurement(record)
        for (id_, name), record in run.results(measure).items()
        if name == strategy and id_ in run.questions
    ]
    defined = {one.question_id: one for one in measurements if one.value is not None}
    if measure.ratio is None:
        values = Values({id_: one.value or 0.0 for id_, one in defined.items()})
    else:
        above, below = (
            {id_: one.parts[name] or 0.0 for id_, one in defined.items()} for name in measure.ratio
        )
        values = Values(above, below)
    estimate = values.estimate(len(run.questions))
    undefined = Counter(one.undefined for one in measurements if one.undefined)
    return {"mean": estimate.mean, **_ends(estimate), "n": estimate.n, "undefined": dict(undefined)}


def _ends(estimate: Estimate, prefix: str = "") -> dict[str, float | None]:
    return {f"{prefix}low": estimate.low, f"{prefix}high": estimate.high}


def breakdown_lines(run: RunRecords, name: str) -> list[dict[str, Any]]:
    """The rows of :func:`breakdown` as JSON."""
    lines = []
    for value, part in by_value(run, name).items():
        for result in strategy_results(part):
            line: dict[str, Any] = {"run": run.label, "by": name, "value": value, "strategy": result.strategy}
            line |= {"score": result.score.mean, **_ends(result.score), "n": result.score.n}
            line["no_interval"] = no_interval(result.score)
            if run.information:
                recovered = result.recovered
                line |= {"recovered": recovered.mean, **_ends(recovered, "recovered_")}
                line |= {"recovered_n": recovered.n, "recovered_no_interval": no_interval(recovered)}
            lines.append({**line, "questions": len(part.questions)})
    return lines


def comparison_line(base: Contender, other: Contender) -> dict[str, Any]:
    """The JSON line of a comparison."""
    line = {
        "baseline": {"run": base.label, "strategy": base.strategy},
        "run": other.label,
        "strategy": other.strategy,
        "judge": other.run.judge,
        **_difference(base, other, SELFREFLECT),
    }
    if base.run.information and other.run.information:
        line["recovered"] = _difference(base, other, INFORMATION)
    return line


def _difference(base: Contender, other: Contender, measure: Measure) -> dict[str, Any]:
    result = compare(base, other, measure)
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


def comparison_lines_by(base: Contender, others: Sequence[Contender], by: str) -> Iterator[dict[str, Any]]:
    """The lines of a comparison for each value of a column."""
    for value, (part, sides) in divided_contenders(base, others, by).items():
        for side in sides:
            yield {"by": by, "value": value, **comparison_line(part, side)}
