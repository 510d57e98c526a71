"""Ranked sets: how often does a metric judge the better of two summaries to be the better one?"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

import msgspec

from selfreflect.render.table import Cell, Column, Table
from selfreflect.sources.items import Item
from selfreflect.stats import Estimate
from selfreflect.validate.base import MetricInfo, Value
from selfreflect.validate.ranked.conclusions import conclusions
from selfreflect.validate.ranked.order import KnownOrder, Pair, Relation, known_order
from selfreflect.validate.ranked.outcomes import (
    ALIKE,
    FEWEST_PAIRS,
    Outcomes,
    Ratios,
    alike,
    length_ratios,
    matched,
    outcomes,
)
from selfreflect.validate.ranked.padded import PADDED, PaddedResult, filler_table, padded_results
from selfreflect.validate.ranked.padding import pad
from selfreflect.validate.statistics import ALPHA, holm, paired_win_test, win_difference
from selfreflect.validate.study import Finding, dot_plot, interval_cells, values_by_metric

QUESTION, EMPTY = "control: question repeated", "control: empty"

_RATE, _DIFFERENCE = ".1%", "+z.1%"
RANKING_COLUMNS = (
    Column("metric"),
    Column("group"),
    Column("win rate", _RATE),
    Column("95% low", _RATE),
    Column("95% high", _RATE),
    Column("items", "d"),
    Column("pairs", "d"),
    Column("undefined", "d"),
    Column("at equal length", _RATE),
    Column("equal low", _RATE),
    Column("equal high", _RATE),
    Column("equal items", "d"),
)
PAIR_COLUMNS = (
    Column("metric"),
    Column("better"),
    Column("worse"),
    Column("wins", "d"),
    Column("n", "d"),
    Column("win rate", _RATE),
    Column("95% low", _RATE),
    Column("95% high", _RATE),
    Column("undefined", "d"),
    Column("at equal length", _RATE),
    Column("n equal", "d"),
)
PADDED_COLUMNS = (*PAIR_COLUMNS, Column("padded", _RATE), Column("n padded", "d"))
MATCHED_COLUMNS = (
    Column("metric"),
    Column("better"),
    Column("worse"),
    Column("win rate", _RATE),
    Column("95% low", _RATE),
    Column("95% high", _RATE),
    Column("n", "d"),
)
TEST_COLUMNS = (
    Column("metric"),
    Column("other"),
    Column("better"),
    Column("worse"),
    Column("difference", _DIFFERENCE),
    Column("95% low", _DIFFERENCE),
    Column("95% high", _DIFFERENCE),
    Column("n", "d"),
    Column("only metric", "d"),
    Column("only other", "d"),
    Column("p", ".2g"),
    Column("p (Holm)", ".2g"),
)

EVERY_COLUMNS = tuple(column for column in TEST_COLUMNS if not column.heading.startswith("95%"))

TIES = "ties are losses; pairs with an undefined value are counted and left out of n"
INTERVALS = "intervals: 95% BCa bootstrap over items; exact (Clopper-Pearson) where all items agree"
EQUAL = f"at equal length: the longer of the two has at most {ALIKE} times the words of the other; a dash for fewer than {FEWEST_PAIRS}"


@dataclass(frozen=True)
class PairedTest:
    """Two metrics on the pairs of one kind that both have values for."""

    one: MetricInfo
    other: MetricInfo
    kind: Relation
    difference: Estimate
    only_one: int
    only_other: int
    p: float | None
    adjusted: float | None


class RankedSets:
    """Items whose summaries have a known order, see :func:`selfreflect.validate.ranked.order.known_order`.

    Args:
        controls: whether two more summaries are measured of each item, the question repeated and an empty
            text. The item's best summary should beat both.
        padding: whether the shorter summary of each pair is measured once more, padded to the length of the
            longer one.
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
        padding: bool = False,
        seed: int = 0,
    ) -> None:
        self.known: KnownOrder = known_order(items, order)
        paired = {pair.item for pair in self.known.pairs}
        usable: Sequence[Item] = [item for item in items if item.id in paired]
        self.padding = pad(usable, self.known.pairs, seed) if padding else None
        usable = usable if self.padding is None else self.padding.items
        names = {name for item in usable for name in item.summaries}
        self.controls = tuple(_unused(name, names) for name in (QUESTION, EMPTY)) if controls else ()
        self.items: Sequence[Item] = [self._with_controls(item) for item in usable]
        best = {item.id: _best(item.id, self.known.pairs) for item in usable}
        self.control_pairs = tuple(
            Pair(item.id, best[item.id], name)
            for name in self.controls
            for item in self.items
            if item.summaries[best[item.id]] != item.summaries[name]
        )

    def _with_controls(self, item: Item) -> Item:
        texts = dict(zip(self.controls, (item.question, ""), strict=False))
        return msgspec.structs.replace(item, summaries={**item.summaries, **texts})

    def finding(self, values: Sequence[Value], metrics: Sequence[MetricInfo]) -> Finding:
        known = values_by_metric(values)
        pairs = (*self.known.pairs, *self.control_pairs)
        found = [outcomes(metric, known.get(metric.name, {}), pairs) for metric in metrics]
        main = {one.metric.name: one.of(set(self.known.pairs).__contains__) for one in found}
        found.sort(key=lambda one: -_place(main[one.metric.name].rate))
        ranked = [main[one.metric.name] for one in found]
        ratios = length_ratios(self.items, pairs)
        padded = (
            []
            if self.padding is None
            else padded_results(self.padding, [one.metric for one in ranked], known)
        )
        kinds = list(dict.fromkeys(pair.kind for pair in pairs))
        own_kinds = list(dict.fromkeys(pair.kind for pair in self.known.pairs))
        tests = _paired_tests(ranked, own_kinds)
        tables = [
            _ranking(ranked, ratios),
            _by_pair(found, kinds, ratios, padded),
            *_after_matching(ranked, own_kinds, ratios, padded),
            *([filler_table(padded)] if padded else []),
            *([_test_table(tests)] if tests else []),
            *(_every_test_table(ranked, own_kinds) if len(ranked) > 2 or not tests else ()),
        ]
        clear = [_clear(test) for test in tests if _is_clear(test)]
        says = conclusions(self.known, ranked, found, self.controls, ratios, padded, clear, len(tests))
        plots = dot_plot(
            "ranked",
            "How often the better summary wins",
            "win rate (0.5: chance)",
            [(one.metric.name, one.rate) for one in ranked],
            against=0.5,
        )
        return Finding(self.name, tuple(tables), says, plots)


