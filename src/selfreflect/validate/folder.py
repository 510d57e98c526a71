"""The directory of ``validate --out``: the values, which studies with other items, metrics or judges may
share, and a folder for the finding of each study."""

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
from selfreflect.validate.study import Finding, Plot

_LOCK, _MANIFEST = ".lock", "manifest.json"
_NOT_IN_NAMES = re.compile(r"[^a-z0-9]+")
_NAME_LENGTH = 48


@contextmanager
def open_values(directory: Path) -> Iterator[Journal[Value]]:
    """Open the values of a directory for writing, under its lock, and make the directory if needed.

    Raises:
        StoreError: it is a run directory or holds other things, another process writes to it, or the system
            refuses.
    """
    with store_errors(directory), ExitStack() as stack:
        directory.mkdir(parents=True, exist_ok=True)
        names = {entry.name for entry in directory.iterdir()} - {_LOCK}
        if _MANIFEST in names:
            raise StoreError(
                f"{directory} is a run directory, which validate reads and never writes. Use another --out."
            )
        if names and VALUES not in names:
            raise StoreError(
                f"{directory} is not empty and was not made by validate (it has no {VALUES}). Use another "
                "--out."
            )
        stack.callback(os.close, lock(directory / _LOCK))
        values = journal(directory)
        stack.callback(values.close)
        if values.path.exists():
            values.cut()
        resources = stack.pop_all()
    with resources:
        yield values


def write(finding: Finding, made_with: Mapping[str, Any], directory: Path) -> Path:
    """Write the finding as JSON and Markdown and each of its tables as CSV, to a folder of its study, which
    is returned. Tables and plots of an earlier run of the study are deleted.

    Args:
        made_with: what a reader needs to make it again, as plain values.

    Raises:
        StoreError: the system refuses.
    """
    folder = directory / finding.study
    names = _file_names([table.title for table in finding.tables])
    with store_errors(folder):
        folder.mkdir(exist_ok=True)
        for path in (*folder.glob("*.csv"), *folder.glob("*.svg")):
            path.unlink()
        _write(folder / "finding.json", dump_line({**to_plain(finding), "made_with": made_with}) + "\n")
        _write(folder / "finding.md", to_page(finding, made_with))
        for name, table in zip(names, finding.tables, strict=True):
            _write(folder / f"{name}.csv", to_csv(table))
    return folder


def draw(finding: Finding, folder: Path) -> None:
    """Draw every plot as SVG.

    Raises:
        MissingExtraError: matplotlib is not installed.
        StoreError: the system refuses.
    """
    for name, plot in zip(_file_names([plot.name for plot in finding.plots]), finding.plots, strict=True):
        text = _svg(name, plot)
        with store_errors(folder):
            _write(folder / f"{name}.svg", text)


def _svg(name: str, plot: Plot) -> str:
    if plot.against is None:
        return curves_figure(name, plot.title, plot.x_label, plot.y_label, plot.curves, points=plot.points)
    rows = []
    for curve in plot.curves:
        low = curve.low[0] if curve.low else None
        high = curve.high[0] if curve.high else None
        rows.append(Interval(curve.label, curve.y[0], low, high))
    return intervals_figure(name, rows, plot.y_label, mark=plot.against, title=plot.title)


def to_plain(finding: Finding) -> dict[str, Any]:
    """The tables, the sentences and the numbers of the plots, as JSON can hold them."""
    tables = []
    for table in finding.tables:
        rows = [_plain_cells(row) for row in table.rows]
        tables.append(
            {"title": table.title, "columns": headings(table), "rows": rows, "notes": list(table.notes)}
        )
    plots = []
    for plot in finding.plots:
        curves = [vars(curve) for curve in plot.curves]
        plots.append(
            {"name": plot.name, "title": plot.title, "x": plot.x_label, "y": plot.y_label, "curves": curves}
        )
    return {"study": finding.study, "says": list(finding.says), "tables": tables, "plots": plots}


def to_lines(finding: Finding) -> Iterator[dict[str, Any]]:
    """Every row of every table, then every sentence, as one JSON object each."""
    for table in finding.tables:
        for row in table.rows:
            cells = dict(zip(headings(table), _plain_cells(row), strict=True))
            yield {"study": finding.study, "table": table.title, "row": cells}
    for sentence in finding.says:
        yield {"study": finding.study, "says": sentence}


def _plain_cells(row: Sequence[Cell]) -> list[Cell]:
    """Cells as JSON can hold them: subclasses of float, such as Approximate, as plain ones."""
    return [float(cell) if isinstance(cell, float) else cell for cell in row]


def headings(table: Table) -> list[str]:
    """The headings of the columns, numbered if they repeat, so that no cell hides another."""
    return _distinct([column.heading for column in table.columns], "{} ({})")


def to_page(finding: Finding, made_with: Mapping[str, Any]) -> str:
    """The finding as Markdown, sentences first. Every text is escaped."""
    facts = [f"- {markdown_text(name)}: {markdown_text(str(value))}" for name, value in made_with.items()]
    parts = [
        f"# Study: {markdown_text(finding.study)}\n",
        *(f"{markdown_text(sentence)}\n" for sentence in finding.says),
        *map(to_markdown, finding.tables),
        "\n".join(["### Made with\n", *facts, ""]),
    ]
    return "\n".join(parts)


def _file_names(titles: Sequence[str]) -> list[str]:
    """A file name for each title, without the suffix. A title may hold any text."""
    names = [
        _NOT_IN_NAMES.sub("-", title.lower())[:_NAME_LENGTH].strip("-") or "untitled" for title in titles
    ]
    return _distinct(names, "{}-{}")


def _distinct(names: Sequence[str], form: str) -> list[str]:
    """Make names distinct: a repeated one becomes ``form`` of it and the first free number from 2 on."""
    distinct: dict[str, None] = {}
    for name in names:
        numbers = count(2)
        unique = name
        while unique in distinct:
            unique = form.format(name, next(numbers))
        distinct[unique] = None
    return list(distinct)


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8", errors="backslashreplace", newline="")
