"""What people said of summaries: a CSV of ratings, or of preferences between two summaries of an item."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from typing import Any

from selfreflect.errors import DataError, excerpt
from selfreflect.sources.files import Row, listed, parse_rows, read_content
from selfreflect.sources.items import Item

RATING, PREFERENCES, TIE = "rating", ("preferred", "preference"), "tie"

Pair = tuple[str, str, str]
"""An item and two of its summaries, whose names are in alphabetical order."""


@dataclass(frozen=True)
class Ratings:
    """Either ``rated`` or ``preferred`` is filled. A cell without a rating is in neither."""

    raters: tuple[str, ...]
    """In the order of the file, those without a single rating too."""
    rated: Mapping[str, Mapping[tuple[str, str], float]] = field(default_factory=dict)
    """Rater -> (item, summary) -> rating, higher is more faithful."""
    preferred: Mapping[str, Mapping[Pair, int]] = field(default_factory=dict)
    """Rater -> pair -> 1 where the first is preferred, -1 where the second, 0 for neither."""
    missing: int = 0
    """Rows whose rating is blank."""

    @property
    def orders(self) -> Mapping[str, Mapping[Pair, int]]:
        """How each rater orders two summaries of an item, as in ``preferred``: taken from the ratings where
        there are no preferences."""
        return self.preferred or {rater: summary_orders(values) for rater, values in self.rated.items()}


def summary_orders(values: Mapping[tuple[str, str], float]) -> dict[Pair, int]:
    """1 where the first of two summaries of an item has the higher value, -1 where the second has, 0 where
    they are equal."""
    by_item: dict[str, dict[str, float]] = {}
    for (item, summary), value in values.items():
        by_item.setdefault(item, {})[summary] = value
    return {
        (item, one, other): (found[one] > found[other]) - (found[one] < found[other])
        for item, found in by_item.items()
        for one, other in combinations(sorted(found), 2)
    }


def read_ratings(source: str | Path, items: Sequence[Item]) -> Ratings:
    """Ratings from a CSV file with the columns rater, item, summary and rating, or rater, item, summary,
    other and preferred.

    ``preferred`` (or ``preference``) names one of the two summaries, or says ``tie``. A blank rating or
    preference is a missing one.

    Raises:
        DataError: the file is no such CSV, names items or summaries that ``items`` do not have, says
            something twice, or says nothing.
    """
    content = read_content(source)
    if content.suffix != ".csv":
        raise DataError(f"{content.name}: ratings come as CSV (.csv)")
    rows = parse_rows(content)
    column = _column(rows[0])
    pairwise = column != RATING
    _check_names(
        rows, {item.id: item.summaries for item in items}, ("summary", "other") if pairwise else ("summary",)
    )
    return _preferences(rows, column) if pairwise else _ratings(rows)


def _column(row: Row) -> str:
    """Which column holds what was said."""
    found = [name for name in (RATING, *PREFERENCES) if name in row.fields]
    needed = ["rater", "item", "summary", *(["other"] if found and found[0] != RATING else [])]
    if len(found) != 1 or any(name not in row.fields for name in needed):
        raise DataError(
            f"{row.source}: the columns must be rater, item, summary, rating, or rater, item, summary, other, preferred; "
            f"they are {listed(row.fields)}"
        )
    return found[0]


def _check_names(rows: Sequence[Row], known: Mapping[str, Mapping[str, str]], columns: Sequence[str]) -> None:
    """All rows at once, because a file made for other items is wrong throughout."""
    for what, unknown in (
        ("items", [(row, item) for row in rows if (item := row.text("item")) not in known]),
        (
            "summaries",
            [(row, f"{row.text('item')}: {name}") for row, name in _summaries(rows, known, columns)],
        ),
    ):
        if unknown:
            names = listed(dict.fromkeys(name for _, name in unknown), 5)
            raise DataError(
                f"{rows[0].source}: {len(unknown)} of {len(rows)} rows name {what} that the items do not have, "
                f"first in {unknown[0][0].where}: {names}"
            )


def _summaries(
    rows: Sequence[Row], known: Mapping[str, Mapping[str, str]], columns: Sequence[str]
) -> list[tuple[Row, str]]:
    found = []
    for row in rows:
        unknown = [
            name
            for column in columns
            if (name := row.text(column)) not in known.get(row.text("item"), (name,))
        ]
        found += [(row, name) for name in unknown[:1]]
    return found


def _ratings(rows: Sequence[Row]) -> Ratings:
    rated: dict[str, dict[tuple[str, str], float]] = {}
    seen: dict[tuple[str, ...], str] = {}
    for row in rows:
        rater, item, summary = _once(row, seen, row.text("summary"))
        mine = rated.setdefault(rater, {})
        value = _number(row)
        if value is not None:
            mine[item, summary] = value
    return Ratings(tuple(rated), rated=rated, missing=_missing(rows, rated))


def _preferences(rows: Sequence[Row], column: str) -> Ratings:
    preferred: dict[str, dict[Pair, int]] = {}
    seen: dict[tuple[str, ...], str] = {}
    for row in rows:
        one, other = sorted((row.text("summary"), row.text("other")))
        if one == other:
            raise row.error(
                f"the fields 'summary' and 'other' both name {excerpt(one)}; a preference is between two"
            )
        rater, item, *_ = _once(row, seen, one, other)
        mine = preferred.setdefault(rater, {})
        said = str(row.get(column)).strip()
        if said in (one, other):
            mine[item, one, other] = 1 if said == one else -1
        elif said.lower() == TIE:
            mine[item, one, other] = 0
        elif said:
            raise row.error(
                f"the field {column!r} must name {excerpt(one)} or {excerpt(other)}, or say {TIE!r}; it is {excerpt(said)}"
            )
    return Ratings(tuple(preferred), preferred=preferred, missing=_missing(rows, preferred))


def _once(row: Row, seen: dict[tuple[str, ...], str], *summaries: str) -> tuple[str, ...]:
    """Rater, item and summaries of a row that no other row may have."""
    key = (row.text("rater"), row.text("item"), *summaries)
    if key in seen:
        raise row.error(
            f"rater {excerpt(key[0])} has rated {excerpt(', '.join(summaries))} of item {excerpt(key[1])} before, in {seen[key]}"
        )
    seen[key] = row.where
    return key


def _number(row: Row) -> float | None:
    text = str(row.get(RATING)).strip()
    if not text:
        return None
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise row.error(
            f"the field {RATING!r} must be a number such as 3 or 2.5, or blank where it is missing; it is {excerpt(text)}"
        )
    return value


def _missing(rows: Sequence[Row], found: Mapping[str, Mapping[Any, float]]) -> int:
    said = sum(map(len, found.values()))
    if not said:
        raise DataError(f"{rows[0].source}: all ratings are blank")
    return len(rows) - said
