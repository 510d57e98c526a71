"""What ranked sets say in words: what can and what cannot be concluded from the number of pairs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from selfreflect.stats import Estimate
from selfreflect.validate.base import MetricInfo
from selfreflect.validate.ranked.order import KnownOrder, Relation
from selfreflect.validate.ranked.results import FEWEST_PAIRS, PairedTest, RankedResults, is_alike
from selfreflect.validate.statistics import detectable_difference, detectable_rate, side_of_chance
from selfreflect.validate.study import counted, joined, listing, percent


def conclusions(results: RankedResults) -> Iterator[str]:
    """Paragraphs, most important first."""
    order = results.order
    sizes = Counter(pair.kind for pair in order.pairs)
    alike = Counter(pair.kind for pair in order.pairs if is_alike(results.ratios.get(pair)))
    yield _compared(order)
    yield from _against_chance("All pairs", [(result.metric, result.rate) for result in results.main])
    yield from _controls(results)
    yield _lengths(results, [_name(kind) for kind in sizes if alike[kind] < FEWEST_PAIRS])
    # these may be pairs of one kind, which say nothing about the others
    kinds = joined([f"{alike[kind]} of {size} {_name(kind)}" for kind, size in sizes.items()])
    pairs = f"Of about equal length, {counted(alike.total(), 'pair')} ({kinds})"
    rates = [(result.metric, result.alike) for result in results.main if result.alike.n >= FEWEST_PAIRS]
    yield from _against_chance(pairs, rates)
    padded = [(result.metric, result.rate) for result in results.padded]
    yield from _against_chance("All pairs, padded to equal length with neutral filler", padded)
    yield from _tests(results.tests)
    yield from _power(sizes)


def _name(kind: Relation) -> str:
    return " > ".join(kind)


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
    verdicts = {
        1: "prefer the better summary more often than a coin would",
        -1: "prefer the worse summary, or neither, more often than not",
        0: "cannot be told from a coin",
    }
    parts = [f"{verdict}: {joined(names[side])}" for side, verdict in verdicts.items() if names[side]]
    if parts:
        yield f"{pairs}: {'; '.join(parts)}."


def _controls(results: RankedResults) -> Iterator[str]:
    """Name every metric that a control surpasses, clearly or not: it must beat all of them."""
    rates = [(result.metric, result.rate.mean) for result in results.main if result.rate.mean is not None]
    for control, level in rates:
        if control.group == "control":
            others = [(metric.name, rate) for metric, rate in rates if metric.group != "control"]
            worse = [f"{name} ({percent(rate)})" for name, rate in others if rate < level]
            yield from listing(
                f"The control {control.name} ({percent(level)}) has a higher win rate than", worse
            )
    for summary in results.controls:
        fooled = []
        for result in results.with_controls:
            wins = [won for pair, won in result.wins.items() if pair.worse == summary]
            losses = len(wins) - sum(wins)
            if result.metric.group != "control" and 2 * losses > len(wins):
                fooled.append(f"{result.metric.name} ({losses} of {len(wins)})")
        yield from listing(
            f"The summary '{summary}' is judged at least as good as the best one more often than not by",
            fooled,
        )


def _lengths(results: RankedResults, few: Sequence[str]) -> str:
    ratios = [results.ratios[pair] for pair in results.order.pairs if pair in results.ratios]
    longer = sum(ratio > 1 for ratio in ratios)
    shorter = sum(ratio < 1 for ratio in ratios)
    sentence = (
        f"The better summary is the longer one in {longer} of {counted(len(ratios), 'pair')}, "
        f"the shorter one in {shorter}."
    )
    poor = listing("Too few pairs of equal length to tell whether length decides:", few)
    return " ".join([sentence, *poor])


def _tests(tests: Sequence[PairedTest]) -> Iterator[str]:
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


def _power(sizes: Counter[Relation]) -> Iterator[str]:
    kinds: dict[int, list[str]] = {}
    for kind, size in sizes.items():
        kinds.setdefault(size, []).append(_name(kind))
    for size, names in kinds.items():
        pairs = f"{counted(size, 'pair')} of {joined(names)}"
        rate, difference = detectable_rate(size), detectable_difference(size)
        if rate is None or difference is None:
            yield f"{pairs} is too small a number: even if all were won, a coin could have done it."
        else:
            yield (
                f"With {pairs} a win rate has to be {percent(rate)} to be told from a coin with a power of "
                f"80%. A difference between two metrics has to be {percent(difference)} for that, even if "
                "the worse one is never right alone; more if it sometimes is, and after adjustment for "
                "several tests."
            )
