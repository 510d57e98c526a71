"""What people say about summaries: a CSV of ratings, or of preferences between two summaries of an item."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path

from selfreflect.errors import DataError, excerpt, nearest
from selfreflect.sources.files import PARSERS, Row, listed, parse_rows, read_content
from selfreflect.sources.items import Item
from selfreflect.stats import is_tie

RATING, PREFERENCES, TIE = "rating", ("preferred", "preference"), "tie"

Pair = tuple[str, str, str]
"""An item and two of its summaries, whose names are in alphabetical order."""


Orders = Mapping[Pair, int]
"""1 where the first summary of a pair is put first, -1 where the second is, 0 for neither."""


@dataclass(frozen=True)
class Ratings:
    """How people order summaries; ratings give orders, too. A blank cell gives none."""

    raters: tuple[str, ...]
    """In the order of the file, those without a single rating too."""
    orders: Mapping[str, Orders]
    """By rater."""
    rated: Mapping[str, Mapping[tuple[str, str], float]] = field(default_factory=dict)
    """Rater -> (item, summary) -> rating, higher is more faithful; empty for preferences."""
    missing: int = 0
    """Rows whose rating is blank."""


def summary_orders(values: Mapping[tuple[str, str], float]) -> dict[Pair, int]:
    """Order each two summaries of an item by their values, the higher one first."""
    by_item: dict[str, dict[str, float]] = {}
    for (item, summary), value in values.items():
        by_item.setdefault(item, {})[summary] = value
    orders: dict[Pair, int] = {}
    for item, own in by_item.items():
        for one, other in combinations(sorted(own), 2):
            first, second = own[one], own[other]
            orders[item, one, other] = 0 if is_tie(first, second) else 1 if first > second else -1
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
    summaries = {item.id: item.summaries for item in items}
    raters: dict[str, None] = {}
    first_place: dict[tuple[str, ...], str] = {}
    rated: dict[str, dict[tuple[str, str], float]] = defaultdict(dict)
    preferred: dict[str, dict[Pair, int]] = defaultdict(dict)
    missing = 0
    for row in rows:
        rater, item = row.text("rater"), row.text("item")
        names = sorted(map(row.text, columns))
        _check_names(row, item, names, summaries)
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
            rated[rater][item, names[0]] = _number(row, text)
        else:
            preferred[rater][item, names[0], names[1]] = _preference(row, column, text, names)
    if missing == len(rows):
        raise DataError(f"{content.name}: all ratings are blank")
    orders = {rater: summary_orders(values) for rater, values in rated.items()}
    return Ratings(tuple(raters), {**orders, **preferred}, rated, missing)


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
    row: Row, item: str, names: Sequence[str], summaries: Mapping[str, Mapping[str, str]]
) -> None:
    if item not in summaries:
        hint = nearest(item, list(summaries))
        raise row.error(f"there is no item {excerpt(item)}; the items are {listed(summaries, 5)}.{hint}")
    for name in names:
        if name not in summaries[item]:
            own = listed(summaries[item])
            raise row.error(f"item {excerpt(item)} has no summary {excerpt(name)}, only {own}")
    if len(set(names)) < len(names):
        raise row.error(
            f"the fields 'summary' and 'other' both name {excerpt(names[0])}; a preference is between two"
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
