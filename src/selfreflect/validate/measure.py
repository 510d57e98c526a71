"""Run metrics over items. Stored values are not computed again, and new ones are stored before the next item
starts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from textwrap import shorten

import msgspec

from selfreflect.sources.items import Item
from selfreflect.store.journal import Journal
from selfreflect.table import Table
from selfreflect.validate.base import Family, Reason, Value, digest
from selfreflect.validate.study import Layout, Row

VALUES = "values.jsonl"

Key = tuple[str, str, str, str, str]

_NOTE = "an undefined value is in no mean and wins no comparison; it is never a zero"
_UNDEFINED = Layout("Undefined values", "", (_NOTE,))


def _key(value: Value) -> Key:
    return value.metric, value.item, value.summary, value.digest, value.by


def journal(directory: Path) -> Journal[Value]:
    """The values of a directory. Their keys hold all that they depend on, so that studies with other items or
    models may share it."""
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
    """Whether another try would give the same. A model or server that failed may work the next time."""
    return value.undefined is None or value.undefined.reason != "backend"


def undefined_counts(values: Sequence[Value]) -> Counter[tuple[str, Reason]]:
    """Count undefined values by metric and reason, in the order of the values."""
    return Counter((value.metric, value.undefined.reason) for value in values if value.undefined is not None)


def undefined_table(values: Sequence[Value]) -> Table:
    """One row for each metric and reason, with the first value as an example."""
    examples: dict[tuple[str, Reason], str] = {}
    for value in values:
        if value.undefined is not None:
            example = f"item {value.item}, summary {value.summary}: {value.undefined.message}"
            examples.setdefault((value.metric, value.undefined.reason), example)
    rows: list[Row] = []
    for (metric, reason), count in undefined_counts(values).items():
        example = shorten(examples[metric, reason], 160, placeholder="…")
        rows.append({"metric": metric, "reason": reason, "count": count, "example": example})
    return _UNDEFINED.table(rows)
