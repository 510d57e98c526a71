"""What could not be measured, and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from selfreflect.render.table import Column, Table
from selfreflect.validate.base import Reason, Value

COLUMNS = (Column("metric"), Column("reason"), Column("count", "d"), Column("example"))
_EXAMPLE = 160


def undefined_counts(values: Sequence[Value]) -> Counter[tuple[str, Reason]]:
    """By metric and reason, in the order of the values."""
    return Counter((value.metric, value.undefined.reason) for value in values if value.undefined is not None)


def undefined_table(values: Sequence[Value]) -> Table:
    """One row for each metric and reason, with the first value that has it."""
    examples: dict[tuple[str, Reason], str] = {}
    for value in values:
        if value.undefined is not None:
            example = f"item {value.item}, summary {value.summary}: {value.undefined.message}"
            examples.setdefault((value.metric, value.undefined.reason), example)
    rows = tuple(
        (metric, reason, count, _cut(examples[metric, reason]))
        for (metric, reason), count in undefined_counts(values).items()
    )
    return Table(
        "Undefined values",
        COLUMNS,
        rows,
        ("an undefined value is in no mean and wins no comparison; it is never a zero",),
    )


def _cut(text: str) -> str:
    return text if len(text) <= _EXAMPLE else text[: _EXAMPLE - 1] + "…"
