"""Study ``controls``: does a summary tell more than texts that say nothing, and more than the answers
themselves, pasted?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean

import numpy as np
from msgspec.structs import replace

from selfreflect.errors import DataError, excerpt
from selfreflect.metric import information
from selfreflect.render.plots import Curve, Plot
from selfreflect.render.table import Cell
from selfreflect.report.paste_curve import PasteCurve, mean_curve
from selfreflect.sources.items import Item
from selfreflect.stats import Estimate, mean_interval
from selfreflect.validate.base import MetricInfo, Value
from selfreflect.validate.statistics import Indices, bootstrap
from selfreflect.validate.study import (
    Finding,
    counted,
    dot,
    interval,
    make_table,
    tallied,
    values_by_metric,
    with_interval,
)

EMPTY, QUESTION, NONSENSE = "control: empty", "control: question repeated", "control: nonsense"
SILENT = {"empty": EMPTY, "question": QUESTION, "nonsense": NONSENSE}
"""Controls that say nothing about the answers, by the name of the record."""
PASTED = {
    "control: 1 answer pasted": 1,
    "control: 2 answers pasted": 2,
    "control: 5 answers pasted": 5,
}
"""Names and numbers of the first conditioning answers, pasted as a summary."""
ALL_PASTED = "control: all answers pasted"

_VALUE, _SHARE = ".4g", ".0%"
_VALUE_NOTES = (
    "words: of the text; value: mean over items",
    "of all pasted: 100% is as good as all conditioning answers pasted as a summary, 0% as good as nothing "
    "said, that is 0 bits of information, and by the other metrics the empty summary; sum over items; a dash "
    "where the pasted answers are no better than nothing",
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


_VERDICTS = {1: "Above the paste curve", 0: "Not clearly off the paste curve", -1: "Below the paste curve"}


def control_texts(item: Item) -> dict[str, str]:
    """By name. Items with few answers lack some."""
    texts: dict[str, str] = {}
    for control, text in information.control_texts(item.question, item.conditioning):
        if control.name != "pasted":
            name = SILENT[control.name]
        elif control.answers == len(item.conditioning):
            name = ALL_PASTED
        else:
            name = f"control: {counted(control.answers, 'answer')} pasted"
        texts[name] = text
    return texts


class Controls:
    """Every summary against an empty text, the repeated question, nonsense, and 1, 2, 5 and all conditioning
    answers pasted as a summary. No order of the summaries is needed.

    Raises:
        DataError: no item has a conditioning answer with words in it, or a summary is called like a control.
    """

    name = "controls"

    def __init__(self, items: Sequence[Item]) -> None:
        usable = [item for item in items if any(map(str.strip, item.conditioning))]
        if not usable:
            raise DataError(f"none of the {len(items)} items has a conditioning answer with words in it")
        own: dict[str, None] = {}
        for item in usable:
            own |= dict.fromkeys(item.summaries)
        self.summaries = list(own)
        taken = own.keys() & {*SILENT.values(), *PASTED, ALL_PASTED}
        if taken:
            raise DataError(f"the summary name {excerpt(min(taken))} is that of a control")
        self.items: list[Item] = []
        for item in usable:
            summaries = {**item.summaries, **control_texts(item)}
            self.items.append(replace(item, summaries=summaries, order=()))
        present: set[str] = set().union(*(item.summaries for item in self.items))
        self.controls = [name for name in (*SILENT.values(), *PASTED, ALL_PASTED) if name in present]
        self._words: dict[tuple[str, str], int] = {}
        for item in self.items:
            for name, text in item.summaries.items():
                self._words[item.id, name] = len(text.split())

    def finding(self, values: Sequence[Value], metrics: Sequence[MetricInfo]) -> Finding:
        numbers = values_by_metric(values)
        value_rows: list[dict[str, Cell]] = []
        win_rows: list[dict[str, Cell]] = []
        curve_rows: list[dict[str, Cell]] = []
        says = [tallied({"Items": len(self.items), "texts measured": len(self._words)})]
        plots: list[Plot] = []
        for metric in metrics:
            of_metric = numbers.get(metric.name, {})
            shares: list[str] = []
            for name in (*self.summaries, *self.controls):
                row, share = self._value_row(metric, name, of_metric)
                value_rows.append(row)
                if name in self.summaries and share.mean is not None:
                    shares.append(f"{name} {with_interval(share, _SHARE)}")
            if shares:
                says.append(f"{metric.name}, from nothing said to all answers pasted: {', '.join(shares)}.")
            wins = [self._win_row(metric, name, of_metric) for name in self.summaries]
            win_rows += wins
            says += self._lost(metric, wins)
            if metric.group == "information":
                curves = self._curves(of_metric)
                rows, sentences, dots = self._against_curve(metric, curves, of_metric)
                curve_rows += rows
                says += sentences
                plots += _curve_plot(metric, curves, dots)
        own_forms = dict.fromkeys(("of all pasted", "share low", "share high"), _SHARE)
        own_forms["words"] = ".0f"
        tables = [
            make_table("Summaries and controls", value_rows, _VALUE, _VALUE_NOTES, own_forms),
            make_table("How often a summary beats a control", win_rows, _SHARE, _WIN_NOTES),
        ]
        if curve_rows:
            forms = {"words": ".0f", "items above": _SHARE, "as answers": ".1f", "as words": ".0f"}
            tables.append(make_table("Against the paste curve", curve_rows, "+z.1f", _CURVE_NOTES, forms))
        return Finding(self.name, tuple(tables), tuple(says), tuple(plots))

    def _value_row(
        self, metric: MetricInfo, name: str, values: Mapping[tuple[str, str], float]
    ) -> tuple[dict[str, Cell], Estimate]:
        """One text's mean value, and its share of what all pasted answers reach."""
        own = [values[item.id, name] for item in self.items if (item.id, name) in values]
        mean = mean_interval(own, self._count(name))
        share = self._share(metric, name, values)
        row: dict[str, Cell] = {"metric": metric.name, "summary": name, "words": self._mean_words(name)}
        row |= interval("value", mean, "low", "high")
        row |= interval("of all pasted", share, "share low", "share high")
        return {**row, "n": mean.n, "of": mean.total}, share

    def _count(self, name: str) -> int:
        return sum((item.id, name) in self._words for item in self.items)

    def _mean_words(self, name: str) -> float:
        return fmean(words for (_, own), words in self._words.items() if own == name)

    def _share(self, metric: MetricInfo, name: str, values: Mapping[tuple[str, str], float]) -> Estimate:
        """A ratio of sums, with a percentile interval over the items that have all values."""
        pairs = []
        for item in self.items:
            own, every = values.get((item.id, name)), values.get((item.id, ALL_PASTED))
            nothing = 0.0 if metric.group == "information" else values.get((item.id, EMPTY))
            if own is not None and every is not None and nothing is not None:
                pairs.append((nothing - own, nothing - every))
        table = np.array(pairs).reshape(-1, 2)
        sign = 1 if metric.better == "lower" else -1

        def ratio(items: Indices) -> float | None:
            reached, reachable = table[items].sum(axis=0)
            return float(reached / reachable) if sign * reachable > 0 else None

        mean = ratio(np.arange(len(table)))
        low, high = (None, None) if mean is None else bootstrap(ratio, len(table))
        return Estimate(mean, low, high, len(table), self._count(name))

    def _win_row(
        self, metric: MetricInfo, name: str, values: Mapping[tuple[str, str], float]
    ) -> dict[str, Cell]:
        row: dict[str, Cell] = {"metric": metric.name, "summary": name}
        for control in self.controls:
            wins = []
            for item in self.items:
                value, other = values.get((item.id, name)), values.get((item.id, control))
                if value is not None and other is not None:
                    wins.append(metric.wins(value, other))
            row[_heading(control)] = fmean(wins) if wins else None
        return {**row, "n": sum((item.id, name) in values for item in self.items)}

    def _lost(self, metric: MetricInfo, rows: Sequence[Mapping[str, Cell]]) -> Iterator[str]:
        """Name the texts that say nothing and that are judged at least as good as a summary."""
        lost = []
        for row in rows:
            for control in SILENT.values():
                share = row[_heading(control)]
                if isinstance(share, float) and share <= 0.5:
                    lost.append(f"{row['summary']} beats '{_heading(control)}' in {share:.0%}")
        if lost and metric.group != "control":
            yield (
                f"{metric.name} finds a text that says nothing as good as a summary in half of the items or "
                f"more: {'; '.join(lost)}."
            )

    def _curves(self, values: Mapping[tuple[str, str], float]) -> dict[str, PasteCurve]:
        """By item; of the items that have all values."""
        curves: dict[str, PasteCurve] = {}
        for item in self.items:
            counts = {**PASTED, ALL_PASTED: len(item.conditioning)}
            names = [name for name in counts if name in item.summaries]
            if all((item.id, name) in values for name in names):
                answers = [counts[name] for name in names]
                words = [self._words[item.id, name] for name in names]
                bits = [values[item.id, name] for name in names]
                curves[item.id] = PasteCurve((0, *answers), (0, *words), (0, *bits))
        return curves

    def _against_curve(
        self, metric: MetricInfo, curves: Mapping[str, PasteCurve], values: Mapping[tuple[str, str], float]
    ) -> tuple[list[dict[str, Cell]], list[str], list[Curve]]:
        """Each kind of summary against the curves of its items: rows, sentences, and dots of a plot."""
        rows: list[dict[str, Cell]] = []
        sentences = []
        dots: list[Curve] = []
        for name in self.summaries:
            items = [item for item in curves if (item, name) in values]
            if not items:
                continue
            bits = [values[item, name] for item in items]
            words = [self._words[item, name] for item in items]
            pasted_bits = [curves[item].at(count) for item, count in zip(items, words, strict=True)]
            gains = [one - other for one, other in zip(bits, pasted_bits, strict=True)]
            mean, gain = mean_interval(bits, self._count(name)), mean_interval(gains, self._count(name))
            mean_words = fmean(words)
            curve = mean_curve([curves[item] for item in items])
            answers, equal_words = curve.equal(fmean(bits)) or (None, None)
            row: dict[str, Cell] = {"metric": metric.name, "summary": name, "words": mean_words}
            row |= {"bits": fmean(bits), "curve": fmean(pasted_bits)}
            row |= interval("above the curve", gain, "low", "high")
            row |= {"items above": fmean(float(one > 0) for one in gains)}
            rows.append({**row, "as answers": answers, "as words": equal_words, "n": gain.n})
            sentence = curve.sentence(f"{metric.name}: {name}", mean_words, fmean(bits))
            verdict = _VERDICTS[gain.side_of(0)]
            size = f"{with_interval(gain, '+.1f')} bits per answer"
            sentences.append(f"{sentence} {verdict}: {size} compared with raw answers in as many words.")
            dots += dot(name, mean_words, mean)
        return rows, sentences, dots


def _heading(control: str) -> str:
    return control.removeprefix("control: ")


def _curve_plot(
    metric: MetricInfo, curves: Mapping[str, PasteCurve], dots: Sequence[Curve]
) -> Iterator[Plot]:
    if curves:
        mean = mean_curve(list(curves.values()))
        line = Curve("answers pasted", tuple(mean.words), tuple(mean.bits))
        title = f"{metric.name}: summaries against answers pasted"
        yield Plot(f"paste-{metric.name}", title, "words", "bits per answer", (line, *dots))
