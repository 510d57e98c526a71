"""What the studies of stated percentages share: statements that are wrong by a known distance, and how a
metric follows it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from selfreflect.validate.base import MetricInfo


@dataclass(frozen=True)
class Point:
    """A statement about an item, and how wrong its percentages are."""

    item: str
    distance: float
    """Total variation between the stated and the true distribution, 0 to 1."""
    summaries: tuple[str, ...]
    """The summaries that state it, by name: the mean of their values counts."""
    question: str = ""
    """In multiple choice: the question of the item."""


def badness(
    metric: MetricInfo, points: Iterable[Point], values: Mapping[tuple[str, str], float]
) -> dict[Point, float]:
    """How bad the metric finds each point, see :meth:`MetricInfo.badness`; points without all values are
    missing."""
    by_point = {}
    for point in points:
        numbers = [values[point.item, name] for name in point.summaries if (point.item, name) in values]
        if len(numbers) == len(point.summaries):
            by_point[point] = metric.badness(fmean(numbers))
    return by_point


def correlations(
    by_point: Mapping[Point, float],
    correlation: Callable[[Sequence[float], Sequence[float]], float | None],
) -> dict[str, float]:
    """The correlation of distance and badness within each item; undefined ones are missing."""
    sides: dict[str, tuple[list[float], list[float]]] = {}
    for point, bad in by_point.items():
        distances, numbers = sides.setdefault(point.item, ([], []))
        distances.append(point.distance)
        numbers.append(bad)
    by_item = {item: correlation(*both) for item, both in sides.items()}
    return {item: value for item, value in by_item.items() if value is not None}
