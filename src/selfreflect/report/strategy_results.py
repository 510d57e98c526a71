"""The result of each strategy of a run, and their order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median

from selfreflect.records import NothingToTell
from selfreflect.report.measures import INFORMATION, SELFREFLECT, Measure, run_measures
from selfreflect.report.run_records import RunRecords
from selfreflect.stats import Estimate


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

    def rank(result: StrategyResult) -> tuple[bool, bool, float]:
        mean = result.estimate(measure).mean
        if mean is None:
            return True, False, 0.0
        return False, result.missing > 0, -mean if measure.higher_is_better else mean

    return sorted(results, key=rank)


def main_measure(run: RunRecords, results: Sequence[StrategyResult]) -> Measure:
    """The first measure in which a strategy has a result."""
    measures = run_measures(run)
    for measure in measures:
        if any(result.estimate(measure).mean is not None for result in results):
            return measure
    return measures[0]


def sorted_strategies(run: RunRecords) -> RunRecords:
    """Copy the run with its strategies in the order of :func:`sorted_results`."""
    return replace(run, strategies=[result.strategy for result in sorted_results(run)])


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
