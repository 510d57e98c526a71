"""Rows of CSV, TSV and workbooks, below the lines with the names of columns."""

from __future__ import annotations

import csv
import io
import re
import zipfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, time
from itertools import chain, islice
from typing import Any

from selfreflect.errors import DataError, MissingExtraError, excerpt
from selfreflect.sources.columns import item_columns
from selfreflect.sources.files import BEGINNING, DAMAGE, Content, text_lines
from selfreflect.sources.names import (
    QUESTION_COLUMNS,
    asks_by_name,
    likely_questions,
    likely_spans,
    plain_name,
)
from selfreflect.sources.rows import Row, listed
from selfreflect.text import counted

# The first line by which a spreadsheet says what separates its cells.
_SEPARATOR_LINE = re.compile(r'"?sep=([,;\t|])"?\r?\n', re.IGNORECASE)
_DELIMITERS = ",;\t|"


def _delimiter(text: str, suffix: str) -> str:
    """Find the delimiter that splits header and next line into the most cells; the default is a comma."""
    # where two divide alike, a tab comes first in a .tsv file, else a comma
    order = sorted(_DELIMITERS, key=lambda delimiter: suffix == ".tsv" and delimiter != "\t")
    widths = {}
    for delimiter in order:
        reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
        header, *lines = [len(cells) for cells in islice(filter(any, reader), 2)] or [1]
        widths[delimiter] = header if lines == [header] else 1
    if max(widths.values()) > 1:
        return max(order, key=widths.__getitem__)
    # a title may stand above the names of the columns, and most lines below have one width
    for delimiter in order:
        reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
        lines = [len(cells) for cells in islice(filter(any, reader), _LINES_OF_HEAD)][1:-1]
        if len(lines) > 1 and len({*lines}) == 1 and lines[0] > 1:
            return delimiter
    # a name in quotes may hold a comma
    first_line = re.sub('"[^"]*"', "", text.lstrip().partition("\n")[0])
    return "," if "," in first_line else max(order, key=first_line.count)


def csv_rows(content: Content) -> Iterator[Row]:
    # a character may end beyond
    start = content.data[:BEGINNING].decode("utf-8", "ignore").removeprefix("\ufeff")
    declared = _SEPARATOR_LINE.match(start)
    delimiter = declared[1] if declared else _delimiter(start, content.suffix)
    # a cell may be as long as any text; the limit is of the process, so it is never lowered
    csv.field_size_limit(max(content.size, csv.field_size_limit()))
    # some write "question, answer", with the blank in every line
    header = start[declared.end() if declared else 0 :].partition("\n")[0].split(delimiter)[1:]
    has_blanks = bool(header) and all(name.startswith(" ") for name in header)
    skipped = 1 if declared else 0
    line = 1 + skipped

    def numbered() -> Iterator[tuple[str, list[str]]]:
        nonlocal line
        with io.TextIOWrapper(content.stream(), encoding="utf-8-sig", newline="") as lines:
            if declared:
                lines.readline()
            reader = csv.reader(lines, strict=True, delimiter=delimiter, skipinitialspace=has_blanks)
            for cells in reader:
                where = f"line {line}"
                line = reader.line_num + 1 + skipped
                yield where, cells

    try:
        yield from _table_rows(content, numbered())
    except UnicodeDecodeError:
        list(text_lines(content))  # which knows the offset
        raise
    except csv.Error as error:
        raise DataError(
            f"{content.name}, line {line}: not CSV: {error}",
            remedy='Inside a quoted cell, write a quote twice, as in "6"" pipe".',
        ) from None


def _table_rows(content: Content, lines: Iterable[tuple[str, list[str]]]) -> Iterator[Row]:
    """Make rows from a table's lines, below those with the names of columns.

    Some programs leave out the blank cells at the end of a row, which are null then.
    """
    # spreadsheets keep rows that were once used; the first cell alone says it of most rows
    filled = (
        (where, cells) for where, cells in lines if (cells and cells[0].strip()) or any(map(str.strip, cells))
    )
    head = list(islice(filled, _LINES_OF_HEAD))
    if not head:
        return
    header, below = _header(content, [_without_blank_end(cells) for _, cells in head])
    name = content.name
    short, first_short, repeated = 0, "", 0
    for where, cells in chain(head[below:], filled):
        if cells == header and len(cells) > 1:  # files were put one behind the other
            repeated += 1
            continue
        if len(cells) > len(header) and any(map(str.strip, cells[len(header) :])):
            raise DataError(
                f"{name}, {where}: {len(cells)} cells, but the header has {len(header)} columns: "
                f"{excerpt(header)}",
                remedy="Remove everything above the header, or put quotes around the cell that contains "
                "the separator.",
            )
        fields: dict[str, Any] = dict(zip(header, cells, strict=False))
        if len(cells) < len(header):
            short += 1
            first_short = first_short or where
            fields |= dict.fromkeys(header[len(cells) :])
        fields.pop("", None)
        yield Row(name, where, fields)
    if repeated:
        content.note(f"{counted(repeated, 'line')} with the names of the columns again left out")
    if short:
        rows = "1 row has" if short == 1 else f"{short:,} rows have"
        content.note(
            f"{rows} fewer cells than the header, such as {first_short}: the missing cells count as blank"
        )


