"""Study ``ranked``: how often a metric prefers the better of two summaries.

Good summaries are often longer, so that a metric that prefers long texts wins without reading them. Hence win
rates among pairs of about the same length stand beside those of all pairs (caliper matching, Rosenbaum and
Rubin 1985, Am. Stat. 39, 33-38), and each metric's preference for length. There is no regression on length:
it extrapolates if the better summary is always longer.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from graphlib import CycleError, TopologicalSorter
from itertools import combinations
from statistics import fmean
from typing import NamedTuple

from msgspec.structs import replace as replace_item

from selfreflect.errors import ConfigError, DataError, SelfReflectError, excerpt, nearest
from selfreflect.metric.texts import control_texts
from selfreflect.report.overview import CONTROL
from selfreflect.sources.items import Item
from selfreflect.sources.rows import listed
from selfreflect.stats import Estimate, defined
from selfreflect.text import counted
from selfreflect.validate.base import MetricInfo, Value
from selfreflect.validate.statistics import (
    detectable_rate,
    share_by_item,
    side_of_chance,
    somers,
)
from selfreflect.validate.study import (
    SIDES,
    Finding,
    Numbers,
    Row,
    each_metric,
    interval,
    summary_names,
)

GOOD, MID, BAD = "good", "mid", "bad"

Relation = tuple[str, str]
"""Names of the better and the worse summary."""


class Pair(NamedTuple):
    """Two summaries of an item, the better one named."""

    item: str
    better: str
    worse: str

    @property
    def kind(self) -> Relation:
        return self.better, self.worse


@dataclass(frozen=True)
class KnownOrder:
    """All items' pairs of summaries with known order."""

    pairs: tuple[Pair, ...]
    identical: tuple[Pair, ...]
    """Pairs with equal texts, which are not in ``pairs``."""
    without: tuple[str, ...]
    """Ids of items without any order."""


def known_order(items: Sequence[Item], order: str | None = None) -> KnownOrder:
    """Pair each item's summaries by known order.

    By ``order``, as in ``"good>mid>bad, good>or"``; else by an item's own field ``order``; else by name:
    ``good`` is better than every other summary and ``mid`` better than ``bad``.

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
            is_identical = item.summaries[better] == item.summaries[worse]
            (identical if is_identical else pairs).append(Pair(item.id, better, worse))
    if identical and not pairs:
        raise DataError(
            f"every pair in a known order has two identical texts ({counted(len(identical), 'pair')}), as in "
            f"item {excerpt(identical[0].item)}",
            code="same_texts",
        )
    if not pairs:
        raise DataError(
            "no item has two summaries in a known order",
            code="no_order",
            remedy="Name the summaries good, mid and bad, give each item a field 'order' that lists its "
            "names best first, or say which is better, as in {order} 'detailed>terse'",
        )
    return KnownOrder(tuple(pairs), tuple(identical), tuple(without))


def _parse_order(order: str, items: Sequence[Item]) -> list[Relation]:
    label = f"the order {excerpt(order)}"
    chains = [list(map(str.strip, chain.split(">"))) for chain in order.split(",")]
    if any("" in chain for chain in chains):
        raise ConfigError(
            f"{label} has a blank name; write chains from best to worst, as in 'good>mid>bad, good>or'",
            code="blank_name",
        )
    return _relations(chains, summary_names(items), label, ConfigError)


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
    chains: Sequence[Sequence[str]], names: list[str], label: str, error: type[SelfReflectError]
) -> list[Relation]:
    """List all pairs of each chain; raise ``error`` for unknown or single names and contradictions."""
    relations: dict[Relation, None] = {}
    order = TopologicalSorter[str]()
    for chain in chains:
        for name in chain:
            if name not in names:
                hint = nearest(name, names)
                raise error(
                    f"{label}: there is no summary {excerpt(name)}, only {listed(names)}.{hint}",
                    code="unknown_name",
                )
        if len(chain) < 2:
            raise error(
                f"{label} has a chain with the single name {excerpt(chain[0])}; a chain needs two or more",
                code="single_name",
            )
        for better, worse in combinations(chain, 2):
            relations[better, worse] = None
            order.add(better, worse)
    try:
        order.prepare()
    except CycleError as cycle:
        round_trip = " > ".join(map(excerpt, reversed(cycle.args[1])))
        raise error(f"{label} contradicts itself: {round_trip}", code="contradiction") from None
    return list(relations)


# Two summaries are about equally long if the longer has at most this many times the words of the
# other
ALIKE = 1.25
# Fewer pairs have no rate: even if all were won, its interval would reach from one half to all
FEWEST_PAIRS = 5


def length_ratios(items: Sequence[Item], pairs: Collection[Pair]) -> dict[Pair, float]:
    """Compute the length ratio of better to worse summaries, leaving out blank texts."""
    summaries = {item.id: item.summaries for item in items}
    ratios: dict[Pair, float] = {}
    for pair in pairs:
        better, worse = (len(summaries[pair.item][name].split()) for name in pair.kind)
        if better and worse:
            ratios[pair] = better / worse
    return ratios


Wins = Mapping[Pair, bool]
"""Whether the better summary of a pair has the better value, without undefined pairs."""


def decide_pairs(metric: MetricInfo, numbers: Numbers, pairs: Collection[Pair]) -> dict[Pair, bool]:
    """Decide pairs by a metric's values; ties are not wins."""
    wins: dict[Pair, bool] = {}
    for pair in pairs:
        value, rival = numbers.get((pair.item, pair.better)), numbers.get((pair.item, pair.worse))
        if value is not None and rival is not None:
            wins[pair] = metric.wins(value, rival)
    return wins


