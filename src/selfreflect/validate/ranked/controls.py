"""Study ``controls``: does a summary tell more than texts that say nothing, and more than the answers
themselves, pasted?"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean

import numpy as np
from msgspec.structs import replace

from selfreflect.errors import DataError, excerpt
from selfreflect.metric import information
from selfreflect.plots import Curve, Plot
from selfreflect.report.comparison import PasteCurve, mean_curve
from selfreflect.report.overview import CONTROL
from selfreflect.report.results import control_text
from selfreflect.sources.items import Item
from selfreflect.stats import Estimate, mean_interval
from selfreflect.table import Cell
from selfreflect.text import counted
from selfreflect.validate.base import MetricInfo, Value
from selfreflect.validate.statistics import Indices, bootstrap
from selfreflect.validate.study import (
    Finding,
    Layout,
    Numbers,
    Row,
    dot,
    each_metric,
    interval,
    summary_names,
    with_interval,
)

EMPTY, QUESTION, NONSENSE = f"{CONTROL}empty", f"{CONTROL}question repeated", f"{CONTROL}nonsense"
SILENT = (EMPTY, QUESTION, NONSENSE)
"""Controls that say nothing about the answers."""
PASTED = {f"{CONTROL}1 answer pasted": 1, f"{CONTROL}2 answers pasted": 2, f"{CONTROL}5 answers pasted": 5}
"""Names and numbers of conditioning answers, pasted as a summary."""
MORE_SUBSETS = {
    f"{name}, subset {number}": name for name in PASTED for number in range(2, information.SUBSETS + 1)
}
"""Names of further subsets of as many answers; means over the subsets count."""
ALL_PASTED = f"{CONTROL}all answers pasted"

_SHARE = "z.0%"
_VALUE_NOTES = (
    "words: of the text; value: mean over items",
    "of all pasted: 100% is as good as all distinct conditioning answers pasted as a summary, 0% as good as "
    "an empty summary; sum over items; a dash where the pasted answers are no better",
    f"pasted answers: means over {information.SUBSETS} subsets of the distinct conditioning answers",
    "intervals: 95% bootstrap over items, BCa of values and percentile of shares",
)
_WIN_NOTES = (
    "share of items in which the metric finds the summary better than the control; a tie is a loss",
    "n: items with a value of the summary; a dash without a value of the control",
)
_CURVE_NOTES = (
    "curve: what raw answers tell in as many words, on the straight line between none, "
    f"{', '.join(map(str, PASTED.values()))} and all of them pasted, and no more than all",
    "above the curve: by how much the summary tells more, and the share of items where it does",
    "as answers, as words: how much has to be pasted to tell as much, by the means over items; a dash where "
    "it tells nothing, or more than all",
    "intervals: 95% bootstrap over items, BCa",
)
_SHARES = dict.fromkeys(("of all pasted", "share low", "share high"), _SHARE)
_VALUES = Layout("Summaries and controls", ".4g", _VALUE_NOTES, {**_SHARES, "words": ".0f"})
_WINS = Layout("How often a summary beats a control", _SHARE, _WIN_NOTES)
_CURVE_FORMS = {"words": ".0f", "items above": _SHARE, "as answers": ".1f", "as words": ".0f"}
_CURVE = Layout("Against the paste curve", "+z.1f", _CURVE_NOTES, _CURVE_FORMS)

ByName = Mapping[str, Mapping[str, float]]
"""One metric's values by the name of the text and the item."""
_VERDICTS = {1: "Above the paste curve", 0: "Not clearly off the paste curve", -1: "Below the paste curve"}


def control_texts(item: Item) -> dict[str, str]:
    """By name. Items with few answers lack some."""
    texts: dict[str, str] = {}
    for control, text in information.control_texts(item.question, item.conditioning):
        name = CONTROL + control_text(control, len(information.distinct(item.conditioning)))
        if name in texts:
            name = next(more for more, one in MORE_SUBSETS.items() if one == name and more not in texts)
        texts[name] = text
    return texts


