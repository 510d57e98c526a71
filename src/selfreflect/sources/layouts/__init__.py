"""Layouts of files with questions and answers: protocol, table and detection."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cache, partial
from importlib import import_module
from itertools import chain, islice
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol, cast

from selfreflect.errors import ConfigError, DataError, excerpt
from selfreflect.plugins import failures_of, packaged
from selfreflect.sources.cells import gold_texts
from selfreflect.sources.files import IN_PARTS, Content, read_content
from selfreflect.sources.names import GOLD
from selfreflect.sources.parsers import PARSERS, each_row
from selfreflect.sources.roles import LikelyRoles, likely_roles
from selfreflect.sources.rows import Row, Rows, Survey, listed

SUFFIXES = tuple(suffix for suffix in (*PARSERS, ".eval") if suffix != ".txt")

ROWS_OF_HEAD = 1000
"""Number of first rows that determine the layout of a stream."""

GROUP = "selfreflect.layouts"
"""Entry point group for layouts of other packages."""

LAYOUTS = {
    "inspect": "selfreflect.sources.layouts.inspect:Inspect",
    "lm-eval": "selfreflect.sources.layouts.lm_eval:LmEval",
    "responses": "selfreflect.sources.layouts.responses:Responses",
    "lm-polygraph": "selfreflect.sources.layouts.shapes:Polygraph",
    "truthtorchlm": "selfreflect.sources.layouts.shapes:TruthTorch",
    "uqlm": "selfreflect.sources.layouts.shapes:Uqlm",
    "squad": "selfreflect.sources.layouts.shapes:Squad",
    "columns": "selfreflect.sources.layouts.shapes:ColumnLists",
    "pandas": "selfreflect.sources.layouts.shapes:Pandas",
    "nested": "selfreflect.sources.layouts.shapes:Nested",
    "records": "selfreflect.sources.layouts.shapes:Records",
    "wrapped": "selfreflect.sources.layouts.shapes:Wrapped",
    "judged": "selfreflect.sources.layouts.named:Judged",
    "named": "selfreflect.sources.layouts.named:Named",
    "published": "selfreflect.sources.layouts.published:Published",
    "items": "selfreflect.sources.layouts.shapes:Items",
}
"""Layouts after other packages' in order of precedence; the last matches every row."""


class Layout(Protocol):
    """A layout of questions and answers in a file's rows, with a new object for each file."""

    name: str
    is_log: bool = False
    """Whether an evaluation wrote the file, so that answers are a model's."""
    is_free: bool = False
    """Whether people choose the names of columns, so that values tell their roles, too."""
    notes: Sequence[str] = ()
    """Notes to the user after reading, one sentence each."""
    ignores: Sequence[str] = ()
    """Unused parts of the files."""
    wraps: bool = False
    """Whether the records are in another layout."""
    elsewhere: str = ""
    """Remedy for missing questions."""
    streams: bool = False
    """Whether rows are converted one by one, to save memory with large files."""
    columns: Mapping[str, str] = MappingProxyType({})
    """Original names of columns, by their new names."""
    assigned: Collection[str] = ()
    """Columns that the user assigns by path, such as ``doc.question``."""

    @abstractmethod
    def matches(self, rows: Sequence[Row]) -> bool:
        """Check whether unprocessed rows are in this layout."""

    def items(self, rows: Sequence[Row]) -> Iterable[Row]:
        """Convert rows to one per question or answer, with usual column names.

        Raises:
            DataError: a row is malformed; :meth:`Row.error` names its place.
        """
        return rows

    def explain(self) -> str:
        """Describe the layout in words; empty if the file format says enough."""
        return ""


def right_answers(target: Any) -> dict[str, list[str]]:
    """Make the field of right answers from a log's target; empty if there are none."""
    try:
        texts = list(gold_texts(target))
    except ValueError:
        texts = []
    return {GOLD: texts} if texts else {}


class RowFile(NamedTuple):
    """The rows of a file in its layout, before columns are interpreted."""

    name: str
    """Name of the file in messages."""
    format: str
    """Format such as ``"CSV"``."""
    layout: Layout
    rows: Rows
    notes: list[str]
    """Notes to the user, one sentence each."""
    words: str
    """Layout in words, or the format if that suffices."""

    @property
    def cells(self) -> bool:
        """Whether all values are text, so that cells may contain lists."""
        return self.format in ("CSV", "TSV", "XLSX")

    def with_likely_roles(self, assigned: Mapping[str, str]) -> LikelyRoles:
        """Add roles recognised by values to the user's assignments, with a note on each."""
        if not getattr(self.layout, "is_free", False):
            return LikelyRoles({**assigned})
        likely = likely_roles(self.rows, assigned)
        self.notes.extend(likely.notes)
        if (asked := likely.roles.get("question", "")) not in {*self.rows.columns, ""}:
            self.rows.add_inner(asked)
        return LikelyRoles({**assigned, **likely.roles}, likely.reply, likely.doubt)


def read_row_file(
    source: str | Path,
    progress: Callable[[float], None] | None = None,
    assigned: Collection[str] = (),
) -> RowFile:
    """Read a file, or standard input for ``"-"``.

    Args:
        progress: called now and then with the share of the rows that is read.
        assigned: columns that the user names, which may be paths into objects, as in ``doc.question``.

    Raises:
        DataError: the source cannot be read, or is not what its suffix says.
        ConfigError: a layout of another package fails.
        MissingExtraError: parquet or a compressed log without pyarrow.
    """
    content = read_content(source, SUFFIXES)
    if content.suffix == ".txt":
        content = content._replace(suffix=".csv")  # from standard input, where CSV has no mark
    return rows_in(content._replace(allows_nan=True), progress, assigned=assigned)


