"""Commands ``selfreflect report`` and ``selfreflect compare``: tables, a page and figures of runs."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Literal

from selfreflect.cli import options as o
from selfreflect.cli.console import (
    check_file,
    check_output,
    emit,
    make_folder,
    print_table,
    say,
    say_next_step,
    say_report,
    write_file,
)
from selfreflect.cli.options import option
from selfreflect.errors import ConfigError, DataError
from selfreflect.records import latest_scale
from selfreflect.report.run_records import RunRecords
from selfreflect.run.records import labelled_part, records_by_judge, scorings_by
from selfreflect.store.run import Run
from selfreflect.table import compact

JUDGE = option("--judge NAME", "Only scores by this judge, where several have scored a run. [default: all]")
FIRST_JUDGE = option(
    "--judge NAME",
    "Only scores by this judge, where several have scored a run. On a page, this judge comes first and the "
    "others can be chosen. [default: all]",
)
BY = option(
    "--by COLUMN", "Break the results down by a column of the question file, such as topic, or by kind."
)
LARGE_PAGE = 3_000_000
"""Size in bytes above which a page opens slowly on small machines."""


def report_command(
    runs: o.Runs,
    output: list[Path] = option(
        "--output FILE",
        "Write a page (.html), the tables (.md; .tex for LaTeX), or one row per question and strategy "
        "(.csv). Can be repeated.",
        [],
    ),
    figures: Path | None = option(
        "--figures PATH",
        "Write every figure for a paper: into a folder as SVG, each with its rows, or into one .pdf file "
        "with a figure on each page.",
    ),
    baseline: str | None = option(
        "--baseline STRATEGY",
        "Baseline of page and figures: a strategy of the first run. [default: its first]",
    ),
    groups: Literal["spelling", "same", "meaning"] = option(
        "--groups",
        "Group answers on the page by spelling, by the rule same (equal in other words), or by meaning (with "
        "the embed extra).",
        "same",
    ),
    question: str | None = option(
        "--question TEXT",
        "Show one question in full, also on a page of its own with --output. TEXT is its id, its text, or a "
        "part that no other question has.",
    ),
    judge: str | None = FIRST_JUDGE,
    by: str | None = BY,
    fail_if: list[str] = o.FAIL_IF,
    explain: bool = o.EXPLAIN,
    log: o.Log = None,
    json: o.Json = False,
) -> None:
    """Show the results of runs, and write tables, a page or figures.

    Gives mean score, interval, n and coverage for every strategy, and the reason for every failure. Needs no
    model. Where several judges have scored a run, tables show them one after the other and then side by side;
    the page shows one of them and has a menu for the others; figures show the first, or --judge.
    """
    from selfreflect.cli.show import exit_if, log_runs, print_question
    from selfreflect.report.document import judge_tables_of
    from selfreflect.report.thresholds import parse_conditions, versions

    conditions = parse_conditions(fail_if, compares=False)
    check_output(output)
    if figures is not None:
        _check_figures(figures)
    if groups == "meaning" and not any(path.suffix == ".html" for path in output):
        raise ConfigError(
            "only a page shows groups by meaning", code="no_page", remedy="Add {output} FILE.html."
        )
    whole = _load_records(runs)
    by_run = [scorings_by(of_run, judge, path) for path, of_run in zip(runs, whole, strict=True)]
    records = list(chain.from_iterable(by_run))
    _check_column(records, by)
    if question is not None and not json:
        for run in records:
            print_question(run, question, answers=20)
    else:
        _show(records, by, json, explain)
    if not json and question is None:
        for table in judge_tables_of(by_run):
            print_table(table)
    if not (output or figures or json or question):
        _advise(runs, by_run)
    # all scorings of a run, the chosen ones first
    pages = []
    for chosen, of_run in zip(by_run, whole, strict=True):
        # by identity, since equality would compare all records of two scorings
        ids = set(map(id, chosen))
        pages.append([*chosen, *(scoring for scoring in of_run if id(scoring) not in ids)])
    if question is not None:  # a page to send to somebody who wants to see this question
        pages = [[scoring.only(question) for scoring in of_run] for of_run in pages]
    for path in output:
        if path.suffix == ".html":
            write_page(path, pages, baseline, groups)
            say(f"Open {path} in a browser.")
        else:
            write_tables(path, by_run, by)
    if figures is not None:
        _write_figures(figures, [of_run[0] for of_run in by_run], baseline)
    log_runs(log, records)
    exit_if(conditions, versions(records))


def write_tables(path: Path, by_run: Sequence[Sequence[RunRecords]], by: str | None = None) -> None:
    """Write the tables of runs in the format of the file's suffix."""
    from selfreflect.report.document import csv, latex, markdown

    if path.suffix == ".csv":
        write_file(path, csv(list(chain.from_iterable(by_run))))
    else:
        write_file(path, markdown(by_run, by) if path.suffix == ".md" else latex(by_run, by))