class AgainstControls:
    """Every summary against an empty text, the repeated question, nonsense, and 1, 2, 5 and all conditioning
    answers pasted as a summary. No order of the summaries is needed. Every metric scores all these texts.

    Raises:
        DataError: no item has a conditioning answer with words in it, or a summary is called like a control.
    """

    name = "controls"

    def __init__(self, items: Sequence[Item]) -> None:
        usable = [item for item in items if any(map(str.strip, item.conditioning))]
        if not usable:
            raise DataError(f"none of the {len(items)} items has a conditioning answer with words in it")
        self.summaries = summary_names(usable)
        clashes = {*SILENT, *PASTED, *MORE_SUBSETS, ALL_PASTED}.intersection(self.summaries)
        if clashes:
            raise DataError(f"the summary name {excerpt(min(clashes))} is that of a control")
        self.items: list[Item] = []
        for item in usable:
            summaries = {**item.summaries, **control_texts(item)}
            self.items.append(replace(item, summaries=summaries, order=()))
        self._names: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
        """By kind of text and item, the names of its texts: one for each subset of pasted answers."""
        words: dict[tuple[str, str], float] = {}
        for item in self.items:
            for name, text in item.summaries.items():
                self._names[MORE_SUBSETS.get(name, name)][item.id].append(name)
                words[item.id, name] = len(text.split())
        self._words = self._by_name(words)
        self.controls = [name for name in (*SILENT, *PASTED, ALL_PASTED) if name in self._words]

    def finding(self, values: Sequence[Value], metrics: Sequence[MetricInfo]) -> Finding:
        finding = Finding(self.name, _VALUES, _WINS)
        finding.says.append(
            f"{counted(len(self.items), 'item')} and {counted(len(self.controls), 'control')}."
        )
        for metric, numbers in each_metric(values, metrics):
            values_of = self._by_name(numbers)
            shares: list[str] = []
            for name in (*self.summaries, *self.controls):
                row, share = self._value_row(metric, name, values_of)
                finding.add(_VALUES, row)
                if name in self.summaries and share.mean is not None:
                    shares.append(f"{name} {with_interval(share, _SHARE)}")
            if shares:
                texts = ", ".join(shares)
                finding.says.append(f"{metric.name}, from an empty summary to all answers pasted: {texts}.")
            wins = [self._win_row(metric, name, values_of) for name in self.summaries]
            finding.add(_WINS, *wins)
            finding.says += _silent_winners(metric, wins)
            if metric.group == "information":
                self._add_curve(finding, metric, values_of)
        return finding

    def _by_name(self, numbers: Numbers) -> ByName:
        """Means over subsets; without an item of which one has no value."""
        by_name: dict[str, dict[str, float]] = {name: {} for name in self._names}
        for name, by_item in self._names.items():
            for item, texts in by_item.items():
                values = [numbers[item, text] for text in texts if (item, text) in numbers]
                if len(values) == len(texts):
                    by_name[name][item] = fmean(values)
        return by_name

    def _value_row(self, metric: MetricInfo, name: str, values_of: ByName) -> tuple[Row, Estimate]:
        """One text's mean value, and its share of what all pasted answers reach."""
        words = self._words[name]
        mean = mean_interval(list(values_of[name].values()), len(words))
        share = _share(metric, values_of[name], values_of[ALL_PASTED], values_of[EMPTY])
        row = {
            "metric": metric.name,
            "summary": name,
            "words": fmean(words.values()),
            **interval("value", mean, "low", "high"),
            **interval("of all pasted", share, "share low", "share high"),
            "n": mean.n,
            "of": mean.total,
        }
        return row, share

    def _win_row(self, metric: MetricInfo, name: str, values_of: ByName) -> Row:
        row: dict[str, Cell] = {"metric": metric.name, "summary": name}
        for control in self.controls:
            wins = []
            for item, value in values_of[name].items():
                if item in values_of[control]:
                    wins.append(metric.wins(value, values_of[control][item]))
            row[_heading(control)] = fmean(wins) if wins else None
        row["n"] = len(values_of[name])
        return row

    def _curves(self, values_of: ByName) -> dict[str, PasteCurve]:
        """By item; of the items that have all values."""
        curves: dict[str, PasteCurve] = {}
        for item in self.items:
            points = [(0.0, 0.0, values_of.get(EMPTY, {}).get(item.id, 0.0))]
            for name, count in {**PASTED, ALL_PASTED: len(information.distinct(item.conditioning))}.items():
                if item.id in values_of.get(name, {}):
                    points.append((count, self._words[name][item.id], values_of[name][item.id]))
            if len(points) > sum(name in item.summaries for name in (*PASTED, ALL_PASTED)):
                answers, words, bits = zip(*points, strict=True)
                curves[item.id] = PasteCurve(answers, words, bits)
        return curves

    def _add_curve(self, finding: Finding, metric: MetricInfo, values_of: ByName) -> None:
        """Compare each kind of summary with the curves of its items: rows, sentences and a plot."""
        curves = self._curves(values_of)
        if not curves:
            return
        dots: list[Curve] = []
        for name in self.summaries:
            items = [item for item in curves if item in values_of[name]]
            if not items:
                continue
            own_words = self._words[name]
            words = fmean(own_words[item] for item in items)
            bits = mean_interval([values_of[name][item] for item in items], len(own_words))
            gains = [values_of[name][item] - curves[item].at(own_words[item]) for item in items]
            gain = mean_interval(gains, len(own_words))
            curve = mean_curve([curves[item] for item in items])
            height = bits.mean or 0.0
            answers, equal_words = curve.equal(height) or (None, None)
            row = {
                "metric": metric.name,
                "summary": name,
                "words": words,
                "bits": height,
                "curve": height - fmean(gains),
                **interval("above the curve", gain, "low", "high"),
                "items above": fmean(one > 0 for one in gains),
                "as answers": answers,
                "as words": equal_words,
                "n": gain.n,
            }
            finding.add(_CURVE, row)
            sentence = curve.sentence(f"{metric.name}: {name}", words, height)
            size = f"{with_interval(gain, '+.1f')} bits per answer"
            verdict = f"{_VERDICTS[gain.side_of(0)]}: {size} compared with raw answers in as many words."
            finding.says.append(f"{sentence} {verdict}")
            dots += dot(name, words, bits)
        pasted = mean_curve(list(curves.values()))
        line = Curve("answers pasted", tuple(pasted.words), tuple(pasted.bits))
        title = f"{metric.name}: summaries against answers pasted"
        labels = "words", "bits per answer"
        finding.plots.append(Plot(f"paste-{metric.name}", title, *labels, (line, *dots)))


