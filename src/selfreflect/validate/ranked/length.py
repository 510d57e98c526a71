"""The length audit: does a metric judge longer summaries to be better?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from selfreflect.errors import DataError
from selfreflect.render.table import Cell
from selfreflect.sources.items import Item
from selfreflect.stats import Estimate
from selfreflect.validate.base import MetricInfo, Value
from selfreflect.validate.statistics import FEWEST, bounded_mean, correlation_interval, somers
from selfreflect.validate.study import (
    Finding,
    counted,
    dot_plot,
    interval,
    listing,
    make_table,
    values_by_metric,
    with_interval,
)

_CORRELATION = "+z.2f"
NOTES = (
    "above 0 where longer summaries are judged better; length in words",
    "within items: mean over items of Somers' D, how much more often the longer of two summaries is judged "
    "better than worse; interval: 95% BCa bootstrap over items",
    "over all: Spearman's rank correlation over all summaries; interval: 95% percentile bootstrap over "
    "items; it mixes the length of summaries with the difficulty of questions",
)


@dataclass(frozen=True)
class LengthPreference:
    """How one metric's values go with length; above 0 if longer is judged better."""

    metric: MetricInfo
    within: Estimate
    """Over items. Somers' D rather than Spearman's rho within an item, because it is defined for two
    summaries too."""
    overall: Estimate
    """Over summaries."""
    undefined: int

    @property
    def side(self) -> int | None:
        """1 if longer is clearly judged better, -1 if shorter is, 0 if neither is clear; None without
        values."""
        if self.within.mean is None:
            return None
        return 0 if self.within.n < FEWEST else self.within.side_of(0)

    @property
    def row(self) -> dict[str, Cell]:
        return {
            "metric": self.metric.name,
            **interval("within items", self.within),
            "items": self.within.n,
            **interval("over all", self.overall, "over all low", "over all high"),
            "summaries": self.overall.n,
            "undefined": self.undefined,
        }


class LengthStudy:
    """Summaries against their lengths.

    Raises:
        DataError: no item has two summaries of different length.
    """

    name = "length"

    def __init__(self, items: Sequence[Item]) -> None:
        self.items = items
        self._words: dict[str, dict[str, int]] = {}
        for item in items:
            self._words[item.id] = {name: len(text.split()) for name, text in item.summaries.items()}
        if all(len(set(words.values())) < 2 for words in self._words.values()):
            raise DataError("no item has two summaries of different length, so there is nothing to audit")

    def finding(self, values: Sequence[Value], metrics: Sequence[MetricInfo]) -> Finding:
        numbers = values_by_metric(values)
        audits = [self._audit(metric, numbers.get(metric.name, {})) for metric in metrics]
        rows = [audit.row for audit in audits]
        table = make_table("Values against length of the summary", rows, _CORRELATION, NOTES)
        plots = dot_plot(
            "length",
            "Longer summaries judged better within items",
            "Somers' D (0: no preference)",
            [(audit.metric.name, audit.within) for audit in audits],
            against=0,
        )
        total = sum(len(words) for words in self._words.values())
        says = (f"Summaries: {total}, of {counted(len(self.items), 'item')}.", *_says(audits))
        return Finding(self.name, (table,), says, plots)

    def _audit(self, metric: MetricInfo, values: Mapping[tuple[str, str], float]) -> LengthPreference:
        all_words: list[float] = []
        all_goodness: list[float] = []
        items: list[str] = []
        preferences = []
        undefined = 0
        for item, words_by_name in self._words.items():
            names = [name for name in words_by_name if (item, name) in values]
            words = [float(words_by_name[name]) for name in names]
            goodness = [-metric.badness(values[item, name]) for name in names]
            preference = somers(words, goodness)
            if preference is not None:
                preferences.append(preference)
            all_words += words
            all_goodness += goodness
            items += [item] * len(names)
            undefined += len(words_by_name) - len(names)
        overall = correlation_interval(all_words, all_goodness, groups=items)
        return LengthPreference(metric, bounded_mean(preferences, -1, 1), overall, undefined)


def _says(audits: Sequence[LengthPreference]) -> Iterator[str]:
    items = max((audit.within.n for audit in audits), default=0)
    if items < FEWEST:
        which = f"{counted(items, 'item')} with values for summaries of different length"
        yield f"{which} is too small a number for any conclusion."
        return
    names: dict[int | None, list[str]] = {1: [], -1: [], 0: [], None: []}
    for audit in audits:
        interval_text = f" ({with_interval(audit.within, _CORRELATION)})" if audit.side else ""
        names[audit.side].append(audit.metric.name + interval_text)
    yield from listing("Judge the longer of two summaries of one item to be better:", names[1])
    yield from listing("Judge the shorter of two summaries of one item to be better:", names[-1])
    yield from listing("No clear preference for longer or shorter summaries:", names[0])
    yield from listing("Without values to compare with length:", names[None])
    yield (
        "A correlation alone is no bias: where the better summaries happen to be longer, a metric that is "
        "right prefers them too. Ranked sets tell the two apart, by pairs of equal length and pairs whose "
        "better summary is the shorter one."
    )
