"""Ranked sets: how often does a metric judge the better of two summaries to be the better one?"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import combinations

from msgspec.structs import replace

from selfreflect.render.table import Cell, Table
from selfreflect.sources.items import Item
from selfreflect.stats import Estimate
from selfreflect.validate.base import MetricInfo, Value
from selfreflect.validate.ranked.controls import EMPTY, QUESTION
from selfreflect.validate.ranked.order import Pair, Relation, known_order
from selfreflect.validate.ranked.padding import filler_table, pad_items
from selfreflect.validate.ranked.results import (
    ADJUSTED_P,
    ALIKE,
    FEWEST_PAIRS,
    Lengths,
    MetricResult,
    compare_lengths,
    decide_pairs,
    is_clear,
    paired_tests,
)
from selfreflect.validate.statistics import (
    detectable_difference,
    detectable_rate,
    side_of_chance,
)
from selfreflect.validate.study import (
    Finding,
    by_side,
    counted,
    dot_plot,
    interval,
    listing,
    make_table,
    tallied,
    values_by_metric,
)

_RATE, _DIFFERENCE = ".1%", "+z.1%"
_P_FORMS = {"p": ".2g", ADJUSTED_P: ".2g"}
TIES = "ties are losses; pairs with an undefined value are counted and left out of n"
INTERVALS = "intervals: 95% BCa bootstrap over items; exact (Clopper-Pearson) where all items agree"
_FEW = f"a dash for fewer than {FEWEST_PAIRS}"
EQUAL = f"the longer of the two has at most {ALIKE} times the words of the other; {_FEW}"
PADDED = (
    "all pairs whose texts have words, the shorter one continued with filler to the words of the longer one"
)
SHORTER = f"only pairs whose better summary has fewer words; {_FEW}"
BALANCED = (
    "the mean of the rates among pairs whose better summary is longer and among those whose better one is "
    f"shorter; judging by length alone gives 50%; {_FEW} of either"
)

_AGAINST_CHANCE: dict[int | None, str] = {
    1: "prefer the better summary more often than a coin would",
    -1: "prefer the worse summary, or neither, more often than not",
    0: "cannot be told from a coin",
}


class RankedSets:
    """Items whose summaries have a known order, see :func:`selfreflect.validate.ranked.order.known_order`.

    Args:
        controls: also measure the repeated question and an empty text as summaries of each item. The item's
            best summary should beat both.
        pad: measure the shorter summary of each pair once more, padded to the length of the longer one.
        seed: decides on the filler.

    Raises:
        DataError, ConfigError: as ``known_order``.
    """

    name = "ranked"

    def __init__(
        self,
        items: Sequence[Item],
        order: str | None = None,
        controls: bool = True,
        *,
        pad: bool = False,
        seed: int = 0,
    ) -> None:
        self.order = known_order(items, order)
        best = _best_summaries(self.order.pairs)
        usable: Sequence[Item] = [item for item in items if item.id in best]
        self.padded: dict[Pair, Relation] = {}
        if pad:
            usable, self.padded = pad_items(usable, self.order.pairs, seed)
        names: set[str] = set()
        for item in usable:
            names.update(item.summaries)
        self.controls = tuple(_unused(name, names) for name in (QUESTION, EMPTY)) if controls else ()
        self.items: list[Item] = []
        self.control_pairs: list[Pair] = []
        for item in usable:
            texts = dict(zip(self.controls, (item.question, ""), strict=False))
            self.items.append(replace(item, summaries={**item.summaries, **texts}))
            for name, text in texts.items():
                if item.summaries[best[item.id]] != text:
                    self.control_pairs.append(Pair(item.id, best[item.id], name))

    def finding(self, values: Sequence[Value], metrics: Sequence[MetricInfo]) -> Finding:
        numbers = values_by_metric(values)
        kinds = self.order.kinds
        names = {pair: pair.kind for pair in (*self.order.pairs, *self.control_pairs)}
        lengths = compare_lengths(self.items, names)
        in_order = frozenset(self.order.pairs)
        with_controls = [decide_pairs(metric, numbers.get(metric.name, {}), names) for metric in metrics]
        with_controls.sort(key=lambda result: _rank(result.among(in_order)))
        results = [result.among(in_order) for result in with_controls]
        padded: list[MetricResult] = []
        filler_tables = []
        if self.padded:
            metrics = [result.metric for result in results]
            padded = [decide_pairs(one, numbers.get(one.name, {}), self.padded) for one in metrics]
            filler_tables.append(filler_table(self.padded, metrics, numbers))
        tests: list[dict[str, Cell]] = []
        for reference in results:
            if reference.metric.group == "selfreflect":
                sides = [(reference, result) for result in results if result is not reference]
                for kind in kinds:
                    tests += paired_tests(sides, kind)
        tables = [
            _ranking_table(results, lengths),
            _pair_table(with_controls, lengths, {result.metric.name: result for result in padded}),
            *_matching_tables(results, kinds, lengths, padded),
            *filler_tables,
        ]
        if tests:
            tables.append(_test_table(tests))
        if len(results) > 2 or not tests:
            tables += _clear_difference_table(results, kinds)
        rates = [(result.metric.name, result.rate) for result in results]
        says = [
            self._data(),
            *_against_chance("All pairs", rates),
            *_better_controls(results),
            *_preferred_controls(with_controls, self.controls),
            self._lengths(lengths),
        ]
        alike = [(result.metric.name, result.matched_rate(lengths.alike)) for result in results]
        says += _against_chance("Pairs of about equal length", alike)
        with_filler = [(result.metric.name, result.rate) for result in padded]
        says += _against_chance("All pairs, padded to equal length with neutral filler", with_filler)
        unclear = sum(not is_clear(test) for test in tests)
        if unclear:
            says.append(
                "Comparisons with SelfReflect that show no clear difference, which is no proof of equality: "
                f"{unclear} of {len(tests)}."
            )
        says.append(self._power())
        title, label = "How often the better summary wins", "win rate (0.5: chance)"
        plots = dot_plot("ranked", title, label, rates, against=0.5)
        return Finding(self.name, tuple(tables), tuple(says), plots)

    def _data(self) -> str:
        counts = {
            "Pairs of summaries in a known order": len(self.order.pairs),
            "items": len({pair.item for pair in self.order.pairs}),
            "pairs left out because both texts are the same": len(self.order.identical),
            "items left out because no order is known": len(self.order.without),
        }
        return tallied(counts)

    def _lengths(self, lengths: Lengths) -> str:
        in_order = lengths.comparable.intersection(self.order.pairs)
        return (
            f"The better summary is the longer one in {len(in_order & lengths.longer)} of "
            f"{counted(len(in_order), 'pair')}, the shorter one in {len(in_order & lengths.shorter)}."
        )

    def _power(self) -> str:
        """What the kind with the most pairs can show."""
        [(_, most)] = Counter(pair.kind for pair in self.order.pairs).most_common(1)
        pairs = f"{counted(most, 'pair')} of a kind"
        rate, difference = detectable_rate(most), detectable_difference(most)
        if rate is None or difference is None:
            return f"{pairs} is too small a number: even if all were won, a coin could have done it."
        return (
            f"With {pairs}, the most there are, a win rate has to be {rate:.0%} to be told from a coin "
            f"with a power of 80%, and a difference between two metrics {difference:.0%}, even if the "
            "worse one is never right alone."
        )


def _unused(name: str, names: set[str]) -> str:
    while name in names:
        name += "*"
    return name


def _best_summaries(pairs: Sequence[Pair]) -> dict[str, str]:
    """Item -> the first of its summaries that no other one is known to beat. An order has no cycles, so there
    is one."""
    beaten = {(pair.item, pair.worse) for pair in pairs}
    best: dict[str, str] = {}
    for pair in pairs:
        if (pair.item, pair.better) not in beaten:
            best.setdefault(pair.item, pair.better)
    return best


def _rank(result: MetricResult) -> float:
    """Orders metrics by falling win rate."""
    return math.inf if result.rate.mean is None else -result.rate.mean


def _names(metric: str, kind: Relation) -> dict[str, Cell]:
    return {"metric": metric, "better": kind[0], "worse": kind[1]}


def _ranking_table(results: Sequence[MetricResult], lengths: Lengths) -> Table:
    rows: list[dict[str, Cell]] = []
    for result in results:
        alike = result.matched_rate(lengths.alike)
        row: dict[str, Cell] = {"metric": result.metric.name, "group": result.metric.group}
        row |= interval("win rate", result.rate)
        row |= {"items": result.rate.n, "pairs": len(result.decided), "undefined": result.undefined}
        row |= interval("at equal length", alike, "equal low", "equal high")
        rows.append({**row, "equal items": alike.n})
    note = "win rate: mean over items of the share of their pairs in a known order that are won"
    notes = (note, TIES, f"at equal length: {EQUAL}", INTERVALS)
    return make_table("Metrics by win rate", rows, _RATE, notes)


def _pair_table(
    results: Sequence[MetricResult], lengths: Lengths, padded: Mapping[str, MetricResult]
) -> Table:
    """``results`` include the pairs with controls. ``padded`` is empty without padding."""
    rows: list[dict[str, Cell]] = []
    for all_pairs in results:
        name = all_pairs.metric.name
        for kind in dict.fromkeys(pair.kind for pair in all_pairs.wins):
            result = all_pairs.of_kind(kind)
            alike = result.matched_rate(lengths.alike)
            row = _names(name, kind) | {"wins": sum(result.decided.values()), "n": result.rate.n}
            row |= interval("win rate", result.rate)
            row |= {"undefined": result.undefined, "at equal length": alike.mean, "n equal": alike.n}
            if padded:
                with_filler = padded[name].of_kind(kind)
                rate = with_filler.matched_rate(with_filler.wins)
                row |= {"padded": rate.mean, "n padded": rate.n}
            rows.append(row)
    padded_notes = [f"padded: {PADDED}"] if padded else []
    notes = (TIES, f"at equal length: {EQUAL}", *padded_notes, INTERVALS)
    return make_table("How often the better summary wins", rows, _RATE, notes)


def _matching_tables(
    results: Sequence[MetricResult],
    kinds: Sequence[Relation],
    lengths: Lengths,
    padded: Sequence[MetricResult],
) -> Iterator[Table]:
    """One table for each way of matching: next to each other they are too wide for a terminal."""

    def table(
        way: str, note: str, metrics: Sequence[MetricResult], rate_of: Callable[[MetricResult], Estimate]
    ) -> Table:
        rows: list[dict[str, Cell]] = []
        for result in metrics:
            for kind in kinds:
                rate = rate_of(result.of_kind(kind))
                rows.append({**_names(result.metric.name, kind), **interval("win rate", rate), "n": rate.n})
        return make_table(f"After matching for length: {way}", rows, _RATE, (note, TIES, INTERVALS))

    yield table("equal length", EQUAL, results, lambda result: result.matched_rate(lengths.alike))
    if padded:
        yield table("padded to equal length", PADDED, padded, lambda own: own.matched_rate(own.wins))
    shorter = "the better summary is shorter"
    yield table(shorter, SHORTER, results, lambda result: result.matched_rate(lengths.shorter))
    yield table("balanced", BALANCED, results, lambda result: result.balanced_rate(lengths))


def _test_table(tests: Sequence[dict[str, Cell]]) -> Table:
    notes = (
        "difference in win rate on the pairs that both have values for; p: exact McNemar test, a dash where "
        "both win the same pairs",
        "p (Holm): adjusted for all tests on pairs of the same kind",
        INTERVALS,
    )
    title = "SelfReflect against the other metrics on the same pairs"
    return make_table(title, tests, _DIFFERENCE, notes, _P_FORMS)


def _clear_difference_table(results: Sequence[MetricResult], kinds: Sequence[Relation]) -> Iterator[Table]:
    """Only differences that are clear, if any: of 14 metrics there would be 91 rows for each kind of pair."""
    sides = list(combinations(results, 2))
    rows: list[dict[str, Cell]] = []
    for kind in kinds:
        rows += filter(is_clear, paired_tests(sides, kind, winner_first=True))
    notes = (
        f"of the {len(sides)} pairs of metrics on each kind of pair, those with a clear difference, the one "
        "that wins more often first; all others show none, which is no proof of equality",
        "p: exact McNemar test; p (Holm): adjusted for all tests on pairs of the same kind, that is for up "
        f"to {len(sides)}",
    )
    if rows:
        title = "All metrics against each other on the same pairs"
        yield make_table(title, rows, _DIFFERENCE, notes, _P_FORMS)


def _against_chance(pairs: str, rates: Sequence[tuple[str, Estimate]]) -> Iterator[str]:
    """Tell win rates from a coin: a metric that wins among all pairs only may prefer length."""
    sides: dict[str, int | None] = {}
    for name, rate in rates:
        if rate.mean is not None:
            sides[name] = side_of_chance(rate)
    for sentence in by_side(sides, _AGAINST_CHANCE):
        yield f"{pairs}: {sentence}"


def _better_controls(results: Sequence[MetricResult]) -> Iterator[str]:
    """Name every metric that a control surpasses, clearly or not: it must beat all of them."""
    for control in results:
        level = control.rate.mean
        if control.metric.group != "control" or level is None:
            continue
        worse = []
        for result in results:
            rate = result.rate.mean
            if result.metric.group != "control" and rate is not None and rate < level:
                worse.append(f"{result.metric.name} ({rate:.0%})")
        yield from listing(
            f"The control {control.metric.name} ({level:.0%}) has a higher win rate than", worse
        )


def _preferred_controls(results: Sequence[MetricResult], controls: Sequence[str]) -> Iterator[str]:
    for control in controls:
        fooled = []
        for result in results:
            wins = [win for pair, win in result.decided.items() if pair.worse == control]
            losses = wins.count(False)
            if result.metric.group != "control" and 2 * losses > len(wins):
                fooled.append(f"{result.metric.name} ({losses} of {len(wins)})")
        yield from listing(
            f"The summary '{control}' is judged at least as good as the best one more often than not by",
            fooled,
        )