def _share(
    metric: MetricInfo, own: Mapping[str, float], every: Mapping[str, float], nothing: Mapping[str, float]
) -> Estimate:
    """How far from an empty summary (0) to all answers (1): a ratio of sums over the items that have all
    values, with a percentile interval."""
    pairs = []
    for item, value in own.items():
        if item in every and item in nothing:
            start = metric.badness(nothing[item])
            pairs.append((start - metric.badness(value), start - metric.badness(every[item])))
    table = np.array(pairs).reshape(-1, 2)

    def ratio(items: Indices) -> float | None:
        gain, reachable = table[items].sum(axis=0)
        return float(gain / reachable) if reachable > 0 else None

    return bootstrap(ratio, len(table))


def _silent_winners(metric: MetricInfo, rows: Sequence[Row]) -> Iterator[str]:
    """Name the texts that say nothing and that are judged at least as good as a summary."""
    cases = []
    for row in rows:
        for control in map(_heading, SILENT):
            share = row[control]
            if isinstance(share, float) and share <= 0.5:
                cases.append(f"{row['summary']} beats '{control}' in {share:.0%}")
    if cases and metric.group != "control":
        start = (
            f"{metric.name} finds a text that says nothing as good as a summary in half of the items or more"
        )
        yield f"{start}: {'; '.join(cases)}."


def _heading(control: str) -> str:
    return control.removeprefix(CONTROL)
