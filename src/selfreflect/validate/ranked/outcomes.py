"""Which pairs of known order a metric gets right, over all and where length cannot be the reason."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from selfreflect.sources.items import Item
from selfreflect.stats import Estimate
from selfreflect.validate.base import MetricInfo
from selfreflect.validate.ranked.order import Pair, Relation
from selfreflect.validate.statistics import bounded_mean, win_rate

ALIKE = 1.25
"""Two summaries have about the same length where the longer has at most so many times the words of the
other."""
FEWEST_PAIRS = 5
"""Of fewer pairs no rate is shown: even if all were won, its interval would reach from one half to all."""

Ratios = Mapping[Pair, float]


def length_ratios(items: Sequence[Item], pairs: Sequence[Pair]) -> Ratios:
    """Words of the better summary over those of the worse one, for pairs in which both have words."""
    words = {(item.id, name): len(text.split()) for item in items for name, text in item.summaries.items()}
    both = {pair: (words[pair.item, pair.better], words[pair.item, pair.worse]) for pair in pairs}
    return {pair: better / worse for pair, (better, worse) in both.items() if better and worse}


@dataclass(frozen=True)
class Outcomes:
    """What one metric made of pairs."""

    metric: MetricInfo
    pairs: tuple[Pair, ...]
    wins: Mapping[Pair, bool]
    """For the pairs whose two values are defined, whether the better summary has the better value. A tie is
    no win."""

    @property
    def undefined(self) -> int:
        return len(self.pairs) - len(self.wins)

    def of(self, keep: Callable[[Pair], bool]) -> Outcomes:
        pairs = tuple(pair for pair in self.pairs if keep(pair))
        return Outcomes(self.metric, pairs, {pair: won for pair, won in self.wins.items() if keep(pair)})

    def of_kind(self, kind: Relation) -> Outcomes:
        return self.of(lambda pair: pair.kind == kind)

    @property
    def rate(self) -> Estimate:
        """The share of wins: the mean over items of the share among an item's pairs, because pairs of one
        item depend on each other."""
        items = defaultdict(list)
        for pair, won in self.wins.items():
            items[pair.item].append(won)
        if all(len(own) == 1 for own in items.values()):
            return win_rate([won for own in items.values() for won in own])
        return bounded_mean([sum(own) / len(own) for own in items.values()], 0, 1)


def outcomes(
    metric: MetricInfo,
    values: Mapping[tuple[str, str], float],
    pairs: Sequence[Pair],
    standing: Mapping[Pair, tuple[str, str]] | None = None,
) -> Outcomes:
    """``standing`` names the summaries that stand for those of a pair, if they are not its own; pairs that it
    lacks are left out."""
    names = (
        {pair: pair.kind for pair in pairs}
        if standing is None
        else {pair: standing[pair] for pair in pairs if pair in standing}
    )
    keys = {pair: ((pair.item, better), (pair.item, worse)) for pair, (better, worse) in names.items()}
    wins = {
        pair: metric.wins(values[one], values[other])
        for pair, (one, other) in keys.items()
        if one in values and other in values
    }
    return Outcomes(metric, tuple(keys), wins)


@dataclass(frozen=True)
class Matched:
    """Win rates where length is held fixed, in the three ways that data like these allow.

    Good summaries are often longer, so that a metric which prefers long texts wins without reading them.
    ``alike`` keeps the pairs of about the same length (``ALIKE``; caliper matching, Rosenbaum and Rubin 1985,
    Am. Stat. 39, 33-38). ``shorter`` keeps those whose better summary is the shorter one, where such a
    preference loses. ``balanced`` is the mean of the rates among pairs whose better summary is longer and
    among those whose better one is shorter, as if each were as frequent (direct standardisation): judging by
    length alone gives exactly one half. Its interval combines those of the two rates (Zou and Donner 2008,
    Stat. Med. 27, 1693-1702), which hold different items for pairs of one kind. No regression on length:
    where the better one is always longer it extrapolates.
    """

    alike: Estimate
    shorter: Estimate
    balanced: Estimate


def matched(found: Outcomes, ratios: Ratios) -> Matched:
    """For pairs of one kind, thus one of each item."""
    longer, shorter = (
        found.of(lambda pair: ratios.get(pair, 1) > 1).rate,
        found.of(lambda pair: ratios.get(pair, 1) < 1).rate,
    )
    return Matched(alike(found, ratios).rate, shorter, _balanced(longer, shorter))


def alike(found: Outcomes, ratios: Ratios) -> Outcomes:
    """The pairs of about the same length."""
    return found.of(lambda pair: is_alike(pair, ratios))


def is_alike(pair: Pair, ratios: Ratios) -> bool:
    return pair in ratios and 1 / ALIKE <= ratios[pair] <= ALIKE


def _balanced(longer: Estimate, shorter: Estimate) -> Estimate:
    n = longer.n + shorter.n
    if min(longer.n, shorter.n) < FEWEST_PAIRS:
        return Estimate(None, None, None, n, n)
    sides = [(side.mean, side.low, side.high) for side in (longer, shorter)]
    numbers = [
        (mean, low, high)
        for mean, low, high in sides
        if mean is not None and low is not None and high is not None
    ]
    mean = sum(mean for mean, _, _ in numbers) / 2
    below, above = (math.hypot(*(side[end] - side[0] for side in numbers)) / 2 for end in (1, 2))
    return Estimate(mean, mean - below, mean + above, n, n)
