"""The tables of ranked sets."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import combinations

from selfreflect.render.table import Cell, Table
from selfreflect.stats import Estimate
from selfreflect.validate.ranked.results import (
    ALIKE,
    FEWEST_PAIRS,
    MetricResult,
    PairedTest,
    RankedResults,
    paired_tests,
)
from selfreflect.validate.study import interval, make_table

_RATE, _DIFFERENCE = ".1%", "+z.1%"
_P_FORMS = {"p": ".2g", "p (Holm)": ".2g"}
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


def tables(results: RankedResults) -> Iterator[Table]:
    yield _ranking_table(results.main)
    yield _pair_table(results)
    yield from _matching_tables(results)
    yield from results.filler_tables
    if results.tests:
        yield _test_table(results.tests)
    if len(results.main) > 2 or not results.tests:
        yield from _clear_difference_table(results)


def _if_enough(rate: Estimate) -> Estimate:
    """The rate without its numbers if it is over too few items."""
    return Estimate(None, None, None, rate.n, rate.total) if rate.n < FEWEST_PAIRS else rate


def _ranking_table(results: Sequence[MetricResult]) -> Table:
    rows: list[dict[str, Cell]] = []
    for result in results:
        alike = _if_enough(result.alike)
        rows.append(
            {
                "metric": result.metric.name,
                "group": result.metric.group,
                **interval("win rate", result.rate),
                "items": result.rate.n,
                "pairs": len(result.wins),
                "undefined": result.undefined,
                **interval("at equal length", alike, "equal low", "equal high"),
                "equal items": alike.n,
            }
        )
    notes = (
        "win rate: mean over items of the share of their pairs in a known order that are won",
        TIES,
        f"at equal length: {EQUAL}",
        INTERVALS,
    )
    return make_table("Metrics by win rate", rows, _RATE, notes)


def _pair_table(results: RankedResults) -> Table:
    padded = {result.metric.name: result for result in results.padded}
    rows: list[dict[str, Cell]] = []
    for all_pairs in results.with_controls:
        name = all_pairs.metric.name
        for kind in dict.fromkeys(pair.kind for pair in all_pairs.pairs):
            result = all_pairs.of_kind(kind)
            alike = _if_enough(result.alike)
            row: dict[str, Cell] = {
                "metric": name,
                "better": kind[0],
                "worse": kind[1],
                "wins": sum(result.wins.values()),
                "n": result.rate.n,
                **interval("win rate", result.rate),
                "undefined": result.undefined,
                "at equal length": alike.mean,
                "n equal": alike.n,
            }
            if padded:
                rate = _if_enough(padded[name].of_kind(kind).rate)
                row |= {"padded": rate.mean, "n padded": rate.n}
            rows.append(row)
    notes = [TIES, f"at equal length: {EQUAL}", f"padded: {PADDED}", INTERVALS]
    if not padded:
        del notes[2]
    return make_table("How often the better summary wins", rows, _RATE, notes)


def _matching_tables(results: RankedResults) -> Iterator[Table]:
    """One table for each way of matching: next to each other they are too wide for a terminal."""

    def table(
        way: str, note: str, metrics: Sequence[MetricResult], rate: Callable[[MetricResult], Estimate]
    ) -> Table:
        rows: list[dict[str, Cell]] = []
        for result in metrics:
            for better, worse in results.order.kinds:
                own = _if_enough(rate(result.of_kind((better, worse))))
                names = {"metric": result.metric.name, "better": better, "worse": worse}
                rows.append({**names, **interval("win rate", own), "n": own.n})
        return make_table(f"After matching for length: {way}", rows, _RATE, (note, TIES, INTERVALS))

    yield table("equal length", EQUAL, results.main, lambda result: result.alike)
    if results.padded:
        yield table("padded to equal length", PADDED, results.padded, lambda result: result.rate)
    yield table("the better summary is shorter", SHORTER, results.main, lambda result: result.shorter)
    yield table("balanced", BALANCED, results.main, lambda result: result.balanced)


def _test_row(test: PairedTest) -> dict[str, Cell]:
    return {
        "metric": test.one.name,
        "other": test.other.name,
        "better": test.kind[0],
        "worse": test.kind[1],
        **interval("difference", test.difference),
        "n": len(test.wins),
        "only metric": test.only_one,
        "only other": test.only_other,
        "p": test.p,
        "p (Holm)": test.adjusted_p,
    }


def _test_table(tests: Sequence[PairedTest]) -> Table:
    notes = (
        "difference in win rate on the pairs that both have values for; p: exact McNemar test, a dash where "
        "both win the same pairs",
        "p (Holm): adjusted for all tests on pairs of the same kind",
        INTERVALS,
    )
    title = "SelfReflect against the other metrics on the same pairs"
    return make_table(title, [_test_row(test) for test in tests], _DIFFERENCE, notes, _P_FORMS)


def _clear_difference_table(results: RankedResults) -> Iterator[Table]:
    """Only differences that are clear, if any: of 14 metrics there would be 91 rows for each kind of pair."""
    sides = list(combinations(results.main, 2))
    rows = []
    for kind in results.order.kinds:
        for test in paired_tests(sides, kind):
            if test.clear:
                row = _test_row(test if test.only_one > test.only_other else test.swapped())
                del row["95% low"], row["95% high"]
                rows.append(row)
    notes = (
        f"of the {len(sides)} pairs of metrics on each kind of pair, those with a clear difference, the one "
        "that wins more often first; all others show none, which is no proof of equality",
        "p: exact McNemar test; p (Holm): adjusted for all tests on pairs of the same kind, that is for up "
        f"to {len(sides)}",
    )
    if rows:
        title = "All metrics against each other on the same pairs"
        yield make_table(title, rows, _DIFFERENCE, notes, _P_FORMS)
