"""What is timed: items as token ids, and made-up items that differ in one size, to show how cost grows."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from selfreflect.errors import DataError, excerpt
from selfreflect.metric.engine.tree import PrefixTree, Prompt, build_tree
from selfreflect.metric.prompts import CannotScoreError, prepare, summary_prompts
from selfreflect.sources.items import Item

if TYPE_CHECKING:
    from selfreflect.models.judge import Judge


@dataclass(frozen=True)
class Work:
    """One item and the size of its work."""

    item: Item
    trees: tuple[PrefixTree, ...]
    """The reference first, then the summaries; equal contexts occur once."""
    requests: int
    """Token tasks of all contexts. The published schedule sends one request for each."""

    @property
    def tree_tokens(self) -> int:
        """Nodes of all trees."""
        return sum(tree.computed_tokens for tree in self.trees)


def encode(judge: Judge, item: Item) -> list[list[Prompt]]:
    """Tokenise the prompts of every context: the reference first, then the summaries in their order.

    Raises:
        DataError: the item cannot be scored.
    """
    try:
        task = prepare(judge, item.question_record, item.answer_set)
        summaries = [summary_prompts(judge, task, text) for text in item.summaries.values()]
    except CannotScoreError as error:
        raise DataError(f"item {excerpt(item.id)} cannot be timed: {error}") from error
    return [task.reference, *summaries]


def work_of(judge: Judge, item: Item) -> Work:
    """Build the trees of an item and count its requests. Raises as :func:`encode`."""
    contexts = encode(judge, item)
    trees = []
    for index, prompts in enumerate(contexts):
        if prompts not in contexts[:index]:
            trees.append(build_tree(prompts))
    targets = sum(len(prompt.ids) - prompt.first for prompt in contexts[0])
    return Work(item, tuple(trees), requests=len(contexts) * targets)


class Axis(NamedTuple):
    """A size of an item that its cost depends on."""

    label: str
    default: int
    values: tuple[int, ...]
    """Points of its curve; the other sizes keep their defaults."""


AXES = {
    "answers": Axis("answers per half (N)", 4, (2, 4, 8, 16)),
    "words": Axis("words per masked-out answer", 8, (4, 8, 16, 32)),
    "summaries": Axis("summaries (S)", 2, (1, 2, 4, 8)),
    # those of a summary, and those of all conditioning answers together
    "context": Axis("words of context", 64, (32, 128, 512, 1024)),
}


class ScalingPoint(NamedTuple):
    axis: str
    value: int
    item: Item


def scaling_points(source: Sequence[Item]) -> Iterator[ScalingPoint]:
    """Make up an item for each value of each axis, from the words of ``source``."""
    defaults = {name: axis.default for name, axis in AXES.items()}
    for name, axis in AXES.items():
        for value in axis.values:
            sizes = {**defaults, name: value}
            yield ScalingPoint(name, value, made_up_item(source, f"{name}-{value}", **sizes))


def made_up_item(
    source: Sequence[Item], name: str, *, answers: int, words: int, summaries: int, context: int
) -> Item:
    """Make up an item of exactly these sizes from random words.

    A larger item begins with the texts of a smaller one, so that curves do not jump by chance.
    """
    vocabulary: list[str] = []
    for item in source:
        for answer in (*item.masked_out, *item.conditioning):
            vocabulary += answer.split()

    def text(part: str, number: int, length: int) -> str:
        return " ".join(random.Random(f"{part} {number}").choices(vocabulary, k=length))

    share, remainder = divmod(context, answers)
    conditioning = []
    for number in range(answers):
        length = share + 1 if number < remainder else share
        conditioning.append(text("conditioning", number, max(1, length)))
    return Item(
        id=name,
        question=source[0].question,
        masked_out=tuple(text("masked out", number, words) for number in range(answers)),
        conditioning=tuple(conditioning),
        summaries={f"summary {i}": text("summary", i, context) for i in range(1, summaries + 1)},
    )
