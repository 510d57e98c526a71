"""An item as token ids: the prompts of its contexts, and the requests of the published schedule."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from selfreflect.errors import DataError, excerpt
from selfreflect.metric.engine.tree import PrefixTree, Prompt, build_tree
from selfreflect.metric.prompts import CannotScoreError, prepare, summary_prompts

if TYPE_CHECKING:
    from selfreflect.models.judge import Judge
    from selfreflect.sources.items import Item

Ids = tuple[int, ...]


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
    return Work(item, tuple(trees), requests=len(contexts) * len(requests(contexts[0])))


def longest(contexts: Sequence[Sequence[Prompt]]) -> int:
    """Tokens of the longest prompt."""
    return max(len(prompt.ids) for prompts in contexts for prompt in prompts)


def requests(prompts: Sequence[Prompt]) -> list[Ids]:
    """One request for each target token, in order: everything before it."""
    sequences = []
    for prompt in prompts:
        sequences += [prompt.ids[:end] for end in range(prompt.first, len(prompt.ids))]
    return sequences


def visiting_order(contexts: Sequence[Sequence[Prompt]]) -> list[list[int]]:
    """Indices of the reference, then of the summaries in lexicographic order, so that neighbours share long
    prefixes. Equal contexts are together."""
    groups: dict[tuple[Prompt, ...], list[int]] = {}
    for index, prompts in enumerate(contexts):
        groups.setdefault(tuple(prompts), []).append(index)
    reference, *summaries = groups
    summaries.sort(key=lambda prompts: min(prompt.ids for prompt in prompts))
    return [groups[prompts] for prompts in (reference, *summaries)]
