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
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import fmean

from selfreflect.render.table import Cell
from selfreflect.sources.items import Item
from selfreflect.stats import Estimate
from selfreflect.validate.base import MetricInfo
from selfreflect.validate.ranked.order import Pair, Relation
from selfreflect.validate.statistics import ALPHA, bounded_mean, holm, mcnemar, share_by_item
from selfreflect.validate.study import Numbers, Row, interval

ADJUSTED_P = "p (Holm)"
ALIKE = 1.25
"""Two summaries are about equally long if the longer has at most this many times the words of the other."""
FEWEST_PAIRS = 5
"""Fewer pairs have no rate: even if all were won, its interval would reach from one half to all."""


@dataclass(frozen=True)
class Lengths:
    """Pairs of texts that both have words, by the length of the better one. ``alike`` ones may differ a
    little."""

    comparable: frozenset[Pair]
    alike: frozenset[Pair]
    longer: frozenset[Pair]
    shorter: frozenset[Pair]


def compare_lengths(items: Sequence[Item], pairs: Iterable[Pair]) -> Lengths:
    summaries = {item.id: item.summaries for item in items}
    ratios: dict[Pair, float] = {}
    for pair in pairs:
        better, worse = (len(summaries[pair.item][name].split()) for name in pair.kind)
        if better and worse:
            ratios[pair] = better / worse
    return Lengths(
        comparable=frozenset(ratios),
        alike=frozenset(pair for pair, ratio in ratios.items() if 1 / ALIKE <= ratio <= ALIKE),
        longer=frozenset(pair for pair, ratio in ratios.items() if ratio > 1),
        shorter=frozenset(pair for pair, ratio in ratios.items() if ratio < 1),
    )


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
