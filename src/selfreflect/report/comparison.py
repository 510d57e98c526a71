"""Compare strategies, within a run or across runs, by paired differences on common questions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from selfreflect.errors import DataError, excerpt, nearest
from selfreflect.records import Score
from selfreflect.report.results import METHOD, SELFREFLECT, Measure, approximate, estimate_note, run_measures
from selfreflect.report.run_records import RunRecords
from selfreflect.stats import FEWEST_TESTED, PairedEstimate, clear_sign
from selfreflect.table import Column, Table


def columns(measure: Measure) -> tuple[Column, ...]:
    """List the columns of a comparison."""
    return (
        Column("run"),
        Column("strategy"),
        Column("difference", measure.difference, measure.factor),
        Column("95% low", measure.difference, measure.factor),
        Column("95% high", measure.difference, measure.factor),
        Column("n common", "d"),
        Column("coverage", ".1%"),
        Column("wins", "d"),
        Column("ties", "d"),
        Column("losses", "d"),
        Column("p", ".2g"),
    )


@dataclass(frozen=True)
class Contender:
    """One strategy of one run."""

    run: RunRecords
    strategy: str

    @property
    def label(self) -> str:
        return self.run.label

    @cached_property
    def scores(self) -> dict[str, Score]:
        """By question id."""
        return self.run.strategy_scores(self.strategy)

    def common_questions(self, other: Contender) -> list[str]:
        """Ids of the questions that both runs ask, with the same text and context."""
        theirs = other.run.questions
        common = []
        for id_, question in self.run.questions.items():
            same = theirs.get(id_)
            if same and (same.text, same.context) == (question.text, question.context):
                common.append(id_)
        return common


@dataclass(frozen=True)
class Comparison:
    """``other`` against ``baseline`` on their common questions."""

    baseline: Contender
    other: Contender
    paired: PairedEstimate
    measure: Measure

    @property
    def verdict(self) -> str:
        """``"better"`` or ``"worse"`` than the baseline if that is clear, else ``"unclear"``."""
        sign = clear_sign(self.paired.difference, self.paired.p_value)
        if sign == 0:
            return "unclear"
        return "better" if (sign > 0) == self.measure.higher_is_better else "worse"

    @property
    def is_testable(self) -> bool:
        """Whether there are questions enough to tell a difference, or that there is none."""
        questions = self.paired.difference.n
        return questions >= FEWEST_TESTED and (self.paired.is_testable or self.paired.ties == questions)

    @property
    def sentence(self) -> str:
        """The result in words; :func:`~selfreflect.stats.clear_sign` decides which differences are clear."""
        other, baseline = self.other.strategy, self.baseline.strategy
        if self.other.label != self.baseline.label:
            other += f" ({self.other.label})"
            baseline += f" ({self.baseline.label})"
        estimate = self.paired.difference
        p_value = self.paired.p_value
        show = self.measure.difference_text
        if estimate.mean is None:
            return f"{other} and {baseline} have no {self.measure.defined} question in common"
        on = f"on {estimate.n} common questions"
        reason = f"too few to tell; at least {FEWEST_TESTED} are needed"
        if estimate.n < FEWEST_TESTED:
            few = "1 common question is" if estimate.n == 1 else f"{estimate.n} common questions are"
            return f"{other} against {baseline}: {show(estimate.mean)}, but {few} {reason}"
        if estimate.low is None or estimate.high is None or p_value is None:
            differing = estimate.n - self.paired.ties
            if differing == 0:
                return f"{other} and {baseline} are equal {on}"
            return (
                f"{other} against {baseline}: {show(estimate.mean)} {on}, but they differ on {differing} "
                f"of them, {reason}"
            )
        if not clear_sign(estimate, p_value):
            interval = show(estimate.mean, estimate.low, estimate.high)
            unclear = (
                f"no clear difference between {other} and {baseline}: {interval} {on} (p = {p_value:.2g})"
            )
            if estimate.side_of(0):
                unclear += "; the interval leaves out 0, but with few questions it is too short, so p decides"
            return unclear
        direction = self.measure.lower_text if estimate.mean < 0 else self.measure.higher_text
        low, high = sorted((abs(estimate.low), abs(estimate.high)))
        interval = show(abs(estimate.mean), low, high).replace("+", "")  # the direction says it
        return f"{other} {direction} {baseline} by {interval} {on}"


def contenders(runs: Sequence[RunRecords], baseline: str | None) -> list[Contender]:
    """List all strategies of all runs, the baseline first: a strategy of the first run, by default its first.

    Raises:
        DataError: the first run has no such strategy.
    """
    sides = [Contender(run, name) for run in runs for name in run.strategies]
    if baseline is None:
        return sides if runs[0].strategies else []
    names = list(runs[0].strategies)
    if baseline not in names:
        raise DataError(
            f"run {excerpt(runs[0].label)} has no strategy {excerpt(baseline)}, only {', '.join(names)}."
            f"{nearest(baseline, names)}"
        )
    first = sides.pop(names.index(baseline))
    return [first, *sides]


def compare(baseline: Contender, other: Contender, measure: Measure = SELFREFLECT) -> Comparison:
    """Compute the paired difference ``other - baseline`` on common questions (same id, text and
    context)."""
    common = baseline.common_questions(other)
    a = measure.of_strategy(baseline.run, baseline.strategy)
    b = measure.of_strategy(other.run, other.strategy)
    return Comparison(baseline, other, measure.pair(a, b, common), measure)


def comparisons(baseline: Contender, others: Sequence[Contender]) -> list[tuple[Table, Measure]]:
    """Tabulate the differences in every measure that all runs have, at least in SelfReflect scores."""
    common = run_measures(baseline.run)
    for other in others:
        common = [measure for measure in common if measure in run_measures(other.run)]
    return [(comparison(baseline, others, measure), measure) for measure in common or [SELFREFLECT]]


def comparison(baseline: Contender, others: Sequence[Contender], measure: Measure = SELFREFLECT) -> Table:
    """Tabulate the differences of ``others`` from ``baseline``; the notes put them in words and warn."""
    rows = []
    notes = []
    scores = list(baseline.scores.values()) if measure is SELFREFLECT else []
    for other in others:
        result = compare(baseline, other, measure)
        paired = result.paired
        difference = paired.difference
        both: list[Score] = []
        if measure is SELFREFLECT:
            both = [*baseline.scores.values(), *other.scores.values()]
            scores += other.scores.values()
        mean = approximate(difference.mean, any(score.estimate for score in both))
        cells = (mean, difference.low, difference.high, difference.n, difference.coverage)
        counts = (paired.wins, paired.ties, paired.losses, paired.p_value)
        rows.append((other.label, other.strategy, *cells, *counts))
        notes += [result.sentence, *_warnings(baseline, other, measure)]
    notes += estimate_note(scores)
    test = "p: two-sided sign-flip test"
    if len(others) > 1:
        test += ", not adjusted for multiple comparisons"
    notes.append(f"{METHOD}; {test}")
    name = f"{baseline.strategy} ({baseline.label})" if baseline.label else baseline.strategy
    better = "above 0 is better" if measure.higher_is_better else "below 0 is better"
    title = f"Difference in {measure.quantity}, strategy − {name}: {better}"
    return Table(title, columns(measure), tuple(rows), tuple(notes))


def _warnings(baseline: Contender, other: Contender, measure: Measure) -> list[str]:
    warnings = []
    theirs = measure.settings(other.run, other.strategy)
    own = measure.settings(baseline.run, baseline.strategy)
    different = [id_ for id_ in theirs.keys() & own.keys() if theirs[id_] != own[id_]]
    if different:
        settings = sorted({theirs[id_] for id_ in different})
        base_settings = sorted({own[id_] for id_ in different})
        warnings.append(
            f"NOT DIRECTLY COMPARABLE: {other.strategy} was {measure.settings_text} "
            f"({'; '.join(settings)} against {'; '.join(base_settings)})"
        )
    common = len(baseline.common_questions(other))
    counts = len(other.run.questions), len(baseline.run.questions)
    if common < max(counts):
        warnings.append(
            f"the runs ask different questions: {common} of {counts[0]} and {counts[1]} are common, and only "
            "these are compared"
        )
    return warnings