def win_rate(wins: Wins) -> Estimate:
    """Average over items the share of pairs won."""
    return share_by_item((pair.item, win) for pair, win in wins.items())


def win_rate_among(wins: Wins, pairs: Collection[Pair]) -> Estimate:
    """Compute the win rate for ``pairs``, without numbers if there are too few items."""
    rate = win_rate({pair: win for pair, win in wins.items() if pair in pairs})
    return replace(rate, mean=None, low=None, high=None) if rate.n < FEWEST_PAIRS else rate


class MetricRanking(NamedTuple):
    """Pairs as decided by one metric."""

    metric: MetricInfo
    wins: Wins
    rate: Estimate
    equal_rate: Estimate
    """Win rate among pairs of similar length."""


# The controls by name: what is measured beside the summaries of each item
QUESTION, EMPTY, NONSENSE = f"{CONTROL}question repeated", f"{CONTROL}empty", f"{CONTROL}nonsense"
PASTED = f"{CONTROL}all answers pasted"
CONTROLS = (QUESTION, EMPTY, NONSENSE, PASTED)
_LONGER = "prefers longer"


class RankedSets:
    """Items with a known order of summaries; see :func:`known_order`.

    Args:
        controls: also measure the repeated question, an empty text, nonsense and all reference answers as
            summaries of each item. The item's best summary should beat the first three.

    Raises:
        DataError, ConfigError: as ``known_order``.
    """

    name = "ranked"

    def __init__(self, items: Sequence[Item], order: str | None = None, controls: bool = True) -> None:
        self.order = known_order(items, order)
        best = _best_summaries(self.order.pairs)
        # items without a known order would cost measurements that no table shows
        usable: Sequence[Item] = [item for item in items if item.id in best]
        names = summary_names(usable)
        self.controls = [_unused(name, names) for name in CONTROLS if controls]
        self.items: list[Item] = []
        self.control_pairs: list[Pair] = []
        for item in usable:
            named = zip(self.controls, _control_texts(item), strict=False)
            texts = {name: text for name, text in named if text is not None}
            self.items.append(replace_item(item, summaries={**item.summaries, **texts}))
            for name, text in texts.items():
                # no metric could tell a control from a summary with the same text
                if item.summaries[best[item.id]] != text:
                    self.control_pairs.append(Pair(item.id, best[item.id], name))

    def finding(self, values: Sequence[Value], metrics: Sequence[MetricInfo]) -> Finding:
        ratios = length_ratios(self.items, self.order.pairs)
        alike = {pair for pair, ratio in ratios.items() if 1 / ALIKE <= ratio <= ALIKE}
        results = []
        columns = {}
        for metric, numbers in each_metric(values, metrics):
            wins = decide_pairs(metric, numbers, self.order.pairs)
            results.append(MetricRanking(metric, wins, win_rate(wins), win_rate_among(wins, alike)))
            columns[metric.name] = self._columns(metric, numbers)
        # those without any value stand last
        results.sort(key=lambda result: math.inf if result.rate.mean is None else -result.rate.mean)
        finding = Finding(self.name, alike=ALIKE, fewest_pairs=FEWEST_PAIRS)
        for result in results:
            finding.add("ranking", {**self._ranking_row(result), **columns[result.metric.name]})
        for result in results:
            finding.add("pairs", *self._pair_rows(result, alike))
        counts = {
            "Pairs of summaries in a known order": len(self.order.pairs),
            "items": len({pair.item for pair in self.order.pairs}),
            "pairs left out because both texts are the same": len(self.order.identical),
            "items left out because no order is known": len(self.order.without),
        }
        finding.tally(counts)
        _say_against_chance(finding, "all", {result.metric.name: result.rate for result in results})
        longer, shorter = (sum(sign * (ratio - 1) > 0 for ratio in ratios.values()) for sign in (1, -1))
        finding.say("lengths", longer=longer, shorter=shorter, pairs=counted(len(ratios), "pair"))
        # a metric that wins among all pairs only may prefer length
        _say_against_chance(finding, "equal", {result.metric.name: result.equal_rate for result in results})
        [(_, most_pairs)] = Counter(pair.kind for pair in self.order.pairs).most_common(1)
        rate = detectable_rate(most_pairs)
        finding.say("too_few" if rate is None else "power", count=most_pairs, rate=rate)
        return finding

    def _columns(self, metric: MetricInfo, numbers: Numbers) -> Row:
        """Compare a metric with controls: empty texts, pasted answers and length."""
        row: dict[str, float | None] = {}
        for control in self.controls:
            heading = f"beats {control.removeprefix(CONTROL)}"
            pairs = [pair for pair in self.control_pairs if pair.worse == control]
            if control.startswith(PASTED):  # a tie is a loss, as everywhere
                heading = "pasted wins"
                pairs = [Pair(pair.item, pair.worse, pair.better) for pair in pairs]
            wins = decide_pairs(metric, numbers, pairs).values()
            row[heading] = fmean(wins) if wins else None
        preferences = []
        for item in self.items:
            names = [name for name in item.summaries if name not in self.controls]
            names = [name for name in names if (item.id, name) in numbers]
            words = [float(len(item.summaries[name].split())) for name in names]
            preferences.append(somers(words, [-metric.badness(numbers[item.id, name]) for name in names]))
        row[_LONGER] = fmean(defined(preferences)) if defined(preferences) else None
        return row

    def _ranking_row(self, result: MetricRanking) -> Row:
        return {
            "metric": result.metric.name,
            "group": result.metric.group,
            **interval("win rate", result.rate),
            "items": result.rate.n,
            "pairs": len(result.wins),
            "undefined": len(self.order.pairs) - len(result.wins),
            **interval("at equal length", result.equal_rate, "equal low", "equal high"),
            "equal items": result.equal_rate.n,
        }

    def _pair_rows(self, result: MetricRanking, alike: Collection[Pair]) -> Iterator[Row]:
        """Make a metric's row for each kind of pair."""
        for kind, count in Counter(pair.kind for pair in self.order.pairs).items():
            wins = {pair: win for pair, win in result.wins.items() if pair.kind == kind}
            rate, equal = win_rate(wins), win_rate_among(wins, alike)
            yield {
                "metric": result.metric.name,
                "better": kind[0],
                "worse": kind[1],
                "wins": sum(wins.values()),
                "n": rate.n,
                **interval("win rate", rate),
                "undefined": count - len(wins),
                "at equal length": equal.mean,
                "n equal": equal.n,
            }


