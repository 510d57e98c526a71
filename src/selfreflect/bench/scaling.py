"""Makes up items that differ in one size, to show how cost grows."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from selfreflect.sources.items import Item


@dataclass(frozen=True)
class Size:
    """The sizes of an item that its cost depends on."""

    answers: int = 4
    """N, of each half."""
    words: int = 8
    """Words of a masked-out answer."""
    summaries: int = 2
    context: int = 64
    """Words that precede the masked answer: those of a summary, and those of all conditioning answers
    together."""


AXES: dict[str, tuple[int, ...]] = {
    "answers": (2, 4, 8, 16),
    "words": (4, 8, 16, 32),
    "summaries": (1, 2, 4, 8),
    "context": (32, 128, 512, 1024),
}
"""Each field of :class:`Size` with its values; the other fields keep their defaults."""

LABELS = {
    "answers": "answers per half (N)",
    "words": "words per masked-out answer",
    "summaries": "summaries (S)",
    "context": "words of context",
}


@dataclass(frozen=True)
class ScalingPoint:
    axis: str
    value: int
    item: Item


def points(source: Sequence[Item]) -> Iterator[ScalingPoint]:
    """Make up an item for each value of each axis, from the words of ``source``."""
    for axis, values in AXES.items():
        for value in values:
            size = replace(Size(), **{axis: value})
            yield ScalingPoint(axis, value, made_up_item(source, size, f"{axis}-{value}"))


def made_up_item(source: Sequence[Item], size: Size, name: str) -> Item:
    """Make up an item of exactly this size from random words.

    A larger item begins with the texts of a smaller one, so that curves do not jump by chance.
    """
    vocabulary: list[str] = []
    for item in source:
        for answer in (*item.masked_out, *item.conditioning):
            vocabulary += answer.split()

    def text(part: str, number: int, words: int) -> str:
        return " ".join(random.Random(f"{part} {number}").choices(vocabulary, k=words))

    share, remainder = divmod(size.context, size.answers)
    conditioning = []
    for i in range(size.answers):
        words = share + 1 if i < remainder else share
        conditioning.append(text("conditioning", i, max(1, words)))
    return Item(
        id=name,
        question=source[0].question,
        masked_out=tuple(text("masked out", i, size.words) for i in range(size.answers)),
        conditioning=tuple(conditioning),
        summaries={f"summary {i}": text("summary", i, size.context) for i in range(1, size.summaries + 1)},
    )
