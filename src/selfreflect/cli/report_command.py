"""``selfreflect report``: tables, a page and figures of one or several run directories."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from selfreflect.cli import settings as o
from selfreflect.errors import ConfigError

if TYPE_CHECKING:
    from selfreflect.report.page.view import Grouping
    from selfreflect.report.run_records import RunRecords


class GroupBy(StrEnum):
    """How answers are grouped."""

    spelling = "spelling"
    meaning = "meaning"


Outputs = Annotated[
    list[Path] | None,
    o.option(
        "--output FILE",
        "Write a page (.html), the tables (.md), or one row per question and strategy (.csv). Can be "
        "repeated.",
    ),
]
Figures = Annotated[
    Path | None,
    o.option("--figures DIR", "Write every figure as SVG for a paper, and its rows."),
]
Baseline = Annotated[
    str | None,
    o.option(
        "--baseline STRATEGY",
        "Strategy of the first run that page and figures compare with. [default: its first]",
    ),
]
Groups = Annotated[
    GroupBy,
    o.option("--groups", "Group answers on the page by spelling, or by meaning (needs the embed extra)."),
]
LeaveOut = Annotated[
    list[o.Part] | None,
    o.option(
        "--leave-out PART",
        "Make the page smaller: without guesses (what the judge expected), or without words. Can be "
        "repeated.",
    ),
]
OneQuestion = Annotated[str | None, o.option("--question ID", "Show this question in full.")]

LARGE_PAGE = 3_000_000
"""Bytes above which a page opens slowly on small machines."""


def command(
    runs: o.Runs,
    output: Outputs = None,
    figures: Figures = None,
    baseline: Baseline = None,
    groups: Groups = GroupBy.spelling,
    leave_out: LeaveOut = None,
    question: OneQuestion = None,
    json: o.Json = False,
) -> None:
    """Show the results of runs, and write tables, a page or figures.

    Gives mean score, interval, n and coverage for every strategy, and the reason of every failure. Needs no
    model.
    """
    from selfreflect.cli.console import make_folder, write_file
    from selfreflect.cli.show import emit_overview, load_records, print_question, print_report

    files = output or []
    parts = list(dict.fromkeys(leave_out or []))
    with_page = _has_page(files, groups, parts)
    records = load_records(runs, detail=with_page or question is not None)
    for run in records:
        if json:
            emit_overview(run)
            continue
        print_report(run)
        if question is not None:
            print_question(run, question, answers=20)
    for path in files:
        if path.suffix == ".md":
            write_file(path, _markdown(records))
        elif path.suffix == ".csv":
            write_file(path, _csv(records))
        else:
            page = _page(records, runs, baseline, _grouping(groups), parts)
            write_file(path, page)
            _warn_of_size(path, len(page.encode("utf-8")), records, parts)
    if figures is not None:
        from selfreflect.report.figures import paper_figures

        drawings = paper_figures(records, baseline)
        make_folder(figures)
        for name, text in drawings.items():
            write_file(figures / name, text)


def _has_page(files: Sequence[Path], groups: GroupBy, parts: Sequence[o.Part]) -> bool:
    """Whether a page is among the files.

    Raises:
        ConfigError: the kind of a file is unknown, or options of a page are given without one.
    """
    for path in files:
        if path.suffix not in (".html", ".md", ".csv"):
            raise ConfigError(f"--output {path}: the name must end in .html, .md or .csv")
    if any(path.suffix == ".html" for path in files):
        return True
    if groups is GroupBy.meaning:
        raise ConfigError("--groups meaning changes only the page. Add --output FILE.html")
    if parts:
        raise ConfigError("--leave-out changes only the page. Add --output FILE.html")
    return False


def _page(
    records: Sequence[RunRecords],
    paths: Sequence[Path],
    baseline: str | None,
    grouping: Grouping,
    left_out: Sequence[o.Part],
) -> str:
    from msgspec import to_builtins

    from selfreflect.report.page.build import report_page
    from selfreflect.store.run import Run

    manifests = [to_builtins(Run.load(path).manifest) for path in paths]
    return report_page(records, manifests, baseline=baseline, grouping=grouping, left_out=left_out)


def _grouping(groups: GroupBy) -> Grouping:
    if groups is GroupBy.meaning:
        from selfreflect.models.embedder import MeaningGroups

        return MeaningGroups()
    from selfreflect.grouping import group_indices

    return group_indices


def _warn_of_size(path: Path, size: int, records: Sequence[RunRecords], left_out: Sequence[o.Part]) -> None:
    """Say how to make a large page smaller."""
    from selfreflect.cli.console import say, where
    from selfreflect.store.trim import PARTS, removable_parts

    if size <= LARGE_PAGE:
        return
    scores = [score for run in records for score in run.without(left_out).scores.values()]
    ways = [f"--leave-out {part} ({PARTS[part]})" for part in removable_parts(scores)]
    if len(records) > 1:
        ways.append("fewer runs on one page")
    advice = "It holds the texts and scores of one run, and nothing can be left out."
    if ways:
        advice = f"To make it smaller: {'; or '.join(ways)}."
    say(
        f"{where(path)} has {size / 1e6:.1f} MB, and pages above {LARGE_PAGE / 1e6:.0f} MB open slowly on "
        f"small machines. {advice}"
    )


def _markdown(records: Sequence[RunRecords]) -> str:
    from selfreflect.render.table import to_markdown
    from selfreflect.report.overview import failure_table, overview

    tables = []
    for run in records:
        tables.append(to_markdown(overview(run)))
        if run.failures:
            tables.append(to_markdown(failure_table(run)))
    return "\n".join(tables)


def _csv(records: Sequence[RunRecords]) -> str:
    from selfreflect.render.table import to_csv
    from selfreflect.report.overview import joined, question_table

    return to_csv(joined({run.label: question_table(run) for run in records}))
