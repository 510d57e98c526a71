"""What the answers of an item say and how often, as a plain statement that the studies edit, and how a metric
follows statements that are wrong by a known distance."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from selfreflect.errors import DataError, excerpt
from selfreflect.grouping import group_indices, normal_form
from selfreflect.sources.items import Item
from selfreflect.validate.base import MetricInfo

Grouping = Callable[[Sequence[str]], list[list[int]]]
"""Indices of the answers that say the same, the one to quote first: by spelling
(:func:`~selfreflect.grouping.group_indices`) or by meaning (``models.embedder.MeaningGroups``)."""

NAMED = 5
"""The most possibilities that a statement names. The others are "something else"."""

LIST = "[LIST]"
FRAME = f"I would say {LIST}."
"""How a statement reads. The list of possibilities replaces its marker."""

_WORDS, _LETTERS = 20, 160
_SENTENCE_END = re.compile(r"(?<=[.!?。！？])\s+")
_SENTENCE_WORDS = 4  # fewer may be an abbreviation, such as "Dr."


@dataclass(frozen=True)
class Possibility:
    """``weight`` is a number of answers or of percentage points: only its share of the total counts."""

    text: str
    weight: int


@dataclass(frozen=True)
class Statement:
    """At least one possibility, the most frequent first unless edited, with a total weight above 0."""

    named: tuple[Possibility, ...]
    rest: int = 0
    """The weight of everything that is not named."""

    @property
    def percentages(self) -> tuple[int, ...]:
        """Of the named possibilities, then of the rest; they sum to 100."""
        return apportioned([*(possibility.weight for possibility in self.named), self.rest], 100)

    def text(self, frame: str = FRAME) -> str:
        """``I would say “Paris” (60%), “Lyon” (30%) or something else (10%).`` Texts are quoted unchanged.

        Args:
            frame: holds :data:`LIST` once.
        """
        *shares, rest = self.percentages
        parts = []
        for possibility, share in zip(self.named, shares, strict=True):
            parts.append(f"“{possibility.text}” ({share}%)")
        if rest:
            parts.append(f"something else ({rest}%)")
        if len(parts) > 1:
            parts = [", ".join(parts[:-1]), parts[-1]]
        return frame.replace(LIST, " or ".join(parts))


def apportioned(weights: Sequence[int], total: int) -> tuple[int, ...]:
    """Share out ``total`` in whole parts, in proportion to ``weights``, by largest remainder; ties go to the
    first."""
    whole = sum(weights)
    parts = [weight * total // whole for weight in weights]
    by_remainder = sorted(range(len(weights)), key=lambda index: -(weights[index] * total % whole))
    for index in by_remainder[: total - sum(parts)]:
        parts[index] += 1
    return tuple(parts)


def statements(items: Sequence[Item], grouping: Grouping = group_indices) -> dict[str, Statement | None]:
    """Map each item's id to what its answers say, see :func:`stated`.

    Raises:
        DataError: there are no items, or two have the same id.
    """
    if not items:
        raise DataError("there are no items to study")
    by_item: dict[str, Statement | None] = {}
    for item in items:
        if item.id in by_item:
            raise DataError(f"two items have the id {excerpt(item.id)}; give each its own")
        by_item[item.id] = stated(item, grouping)
    return by_item


def stated(item: Item, grouping: Grouping = group_indices) -> Statement | None:
    """State what all answers of an item say; None if no possibility has 1% of them, or all are blank.

    Both halves count: a statement of one half would favour the metrics that read that half. Blank answers are
    left out, as by the metric. Long answers are cut, and count together if they are then spelt alike.
    """
    answers = [answer for answer in item.masked_out + item.conditioning if answer.strip()]
    counts: dict[str, int] = {}
    texts: dict[str, str] = {}
    for group in grouping(answers) if answers else []:
        text = short(answers[group[0]])
        form = normal_form(text)
        texts.setdefault(form, text)
        counts[form] = counts.get(form, 0) + len(group)
    by_count = sorted(counts, key=lambda form: (-counts[form], texts[form]))
    frequent = [form for form in by_count[:NAMED] if counts[form] * 100 >= len(answers)]
    if not frequent:
        return None
    named = tuple(Possibility(texts[form], counts[form]) for form in frequent)
    return Statement(named, len(answers) - sum(counts[form] for form in frequent))


def short(text: str) -> str:
    """Put an answer on one line: all of it if it has at most 20 words, else the sentences that fit, else its
    beginning and ``…``."""
    words = text.split()
    line = " ".join(words)
    if _fits(line):
        return line
    sentences = ""
    for sentence in _SENTENCE_END.split(line):
        longer = f"{sentences} {sentence}".lstrip()
        if not _fits(longer):
            break
        sentences = longer
    if len(sentences.split()) >= _SENTENCE_WORDS:
        return sentences
    return " ".join(words[:_WORDS])[:_LETTERS].rstrip() + "…"


def _fits(line: str) -> bool:
    return len(line.split()) <= _WORDS and len(line) <= _LETTERS


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
