"""Results of strategies and controls in every measure, in total and by a column's values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from statistics import median

from selfreflect.errors import DataError, excerpt, nearest
from selfreflect.metric.measure import Measure
from selfreflect.records import Control, Question, Score, dump_line
from selfreflect.report.measures import (
    Values,
    bundled_measures,
    difference_of,
    is_estimated,
    mean_columns,
    records_of,
    run_measures,
    undefined_of,
    values_of,
)
from selfreflect.report.run_records import RunRecords, SummaryOutcome, answer_halves_p_value
from selfreflect.report.wording import say
from selfreflect.stats import FEWEST_TESTED, Estimate, clear_sign, discoveries, is_tie, settled
from selfreflect.table import Approximate, Cell, Column, Table
from selfreflect.text import one_line

MAX_VALUES = 20
"""Maximum number of values with rows of their own; rarer values share a row."""

MISSING = "(none)"


def differing_halves(run: RunRecords) -> list[str]:
    """List questions whose two halves of answers differ more than by chance, in an exact test.

    The rate of false discoveries among them is 5 %.
    """
    # one test per question: with many questions some differ by chance, so the rate of false ones is bounded
    p_values = {}
    for id_ in run.questions:
        if id_ in run.answers:
            p_values[id_] = answer_halves_p_value(run.answers[id_])
    return discoveries(p_values)


def reference_count(run: RunRecords) -> int | None:
    """Count the reference answers per question; None if questions differ."""
    counts = {len(run.answers[id_].conditioning) for id_ in run.questions if id_ in run.answers}
    return counts.pop() if len(counts) == 1 else None


def control_text(control: Control, all_answers: int) -> str:
    """Name a control; ``all_answers`` is the number of answers in the largest."""
    if control.name == "question":
        return "question repeated"
    if control.name != "pasted":
        return control.name
    count = "all" if control.answers == all_answers else str(control.answers)
    return f"{count} answer{'' if count == '1' else 's'} pasted"


@dataclass(frozen=True)
class ControlValues:
    """Values of one control over all questions."""

    kind: str
    """Kind of :class:`~selfreflect.records.Control`."""
    name: str
    words: tuple[int, ...]
    by_measure: Mapping[str, Values]
    """Values by measure name; measures without values of controls are missing."""


def control_values(run: RunRecords) -> list[ControlValues]:
    """Collect the values of a run's controls, with bits where a summary's share is defined."""
    by_name: dict[str, dict[str, Control]] = {}
    sets = [run.controls[id_] for id_ in run.questions if id_ in run.controls]
    for controls in sorted(sets, key=lambda controls: -len(controls.controls)):  # the longest sets the order
        for control in controls.controls:
            name = control_text(control, controls.most_answers)
            by_name.setdefault(name, {})[controls.question_id] = control
    views = [view for view in run_measures(run) if view.control]
    scales: dict[str, dict[str, float]] = {view.name: {} for view in views}
    for view in views:
        for strategy in run.strategies:
            scales[view.name].update(values_of(view, run, strategy).scale or {})
    rows = []
    for name, texts in by_name.items():
        by_measure = {}
        for view in views:
            scale = scales[view.name] if view.ratio else None
            values = {}
            for id_, text in texts.items():
                value = getattr(text, view.control)
                # a share counts where a summary has one, too
                if value is not None and (scale is None or id_ in scale):
                    values[id_] = value
            by_measure[view.name] = Values(values, scale)
        kind = next(iter(texts.values())).name
        rows.append(ControlValues(kind, name, tuple(text.words for text in texts.values()), by_measure))
    return rows


@dataclass(frozen=True)
class ControlLead:
    """A control that at least matches a strategy, on their common questions."""

    control: str
    """The kind of the control."""
    mean: float
    strategy_mean: float
    is_clear: bool


def control_lead(
    run: RunRecords, control: ControlValues, strategy: str, measure: Measure
) -> ControlLead | None:
    """Compare a control with a strategy; None if the strategy is better, or for pasted answers."""
    if measure.name not in control.by_measure:
        return None
    values = control.by_measure[measure.name]
    strategy_values = values_of(measure, run, strategy)
    common = values.values.keys() & strategy_values.values.keys()
    ids = {id_ for id_ in common if measure.counts_control(run.controls[id_], control.kind)}
    mean, strategy_mean = values.mean(ids), strategy_values.mean(ids)
    if mean is None or strategy_mean is None:
        return None
    sign = 1 if measure.higher_is_better else -1
    if sign * mean < sign * strategy_mean and not is_tie(mean, strategy_mean):
        return None
    paired = difference_of(measure, strategy_values, values, ids)
    is_clear = clear_sign(paired.difference, paired.p_value) != 0
    return ControlLead(control.kind, mean, strategy_mean, is_clear)


@dataclass(frozen=True)
class StrategyResult:
    """The result of one strategy in one run."""

    strategy: str
    estimates: Mapping[str, Estimate]
    """Estimates by measure name, over questions with a value for this strategy."""
    undefined: Mapping[str, Mapping[str, int]]
    """Questions without a value, by measure name and reason."""
    median_words: float | None
    failures: int
    """Number of questions with a recorded failure instead of a score."""
    pending: int
    """Number of questions without score or failure, as the run is unfinished."""
    due: int
    """Number of questions that should have a result."""
    estimated: frozenset[str]
    """Names of measures with values estimated from some of the masked words."""

    @property
    def missing(self) -> int:
        """Number of questions without a result."""
        return self.failures + self.pending

    def estimate(self, measure: Measure) -> Estimate:
        return self.estimates[measure.name]


def strategy_results(run: RunRecords) -> list[StrategyResult]:
    """Compute one result per strategy, in run order."""
    failure_keys = run.failures_by_score.keys()
    measures = dict.fromkeys([*run_measures(run), *bundled_measures()])  # keys of JSON lines need ours
    count = len(run.questions)
    results = []
    for name in run.strategies:
        ids_with_result = set(chain.from_iterable(records_of(measure, run, name) for measure in measures))
        summaries = run.by_question(run.summaries, name)
        lengths = [len(summary.text.split()) for summary in summaries.values()]
        failures = {id_ for id_, strategy in failure_keys if strategy == name}
        # items of a file have no model, and may lack summaries that others have
        by_hand = summaries and not any(summary.model for summary in summaries.values())
        due = set(summaries if by_hand else run.questions)  # not every item has a summary of every name
        if not run.awaits_scores:
            due &= ids_with_result | failures
        result = StrategyResult(
            strategy=name,
            estimates={measure.name: values_of(measure, run, name).estimate(count) for measure in measures},
            undefined={
                measure.name: Counter(undefined_of(measure, run, name).values()) for measure in measures
            },
            median_words=float(median(lengths)) if lengths else None,
            failures=len(failures),
            due=len(due),
            pending=len(due - ids_with_result - failures),
            estimated=frozenset(measure.name for measure in measures if is_estimated(measure, run, name)),
        )
        results.append(result)
    return results


def is_uneven(run: RunRecords, measure: Measure) -> bool:
    """Check whether strategies have values for different questions, so that means are not comparable."""
    by_strategy = (values_of(measure, run, name).values.keys() for name in run.strategies)
    return len({frozenset(ids) for ids in by_strategy if ids}) > 1


def sorted_results(run: RunRecords) -> list[StrategyResult]:
    """Sort strategies by the main measure: complete ones, incomplete ones, then ones without results."""
    results = strategy_results(run)
    measure = main_measure(run, results)

    # complete strategies first: a mean over the easy half of the questions is no lead
    means = _settled_means(results, measure)

    def rank(result: StrategyResult) -> tuple[bool, bool, float]:
        if result.strategy not in means:
            return True, False, 0.0
        return False, result.missing > 0, -means[result.strategy]

    return sorted(results, key=rank)


def main_measure(run: RunRecords, results: Sequence[StrategyResult]) -> Measure:
    """Choose the first measure with a strategy's result."""
    measures = run_measures(run)
    for measure in measures:
        if any(result.estimate(measure).mean is not None for result in results):
            return measure
    return measures[0]