# Lines among which the names of columns are looked for.
_LINES_OF_HEAD = 12
# Longest name of a column below other lines.
_NAME_CHARACTERS = 60


def _header(content: Content, lines: Sequence[list[str]]) -> tuple[list[str], int]:
    """Find the names of the columns, and the number of the first line below them.

    Titles may stand above them, names of groups of columns too, and units or types below.

    Raises:
        DataError: there are none, or not one for each column.
    """
    widest = max(map(len, lines))
    is_title = widest > 1 and sum(bool(cell.strip()) for cell in lines[0]) == 1
    number = 0
    # names of questions and answers may repeat, and a row below may hold words that are names elsewhere
    if is_title or not (_are_names(lines[0]) or _are_whole(lines[0])):
        is_named = not is_title and _name_questions(lines[0])
        below = [
            at
            for at, cells in enumerate(lines)
            if at and len(cells) == widest and _are_asking(cells, is_below_names=is_named)
        ]
        number = below[0] if below else 0
    header = lines[number]
    if number:
        above = next(filter(str.strip, lines[0]))
        content.note(f"{counted(number, 'line')} above the names of the columns left out: {excerpt(above)}")
    if len({*header}) < len(header) and all(map(str.strip, header)) and not _is_row(header):
        header = _numbered_apart(content, header)
    if not _are_names(header):
        raise DataError(
            f"{content.name}: the first line must be a header with a different name for each column, but is "
            f"{excerpt(header)}",
            remedy="Remove everything above the header, and give each column a name of its own.",
        )
    number += 1
    if number < len(lines) and _are_units(lines[number]):
        content.note(f"a line with units or types left out: {listed(filter(None, lines[number]))}")
        number += 1
    return header, number


def _without_blank_end(cells: list[str]) -> list[str]:
    """Leave out the columns at the end that were once used, and have no name."""
    width = len(cells)
    while width > 2 and not cells[width - 1].strip():
        width -= 1
    return cells[:width]


def _are_names(cells: Sequence[str]) -> bool:
    """Check whether cells are different names. A data frame's index comes without one, in front."""
    names = cells[1:] if len(cells) > 1 and not cells[0] else cells
    return all(map(str.strip, names)) and len({*names}) == len(names)


def _are_asking(cells: Sequence[str], *, is_below_names: bool) -> bool:
    """Check whether cells below others are names of columns, one of which is that of the questions.

    Args:
        is_below_names: whether the cells above name a column of questions, too, so that these may be a row.
    """
    is_repeated = all(map(str.strip, cells)) and _are_whole(cells)
    if not (_are_names(cells) or is_repeated) or max(map(len, cells)) > _NAME_CHARACTERS:
        return False
    if is_below_names:
        return _are_whole(cells) and not any(map(_is_asked, cells))
    # numbers alone are values
    are_words = all(any(map(str.isalpha, cell)) for cell in cells if cell)
    return _name_questions(cells) or (are_words and _asks(cells) >= 0)


def _are_whole(cells: Iterable[str]) -> bool:
    """Check whether cells name both questions and answers."""
    columns = item_columns(filter(str.strip, cells), {})
    return bool(columns.question and columns.answers)


def _name_questions(cells: Iterable[str]) -> bool:
    """Check whether a cell is named like a column of questions."""
    return any(asks_by_name(cell) and cell.count(" ") < 3 for cell in cells)


def _is_row(cells: Sequence[str]) -> bool:
    """Check whether a question stands in place of the names of columns."""
    return not _name_questions(cells) and any(map(_is_asked, cells))


def _is_asked(cell: str) -> bool:
    """Check whether a cell is a question rather than the name of a column."""
    return cell.rstrip().endswith(("?", "？")) and cell.count(" ") > 1


def _numbered_apart(content: Content, names: Sequence[str]) -> list[str]:
    """Number the columns that have one name."""
    counts = Counter(names)
    several = [name for name, count in counts.items() if count > 1]
    taken: Counter[str] = Counter()
    header = []
    for name in names:
        taken[name] += 1
        header.append(f"{name} {taken[name]}" if counts[name] > 1 else name)
    content.note(f"columns with one name are numbered from left to right: {listed(several)}")
    return header


