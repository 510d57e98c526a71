"""Render a table of plain cells as Markdown, as CSV, or for the terminal."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
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

_TEXT_WIDTH = 10
"""Characters that a text column keeps on a narrow terminal, if its longest word has so many."""


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


def to_rich(table: Table, width: int = 80) -> list[RichTable]:
    """Render for a rich console. Every text becomes a ``Text``, so that rich does not interpret it as
    markup.

    Where the columns do not fit into ``width``, further tables below the first one hold the rest of them,
    each with the first column again.
    """
    from rich import box
    from rich.table import Table as RichTable
    from rich.text import Text

    shown = [
        [printable(column.show(row[at])) for row in table.rows] for at, column in enumerate(table.columns)
    ]
    least = [_least_width(column, cells) for column, cells in zip(table.columns, shown, strict=True)]
    blocks = _blocks(least, width)
    tables = []
    for block in blocks:
        first, last = block is blocks[0], block is blocks[-1]
        rich_table = RichTable(
            title=Text(one_line(table.title)) if first else None,
            caption=Text("\n".join(map(one_line, table.notes))) if table.notes and last else None,
            caption_justify="left",
            box=box.SIMPLE_HEAD,
            show_edge=False,
            padding=0,
        )
        for at in block:
            # On a narrow terminal texts wrap but numbers do not: half a number would look like another one.
            heading = table.columns[at].heading
            if table.columns[at].form:
                rich_table.add_column(Text(heading.replace(" ", "\n")), justify="right", no_wrap=True)
            else:
                rich_table.add_column(Text(heading), overflow="fold", min_width=least[at])
        for row in range(len(table.rows)):
            rich_table.add_row(*(Text(shown[at][row]) for at in block))
        tables.append(rich_table)
    return tables


def _least_width(column: Column, cells: Sequence[str]) -> int:
    """The width that a column needs: a number's whole, and a text's longest word, up to a limit."""
    from rich.cells import cell_len

    words = column.heading.split()
    words += cells if column.form else [word for cell in cells for word in cell.split()]
    longest = max((cell_len(word) for word in words), default=1)
    return longest if column.form else min(longest, _TEXT_WIDTH)


def _blocks(least: Sequence[int], width: int) -> list[list[int]]:
    """Divide columns, by number, into blocks that fit; each starts with the first column."""
    blocks = [[0]]
    for at in range(1, len(least)):
        if len(blocks[-1]) > 1 and sum(least[one] + 1 for one in blocks[-1]) + least[at] > width:
            blocks.append([0])
        blocks[-1].append(at)
    return blocks


def _markdown_row(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"
