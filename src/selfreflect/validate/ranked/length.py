"""The length audit: does a metric judge longer summaries to be better?"""

from __future__ import annotations

from collections.abc import Sequence

from selfreflect.errors import DataError
from selfreflect.sources.items import Item
from selfreflect.stats import Estimate
from selfreflect.text import counted
from selfreflect.validate.base import MetricInfo, Value
from selfreflect.validate.statistics import FEWEST_RESAMPLED, bounded_mean, correlation_interval, somers
from selfreflect.validate.study import Draft, Finding, Layout, Numbers, each_metric, interval

_PREFERENCES = Layout(
    "Values against length of the summary",
    "+z.2f",
    (
        "above 0 where longer summaries are judged better; length in words",
        "within items: mean over items of Somers' D, how much more often the longer of two summaries is "
        "judged better than worse; interval: 95% BCa bootstrap over items",
        "over all: Spearman's rank correlation over all summaries; interval: 95% percentile bootstrap over "
        "items; it mixes the length of summaries with the difficulty of questions",
    ),
)
_VERDICTS = {
    1: "Judge the longer of two summaries of one item to be better",
    -1: "Judge the shorter of two summaries of one item to be better",
    0: "No clear preference for longer or shorter summaries",
    None: "Without values to compare with length",
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
        draft = Draft(self.name, _PREFERENCES)
        total = sum(map(len, self._words.values()))
        preferences: list[tuple[str, Estimate]] = []
        sides: dict[str, int | None] = {}
        for metric, numbers in each_metric(values, metrics):
            within, overall = self._preference(metric, numbers)
            preferences.append((metric.name, within))
            sides[metric.name] = 0 if within.n else None
            if within.n >= FEWEST_RESAMPLED:
                sides[metric.name] = within.side_of(0)
            row = {
                "metric": metric.name,
                **interval("within items", within),
                "items": within.n,
                **interval("over all", overall, "over all low", "over all high"),
                "summaries": overall.n,
                "undefined": total - overall.n,
            }
            draft.add(_PREFERENCES, row)
        title = "Longer summaries judged better within items"
        draft.draw_dots("length", title, "Somers' D (0: no preference)", preferences, against=0)
        draft.tally({"Summaries": total, "items": len(self.items)})
        items = max((preference.n for _, preference in preferences), default=0)
        if items < FEWEST_RESAMPLED:
            which = f"{counted(items, 'item')} with values for summaries of different length"
            draft.says.append(f"{which} is too small a number for any conclusion.")
        else:
            draft.give_verdicts(sides, _VERDICTS)
            draft.says.append(
                "A correlation alone is no bias: where the better summaries happen to be longer, a metric "
                "that is right prefers them too. Ranked sets tell the two apart."
            )
        return draft.finding()

    def _preference(self, metric: MetricInfo, numbers: Numbers) -> tuple[Estimate, Estimate]:
        """How one metric's values go with length, within items and over all summaries; above 0 if longer is
        judged better. Within an item Somers' D, because it is defined for two summaries too."""
        all_words: list[float] = []
        all_goodness: list[float] = []
        items: list[str] = []
        within = []
        for item, words_by_name in self._words.items():
            names = [name for name in words_by_name if (item, name) in numbers]
            words = [float(words_by_name[name]) for name in names]
            goodness = [-metric.badness(numbers[item, name]) for name in names]
            preference = somers(words, goodness)
            if preference is not None:
                within.append(preference)
            all_words += words
            all_goodness += goodness
            items += [item] * len(names)
        return bounded_mean(within, -1, 1), correlation_interval(all_words, all_goodness, groups=items)