def rows_in(
    content: Content,
    progress: Callable[[float], None] | None = None,
    logs: bool = True,
    assigned: Collection[str] = (),
) -> RowFile:
    """Read content in the first matching layout; see :func:`read_row_file`.

    Args:
        logs: whether it may be a log. Where questions are wanted, a model's answers are no gold.
    """
    notes: list[str] = []
    again, content = content, content._replace(notes=notes)
    if logs and content.suffix == ".eval":
        raw_rows = [Row(content.name, "the archive", {"samples": content, "progress": progress})]
        stream: Iterator[Row] = iter(())
    else:
        stream = each_row(content, progress)
        raw_rows = list(islice(stream, ROWS_OF_HEAD))
        if not raw_rows:
            raise DataError(f"{content.name} contains no records")
    # an object into which the user names a path is not unwrapped
    is_named = any("." in path and raw_rows[0].get(path) is not None for path in assigned)
    layout = _layout_of(raw_rows, logs, is_named)
    survey = None
    if _is_lazy(layout) and content.suffix in IN_PARTS:
        survey = Survey(raw_rows)
        raw_rows += [row for row in stream if survey.see(row)]
        layout = _layout_of(raw_rows, logs, is_named)
        if not _is_lazy(layout):
            survey, raw_rows, stream = None, [], each_row(again)
    layouts = [layout]
    if survey:
        raw_rows.clear()
        read = partial(_read_again, layout, again, assigned)
        is_known = layout.name == "items" and not any("." in path for path in assigned)
        rows = Rows(read, survey if is_known else None)
    else:
        # a layout of another package need not be a subclass of ours
        takes_one_by_one = getattr(layout, "streams", False) and not _is_lazy(layout)
        all_rows: Iterable[Row] = chain(raw_rows, stream)
        if not takes_one_by_one:
            rest = list(stream)
            all_rows = raw_rows = raw_rows + rest
            # a later row may rule out the layout of the first ones
            layouts = [_layout_of(raw_rows, logs, is_named)] if rest else layouts
        kept = _rows_of(layouts[0], all_rows, assigned, content.name)
        # records may be wrapped once more, as columns in a field are
        while getattr(layouts[-1], "wraps", False) and (inner := _layout_of(kept, logs)).name != "items":
            kept = _rows_of(inner, kept, assigned, content.name)
            layouts.append(inner)
        for row in kept:
            row.take_inner(assigned)
        rows = Rows(lambda: kept, are_kept=True)
    words: list[str] = []
    for layout in layouts:
        with _failures_of(layout):
            notes += getattr(layout, "notes", ())
            words = [*filter(None, [layout.explain()]), *words]
    if names := [name for name, column in rows.columns.items() if column.has_infinity]:
        notes.append(f"NaN or Infinity is left out of {listed(names)}, because it is not a value")
    format = content.suffix.removeprefix(".").upper()
    return RowFile(content.name, format, layouts[-1], rows, notes, ", ".join(dict.fromkeys(words)) or format)


def _is_lazy(layout: Layout) -> bool:
    """Check whether a layout's rows can be read again instead of being kept, which only our layouts allow."""
    return _is_ours(layout) and layout.streams and not layout.is_log


def _read_again(layout: Layout, content: Content, assigned: Collection[str]) -> Iterator[Row]:
    for row in layout.items(cast("Sequence[Row]", each_row(content))):
        row.take_inner(assigned)
        yield row


def _rows_of(layout: Layout, rows: Iterable[Row], assigned: Collection[str], name: str) -> list[Row]:
    with _failures_of(layout):
        layout.assigned = assigned
        rows_of_layout = list(layout.items(cast("Sequence[Row]", rows)))
    if _is_ours(layout) and not rows_of_layout:
        raise DataError(f"{name} contains no records")
    if not rows_of_layout or not all(isinstance(row, Row) for row in rows_of_layout):
        raise ConfigError(f"the layout {excerpt(layout.name)} finds no rows in {name}")
    return rows_of_layout


def _layout_of(rows: Sequence[Row], logs: bool, is_flat: bool = False) -> Layout:
    for layout in _layouts():
        with _failures_of(layout):
            is_excluded = (layout.is_log and not logs) or (is_flat and getattr(layout, "wraps", False))
            try:
                is_match = not is_excluded and layout.matches(rows)
            except RecursionError:
                raise DataError(f"{rows[0].source}: nested too deeply") from None
            if is_match:
                return layout
    raise AssertionError("the last layout matches all rows")


def _layouts() -> Iterator[Layout]:
    """Yield the layouts in order, made on demand."""
    for name, load in _entry_points().items():
        with failures_of(f"the layout {excerpt(name)}"):
            layout = load()()
        yield layout
    for target in LAYOUTS.values():
        module, _, name = target.partition(":")
        yield getattr(import_module(module), name)()


@cache
def _entry_points() -> dict[str, Callable[[], Any]]:
    """Find the layouts of other packages by name, once, because it takes longer than to read most files."""
    return dict(packaged(GROUP))


def _failures_of(layout: Layout) -> AbstractContextManager[None]:
    """Attribute errors to the package of a plug-in layout; an error in ours is a bug."""
    kind = type(layout)
    if _is_ours(layout):
        return nullcontext()
    return failures_of(f"the layout {kind.__module__}:{kind.__qualname__}")


def _is_ours(layout: Layout) -> bool:
    return type(layout).__module__.startswith("selfreflect.")
