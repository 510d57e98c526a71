"""The lines of JSON that ``report`` and ``compare`` print."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from selfreflect.report.breakdown import by_value, divided_contenders
from selfreflect.report.comparison import Contender, compare
from selfreflect.report.results import INFORMATION, SELFREFLECT, Measure, no_interval, strategy_results
from selfreflect.report.run_records import RunRecords
from selfreflect.stats import CONFIDENCE


def result_lines(records: RunRecords) -> Iterator[dict[str, Any]]:
    """The results of each strategy of a run."""
    for result in strategy_results(records):
        estimate = result.score
        line: dict[str, Any] = {
            "run": records.label,
            "strategy": result.strategy,
            "score": estimate.mean,
            "low": estimate.low,
            "high": estimate.high,
            "confidence": CONFIDENCE,
            "n": estimate.n,
            "questions": estimate.total,
            "coverage": estimate.coverage,
            "no_interval": no_interval(estimate),
            "median_words": result.median_words,
            "failures": result.failures,
            "judge": records.judge,
        }
        if records.information:
            line |= {
                "bits": result.bits,
                "bits_available": result.bits_available,
                "recovered": result.recovered.mean,
                "recovered_low": result.recovered.low,
                "recovered_high": result.recovered.high,
                "recovered_no_interval": no_interval(result.recovered),
                "reader": ", ".join(result.readers) or None,
                "undefined": dict(result.undefined),
            }
        if result.estimated:
            line["estimated"] = result.estimated
        yield line


def breakdown_lines(run: RunRecords, name: str) -> list[dict[str, Any]]:
    """The rows of :func:`breakdown` as JSON."""
    lines = []
    for value, part in by_value(run, name).items():
        for result in strategy_results(part):
            line: dict[str, Any] = {"run": run.label, "by": name, "value": value, "strategy": result.strategy}
            score, recovered = result.score, result.estimate(INFORMATION)
            line |= {"score": score.mean, "low": score.low, "high": score.high, "n": score.n}
            line["no_interval"] = no_interval(score)
            if run.information:
                line |= {
                    "recovered": recovered.mean,
                    "recovered_low": recovered.low,
                    "recovered_high": recovered.high,
                }
                line["recovered_n"] = recovered.n
                line["recovered_no_interval"] = no_interval(recovered)
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
        "low": paired.difference.low,
        "high": paired.difference.high,
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
