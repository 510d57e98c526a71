"""What ranked sets say in words: what can and what cannot be concluded from the pairs at hand."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from selfreflect.stats import Estimate
from selfreflect.validate.ranked.order import KnownOrder, Relation
from selfreflect.validate.ranked.outcomes import FEWEST_PAIRS, Outcomes, Ratios, alike, is_alike
from selfreflect.validate.ranked.padded import PaddedResult, filler_says
from selfreflect.validate.statistics import detectable_difference, detectable_rate
from selfreflect.validate.study import counted, joined, percent


def conclusions(
    known: KnownOrder,
    ranked: Sequence[Outcomes],
    found: Sequence[Outcomes],
    controls: Sequence[str],
    ratios: Ratios,
    padded: Sequence[PaddedResult],
    clear: Sequence[str],
    tests: int,
) -> tuple[str, ...]:
    """Paragraphs, most important first.

    Args:
        ranked: the metrics on the ordered pairs.
        found: the same with the pairs of control summaries.
        controls: the names of those.
        padded: the metrics on the ordered pairs padded to equal length; empty where nothing was padded.
        clear: sentences on the paired tests that show a difference, out of ``tests``.
    """
    kinds = list(dict.fromkeys(pair.kind for pair in known.pairs))
    paragraphs = [
        _compared(known),
        *_measured(ranked),
        *_against_chance(ranked),
        *_controls(ranked, kinds),
        *_control_summaries(found, controls),
        _length(known, ratios),
        *_at_equal_length(known, ranked, ratios),
        *_padded(ranked, padded),
        *filler_says(padded),
        *_paired(clear, tests),
        *_power(Counter(pair.kind for pair in known.pairs)),
    ]
    return tuple(paragraphs)


def _compared(known: KnownOrder) -> str:
    items = len({pair.item for pair in known.pairs})
    said = (
        f"{counted(len(known.pairs), 'pair')} of summaries in a known order, from {counted(items, 'item')}."
    )
    if known.identical:
        said += f" {counted(len(known.identical), 'more pair')} had the same text twice and {_was(known.identical)} left out."
    if known.without:
        said += f" {counted(len(known.without), 'item')} had no summaries in a known order and {_was(known.without)} left out."
    return said


def _was(left_out: Sequence[object]) -> str:
    return "was" if len(left_out) == 1 else "were"


def _measured(ranked: Sequence[Outcomes]) -> Iterator[str]:
    if some := [
        f"{one.metric.name} ({one.undefined} of {len(one.pairs)})" for one in ranked if one.undefined
    ]:
        yield f"Pairs without a value on one side, about which nothing is said: {joined(some)}."


def _against_chance(ranked: Sequence[Outcomes]) -> Iterator[str]:
    sides: dict[str, list[str]] = {"more": [], "less": [], "unclear": []}
    for one in ranked:
        if one.wins:
            sides[_side(one.rate)].append(one.metric.name)
    if sides["more"]:
        yield f"Prefer the better summary more often than a coin would: {joined(sides['more'])}."
    if sides["less"]:
        yield f"Prefer the worse summary, or neither, more often than not: {joined(sides['less'])}."
    if sides["unclear"]:
        yield f"Cannot be told from a coin on these pairs: {joined(sides['unclear'])}."


def _side(rate: Estimate) -> str:
    """Where the interval lies. Five wins of five are not enough for a coin to be ruled out at 5 %, by a
    bootstrap they might be."""
    if rate.low is None or rate.high is None or detectable_rate(rate.n) is None:
        return "unclear"
    return "more" if rate.low > 0.5 else "less" if rate.high < 0.5 else "unclear"


def _controls(ranked: Sequence[Outcomes], kinds: Sequence[Relation]) -> Iterator[str]:
    """A control that has the higher win rate is named, clear or not: a metric must beat it."""
    for kind in kinds:
        of_kind = [one.of_kind(kind) for one in ranked]
        for control in (one for one in of_kind if one.metric.group == "control" and one.wins):
            level = control.rate.mean or 0.0
            beaten = [
                one
                for one in of_kind
                if one.metric.group != "control" and one.wins and (one.rate.mean or 0.0) < level
            ]
            if beaten:
                names = joined([f"{one.metric.name} ({percent(one.rate.mean or 0.0)})" for one in beaten])
                yield f"On {' > '.join(kind)} the control {control.metric.name} ({percent(level)}) has a higher win rate than {names}."


def _control_summaries(found: Sequence[Outcomes], controls: Sequence[str]) -> Iterator[str]:
    for name in controls:
        against = [_against(one, name) for one in found]
        fooled = [
            f"{one.metric.name} ({len(one.wins) - sum(one.wins.values())} of {len(one.wins)})"
            for one in against
            if one.metric.group != "control" and one.wins and 2 * sum(one.wins.values()) < len(one.wins)
        ]
        if fooled:
            yield f"The summary '{name}' is judged at least as good as the best one more often than not by {joined(fooled)}."


def _against(one: Outcomes, control: str) -> Outcomes:
    return one.of(lambda pair: pair.worse == control)


def _length(known: KnownOrder, ratios: Ratios) -> str:
    measured = [ratios[pair] for pair in known.pairs if pair in ratios]
    longer, shorter = sum(ratio > 1 for ratio in measured), sum(ratio < 1 for ratio in measured)
    said = f"The better summary is the longer one in {longer} of {counted(len(measured), 'pair')}, the shorter one in {shorter}."
    similar = Counter(pair.kind for pair in known.pairs if is_alike(pair, ratios))
    poor = [
        " > ".join(kind)
        for kind in dict.fromkeys(pair.kind for pair in known.pairs)
        if similar[kind] < FEWEST_PAIRS
    ]
    if poor:
        said += f" Too few pairs of equal length to tell whether length decides: {joined(poor)}."
    return said


def _at_equal_length(known: KnownOrder, ranked: Sequence[Outcomes], ratios: Ratios) -> Iterator[str]:
    """Which pairs these are is said too: they may be of one kind, and then say nothing of the others."""
    sizes = Counter(pair.kind for pair in known.pairs)
    similar = Counter(pair.kind for pair in known.pairs if is_alike(pair, ratios))
    rates = [(one, alike(one, ratios).rate) for one in ranked]
    shown = [(one, rate) for one, rate in rates if rate.n >= FEWEST_PAIRS]
    kinds = joined([f"{similar[kind]} of {size} {' > '.join(kind)}" for kind, size in sizes.items()])
    yield from _kept_and_lost(f"Of about equal length: {counted(similar.total(), 'pair')} ({kinds}).", shown)


def _padded(ranked: Sequence[Outcomes], padded: Sequence[PaddedResult]) -> Iterator[str]:
    by_metric = {one.outcomes.metric: one.outcomes for one in padded}
    shown = [(one, by_metric[one.metric].rate) for one in ranked if one.metric in by_metric]
    pairs = max((len(one.pairs) for one in by_metric.values()), default=0)
    yield from _kept_and_lost(f"Padded to equal length with neutral filler: {counted(pairs, 'pair')}.", shown)


def _kept_and_lost(which: str, rates: Sequence[tuple[Outcomes, Estimate]]) -> Iterator[str]:
    """Who prefers the better summary among some of the pairs, and who does so only among all of them."""
    kept = [one.metric.name for one, rate in rates if _side(rate) == "more"]
    lost = [one.metric.name for one, rate in rates if _side(rate) != "more" and _side(one.rate) == "more"]
    if kept:
        which += f" Among them prefer the better summary more often than a coin would: {joined(kept)}."
    if lost:
        which += (
            f" Among them this is not shown, so that length may be what is preferred, for: {joined(lost)}."
        )
    if kept or lost:
        yield which


def _paired(clear: Sequence[str], tests: int) -> Iterator[str]:
    if clear:
        yield f"Clear after adjustment for all tests on pairs of the same kind: {'; '.join(clear)}."
    if unclear := tests - len(clear):
        yield f"Comparisons with SelfReflect that show no clear difference, which is no proof of equality: {unclear} of {tests}."


def _power(sizes: Mapping[Relation, int]) -> Iterator[str]:
    for n in dict.fromkeys(sizes.values()):
        name = joined([" > ".join(kind) for kind, size in sizes.items() if size == n])
        rate, difference = detectable_rate(n), detectable_difference(n)
        if rate is None or difference is None:
            yield f"{counted(n, 'pair')} of {name} is too small a number: even if all were won, a coin could have done it."
        else:
            yield (
                f"With {counted(n, 'pair')} of {name} a win rate has to be {percent(rate)} to be told from a coin with a power of 80%. A "
                f"difference between two metrics has to be {percent(difference)} for that, even if the worse one is never right alone; "
                "more if it sometimes is, and after adjustment for several tests."
            )
