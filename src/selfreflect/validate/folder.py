"""Where ``validate`` keeps its work: one directory with the values, which studies with other items, metrics
or judges may share, and in it one for the finding of each study."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path
from typing import Any

from selfreflect.errors import StoreError
from selfreflect.records import dump_line
from selfreflect.render.charts import Interval, curves_figure, intervals_figure
from selfreflect.render.table import Cell, Table, to_csv, to_markdown
from selfreflect.render.text import markdown_text
from selfreflect.store.journal import Journal, lock, store_errors
from selfreflect.validate.base import Value
from selfreflect.validate.measure import VALUES, journal
from selfreflect.validate.study import Curve, Finding

_LOCK, _MANIFEST = ".lock", "manifest.json"
_SLUG = re.compile(r"[^a-z0-9]+")
_NAME_LENGTH = 48


@contextmanager
def opened(directory: Path) -> Iterator[Journal[Value]]:
    """The values of a directory for writing, under its lock; the directory is made where there is none.

    Raises:
        StoreError: it is a run directory or holds other things, another process writes to it, or the system
            refuses.
    """
    with store_errors(directory), ExitStack() as stack:
        directory.mkdir(parents=True, exist_ok=True)
        _check_ours(directory)
        stack.callback(os.close, lock(directory / _LOCK))
        values = journal(directory)
        stack.callback(values.close)
        if values.path.exists():
            values.cut()
        resources = stack.pop_all()
    with resources:
        yield values


def _check_ours(directory: Path) -> None:
    names = {entry.name for entry in directory.iterdir()} - {_LOCK}
    if _MANIFEST in names:
        raise StoreError(
            f"{directory} is a run directory, which validate reads and never writes. Use another --out."
        )
    if names and VALUES not in names:
        raise StoreError(
            f"{directory} is not empty and was not made by validate (it has no {VALUES}). Use another --out."
        )


def write(finding: Finding, made_with: Mapping[str, Any], directory: Path) -> Path:
    """The finding as JSON and Markdown and each of its tables as CSV, in a directory of its study, which is
    returned. Tables and plots that an earlier run of the study left there go.

    Args:
        made_with: what a reader needs to make it again, as plain values.

    Raises:
        StoreError: the system refuses.
    """
    folder = directory / finding.study
    with store_errors(folder):
        folder.mkdir(exist_ok=True)
        for path in (*folder.glob("*.csv"), *folder.glob("*.svg")):
            path.unlink()
        _write(folder / "finding.json", dump_line({**plain(finding), "made_with": made_with}) + "\n")
        _write(folder / "finding.md", markdown(finding, made_with))
        for name, table in zip(
            _names([table.title for table in finding.tables]), finding.tables, strict=True
        ):
            _write(folder / f"{name}.csv", to_csv(table))
    return folder


def draw(finding: Finding, folder: Path) -> None:
    """Every plot as SVG.

    Raises:
        MissingExtraError: matplotlib is not installed.
        StoreError: the system refuses.
    """
    for name, plot in zip(_names([plot.name for plot in finding.plots]), finding.plots, strict=True):
        if plot.against is None:
            text = curves_figure(
                name, plot.title, plot.x_label, plot.y_label, plot.curves, points=plot.points
            )
        else:
            text = intervals_figure(
                name,
                [_interval(one) for one in plot.curves],
                plot.y_label,
                mark=plot.against,
                title=plot.title,
            )
        with store_errors(folder):
            _write(folder / f"{name}.svg", text)


def _interval(curve: Curve) -> Interval:
    """Name, middle and ends of a curve that is a single number."""
    return Interval(curve.label, curve.y[0], *(curve.low or (None,)), *(curve.high or (None,)))


def plain(finding: Finding) -> dict[str, Any]:
    """The tables and sentences as JSON can hold them; the numbers of the plots too."""
    return {
        "study": finding.study,
        "says": list(finding.says),
        "tables": [
            {
                "title": table.title,
                "columns": headings(table),
                "rows": [[*map(_cell, row)] for row in table.rows],
                "notes": [*table.notes],
            }
            for table in finding.tables
        ],
        "plots": [
            {
                "name": plot.name,
                "title": plot.title,
                "x": plot.x_label,
                "y": plot.y_label,
                "curves": [vars(one) for one in plot.curves],
            }
            for plot in finding.plots
        ],
    }


def rows(finding: Finding) -> Iterator[dict[str, Any]]:
    """Every row of every table, then every sentence, as one JSON object each."""
    for table in finding.tables:
        for row in table.rows:
            cells = dict(zip(headings(table), map(_cell, row), strict=True))
            yield {"study": finding.study, "table": table.title, "row": cells}
    for sentence in finding.says:
        yield {"study": finding.study, "says": sentence}


def headings(table: Table) -> list[str]:
    """Of the columns; one that occurred before gets a number behind it, so that no cell hides another."""
    return _distinct([column.heading for column in table.columns], "{} ({})")


def markdown(finding: Finding, made_with: Mapping[str, Any]) -> str:
    """Sentences first, tables behind them. Every text is escaped."""
    parts = [
        f"# Study: {markdown_text(finding.study)}\n",
        *(f"{markdown_text(sentence)}\n" for sentence in finding.says),
    ]
    parts += [to_markdown(table) for table in finding.tables]
    facts = "\n".join(
        f"- {markdown_text(name)}: {markdown_text(str(value))}" for name, value in made_with.items()
    )
    return "\n".join([*parts, f"### Made with\n\n{facts}\n"])


def _cell(cell: Cell) -> Cell:
    return float(cell) if isinstance(cell, float) else cell


def _names(titles: Sequence[str]) -> list[str]:
    """A file name for each title, without the suffix. A title may hold any text."""
    return _distinct(
        [_SLUG.sub("-", title.lower())[:_NAME_LENGTH].strip("-") or "untitled" for title in titles], "{}-{}"
    )


def _distinct(names: Sequence[str], form: str) -> list[str]:
    """Every name once: one that occurred before becomes ``form`` of it and the first number from 2 on that is
    free."""
    found: dict[str, None] = {}
    for name in names:
        others = (form.format(name, number) for number in count(2))
        found[name if name not in found else next(other for other in others if other not in found)] = None
    return list(found)


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8", errors="backslashreplace", newline="")
