"""Ranked sets: how often does a metric judge the better of two summaries to be the better one?"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import combinations
from statistics import fmean

from msgspec.structs import replace

from selfreflect.metric import information
from selfreflect.report.overview import CONTROL
from selfreflect.sources.items import Item
from selfreflect.stats import Estimate
from selfreflect.table import Cell
from selfreflect.text import counted
from selfreflect.validate.base import MetricInfo, Value
from selfreflect.validate.ranked.pairs import (
    ADJUSTED_P,
    ALIKE,
    FEWEST_PAIRS,
    Lengths,
    MetricResult,
    Pair,
    compare_lengths,
    decide_pairs,
    is_clear,
    known_order,
    paired_tests,
)
from selfreflect.validate.statistics import detectable_difference, detectable_rate, side_of_chance, somers
from selfreflect.validate.study import (
    Finding,
    Layout,
    Numbers,
    Row,
    interval,
    summary_names,
    values_by_metric,
)

EMPTY, QUESTION, NONSENSE = f"{CONTROL}empty", f"{CONTROL}question repeated", f"{CONTROL}nonsense"
PASTED = f"{CONTROL}all answers pasted"
_RATE, _DIFFERENCE = ".1%", "+z.1%"
_P_FORMS = {"p": ".2g", ADJUSTED_P: ".2g"}
TIES = "ties are losses; pairs with an undefined value are counted and left out of n"
INTERVALS = "intervals: 95% BCa bootstrap over items; exact (Clopper-Pearson) where all items agree"
_FEW = f"a dash for fewer than {FEWEST_PAIRS}"
EQUAL = f"the longer of the two has at most {ALIKE} times the words of the other; {_FEW}"
SHORTER = f"only pairs whose better summary has fewer words; {_FEW}"
BALANCED = (
    "the mean of the rates among pairs whose better summary is longer and among those whose better one is "
    f"shorter; judging by length alone gives 50%; {_FEW} of either"
)
_RANKING_NOTES = (
    "win rate: mean over items of the share of their pairs in a known order that are won",
    TIES,
    f"at equal length: {EQUAL}",
    INTERVALS,
)
_COLUMN_NOTES = (
    "beats …: share of items whose best summary beats a text that says nothing; pasted wins: share of items "
    "where all conditioning answers, pasted, beat it",
    "prefers longer: mean over items of Somers' D of value and words, above 0 where longer summaries are "
    "judged better; no bias by itself, since better summaries may be longer",
)
_LONGER = "prefers longer"
_RANKING = Layout("Metrics by win rate", _RATE, (*_RANKING_NOTES, *_COLUMN_NOTES), {_LONGER: "+z.2f"})
_PAIRS = Layout("How often the better summary wins", _RATE, _RANKING_NOTES[1:])
_TEST_NOTES = (
    "difference in win rate on the pairs that both have values for; p: exact McNemar test, a dash where both "
    "win the same pairs",
    "p (Holm): adjusted for all tests of the metric on pairs of the same kind",
    INTERVALS,
)
_REFERENCES = {"selfreflect": "SelfReflect", "information": "Usable information"}
"""The groups whose metrics are tested against all others."""
_AGAINST_CHANCE: dict[int | None, str] = {
    1: "prefer the better summary more often than a coin would",
    -1: "prefer the worse summary, or neither, more often than not",
    0: "cannot be told from a coin",
}


class RankedSets:
    """Items whose summaries have a known order, see :func:`selfreflect.validate.ranked.pairs.known_order`.

    Args:
        controls: also measure the repeated question, an empty text, nonsense and all conditioning answers as
            summaries of each item. The item's best summary should beat the first three.

    Raises:
        DataError, ConfigError: as ``known_order``.
    """

    name = "ranked"

    def __init__(
        self,
        items: Sequence[Item],
        order: str | None = None,
        controls: bool = True,
    ) -> None:
        self.order = known_order(items, order)
        best = _best_summaries(self.order.pairs)
        usable: Sequence[Item] = [item for item in items if item.id in best]
        names = summary_names(usable)
        every = (
            tuple(_unused(name, names) for name in (QUESTION, EMPTY, NONSENSE, PASTED)) if controls else ()
        )
        self.controls = every[:2]
        self.more_controls = every[2:]
        """Shown as columns only."""
        self.items: list[Item] = []
        self.control_pairs: list[Pair] = []
        for item in usable:
            texts = dict(zip(every, (item.question, "", *_more_texts(item)), strict=False))
            texts = {name: text for name, text in texts.items() if text is not None}
            self.items.append(replace(item, summaries={**item.summaries, **texts}))
            for name, text in texts.items():
                if item.summaries[best[item.id]] != text:
                    self.control_pairs.append(Pair(item.id, best[item.id], name))

    def finding(self, values: Sequence[Value], metrics: Sequence[MetricInfo]) -> Finding:
        numbers = values_by_metric(values)
        shown = [pair for pair in self.control_pairs if pair.worse not in self.more_controls]
        names = {pair: pair.kind for pair in (*self.order.pairs, *shown)}
        lengths = compare_lengths(self.items, names)
        in_order = frozenset(self.order.pairs)
        with_controls = [decide_pairs(metric, numbers.get(metric.name, {}), names) for metric in metrics]
        with_controls.sort(key=lambda result: _rank(result.among(in_order)))
        results = [result.among(in_order) for result in with_controls]
        finding = Finding(self.name)
        for row, result in zip(_ranking_rows(results, lengths), results, strict=True):
            finding.add(
                _RANKING, {**row, **self._columns(result.metric, numbers.get(result.metric.name, {}))}
            )
        finding.add(_PAIRS, *_pair_rows(with_controls, lengths))
        self._add_matched(finding, results, lengths)
        tests = [self._add_tests(finding, reference, results) for reference in _REFERENCES]
        if len(results) > 2 or not any(tests):
            self._add_all_tests(finding, results)
        rates = [(result.metric.name, result.rate) for result in results]
        self._say_data(finding)
        _say_against_chance(finding, "All pairs", rates)
        _say_better_controls(finding, results)
        _say_preferred_controls(finding, with_controls, self.controls)
        self._say_lengths(finding, lengths)
        alike = [(result.metric.name, result.matched_rate(lengths.alike)) for result in results]
        _say_against_chance(finding, "Pairs of about equal length", alike)
        for name, rows in zip(_REFERENCES.values(), tests, strict=True):
            unclear = sum(not is_clear(row) for row in rows)
            if unclear:
                finding.says.append(
                    f"Comparisons with {name} that show no clear difference, which is no proof of equality: "
                    f"{unclear} of {len(rows)}."
                )
        finding.says.append(self._power())
        title = "How often the better summary wins"
        finding.draw_dots("ranked", title, "win rate (0.5: chance)", rates, against=0.5)
        return finding

    def _columns(self, metric: MetricInfo, numbers: Numbers) -> Row:
        """How a metric's values stand to texts that say nothing, to pasted answers, and to length."""
        row: dict[str, Cell] = {}
        decided = decide_pairs(metric, numbers, {pair: pair.kind for pair in self.control_pairs}).decided
        for control in (*self.controls, *self.more_controls):
            wins = [won for pair, won in decided.items() if pair.worse == control]
            heading = f"beats {control.removeprefix(CONTROL)}"
            if control.startswith(PASTED):  # a tie is a loss, as everywhere
                heading = "pasted wins"
                turned = {
                    pair: (pair.worse, pair.better) for pair in self.control_pairs if pair.worse == control
                }
                wins = [*decide_pairs(metric, numbers, turned).decided.values()]
            row[heading] = fmean(wins) if wins else None
        made = {*self.controls, *self.more_controls}
        preferences: list[float] = []
        for item in self.items:
            names = [name for name in item.summaries if name not in made and (item.id, name) in numbers]
            words = [float(len(item.summaries[name].split())) for name in names]
            preference = somers(words, [-metric.badness(numbers[item.id, name]) for name in names])
            if preference is not None:
                preferences.append(preference)
        row[_LONGER] = fmean(preferences) if preferences else None
        return row

    def _add_matched(self, finding: Finding, results: Sequence[MetricResult], lengths: Lengths) -> None:
        """Add one table for each way of matching: next to each other they are too wide for a terminal."""
        ways: list[tuple[str, str, Callable[[MetricResult], Estimate]]] = [
            ("equal length", EQUAL, lambda result: result.matched_rate(lengths.alike)),
            ("the better summary is shorter", SHORTER, lambda result: result.matched_rate(lengths.shorter)),
            ("balanced", BALANCED, lambda result: result.balanced_rate(lengths)),
        ]
        for way, note, rate_of in ways:
            layout = Layout(f"After matching for length: {way}", _RATE, (note, TIES, INTERVALS))
            for result in results:
                for kind in self.order.kinds:
                    rate = rate_of(result.of_kind(kind))
                    names: Row = {"metric": result.metric.name, "better": kind[0], "worse": kind[1]}
                    finding.add(layout, {**names, **interval("win rate", rate), "n": rate.n})

    def _add_tests(self, finding: Finding, reference: str, results: Sequence[MetricResult]) -> list[Row]:
        """Test the metrics of one group against all others, and return the rows."""
        title = f"{_REFERENCES[reference]} against the other metrics on the same pairs"
        layout = Layout(title, _DIFFERENCE, _TEST_NOTES, _P_FORMS)
        tests: list[Row] = []
        for own in results:
            if own.metric.group == reference and len(results) > 1:
                against = [(own, result) for result in results if result is not own]
                for kind in self.order.kinds:
                    tests += paired_tests(against, kind)
                finding.add(layout, *tests)
        return tests

    def _add_all_tests(self, finding: Finding, results: Sequence[MetricResult]) -> None:
        """Test all metrics against each other, and show only clear differences: of 14 metrics there would be
        91 rows for each kind of pair."""
        sides = list(combinations(results, 2))
        notes = (
            f"of the {len(sides)} pairs of metrics on each kind of pair, those with a clear difference, the "
            "one that wins more often first; all others show none, which is no proof of equality",
            "p: exact McNemar test; p (Holm): adjusted for all tests on pairs of the same kind, that is for "
            f"up to {len(sides)}",
        )
        layout = Layout("All metrics against each other on the same pairs", _DIFFERENCE, notes, _P_FORMS)
        for kind in self.order.kinds:
            for row in filter(is_clear, paired_tests(sides, kind, winner_first=True)):
                finding.add(layout, row)

    def _say_data(self, finding: Finding) -> None:
        counts = {
            "Pairs of summaries in a known order": len(self.order.pairs),
            "items": len({pair.item for pair in self.order.pairs}),
            "pairs left out because both texts are the same": len(self.order.identical),
            "items left out because no order is known": len(self.order.without),
        }
        finding.tally(counts)

    def _say_lengths(self, finding: Finding, lengths: Lengths) -> None:
        in_order = lengths.comparable & set(self.order.pairs)
        finding.says.append(
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


def _more_texts(item: Item) -> tuple[str | None, str | None]:
    """Nonsense, and all conditioning answers pasted; None for what an item has not."""
    texts = information.control_texts(item.question, item.conditioning)
    nonsense = next((text for control, text in texts if control.name == "nonsense"), None)
    pasted = max((pair for pair in texts if pair[0].answers), key=lambda pair: pair[0].answers, default=None)
    return nonsense, pasted[1] if pasted else None


def _unused(name: str, names: Sequence[str]) -> str:
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


def _ranking_rows(results: Sequence[MetricResult], lengths: Lengths) -> Iterator[Row]:
    for result in results:
        alike = result.matched_rate(lengths.alike)
        yield {
            "metric": result.metric.name,
            "group": result.metric.group,
            **interval("win rate", result.rate),
            "items": result.rate.n,
            "pairs": len(result.decided),
            "undefined": result.undefined,
            **interval("at equal length", alike, "equal low", "equal high"),
            "equal items": alike.n,
        }


def _pair_rows(results: Sequence[MetricResult], lengths: Lengths) -> Iterator[Row]:
    """A row for each metric and kind of pair, those with controls too."""
    for of_metric in results:
        for kind in dict.fromkeys(pair.kind for pair in of_metric.wins):
            result = of_metric.of_kind(kind)
            alike = result.matched_rate(lengths.alike)
            row: Row = {
                "metric": result.metric.name,
                "better": kind[0],
                "worse": kind[1],
                "wins": sum(result.decided.values()),
                "n": result.rate.n,
                **interval("win rate", result.rate),
                "undefined": result.undefined,
                "at equal length": alike.mean,
                "n equal": alike.n,
            }
            yield row


def _say_against_chance(finding: Finding, pairs: str, rates: Sequence[tuple[str, Estimate]]) -> None:
    """Tell win rates from a coin: a metric that wins among all pairs only may prefer length."""
    sides: dict[str, int | None] = {}
    for name, rate in rates:
        if rate.mean is not None:
            sides[name] = side_of_chance(rate)
    finding.give_verdicts(sides, {side: f"{pairs}: {text}" for side, text in _AGAINST_CHANCE.items()})


def _say_better_controls(finding: Finding, results: Sequence[MetricResult]) -> None:
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
        finding.list_names(
            f"The control {control.metric.name} ({level:.0%}) has a higher win rate than", worse
        )


def _say_preferred_controls(
    finding: Finding, results: Sequence[MetricResult], controls: Sequence[str]
) -> None:
    for control in controls:
        fooled = []
        for result in results:
            wins = [win for pair, win in result.decided.items() if pair.worse == control]
            losses = wins.count(False)
            if result.metric.group != "control" and 2 * losses > len(wins):
                fooled.append(f"{result.metric.name} ({losses} of {len(wins)})")
        finding.list_names(
            f"The summary '{control}' is judged at least as good as the best one more often than not by",
            fooled,
        )
