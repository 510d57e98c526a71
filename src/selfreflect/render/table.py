"""Render a table of plain cells as Markdown, as CSV, or for the terminal."""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass
from typing import TYPE_CHECKING

from selfreflect.render.text import markdown_text, one_line, printable, spreadsheet_text

if TYPE_CHECKING:
    from rich.table import Table as RichTable


class Approximate(float):
    """An estimated number, shown with ``≈``."""


Cell = str | int | float | None
"""None is an undefined value, shown as a dash, or as an empty field in CSV."""

UNDEFINED = "–"


@dataclass(frozen=True)
class Column:
    """A heading and, for numbers, their display format (CSV keeps every digit)."""

    heading: str
    form: str = ""

    def show(self, cell: Cell) -> str:
        if cell is None:
            return UNDEFINED
        if isinstance(cell, str):
            return cell
        number = format(cell, self.form)
        return f"≈{number}" if isinstance(cell, Approximate) else number


@dataclass(frozen=True)
class Table:
    """Rows with one cell per column. Any text may be untrusted; the renderings make it safe."""

    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    notes: tuple[str, ...] = ()
    """Sentences that explain the numbers. CSV leaves out notes and title."""


def to_markdown(table: Table) -> str:
    """Render as a heading, a table in GitHub's dialect, and the notes as a list."""
    lines = [
        f"### {markdown_text(table.title)}",
        "",
        _markdown_row([markdown_text(column.heading) for column in table.columns]),
        _markdown_row(["---:" if column.form else "---" for column in table.columns]),
    ]
    for row in table.rows:
        texts = []
        for column, cell in zip(table.columns, row, strict=True):
            texts.append(markdown_text(cell) if isinstance(cell, str) else column.show(cell))
        lines.append(_markdown_row(texts))
    if table.notes:
        lines += ["", *(f"- {markdown_text(note)}" for note in table.notes)]
    return "\n".join(lines) + "\n"


def to_csv(table: Table) -> str:
    """Render as RFC 4180 with a heading line. Text that a spreadsheet would run as a formula gets a leading
    apostrophe; numbers are unchanged."""
    buffer = io.StringIO(newline="")
    writer = csv.writer(buffer, lineterminator="\r\n")
    writer.writerow([column.heading for column in table.columns])
    for row in table.rows:
        writer.writerow([spreadsheet_text(cell) if isinstance(cell, str) else cell for cell in row])
    return buffer.getvalue()


def to_rich(table: Table) -> RichTable:
    """Render for a rich console. Every text becomes a ``Text``, so that rich does not interpret it as
    markup."""
    from rich import box
    from rich.table import Table as RichTable
    from rich.text import Text

    caption = Text("\n".join(map(one_line, table.notes))) if table.notes else None
    title = Text(one_line(table.title))
    rich_table = RichTable(
        title=title, caption=caption, caption_justify="left", box=box.SIMPLE_HEAD, show_edge=False, padding=0
    )
    for column in table.columns:
        # On a narrow terminal texts wrap but numbers do not: half a number would look like another one.
        if column.form:
            rich_table.add_column(Text(column.heading.replace(" ", "\n")), justify="right", no_wrap=True)
        else:
            rich_table.add_column(Text(column.heading), overflow="fold")
    for row in table.rows:
        texts = []
        for column, cell in zip(table.columns, row, strict=True):
            texts.append(Text(printable(column.show(cell))))
        rich_table.add_row(*texts)
    return rich_table


def _markdown_row(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"
