"""Which of an item's summaries is known to be better: from the caller, from the item, or by the convention of
their names."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from itertools import combinations
from typing import NamedTuple

from selfreflect.errors import ConfigError, DataError, SelfReflectError, excerpt, nearest
from selfreflect.sources.files import listed
from selfreflect.sources.items import Item

GOOD, MID, BAD = "good", "mid", "bad"

Relation = tuple[str, str]
"""The names of the better and of the worse summary."""


class Pair(NamedTuple):
    """Two summaries of one item."""

    item: str
    better: str
    worse: str

    @property
    def kind(self) -> Relation:
        return self.better, self.worse


@dataclass(frozen=True)
class KnownOrder:
    """The pairs of all items whose order is known."""

    pairs: tuple[Pair, ...]
    identical: tuple[Pair, ...]
    """Left out of ``pairs`` because both texts are the same, so that no metric could tell them apart."""
    without: tuple[str, ...]
    """Ids of the items of whose summaries no order is known."""


def known_order(items: Sequence[Item], order: str | None = None) -> KnownOrder:
    """The pairs given by ``order``, as in ``"good>mid>bad, good>or"``; else by an item's own field ``order``;
    else by its names: ``good`` is better than every other summary and ``mid`` better than ``bad``.

    Each summary of a chain is better than all that follow it in the same chain; nothing is concluded across
    chains.

    Raises:
        ConfigError: ``order`` cannot be read, contradicts itself, or names a summary that no item has.
        DataError: an item's own order does so, or no item has a pair of different texts in a known order.
    """
    given = None if order is None else _given(order, items)
    relations = {item.id: _of_item(item, given) for item in items}
    found = [(item, Pair(item.id, *relation)) for item in items for relation in relations[item.id]]
    pairs = tuple(pair for item, pair in found if item.summaries[pair.better] != item.summaries[pair.worse])
    identical = tuple(
        pair for item, pair in found if item.summaries[pair.better] == item.summaries[pair.worse]
    )
    if not found:
        raise DataError(
            "no item has two summaries in a known order. Name them good, mid and bad, give each item a field 'order' that lists its "
            "names best first, or say which is better, as in --order 'detailed>terse'"
        )
    if not pairs:
        raise DataError(
            f"both texts are the same in every pair in a known order ({len(identical)}), as in item {excerpt(identical[0].item)}"
        )
    return KnownOrder(pairs, identical, tuple(id_ for id_, own in relations.items() if not own))


def _given(order: str, items: Sequence[Item]) -> list[Relation]:
    where = f"the order {excerpt(order)}"
    chains = [tuple(name.strip() for name in chain.split(">")) for chain in order.split(",")]
    if not all(name for chain in chains for name in chain):
        raise ConfigError(
            f"{where} has a blank name; write chains from best to worst, as in 'good>mid>bad, good>other'"
        )
    _check_names(
        chains,
        list(dict.fromkeys(name for item in items for name in item.summaries)),
        f"{where}: no item has a",
        ConfigError,
    )
    return _relations(chains, where, ConfigError)


def _of_item(item: Item, given: list[Relation] | None) -> list[Relation]:
    names = list(item.summaries)
    if given is not None:
        return [(better, worse) for better, worse in given if better in names and worse in names]
    if item.order:
        where = f"item {excerpt(item.id)}: its field 'order'"
        _check_names(item.order, names, f"{where}: the item has no", DataError)
        return _relations(item.order, where, DataError)
    known = [(GOOD, name) for name in names if name != GOOD] if GOOD in names else []
    return [*known, (MID, BAD)] if MID in names and BAD in names else known


def _check_names(
    chains: Iterable[Sequence[str]], known: list[str], where: str, error: type[SelfReflectError]
) -> None:
    for name in (name for chain in chains for name in chain):
        if name not in known:
            raise error(f"{where} summary named {excerpt(name)}, only {listed(known)}.{nearest(name, known)}")


def _relations(chains: Sequence[Sequence[str]], where: str, error: type[SelfReflectError]) -> list[Relation]:
    worse_than: dict[str, set[str]] = {}
    for chain in chains:
        if len(chain) < 2:
            raise error(
                f"{where} has the single name {excerpt(chain[0])}; a chain says which of two or more is better"
            )
        for better, worse in combinations(chain, 2):
            worse_than.setdefault(better, set()).add(worse)
    try:
        TopologicalSorter(worse_than).prepare()
    except CycleError as cycle:
        round_trip = " > ".join(excerpt(name) for name in reversed(cycle.args[1]))
        raise error(f"{where} contradicts itself: {round_trip}") from None
    return list(dict.fromkeys(pair for chain in chains for pair in combinations(chain, 2)))