def _unused(name: str, taken: set[str]) -> str:
    while name in taken:
        name += "*"
    return name


def _best(item: str, pairs: Sequence[Pair]) -> str:
    """The first of the item's summaries that no other one is known to beat. An order has no cycles, so there
    is one."""
    own = [pair for pair in pairs if pair.item == item]
    beaten = {pair.worse for pair in own}
    return next(pair.better for pair in own if pair.better not in beaten)


def _place(rate: Estimate) -> float:
    return -1 if rate.mean is None else rate.mean


def _shown(rate: Estimate) -> tuple[Cell, ...]:
    """Rate, low, high and n; only n where it is too small for a rate."""
    return (None, None, None, rate.n) if rate.n < FEWEST_PAIRS else (rate.mean, rate.low, rate.high, rate.n)


def _ranking(found: Sequence[Outcomes], ratios: Ratios) -> Table:
    rows = []
    for one in found:
        rate = one.rate
        cells = (rate.mean, rate.low, rate.high, rate.n, len(one.wins), one.undefined)
        rows.append((one.metric.name, one.metric.group, *cells, *_shown(alike(one, ratios).rate)))
    notes = (
        "win rate: the mean over items of the share of their ordered pairs that are won, control summaries left out",
        TIES,
    )
    return Table("Metrics by win rate", RANKING_COLUMNS, tuple(rows), (*notes, EQUAL, INTERVALS))


def _by_pair(
    found: Sequence[Outcomes], kinds: Sequence[Relation], ratios: Ratios, padded: Sequence[PaddedResult]
) -> Table:
    rows: list[tuple[Cell, ...]] = []
    by_metric = {one.outcomes.metric: one.outcomes for one in padded}
    for one, kind in ((one.of_kind(kind), kind) for one in found for kind in kinds):
        rate, equal = one.rate, _shown(alike(one, ratios).rate)
        cells: tuple[Cell, ...] = (
            sum(one.wins.values()),
            rate.n,
            rate.mean,
            rate.low,
            rate.high,
            one.undefined,
            equal[0],
            equal[3],
        )
        if padded:
            of_all = _shown(by_metric[one.metric].of_kind(kind).rate)
            cells += (of_all[0], of_all[3])
        rows.append((one.metric.name, *kind, *cells))
    title = "How often the better summary wins"
    if padded:
        return Table(title, PADDED_COLUMNS, tuple(rows), (TIES, EQUAL, PADDED, INTERVALS))
    return Table(title, PAIR_COLUMNS, tuple(rows), (TIES, EQUAL, INTERVALS))


