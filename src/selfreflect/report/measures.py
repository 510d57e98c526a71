"""How reports read each measure from the records of a run, and how they name and format it."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from selfreflect.records import Information, Score
from selfreflect.report.run_records import RunRecords
from selfreflect.report.wording import percent
from selfreflect.stats import (
    FEWEST_TESTED,
    Estimate,
    PairedEstimate,
    defined,
    mean_interval,
    paired_difference,
    ratio_interval,
)
from selfreflect.table import Column


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
    """A measure as reports show it."""

    name: str
    title: str
    noun: str
    """Name within a sentence."""
    mean: str
    """Heading of the mean."""
    common: str
    """Heading of the mean over common questions."""
    quantity: str
    """What differences are in."""
    axis: str
    """Label of the axis of means."""
    form: str
    higher_is_better: bool
    of_strategy: Callable[[RunRecords, str], Values]
    settings: Callable[[RunRecords, str], dict[str, str]]
    """Judge and settings of a strategy by question; values of different ones are not comparable."""
    prefix: str = ""
    """In front of the headings of the interval's ends."""
    ideal: str = ""
    """What the best value is."""
    question: str = ""
    """What it answers."""
    reading: str = ""
    """How to read a value, with ``{zero}`` in place of the text that is 0 %."""
    is_share: bool = False
    """Whether values are shares, whose differences are shown in points."""
    figure: str = ""
    """Name of the file of its figure."""

    @property
    def differences(self) -> str:
        """Name of the file with its differences."""
        return "differences" if self.figure == "means" else f"differences-{self.figure}"

    @property
    def low(self) -> str:
        """Heading of the lower end of the interval."""
        return f"{self.prefix}95% low"

    @property
    def high(self) -> str:
        """Heading of the upper end of the interval."""
        return f"{self.prefix}95% high"

    @property
    def columns(self) -> list[Column]:
        """The columns of a mean and of the ends of its interval."""
        return [Column(heading, self.form) for heading in (self.mean, self.low, self.high)]

    @property
    def best(self) -> str:
        return "best (highest)" if self.higher_is_better else "best (lowest)"

    @property
    def better(self) -> str:
        """Say on which side of 0 a difference is better."""
        return "above 0 is better" if self.higher_is_better else "below 0 is better"

    @property
    def difference_axis(self) -> str:
        """Label of the axis of differences."""
        quantity = "points" if self.is_share else self.noun.rpartition(" ")[2]
        return f"{quantity}: strategy − baseline ({self.better})"

    def text(self, value: float) -> str:
        """Write a value in a sentence or on a page."""
        return percent(value) if self.is_share else format(value, self.form)

    def difference_column(self, heading: str) -> Column:
        return (
            Column(heading, "+z.1f", 100) if self.is_share else Column(heading, f"+z{self.form.lstrip('z')}")
        )

    def direction(self, is_higher: bool) -> str:
        """Say what a clear difference says of the first of two strategies."""
        if self.is_share:
            return "recovers more than" if is_higher else "recovers less than"
        verdict = "better" if is_higher == self.higher_is_better else "worse"
        return f"is {'higher' if is_higher else 'lower'} ({verdict}) than"

    def difference_text(self, mean: float, low: float | None = None, high: float | None = None) -> str:
        """Format a difference, and its interval if it has one, as ``+39.5 points [+10.0, +65.8]``."""
        texts = list(map(self.difference_column("").show, defined((mean, low, high))))
        interval = f" [{', '.join(texts[1:])}]" if len(texts) > 1 else ""
        return f"{texts[0]}{' points' if self.is_share else ''}{interval}"

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
    return sorted(set(map(score_settings, scores)))


def score_settings(score: Score) -> str:
    """Describe the judge of a score and its settings."""
    compat = f", compat {score.compat}" if score.compat else ""
    return f"{_judge(score)}, temperature {score.temperature:g}{compat}"


def information_settings(information: Information) -> str:
    """Describe the judge, whether it sees the question, and the scale if it is that of an earlier version."""
    scale = {"question": ", 0% is the question alone", "pasted": ", 100% is all answers with repetitions"}
    return f"{_judge(information)}, {information.reader} reader{scale.get(information.scale, '')}"


def _judge(record: Score | Information) -> str:
    revision = f" at {record.judge_revision}" if record.judge_revision else ""
    return f"{record.judge}{revision}, {record.judge_dtype or 'dtype unknown'}"


def _scores(run: RunRecords, strategy: str) -> Values:
    return Values({id_: score.value for id_, score in run.strategy_scores(strategy).items()})


def _shares(run: RunRecords, strategy: str) -> Values:
    bits = {}
    available = {}
    for id_, information in run.strategy_information(strategy).items():
        if information.recovered is None or information.bits is None or information.bits_available is None:
            continue
        bits[id_] = information.bits
        available[id_] = information.bits_available
    return Values(bits, available)


def _score_settings(run: RunRecords, strategy: str) -> dict[str, str]:
    return {id_: score_settings(score) for id_, score in run.strategy_scores(strategy).items()}


def _information_settings(run: RunRecords, strategy: str) -> dict[str, str]:
    records = run.strategy_information(strategy)
    return {id_: information_settings(information) for id_, information in records.items()}


SELFREFLECT = MeasureView(
    name="selfreflect",
    title="SelfReflect score: 0 is perfect, lower is better",
    noun="SelfReflect score",
    mean="mean score",
    common="common mean",
    quantity="SelfReflect score",
    axis="SelfReflect score (0 is perfect, lower is better)",
    form=".4f",
    higher_is_better=False,
    of_strategy=_scores,
    settings=_score_settings,
    ideal="0 is perfect",
    question="How faithfully does each summary describe what the model would answer? The score compares a "
    "judge’s predictions after reading the summary with its predictions after reading sampled answers.",
    reading="0 is perfect, lower is better.",
    figure="means",
)
INFORMATION = MeasureView(
    name="information",
    title="Information in the sampled answers that summaries recover",
    noun="recovered information",
    mean="recovered",
    common="common recovered",
    quantity="recovered information, in points (100 are all the information in the sampled answers)",
    axis="recovered share of the information in the sampled answers",
    form="z.0%",
    higher_is_better=True,
    of_strategy=_shares,
    settings=_information_settings,
    prefix="recovered ",
    is_share=True,
    question="How much of the information in the sampled answers does each summary recover? A judge predicts "
    "test answers after reading it.",
    reading="0 % is {zero}, 100 % is all that the sampled answers tell. Above that a summary helps more than "
    "they do, and below 0 it misleads.",
    figure="tells",
)
MEASURES = (INFORMATION, SELFREFLECT)
"""In the order in which tables show them."""


def run_measures(run: RunRecords) -> list[MeasureView]:
    """List the measures that a run has, at least one."""
    measures = [INFORMATION] if run.information else []
    if run.scores or not measures:
        measures.append(SELFREFLECT)
    return measures


def any_measures(runs: Iterable[RunRecords]) -> list[MeasureView]:
    """List the measures that any of several runs has."""
    names = {measure.name for run in runs for measure in run_measures(run)}
    return [measure for measure in MEASURES if measure.name in names]
