"""Runs metrics over items. What is known already is not computed again, and what was computed is stored
before the next item starts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from selfreflect.sources.items import Item
from selfreflect.store.journal import Journal
from selfreflect.validate.base import Family, Value, digest

VALUES = "values.jsonl"

Key = tuple[str, str, str, str, str]


def _key(value: Value) -> Key:
    return value.metric, value.item, value.summary, value.digest, value.by


def journal(directory: Path) -> Journal[Value]:
    """The values of a directory. Their keys hold all that they depend on, so that studies with other items or
    models may share it."""
    return Journal(directory / VALUES, Value, _key, replaces=lambda value: not _final(value))


def measure(
    items: Sequence[Item],
    families: Sequence[Family],
    stored: Journal[Value] | None = None,
    done: Callable[[], object] = lambda: None,
) -> list[Value]:
    """One value for each metric and each summary of every item; ``done`` is called once for each item and
    family.

    Raises:
        BackendError: a model has stopped working. What was measured before is stored.
    """
    found = []
    for item in items:
        for family in families:
            found += _values(item, family, stored)
            done()
    return found


def _values(item: Item, family: Family, stored: Journal[Value] | None) -> list[Value]:
    keys = {
        (metric.name, item.id, name, digest(item, name), family.by): name
        for metric in family.metrics
        for name in item.summaries
    }
    known = (
        {}
        if stored is None
        else {key: stored.records[key] for key in keys if _final(stored.records.get(key))}
    )
    wanted = {name for key, name in keys.items() if key not in known}
    if wanted:
        rest = msgspec.structs.replace(
            item, summaries={name: text for name, text in item.summaries.items() if name in wanted}
        )
        new = {_key(value): value for value in family.score(rest)}
        if stored is not None:
            stored.append_all([value for key, value in new.items() if key not in known])
        known = {**new, **known}
    return [known[key] for key in keys]


def _final(value: Value | None) -> bool:
    """Whether another try would say the same. A model or server that failed may work the next time."""
    return value is not None and (value.undefined is None or value.undefined.reason != "backend")
