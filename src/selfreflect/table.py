"""Tables of plain cells, rendered as Markdown, CSV, LaTeX or for the terminal."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, count
from typing import TYPE_CHECKING, Literal

from selfreflect.text import markdown_text, one_line, printable, spreadsheet_text

if TYPE_CHECKING:
    from rich.table import Table as RichTable
    from rich.text import Text


class Approximate(float):
    """An estimated number, displayed with ``≈``."""


Cell = str | int | float | None
"""Value of a table cell; None is undefined, shown as a dash or an empty CSV field."""

UNDEFINED = "–"

INTERVAL = "95% CI"
"""Heading of the interval after a number's column."""

# Characters that a text column keeps on a narrow terminal, if its longest part has so many.
_TEXT_WIDTH = 16

# Characters of a name that stay on one line where a table is divided anyway.
_NAME_WIDTH = 24

# A word, or a part of a long name, which may continue on the next line.
_PARTS = re.compile(r"[^\s_/:-]*[_/:-]+|[^\s_/:-]+")


_PERCENT = re.compile(r"(?<=[0-9])%")


def spaced_percent(text: str) -> str:
    """Write ``95 %`` for ``95%``, as sentences do."""
    return _PERCENT.sub(" %", text)


@dataclass(frozen=True)
class Column:
    """A column's heading and, for numbers, its display format (CSV keeps every digit)."""

    heading: str
    form: str = ""
    factor: int = 1
    """Display factor of a number: 100 shows shares in points."""
    shown: str = ""
    """Displayed heading, by default ``heading``, which CSV keeps."""
    short: str = ""
    """Short heading for narrow tables, or where space is limited."""
    end: Literal["", "low", "high"] = ""
    """End of an interval that the column holds; a low end and the following high end are displayed as one
    column."""
    is_detail: bool = False
    """Whether narrow tables leave out the column."""
    has_percent: bool = False
    """Whether texts contain our own shares, as ``95.0% (57/60)``."""

    @property
    def label(self) -> str:
        """The displayed heading, at full length."""
        return spaced_percent(self.shown or self.heading)

    def show(self, cell: Cell) -> str:
        if cell is None:
            return UNDEFINED
        if isinstance(cell, str):
            return spaced_percent(cell) if self.has_percent else cell
        number = spaced_percent(format(self.factor * cell, self.form))
        return f"≈{number}" if isinstance(cell, Approximate) else number


@dataclass(frozen=True)
class Table:
    """Rows with one cell per column. Any text may be untrusted; the renderings make it safe."""

    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    notes: tuple[str, ...] = ()
    """Sentences that explain the numbers. CSV leaves out notes and title."""
    details: frozenset[str] = frozenset()
    """Notes for readers who ask about the meaning and basis of the numbers."""

    @property
    def headings(self) -> list[str]:
        """The headings of all columns."""
        return [column.heading for column in self.columns]

    @property
    def labels(self) -> list[str]:
        """The displayed headings of all columns."""
        return [column.label for column in self.columns]


def compact(table: Table, *, explain: bool = False) -> Table:
    """Make a table narrow: short headings, and each interval in one column, as ``31 to 103``.

    Args:
        explain: keep all columns, and what the numbers mean.
    """
    columns: list[Column] = []
    rows: list[list[Cell]] = [[] for _ in table.rows]
    at = 0
    while at < len(table.columns):
        column, width = table.columns[at], 1
        cells = [row[at] for row in table.rows]
        if column.end == "low" and at + 1 < len(table.columns) and table.columns[at + 1].end == "high":
            ends = [(row[at], row[at + 1]) for row in table.rows]
            cells = [_ends_text(column, low, high) for low, high in ends]
            column, width = Column(INTERVAL, column.form), 2
        at += width
        if column.is_detail and not explain:
            continue
        columns.append(replace(column, shown=column.short or column.shown))
        for row, cell in zip(rows, cells, strict=True):
            row.append(cell)
    notes = tuple(note for note in table.notes if explain or note not in table.details)
    return replace(table, columns=tuple(columns), rows=tuple(map(tuple, rows)), notes=notes)


def _without_empty(table: Table) -> Table:
    """Remove number columns without a number, except the first column."""
    columns = []
    for at, column in enumerate(table.columns):
        cells = [row[at] for row in table.rows]
        if at == 0 or not column.form or not cells or any(cell is not None for cell in cells):
            columns.append(at)
    rows = tuple(tuple(row[at] for at in columns) for row in table.rows)
    return replace(table, columns=tuple(table.columns[at] for at in columns), rows=rows)


def _ends_text(column: Column, low: Cell, high: Cell) -> str | None:
    if low is None or high is None:
        return None
    return " to ".join(column.show(cell).removesuffix(" %") for cell in (low, high))