def _after_matching(
    found: Sequence[Outcomes], kinds: Sequence[Relation], ratios: Ratios, padded: Sequence[PaddedResult]
) -> Iterator[Table]:
    """One table for each way of matching: side by side they are too wide for a terminal."""
    of = [((one.metric.name, *kind), matched(one.of_kind(kind), ratios)) for one in found for kind in kinds]
    few = f"a dash for fewer than {FEWEST_PAIRS}"
    yield _matched(
        "equal length", [(key, _shown(one.alike)) for key, one in of], EQUAL.removeprefix("at equal length: ")
    )
    if padded:
        rates = [
            ((one.outcomes.metric.name, *kind), _shown(one.outcomes.of_kind(kind).rate))
            for one in padded
            for kind in kinds
        ]
        yield _matched("padded to equal length", rates, PADDED.removeprefix("padded: "))
    shorter = f"only pairs whose better summary has fewer words; {few}"
    yield _matched("the better summary is shorter", [(key, _shown(one.shorter)) for key, one in of], shorter)
    balanced = (
        "the mean of the rates among pairs whose better summary is longer and among those whose better one is shorter; judging by length "
        f"alone gives 50%; {few} of either"
    )
    yield _matched(
        "balanced", [(key, (*interval_cells(one.balanced), one.balanced.n)) for key, one in of], balanced
    )


def _matched(way: str, rows: Sequence[tuple[tuple[str, ...], tuple[Cell, ...]]], note: str) -> Table:
    cells = tuple((*key, *rate) for key, rate in rows)
    return Table(f"After matching for length: {way}", MATCHED_COLUMNS, cells, (note, TIES, INTERVALS))


def _paired_tests(found: Sequence[Outcomes], kinds: Sequence[Relation]) -> list[PairedTest]:
    """SelfReflect against every other metric, or nothing where it was not measured; adjusted among the tests
    of one kind of pair."""
    reference = next((one for one in found if one.metric.group == "selfreflect"), None)
    if reference is None:
        return []
    others = [one for one in found if one is not reference]
    return [test for kind in kinds for test in _tests_of_kind(reference.of_kind(kind), others, kind)]


def _tests_of_kind(reference: Outcomes, others: Sequence[Outcomes], kind: Relation) -> Iterator[PairedTest]:
    common = [[pair for pair in reference.wins if pair in other.wins] for other in others]
    sides = [
        ([reference.wins[p] for p in pairs], [other.wins[p] for p in pairs])
        for other, pairs in zip(others, common, strict=True)
    ]
    tested = [paired_win_test(*side) for side in sides]
    for other, (a, b), p, adjusted in zip(others, sides, tested, holm(tested), strict=True):
        only = (
            sum(x and not y for x, y in zip(a, b, strict=True)),
            sum(y and not x for x, y in zip(a, b, strict=True)),
        )
        yield PairedTest(reference.metric, other.metric, kind, win_difference(a, b), *only, p, adjusted)


def _test_table(tests: Sequence[PairedTest]) -> Table:
    rows = tuple(
        (
            *(test.one.name, test.other.name, *test.kind),
            *(test.difference.mean, test.difference.low, test.difference.high, test.difference.n),
            *(test.only_one, test.only_other, test.p, test.adjusted),
        )
        for test in tests
    )
    notes = (
        "difference in win rate on the pairs that both have values for; p: exact McNemar test, a dash where both win the same pairs",
        "p (Holm): adjusted for all tests on pairs of the same kind",
        INTERVALS,
    )
    return Table("SelfReflect against the other metrics on the same pairs", TEST_COLUMNS, rows, notes)


def _every_test_table(found: Sequence[Outcomes], kinds: Sequence[Relation]) -> Iterator[Table]:
    """Only differences that are clear, if any: of 14 metrics there would be 91 rows for each kind of pair."""
    rows: list[tuple[Cell, ...]] = []
    for kind in kinds:
        sides = [
            ((one, other), [(one.wins[pair], other.wins[pair]) for pair in one.wins if pair in other.wins])
            for one, other in combinations([one.of_kind(kind) for one in found], 2)
        ]
        tested = [paired_win_test([a for a, _ in won], [b for _, b in won]) for _, won in sides]
        for (metrics, won), p, adjusted in zip(sides, tested, holm(tested), strict=True):
            alone = [sum(a and not b for a, b in won), sum(b and not a for a, b in won)]
            if adjusted is not None and adjusted <= ALPHA:
                more, less = sorted((0, 1), key=lambda side: -alone[side])
                names = (metrics[more].metric.name, metrics[less].metric.name)
                difference = (alone[more] - alone[less]) / len(won)
                rows.append((*names, *kind, difference, len(won), alone[more], alone[less], p, adjusted))
    count = math.comb(len(found), 2)
    notes = (
        f"of the {count} pairs of metrics on each kind of pair, those with a clear difference, the one that wins more often first; all "
        "others show none, which is no proof of equality",
        f"p: exact McNemar test; p (Holm): adjusted for all tests on pairs of the same kind, that is for up to {count}",
    )
    if rows:
        yield Table("All metrics against each other on the same pairs", EVERY_COLUMNS, tuple(rows), notes)


def _is_clear(test: PairedTest) -> bool:
    return test.adjusted is not None and test.adjusted <= ALPHA


def _clear(test: PairedTest) -> str:
    verb = "more" if test.only_one > test.only_other else "less"
    return f"{test.one.name} wins {verb} often than {test.other.name} on {' > '.join(test.kind)} (adjusted p = {test.adjusted:.2g})"
