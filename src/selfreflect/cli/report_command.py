"""``selfreflect report``: tables of one or several run directories."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from selfreflect.cli import options as o

if TYPE_CHECKING:
    from selfreflect.report.tables import RunRecords

Runs = Annotated[list[Path], typer.Argument(metavar="RUN...", help="Run directories.", show_default=False)]
Outputs = Annotated[
    list[Path] | None,
    typer.Option("--output", metavar="FILE", help="Write the tables (.md) or one row per question and strategy (.csv). May be repeated."),
]
OneQuestion = Annotated[str | None, typer.Option("--question", metavar="ID", help="Show this question in full.")]


def command(runs: Runs, output: Outputs = None, question: OneQuestion = None, json: o.Json = False) -> None:
    """Means with intervals, n and coverage for every strategy, and what failed and why. Needs no model."""
    from selfreflect.cli.show import emit_overview, loaded_records, print_question, print_report

    for path in output or []:
        if path.suffix not in _WRITERS:
            raise typer.BadParameter(f"--output {path}: the name must end in {' or '.join(_WRITERS)}")
    records = loaded_records(runs)
    for one in records:
        if json:
            emit_overview(one)
        else:
            print_report(one)
        if question is not None and not json:
            print_question(one, question, answers=20)
    for path in output or []:
        _write(path, _WRITERS[path.suffix](records))


def _markdown(records: list[RunRecords]) -> str:
    from selfreflect.report.render import to_markdown
    from selfreflect.report.tables import failure_table, overview

    parts = []
    for one in records:
        parts.append(to_markdown(overview(one)))
        if one.failures:
            parts.append(to_markdown(failure_table(one)))
    return "\n".join(parts)


def _csv(records: list[RunRecords]) -> str:
    from selfreflect.report.render import to_csv
    from selfreflect.report.tables import joined, question_table

    return to_csv(joined({one.label: question_table(one) for one in records}))


_WRITERS = {".md": _markdown, ".csv": _csv}


def _write(path: Path, text: str) -> None:
    from selfreflect.cli.console import say
    from selfreflect.cli.show import where
    from selfreflect.errors import DataError

    try:
        path.write_text(text, encoding="utf-8", newline="")
    except OSError as error:
        raise DataError(f"{path}: cannot be written: {error.strerror}") from error
    say(f"wrote {where(path)}")
