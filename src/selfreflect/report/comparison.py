"""Compare strategies: with each other by paired differences on common questions, and with raw answers, pasted
as a summary, the fair control for length."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import fmean

import numpy as np

from selfreflect.errors import DataError, excerpt, nearest
from selfreflect.records import Controls, Score
from selfreflect.report.results import METHOD, SELFREFLECT, Measure, approximate, estimate_note, run_measures
from selfreflect.report.run_records import RunRecords
from selfreflect.stats import FEWEST_TESTED, Estimate, PairedEstimate, clear_sign, mean_interval
from selfreflect.table import Cell, Column, Table
from selfreflect.text import counted, one_line

PASTE_COLUMNS = (
    Column("text"),
    Column("mean words", ".0f"),
    Column("bits", ".1f"),
    Column("95% low", ".1f"),
    Column("95% high", ".1f"),
    Column("n", "d"),
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

    A run directory has them in the order of ``--strategies``.

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
    own = list(baseline.scores.values()) if measure is SELFREFLECT else []
    scores = [*own]
    for other in others:
        result = compare(baseline, other, measure)
        paired = result.paired
        difference = paired.difference
        theirs = list(other.scores.values()) if measure is SELFREFLECT else []
        scores += theirs
        mean = approximate(difference.mean, any(score.estimate for score in [*own, *theirs]))
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
    columns = (
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
    return Table(title, columns, tuple(rows), tuple(notes))


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


@dataclass(frozen=True)
class PasteCurve:
    """From nothing to all conditioning answers pasted, straight lines in between; each of shape (K,).

    ``answers`` and ``words`` ascend from 0.
    """

    answers: Sequence[float]
    words: Sequence[float]
    bits: Sequence[float]
    left_out: str = ""
    """Which questions a mean curve leaves out, in words."""

    def at(self, words: float) -> float:
        """The bits in as many words; those of all answers if they have fewer."""
        return float(np.interp(words, self.words, self.bits))

    def equal(self, bits: float) -> tuple[float, float] | None:
        """The fewest answers that tell as much, and their words. None if no answer is needed, or if not even
        all of them tell as much."""
        if bits <= 0 or bits > max(self.bits):
            return None
        end = next(index for index, height in enumerate(self.bits) if height >= bits)
        ends = slice(end - 1, end + 1)
        answers = np.interp(bits, self.bits[ends], self.answers[ends])
        words = np.interp(bits, self.bits[ends], self.words[ends])
        return float(answers), float(words)

    def sentence(self, subject: str, words: float, bits: float) -> str:
        """Say how many pasted answers tell as much as a summary, or a mean of summaries.

        Args:
            subject: the summary's name at the start of the sentence.
        """
        if bits <= 0:
            return f"{subject} tells nothing, in {_words(words)}."
        equal = self.equal(bits)
        if equal is None:
            most = f"all answers pasted ({_words(self.words[-1])})"
            return f"{subject} tells more in {_words(words)} than {most}."
        answers, equal_words = equal
        if answers < 0.05:  # would be 0.0 answers, of no word
            return f"{subject} tells hardly anything, in {_words(words)}."
        return (
            f"{subject} tells as much in {_words(words)} as pasting {answers:.1f} answers "
            f"({_words(equal_words)})."
        )


def _words(number: float) -> str:
    return counted(round(number), "word")


def mean_curve(curves: Sequence[PasteCurve]) -> PasteCurve:
    """Means over the curves with the most points. Those of questions with fewer answers are left out: they
    lack points in between."""
    most = max(len(curve.answers) for curve in curves)
    longest = [curve for curve in curves if len(curve.answers) == most]
    table = np.mean([(curve.answers, curve.words, curve.bits) for curve in longest], axis=0)
    return PasteCurve(*table.tolist())


@dataclass(frozen=True)
class StrategyPoint:
    """What the summaries of one strategy tell, on average over questions, and in how many words."""

    strategy: str
    words: float
    bits: Estimate
    curve: PasteCurve
    """The mean curve of the strategy's own questions, which may be fewer."""


def run_curve(run: RunRecords) -> tuple[PasteCurve, list[StrategyPoint]] | None:
    """Average the paste curves of a run's questions, and place its strategies beside the mean curve.

    Only questions count where the answers tell the judge something, and where as many answers were pasted as
    anywhere. If the judge saw some questions and not others, the smaller number is left out: a blind judge is
    told more by the same text. None if there is no such question.
    """
    curves = {}
    for id_ in run.questions:
        results = [run.information.get((id_, name)) for name in run.strategies]
        if id_ in run.controls and any(one is not None and one.recovered is not None for one in results):
            curves[id_] = _question_curve(run.controls[id_])
    most = max((len(curve.answers) for curve in curves.values()), default=1)
    longest = {id_: curve for id_, curve in curves.items() if len(curve.answers) == most}
    if most == 1:
        return None
    left_out = ""
    readers = Counter(run.controls[id_].reader for id_ in longest)
    [(reader, count), *_] = readers.most_common()
    if count < len(longest):
        longest = {id_: curve for id_, curve in longest.items() if run.controls[id_].reader == reader}
        left_out = f"words and bits are of the {count} questions with the {reader} reader only"
    points = []
    for name in run.strategies:
        words = []
        bits = []
        own = []
        for id_, curve in longest.items():
            summary = run.summaries.get((id_, name))
            information = run.information.get((id_, name))
            if summary is not None and information is not None and information.bits is not None:
                words.append(len(summary.text.split()))
                bits.append(information.bits)
                own.append(curve)
        if bits:
            estimate = mean_interval(bits, len(longest))
            points.append(StrategyPoint(name, fmean(words), estimate, mean_curve(own)))
    return replace(mean_curve(list(longest.values())), left_out=left_out), points


def _question_curve(controls: Controls) -> PasteCurve:
    answers = [0.0]
    words = [0.0]
    empty = controls.find("empty")
    bits = [empty.bits or 0.0 if empty else 0.0]
    for control in controls.controls:
        if control.name == "pasted" and control.bits is not None:
            answers.append(control.answers)
            words.append(control.words)
            bits.append(control.bits)
    return PasteCurve(answers, words, bits)


def paste_table(curve: PasteCurve, points: Sequence[StrategyPoint]) -> Table:
    """Tabulate the strategies and the points of the curve; the notes say how many answers each is worth."""
    rows: list[tuple[Cell, ...]] = []
    notes = []
    for point in points:
        bits = point.bits
        rows.append((point.strategy, point.words, bits.mean, bits.low, bits.high, bits.n))
        if bits.mean is not None:
            subject = f"On average, {one_line(point.strategy)}"
            notes.append(point.curve.sentence(subject, point.words, bits.mean))
    for answers, words, height in zip(curve.answers, curve.words, curve.bits, strict=True):
        if answers:
            name = f"control: {answers:g} answer{'' if answers == 1 else 's'} pasted"
            rows.append((name, words, height, None, None, None))
    if curve.left_out:
        notes.append(curve.left_out)
    return Table("Bits per answer, against words", PASTE_COLUMNS, tuple(rows), tuple(notes))
