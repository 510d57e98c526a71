"""What ranked sets say in words: what can and what cannot be concluded from the number of pairs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from selfreflect.stats import Estimate
from selfreflect.validate.base import MetricInfo
from selfreflect.validate.ranked.order import KnownOrder, Pair, Relation
from selfreflect.validate.ranked.outcomes import (
    FEWEST_PAIRS,
    Outcomes,
    PairedTest,
    RankedResults,
    Ratios,
    is_alike,
)
from selfreflect.validate.ranked.padding import filler_says
from selfreflect.validate.statistics import detectable_difference, detectable_rate, side_of_chance
from selfreflect.validate.study import counted, joined, listing, percent


def conclusions(results: RankedResults) -> Iterator[str]:
    """Paragraphs, most important first."""
    pairs = results.order.pairs
    yield _compared(results.order)
    missing = [
        f"{one.metric.name} ({one.undefined} of {len(one.pairs)})" for one in results.ordered if one.undefined
    ]
    yield from listing("Pairs without a value on one side, about which nothing is said:", missing)
    yield from _against_chance("All pairs", [(one.metric, one.rate) for one in results.ordered])
    yield from _controls(results.ordered, results.order.kinds)
    yield from _control_summaries(results.everything, results.controls)
    yield _length(pairs, results.ratios)
    alike = [(one.metric, one.alike) for one in results.ordered if one.alike.n >= FEWEST_PAIRS]
    yield from _against_chance(_alike_pairs(pairs, results.ratios), alike)
    padded = [(one.metric, one.rate) for one in results.padded]
    yield from _against_chance("All pairs, padded to equal length with neutral filler", padded)
    yield from filler_says(results.fillers)
    yield from _paired(results.tests)
    yield from _power(pairs)


def _compared(order: KnownOrder) -> str:
    pairs = counted(len(order.pairs), "pair")
    items = counted(len({pair.item for pair in order.pairs}), "item")
    sentence = f"{pairs} of summaries in a known order, from {items}."
    if order.identical:
        sentence += f" Left out, because both texts are the same: {counted(len(order.identical), 'pair')}."
    if order.without:
        sentence += f" Left out, because no order is known: {counted(len(order.without), 'item')}."
    return sentence


def _against_chance(pairs: str, rates: Sequence[tuple[MetricInfo, Estimate]]) -> Iterator[str]:
    """Tell win rates from a coin, among all pairs or those of equal length: a metric that only wins among the
    first may prefer length."""
    names: dict[int, list[str]] = {1: [], -1: [], 0: []}
    for metric, rate in rates:
        if rate.mean is not None:
            names[side_of_chance(rate)].append(metric.name)
    parts = []
    for side, verdict in (
        (1, "prefer the better summary more often than a coin would"),
        (-1, "prefer the worse summary, or neither, more often than not"),
        (0, "cannot be told from a coin"),
    ):
        if names[side]:
            parts.append(f"{verdict}: {joined(names[side])}")
    if parts:
        yield f"{pairs}: {'; '.join(parts)}."


def _controls(ordered: Sequence[Outcomes], kinds: Sequence[Relation]) -> Iterator[str]:
    """Name each control with a higher win rate, clear or not: a metric must beat it."""
    for kind in kinds:
        rates = {one.metric: one.of_kind(kind).rate.mean for one in ordered}
        for control, level in rates.items():
            if control.group != "control" or level is None:
                continue
            names = []
            for metric, rate in rates.items():
                if metric.group != "control" and rate is not None and rate < level:
                    names.append(f"{metric.name} ({percent(rate)})")
            control_rate = f"the control {control.name} ({percent(level)})"
            yield from listing(f"On {_name(kind)} {control_rate} has a higher win rate than", names)


def _control_summaries(everything: Sequence[Outcomes], names: Sequence[str]) -> Iterator[str]:
    for name in names:
        metrics = []
        for one in everything:
            wins = [won for pair, won in one.wins.items() if pair.worse == name]
            lost = len(wins) - sum(wins)
            if one.metric.group != "control" and 2 * lost > len(wins):
                metrics.append(f"{one.metric.name} ({lost} of {len(wins)})")
        yield from listing(
            f"The summary '{name}' is judged at least as good as the best one more often than not by", metrics
        )


def _length(pairs: Sequence[Pair], ratios: Ratios) -> str:
    own = [ratios[pair] for pair in pairs if pair in ratios]
    longer, shorter = sum(ratio > 1 for ratio in own), sum(ratio < 1 for ratio in own)
    sentence = (
        f"The better summary is the longer one in {longer} of {counted(len(own), 'pair')}, "
        f"the shorter one in {shorter}."
    )
    alike = Counter(pair.kind for pair in pairs if pair in ratios and is_alike(ratios[pair]))
    few = [_name(kind) for kind in dict.fromkeys(pair.kind for pair in pairs) if alike[kind] < FEWEST_PAIRS]
    return " ".join(
        [sentence, *listing("Too few pairs of equal length to tell whether length decides:", few)]
    )


def _alike_pairs(pairs: Sequence[Pair], ratios: Ratios) -> str:
    """Also which kinds of pairs these are: they may be of one kind, and then say nothing about the others."""
    sizes = Counter(pair.kind for pair in pairs)
    alike = Counter(pair.kind for pair in pairs if pair in ratios and is_alike(ratios[pair]))
    kinds = [f"{alike[kind]} of {size} {_name(kind)}" for kind, size in sizes.items()]
    return f"Of about equal length, {counted(alike.total(), 'pair')} ({joined(kinds)})"


def _paired(tests: Sequence[PairedTest]) -> Iterator[str]:
    clear = []
    for test in tests:
        if test.clear:
            verb = "wins more" if test.only_one > test.only_other else "wins less"
            p = f"adjusted p = {test.adjusted_p:.2g}"
            clear.append(f"{test.one.name} {verb} often than {test.other.name} on {_name(test.kind)} ({p})")
    if clear:
        yield f"Clear after adjustment for all tests on pairs of the same kind: {'; '.join(clear)}."
    if len(clear) < len(tests):
        yield (
            "Comparisons with SelfReflect that show no clear difference, which is no proof of equality: "
            f"{len(tests) - len(clear)} of {len(tests)}."
        )


def _power(pairs: Sequence[Pair]) -> Iterator[str]:
    kinds: dict[int, list[str]] = {}
    for kind, size in Counter(pair.kind for pair in pairs).items():
        kinds.setdefault(size, []).append(_name(kind))
    for size, names in kinds.items():
        which = f"{counted(size, 'pair')} of {joined(names)}"
        rate, difference = detectable_rate(size), detectable_difference(size)
        if rate is None or difference is None:
            yield f"{which} is too small a number: even if all were won, a coin could have done it."
        else:
            yield (
                f"With {which} a win rate has to be {percent(rate)} to be told from a coin with a power of 80%. "
                f"A difference between two metrics has to be {percent(difference)} for that, even if the worse "
                "one is never right alone; more if it sometimes is, and after adjustment for several tests."
            )


def _name(kind: Relation) -> str:
    return " > ".join(kind)
