"""Paired differences between strategies, within a run or across runs, on the questions that both sides have
scored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from selfreflect.errors import DataError, excerpt, nearest
from selfreflect.records import Sampled
from selfreflect.render.table import Column, Table
from selfreflect.report.overview import METHOD, RunRecords, approximate, estimate_note, judges
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
    """One strategy of one run, with what its scores depend on."""

    label: str
    strategy: str
    questions: Mapping[str, str]
    """The text of each question of the run, by id."""
    values: Mapping[str, float]
    """Its scores, by question id."""
    judges: tuple[str, ...]
    estimates: tuple[Sampled, ...] = ()
    """How those of its scores were estimated that are not exact."""


@dataclass(frozen=True)
class Comparison:
    """``other`` against ``baseline`` on the questions that they share."""

    baseline: Contender
    other: Contender
    paired: PairedEstimate

    @property
    def sentence(self) -> str:
        """The result in words; which differences are clear is decided by
        :func:`~selfreflect.stats.clear_sign`."""
        other, baseline = _names(self.other, self.baseline)
        estimate, p_value = self.paired.difference, self.paired.p_value
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
    """One side of a comparison.

    Raises:
        DataError: where the run has no such strategy.
    """
    if strategy not in run.strategies:
        known = list(run.strategies)
        raise DataError(
            f"run {excerpt(run.label)} has no strategy {excerpt(strategy)}, only {', '.join(known)}.{nearest(strategy, known)}"
        )
    values = run.values(strategy)
    settings = judges(run.scores[id_, strategy] for id_ in values)
    texts = {id_: question.text for id_, question in run.questions.items()}
    return Contender(run.label, strategy, texts, values, tuple(settings), tuple(run.estimates(strategy)))


def compare(baseline: Contender, other: Contender) -> Comparison:
    """The paired difference ``other - baseline``; a question is shared where both its id and its text
    agree."""
    shared = _shared_questions(baseline, other)
    a, b = ({id_: side.values[id_] for id_ in shared if id_ in side.values} for side in (baseline, other))
    return Comparison(baseline, other, paired_difference(a, b, len(shared)))


def comparison(baseline: Contender, others: Sequence[Contender]) -> Table:
    """One row for each of ``others``; the notes say the same in words, and what stands in the way of a fair
    comparison."""
    results = [compare(baseline, other) for other in others]
    rows = []
    for result in results:
        paired, estimate = result.paired, result.paired.difference
        mean = approximate(estimate.mean, len(baseline.estimates) + len(result.other.estimates))
        cells = (mean, estimate.low, estimate.high, estimate.n, estimate.coverage)
        counts = (paired.wins, paired.ties, paired.losses, paired.p_value)
        rows.append((result.other.label, result.other.strategy, *cells, *counts))
    notes = [note for result in results for note in (result.sentence, *_warnings(result))]
    sides = [baseline, *others]
    if estimates := [estimate for side in sides for estimate in side.estimates]:
        notes.append(estimate_note(estimates, sum(len(side.values) for side in sides)))
    notes.append(
        f"{METHOD}; p: two-sided sign-flip test"
        + (", not adjusted for several comparisons" if len(results) > 1 else "")
    )
    name = baseline.strategy + (f" ({baseline.label})" if baseline.label else "")
    return Table(
        f"Difference in SelfReflect score to {name}: below 0 is better", COLUMNS, tuple(rows), tuple(notes)
    )


def _names(other: Contender, baseline: Contender) -> tuple[str, str]:
    if other.label == baseline.label:
        return other.strategy, baseline.strategy
    return f"{other.strategy} ({other.label})", f"{baseline.strategy} ({baseline.label})"


def _shared_questions(baseline: Contender, other: Contender) -> list[str]:
    return [id_ for id_, text in baseline.questions.items() if other.questions.get(id_) == text]


def _warnings(result: Comparison) -> list[str]:
    baseline, other = result.baseline, result.other
    warnings = []
    if baseline.judges and other.judges and (len({*baseline.judges, *other.judges}) > 1):
        both = f"{'; '.join(other.judges)} against {'; '.join(baseline.judges)}"
        warnings.append(
            f"NOT DIRECTLY COMPARABLE: {other.strategy} was scored with another judge or other settings ({both})"
        )
    shared = len(_shared_questions(baseline, other))
    if shared < max(len(baseline.questions), len(other.questions)):
        sizes = f"{len(other.questions)} and {len(baseline.questions)}"
        warnings.append(
            f"the runs ask different questions: {shared} of {sizes} are shared, and only those are compared"
        )
    return warnings
