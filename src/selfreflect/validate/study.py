"""Studies of metrics: items to measure, and findings stored in a folder."""

from __future__ import annotations

import json
import os
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from itertools import chain
from pathlib import Path
from textwrap import shorten
from typing import Any, Protocol

from msgspec.structs import replace

from selfreflect.atomic import write_files
from selfreflect.errors import ConfigError, StoreError, excerpt
from selfreflect.prompts import bundled_texts
from selfreflect.records import dump_line
from selfreflect.sources.items import Item
from selfreflect.stats import Estimate
from selfreflect.store.journal import Journal, open_locked, open_regular, refuse_links, store_errors
from selfreflect.table import Cell, Column, Table, spaced_percent, to_csv, to_markdown
from selfreflect.text import listed, markdown_text
from selfreflect.validate.base import Family, MetricInfo, Reason, Value, digest

_FINDING = "finding.json"
_NAME_LENGTH = 48


class Study(Protocol):
    """A question about metrics, with the items to study.

    A constructor raises DataError or ConfigError for input that makes no sense, before a model is loaded.
    """

    @property
    def name(self) -> str: ...

    @property
    def items(self) -> Sequence[Item]:
        """Items to measure, the user's or derived ones."""

    def finding(self, values: Sequence[Value], metrics: Sequence[MetricInfo]) -> Finding:
        """Turn values into tables and sentences, in the order of ``metrics``. Values of unknown items are
        ignored."""


def summary_names(items: Iterable[Item]) -> list[str]:
    """List the names of all summaries, in item order."""
    return list(dict.fromkeys(chain.from_iterable(item.summaries for item in items)))


Numbers = Mapping[tuple[str, str], float]
"""The values of one metric by item and summary."""


def each_metric(
    values: Sequence[Value], metrics: Sequence[MetricInfo]
) -> Iterator[tuple[MetricInfo, Numbers]]:
    """Yield each metric with its defined values.

    Raises:
        ConfigError: one metric has values by several models, of which one would hide the other.
    """
    numbers: dict[str, dict[tuple[str, str], float]] = defaultdict(dict)
    models: dict[str, str] = {}
    for value in values:
        model = models.setdefault(value.metric, value.by)
        if model != value.by:
            raise ConfigError(
                f"{value.metric} has values by {excerpt(model)} and by {excerpt(value.by)}; "
                "this study takes one model at a time",
                code="two_models",
                metric=value.metric,
            )
        if value.value is not None:
            numbers[value.metric][value.item, value.summary] = value.value
    for metric in metrics:
        yield metric, numbers[metric.name]


Row = Mapping[str, Cell]
"""Cells of a row by heading."""