def _control_texts(item: Item) -> tuple[str | None, ...]:
    """Make the texts of ``CONTROLS`` for an item, with None for missing ones."""
    texts = control_texts(item.question, item.conditioning)
    nonsense = next((text for control, text in texts if control.name == "nonsense"), None)
    pasted = max((pair for pair in texts if pair[0].answers), key=lambda pair: pair[0].answers, default=None)
    return item.question, "", nonsense, pasted[1] if pasted else None


def _unused(name: str, names: Sequence[str]) -> str:
    while name in names:
        name += "*"
    return name


def _best_summaries(pairs: Sequence[Pair]) -> dict[str, str]:
    """Choose each item's first summary that is never the worse of a pair; orders have no cycles."""
    beaten = {(pair.item, pair.worse) for pair in pairs}
    best: dict[str, str] = {}
    for pair in pairs:
        if (pair.item, pair.better) not in beaten:
            best.setdefault(pair.item, pair.better)
    return best


def _say_against_chance(finding: Finding, pairs: str, rates: Mapping[str, Estimate]) -> None:
    """Report which win rates differ from chance."""
    defined_rates = {name: rate for name, rate in rates.items() if rate.mean is not None}
    sides = {name: f"{pairs}_{SIDES[side_of_chance(rate)]}" for name, rate in defined_rates.items()}
    finding.say_sides(sides, [f"{pairs}_{side}" for side in ("above", "below", "unclear")])
