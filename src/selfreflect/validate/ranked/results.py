"""Which pairs in a known order a metric gets right, over all and where length cannot be the reason.

Good summaries are often longer, so that a metric that prefers long texts wins without reading them. Three win
rates hold length fixed: among pairs of about the same length (caliper matching, Rosenbaum and Rubin 1985, Am.
Stat. 39, 33-38); among pairs whose better summary is the shorter one, where such a preference loses; and
balanced, the mean of the rates among pairs whose better summary is longer and among those whose better one is
shorter (direct standardisation), so that judging by length alone gives one half. There is no regression on
length: it extrapolates if the better summary is always longer.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from selfreflect.render.table import Table
from selfreflect.sources.items import Item
from selfreflect.stats import Estimate
from selfreflect.validate.base import MetricInfo
from selfreflect.validate.ranked.order import KnownOrder, Pair, Relation
from selfreflect.validate.statistics import ALPHA, bounded_mean, holm, mcnemar, win_rate

ALIKE = 1.25
"""Two summaries are about equally long if the longer has at most this many times the words of the other."""
FEWEST_PAIRS = 5
"""Fewer pairs have no rate: even if all were won, its interval would reach from one half to all."""

Ratios = Mapping[Pair, float]


def length_ratios(items: Sequence[Item], pairs: Sequence[Pair]) -> Ratios:
    """Words of the better summary over words of the worse one, for pairs in which both have words."""
    summaries = {item.id: item.summaries for item in items}
    ratios: dict[Pair, float] = {}
    for pair in pairs:
        better, worse = (len(summaries[pair.item][name].split()) for name in pair.kind)
        if better and worse:
            ratios[pair] = better / worse
    return ratios


def is_alike(ratio: float | None) -> bool:
    return ratio is not None and 1 / ALIKE <= ratio <= ALIKE


@dataclass(frozen=True)
class MetricResult:
    """How one metric decides pairs."""

    metric: MetricInfo
    pairs: tuple[Pair, ...]
    wins: Mapping[Pair, bool]
    """Whether the better summary has the better value, for pairs with two values. A tie is no win."""
    ratios: Ratios

    @property
    def undefined(self) -> int:
        return len(self.pairs) - len(self.wins)

    def among(self, keep: Callable[[Pair], bool]) -> MetricResult:
        pairs = tuple(pair for pair in self.pairs if keep(pair))
        wins = {pair: self.wins[pair] for pair in pairs if pair in self.wins}
        return replace(self, pairs=pairs, wins=wins)

    def of_kind(self, kind: Relation) -> MetricResult:
        return self.among(lambda pair: pair.kind == kind)

    @cached_property
    def rate(self) -> Estimate:
        """The mean over items of the share of an item's pairs that are won, because pairs of one item depend
        on each other."""
        by_item: dict[str, list[bool]] = defaultdict(list)
        for pair, win in self.wins.items():
            by_item[pair.item].append(win)
        if len(by_item) == len(self.wins):
            return win_rate(sum(self.wins.values()), len(self.wins))
        return bounded_mean([sum(wins) / len(wins) for wins in by_item.values()], 0, 1)

    @property
    def alike(self) -> Estimate:
        return self._rate_where(is_alike)

    @property
    def shorter(self) -> Estimate:
        return self._rate_where(lambda ratio: ratio < 1)

    @property
    def balanced(self) -> Estimate:
        """For pairs of one kind, so that the two rates are over different items. The interval combines theirs
        (Zou and Donner 2008, Stat. Med. 27, 1693-1702)."""
        rates = (self._rate_where(lambda ratio: ratio > 1), self.shorter)
        n = sum(rate.n for rate in rates)
        means, below, above = [], [], []
        for rate in rates:
            if rate.n < FEWEST_PAIRS or rate.mean is None or rate.low is None or rate.high is None:
                return Estimate(None, None, None, n, n)
            means.append(rate.mean)
            below.append(rate.mean - rate.low)
            above.append(rate.high - rate.mean)
        mean = sum(means) / 2
        return Estimate(mean, mean - math.hypot(*below) / 2, mean + math.hypot(*above) / 2, n, n)

    def _rate_where(self, keep: Callable[[float], bool]) -> Estimate:
        return self.among(lambda pair: pair in self.ratios and keep(self.ratios[pair])).rate


def decide_pairs(
    metric: MetricInfo,
    values: Mapping[tuple[str, str], float],
    names: Mapping[Pair, Relation],
    ratios: Ratios,
) -> MetricResult:
    """Decide pairs by a metric's values; ``names`` says which summaries stand for those of a pair."""
    wins: dict[Pair, bool] = {}
    for pair, (better, worse) in names.items():
        value, other = values.get((pair.item, better)), values.get((pair.item, worse))
        if value is not None and other is not None:
            wins[pair] = metric.wins(value, other)
    return MetricResult(metric, tuple(names), wins, ratios)


@dataclass(frozen=True)
class PairedTest:
    """McNemar's test of two metrics on the pairs of one kind that both have values for."""

    one: MetricInfo
    other: MetricInfo
    kind: Relation
    wins: tuple[tuple[bool, bool], ...]
    p: float | None
    only_one: int
    only_other: int
    adjusted_p: float | None = None
    """Adjusted for all tests that were made together (Holm)."""

    @property
    def difference(self) -> Estimate:
        """Win rate of one minus win rate of the other."""
        return bounded_mean([float(a) - float(b) for a, b in self.wins], -1, 1)

    @property
    def clear(self) -> bool:
        return self.adjusted_p is not None and self.adjusted_p <= ALPHA

    def swapped(self) -> PairedTest:
        wins = tuple((b, a) for a, b in self.wins)
        return PairedTest(
            self.other, self.one, self.kind, wins, self.p, self.only_other, self.only_one, self.adjusted_p
        )


def paired_tests(sides: Iterable[tuple[MetricResult, MetricResult]], kind: Relation) -> list[PairedTest]:
    """Test each two metrics on pairs of one kind, adjusted for all of these tests."""
    tests = []
    for one, other in sides:
        pairs = [pair for pair in one.wins if pair.kind == kind and pair in other.wins]
        wins = [(one.wins[pair], other.wins[pair]) for pair in pairs]
        only_one, only_other = wins.count((True, False)), wins.count((False, True))
        p = mcnemar(only_one, only_other)
        tests.append(PairedTest(one.metric, other.metric, kind, tuple(wins), p, only_one, only_other))
    adjusted = holm([test.p for test in tests])
    return [replace(test, adjusted_p=p) for test, p in zip(tests, adjusted, strict=True)]


@dataclass(frozen=True)
class RankedResults:
    """What tables and conclusions are made from, metrics by falling win rate."""

    order: KnownOrder
    controls: tuple[str, ...]
    """Names of the control summaries."""
    ratios: Ratios
    main: list[MetricResult]
    """Each metric on the pairs in a known order."""
    with_controls: list[MetricResult]
    """Each metric on these and on the pairs of the best summary with a control."""
    padded: list[MetricResult]
    """The same pairs padded to equal length; empty without padding."""
    filler_tables: list[Table]
    """What filler alone changes; empty without padding."""

    @cached_property
    def tests(self) -> list[PairedTest]:
        """SelfReflect against every other metric; empty if it was not measured."""
        reference = [result for result in self.main if result.metric.group == "selfreflect"][:1]
        others = [result for result in self.main if result not in reference]
        tests = []
        for kind in self.order.kinds if reference else ():
            tests += paired_tests([(reference[0], other) for other in others], kind)
        return tests
