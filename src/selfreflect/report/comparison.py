"""Compare strategies, within a run or across runs, by paired differences on common questions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from selfreflect.errors import DataError, excerpt, nearest
from selfreflect.records import Sampled
from selfreflect.render.table import Column, Table
from selfreflect.report.overview import METHOD, approximate, estimate_note, judges
from selfreflect.report.run_records import RunRecords
from selfreflect.stats import PairedEstimate, paired_difference

_DIFFERENCE = "+z.4f"
COLUMNS = (
    Column("run"),
    Column("strategy"),
    Column("difference", _DIFFERENCE),
    Column("95% low", _DIFFERENCE),
    Column("95% high", _DIFFERENCE),
    Column("n common", "d"),
    Column("coverage", ".1%"),
    Column("wins", "d"),
    Column("ties", "d"),
    Column("losses", "d"),
    Column("p", ".2g"),
)


@dataclass(frozen=True)
class Contender:
    """One strategy of one run, and what its scores depend on."""

    label: str
    strategy: str
    questions: Mapping[str, str]
    """The texts of the run's questions by id."""
    values: Mapping[str, float]
    """Its scores by question id."""
    judges: tuple[str, ...]
    estimates: tuple[Sampled, ...] = ()
    """How its estimated scores were sampled."""


@dataclass(frozen=True)
class Comparison:
    """``other`` against ``baseline`` on their common questions."""

    baseline: Contender
    other: Contender
    paired: PairedEstimate

    @property
    def sentence(self) -> str:
        """The result in words; :func:`~selfreflect.stats.clear_sign` decides which differences are clear."""
        other, baseline = self.other.strategy, self.baseline.strategy
        if self.other.label != self.baseline.label:
            other += f" ({self.other.label})"
            baseline += f" ({self.baseline.label})"
        estimate = self.paired.difference
        p_value = self.paired.p_value
        if estimate.mean is None:
            return f"{other} and {baseline} have no scored question in common"
        on = f"on {estimate.n} common question{'' if estimate.n == 1 else 's'}"
        if estimate.low is None or estimate.high is None or p_value is None:
            return f"one question is too few to compare {other} with {baseline}: {estimate.mean:+z.4f} {on}"
        if not self.paired.clear_sign:
            interval = f"{estimate.mean:+z.4f} [{estimate.low:+z.4f}, {estimate.high:+z.4f}]"
            return f"no clear difference between {other} and {baseline}: {interval} {on} (p = {p_value:.2g})"
        direction = "lower (better)" if estimate.mean < 0 else "higher (worse)"
        low, high = sorted((abs(estimate.low), abs(estimate.high)))
        return (
            f"{other} is {direction} than {baseline} by {abs(estimate.mean):.4f} [{low:.4f}, {high:.4f}] {on}"
        )


def contender(run: RunRecords, strategy: str) -> Contender:
    """Make one side of a comparison.

    Raises:
        DataError: the run has no such strategy.
    """
    if strategy not in run.strategies:
        known = list(run.strategies)
        raise DataError(
            f"run {excerpt(run.label)} has no strategy {excerpt(strategy)}, only {', '.join(known)}."
            f"{nearest(strategy, known)}"
        )
    return Contender(
        label=run.label,
        strategy=strategy,
        questions={id_: question.text for id_, question in run.questions.items()},
        values=run.values(strategy),
        judges=tuple(judges(run.strategy_scores(strategy).values())),
        estimates=tuple(run.estimates(strategy)),
    )


def compare(baseline: Contender, other: Contender) -> Comparison:
    """Compute the paired difference ``other - baseline`` on common questions (same id and same text)."""
    common = _common_questions(baseline, other)
    a = {id_: baseline.values[id_] for id_ in common if id_ in baseline.values}
    b = {id_: other.values[id_] for id_ in common if id_ in other.values}
    return Comparison(baseline, other, paired_difference(a, b, len(common)))


def comparison(baseline: Contender, others: Sequence[Contender]) -> Table:
    """Tabulate the differences of ``others`` from ``baseline``; the notes put them in words and warn."""
    rows = []
    notes = []
    estimates = list(baseline.estimates)
    scores = len(baseline.values)
    for other in others:
        result = compare(baseline, other)
        paired = result.paired
        difference = paired.difference
        mean = approximate(difference.mean, bool(baseline.estimates or other.estimates))
        cells = (mean, difference.low, difference.high, difference.n, difference.coverage)
        counts = (paired.wins, paired.ties, paired.losses, paired.p_value)
        rows.append((other.label, other.strategy, *cells, *counts))
        notes += [result.sentence, *_warnings(baseline, other)]
        estimates += other.estimates
        scores += len(other.values)
    if estimates:
        notes.append(estimate_note(estimates, scores))
    test = "p: two-sided sign-flip test"
    if len(others) > 1:
        test += ", not adjusted for multiple comparisons"
    notes.append(f"{METHOD}; {test}")
    name = f"{baseline.strategy} ({baseline.label})" if baseline.label else baseline.strategy
    title = f"Difference in SelfReflect score from {name}: below 0 is better"
    return Table(title, COLUMNS, tuple(rows), tuple(notes))


def _common_questions(baseline: Contender, other: Contender) -> list[str]:
    return [id_ for id_, text in baseline.questions.items() if other.questions.get(id_) == text]


def _warnings(baseline: Contender, other: Contender) -> list[str]:
    warnings = []
    if baseline.judges and other.judges and len({*baseline.judges, *other.judges}) > 1:
        warnings.append(
            f"NOT DIRECTLY COMPARABLE: {other.strategy} was scored with another judge or other settings "
            f"({'; '.join(other.judges)} against {'; '.join(baseline.judges)})"
        )
    common = len(_common_questions(baseline, other))
    if common < max(len(baseline.questions), len(other.questions)):
        warnings.append(
            f"the runs ask different questions: {common} of {len(other.questions)} and "
            f"{len(baseline.questions)} are common, and only these are compared"
        )
    return warnings
