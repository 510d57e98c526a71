"""The directory of ``validate --out``: the values, which studies may share, and a folder for each study's
finding."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from itertools import count
from pathlib import Path
from typing import Any

from selfreflect.atomic import write_files
from selfreflect.errors import StoreError
from selfreflect.plots import plot_figure
from selfreflect.records import dump_line
from selfreflect.store.journal import Journal, open_locked, open_regular, refuse_links, store_errors
from selfreflect.table import Cell, Table, to_csv, to_markdown
from selfreflect.text import markdown_text
from selfreflect.validate.base import Value
from selfreflect.validate.measure import VALUES, journal
from selfreflect.validate.study import Finding

_LOCK, _MANIFEST, _FINDING = ".lock", "manifest.json", "finding.json"
_NAME_LENGTH = 48


def open_values(directory: Path) -> AbstractContextManager[Journal[Value]]:
    """Open the values of a directory for writing, under its lock, and make the directory if needed.

    Raises:
        StoreError: it is a run directory or holds other things, another process writes to it, or the system
            refuses.
    """
    with store_errors(directory):
        directory.mkdir(parents=True, exist_ok=True)
        names = {entry.name for entry in directory.iterdir()} - {_LOCK}
    if _MANIFEST in names:
        raise StoreError(f"{directory} is a run directory, which validate only reads. Use another --out.")
    if names and VALUES not in names:
        what = f"is not empty and was not made by validate (it has no {VALUES})"
        raise StoreError(f"{directory} {what}. Use another --out.")
    return open_locked(directory, journal(directory))


def write(finding: Finding, made_with: Mapping[str, Any], directory: Path) -> Path:
    """Write the finding as JSON and Markdown, its tables as CSV and its plots as SVG, to a folder of its
    study, which is returned. Tables and plots of an earlier run of the study are deleted.

    Args:
        made_with: what a reader needs to make it again, as plain values.

    Raises:
        StoreError: the system refuses.
    """
    folder = refuse_links(directory, directory / finding.study)
    plain = _to_plain(finding)
    tables, plots = _table_and_plot_names(plain)
    texts = {
        _FINDING: dump_line({**plain, "made_with": made_with}) + "\n",
        "finding.md": _to_page(finding, made_with),
    }
    for name, table in zip(tables, finding.tables, strict=True):
        texts[name] = to_csv(table)
    for name, plot in zip(plots, finding.plots, strict=True):
        texts[name] = plot_figure(name.removesuffix(".svg"), plot)
    with store_errors(folder):
        folder.mkdir(exist_ok=True)
        stale = {*_earlier_names(folder)} - texts.keys()
        write_files(folder, {name: text.encode("utf-8", "backslashreplace") for name, text in texts.items()})
        for name in stale:
            (folder / name).unlink(missing_ok=True)
    return folder


def _earlier_names(folder: Path) -> list[str]:
    """The tables and plots of the finding that a folder holds; a user may have put other files beside."""
    try:
        with os.fdopen(open_regular(folder / _FINDING, os.O_RDONLY), "rb") as file:
            tables, plots = _table_and_plot_names(json.loads(file.read()))
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return []
    return tables + plots


def _table_and_plot_names(finding: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """File names for the tables and plots of a finding as JSON holds it."""
    tables = _file_names([table["title"] for table in finding["tables"]])
    plots = _file_names([plot["name"] for plot in finding["plots"]])
    return [f"{name}.csv" for name in tables], [f"{name}.svg" for name in plots]


def to_lines(finding: Finding) -> Iterator[dict[str, Any]]:
    """Every row of every table, then every sentence, as one JSON object each."""
    for table in finding.tables:
        columns, rows = _plain_table(table)
        for row in rows:
            cells = dict(zip(columns, row, strict=True))
            yield {"study": finding.study, "table": table.title, "row": cells}
    for sentence in finding.says:
        yield {"study": finding.study, "says": sentence}


def _to_plain(finding: Finding) -> dict[str, Any]:
    """The tables, the sentences and the numbers of the plots, as JSON can hold them."""
    tables = []
    for table in finding.tables:
        columns, rows = _plain_table(table)
        tables.append({"title": table.title, "columns": columns, "rows": rows, "notes": list(table.notes)})
    plots = []
    for plot in finding.plots:
        axes = {"name": plot.name, "title": plot.title, "x": plot.x_label, "y": plot.y_label}
        plots.append({**axes, "curves": list(map(vars, plot.curves))})
    return {"study": finding.study, "says": list(finding.says), "tables": tables, "plots": plots}


def _plain_table(table: Table) -> tuple[list[str], list[list[Cell]]]:
    """Headings, and rows as JSON can hold them: without subclasses of float, such as Approximate."""
    rows: list[list[Cell]] = []
    for row in table.rows:
        rows.append([float(cell) if isinstance(cell, float) else cell for cell in row])
    return table.headings, rows


def _to_page(finding: Finding, made_with: Mapping[str, Any]) -> str:
    """The finding as Markdown, sentences first. Every text is escaped."""
    facts = [f"- {markdown_text(name)}: {markdown_text(str(value))}" for name, value in made_with.items()]
    sentences = [f"{markdown_text(sentence)}\n" for sentence in finding.says]
    title = f"# Study: {markdown_text(finding.study)}\n"
    origin = "\n".join(["### Made with\n", *facts, ""])
    return "\n".join([title, *sentences, *map(to_markdown, finding.tables), origin])


def _file_names(titles: Sequence[str]) -> list[str]:
    """A different file name for each title, without the suffix. A title may hold any text."""
    names: dict[str, None] = {}
    for title in titles:
        name = re.sub(r"[^a-z0-9]+", "-", title.lower())[:_NAME_LENGTH].strip("-") or "untitled"
        candidates = (f"{name}-{number}" for number in count(2))
        unique = name
        while unique in names:
            unique = next(candidates)
        names[unique] = None
    return list(names)