def joined(tables: Mapping[str, Table]) -> Table:
    """Join tables of runs, with their keys in a first column; missing cells stay empty."""
    columns: dict[str, Column] = {}
    for table in tables.values():
        columns |= {column.heading: column for column in table.columns}
    rows: list[tuple[Cell, ...]] = []
    for label, table in tables.items():
        for row in table.rows:
            cells = dict(zip(table.headings, row, strict=True))
            rows.append((label, *map(cells.get, columns)))
    first = next(iter(tables.values()))
    return Table(first.title, (Column("run"), *columns.values()), tuple(rows))


def interval_text(
    low: float | None, high: float | None, form: str = ".3f", between: str = " to "
) -> str | None:
    """Write an interval as a cell; None if there is none."""
    return None if low is None or high is None else f"{low:{form}}{between}{high:{form}}"


def to_markdown(table: Table) -> str:
    """Render a table as GitHub Markdown, with a heading and a list of notes."""
    lines = [
        f"### {markdown_text(table.title)}",
        "",
        _markdown_row(list(map(markdown_text, table.labels))),
        _markdown_row(["---:" if column.form else "---" for column in table.columns]),
    ]
    for row in table.rows:
        texts = []
        for column, cell in zip(table.columns, row, strict=True):
            texts.append(markdown_text(column.show(cell)) if isinstance(cell, str) else column.show(cell))
        lines.append(_markdown_row(texts))
    if table.notes:
        lines += ["", *(f"- {markdown_text(note)}" for note in table.notes)]
    return "\n".join(lines) + "\n"


def to_csv(table: Table) -> str:
    """Render a table as RFC 4180 CSV with a heading line. Text that a spreadsheet would run as a formula gets
    a leading apostrophe; numbers are unchanged."""
    buffer = io.StringIO(newline="")
    writer = csv.writer(buffer, lineterminator="\r\n")
    writer.writerow([spreadsheet_text(column.heading) for column in table.columns])
    for row in table.rows:
        writer.writerow([spreadsheet_text(cell) if isinstance(cell, str) else cell for cell in row])
    return buffer.getvalue()


_LATEX = {
    **{character: f"\\{character}" for character in "&%$#_{}"},
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "`": r"\textasciigrave{}",
    '"': "''",
    "'": r"\textquotesingle{}",
    "≈": r"$\approx$",
    "≤": r"$\leq$",
    "≥": r"$\geq$",
    "ρ": r"$\rho$",
    "−": r"$-$",
    "…": r"\ldots{}",
}


def to_latex(table: Table) -> str:
    """Render a table as a LaTeX float with the package booktabs; all text is escaped.

    Each interval stands in one column. Numbers are aligned right, and a minus sign is one.
    """
    small = _without_empty(compact(table))
    sides = "".join("r" if column.form else "l" for column in small.columns)
    rows = [small.labels]
    for row in small.rows:
        rows.append([column.show(cell) for column, cell in zip(small.columns, row, strict=True)])
    head, *body = [" & ".join(map(latex_text, row)) + r" \\" for row in rows]
    notes = [rf"\par\smallskip\footnotesize {latex_text(note.removesuffix('.'))}." for note in table.notes]
    lines = [r"\begin{table}", r"\centering", rf"\caption{{{latex_text(small.title)}}}"]
    lines += [rf"\begin{{tabular}}{{{sides}}}", r"\toprule", head, r"\midrule", *body, r"\bottomrule"]
    return "\n".join([*lines, r"\end{tabular}", *notes, r"\end{table}"]) + "\n"


def latex_text(text: str) -> str:
    """Escape text for LaTeX, on one line. A hyphen in front of a digit becomes a minus sign."""
    escaped = "".join(_LATEX.get(character, character) for character in one_line(text))
    return re.sub(r"(?<![\w\)])-(?=[0-9.])", r"$-$", escaped)


