"""What a benchmark does with one item, as token ids: the prompts of its contexts, and the requests that they
mean."""

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
    plans: tuple[PrefixTree, ...]
    """The reference first, then the summaries in their order, equal ones once."""
    requests: int
    """Token tasks of all contexts: what the published schedule asks for one by one."""

    @property
    def tree_tokens(self) -> int:
        """Nodes of the trees, one tree for each context."""
        return sum(plan.computed_tokens for plan in self.plans)


def encode(judge: Judge, item: Item) -> list[list[Prompt]]:
    """The prompts of every context: the reference first, then the summaries in their order.

    Raises:
        DataError: the item has no score, so there is nothing to time.
    """
    try:
        task = prepare(judge, item.question_record, item.answer_set)
        return [task.reference, *(summary_prompts(judge, task, summary) for summary in item.summary_records)]
    except CannotScoreError as error:
        raise DataError(f"item {excerpt(item.id)} cannot be timed: {error}") from error


def work_of(judge: Judge, item: Item) -> Work:
    """Look at an item before anything is timed. Raises as :func:`encode`."""
    contexts = encode(judge, item)
    targets = sum(len(prompt.ids) - prompt.first for prompt in contexts[0])
    distinct = [prompts for place, prompts in enumerate(contexts) if prompts not in contexts[:place]]
    return Work(item=item, plans=tuple(map(build_tree, distinct)), requests=len(contexts) * targets)


def requests(prompts: Sequence[Prompt]) -> list[Ids]:
    """One for each target token, in order: everything before it."""
    return [prompt.ids[:end] for prompt in prompts for end in range(prompt.first, len(prompt.ids))]


def visiting_order(contexts: Sequence[Sequence[Prompt]]) -> list[list[int]]:
    """The reference, then the summaries in lexicographic order, equal ones together: what contexts share,
    neighbours share."""
    groups: dict[tuple[Prompt, ...], list[int]] = {}
    for index, prompts in enumerate(contexts):
        groups.setdefault(tuple(prompts), []).append(index)
    first, *others = groups.items()
    return [
        first[1],
        *(indices for _, indices in sorted(others, key=lambda group: min(prompt.ids for prompt in group[0]))),
    ]


def common(a: Ids, b: Ids) -> int:
    """Length of the longest common prefix."""
    shorter = min(len(a), len(b))
    return next((i for i in range(shorter) if a[i] != b[i]), shorter)
