"""How reports read each measure from the records of a run, and how they name and format it."""

from __future__ import annotations

import math
import statistics
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Literal, NamedTuple

from selfreflect.metric.measure import Measure, measure_named
from selfreflect.records import Information, Measurement, Score
from selfreflect.report.run_records import RunRecords
from selfreflect.report.wording import percent, percent_range
from selfreflect.stats import (
    CONFIDENCE,
    FEWEST_TESTED,
    Estimate,
    PairedEstimate,
    mean_interval,
    paired_difference,
    ratio_interval,
    student_quantile,
)
from selfreflect.table import Column

# Files of figures under the names that earlier versions gave them.
_FIGURES = {"selfreflect": "means", "information": "tells"}

# Keys of JSON lines and trackers under the names that earlier versions gave them.
_KEYS = {"selfreflect": "score", "information": "recovered"}


# Shares that are shown, in brackets at least.
_SOUND = (-1.0, 2.0)


@dataclass(frozen=True)
class Values:
    """One measure of a strategy or control, by question id."""

    values: Mapping[str, float]
    scale: Mapping[str, float] | None = None
    """What each value is a share of. Then sums over questions are compared; without it, means."""

    def among(self, ids: Collection[str]) -> Values:
        """Keep these questions."""
        return Values({id_: value for id_, value in self.values.items() if id_ in ids}, self.scale)

    def of_question(self, id_: str) -> float | None:
        """Give the value or share of one question; None without."""
        return self.mean([id_]) if id_ in self.values else None

    def mean(self, ids: Collection[str]) -> float | None:
        """Compute the mean or share over these questions; None without any."""
        if not ids:
            return None
        total = math.fsum(self.values[id_] for id_ in ids)
        return total / (len(ids) if self.scale is None else math.fsum(self.scale[id_] for id_ in ids))

    def estimate(self, total: int) -> Estimate:
        """Estimate the mean or the share, with ``total`` questions that could have a value.

        Without an interval on fewer than ``FEWEST_TESTED`` questions, where it would be far too short.
        """
        if self.scale is None:
            estimate = mean_interval(list(self.values.values()), total)
        else:
            pairs = [(value, self.scale[id_]) for id_, value in self.values.items()]
            estimate = ratio_interval(pairs, total)
        return estimate if estimate.n >= FEWEST_TESTED else estimate.without_interval()


