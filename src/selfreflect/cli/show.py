"""Show the records of runs: tables, one question in full, and JSON lines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from rich.text import Text

from selfreflect.cli.console import emit, print_table, stdout
from selfreflect.render.text import one_line
from selfreflect.report.detail import grouped_answers, score_text, worst_words
from selfreflect.report.overview import failure_table, overview, strategy_results
from selfreflect.report.run_records import RunRecords, SummaryOutcome

_WIDTH = 110
"""Characters of an answer that are shown; of a summary, three times as many."""


def load_records(paths: Sequence[Path], *, detail: bool) -> list[RunRecords]:
    """Load run directories, labelled by their names, or by their paths if two names are the same.

    Tables need no ``detail``: with it, a dozen large runs would not fit into memory.
    """
    from selfreflect.pipeline.records import run_records
    from selfreflect.store.run import Run

    records = [run_records(Run.load(path, detail=detail)) for path in paths]
    labels = Counter(run.label for run in records)
    for index, path in enumerate(paths):
        if labels[records[index].label] > 1:
            records[index] = replace(records[index], label=str(path))
    return records


def print_report(records: RunRecords) -> None:
    """Print the results of every strategy, and what failed."""
    print_table(overview(records))
    if records.failures:
        print_table(failure_table(records))


def emit_overview(records: RunRecords) -> None:
    """Print one JSON line per strategy."""
    for result in strategy_results(records):
        estimate = result.score
        line = {
            "run": records.label,
            "strategy": result.strategy,
            "score": estimate.mean,
            "low": estimate.low,
            "high": estimate.high,
            "confidence": estimate.confidence,
            "n": estimate.n,
            "questions": estimate.total,
            "coverage": estimate.coverage,
            "median_words": result.median_words,
            "failures": result.failures,
        }
        if result.estimated:
            line["estimated"] = result.estimated
        emit(line)


def print_question(records: RunRecords, question_id: str, *, answers: int = 5) -> None:
    """Print a question with its most frequent answers, and each summary with its score and worst words."""
    question = records.question(question_id)
    groups = grouped_answers(records, question_id)
    stdout.print(Text(f"\n{one_line(question.text)}", style="bold"))
    total = sum(group.count for group in groups)
    kinds = len(groups)
    plural = "" if kinds == 1 else "s"
    _print_dim(f"{total} sampled answers of {kinds} kind{plural}, the most frequent first:")
    for group in groups[:answers]:
        stdout.print(Text(f"  {group.count:3d} x  {_cut(group.text, _WIDTH)}"), soft_wrap=True)
    if kinds > answers:
        _print_dim(f"   … and {kinds - answers} more")
    if records.strategies:
        _print_dim("Summaries, with their SelfReflect score (0 is perfect, lower is better):")
    for outcome in records.outcomes(question_id):
        _print_summary(outcome)


def _print_summary(outcome: SummaryOutcome) -> None:
    line = Text(f"{one_line(outcome.strategy)}  ", style="bold cyan")
    stdout.print(line.append(_score_or_reason(outcome), style="not bold default"))
    if outcome.summary is not None:
        stdout.print(Text(f"    {_cut(outcome.summary.text, 3 * _WIDTH)}"))
    worst = worst_words(outcome.score.words, 3) if outcome.score else []
    if worst:
        words = ", ".join(f"{one_line(word.text)} ({word.mean:.3f})" for word in worst)
        _print_dim(f"    predicted worst: {words}")


def _score_or_reason(outcome: SummaryOutcome) -> str:
    if outcome.score is not None:
        return f"score {score_text(outcome.score)}"
    if outcome.failure is not None:
        return one_line(f"no score: {outcome.failure.message}")
    return "not scored yet"


def _print_dim(text: str) -> None:
    stdout.print(Text(text, style="dim"))


def _cut(text: str, limit: int) -> str:
    line = one_line(text) or "(blank)"
    return line if len(line) <= limit else line[: limit - 1] + "…"
