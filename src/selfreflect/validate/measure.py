"""Run metrics over items, and keep the values and each study's finding: the directory of ``validate --out``.

Stored values are not computed again, and new ones are stored before the next item starts.
"""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from textwrap import shorten
from typing import Any

import msgspec

from selfreflect.atomic import write_files
from selfreflect.errors import StoreError
from selfreflect.records import dump_line
from selfreflect.sources.items import Item
from selfreflect.store.journal import Journal, open_locked, open_regular, refuse_links, store_errors
from selfreflect.table import Cell, Table, to_csv, to_markdown
from selfreflect.text import markdown_text
from selfreflect.validate.base import Family, Reason, Value, digest
from selfreflect.validate.study import Finding, TableLayout

VALUES = "values.jsonl"

Key = tuple[str, str, str, str, str]

_NOTE = "an undefined value is in no mean and wins no comparison; it is never a zero"
_UNDEFINED = TableLayout("Undefined values", "", (_NOTE,))
_LOCK, _MANIFEST, _FINDING = ".lock", "manifest.json", "finding.json"
_NAME_LENGTH = 48
_ELSEWHERE = "Use another {out}."


def _key(value: Value) -> Key:
    return value.metric, value.item, value.summary, value.digest, value.by


def journal(directory: Path) -> Journal[Value]:
    """Open the values of a directory for reading.

    Their keys hold all that they depend on, so that studies with other items or models may share it.
    """
    return Journal(directory / VALUES, Value, _key, replaces=lambda value: not _is_final(value))


def measure(
    items: Sequence[Item],
    families: Sequence[Family],
    store: Journal[Value] | None = None,
    on_progress: Callable[[], object] = lambda: None,
) -> list[Value]:
    """Compute a value for each metric and each summary of every item; ``on_progress`` is called once for each
    item and family.

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
        family_values = family.score(msgspec.structs.replace(item, summaries=texts))
        new = {_key(value): value for value in family_values if _key(value) not in values}
        if store is not None:
            store.append_all(list(new.values()))
        values |= new
    return [values[key] for key in keys]


def _is_final(value: Value) -> bool:
    """Return whether another try would give the same: a server that failed may work the next time."""
    return value.undefined is None or value.undefined.reason != "backend"


def add_undefined(finding: Finding, values: Sequence[Value]) -> Counter[tuple[str, Reason]]:
    """Add a table of undefined values by metric and reason, with an example each, and return the counts."""
    counts: Counter[tuple[str, Reason]] = Counter()
    examples: dict[tuple[str, Reason], str] = {}
    for value in values:
        if value.undefined is not None:
            key = value.metric, value.undefined.reason
            counts[key] += 1
            examples.setdefault(key, f"item {value.item}, summary {value.summary}: {value.undefined.message}")
    for (metric, reason), count in counts.items():
        example = shorten(examples[metric, reason], 160, placeholder="…")
        finding.add(_UNDEFINED, {"metric": metric, "reason": reason, "count": count, "example": example})
    return counts


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
        raise StoreError(f"{directory} is a run directory, which validate only reads", remedy=_ELSEWHERE)
    if names and VALUES not in names:
        raise StoreError(
            f"{directory} is not empty and was not made by validate (it has no {VALUES})",
            remedy="Use another {out}.",
        )
    return open_locked(directory, journal(directory))


def write(finding: Finding, made_with: Mapping[str, Any], directory: Path) -> Path:
    """Write the finding as JSON and Markdown and its tables as CSV to a folder of its study, which is
    returned. Tables of an earlier run of the study are deleted.

    Args:
        made_with: what a reader needs to make it again, as plain values.

    Raises:
        StoreError: the system refuses.
    """
    folder = refuse_links(directory, directory / finding.study)
    plain = _to_plain(finding)
    texts = {
        _FINDING: dump_line({**plain, "made_with": made_with}) + "\n",
        "finding.md": _to_page(finding, made_with),
    }
    for name, table in zip(_names_of_tables(plain), finding.tables, strict=True):
        texts[name] = to_csv(table)
    with store_errors(folder):
        folder.mkdir(exist_ok=True)
        # only files that an earlier finding names: a user may keep others here
        stale = {*_earlier_names(folder)} - texts.keys()
        write_files(folder, {name: text.encode("utf-8", "backslashreplace") for name, text in texts.items()})
        for name in stale:
            (folder / name).unlink(missing_ok=True)
    return folder


def _earlier_names(folder: Path) -> list[str]:
    """List the tables of the finding that a folder holds, and the plots that earlier versions drew."""
    try:
        with os.fdopen(open_regular(folder / _FINDING, os.O_RDONLY), "rb") as file:
            finding = json.loads(file.read())
            plots = [plot["name"] for plot in finding.get("plots", ())]
            return _names_of_tables(finding) + _file_names(plots, ".svg")
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return []


def _names_of_tables(finding: Mapping[str, Any]) -> list[str]:
    return _file_names([table["title"] for table in finding["tables"]], ".csv")


def to_lines(finding: Finding) -> Iterator[dict[str, Any]]:
    """Make one JSON object of every row of every table, then of every sentence."""
    for table in finding.tables:
        for row in _plain_rows(table):
            cells = dict(zip(table.headings, row, strict=True))
            yield {"study": finding.study, "table": table.title, "row": cells}
    for sentence in finding.says:
        yield {"study": finding.study, "says": sentence}


def _to_plain(finding: Finding) -> dict[str, Any]:
    """Make plain values of the tables and the sentences."""
    tables = []
    for table in finding.tables:
        rows = _plain_rows(table)
        tables.append(
            {"title": table.title, "columns": table.headings, "rows": rows, "notes": list(table.notes)}
        )
    return {"study": finding.study, "says": list(finding.says), "tables": tables}


def _plain_rows(table: Table) -> list[list[Cell]]:
    """Make rows that JSON can hold: without subclasses of float, such as Approximate."""
    rows = []
    for row in table.rows:
        rows.append([float(cell) if isinstance(cell, float) else cell for cell in row])
    return rows


def _to_page(finding: Finding, made_with: Mapping[str, Any]) -> str:
    """Write the finding as Markdown, sentences first. Every text is escaped."""
    facts = [f"- {markdown_text(name)}: {markdown_text(str(value))}" for name, value in made_with.items()]
    sentences = [f"{markdown_text(sentence)}\n" for sentence in finding.says]
    title = f"# Study: {markdown_text(finding.study)}\n"
    origin = "\n".join(["### Made with\n", *facts, ""])
    return "\n".join([title, *sentences, *map(to_markdown, finding.tables), origin])


def _file_names(titles: Sequence[str], suffix: str) -> list[str]:
    """Make a different file name for each title, which may hold any text."""
    names: list[str] = []
    for title in titles:
        name = re.sub(r"[^a-z0-9]+", "-", title.lower())[:_NAME_LENGTH].strip("-") or "untitled"
        while name + suffix in names:
            name += "-2"
        names.append(name + suffix)
    return names
