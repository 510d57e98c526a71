"""Rows of a file and their columns. Rows are read again on each iteration, since large files may not fit in
memory."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeGuard, TypeVar

from selfreflect.errors import DataError, excerpt
from selfreflect.records import question_id
from selfreflect.sources.cells import type_name
from selfreflect.sources.names import plain_name

ROWS_BETWEEN_PROGRESS = 5000

Progress = Callable[[float], None] | None
"""Callback for the share of the work that is done, if progress is reported."""


def in_parts(progress: Progress, count: int) -> list[Progress]:
    """Divide a progress reporter among equal parts of the work."""

    def part(number: int) -> Progress:
        return progress and (lambda share: progress((number + share) / count))

    return list(map(part, range(count)))


class Row(NamedTuple):
    """A record of a file. ``fields`` is parsed but unchecked; a plain text becomes the field ``question``."""

    source: str
    """Name of the file in messages."""
    where: str
    """``"record 3"`` or ``"line 7"``, counted from 1."""
    fields: dict[str, Any]

    def error(self, problem: str, *, remedy: str = "") -> DataError:
        return DataError(f"{self.source}, {self.where}: {problem}", remedy=remedy)

    def get(self, name: str) -> Any:
        """Look up a field, or a path into objects such as ``"doc.question"``; None if missing."""
        if name in self.fields:
            return self.fields[name]
        value: Any = self.fields if "." in name else None
        for key in name.split("."):
            value = value.get(key) if isinstance(value, dict) else None
        return value

    def take_inner(self, paths: Iterable[str]) -> None:
        """Make fields of what is named within objects."""
        for path in paths:
            if path not in self.fields and (value := self.get(path)) is not None:
                self.fields[path] = value

    def text(self, name: str) -> str:
        """Look up a required text field.

        Raises:
            DataError: the field is missing, blank, or not a text.
        """
        value = self.get(name)
        if value is None:
            raise self.error(f"the field {excerpt(name)} is missing or null")
        if not isinstance(value, str):
            raise self.error(f"the field {excerpt(name)} must be a text, not {type_name(value)}")
        if not value.strip():
            raise self.error(f"the field {excerpt(name)} is blank")
        return value

    def optional_text(self, name: str) -> str:
        """Look up an optional text; empty if missing, null or blank.

        Raises:
            DataError: the field holds something else.
        """
        value = self.get(name)
        if value is None:
            return ""
        if isinstance(value, str):
            return value if value.strip() else ""
        raise self.error(f"the field {excerpt(name)} must be a text, not {type_name(value)}")


class RowIds:
    """Assignment of unique row ids, so that no record silently replaces another."""

    def __init__(self) -> None:
        self._owners: dict[str, str] = {}
        self._uses: Counter[str] = Counter()
        """Number of uses of each derived id."""

    def take(self, row: Row, text: str, context: str = "", column: str = "id") -> str:
        """Return the row's id, or derive one from its question, with ``-2``, ``-3``, … for repeated
        questions.

        Raises:
            DataError: the row's id is neither text nor an integer, or is already taken.
        """
        value = row.fields.get(column)
        value = None if value != value else value  # NaN, where a frame lacks the id
        is_whole = not isinstance(value, float) or value.is_integer()
        if isinstance(value, bool) or not isinstance(value, str | int | float | None) or not is_whole:
            raise row.error(f"the field {column!r} must be a text or an integer, not {type_name(value)}")
        id_ = id_text(value)
        if not id_.strip():
            id_ = self._derived_id(question_id(text, context))
        if id_ in self._owners:
            raise row.error(
                f"the id {excerpt(id_)} is already taken by {self._owners[id_]}; give every record an id of "
                "its own"
            )
        self._owners[id_] = row.where
        return id_

    def _derived_id(self, base: str) -> str:
        id_ = base
        # goes on from the last number, since thousands of rows may have one question
        while id_ in self._owners:
            self._uses[base] += 1
            id_ = f"{base}-{self._uses[base] + 1}"
        return id_


def id_text(value: object) -> str:
    """Write an id as text, with 1.0 as 1."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return "" if value is None else str(value)


def is_text_list(value: object) -> TypeGuard[list[str]]:
    """Check whether a value is a list of texts."""
    return isinstance(value, list) and all(isinstance(entry, str) for entry in value)


def listed(names: Iterable[str], limit: int = 12) -> str:
    """Quote the first ``limit`` names for a message; files may have many fields."""
    excerpts = list(map(excerpt, names)) or ["none"]
    if len(excerpts) > limit:
        excerpts = [*excerpts[:limit], f"and {len(excerpts) - limit} more"]
    return ", ".join(excerpts)


T = TypeVar("T")
METADATA = "metadata"
"""Name of the column of objects whose entries are read like columns."""


@dataclass(slots=True)
class ColumnContent:
    """Kinds of values that occur in a column."""

    has_text: bool = False
    """Whether any value is a text that is neither blank nor a number."""
    has_list: bool = False
    """Whether any value is a list, or a text that begins like a list, as in a table's cell."""
    has_object: bool = False
    has_infinity: bool = False
    """Whether any value is infinite or NaN."""