class Finding:
    """Tables of a study, with paragraphs in ``says`` on their interpretation.

    Titles, formats, notes and sentences are those of ``data/validate.toml``, by study. Names and texts in a
    finding may come from files and models; rendering makes them safe.

    Args:
        tables: keys of those that are shown even without rows. Further ones follow in the order of their
            first rows.
        values: what notes speak of.
    """

    def __init__(self, study: str, *tables: str, **values: Any) -> None:
        self.study = study
        self.says: list[str] = []
        self.notes: dict[str, list[str]] = defaultdict(list)
        """Further notes by table."""
        self._rows: dict[str, list[Row]] = {key: [] for key in tables}
        self._values = values

    @property
    def _texts(self) -> Mapping[str, Any]:
        texts: Mapping[str, Any] = bundled_texts("validate.toml")
        return {**texts["all"], **texts[self.study]}

    @property
    def tables(self) -> list[Table]:
        return [self._table(key, rows) for key, rows in self._rows.items()]

    def _table(self, key: str, rows: Sequence[Row]) -> Table:
        layout = self._texts[key]
        columns: list[Column] = []
        for heading in rows[0] if rows else ():
            cells = [row[heading] for row in rows if row[heading] is not None]
            form = layout["form"]
            if any(isinstance(cell, str) for cell in cells):
                form = ""
            elif cells and all(isinstance(cell, int) for cell in cells):
                form = "d"
            columns.append(Column(heading, layout.get("forms", {}).get(heading, form)))
        notes = [spaced_percent(note.format(**self._values)) for note in layout.get("notes", ())]
        cells_of_rows = tuple(tuple(row.values()) for row in rows)
        return Table(layout["title"], tuple(columns), cells_of_rows, (*notes, *self.notes[key]))

    def add(self, table: str, *rows: Row) -> None:
        """Add rows with equal headings to a table."""
        self._rows.setdefault(table, []).extend(rows)

    def sentence(self, key: str, **values: Any) -> str:
        """Fill in a sentence of the study."""
        text: str = self._texts["says"][key]
        return spaced_percent(text.format(**values))

    def say(self, key: str, **values: Any) -> None:
        """Add a sentence of the study to the finding."""
        self.says.append(self.sentence(key, **values))

    def tally(self, counts: Mapping[str, int]) -> None:
        """Add non-zero counts, as ``Pairs: 9; items: 3.``"""
        self.says.append("; ".join(f"{name}: {count}" for name, count in counts.items() if count) + ".")

    def say_sides(self, sides: Mapping[str, str], keys: Sequence[str]) -> None:
        """Add a sentence for each side of chance in ``keys``, with the names of metrics on that side."""
        for key in keys:
            if names := [name for name, side in sides.items() if side == key]:
                self.says.append(f"{self.sentence(key)}: {listed(names)}.")

    def lines(self) -> Iterator[dict[str, Any]]:
        """Yield one JSON object per row of every table, then per sentence."""
        for table in self.tables:
            for row in _plain_rows(table):
                cells = dict(zip(table.headings, row, strict=True))
                yield {"study": self.study, "table": table.title, "row": cells}
        for sentence in self.says:
            yield {"study": self.study, "says": sentence}


def interval(
    heading: str, estimate: Estimate, low: str = "95% low", high: str = "95% high"
) -> dict[str, Cell]:
    """Build the cells of an estimate by heading: mean and interval."""
    return {heading: estimate.mean, low: estimate.low, high: estimate.high}


SIDES = {1: "above", 0: "unclear", -1: "below"}
"""Sentence keys by side of chance."""


def with_interval(estimate: Estimate, form: str) -> str:
    """Format an estimate with its interval, if any."""
    if estimate.mean is None:
        return "undefined"
    if estimate.low is None or estimate.high is None:
        return spaced_percent(format(estimate.mean, form))
    return spaced_percent(f"{estimate.mean:{form}} [{estimate.low:{form}}, {estimate.high:{form}}]")


def write(finding: Finding, made_with: Mapping[str, Any], directory: Path) -> Path:
    """Write a finding's JSON, Markdown and CSV tables to its study's folder, and return the folder.

    Args:
        made_with: what a reader needs to make it again, as plain values.

    Raises:
        StoreError: the system refuses.
    """
    folder = refuse_links(directory, directory / finding.study)
    tables = []
    for table in finding.tables:
        content = {"columns": table.headings, "rows": _plain_rows(table), "notes": list(table.notes)}
        tables.append({"title": table.title, **content})
    record = {"study": finding.study, "says": finding.says, "tables": tables, "made_with": made_with}
    texts = {_FINDING: dump_line(record) + "\n", "finding.md": _page(finding, made_with)}
    texts |= zip(_file_names(record), map(to_csv, finding.tables), strict=True)
    with store_errors(folder):
        folder.mkdir(exist_ok=True)
        # only files that an earlier finding names: a user may keep others here
        stale = {*_earlier_names(folder)} - texts.keys()
        write_files(folder, {name: text.encode("utf-8", "backslashreplace") for name, text in texts.items()})
        for name in stale:
            (folder / name).unlink(missing_ok=True)
    return folder


def _earlier_names(folder: Path) -> list[str]:
    """List the file names of a stored finding's tables; empty if damaged."""
    try:
        with os.fdopen(open_regular(folder / _FINDING, os.O_RDONLY), "rb") as file:
            return _file_names(json.loads(file.read()))
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return []


def _file_names(record: Mapping[str, Any]) -> list[str]:
    """Make distinct file names from table titles, which may hold any text."""
    names: list[str] = []
    for table in record["tables"]:
        name = re.sub(r"[^a-z0-9]+", "-", table["title"].lower())[:_NAME_LENGTH].strip("-") or "untitled"
        while f"{name}.csv" in names:
            name += "-2"
        names.append(f"{name}.csv")
    return names


