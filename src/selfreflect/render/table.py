"""A table of plain cells, and its three renderings: Markdown, CSV and the terminal."""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass
from typing import TYPE_CHECKING

from selfreflect.render.text import markdown_text, one_line, printable, spreadsheet_text

if TYPE_CHECKING:
    from rich.table import Table as RichTable


class Approximate(float):
    """A number that was estimated from a part of what it stands for; people see it behind ``≈``."""


Cell = str | int | float | None
"""None is an undefined value: a dash for people, an empty field in CSV."""

UNDEFINED = "–"


@dataclass(frozen=True)
class Column:
    """A heading and, for a column of numbers, the format that people see them in (CSV keeps every digit)."""

    heading: str
    form: str = ""

    def show(self, cell: Cell) -> str:
        if cell is None:
            return UNDEFINED
        if isinstance(cell, str):
            return cell
        return ("≈" if isinstance(cell, Approximate) else "") + format(cell, self.form)


@dataclass(frozen=True)
class Table:
    """Rows of cells, one per column. Any text in it may be untrusted; the renderings make it safe."""

    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    notes: tuple[str, ...] = ()
    """Sentences that a reader of the numbers needs. CSV has no place for them, nor for the title."""


def to_markdown(table: Table) -> str:
    """A heading, a table in GitHub's dialect, and the notes as a list. Ends with a line end."""
    lines = [
        f"### {markdown_text(table.title)}",
        "",
        _markdown_row([markdown_text(column.heading) for column in table.columns]),
        _markdown_row(["---:" if column.form else "---" for column in table.columns]),
    ]
    for row in table.rows:
        cells = zip(table.columns, row, strict=True)
        lines.append(
            _markdown_row(
                [
                    markdown_text(cell) if isinstance(cell, str) else column.show(cell)
                    for column, cell in cells
                ]
            )
        )
    if table.notes:
        lines += ["", *(f"- {markdown_text(note)}" for note in table.notes)]
    return "\n".join(lines) + "\n"


def to_csv(table: Table) -> str:
    """RFC 4180 with a heading line. Text that a spreadsheet would run as a formula gets a leading apostrophe;
    numbers are untouched."""
    buffer = io.StringIO(newline="")
    writer = csv.writer(buffer, lineterminator="\r\n")
    writer.writerow([column.heading for column in table.columns])
    for row in table.rows:
        writer.writerow([spreadsheet_text(cell) if isinstance(cell, str) else cell for cell in row])
    return buffer.getvalue()


def to_rich(table: Table) -> RichTable:
    """A table for a rich console. Every text is a ``Text``, so that nothing in it is read as console
    markup."""
    from rich import box
    from rich.table import Table as RichTable
    from rich.text import Text

    caption = Text("\n".join(map(one_line, table.notes))) if table.notes else None
    title = Text(one_line(table.title))
    shown = RichTable(
        title=title, caption=caption, caption_justify="left", box=box.SIMPLE_HEAD, show_edge=False, padding=0
    )
    for column in table.columns:
        # On a narrow terminal texts are folded, numbers never: half a number would be read as another one.
        if column.form:
            shown.add_column(Text(column.heading.replace(" ", "\n")), justify="right", no_wrap=True)
        else:
            shown.add_column(Text(column.heading), overflow="fold")
    for row in table.rows:
        shown.add_row(
            *[Text(printable(column.show(cell))) for column, cell in zip(table.columns, row, strict=True)]
        )
    return shown


def _markdown_row(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"
