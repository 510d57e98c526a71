"""The length audit: does a metric judge longer summaries to be better?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

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
        total = sum(len(words) for words in self._words.values())
        preferences: dict[str, Estimate] = {}
        rows: list[dict[str, Cell]] = []
        for metric in metrics:
            within, overall = self._preference(metric, numbers.get(metric.name, {}))
            preferences[metric.name] = within
            row = {"metric": metric.name, **interval("within items", within), "items": within.n}
            row |= interval("over all", overall, "over all low", "over all high")
            rows.append({**row, "summaries": overall.n, "undefined": total - overall.n})
        table = make_table("Values against length of the summary", rows, _CORRELATION, NOTES)
        plots = dot_plot(
            "length",
            "Longer summaries judged better within items",
            "Somers' D (0: no preference)",
            list(preferences.items()),
            against=0,
        )
        says = (f"Summaries: {total}, of {counted(len(self.items), 'item')}.", *_conclusions(preferences))
        return Finding(self.name, (table,), says, plots)

    def _preference(
        self, metric: MetricInfo, values: Mapping[tuple[str, str], float]
    ) -> tuple[Estimate, Estimate]:
        """How one metric's values go with length, over items and over summaries; above 0 if longer is judged
        better. Somers' D rather than Spearman's rho within an item, because it is defined for two summaries
        too."""
        all_words: list[float] = []
        all_goodness: list[float] = []
        items: list[str] = []
        within = []
        for item, words_by_name in self._words.items():
            names = [name for name in words_by_name if (item, name) in values]
            words = [float(words_by_name[name]) for name in names]
            goodness = [-metric.badness(values[item, name]) for name in names]
            preference = somers(words, goodness)
            if preference is not None:
                within.append(preference)
            all_words += words
            all_goodness += goodness
            items += [item] * len(names)
        return bounded_mean(within, -1, 1), correlation_interval(all_words, all_goodness, groups=items)


def _conclusions(preferences: Mapping[str, Estimate]) -> Iterator[str]:
    items = max((preference.n for preference in preferences.values()), default=0)
    if items < FEWEST:
        which = f"{counted(items, 'item')} with values for summaries of different length"
        yield f"{which} is too small a number for any conclusion."
        return
    names: dict[int | None, list[str]] = {1: [], -1: [], 0: [], None: []}
    for name, preference in preferences.items():
        side = None if preference.mean is None else preference.side_of(0)
        if preference.n < FEWEST and side is not None:
            side = 0
        names[side].append(f"{name} ({with_interval(preference, _CORRELATION)})" if side else name)
    yield from listing("Judge the longer of two summaries of one item to be better:", names[1])
    yield from listing("Judge the shorter of two summaries of one item to be better:", names[-1])
    yield from listing("No clear preference for longer or shorter summaries:", names[0])
    yield from listing("Without values to compare with length:", names[None])
    yield (
        "A correlation alone is no bias: where the better summaries happen to be longer, a metric that is "
        "right prefers them too. Ranked sets tell the two apart, by pairs of equal length and pairs whose "
        "better summary is the shorter one."
    )
