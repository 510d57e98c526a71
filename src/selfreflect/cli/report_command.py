"""``selfreflect report``: tables, a page and figures of one or several run directories."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from selfreflect.cli import options as o

if TYPE_CHECKING:
    from selfreflect.report.overview import RunRecords
    from selfreflect.report.page.view import Grouping

Runs = Annotated[list[Path], typer.Argument(metavar="RUN...", help="Run directories.", show_default=False)]
Outputs = Annotated[
    list[Path] | None,
    typer.Option(
        "--output",
        metavar="FILE",
        help="Write a page to look at (.html), the tables (.md), or one row per question and strategy (.csv). May be repeated.",
    ),
]
Figures = Annotated[
    Path | None,
    typer.Option("--figures", metavar="DIR", help="Write every figure as SVG for a paper, and its rows."),
]
Baseline = Annotated[
    str | None,
    typer.Option(
        "--baseline",
        metavar="STRATEGY",
        help="Strategy of the first run that page and figures compare with. [default: its first]",
    ),
]
Groups = Annotated[
    str,
    typer.Option(
        "--groups",
        metavar="HOW",
        help="How the page groups answers: by spelling, or by meaning (with the embed extra).",
    ),
]
LeaveOut = Annotated[
    list[str] | None,
    typer.Option(
        "--leave-out",
        metavar="PART",
        help="Make the page smaller: no guesses (what the judge expected), or no words either. May be repeated.",
    ),
]
OneQuestion = Annotated[
    str | None, typer.Option("--question", metavar="ID", help="Show this question in full.")
]


def command(
    runs: Runs,
    output: Outputs = None,
    figures: Figures = None,
    baseline: Baseline = None,
    groups: Groups = "spelling",
    leave_out: LeaveOut = None,
    question: OneQuestion = None,
    json: o.Json = False,
) -> None:
    """Means with intervals, n and coverage for every strategy, and what failed and why. Needs no model."""
    from selfreflect.cli.show import emit_overview, loaded_records, print_question, print_report

    left_out = list(dict.fromkeys(leave_out or []))
    _check(output or [], groups, left_out)
    paged = any(path.suffix == _PAGE for path in output or [])
    records = loaded_records(runs, detail=paged or question is not None)
    for one in records:
        if json:
            emit_overview(one)
        else:
            print_report(one)
        if question is not None and not json:
            print_question(one, question, answers=20)
    for path in output or []:
        if path.suffix == _PAGE:
            page = _html(records, runs, baseline, _GROUPS[groups](), left_out)
            _write(path, page)
            _warn_of_size(path, len(page.encode("utf-8")), records, left_out)
        else:
            _write(path, _WRITERS[path.suffix](records))
    if figures is not None:
        _write_figures(figures, records, baseline)


def _check(output: Sequence[Path], groups: str, left_out: Sequence[str]) -> None:
    """Raises BadParameter for options that are wrong, or of a page that is not written."""
    from selfreflect.store.trim import PARTS

    for path in output:
        if path.suffix not in _SUFFIXES:
            raise typer.BadParameter(
                f"--output {path}: the name must end in {', '.join(_SUFFIXES[:-1])} or {_SUFFIXES[-1]}"
            )
    if groups not in _GROUPS:
        raise typer.BadParameter(f"--groups {groups}: it must be {' or '.join(_GROUPS)}")
    for part in left_out:
        if part not in PARTS:
            raise typer.BadParameter(f"--leave-out {part}: it must be {' or '.join(PARTS)}")
    given = "--groups meaning" if groups == "meaning" else "--leave-out" if left_out else ""
    if given and not any(path.suffix == _PAGE for path in output):
        raise typer.BadParameter(
            f"{given} changes the page only, and none is written. Add --output FILE{_PAGE}"
        )


def _html(
    records: Sequence[RunRecords],
    paths: Sequence[Path],
    baseline: str | None,
    grouping: Grouping,
    left_out: Sequence[str],
) -> str:
    from msgspec import to_builtins

    from selfreflect.report.page.build import report_page
    from selfreflect.store.run import Run

    return report_page(
        records,
        [to_builtins(Run.load(path).manifest) for path in paths],
        baseline=baseline,
        grouping=grouping,
        left_out=left_out,
    )


def _warn_of_size(path: Path, size: int, records: Sequence[RunRecords], left_out: Sequence[str]) -> None:
    from selfreflect.cli.console import say
    from selfreflect.cli.show import where
    from selfreflect.report.page.trim import parts_of
    from selfreflect.store.trim import PARTS

    if size <= _LARGE:
        return
    there = [] if "words" in left_out else [part for part in parts_of(records) if part not in left_out]
    ways = [f"--leave-out {part} ({PARTS[part]})" for part in there] + (
        ["fewer runs on one page"] if len(records) > 1 else []
    )
    advice = (
        f"To make it smaller: {'; or '.join(ways)}."
        if ways
        else "It holds the texts and scores of one run, and nothing can be left out."
    )
    say(
        f"{where(path)} has {size / 1e6:.1f} MB, and opens slowly on small machines above {_LARGE / 1e6:.0f} MB. {advice}"
    )


def _by_spelling() -> Grouping:
    from selfreflect.grouping import group_indices

    return group_indices


def _by_meaning() -> Grouping:
    from selfreflect.models.embedder import MeaningGroups

    return MeaningGroups()


_GROUPS = {"spelling": _by_spelling, "meaning": _by_meaning}


def _markdown(records: list[RunRecords]) -> str:
    from selfreflect.render.table import to_markdown
    from selfreflect.report.overview import failure_table, overview

    parts = []
    for one in records:
        parts.append(to_markdown(overview(one)))
        if one.failures:
            parts.append(to_markdown(failure_table(one)))
    return "\n".join(parts)


def _csv(records: list[RunRecords]) -> str:
    from selfreflect.render.table import to_csv
    from selfreflect.report.overview import joined, question_table

    return to_csv(joined({one.label: question_table(one) for one in records}))


_WRITERS = {".md": _markdown, ".csv": _csv}
_PAGE = ".html"
_SUFFIXES = (_PAGE, *_WRITERS)
_LARGE = 3_000_000
"""Bytes of a page above which it is said how to make it smaller."""


def _write_figures(folder: Path, records: Sequence[RunRecords], baseline: str | None) -> None:
    from selfreflect.errors import DataError
    from selfreflect.report.figures import paper_figures

    drawn = paper_figures(records, baseline)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(f"{folder}: cannot be made: {error.strerror}") from error
    for name, text in drawn.items():
        _write(folder / name, text)


def _write(path: Path, text: str) -> None:
    from selfreflect.cli.console import say
    from selfreflect.cli.show import where
    from selfreflect.errors import DataError

    try:
        path.write_text(text, encoding="utf-8", newline="")
    except OSError as error:
        raise DataError(f"{path}: cannot be written: {error.strerror}") from error
    say(f"wrote {where(path)}")
