"""Study ``ranked``: how often does a metric judge the better of two summaries to be the better one?

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
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from itertools import combinations
from statistics import fmean
from typing import NamedTuple

from msgspec.structs import replace as replace_item

from selfreflect.errors import ConfigError, DataError, SelfReflectError, excerpt, nearest
from selfreflect.metric.texts import control_texts
from selfreflect.report.overview import CONTROL
from selfreflect.sources.files import listed
from selfreflect.sources.items import Item
from selfreflect.stats import Estimate
from selfreflect.text import counted, percent
from selfreflect.validate.base import MetricInfo, Value
from selfreflect.validate.statistics import (
    bounded_mean,
    detectable_rate,
    holm,
    mcnemar,
    share_by_item,
    side_of_chance,
    somers,
)
from selfreflect.validate.study import (
    Finding,
    Numbers,
    Row,
    TableLayout,
    each_metric,
    interval,
    summary_names,
)

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
    """Pair the summaries of each item whose order is known.

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
    if not pairs and not identical:
        raise DataError(
            "no item has two summaries in a known order",
            code="no_order",
            remedy="Name them good, mid and bad, give each item a field 'order' that lists its names best "
            "first, or say which is better, as in {order} 'detailed>terse'",
        )
    if not pairs:
        raise DataError(
            f"both texts are the same in every pair in a known order ({len(identical)}), "
            f"as in item {excerpt(identical[0].item)}",
            code="same_texts",
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
    """List all pairs of each chain; raise ``error`` for an unknown or single name and for a contradiction."""
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
                f"{label} has the single name {excerpt(chain[0])}; name two or more in a chain",
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
    """Compute the words of the better summary over those of the worse one; without pairs of a blank text."""
    summaries = {item.id: item.summaries for item in items}
    ratios: dict[Pair, float] = {}
    for pair in pairs:
        better, worse = (len(summaries[pair.item][name].split()) for name in pair.kind)
        if better and worse:
            ratios[pair] = better / worse
    return ratios


@dataclass(frozen=True)
class MetricResult:
    """Pairs as one metric decides them."""

    metric: MetricInfo
    wins: Mapping[Pair, bool | None]
    """Whether the better summary has the better value, None without both values. A tie is no win."""

    def among(self, pairs: Collection[Pair]) -> MetricResult:
        """Keep some pairs."""
        return replace(self, wins={pair: win for pair, win in self.wins.items() if pair in pairs})

    def of_kind(self, kind: Relation) -> MetricResult:
        """Keep the pairs of two names."""
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
        """Compute the rate among some pairs, without numbers if it is over too few items."""
        rate = self.among(pairs).rate
        return Estimate(None, None, None, rate.n, rate.total) if rate.n < FEWEST_PAIRS else rate


def decide_pairs(metric: MetricInfo, numbers: Numbers, pairs: Collection[Pair]) -> MetricResult:
    """Decide pairs by a metric's values."""
    wins: dict[Pair, bool | None] = {}
    for pair in pairs:
        value, rival = numbers.get((pair.item, pair.better)), numbers.get((pair.item, pair.worse))
        wins[pair] = None if value is None or rival is None else metric.wins(value, rival)
    return MetricResult(metric, wins)


ADJUSTED_P = "p (Holm)"


def paired_tests(reference: MetricResult, rivals: Sequence[MetricResult], kind: Relation) -> list[Row]:
    """Test a metric against each rival by McNemar's test, on the pairs that both have values for.

    Each test is one row, with p adjusted for all of them.
    """
    rows: list[Row] = []
    p_values = []
    for rival in rivals:
        differences = [
            win - rival.decided[pair]
            for pair, win in reference.decided.items()
            if pair.kind == kind and pair in rival.decided
        ]
        only_reference, only_rival = differences.count(1), differences.count(-1)
        p_values.append(mcnemar(only_reference, only_rival))
        row = {
            "metric": reference.metric.name,
            "other": rival.metric.name,
            "better": kind[0],
            "worse": kind[1],
            **interval("difference", bounded_mean(differences, -1, 1)),
            "n": len(differences),
            "only metric": only_reference,
            "only other": only_rival,
        }
        rows.append(row)
    adjusted = zip(rows, p_values, holm(p_values), strict=True)
    return [{**row, "p": p, ADJUSTED_P: adjusted_p} for row, p, adjusted_p in adjusted]


EMPTY, QUESTION, NONSENSE = f"{CONTROL}empty", f"{CONTROL}question repeated", f"{CONTROL}nonsense"
PASTED = f"{CONTROL}all answers pasted"
_RATE = ".1%"
_TIES = "ties are losses; pairs with an undefined value are counted and left out of n"
_INTERVALS = "intervals: 95 % BCa bootstrap over items; exact (Clopper-Pearson) where all items agree"
_EQUAL = (
    f"at equal length: the longer of the two has at most {ALIKE} times the words of the other; a dash for "
    f"fewer than {FEWEST_PAIRS}"
)
_COLUMNS = (
    "win rate: mean over items of the share of their pairs in a known order that are won",
    "beats …: share of items whose best summary beats a text that says nothing; pasted wins: share of items "
    "where all reference answers, pasted, beat it",
    "prefers longer: mean over items of Somers' D of value and words, above 0 where longer summaries are "
    "judged better; no bias by itself, since better summaries may be longer",
)
_LONGER = "prefers longer"
_RANKING = TableLayout(
    "Metrics by win rate", _RATE, (*_COLUMNS, _TIES, _EQUAL, _INTERVALS), {_LONGER: "+z.2f"}
)
_PAIRS = TableLayout("How often the better summary wins", _RATE, (_TIES, _EQUAL, _INTERVALS))
_TEST_NOTES = (
    "difference in win rate on the pairs that both have values for; p: exact McNemar test, a dash where both "
    "win the same pairs",
    "p (Holm): adjusted for all tests of the metric on pairs of the same kind",
    _INTERVALS,
)
# Groups whose metrics are tested against all others
_REFERENCES = {"selfreflect": "SelfReflect", "information": "Usable information"}
_AGAINST_CHANCE: dict[int | None, str] = {
    1: "prefer the better summary more often than a coin would",
    -1: "prefer the worse summary, or neither, more often than not",
    0: "cannot be told from a coin",
}


class RankedSets:
    """Items whose summaries have a known order, see :func:`known_order`.

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
        self.controls = [_unused(name, names) for name in (QUESTION, EMPTY, NONSENSE, PASTED) if controls]
        self.items: list[Item] = []
        self.control_pairs: list[Pair] = []
        for item in usable:
            named = zip(self.controls, _control_texts(item), strict=False)
            texts = {name: text for name, text in named if text is not None}
            self.items.append(replace_item(item, summaries={**item.summaries, **texts}))
            for name, text in texts.items():
                if item.summaries[best[item.id]] != text:
                    self.control_pairs.append(Pair(item.id, best[item.id], name))

    def finding(self, values: Sequence[Value], metrics: Sequence[MetricInfo]) -> Finding:
        ratios = length_ratios(self.items, self.order.pairs)
        alike = {pair for pair, ratio in ratios.items() if 1 / ALIKE <= ratio <= ALIKE}
        finding = Finding(self.name)
        results = []
        columns = {}
        for metric, numbers in each_metric(values, metrics):
            results.append(decide_pairs(metric, numbers, self.order.pairs))
            columns[metric.name] = self._columns(metric, numbers)
        # those without any value stand last
        results.sort(key=lambda result: math.inf if result.rate.mean is None else -result.rate.mean)
        for result in results:
            finding.add(_RANKING, {**_ranking_row(result, alike), **columns[result.metric.name]})
        for result in results:
            finding.add(_PAIRS, *_pair_rows(result, alike))
        for reference in _REFERENCES:
            self._add_tests(finding, reference, results)
        rates = [(result.metric.name, result.rate) for result in results]
        self._say_data(finding)
        _say_against_chance(finding, "All pairs", rates)
        longer, shorter = (sum(sign * (ratio - 1) > 0 for ratio in ratios.values()) for sign in (1, -1))
        finding.says.append(
            f"The better summary is the longer one in {longer} of {counted(len(ratios), 'pair')}, "
            f"the shorter one in {shorter}."
        )
        equal = [(result.metric.name, result.matched_rate(alike)) for result in results]
        _say_against_chance(finding, "Pairs of about equal length", equal)
        finding.says.append(self._power())
        return finding

    def _columns(self, metric: MetricInfo, numbers: Numbers) -> Row:
        """Compare a metric's values with texts that say nothing, with pasted answers, and with length."""
        row: dict[str, float | None] = {}
        for control in self.controls:
            heading = f"beats {control.removeprefix(CONTROL)}"
            pairs = [pair for pair in self.control_pairs if pair.worse == control]
            if control.startswith(PASTED):  # a tie is a loss, as everywhere
                heading = "pasted wins"
                pairs = [Pair(pair.item, pair.worse, pair.better) for pair in pairs]
            wins = list(decide_pairs(metric, numbers, pairs).decided.values())
            row[heading] = fmean(wins) if wins else None
        preferences: list[float] = []
        for item in self.items:
            names = [
                name for name in item.summaries if name not in self.controls and (item.id, name) in numbers
            ]
            words = [float(len(item.summaries[name].split())) for name in names]
            preference = somers(words, [-metric.badness(numbers[item.id, name]) for name in names])
            if preference is not None:
                preferences.append(preference)
        row[_LONGER] = fmean(preferences) if preferences else None
        return row

    def _add_tests(self, finding: Finding, reference: str, results: Sequence[MetricResult]) -> None:
        """Test the metrics of one group against all others."""
        title = f"{_REFERENCES[reference]} against the other metrics on the same pairs"
        layout = TableLayout(title, "+z.1%", _TEST_NOTES, {"p": ".2g", ADJUSTED_P: ".2g"})
        for result in results:
            rivals = [rival for rival in results if rival is not result]
            if result.metric.group == reference and rivals:
                for kind in self.order.kinds:
                    finding.add(layout, *paired_tests(result, rivals, kind))

    def _say_data(self, finding: Finding) -> None:
        counts = {
            "Pairs of summaries in a known order": len(self.order.pairs),
            "items": len({pair.item for pair in self.order.pairs}),
            "pairs left out because both texts are the same": len(self.order.identical),
            "items left out because no order is known": len(self.order.without),
        }
        finding.tally(counts)

    def _power(self) -> str:
        """Say what the kind with the most pairs can show."""
        [(_, count)] = Counter(pair.kind for pair in self.order.pairs).most_common(1)
        rate = detectable_rate(count)
        if rate is None:
            return (
                f"Pairs of a kind: {count}. That is too few: even if all were won, a coin could have done it."
            )
        return (
            f"Pairs of a kind: at most {count}. A win rate has to be {percent(rate)} to be told from a "
            "coin with "
            "a power of 80 %. A difference that a test does not show is no proof of equality."
        )


def _control_texts(item: Item) -> tuple[str | None, ...]:
    """Make the repeated question, the empty text, nonsense, and all reference answers pasted; None for a
    text that an item has not."""
    texts = control_texts(item.question, item.conditioning)
    nonsense = next((text for control, text in texts if control.name == "nonsense"), None)
    pasted = max((pair for pair in texts if pair[0].answers), key=lambda pair: pair[0].answers, default=None)
    return item.question, "", nonsense, pasted[1] if pasted else None


def _unused(name: str, names: Sequence[str]) -> str:
    while name in names:
        name += "*"
    return name


def _best_summaries(pairs: Sequence[Pair]) -> dict[str, str]:
    """Choose of each item the first summary that no other is known to beat. An order has no cycles, so there
    is one."""
    beaten = {(pair.item, pair.worse) for pair in pairs}
    best: dict[str, str] = {}
    for pair in pairs:
        if (pair.item, pair.better) not in beaten:
            best.setdefault(pair.item, pair.better)
    return best


def _ranking_row(result: MetricResult, alike: Collection[Pair]) -> Row:
    equal = result.matched_rate(alike)
    return {
        "metric": result.metric.name,
        "group": result.metric.group,
        **interval("win rate", result.rate),
        "items": result.rate.n,
        "pairs": len(result.decided),
        "undefined": result.undefined,
        **interval("at equal length", equal, "equal low", "equal high"),
        "equal items": equal.n,
    }


def _pair_rows(result: MetricResult, alike: Collection[Pair]) -> Iterator[Row]:
    """Make a row of a metric for each kind of pair."""
    for kind in dict.fromkeys(pair.kind for pair in result.wins):
        of_kind = result.of_kind(kind)
        equal = of_kind.matched_rate(alike)
        yield {
            "metric": result.metric.name,
            "better": kind[0],
            "worse": kind[1],
            "wins": sum(of_kind.decided.values()),
            "n": of_kind.rate.n,
            **interval("win rate", of_kind.rate),
            "undefined": of_kind.undefined,
            "at equal length": equal.mean,
            "n equal": equal.n,
        }


def _say_against_chance(finding: Finding, pairs: str, rates: Sequence[tuple[str, Estimate]]) -> None:
    """Tell win rates from a coin: a metric that wins among all pairs only may prefer length."""
    sides: dict[str, int | None] = {}
    for name, rate in rates:
        if rate.mean is not None:
            sides[name] = side_of_chance(rate)
    finding.give_verdicts(sides, {side: f"{pairs}: {text}" for side, text in _AGAINST_CHANCE.items()})