@dataclass(frozen=True)
class MeasureView:
    """A measure as reports read, name and format it."""

    measure: Measure

    @property
    def name(self) -> str:
        return self.measure.name

    @property
    def noun(self) -> str:
        """Name within a sentence."""
        return self.measure.short or self.name

    @property
    def title(self) -> str:
        """Title of tables, and label of the axis of means."""
        return self.measure.title or self.name

    @property
    def is_share(self) -> bool:
        """Whether values are shares, whose differences are shown in points."""
        return self.measure.unit == "%"

    @property
    def higher_is_better(self) -> bool:
        return self.measure.higher_is_better

    @property
    def form(self) -> str:
        """Display format of values."""
        return self.measure.form

    @property
    def key(self) -> str:
        """Key of its values in JSON lines and trackers."""
        return _KEYS.get(self.name, self.name)

    @property
    def prefix(self) -> str:
        """What stands before names of its comparisons; nothing before those of SelfReflect scores."""
        return "" if self.name == "selfreflect" else self.key

    @property
    def is_bundled(self) -> bool:
        """Whether it has keys and columns of its own."""
        return self.measure.record is not Measurement

    @property
    def figure(self) -> str:
        """Name of the file of its figure."""
        return _FIGURES.get(self.name, self.name)

    @property
    def differences(self) -> str:
        """Name of the file with its differences."""
        return "differences" if self.figure == "means" else f"differences-{self.figure}"

    @property
    def mean(self) -> str:
        """Heading of the mean."""
        return self.measure.heading or self.name

    @property
    def low(self) -> str:
        """Heading of the lower end of the interval."""
        return f"{self.mean} 95% low".removeprefix("mean score ")

    @property
    def high(self) -> str:
        """Heading of the upper end of the interval."""
        return f"{self.mean} 95% high".removeprefix("mean score ")

    @property
    def common(self) -> str:
        """Heading of the mean over common questions."""
        return f"common {self.mean.removesuffix(' score')}"

    @property
    def columns(self) -> list[Column]:
        """The columns of a mean and of the ends of its interval."""
        mean = Column(self.mean, self.form, short=self.mean.removeprefix("mean "))
        return [mean, Column(self.low, self.form, end="low"), Column(self.high, self.form, end="high")]

    @property
    def best(self) -> str:
        return "best (highest)" if self.higher_is_better else "best (lowest)"

    @property
    def better(self) -> str:
        """Say on which side of 0 a difference is better."""
        return "above 0 is better" if self.higher_is_better else "below 0 is better"

    @property
    def quantity(self) -> str:
        """Say what differences are in."""
        return f"{self.noun}, in points" if self.is_share else self.noun

    @property
    def difference_axis(self) -> str:
        """Label of the axis of differences."""
        quantity = "points" if self.is_share else self.noun.rpartition(" ")[2]
        return f"{quantity}: strategy − baseline ({self.better})"

    def text(self, value: float) -> str:
        """Write a value in a sentence or on a page."""
        return percent(value) if self.is_share else format(value, self.form)

    def difference_column(self, heading: str, end: Literal["", "low", "high"] = "") -> Column:
        if self.is_share:
            return Column(heading, "+z.1f", 100, end=end)
        return Column(heading, f"+z{self.form.lstrip('z')}", end=end)

    def direction(self, is_higher: bool) -> str:
        """Say what a clear difference says of the first of two strategies."""
        if self.measure.ratio and self.is_share:
            return "recovers more than" if is_higher else "recovers less than"
        verdict = "better" if is_higher == self.higher_is_better else "worse"
        return f"is {'higher' if is_higher else 'lower'} ({verdict}) than"

    def difference_text(self, mean: float, low: float | None = None, high: float | None = None) -> str:
        """Format a difference, and its interval if it has one, as ``+39.5 points [+10.0, +65.8]``."""
        text = self.measure.difference_text(mean)
        if low is None or high is None:
            return text
        show = self.difference_column("").show
        return f"{text} [{show(low)}, {show(high)}]"

    def records(self, run: RunRecords, strategy: str) -> dict[str, Any]:
        """Map question ids to the strategy's records of this measure."""
        records = run.results(self.measure)
        return {id_: records[id_, strategy] for id_ in run.questions if (id_, strategy) in records}

    def of_strategy(self, run: RunRecords, strategy: str) -> Values:
        """Read the values of a strategy, of which those of a ratio are its two parts."""
        values = {}
        scale = {}
        for id_, record in self.records(run, strategy).items():
            measurement = self.measure.measurement(record)
            if measurement.value is None:
                continue
            values[id_] = measurement.value
            if self.measure.ratio is not None:
                values[id_], scale[id_] = (measurement.parts[part] or 0.0 for part in self.measure.ratio)
        return Values(values, None if self.measure.ratio is None else scale)

    def undefined(self, run: RunRecords, strategy: str) -> list[str]:
        """List the questions whose record has no value."""
        records = self.records(run, strategy).items()
        return [id_ for id_, record in records if self.measure.measurement(record).value is None]

    def settings(self, run: RunRecords, strategy: str) -> dict[str, str]:
        """Describe judge and settings by question; values with different ones are not comparable."""
        return {id_: settings_text(record) for id_, record in self.records(run, strategy).items()}

    def pair(self, a: Values, b: Values, ids: Collection[str]) -> PairedEstimate:
        """Estimate the difference ``b - a`` on the questions ``ids``, as far as both have values.

        Shares are of the mean of both scales, which is the same number if both summarise the same answers.
        Without an interval unless enough questions differ for a test.
        """
        first, second = a.among(ids), b.among(ids)
        scale = None
        if a.scale is not None and b.scale is not None:
            common = first.values.keys() & second.values.keys()
            scale = {id_: (a.scale[id_] + b.scale[id_]) / 2 for id_ in common}
        paired = paired_difference(
            first.values, second.values, len(ids), scale=scale, higher_is_better=self.higher_is_better
        )
        if paired.is_testable:
            return paired
        return replace(paired, difference=paired.difference.without_interval())


def judges(scores: Iterable[Score]) -> list[str]:
    """Describe each judge and its settings once; scores with different ones are not comparable."""
    return sorted(set(map(settings_text, scores)))


