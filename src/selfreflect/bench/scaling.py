"""Made-up items in which one size is varied and the others stay: how cost grows."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from selfreflect.sources.items import Item


@dataclass(frozen=True)
class Size:
    """What an item's cost depends on."""

    answers: int = 4
    """N, for each half."""
    words: int = 8
    """Words of a masked-out answer."""
    summaries: int = 2
    context: int = 64
    """Words that the judge has said before: those of a summary, and those of all conditioning answers
    together."""


AXES: dict[str, tuple[int, ...]] = {
    "answers": (2, 4, 8, 16),
    "words": (4, 8, 16, 32),
    "summaries": (1, 2, 4, 8),
    "context": (32, 128, 512, 1024),
}
"""Each field of :class:`Size` and the values that it takes while the others keep their defaults."""

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
    """An item for each value of each axis, out of the words of ``source``."""
    for axis, values in AXES.items():
        for value in values:
            yield ScalingPoint(
                axis, value, made_up(source, replace(Size(), **{axis: value}), f"{axis}-{value}")
            )


def made_up(source: Sequence[Item], size: Size, name: str) -> Item:
    """An item of exactly this size. A larger one goes on where a smaller one ends, so that curves do not jump
    by chance.

    Words are drawn at random: no two answers share more than chance has it.
    """
    known = [
        word
        for item in source
        for answer in (*item.masked_out, *item.conditioning)
        for word in answer.split()
    ]

    def text(part: str, number: int, words: int) -> str:
        return " ".join(random.Random(f"{part} {number}").choices(known, k=words))

    told = [size.context // size.answers + (i < size.context % size.answers) for i in range(size.answers)]
    return Item(
        id=name,
        question=source[0].question,
        masked_out=tuple(text("masked out", i, size.words) for i in range(size.answers)),
        conditioning=tuple(text("conditioning", i, max(1, words)) for i, words in enumerate(told)),
        summaries={f"summary {i}": text("summary", i, size.context) for i in range(1, size.summaries + 1)},
    )
