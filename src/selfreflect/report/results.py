"""The measures of a run, SelfReflect scores and usable information, and the result of each strategy."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median

from selfreflect.records import (
    TODAYS_SCALE,
    Control,
    Information,
    NothingToTell,
    Score,
    UnclearCause,
)
from selfreflect.report.run_records import RunRecords, SummaryOutcome, answer_halves_p_value
from selfreflect.stats import (
    FEWEST_TESTED,
    Estimate,
    PairedEstimate,
    clear_sign,
    defined,
    discoveries,
    is_tie,
    mean_interval,
    paired_difference,
    ratio_interval,
    settled,
)
from selfreflect.table import Approximate, Column

METHOD = "intervals: 95% BCa bootstrap over questions"


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
    factor: int
    """Of a difference where it is shown."""
    unit: str
    """Of a difference that is shown, in a sentence."""
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

    def difference_text(self, mean: float, low: float | None = None, high: float | None = None) -> str:
        """Format a difference, and its interval if it has one, as ``+39.5 points [+10.0, +65.8]``."""
        texts = [format(self.factor * value, self.difference) for value in defined((mean, low, high))]
        interval = f" [{', '.join(texts[1:])}]" if len(texts) > 1 else ""
        return f"{texts[0]}{self.unit}{interval}"

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
    factor=1,
    unit="",
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
    difference_axis="points: strategy − baseline (above 0 is better)",
    form="z.0%",
    difference="+z.1f",
    factor=100,
    unit=" points",
    higher_is_better=True,
    lower_text="tells less than",
    higher_text="tells more than",
    quantity="what summaries tell, in points (100 are what the sampled answers tell)",
    defined="measured",
    settings_text="measured with another judge, reader or scale",
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


def differing_halves(run: RunRecords) -> list[str]:
    """List the questions whose two halves of answers differ more than chance, by an exact test on classes.

    The rate of false discoveries among them is 5 %.
    """
    p_values = {}
    for id_ in run.questions:
        if id_ in run.answers:
            p_values[id_] = answer_halves_p_value(run.answers[id_])
    return discoveries(p_values)


def conditioning_count(run: RunRecords) -> int | None:
    """Count the conditioning answers of a question; None if questions differ."""
    counts = {len(run.answers[id_].conditioning) for id_ in run.questions if id_ in run.answers}
    return counts.pop() if len(counts) == 1 else None


def control_text(control: Control, all_answers: int) -> str:
    """Name a control; ``all_answers`` is the number of answers in the longest one."""
    if control.name == "question":
        return "question repeated"
    if control.name != "pasted":
        return control.name
    count = "all" if control.answers == all_answers else str(control.answers)
    return f"{count} answer{'' if count == '1' else 's'} pasted"


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
            name = control_text(control, controls.most_answers)
            by_name.setdefault(name, {})[controls.question_id] = control
    rows = []
    for name, texts in by_name.items():
        bits = {id_: text.bits for id_, text in texts.items() if id_ in available and text.bits is not None}
        scores = {id_: text.score for id_, text in texts.items() if text.score is not None}
        values = {INFORMATION.mean: Values(bits, available), SELFREFLECT.mean: Values(scores)}
        rows.append(ControlValues(name, tuple(text.words for text in texts.values()), values))
    return rows


@dataclass(frozen=True)
class ControlLead:
    """A control that does at least as well as a strategy, on the questions that both have values for."""

    control: str
    mean: float
    strategy_mean: float
    is_clear: bool


def control_lead(
    run: RunRecords, control: ControlValues, strategy: str, measure: Measure
) -> ControlLead | None:
    """Compare a control that says nothing with a strategy; None if the strategy does better.

    None for pasted answers, which should do better, and for the repeated question in records of earlier
    versions where the judge does not see the question: it learns much from it.
    """
    if control.name.endswith(" pasted"):
        return None
    theirs = control.by_measure[measure.mean]
    own = measure.of_strategy(run, strategy)
    ids = theirs.values.keys() & own.values.keys()
    if measure is INFORMATION and control.name == "question repeated":
        ids = {id_ for id_ in ids if run.controls[id_].reader == "informed" or run.scale == TODAYS_SCALE}
    mean, strategy_mean = theirs.mean(ids), own.mean(ids)
    if mean is None or strategy_mean is None:
        return None
    sign = 1 if measure.higher_is_better else -1
    if sign * mean < sign * strategy_mean and not is_tie(mean, strategy_mean):
        return None
    paired = measure.pair(own, theirs, ids)
    is_clear = clear_sign(paired.difference, paired.p_value) != 0
    return ControlLead(control.name, mean, strategy_mean, is_clear)


@dataclass(frozen=True)
class StrategyResult:
    """The result of one strategy in one run."""

    strategy: str
    score: Estimate
    """Mean over the questions scored for this strategy."""
    common: Estimate | None
    """Mean over the questions scored for all strategies with scores; None if these are the same questions."""
    recovered: Estimate
    """Share of what the conditioning answers tell: a ratio of sums over the questions where it is defined."""
    common_recovered: Estimate | None
    bits: float | None
    """Mean over the questions where a share is defined, per answer."""
    bits_available: float | None
    readers: tuple[str, ...]
    undefined: Mapping[NothingToTell, int]
    """Questions without a share, by the reason."""
    reasons: Mapping[NothingToTell | UnclearCause, int]
    """The same, with the cause where what a summary tells is unclear."""
    median_words: float | None
    failures: int
    """Questions with a recorded failure instead of a score."""
    pending: int
    """Questions with neither, because the run is not finished."""
    wanted: int
    """Questions that should have a result."""
    estimated: int
    """How many of the scores are estimates from some of the masked words."""

    @property
    def missing(self) -> int:
        """Questions without a result."""
        return self.failures + self.pending

    def estimate(self, measure: Measure) -> Estimate:
        return self.recovered if measure is INFORMATION else self.score

    def common_estimate(self, measure: Measure) -> Estimate | None:
        return self.common_recovered if measure is INFORMATION else self.common


def strategy_results(run: RunRecords) -> list[StrategyResult]:
    """Compute one result per strategy, in run order."""
    failure_keys = run.failures_by_score.keys()
    scores = _estimates(run, SELFREFLECT)
    shares = _estimates(run, INFORMATION)
    results = []
    for name in run.strategies:
        own_information = run.strategy_information(name)
        own_scores = run.strategy_scores(name)
        bits = INFORMATION.of_strategy(run, name)
        summaries = run.strategy_summaries(name)
        lengths = [len(summary.text.split()) for summary in summaries.values()]
        failures = {id_ for id_, strategy in failure_keys if strategy == name}
        by_hand = summaries and not any(summary.model for summary in summaries.values())
        due = set(summaries if by_hand else run.questions)  # not every item has a summary of every name
        if not run.awaits_scores:
            due &= own_scores.keys() | own_information.keys() | failures
        result = StrategyResult(
            strategy=name,
            score=scores[name][0],
            common=scores[name][1],
            recovered=shares[name][0],
            common_recovered=shares[name][1],
            bits=_mean(bits.values),
            bits_available=_mean(bits.scale or {}),
            readers=tuple(sorted({information.reader for information in own_information.values()})),
            undefined=Counter(one.undefined for one in own_information.values() if one.undefined is not None),
            reasons=Counter(one.reason for one in own_information.values() if one.reason is not None),
            median_words=float(median(lengths)) if lengths else None,
            failures=len(failures),
            wanted=len(due),
            pending=len(due - own_scores.keys() - own_information.keys() - failures),
            estimated=sum(one.estimate is not None for one in own_scores.values()),
        )
        results.append(result)
    return results


def sorted_results(run: RunRecords) -> list[StrategyResult]:
    """Sort the strategies by the main measure, the best first: complete ones, incomplete ones, and at last
    those without a result."""
    results = strategy_results(run)
    measure = main_measure(run, results)

    means = _settled_means(results, measure)

    def rank(result: StrategyResult) -> tuple[bool, bool, float]:
        if result.strategy not in means:
            return True, False, 0.0
        return False, result.missing > 0, -means[result.strategy]

    return sorted(results, key=rank)


def main_measure(run: RunRecords, results: Sequence[StrategyResult]) -> Measure:
    """The first measure in which a strategy has a result."""
    measures = run_measures(run)
    for measure in measures:
        if any(result.estimate(measure).mean is not None for result in results):
            return measure
    return measures[0]


def best_strategy(results: Sequence[StrategyResult], measure: Measure) -> str | None:
    """Name the strategy with the best mean, complete or not; None if none has a mean."""
    means = _settled_means(results, measure)
    return max(means, key=means.__getitem__, default=None)


def _settled_means(results: Sequence[StrategyResult], measure: Measure) -> dict[str, float]:
    """The mean of each strategy that has one, negated where lower is better; ties are equal."""
    means = {}
    for result in results:
        mean = result.estimate(measure).mean
        if mean is not None:
            means[result.strategy] = mean if measure.higher_is_better else -mean
    return dict(zip(means, settled(list(means.values())), strict=True))


def sorted_strategies(run: RunRecords) -> RunRecords:
    """Copy the run with its strategies in the order of :func:`sorted_results`."""
    return replace(run, strategies=[result.strategy for result in sorted_results(run)])


def best_first(outcomes: Iterable[SummaryOutcome]) -> list[SummaryOutcome]:
    """Sort the outcomes of one question by what their summaries tell, those without that by their score, the
    best first; at last those without either."""

    ranks = []
    outcomes = list(outcomes)
    for outcome in outcomes:
        if outcome.information is not None and outcome.information.recovered is not None:
            ranks.append((0, -outcome.information.recovered))
        else:
            ranks.append((2, 0.0) if outcome.score is None else (1, outcome.score.value))
    values = settled([value for _, value in ranks])
    order = sorted(range(len(outcomes)), key=lambda index: (ranks[index][0], values[index]))
    return [outcomes[index] for index in order]


def _estimates(run: RunRecords, measure: Measure) -> dict[str, tuple[Estimate, Estimate | None]]:
    """Estimate each strategy on its own questions, and on those of all strategies if these are not the
    same."""
    by_strategy = {name: measure.of_strategy(run, name) for name in run.strategies}
    question_sets = [set(values.values) for values in by_strategy.values() if values.values]
    common = set.intersection(*question_sets) if question_sets else set()
    uneven = any(ids != common for ids in question_sets)
    total = len(run.questions)
    return {
        name: (values.estimate(total), values.among(common).estimate(total) if uneven else None)
        for name, values in by_strategy.items()
    }


def _mean(values: Mapping[str, float]) -> float | None:
    return sum(values.values()) / len(values) if values else None


def coverage_text(estimate: Estimate) -> str | None:
    """Format the coverage as ``95.0% (57/60)``; None without questions."""
    if estimate.coverage is None:
        return None
    return f"{100 * estimate.coverage:.1f}% ({estimate.n}/{estimate.total})"


def no_interval(estimate: Estimate) -> str | None:
    """Say why an estimate has no interval; None if it has one."""
    if estimate.low is not None:
        return None
    if estimate.n < FEWEST_TESTED:
        return f"fewer than {FEWEST_TESTED} questions"
    return f"fewer than {FEWEST_TESTED} questions differ"


def method_note(estimates: Iterable[Estimate]) -> str:
    """Name the method of intervals, and say if some are left out."""
    if any(0 < estimate.n < FEWEST_TESTED for estimate in estimates):
        return f"{METHOD}; none from fewer than {FEWEST_TESTED} questions, it would be far too short"
    return METHOD


def approximate(value: float | None, estimated: bool) -> float | None:
    """Mark ``value`` if estimates went into it."""
    return Approximate(value) if estimated and value is not None else value


def estimate_note(scores: Sequence[Score]) -> list[str]:
    """Explain ``≈`` if some scores are estimates."""
    estimates = [score.estimate for score in scores if score.estimate]
    if not estimates:
        return []
    words = sum(estimate.words_scored for estimate in estimates)
    total = sum(estimate.words_total for estimate in estimates)
    return [
        f"≈: {len(estimates)} of {len(scores)} scores are estimates from {words} of their {total} masked "
        f"words ({words / total:.0%}), not exact scores"
    ]


def estimated_from(score: Score) -> str | None:
    """Format the sample of an estimate as ``120 of 840 words``; None for an exact score."""
    if score.estimate is None:
        return None
    return f"{score.estimate.words_scored} of {score.estimate.words_total} words"


def score_text(score: Score) -> str:
    """Format as ``0.0954 ± 0.0025``, or ``≈0.0954 ± 0.0025 (estimated from 120 of 840 words)``."""
    text = f"{score.value:.4f}"
    if score.stderr is not None:
        text += f" ± {score.stderr:.4f}"
    source = estimated_from(score)
    return f"≈{text} (estimated from {source})" if source else text
