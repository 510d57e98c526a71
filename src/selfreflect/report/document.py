"""The tables of runs in one text: as Markdown, or as CSV."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

from selfreflect.report.breakdown import breakdown
from selfreflect.report.judges import judge_tables
from selfreflect.report.overview import failure_table, overview
from selfreflect.report.paste_curve import paste_table, run_curve
from selfreflect.report.question_table import joined, question_table
from selfreflect.report.run_records import RunRecords
from selfreflect.report.sentences import headline
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