def _plain_rows(table: Table) -> list[list[Cell]]:
    """Convert rows to plain JSON values, without float subclasses such as Approximate."""
    rows = []
    for row in table.rows:
        rows.append([float(cell) if isinstance(cell, float) else cell for cell in row])
    return rows


def _page(finding: Finding, made_with: Mapping[str, Any]) -> str:
    """Write the finding as Markdown, sentences first. Every text is escaped."""
    facts = [f"- {markdown_text(name)}: {markdown_text(str(value))}" for name, value in made_with.items()]
    sentences = [f"{markdown_text(sentence)}\n" for sentence in finding.says]
    title = f"# Study: {markdown_text(finding.study)}\n"
    return "\n".join([title, *sentences, *map(to_markdown, finding.tables), "### Made with\n", *facts, ""])


VALUES = "values.jsonl"

Key = tuple[str, str, str, str, str]
"""Everything that a value depends on, so that different studies can share a directory."""

_LOCK, _MANIFEST = ".lock", "manifest.json"


def _key(value: Value) -> Key:
    return value.metric, value.item, value.summary, value.digest, value.by


def measure(
    items: Sequence[Item],
    families: Sequence[Family],
    store: Journal[Value] | None = None,
    on_progress: Callable[[], object] = lambda: None,
) -> list[Value]:
    """Compute every metric for every summary, calling ``on_progress`` per item and family.

    Raises:
        BackendError: a model has stopped working. What was measured before is stored.
    """
    values = []
    for item in items:
        for family in families:
            values += _measure_item(item, family, store)
            on_progress()
    return values


def _measure_item(item: Item, family: Family, store: Journal[Value] | None) -> list[Value]:
    keys: list[Key] = []
    for metric in family.metrics:
        keys += [(metric.name, item.id, name, digest(item, name), family.by) for name in item.summaries]
    records = {} if store is None else store.records
    values = {key: records[key] for key in keys if key in records and _is_final(records[key])}
    # a summary that lacks one metric of the family is measured again by all of them
    missing = {key[2] for key in keys if key not in values}
    if missing:
        texts = {name: text for name, text in item.summaries.items() if name in missing}
        family_values = family.score(replace(item, summaries=texts))
        # the other values stay as they are stored
        new = {_key(value): value for value in family_values if _key(value) not in values}
        if store is not None:
            store.append_all(list(new.values()))
        values |= new
    return [values[key] for key in keys]


def _is_final(value: Value) -> bool:
    """Check whether a retry would give the same value, unlike after a server failure."""
    return value.undefined is None or value.undefined.reason != "backend"


def add_undefined(finding: Finding, values: Sequence[Value]) -> Counter[tuple[str, Reason]]:
    """Add a table of undefined values by metric and reason with examples, and return the counts."""
    counts: Counter[tuple[str, Reason]] = Counter()
    examples: dict[tuple[str, Reason], str] = {}
    for value in values:
        if value.undefined is not None:
            key = value.metric, value.undefined.reason
            counts[key] += 1
            examples.setdefault(key, f"item {value.item}, summary {value.summary}: {value.undefined.message}")
    for (metric, reason), count in counts.items():
        example = shorten(examples[metric, reason], 160, placeholder="…")
        finding.add("undefined", {"metric": metric, "reason": reason, "count": count, "example": example})
    return counts


def open_values(directory: Path) -> AbstractContextManager[Journal[Value]]:
    """Open a directory's values for writing under its lock, making it if needed.

    Raises:
        StoreError: it is a run directory or holds other things, another process writes to it, or the system
            refuses.
    """
    with store_errors(directory):
        directory.mkdir(parents=True, exist_ok=True)
        names = {entry.name for entry in directory.iterdir()} - {_LOCK}
    if _MANIFEST in names or (names and VALUES not in names):
        problem = f"was not made by validate: it has no {VALUES}"
        if _MANIFEST in names:
            problem = "is a run directory, which validate only reads"
        raise StoreError(f"{directory} {problem}", remedy="Use another {out}.")
    values = Journal(directory / VALUES, Value, _key, replaces=lambda value: not _is_final(value))
    return open_locked(directory, values)
