"""Items for tests of the engines, and what the oracle says of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache

import numpy as np
import oracle
import pytest

from selfreflect.metric.engine.tree import PrefixTree
from selfreflect.records import Score


@dataclass(frozen=True)
class Item:
    question: str
    masked_out: list[str]
    conditioning: list[str]
    summaries: dict[str, str] = field(
        default_factory=lambda: {
            "short": "Radishes.",
            "long": "Maybe kale, or else nothing at all before May.",
        }
    )


ITEMS = {
    "duplicates, stopwords, blanks": Item(
        "What should I plant?",
        ["Radishes grow fast", "Lettuce", "Lettuce", "", " \n", "It is not.", "Lettuce or peas"],
        ["basil or peas", "", "basil or peas"],
    ),
    "unicode and words of many tokens": Item(
        "Question: Qu'est-ce que le kohlrabi\n",
        ["Un légume 🥬 pâle", "球茎甘蓝 _ {x}"],
        ["chou-rave, l'été", "\u202eabc"],
        {"said": "Un légume."},
    ),
    "one answer each": Item("Why", ["Because"], ["So"]),
}


@cache
def expected(metric, name: str) -> dict[str, oracle.OracleScore]:
    item, lm = ITEMS[name], metric.judge.lm
    return oracle.score(
        lm.model, lm.tokenizer, item.question, item.masked_out, item.conditioning, item.summaries
    )


def scored(metric, name: str) -> dict[str, Score]:
    item = ITEMS[name]
    return metric.score(
        item.question, masked_out=item.masked_out, conditioning=item.conditioning, summaries=item.summaries
    )


def by_answer(score: Score) -> list[list[list[float]]]:
    """Distances in the oracle's order: answer -> word -> token."""
    answers = dict.fromkeys(word.answer for word in score.words)
    return [[list(word.distances) for word in score.words if word.answer == answer] for answer in answers]


def assert_same(found: dict[str, Score], truth: dict[str, oracle.OracleScore], tolerance: float) -> None:
    assert list(found) == list(truth)
    for name, score in found.items():
        assert score.value == pytest.approx(truth[name].value, abs=tolerance)
        words = [word for answer in truth[name].distances for word in answer]
        assert [len(word.distances) for word in score.words] == [len(word) for word in words]
        assert score.token_tasks == sum(map(len, words))
        for answer, other in zip(by_answer(score), truth[name].distances, strict=True):
            assert [d for word in answer for d in word] == pytest.approx(
                [d for word in other for d in word], abs=tolerance
            )


def tree_of(prefix: int, parents: list[int], wanted: list[int]) -> PrefixTree:
    depth, end = [], list(range(1, len(parents) + 1))
    for i, above in enumerate(parents):
        depth.append(0 if above < 0 else depth[above] + 1)
        while above >= 0:
            end[above], above = i + 1, parents[above]
    arrays = (np.array(x, dtype=np.int64) for x in (range(len(parents)), depth, parents, end, wanted))
    return PrefixTree(tuple(range(prefix)), *arrays, rows=())


PARENTS = [-1, 0, 1, 0, -1, 4, 5, 4]
"""Of the nodes of a small tree, see :func:`tree_of`."""
