"""The measures of a run, SelfReflect scores and usable information, in one form for every table."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from selfreflect.records import Control, Information, Score
from selfreflect.render.table import Column
from selfreflect.report.run_records import RunRecords
from selfreflect.report.sentences import control_text, pasted_answers
from selfreflect.stats import (
    FEWEST_TESTED,
    Estimate,
    PairedEstimate,
    mean_interval,
    paired_difference,
    ratio_interval,
)


@dataclass(frozen=True)
class Values:
    """One measure of a strategy or control, by question id."""

    values: Mapping[str, float]
    scale: Mapping[str, float] | None = None
    """What each value is a share of. Then sums over questions are compared; without it, means."""

    def among(self, ids: Collection[str]) -> Values:
        """Keep these questions."""
        return Values({id_: value for id_, value in self.values.items() if id_ in ids}, self.scale)

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
class Measure:
    """How tables show a measure."""

    title: str
    short: str
    """Name within a sentence."""
    mean: str
    """Heading of the mean."""
    low: str
    high: str
    common: str
    """Heading of the mean over common questions."""
    axis: str
    """Label of the axis of means."""
    difference_axis: str
    form: str
    difference: str
    """Display format of differences."""
    higher_is_better: bool
    lower_text: str
    """What a lower mean says of the first of two strategies."""
    higher_text: str
    quantity: str
    """What differences are in."""
    defined: str
    """What a question is called that has a value."""
    settings_text: str
    """What is said of a strategy with other ``settings`` than the baseline's."""
    of_strategy: Callable[[RunRecords, str], Values]
    settings: Callable[[RunRecords, str], dict[str, str]]
    """Judge and settings of a strategy by question; values of different ones are not comparable."""

    @property
    def columns(self) -> list[Column]:
        """The columns of a mean and of the ends of its interval."""
        return [Column(heading, self.form) for heading in (self.mean, self.low, self.high)]

    def pair(self, a: Values, b: Values, ids: Collection[str]) -> PairedEstimate:
        """Estimate the difference ``b - a`` on the questions ``ids``, as far as both have values. Shares are
        of the mean of both scales, which is the same number if both summarise the same answers. Without an
        interval unless enough questions differ for a test."""
        mine, theirs = a.among(ids), b.among(ids)
        scale = None
        if a.scale is not None and b.scale is not None:
            common = mine.values.keys() & theirs.values.keys()
            scale = {id_: (a.scale[id_] + b.scale[id_]) / 2 for id_ in common}
        paired = paired_difference(
            mine.values, theirs.values, len(ids), scale=scale, higher_is_better=self.higher_is_better
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
    """Describe the judge, and whether it sees the question."""
    return f"{_judge(information)}, {information.reader} reader"


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


SELFREFLECT = Measure(
    title="SelfReflect score: 0 is perfect, lower is better",
    short="SelfReflect score",
    mean="mean score",
    low="95% low",
    high="95% high",
    common="common mean",
    axis="SelfReflect score (0 is perfect, lower is better)",
    difference_axis="score: strategy − baseline (below 0 is better)",
    form=".4f",
    difference="+z.4f",
    higher_is_better=False,
    lower_text="is lower (better) than",
    higher_text="is higher (worse) than",
    quantity="SelfReflect score",
    defined="scored",
    settings_text="scored with another judge or other settings",
    of_strategy=_scores,
    settings=lambda run, strategy: {
        id_: score_settings(score) for id_, score in run.strategy_scores(strategy).items()
    },
)
INFORMATION = Measure(
    title="What summaries tell, of what the sampled answers tell",
    short="what they tell",
    mean="tells",
    low="tells 95% low",
    high="tells 95% high",
    common="common tells",
    axis="share of what the sampled answers tell",
    difference_axis="share: strategy − baseline (above 0 is better)",
    form="z.0%",
    difference="+z.1%",
    higher_is_better=True,
    lower_text="tells less than",
    higher_text="tells more than",
    quantity="what summaries tell (100% is what the sampled answers tell)",
    defined="measured",
    settings_text="measured with another judge or reader",
    of_strategy=_shares,
    settings=lambda run, strategy: {
        id_: information_settings(one) for id_, one in run.strategy_information(strategy).items()
    },
)


def run_measures(run: RunRecords) -> list[Measure]:
    """List the measures that a run has, at least one."""
    measures = [INFORMATION] if run.information else []
    if run.scores or not measures:
        measures.append(SELFREFLECT)
    return measures


def conditioning_count(run: RunRecords) -> int | None:
    """Count the conditioning answers of a question, by the controls; None if questions differ."""
    counts = {pasted_answers(run.controls[id_]) for id_ in run.questions if id_ in run.controls}
    return counts.pop() if len(counts) == 1 else None


@dataclass(frozen=True)
class ControlValues:
    """One control over all questions."""

    name: str
    words: tuple[int, ...]
    by_measure: Mapping[str, Values]
    """By the heading of the measure."""


def control_values(run: RunRecords) -> list[ControlValues]:
    """Measure the controls of a run; what they tell counts where a summary's share is defined."""
    available: dict[str, float] = {}
    for strategy in run.strategies:
        available.update(_shares(run, strategy).scale or {})
    by_name: dict[str, dict[str, Control]] = {}
    sets = [run.controls[id_] for id_ in run.questions if id_ in run.controls]
    for controls in sorted(sets, key=lambda controls: -len(controls.controls)):  # the longest sets the order
        for control in controls.controls:
            name = control_text(control, pasted_answers(controls))
            by_name.setdefault(name, {})[controls.question_id] = control
    rows = []
    for name, texts in by_name.items():
        bits = {id_: text.bits for id_, text in texts.items() if id_ in available and text.bits is not None}
        scores = {id_: text.score for id_, text in texts.items() if text.score is not None}
        values = {INFORMATION.mean: Values(bits, available), SELFREFLECT.mean: Values(scores)}
        rows.append(ControlValues(name, tuple(text.words for text in texts.values()), values))
    return rows
