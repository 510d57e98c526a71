"""What people say about summaries: a CSV of ratings, or of preferences between two summaries of an item."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path

from selfreflect.errors import DataError, excerpt
from selfreflect.sources.files import PARSERS, Row, listed, parse_rows, read_content
from selfreflect.sources.items import Item

RATING, PREFERENCES, TIE = "rating", ("preferred", "preference"), "tie"

Pair = tuple[str, str, str]
"""An item and two of its summaries, whose names are in alphabetical order."""


@dataclass(frozen=True)
class Ratings:
    """Either ``rated`` or ``preferred`` is filled. A blank cell is in neither."""

    raters: tuple[str, ...]
    """In the order of the file, those without a single rating too."""
    rated: Mapping[str, Mapping[tuple[str, str], float]] = field(default_factory=dict)
    """Rater -> (item, summary) -> rating, higher is more faithful."""
    preferred: Mapping[str, Mapping[Pair, int]] = field(default_factory=dict)
    """Rater -> pair -> 1 if the first is preferred, -1 if the second, 0 for neither."""
    missing: int = 0
    """Rows whose rating is blank."""

    @property
    def orders(self) -> Mapping[str, Mapping[Pair, int]]:
        """How each rater orders two summaries of an item, as in ``preferred``; from the ratings if there are
        no preferences."""
        return self.preferred or {rater: summary_orders(values) for rater, values in self.rated.items()}


def summary_orders(values: Mapping[tuple[str, str], float]) -> dict[Pair, int]:
    """1 if the first of two summaries of an item has the higher value, -1 if the second has, 0 if they are
    equal."""
    by_item: dict[str, dict[str, float]] = {}
    for (item, summary), value in values.items():
        by_item.setdefault(item, {})[summary] = value
    orders: dict[Pair, int] = {}
    for item, own in by_item.items():
        for one, other in combinations(sorted(own), 2):
            orders[item, one, other] = (own[one] > own[other]) - (own[one] < own[other])
    return orders


def read_ratings(source: str | Path, items: Sequence[Item]) -> Ratings:
    """Read ratings from a CSV file with the columns rater, item, summary and rating, or rater, item, summary,
    other and preferred.

    ``preferred`` (or ``preference``) names one of the two summaries, or says ``tie``. A blank rating or
    preference is a missing one.

    Raises:
        DataError: the file is no such CSV, names items or summaries that ``items`` do not have, repeats a
            rating, or has none.
    """
    content = read_content(source, PARSERS)
    if content.suffix != ".csv":
        raise DataError(f"{content.name}: ratings come as CSV (.csv)")
    rows = parse_rows(content)
    column = _rating_column(rows[0])
    columns = ("summary",) if column == RATING else ("summary", "other")
    _check_names(rows, {item.id: item.summaries for item in items}, columns)
    raters: dict[str, None] = {}
    first_place: dict[tuple[str, ...], str] = {}
    rated: dict[str, dict[tuple[str, str], float]] = {}
    preferred: dict[str, dict[Pair, int]] = {}
    missing = 0
    for row in rows:
        rater, item = row.text("rater"), row.text("item")
        names = sorted(map(row.text, columns))
        if len(set(names)) < len(names):
            raise row.error(
                f"the fields 'summary' and 'other' both name {excerpt(names[0])}; a preference is between two"
            )
        place = first_place.setdefault((rater, item, *names), row.where)
        if place != row.where:
            raise row.error(
                f"rater {excerpt(rater)} has rated {excerpt(', '.join(names))} of item {excerpt(item)} "
                f"before, in {place}"
            )
        raters[rater] = None
        text = str(row.get(column)).strip()
        if not text:
            missing += 1
        elif column == RATING:
            rated.setdefault(rater, {})[item, names[0]] = _number(row, text)
        else:
            preferred.setdefault(rater, {})[item, names[0], names[1]] = _preference(row, column, text, names)
    if missing == len(rows):
        raise DataError(f"{content.name}: all ratings are blank")
    return Ratings(tuple(raters), rated, preferred, missing)


def _rating_column(row: Row) -> str:
    columns = [name for name in (RATING, *PREFERENCES) if name in row.fields]
    required = {"rater", "item", "summary"} if columns == [RATING] else {"rater", "item", "summary", "other"}
    if len(columns) != 1 or not required <= row.fields.keys():
        raise DataError(
            f"{row.source}: the columns must be rater, item, summary, rating, or rater, item, summary, "
            f"other, preferred; they are {listed(row.fields)}"
        )
    return columns[0]


def _check_names(
    rows: Sequence[Row], summaries: Mapping[str, Mapping[str, str]], columns: Sequence[str]
) -> None:
    """Check all rows at once, because a file made for other items is wrong throughout."""
    unknown: dict[str, dict[str, list[Row]]] = {"items": {}, "summaries": {}}
    for row in rows:
        item = row.text("item")
        strangers = [
            row.text(column) for column in columns if row.text(column) not in summaries.get(item, {})
        ]
        if item not in summaries:
            unknown["items"].setdefault(item, []).append(row)
        elif strangers:
            unknown["summaries"].setdefault(f"{item}: {strangers[0]}", []).append(row)
    for what, rows_of in unknown.items():
        if rows_of:
            first = next(iter(rows_of.values()))[0]
            raise DataError(
                f"{first.source}: {sum(map(len, rows_of.values()))} of {len(rows)} rows name {what} that the "
                f"items do not have, first in {first.where}: {listed(rows_of, 5)}"
            )


def _number(row: Row, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise row.error(
            f"the field {RATING!r} must be a number such as 3 or 2.5, or blank if it is missing; "
            f"it is {excerpt(text)}"
        )
    return value


def _preference(row: Row, column: str, text: str, names: Sequence[str]) -> int:
    one, other = names
    orders = {TIE: 0, one: 1, other: -1}  # a summary may be called tie
    if text not in orders and text.lower() != TIE:
        raise row.error(
            f"the field {column!r} must name {excerpt(one)} or {excerpt(other)}, or say {TIE!r}; "
            f"it is {excerpt(text)}"
        )
    return orders.get(text, 0)
