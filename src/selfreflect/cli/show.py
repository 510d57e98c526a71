"""What several commands show at their end: tables, one question in full, and the exit code that failures ask
for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from rich.console import Console
from rich.text import Text

from selfreflect.cli.console import emit, stdout
from selfreflect.pipeline.experiment import run_records
from selfreflect.render.table import Table, to_rich
from selfreflect.render.text import one_line, printable
from selfreflect.report.detail import QuestionDetail, SummaryDetail, question_detail
from selfreflect.report.overview import RunRecords, failure_table, overview, strategy_results
from selfreflect.store.run import Run


def loaded_records(paths: Sequence[Path], *, detail: bool) -> list[RunRecords]:
    """The records of run directories, labelled by their names, or by their paths where two have the same
    name.

    Tables do without the ``detail``: with it, a dozen large runs would not fit into memory.
    """
    records = [run_records(Run.load(path, detail=detail)) for path in paths]
    labels = Counter(one.label for one in records)
    return [
        replace(one, label=str(path)) if labels[one.label] > 1 else one
        for path, one in zip(paths, records, strict=True)
    ]


def print_table(table: Table, console: Console = stdout) -> None:
    console.print(to_rich(table))


def print_report(records: RunRecords) -> None:
    print_table(overview(records))
    if records.failures:
        print_table(failure_table(records))


def emit_overview(records: RunRecords) -> None:
    """One JSON line per strategy."""
    for result in strategy_results(records):
        estimate = result.score
        emit(
            {
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
                **({"estimated": result.estimated} if result.estimated else {}),
            }
        )


def print_question(records: RunRecords, question_id: str, *, answers: int = 5, width: int = 110) -> None:
    """One question in full: its most frequent answers, then each summary with its score and what it predicted
    worst."""
    detail = question_detail(records, question_id, worst=3)
    stdout.print(Text(f"\n{one_line(detail.question.text)}", style="bold"))
    print_answers(detail, answers, width)
    if detail.summaries:
        stdout.print(
            Text("Summaries, with their SelfReflect score (0 is perfect, lower is better):", style="dim")
        )
    for summary in detail.summaries:
        _print_summary(summary, width)


def print_answers(detail: QuestionDetail, limit: int, width: int = 110) -> None:
    total = sum(group.count for group in detail.groups)
    kinds = f"{total} sampled answers of {len(detail.groups)} kind{'' if len(detail.groups) == 1 else 's'}"
    stdout.print(Text(f"{kinds}, the most frequent first:", style="dim"))
    for group in detail.groups[:limit]:
        stdout.print(Text(f"  {group.count:3d} x  {_cut(group.text, width)}"), soft_wrap=True)
    if len(detail.groups) > limit:
        stdout.print(Text(f"   … and {len(detail.groups) - limit} more", style="dim"))


def _print_summary(detail: SummaryDetail, width: int) -> None:
    stdout.print(
        Text(f"{one_line(detail.strategy)}  ", style="bold cyan").append(
            _score_text(detail), style="not bold default"
        )
    )
    if detail.summary is not None:
        stdout.print(Text(f"    {_cut(detail.summary.text, 3 * width)}"))
    if detail.worst_words:
        words = ", ".join(f"{one_line(word.text)} ({word.mean:.3f})" for word in detail.worst_words)
        stdout.print(Text(f"    predicted worst: {words}", style="dim"))


def _score_text(detail: SummaryDetail) -> str:
    if detail.score_text is not None:
        return f"score {detail.score_text}"
    if detail.failure is not None:
        return one_line(f"no score: {detail.failure.message}")
    return "not scored yet"


def _cut(text: str, limit: int) -> str:
    shown = one_line(text) or "(blank)"
    return shown if len(shown) <= limit else shown[: limit - 1] + "…"


def where(path: Path) -> str:
    return printable(str(path))
