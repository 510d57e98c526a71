"""What length has to do with it: the length audit, and filler that brings two summaries to equal length."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean

from msgspec.structs import replace

from selfreflect.errors import DataError
from selfreflect.models.base import seed_for
from selfreflect.sources.items import Item
from selfreflect.stats import Estimate, mean_interval
from selfreflect.text import counted
from selfreflect.validate.base import MetricInfo, Value
from selfreflect.validate.ranked.pairs import Pair, Relation
from selfreflect.validate.statistics import FEWEST_RESAMPLED, bounded_mean, correlation_interval, somers
from selfreflect.validate.study import Finding, Layout, Numbers, Row, each_metric, interval, worsenings

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
        finding = Finding(self.name, _PREFERENCES)
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
            finding.add(_PREFERENCES, row)
        title = "Longer summaries judged better within items"
        finding.draw_dots("length", title, "Somers' D (0: no preference)", preferences, against=0)
        finding.tally({"Summaries": total, "items": len(self.items)})
        items = max((preference.n for _, preference in preferences), default=0)
        if items < FEWEST_RESAMPLED:
            which = f"{counted(items, 'item')} with values for summaries of different length"
            finding.says.append(f"{which} is too small a number for any conclusion.")
        else:
            finding.give_verdicts(sides, _VERDICTS)
            finding.says.append(
                "A correlation alone is no bias: where the better summaries happen to be longer, a metric "
                "that is right prefers them too. Ranked sets tell the two apart."
            )
        return finding

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


FILLERS = (
    "Thank you for this question.",
    "It was good to be asked about it today.",
    "I hope that these lines are of some use to you.",
    "Please write again whenever there is something else you would like to ask.",
    "This is what I wanted to say here.",
    "Have a pleasant day, and give my best regards to everybody at home.",
    "Please take your time to read it.",
    "I am always glad to hear from you.",
)
"""Courtesies: they tell nothing about any answer, nor how sure one may be of it."""

FILLER_NOTES = (
    "change: value of the padded text minus value of the unpadded text, negated where higher is better, so "
    "that above 0 is worse for every metric; mean over items, each by the mean of its padded texts",
    "padded: which text of its pair was the shorter one. If filler makes worse texts worse still, wins after "
    "padding may be owed to it",
    "intervals: 95% BCa bootstrap over items",
)
FILLER = Layout("What filler alone changes", "+z.4f", FILLER_NOTES)


def pad_items(
    items: Sequence[Item], pairs: Sequence[Pair], seed: int
) -> tuple[list[Item], dict[Pair, Relation]]:
    """Pad the shorter summary of each pair to the words of the longer one. The seed, the item and the name
    decide on the filler.

    Returns:
        Items with padded summaries, and for each pair of texts with words the names of the two summaries of
        equal length that stand for it.
    """
    texts = {item.id: dict(item.summaries) for item in items}
    names: dict[Pair, Relation] = {}
    for pair in pairs:
        own = texts[pair.item]
        words = {name: len(own[name].split()) for name in pair.kind}
        shorter, longer = sorted(pair.kind, key=words.__getitem__)
        if words[shorter] == words[longer] > 0:
            names[pair] = pair.kind
        elif words[shorter]:
            name = f"{shorter}: padded to {words[longer]} words"
            rng = random.Random(seed_for(seed, pair.item, shorter, "filler"))
            text = fill_up(own[shorter], words[longer], rng)
            while own.get(name, text) != text:
                name += "*"
            own[name] = text
            names[pair] = (pair.better, name) if shorter == pair.worse else (name, pair.worse)
    return [replace(item, summaries=texts[item.id]) for item in items], names


def fill_up(text: str, words: int, rng: random.Random) -> str:
    """Continue a text with filler up to a number of words. More words continue the same filler."""
    text = text.rstrip()
    filler: list[str] = []
    while len(filler) < words:
        filler += " ".join(rng.sample(FILLERS, len(FILLERS))).split()
    filler = filler[: words - len(text.split())]
    if text[-1].isalnum():
        text += "."
    return " ".join([text, *filler]).rstrip(",.") + "."


def filler_rows(
    names: Mapping[Pair, Relation], metrics: Sequence[MetricInfo], values: Mapping[str, Numbers]
) -> Iterator[Row]:
    """How filler alone changes values: one change for each item, the mean over its padded texts of a role."""
    texts: dict[str, set[tuple[str, str, str]]] = {"worse": set(), "better": set()}
    for pair, (better, worse) in names.items():
        if better != pair.better:
            texts["better"].add((pair.item, pair.better, better))
        if worse != pair.worse:
            texts["worse"].add((pair.item, pair.worse, worse))
    for metric in metrics:
        for role, edits in texts.items():
            changes = worsenings(metric, values.get(metric.name, {}), sorted(edits))
            total = len({item for item, _, _ in edits})
            if total:
                change = mean_interval(list(map(fmean, changes.values())), total)
                cells = {"metric": metric.name, "padded": role, **interval("change", change)}
                yield {**cells, "items": change.n, "of": total}