def best_strategy(results: Sequence[StrategyResult], measure: Measure) -> str | None:
    """Find the strategy with the best mean; None if none has a mean."""
    means = _settled_means(results, measure)
    return max(means, key=means.__getitem__, default=None)


def _settled_means(results: Sequence[StrategyResult], measure: Measure) -> dict[str, float]:
    """Map strategies to means with exact ties, negated if lower is better."""
    means = {}
    for result in results:
        mean = result.estimate(measure).mean
        if mean is not None:
            means[result.strategy] = mean if measure.higher_is_better else -mean
    return dict(zip(means, settled(list(means.values())), strict=True))


def sorted_strategies(run: RunRecords) -> RunRecords:
    """Copy the run with its strategies in the order of :func:`sorted_results`."""
    return replace(run, strategies=[result.strategy for result in sorted_results(run)])


def best_first(run: RunRecords, question_id: str) -> list[SummaryOutcome]:
    """Sort a question's outcomes by the first measure with a value.

    The best come first, those without a value at last. Values of different measures cannot be compared, so
    those with a value of the first measure form the first group.
    """
    ranks = {}
    measures = run_measures(run)
    for strategy in run.strategies:
        ranks[strategy] = (len(measures), 0.0)
        for rank, measure in enumerate(measures):
            record = run.results(measure).get((question_id, strategy))
            value = None if record is None else measure.measurement(record).value
            if value is not None:
                ranks[strategy] = (rank, -value if measure.higher_is_better else value)
                break
    values = dict(zip(ranks, settled([value for _, value in ranks.values()]), strict=True))
    outcomes = run.outcomes(question_id)
    return sorted(outcomes, key=lambda outcome: (ranks[outcome.strategy][0], values[outcome.strategy]))


