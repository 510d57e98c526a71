"""Run metrics over items, and keep their values in the directory of ``validate --out``.

Stored values are not computed again, and new ones are stored before the next item starts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from textwrap import shorten

from msgspec.structs import replace

from selfreflect.errors import StoreError
from selfreflect.sources.items import Item
from selfreflect.store.journal import Journal, open_locked, store_errors
from selfreflect.validate.base import Family, Reason, Value, digest
from selfreflect.validate.study import Finding

VALUES = "values.jsonl"

Key = tuple[str, str, str, str, str]
"""Everything that a value depends on, so that studies with other items or models may share a directory."""

_LOCK, _MANIFEST = ".lock", "manifest.json"


def _key(value: Value) -> Key:
    return value.metric, value.item, value.summary, value.digest, value.by


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
        family_values = family.score(replace(item, summaries=texts))
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
        finding.add("undefined", {"metric": metric, "reason": reason, "count": count, "example": example})
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
    if _MANIFEST in names or (names and VALUES not in names):
        problem = f"was not made by validate: it has no {VALUES}"
        if _MANIFEST in names:
            problem = "is a run directory, which validate only reads"
        raise StoreError(f"{directory} {problem}", remedy="Use another {out}.")
    values = Journal(directory / VALUES, Value, _key, replaces=lambda value: not _is_final(value))
    return open_locked(directory, values)
