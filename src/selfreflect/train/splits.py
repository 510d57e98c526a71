"""Split questions into train, dev and test by a hash, so that a question is in the same part everywhere."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Literal, TypeAlias

from selfreflect.errors import ConfigError, excerpt
from selfreflect.grouping import normal_form
from selfreflect.records import Question

Split: TypeAlias = Literal["train", "dev", "test"]
SPLITS: tuple[Split, ...] = ("train", "dev", "test")
Percentages: TypeAlias = tuple[int, int, int]
SPLIT_70_10_20: Percentages = (70, 10, 20)


def parse_percentages(text: str) -> Percentages:
    """Read the percentages of train, dev and test, as in ``70,10,20``.

    Raises:
        ConfigError: these are not three whole numbers that sum to 100.
    """
    parts = list(map(str.strip, text.split(",")))
    if len(parts) == 3 and all(part.isascii() and part.isdigit() and len(part) < 4 for part in parts):
        train, dev, test = map(int, parts)
        if train + dev + test == 100:
            return train, dev, test
    raise ConfigError(
        f"--split must be the percentages of train, dev and test, which sum to 100, as in 70,10,20; not "
        f"{excerpt(text)}"
    )


def split_of(text: str, percentages: Percentages = SPLIT_70_10_20) -> Split:
    """Choose the part of a question by its text alone.

    Texts that are equal but for spelling are in one part, whatever their contexts, so that nothing about a
    test question can be learned from the others. Of few questions the shares differ from ``percentages``.
    """
    place = place_of(text)
    train, dev, _ = percentages
    if place < train:
        return "train"
    return "dev" if place < train + dev else "test"


def place_of(text: str) -> float:
    """Turn a question's text into a number from 0 to 100, evenly spread, the same for all its spellings."""
    digest = hashlib.sha256(normal_form(text).encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(digest[:8], "big") % 10_000 / 100


def split_questions(
    questions: Iterable[Question], percentages: Percentages = SPLIT_70_10_20
) -> dict[Split, list[str]]:
    """List the ids of the questions in each part, in the order of the questions."""
    parts: dict[Split, list[str]] = {name: [] for name in SPLITS}
    for question in questions:
        parts[split_of(question.text, percentages)].append(question.id)
    return parts