def coverage_text(estimate: Estimate) -> str | None:
    """Format the coverage as ``95.0% (57/60)``; None without questions."""
    if estimate.coverage is None:
        return None
    return f"{100 * estimate.coverage:.1f}% ({estimate.n}/{estimate.total})"


def no_interval(estimate: Estimate) -> str | None:
    """Explain why an estimate has no interval; None if it has one."""
    if estimate.low is not None:
        return None
    if estimate.n < FEWEST_TESTED:
        return f"fewer than {FEWEST_TESTED} questions"
    return f"fewer than {FEWEST_TESTED} questions differ"


def method_note(estimates: Iterable[Estimate]) -> str:
    """Describe the method of intervals, and whether some are left out."""
    has_few = any(0 < estimate.n < FEWEST_TESTED for estimate in estimates)
    return say("method", fewest=FEWEST_TESTED if has_few else None)


def approximate(value: float | None, estimated: bool) -> float | None:
    """Mark ``value`` as approximate if it rests on estimates."""
    return Approximate(value) if estimated and value is not None else value


def estimate_note(measure: Measure, sides: Iterable[tuple[RunRecords, str]]) -> list[str]:
    """Explain ``≈`` if some of these strategies' values are estimates."""
    records = list(chain.from_iterable(records_of(measure, *side).values() for side in sides))
    samples = [sample for record in records if (sample := measure.sampled(record))]
    if not samples:
        return []
    words = sum(sample.words_scored for sample in samples)
    total = sum(sample.words_total for sample in samples)
    return [say("estimates", count=len(samples), scores=len(records), words=words, total=total)]


def score_text(score: Score) -> str:
    """Format a score as ``0.0954 ± 0.0025``, with ``≈`` and its sample if estimated."""
    text = f"{score.value:.4f}"
    if score.stderr is not None:
        text += f" ± {score.stderr:.4f}"
    return f"≈{text} (estimated from {score.estimate.text})" if score.estimate else text


def by_value(run: RunRecords, name: str) -> dict[str, RunRecords]:
    """Divide a run by a column's values (or ``kind``), most frequent first.

    Raises:
        DataError: no question has the column.
    """
    groups: dict[str, dict[str, Question]] = {}
    for id_, question in run.questions.items():
        groups.setdefault(_value(question, name), {})[id_] = question
    if groups.keys() <= {MISSING}:
        columns = list(dict.fromkeys(chain.from_iterable(item.metadata for item in run.questions.values())))
        if any(question.kind for question in run.questions.values()):
            columns.append("kind")
        names = ", ".join(map(excerpt, columns[:20])) or "none"
        raise DataError(
            f"no question of {excerpt(run.label)} has a column {excerpt(name)}.{nearest(name, columns)} "
            f"Columns that came with the questions: {names}",
            code="column",
            columns=columns,
        )
    # a column of free text would otherwise give a table as long as the question file
    ranking = sorted(groups, key=lambda value: -len(groups[value]))
    first = ranking if len(ranking) <= MAX_VALUES else ranking[: MAX_VALUES - 1]
    divided = {value: replace(run, questions=groups[value]) for value in first}
    rest = ranking[len(first) :]
    if rest:
        questions = dict(chain.from_iterable(groups[value].items() for value in rest))
        divided[f"({len(rest)} other values)"] = replace(run, questions=questions)
    return divided


def _value(question: Question, name: str) -> str:
    value = question.metadata.get(name)
    if value is None and name == "kind":
        value = question.kind or None
    if value is None:
        return MISSING
    return value if isinstance(value, str) else dump_line(value)


def breakdown(run: RunRecords, name: str) -> Table:
    """Tabulate each strategy's mean by a column's values, with interval and n."""
    measures = run_measures(run)
    headings = [Column(one_line(name, 40)), Column("strategy", shown=run.noun)]
    for measure in measures:
        headings += mean_columns(measure)
    headings += [Column("n", "d"), Column("questions", "d")]
    rows: list[tuple[Cell, ...]] = []
    estimates: list[Estimate] = []
    for value, part in by_value(run, name).items():
        for result in strategy_results(part):
            cells: list[Cell] = [one_line(value, 60), result.strategy]
            for measure in measures:
                estimate = result.estimate(measure)
                estimates.append(estimate)
                cells += [estimate.mean, estimate.low, estimate.high]
            rows.append((*cells, result.estimate(measures[-1]).n, len(part.questions)))
    title = f"By {one_line(name, 40)}" + (f" ({run.label})" if run.label else "")
    return Table(title, tuple(headings), tuple(rows), (method_note(estimates),))