class Survey:
    """The columns of all rows, in order."""

    def __init__(self, rows: Iterable[Row] = ()) -> None:
        self.columns: dict[str, ColumnContent] = {}
        self.inner: dict[str, None] = {}
        """Names of the entries in the column ``metadata``."""
        self.count = 0
        self._kinds: set[tuple[object, ...]] = set()
        for row in rows:
            self.see(row)

    def see(self, row: Row) -> bool:
        """Record a row, and return whether its field names and value types are new."""
        fields = row.fields
        self.count += 1
        for name, value in fields.items():
            if (column := self.columns.get(name)) is None:
                column = self.columns[name] = ColumnContent()
            if value is None:
                continue
            if isinstance(value, str):
                column.has_text = column.has_text or is_text(value)
                if value[:1] in _OPENING:
                    start = value.lstrip()[:1]
                    column.has_list = column.has_list or start == "["
                    column.has_object = column.has_object or start == "{"
            elif isinstance(value, float):
                column.has_infinity = column.has_infinity or not math.isfinite(value)
            else:
                column.has_list = column.has_list or isinstance(value, list)
                column.has_object = column.has_object or isinstance(value, dict)
                if name == METADATA and isinstance(value, dict):
                    self.inner |= dict.fromkeys(value)
        kind = (*fields, *map(type, fields.values()))
        is_new = kind not in self._kinds
        self._kinds.add(kind)
        return is_new


# Beginnings of lists and objects in cells, maybe after blanks.
_OPENING = frozenset("[{ \t\r\n")


class Again(Generic[T]):
    """Iterable that makes its values anew for each iteration."""

    def __init__(self, make: Callable[[], Iterable[T]]) -> None:
        self._make = make

    def __iter__(self) -> Iterator[T]:
        return iter(self._make())


class Rows:
    """Rows that are read again, and then changed, on each iteration.

    Args:
        read: begins to read them.
        survey: of what ``read`` gives, if that is known.
        are_kept: whether they are in memory anyway.
    """

    def __init__(
        self, read: Callable[[], Iterable[Row]], survey: Survey | None = None, *, are_kept: bool = False
    ) -> None:
        self._read = read
        self._changes: list[Callable[[Row], Row]] = []
        survey = survey or Survey(read())
        self.columns, self.inner, self.count = survey.columns, survey.inner, survey.count
        self.are_kept = are_kept

    def __iter__(self) -> Iterator[Row]:
        for row in self._read():
            for change in self._changes:
                row = change(row)
            yield row

    @property
    def first(self) -> Row:
        return next(iter(self))

    def change(self, change: Callable[[Row], Row]) -> None:
        """Apply a function to each row on every later iteration."""
        self._changes.append(change)

    def add_inner(self, path: str) -> None:
        """Add a column of what is in objects, such as ``input.text``."""
        self.columns = {**self.columns, path: ColumnContent(has_text=True)}

        def with_inner(row: Row) -> Row:
            row.take_inner([path])
            return row

        self.change(with_inner)

    def join(self, names: Collection[str], target: str, value: Callable[[Row], object]) -> None:
        """Replace columns by one of lists, which ``value`` makes of a row."""
        self.columns = {name: column for name, column in self.columns.items() if name not in names}
        self.columns[target] = ColumnContent(has_list=True)

        def joined(row: Row) -> Row:
            rest = {name: entry for name, entry in row.fields.items() if name not in names}
            return row._replace(fields={**rest, target: value(row)})

        self.change(joined)

    def rename(self, renamed: Mapping[str, str]) -> None:
        """Rename columns, replacing any columns that have the new names."""
        if renamed:
            self.columns = _renamed(self.columns, renamed)
            self.change(lambda row: row._replace(fields=_renamed(row.fields, renamed)))

    def rename_usual(self, usual: Mapping[str, str], kept: Collection[str] = ()) -> dict[str, str]:
        """Rename columns to their usual names if these are free, and return the new names by the old ones.

        Args:
            usual: names by plain ones, as :func:`~selfreflect.sources.names.plain_name` writes them.
            kept: columns that keep their names.
        """
        in_use = {*self.columns}  # a file may have thousands
        renamed: dict[str, str] = {}
        for name in self.columns:
            target = usual.get(plain_name(name), name)
            if target not in in_use and name not in kept:
                renamed[name] = target
                in_use.add(target)
        self.rename(renamed)
        return renamed


def _renamed(values: Mapping[str, T], renamed: Mapping[str, str]) -> dict[str, T]:
    replaced = {*renamed.values()} - renamed.keys()
    return {renamed.get(name, name): value for name, value in values.items() if name not in replaced}


def exact_key(fields: Mapping[str, object]) -> tuple[object, ...]:
    """Make a key from plain values that distinguishes 1 from true."""
    return (*fields.items(), *map(type, fields.values()))


def is_text(value: object) -> bool:
    """Check whether a value is a text, neither blank nor a number."""
    return isinstance(value, str) and bool(value.strip()) and not is_number(value)


# Scripts without blanks between words begin here.
_WITHOUT_BLANKS, _FEWEST_SIGNS = "\u2e80", 6


def is_sentence(value: object) -> bool:
    """Tell whether a text has several words, or signs of a script without blanks; a time has none."""
    if not isinstance(value, str) or not any(map(str.isalpha, value)):
        return False
    return " " in value.strip() or sum(sign >= _WITHOUT_BLANKS for sign in value) >= _FEWEST_SIGNS


def is_number(value: object) -> bool:
    """Check whether a value is a finite number, or a text that contains only one."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return False
    try:
        return math.isfinite(float(value))
    except (ValueError, OverflowError):
        return False