def to_rich(table: Table, width: int = 80) -> list[RichTable | Text]:
    """Render a table for a rich console. Every text becomes a ``Text``, so that rich does not interpret it as
    markup.

    Where the columns do not fit into ``width``, further tables below the first one hold the rest of them,
    each with the names in front again: the columns of text before the first number. Long names continue on
    the next line. Columns of numbers without a number are left out, but for the first column. The notes
    follow below the tables, one paragraph each.
    """
    from rich import box
    from rich.cells import cell_len
    from rich.table import Table as RichTable
    from rich.text import Text

    table = _without_empty(compact(table, explain=True))
    columns = [replace(column, shown=one_line(column.label)) for column in table.columns]
    texts = [
        [printable(column.show(row[at])) for row in table.rows] for at, column in enumerate(table.columns)
    ]
    minima = [_least_width(column, cells) for column, cells in zip(columns, texts, strict=True)]
    blocks = _blocks(columns, minima, width)
    if len(blocks) > 1:
        # where several tables are needed anyway, names stay on one line
        for at in range(_first_number(columns)):
            widest = max(map(cell_len, [columns[at].label, *texts[at]]), default=1)
            minima[at] = max(minima[at], min(widest, _NAME_WIDTH))
        blocks = _blocks(columns, minima, width)
    parts: list[RichTable | Text] = []
    for number, block in enumerate(blocks):
        widths = _widths(columns, texts, minima, block, width)
        title = None if number else Text(one_line(table.title))
        if title and title.cell_len > sum(widths.values()) + len(block) - 1:
            title.stylize("table.title")
            parts.append(title)  # rich would break it at the width of the table
            title = None
        rich_table = RichTable(title=title, box=box.SIMPLE_HEAD, show_edge=False, padding=0)
        for at in block:
            # On a narrow terminal texts wrap but numbers do not: half a number would look like another one.
            heading = columns[at].label
            if columns[at].form:
                rich_table.add_column(Text(_broken(heading, widths[at])), justify="right", no_wrap=True)
            else:
                rich_table.add_column(Text(heading), overflow="fold", width=widths[at])
        for row in range(len(table.rows)):
            rich_table.add_row(*(Text(_wrapped_name(texts[at][row], widths[at])) for at in block))
        parts.append(rich_table)
    parts += [Text(one_line(note)) for note in table.notes]
    return parts


def _broken(heading: str, width: int = 0) -> str:
    """Break a heading into lines of ``width``, keeping percent signs with their numbers."""
    lines = [""]
    for word in re.split(r" (?!%)", heading):
        if lines[-1] and len(lines[-1]) + 1 + len(word) > width:
            lines.append("")
        lines[-1] += f" {word}" if lines[-1] else word
    return "\n".join(lines)


def _least_width(column: Column, cells: Sequence[str]) -> int:
    """Compute the minimum width of a column: whole numbers, and parts of texts up to a limit."""
    from rich.cells import cell_len

    if column.form:
        return max(map(cell_len, [*_broken(column.label).split("\n"), *cells]), default=1)
    parts = chain.from_iterable(map(_PARTS.findall, [column.label, *cells]))
    return min(max(map(cell_len, parts), default=1), _TEXT_WIDTH)


def _first_number(columns: Sequence[Column]) -> int:
    """Find the first number column after at least one column of names."""
    return max(1, next((at for at, column in enumerate(columns) if column.form), len(columns)))


def _blocks(columns: Sequence[Column], minima: Sequence[int], width: int) -> list[list[int]]:
    """Divide the columns into blocks that fit, each beginning with the names. An interval stays with its
    number."""
    names = list(range(_first_number(columns)))
    groups: list[list[int]] = []
    for at in range(len(names), len(columns)):
        if groups and columns[at].heading == INTERVAL:
            groups[-1].append(at)
        else:
            groups.append([at])
    blocks = [names]
    for group in groups:
        longer = [*blocks[-1], *group]
        # at least one column beside the names, however narrow the terminal is
        if len(blocks[-1]) > len(names) and sum(minima[at] + 1 for at in longer) - 1 > width:
            blocks.append(names)
        blocks[-1] = [*blocks[-1], *group]
    return blocks


def _widths(
    columns: Sequence[Column],
    texts: Sequence[Sequence[str]],
    minima: Sequence[int],
    block: Sequence[int],
    width: int,
) -> dict[int, int]:
    """Share the free width among text columns, narrow ones first, then among number headings."""
    from rich.cells import cell_len

    widths = {at: minima[at] for at in block}
    free = max(0, width - sum(widths.values()) - len(block) + 1)
    needs = {}
    for at in block:
        if not columns[at].form:
            lines = "\n".join([columns[at].label, *texts[at]]).splitlines()
            needs[at] = max(map(cell_len, lines), default=0) - minima[at]
    for number, at in enumerate(sorted(needs, key=lambda at: needs[at])):
        share = min(max(0, needs[at]), free // (len(needs) - number))
        widths[at] += share
        free -= share
    # headings on one line where there is room, else on two or three
    for limit in range(1, 4):
        headings = {}
        for at in block:
            if columns[at].form:
                fits = (n for n in count(minima[at]) if _broken(columns[at].label, n).count("\n") < limit)
                headings[at] = next(fits)
        if sum(headings.values()) - sum(minima[at] for at in headings) <= free:
            return widths | headings
    return widths


def _wrapped_name(text: str, width: int) -> str:
    """Break words wider than the column after an underscore, slash, colon or hyphen."""
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
