"""Results of uqlm: a data frame with a row for each prompt, or the dictionary that it is made of."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from selfreflect.sources.files import Row
from selfreflect.sources.layouts.shapes import ColumnLists, Places


class Uqlm(ColumnLists):
    """Responses sampled beside the one that is judged."""

    name = "uqlm"

    def matches(self, rows: Sequence[Row]) -> bool:
        return all(map(_is_of_frame, rows)) or super().matches(rows)

    def items(self, rows: Sequence[Row]) -> Iterable[Row]:
        return rows if _is_of_frame(rows[0]) else super().items(rows)

    def holds(self, fields: Mapping[str, Any]) -> bool:
        return isinstance(fields.get("data"), dict) and super().holds(fields["data"])

    def records(self, fields: Mapping[str, Any]) -> Places:
        return super().records(fields["data"])

    def explain(self) -> str:
        return "result of uqlm"


def _is_of_frame(row: Row) -> bool:
    return row.fields.keys() >= {"prompt", "response", "sampled_responses"}