def _are_units(cells: Sequence[str]) -> bool:
    """Check whether a line below the names says in what its columns are."""
    words = [cell.strip(" ()[]").casefold() for cell in cells if cell.strip()]
    return len(words) > 1 and {*words} <= _UNITS


_UNITS = frozenset(
    "text texts string str varchar free_text integer int float number numeric bool boolean date datetime "
    "timestamp time ms s sec seconds min tokens token count usd eur chf gbp $ € £ ct cents % y/n yes/no j/n "
    "ja/nein true/false 0/1 1/0 0-1 1-5 id json list categorical category unit units einheit "
    "einheiten".split()
)


def xlsx_rows(content: Content) -> Iterator[Row]:
    """Read the sheet of questions in a workbook, with cells as text."""
    try:
        import openpyxl
    except ImportError:
        raise MissingExtraError("reading .xlsx files", "xlsx") from None
    try:
        with zipfile.ZipFile(io.BytesIO(content.data)) as archive:
            # a small archive may unpack to gigabytes
            if sum(member.file_size for member in archive.infolist()) > MAX_WORKBOOK:
                raise DataError(f"{content.name} is larger than {MAX_WORKBOOK:,} bytes unpacked")
            parts = [name for name in archive.namelist() if name.startswith("xl/worksheets/")]
            merges = any(b"<mergeCell " in archive.read(name) for name in parts)
        # only a workbook that is in memory as a whole knows its merged cells
        book = openpyxl.load_workbook(io.BytesIO(content.data), read_only=not merges, data_only=True)
        sheets = {
            sheet.title: [list(map(cell_text, cells)) for cells in sheet.values] for sheet in book.worksheets
        }
        for sheet in book.worksheets if merges else ():
            _fill_down(sheets[sheet.title], sheet.merged_cells.ranges)
    except (*DAMAGE, LookupError, TypeError, AttributeError, SyntaxError) as error:
        raise DataError(f"{content.name} is not a readable workbook: {excerpt(str(error), 200)}") from None
    # a cover or a legend is no table
    tables = {title: rows for title, rows in sheets.items() if len(list(filter(any, rows))) > 1}
    asking = {title: rank for title, rows in tables.items() if (rank := _asks(next(filter(any, rows)))) >= 0}
    chosen = {title: tables[title] for title, rank in asking.items() if rank == min(asking.values())}
    tables = chosen or tables
    if len(tables) > 1:
        raise DataError(
            f"{content.name} has a table in each of the sheets {listed(tables)}",
            remedy="Save the sheet with the questions as a separate file.",
        )
    left_out = [title for title, rows in sheets.items() if title not in tables and any(map(any, rows))]
    if tables and left_out:
        sheet = "sheet" if len(left_out) == 1 else "sheets"
        content.note(f"{sheet} {listed(left_out)} left out: the questions are in {listed(tables)}")
    rows = next(iter(tables.values()), [])
    while rows and not any(rows[0]):
        rows.pop(0)
    return _table_rows(content, ((f"row {number}", cells) for number, cells in enumerate(rows, 1)))


def _fill_down(rows: list[list[str]], ranges: Iterable[Any]) -> None:
    """Copy the text of vertically merged cells to all their rows."""
    for area in ranges:
        column = area.min_col - 1
        for number in range(area.min_row, min(area.max_row, len(rows))):
            rows[number][column] = rows[area.min_row - 1][column]


def _asks(header: Iterable[str]) -> int:
    """Rank a header by the name of its question column, with 0 for the usual name; -1 without such a
    column."""
    names = [*filter(None, header)]
    plain = [*map(plain_name, names)]
    # such a name is clearer than "text", which may head a column of anything
    usual = [QUESTION_COLUMNS[0], *likely_questions(plain), *QUESTION_COLUMNS[1:]]
    if likely_spans(names):
        usual.append(plain[0])  # several answers stand beside something
    return next((rank for rank, name in enumerate(usual) if name in plain), -1)


MAX_WORKBOOK = 1_000_000_000
"""Maximum size of an unpacked workbook in bytes."""


def cell_text(cell: object) -> str:
    """Write a spreadsheet cell as CSV would."""
    if cell is None:
        return ""
    if isinstance(cell, bool):
        return "true" if cell else "false"
    if isinstance(cell, float):
        return str(int(cell)) if cell.is_integer() else f"{cell:.15g}"  # digits that spreadsheets keep
    if isinstance(cell, datetime) and cell.time() == time():
        return cell.date().isoformat()
    return str(cell)
