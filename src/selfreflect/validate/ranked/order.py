"""Which of an item's summaries is known to be better: from the caller, from the item, or from their names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from itertools import combinations
from typing import NamedTuple

from selfreflect.errors import ConfigError, DataError, SelfReflectError, excerpt, nearest
from selfreflect.sources.files import listed
from selfreflect.sources.items import Item
from selfreflect.validate.study import summary_names

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
    """Not in ``pairs``: both texts are the same, so that no metric could tell them apart."""
    without: tuple[str, ...]
    """Ids of items without any order."""

    @property
    def kinds(self) -> list[Relation]:
        return list(dict.fromkeys(pair.kind for pair in self.pairs))


def known_order(items: Sequence[Item], order: str | None = None) -> KnownOrder:
    """Pair summaries by ``order``, as in ``"good>mid>bad, good>or"``; else by an item's own field ``order``;
    else by name: ``good`` is better than every other summary and ``mid`` better than ``bad``.

    Each summary of a chain is better than all that follow it in the same chain; nothing is concluded across
    chains.

    Raises:
        ConfigError: ``order`` cannot be read, contradicts itself, or names a summary that no item has.
        DataError: an item's own order does so, or no item has a pair of different texts in a known order.
    """
    for_all = None if order is None else _parse_order(order, items)
    pairs: list[Pair] = []
    identical: list[Pair] = []
    without: list[str] = []
    for item in items:
        relations = _item_relations(item, for_all)
        if not relations:
            without.append(item.id)
        for better, worse in relations:
            same = item.summaries[better] == item.summaries[worse]
            (identical if same else pairs).append(Pair(item.id, better, worse))
    if not pairs and not identical:
        raise DataError(
            "no item has two summaries in a known order. Name them good, mid and bad, give each item a field "
            "'order' that lists its names best first, or say which is better, as in --order 'detailed>terse'"
        )
    if not pairs:
        raise DataError(
            f"both texts are the same in every pair in a known order ({len(identical)}), "
            f"as in item {excerpt(identical[0].item)}"
        )
    return KnownOrder(tuple(pairs), tuple(identical), tuple(without))


def _parse_order(order: str, items: Sequence[Item]) -> list[Relation]:
    where = f"the order {excerpt(order)}"
    chains = []
    for chain in order.split(","):
        chains.append(list(map(str.strip, chain.split(">"))))
    if any("" in chain for chain in chains):
        raise ConfigError(
            f"{where} has a blank name; write chains from best to worst, as in 'good>mid>bad, good>other'"
        )
    return _relations(chains, summary_names(items), where, ConfigError)


def _item_relations(item: Item, for_all: list[Relation] | None) -> list[Relation]:
    names = list(item.summaries)
    if for_all is not None:
        return [relation for relation in for_all if item.summaries.keys() >= set(relation)]
    if item.order:
        return _relations(item.order, names, f"item {excerpt(item.id)}: its field 'order'", DataError)
    relations = [(GOOD, name) for name in names if name != GOOD] if GOOD in names else []
    if MID in names and BAD in names:
        relations.append((MID, BAD))
    return relations


def _relations(
    chains: Sequence[Sequence[str]], names: list[str], where: str, error: type[SelfReflectError]
) -> list[Relation]:
    """All pairs of each chain; raises ``error`` for an unknown or single name and for a contradiction."""
    relations: dict[Relation, None] = {}
    order = TopologicalSorter[str]()
    for chain in chains:
        for name in chain:
            if name not in names:
                hint = nearest(name, names)
                raise error(f"{where}: there is no summary {excerpt(name)}, only {listed(names)}.{hint}")
        if len(chain) < 2:
            raise error(f"{where} has the single name {excerpt(chain[0])}; name two or more in a chain")
        for better, worse in combinations(chain, 2):
            relations[better, worse] = None
            order.add(better, worse)
    try:
        order.prepare()
    except CycleError as cycle:
        round_trip = " > ".join(map(excerpt, reversed(cycle.args[1])))
        raise error(f"{where} contradicts itself: {round_trip}") from None
    return list(relations)