def _show(records: Sequence[RunRecords], by: str | None, json: bool, explain: bool) -> None:
    from selfreflect.cli.show import show_results
    from selfreflect.report.compare import summary_table
    from selfreflect.report.document import breakdown_lines
    from selfreflect.report.results import breakdown

    for run in records:
        details = summary_table(run) if run.measures and not json else None
        label = run.distinct_label if len(records) > 1 else ""
        show_results(run, json, details, explain=explain, label=label)
        if by is not None and json:
            for line in breakdown_lines(run, by):
                emit(line)
        elif by is not None:
            print_table(compact(breakdown(run, by), explain=explain))


def _advise(paths: Sequence[Path], by_run: Sequence[Sequence[RunRecords]]) -> None:
    """Suggest the next step: the first missing stage, or else the page."""
    for path, of_run in zip(paths, by_run, strict=True):
        if not any(records.scores or records.information for records in of_run):
            say_next_step(path, of_run[0])
            return
    say_report(paths)


def _check_figures(path: Path) -> None:
    """Refuse figure paths with an image suffix before writing anything."""
    if path.suffix in (".svg", ".png", ".eps", ".jpg"):
        raise ConfigError(
            f"{path}: figures go into a folder, or into a file that ends in .pdf",
            code="suffix",
            remedy="Give {figures} another name.",
        )
    if path.suffix == ".pdf":
        check_file(path)


def _write_figures(folder: Path, records: Sequence[RunRecords], baseline: str | None) -> None:
    from selfreflect.plots import pdf_book
    from selfreflect.report.figures import paper_figures

    if folder.suffix == ".pdf":
        with pdf_book() as book:
            paper_figures(records, baseline)
        write_file(folder, book.getvalue())
        return
    drawings = paper_figures(records, baseline)
    make_folder(folder)
    for name, text in drawings.items():
        write_file(folder / name, text)


def _check_column(records: Sequence[RunRecords], by: str | None) -> None:
    """Refuse a column that a run lacks before printing or writing anything."""
    from selfreflect.report.results import by_value

    if by is not None:
        for run in records:
            by_value(run, by)


def _load_records(paths: Sequence[Path]) -> list[list[RunRecords]]:
    """Load run directories, once for each judge.

    They are labelled by their names, or by their paths if two names are the same.
    """
    names = Counter(path.name for path in paths)
    records = []
    for path in paths:
        label = str(path) if names[path.name] > 1 else None
        records.append(records_by_judge(Run.load(path), label))
    return _of_one_scale(paths, records)


def _of_one_scale(paths: Sequence[Path], by_run: Sequence[Sequence[RunRecords]]) -> list[list[RunRecords]]:
    """Leave out bits on an older scale than the newest, since they cannot be compared."""
    latest = latest_scale(scoring.scale for scoring in chain.from_iterable(by_run) if scoring.information)
    comparable = []
    for path, of_run in zip(paths, by_run, strict=True):
        if any(scoring.scale != latest for scoring in of_run):
            say(
                f"{path}: recovered information is left out, because an earlier version measured it on "
                f"another scale. To measure it again: selfreflect score --out {shlex.quote(str(path))}"
            )
        comparable.append([scoring.with_scale(latest) for scoring in of_run])
    return comparable