def settings_text(record: Score | Information | Measurement) -> str:
    """Describe the judge of a record and its settings; the scale if it is that of an earlier version."""
    if isinstance(record, Measurement):
        return record.judge or "no judge"
    revision = f" at {record.judge_revision}" if record.judge_revision else ""
    judge = f"{record.judge}{revision}, {record.judge_dtype or 'dtype unknown'}"
    if isinstance(record, Score):
        compat = f", compat {record.compat}" if record.compat else ""
        return f"{judge}, temperature {record.temperature:g}{compat}"
    scale = {"question": ", 0% is the question alone", "pasted": ", 100% is all answers with repetitions"}
    return f"{judge}, {record.reader} reader{scale.get(record.scale, '')}"


def measurement_text(measurement: Measurement) -> str:
    """Write the value that a measure of another package gives a summary, or why there is none."""
    view = view_of(measurement.measure)
    if measurement.value is None:
        return f"{view.noun}: {view.measure.reason(measurement.undefined)}"
    return f"{view.noun}: {view.text(measurement.value)}"


@cache
def view_of(name: str) -> MeasureView:
    """Look up a measure as reports show it."""
    return MeasureView(measure_named(name))


SELFREFLECT = view_of("selfreflect")
INFORMATION = view_of("information")


def run_measures(run: RunRecords) -> list[MeasureView]:
    """List the measures that a run has, at least one: information, scores, and those of other packages."""
    views = [view_of(measure.name) for measure in run.measures]
    return _in_order(views) or [SELFREFLECT]


def any_measures(runs: Iterable[RunRecords]) -> list[MeasureView]:
    """List the measures that any of several runs has."""
    return _in_order({view for run in runs for view in run_measures(run)})


def _in_order(views: Iterable[MeasureView]) -> list[MeasureView]:
    order = [INFORMATION, SELFREFLECT]
    return sorted(views, key=lambda view: (order.index(view) if view in order else len(order), view.name))


# Reasons that tables call unclear.
_UNCLEAR = ("few_answers", "different_answers", "out_of_range")

# Reasons why bits do not speak of the answers, so that no share is shown.
_FOREIGN = ("worse", "format")


def reason_word(undefined: str) -> str:
    """Name the reason why there is no share in one word, for tables."""
    return "unclear" if undefined in _UNCLEAR else undefined.replace("_", " ")


class Tentative(NamedTuple):
    """A share that does not count as a result, for readers who want to see why."""

    bits: float
    available: float
    interval: tuple[float, float] | None
    undefined: str

    @property
    def share(self) -> float:
        return self.bits / self.available

    @property
    def brief(self) -> str:
        """The share in brackets and the reason in a few words, as ``(97 %) few answers``."""
        share = f"({percent(self.share)}) " if _SOUND[0] <= self.share <= _SOUND[1] else ""
        return share + self.undefined.replace("_", " ")

    @property
    def text(self) -> str:
        """The share in brackets, and why it does not count, as ``(97 %, -70 to 238 %) unclear``.

        Where it would be a wild number, the bits.
        """
        word = self.undefined.replace("_", " ")
        if not _SOUND[0] <= self.share <= _SOUND[1]:
            return f"({self.bits:.1f} of {self.available:.1f} bits) {word}"
        between = "" if self.interval is None else f", {percent_range(*self.interval)}"
        return f"({percent(self.share)}{between}) {word}"


def tentative(information: Information) -> Tentative | None:
    """Compute the share where it is undefined; None without available bits to share.

    The interval is that of a ratio of means over answers, by linearisation with Student's t.
    """
    bits, available = information.bits, information.bits_available
    if information.reason is None or bits is None or available is None or available <= 0:
        return None
    if information.reason in _FOREIGN:
        return None
    interval = information.interval
    if interval is None:
        share = bits / available
        residuals = []
        for words in filter(None, information.answers):
            residuals.append(math.fsum(word.told - share * word.available for word in words))
        if len(residuals) > 1:
            stderr = statistics.stdev(residuals) / math.sqrt(len(residuals))
            half = student_quantile((1 + CONFIDENCE) / 2, len(residuals) - 1) * stderr / available
            interval = (share - half, share + half)
    return Tentative(bits, available, interval, information.reason)
