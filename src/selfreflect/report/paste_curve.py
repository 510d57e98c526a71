"""The fair control for length: what raw answers tell, pasted as a summary, against their number of words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean

import numpy as np

from selfreflect.records import Controls
from selfreflect.report.run_records import RunRecords
from selfreflect.stats import Estimate, mean_interval
from selfreflect.table import Cell, Column, Table
from selfreflect.text import counted, one_line


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
    bits = [0.0]
    for control in controls.controls:
        if control.name == "pasted" and control.bits is not None:
            answers.append(control.answers)
            words.append(control.words)
            bits.append(control.bits)
    return PasteCurve(answers, words, bits)


PASTE_COLUMNS = (
    Column("text"),
    Column("mean words", ".0f"),
    Column("bits", ".1f"),
    Column("95% low", ".1f"),
    Column("95% high", ".1f"),
    Column("n", "d"),
)


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
