"""Render a table of plain cells as Markdown, as CSV, or for the terminal."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

from selfreflect.text import markdown_text, one_line, printable, spreadsheet_text

if TYPE_CHECKING:
    from rich.table import Table as RichTable
    from rich.text import Text


class Approximate(float):
    """An estimated number, shown with ``≈``."""


Cell = str | int | float | None
"""None is an undefined value, shown as a dash, or as an empty field in CSV."""

UNDEFINED = "–"

# Characters that a text column keeps on a narrow terminal, if its longest part has so many.
_TEXT_WIDTH = 16

# A word, or a part of a long name, which may continue on the next line.
_PARTS = re.compile(r"[^\s_/:-]*[_/:-]+|[^\s_/:-]+")


@dataclass(frozen=True)
class Column:
    """A heading and, for numbers, their display format (CSV keeps every digit)."""

    heading: str
    form: str = ""
    factor: int = 1
    """Of a number where it is shown: 100 shows shares in points."""

    def show(self, cell: Cell) -> str:
        if cell is None:
            return UNDEFINED
        if isinstance(cell, str):
            return cell
        number = format(self.factor * cell, self.form)
        return f"≈{number}" if isinstance(cell, Approximate) else number


@dataclass(frozen=True)
class Table:
    """Rows with one cell per column. Any text may be untrusted; the renderings make it safe."""

    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    notes: tuple[str, ...] = ()
    """Sentences that explain the numbers. CSV leaves out notes and title."""

    @property
    def headings(self) -> list[str]:
        """The headings of the columns."""
        return [column.heading for column in self.columns]


def joined(tables: Mapping[str, Table], of: str = "run") -> Table:
    """Join tables, with the key of each in a column ``of`` in front; a column that a table lacks stays
    empty."""
    columns: dict[str, Column] = {}
    for table in tables.values():
        columns |= {column.heading: column for column in table.columns}
    rows: list[tuple[Cell, ...]] = []
    for label, table in tables.items():
        for row in table.rows:
            cells = dict(zip(table.headings, row, strict=True))
            rows.append((label, *map(cells.get, columns)))
    first = next(iter(tables.values()))
    return Table(first.title, (Column(of), *columns.values()), tuple(rows))


def interval_text(
    low: float | None, high: float | None, form: str = ".3f", between: str = " to "
) -> str | None:
    """Write the cell of an interval; None without one."""
    return None if low is None or high is None else f"{low:{form}}{between}{high:{form}}"


def to_markdown(table: Table) -> str:
    """Render as a heading, a table in GitHub's dialect, and the notes as a list."""
    lines = [
        f"### {markdown_text(table.title)}",
        "",
        _markdown_row(list(map(markdown_text, table.headings))),
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
    writer.writerow([spreadsheet_text(column.heading) for column in table.columns])
    for row in table.rows:
        writer.writerow([spreadsheet_text(cell) if isinstance(cell, str) else cell for cell in row])
    return buffer.getvalue()


def to_rich(table: Table, width: int = 80) -> list[RichTable | Text]:
    """Render for a rich console. Every text becomes a ``Text``, so that rich does not interpret it as
    markup.

    Where the columns do not fit into ``width``, further tables below the first one hold the rest of them,
    each with the names in front again: the columns of text before the first number. Long names continue on
    the next line. Columns of numbers without a number are left out, but for the first column. The notes
    follow below the tables, one paragraph each.
    """
    from rich import box
    from rich.table import Table as RichTable
    from rich.text import Text

    columns = []
    texts = []
    for at, column in enumerate(table.columns):
        cells = [row[at] for row in table.rows]
        is_name = at == 0 or not column.form
        if is_name or not cells or any(cell is not None for cell in cells):
            columns.append(column)
            texts.append([printable(column.show(cell)) for cell in cells])
    least = [_least_width(column, cells) for column, cells in zip(columns, texts, strict=True)]
    parts: list[RichTable | Text] = []
    for number, block in enumerate(_blocks(columns, least, width)):
        rich_table = RichTable(
            title=Text(one_line(table.title)) if number == 0 else None,
            box=box.SIMPLE_HEAD,
            show_edge=False,
            padding=0,
        )
        widths = _widths(columns, texts, least, block, width)
        for at in block:
            # On a narrow terminal texts wrap but numbers do not: half a number would look like another one.
            heading = columns[at].heading
            if columns[at].form:
                rich_table.add_column(Text(heading.replace(" ", "\n")), justify="right", no_wrap=True)
            else:
                rich_table.add_column(Text(heading), overflow="fold", width=widths[at])
        for row in range(len(table.rows)):
            rich_table.add_row(*(Text(_wrapped_name(texts[at][row], widths[at])) for at in block))
        parts.append(rich_table)
    parts += [Text(one_line(note)) for note in table.notes]
    return parts


def _least_width(column: Column, cells: Sequence[str]) -> int:
    """Compute the width that a column needs: a number's whole, a text's longest part up to a limit."""
    from rich.cells import cell_len

    if column.form:
        return max(map(cell_len, [*column.heading.split(), *cells]), default=1)
    parts = chain.from_iterable(map(_PARTS.findall, [column.heading, *cells]))
    return min(max(map(cell_len, parts), default=1), _TEXT_WIDTH)


def _blocks(columns: Sequence[Column], least: Sequence[int], width: int) -> list[list[int]]:
    """Divide columns, by number, into blocks that fit; each starts with the names."""
    first_number = next((at for at, column in enumerate(columns) if column.form), len(columns))
    names = list(range(max(1, first_number)))
    blocks = [names]
    for at in range(len(names), len(columns)):
        if len(blocks[-1]) > len(names) and sum(least[index] + 1 for index in blocks[-1]) + least[at] > width:
            blocks.append(names)
        blocks[-1] = [*blocks[-1], at]
    return blocks


def _widths(
    columns: Sequence[Column],
    texts: Sequence[Sequence[str]],
    least: Sequence[int],
    block: Sequence[int],
    width: int,
) -> dict[int, int]:
    """Share what a block leaves free among its columns of text, those that need little first."""
    from rich.cells import cell_len

    widths = {at: least[at] for at in block}
    free = max(0, width - sum(widths.values()) - len(block) + 1)
    needs = {}
    for at in block:
        if not columns[at].form:
            lines = "\n".join([columns[at].heading, *texts[at]]).splitlines()
            needs[at] = max(map(cell_len, lines), default=0) - least[at]
    for place, at in enumerate(sorted(needs, key=lambda at: needs[at])):
        share = min(max(0, needs[at]), free // (len(needs) - place))
        widths[at] += share
        free -= share
    return widths


def _wrapped_name(text: str, width: int) -> str:
    """Break words that are wider than the column behind an underscore, a slash, a colon or a hyphen."""
    from rich.cells import cell_len

    words = []
    for word in re.split(r"(\s+)", text):
        if cell_len(word) <= width:
            words.append(word)
            continue
        lines = [""]
        for part in _PARTS.findall(word):
            if lines[-1] and cell_len(lines[-1] + part) > width:
                lines.append("")
            lines[-1] += part
        words.append("\n".join(lines))
    return "".join(words)


def _markdown_row(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"