def write_page(
    file: Path,
    runs: Sequence[Sequence[RunRecords]],
    baseline: str | None,
    groups: str = "same",
    verdict: Sequence[str] = (),
) -> None:
    """Write the page of runs with all their scores, and suggest how to shrink a large page."""
    from selfreflect.report.page.build import report_page
    from selfreflect.uncertainty.claims.placed import claims_of

    # sections on uncertainty, for the runs that have right answers
    parts = [labelled_part(of_run[0], f"uncertainty-{number}") for number, of_run in enumerate(runs)]
    page = report_page(
        runs,
        baseline=baseline,
        grouping=o.grouping(groups),
        groups=groups,
        uncertainty=[part for part in parts if part is not None],
        claims_of=claims_of,
        verdict=verdict,
    )
    write_file(file, page)
    size = len(page.encode("utf-8"))
    if size <= LARGE_PAGE:
        return
    advice = " Put fewer runs on one page." if len(runs) > 1 else ""
    say(
        f"{file} is {size / 1e6:.1f} MB; pages above {LARGE_PAGE / 1e6:.0f} MB open slowly on small "
        f"machines.{advice}"
    )


def compare_command(
    runs: o.Runs,
    baseline: str | None = option(
        "--baseline STRATEGY",
        "Baseline to compare with: a strategy of the first run. [default: the first of its --strategies]",
    ),
    judge: str | None = JUDGE,
    by: str | None = BY,
    fail_if: list[str] = option(
        "--fail-if CONDITION",
        "Exit with 3 if this holds, such as 'worse > 0' or 'difference > 0.02' (or 2%; see above). Can be "
        "repeated.",
        [],
    ),
    explain: bool = o.EXPLAIN,
    json: o.Json = False,
) -> None:
    """Compare strategies and runs with a baseline.

    Gives paired differences with 95 % intervals, wins and losses, on the questions that both have scored.
    Where several judges have scored the first run, each compares in turn, and then they stand side by side.

    For continuous integration, --fail-if takes a name, one of < <= > >= == !=, and a number:

    'worse > 0': a strategy is clearly worse than the baseline;

    'recovered.difference < -5%': summaries of a strategy recover less by more than 5 points;

    'untestable > 0': there are too few questions to tell;

    'recovered < 60%': the mean of a strategy is lower; the baseline does not matter.

    Names: better, worse, unclear and untestable count strategies. Each strategy has n, wins, ties and losses,
    which count questions, and difference, low, high and p_value, which are shares of 1: 0.05 and 5% are the
    same, and 5 is refused. They are about SelfReflect scores (0 to 1, lower is better), after "recovered."
    about recovered information (1 is all of it), and after the name of another measure about that. Exit
    codes: 0 no condition holds, 3 one does, 2 an error. An undefined value never passes: the code is then 2,
    unless 'undefined > N' or 'untestable > N' says how much may be.
    """
    from selfreflect.cli.show import exit_if, print_differences
    from selfreflect.report.compare import comparisons, comparisons_by, contenders
    from selfreflect.report.document import comparison_line, comparison_lines_by, judge_tables_of
    from selfreflect.report.thresholds import parse_conditions

    conditions = parse_conditions(fail_if, compares=True)
    whole = _load_records(runs)
    by_run = [scorings_by(of_run, judge, path) for path, of_run in zip(runs, whole, strict=True)]
    if not by_run[0][0].strategies:
        raise DataError(
            f"{runs[0]} has no summaries yet",
            code="no_summaries",
            remedy=f"Make them with: selfreflect summarize --out {runs[0]}",
        )
    _check_column(by_run[0], by)
    sides = []
    for first in by_run[0]:
        # the scoring of each run by this judge, or else its first
        rivals = [
            next((scoring for scoring in of_run if scoring.judge == first.judge), of_run[0])
            for of_run in by_run[1:]
        ]
        base, *candidates = contenders([first, *rivals], baseline)
        if json:
            for candidate in candidates:
                emit(comparison_line(base, candidate))
        else:
            for table, _ in comparisons(base, candidates):
                print_differences(table, explain)
        sides.append([(base, candidate) for candidate in candidates])
        if by is not None and json:
            for line in comparison_lines_by(base, candidates, by):
                emit(line)
        elif by is not None:
            for table in comparisons_by(base, candidates, by):
                print_table(compact(table, explain=explain))
    if not json:
        for table in judge_tables_of(by_run):
            print_table(table)
        say_report(runs)
    exit_if(conditions, *sides)
