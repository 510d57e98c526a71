"""Which of an item's summaries is known to be better: from the caller, from the item, or from their names.

Which pairs in a known order a metric gets right, over all and where length cannot be the reason.

Good summaries are often longer, so that a metric that prefers long texts wins without reading them. Three win
rates hold length fixed: among pairs of about the same length (caliper matching, Rosenbaum and Rubin 1985, Am.
Stat. 39, 33-38); among pairs whose better summary is the shorter one, where such a preference loses; and
balanced, the mean of the rates among pairs whose better summary is longer and among those whose better one is
shorter (direct standardisation), so that judging by length alone gives one half. There is no regression on
length: it extrapolates if the better summary is always longer.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from itertools import combinations
from statistics import fmean
from typing import NamedTuple

from selfreflect.errors import ConfigError, DataError, SelfReflectError, excerpt, nearest
from selfreflect.sources.files import listed
from selfreflect.sources.items import Item
from selfreflect.stats import Estimate
from selfreflect.table import Cell
from selfreflect.validate.base import MetricInfo
from selfreflect.validate.statistics import ALPHA, bounded_mean, holm, mcnemar, share_by_item
from selfreflect.validate.study import Numbers, Row, interval, summary_names

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


ADJUSTED_P = "p (Holm)"
ALIKE = 1.25
"""Two summaries are about equally long if the longer has at most this many times the words of the other."""
FEWEST_PAIRS = 5
"""Fewer pairs have no rate: even if all were won, its interval would reach from one half to all."""


@dataclass(frozen=True)
class Lengths:
    """Pairs of texts that both have words, by the length of the better one. ``alike`` ones may differ a
    little."""

    comparable: Set[Pair]
    alike: Set[Pair]
    longer: Set[Pair]
    shorter: Set[Pair]


def compare_lengths(items: Sequence[Item], pairs: Iterable[Pair]) -> Lengths:
    summaries = {item.id: item.summaries for item in items}
    comparable, alike, longer, shorter = set(), set(), set(), set()
    for pair in pairs:
        texts = summaries[pair.item]
        better, worse = len(texts[pair.better].split()), len(texts[pair.worse].split())
        if not better or not worse:
            continue
        comparable.add(pair)
        if 1 / ALIKE <= better / worse <= ALIKE:
            alike.add(pair)
        if better > worse:
            longer.add(pair)
        elif better < worse:
            shorter.add(pair)
    return Lengths(comparable, alike, longer, shorter)


@dataclass(frozen=True)
class MetricResult:
    """How one metric decides pairs."""

    metric: MetricInfo
    wins: Mapping[Pair, bool | None]
    """Whether the better summary has the better value, None without both values. A tie is no win."""

    def among(self, pairs: Collection[Pair]) -> MetricResult:
        return replace(self, wins={pair: win for pair, win in self.wins.items() if pair in pairs})

    def of_kind(self, kind: Relation) -> MetricResult:
        return self.among({pair for pair in self.wins if pair.kind == kind})

    @cached_property
    def decided(self) -> dict[Pair, bool]:
        return {pair: win for pair, win in self.wins.items() if win is not None}

    @property
    def undefined(self) -> int:
        return len(self.wins) - len(self.decided)

    @cached_property
    def rate(self) -> Estimate:
        """The mean over items of the share of an item's pairs that are won."""
        return share_by_item((pair.item, win) for pair, win in self.decided.items())

    def matched_rate(self, pairs: Collection[Pair]) -> Estimate:
        """The rate among some pairs, without numbers if it is over too few items."""
        rate = self.among(pairs).rate
        return Estimate(None, None, None, rate.n, rate.total) if rate.n < FEWEST_PAIRS else rate

    def balanced_rate(self, lengths: Lengths) -> Estimate:
        """For pairs of one kind, so that the two rates are over different items. The interval combines theirs
        (Zou and Donner 2008, Stat. Med. 27, 1693-1702)."""
        rates = self.matched_rate(lengths.longer), self.matched_rate(lengths.shorter)
        n = rates[0].n + rates[1].n
        mean, below, above = 0.0, 0.0, 0.0
        for rate in rates:
            if rate.mean is None or rate.low is None or rate.high is None:
                return Estimate(None, None, None, n, n)
            mean += rate.mean / 2
            below = math.hypot(below, (rate.mean - rate.low) / 2)
            above = math.hypot(above, (rate.high - rate.mean) / 2)
        return Estimate(mean, mean - below, mean + above, n, n)


def decide_pairs(metric: MetricInfo, values: Numbers, names: Mapping[Pair, Relation]) -> MetricResult:
    """Decide pairs by a metric's values; ``names`` says which summaries stand for those of a pair."""
    wins: dict[Pair, bool | None] = {}
    for pair, (better, worse) in names.items():
        value, other = values.get((pair.item, better)), values.get((pair.item, worse))
        wins[pair] = None if value is None or other is None else metric.wins(value, other)
    return MetricResult(metric, wins)


def paired_tests(
    sides: Iterable[tuple[MetricResult, MetricResult]], kind: Relation, *, winner_first: bool = False
) -> list[dict[str, Cell]]:
    """McNemar's test of each two metrics on the pairs of one kind that both have values for. Each is one row,
    with p adjusted for all of them.

    Args:
        winner_first: of two metrics name the one that wins more often first, without an interval.
    """
    rows: list[dict[str, Cell]] = []
    p_values = []
    for one, other in sides:
        differences = []
        for pair, win in one.decided.items():
            if pair.kind == kind and pair in other.decided:
                differences.append(win - other.decided[pair])
        names = [one.metric.name, other.metric.name]
        if winner_first and sum(differences) < 0:
            names.reverse()
            differences = [-difference for difference in differences]
        only_one, only_other = differences.count(1), differences.count(-1)
        p_values.append(mcnemar(only_one, only_other))
        row: dict[str, Cell] = {"metric": names[0], "other": names[1], "better": kind[0], "worse": kind[1]}
        if winner_first:
            row["difference"] = fmean(differences) if differences else None
        else:
            row |= interval("difference", bounded_mean(differences, -1, 1))
        rows.append({**row, "n": len(differences), "only metric": only_one, "only other": only_other})
    for row, p, adjusted_p in zip(rows, p_values, holm(p_values), strict=True):
        row |= {"p": p, ADJUSTED_P: adjusted_p}
    return rows


def is_clear(row: Row) -> bool:
    """Whether a row of :func:`paired_tests` shows a difference."""
    p = row[ADJUSTED_P]
    return isinstance(p, float) and p <= ALPHA
