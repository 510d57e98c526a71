"""Effect of summary length: length audit, and pasted answers of equal length."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from statistics import fmean, median

import numpy as np

from selfreflect.records import Controls
from selfreflect.report.run_records import RunRecords
from selfreflect.report.wording import say
from selfreflect.stats import FEWEST_CORRELATED, FEWEST_TESTED, Estimate, mean_interval, rank_correlation
from selfreflect.table import Cell, Column, Table
from selfreflect.text import one_line

_CORRELATION = "+z.2f"
COLUMNS = (
    Column("rank correlation", _CORRELATION),
    Column("95% low", _CORRELATION),
    Column("95% high", _CORRELATION),
    Column("n", "d"),
    Column("median words", "g"),
)
POINT_COLUMNS = (
    Column("question_id"),
    Column("strategy"),
    Column("summary_words", "d"),
    Column("score", ".4f"),
)
PASTE_COLUMNS = (
    Column("text"),
    Column("mean words", ".0f", short="words"),
    Column("bits", ".1f"),
    Column("95% low", ".1f", end="low"),
    Column("95% high", ".1f", end="high"),
    Column("n", "d"),
)

Points = Mapping[str, tuple[int, float]]
"""One strategy's summaries by question: length in words, and score."""


def length_audit(run: RunRecords) -> dict[str, Points]:
    """Collect length and score of each strategy's scored summaries."""
    audits: dict[str, Points] = {}
    for name in run.strategies:
        points = {}
        for id_, score in run.by_question(run.scores, name).items():
            summary = run.summaries.get((id_, name))
            if summary:
                points[id_] = len(summary.text.split()), score.value
        audits[name] = points
    return audits


def length_correlation(points: Points) -> Estimate:
    """Compute the rank correlation of length and score."""
    return rank_correlation([words for words, _ in points.values()], [score for _, score in points.values()])


def length_table(audits: Mapping[str, Points], noun: str = "strategy") -> Table:
    """Tabulate the rank correlation of score and length by strategy, or by ``noun``."""
    rows = []
    for strategy, points in audits.items():
        rho = length_correlation(points)
        words = float(median(words for words, _ in points.values())) if points else None
        rows.append((strategy, rho.mean, rho.low, rho.high, rho.n, words))
    notes = []
    better, pairs = _longer_is_better(audits)
    if pairs:
        notes.append(say("longer", better=better, pairs=pairs))
    has_few = any(0 < len(points) < FEWEST_CORRELATED for points in audits.values())
    notes.append(say("correlation", fewest=FEWEST_CORRELATED if has_few else None))
    columns = (Column("strategy", shown=noun), *COLUMNS)
    return Table("Score against length of the summary", columns, tuple(rows), tuple(notes))


def _longer_is_better(audits: Mapping[str, Points]) -> tuple[int, int]:
    """Count the pairs of a question's summaries in which the longer one scores lower, and all untied
    pairs."""
    better = 0
    pairs = 0
    for a, b in combinations(audits.values(), 2):
        for id_ in a.keys() & b.keys():
            words_a, score_a = a[id_]
            words_b, score_b = b[id_]
            if words_a != words_b and score_a != score_b:
                pairs += 1
                better += (words_a > words_b) == (score_a < score_b)
    return better, pairs


def point_table(audits: Mapping[str, Points]) -> Table:
    """Tabulate length and score of every summary, as plotted."""
    rows = []
    for strategy, points in audits.items():
        for id_, (words, score) in points.items():
            rows.append((id_, strategy, words, score))
    return Table("Length and score of every summary", POINT_COLUMNS, tuple(rows))


@dataclass(frozen=True)
class PastedAnswers:
    """Bits of pasted answers, from no answer to all, linearly interpolated. Each array has shape (K,).

    ``answers`` and ``words`` ascend from 0.
    """

    answers: Sequence[float]
    words: Sequence[float]
    bits: Sequence[float]
    note: str = ""
    """Note on questions left out of a mean."""

    def equal(self, bits: float) -> tuple[float, float] | None:
        """Find the smallest number of pasted answers with at least ``bits``, and its number of words.

        None if no answer is needed, or if not even all of them have as many.
        """
        if bits <= 0 or bits > max(self.bits):
            return None
        # the first segment that reaches so many bits: the line may fall again behind it
        end = next(index for index, height in enumerate(self.bits) if height >= bits)
        ends = slice(end - 1, end + 1)
        answers = np.interp(bits, self.bits[ends], self.answers[ends])
        words = np.interp(bits, self.bits[ends], self.words[ends])
        return float(answers), float(words)

    def sentence(self, subject: str, words: float, bits: float, low: float | None = math.inf) -> str:
        """Describe how many pasted answers recover as much as one summary or a mean of summaries.

        Args:
            subject: the summary's name at the start of the sentence.
            low: the lower end of the interval of ``bits``, None without one; an exact number needs none.
        """
        answers, pasted_words = self.equal(bits) or (0.0, self.words[-1])
        if bits <= 0:
            case = "nothing"
        elif bits > max(self.bits):
            # more only where the interval leaves out what all answers recover
            case = "more" if low is not None and low > max(self.bits) else "all"
        else:
            case = "hardly" if answers < 0.05 else "equal"  # would be 0.0 answers, of no word
        counts = {"words": round(words), "answers": answers, "pasted_words": round(pasted_words)}
        return say("pasted", subject=subject, case=case, **counts)


def mean_pasted(curves: Sequence[PastedAnswers]) -> PastedAnswers:
    """Average the curves that have the most points.

    Those of questions with fewer answers are left out: they lack points in between.
    """
    length = max(len(curve.answers) for curve in curves)
    longest = [curve for curve in curves if len(curve.answers) == length]
    table = np.mean([(curve.answers, curve.words, curve.bits) for curve in longest], axis=0)
    return PastedAnswers(*table.tolist())


@dataclass(frozen=True)
class StrategyPoint:
    """Mean bits and words of a strategy's summaries over questions."""

    strategy: str
    words: float
    bits: Estimate
    pasted: PastedAnswers
    """Mean over this strategy's questions, possibly fewer."""


def run_pasted(run: RunRecords) -> tuple[PastedAnswers, list[StrategyPoint]] | None:
    """Average the pasted answers over a run's questions, and compute the points of its strategies.

    Only questions count where the answers hold information for the judge, and where as many answers were
    pasted as anywhere. If the judge saw some questions and not others, the smaller number is left out: a
    blind judge learns more from the same text. None if there is no such question.
    """
    curves = {}
    for id_ in run.questions:
        results = [run.information.get((id_, name)) for name in run.strategies]
        # where nothing can be recovered, pasted answers are no baseline either
        if id_ in run.controls and any(record and record.recovered is not None for record in results):
            curves[id_] = _question_pasted(run.controls[id_])
    length = max((len(curve.answers) for curve in curves.values()), default=1)
    longest = {id_: curve for id_, curve in curves.items() if len(curve.answers) == length}
    if length == 1:
        return None
    note = ""
    readers = Counter(run.controls[id_].reader for id_ in longest)
    [(reader, count), *_] = readers.most_common()
    if count < len(longest):
        longest = {id_: curve for id_, curve in longest.items() if run.controls[id_].reader == reader}
        note = say("one_reader", questions=count, reader=reader)
    points = []
    for name in run.strategies:
        words = []
        bits = []
        strategy_curves = []
        for id_, curve in longest.items():
            summary = run.summaries.get((id_, name))
            information = run.information.get((id_, name))
            if summary is not None and information is not None and information.bits is not None:
                words.append(len(summary.text.split()))
                bits.append(information.bits)
                strategy_curves.append(curve)
        if bits:
            estimate = mean_interval(bits, len(longest))
            if estimate.n < FEWEST_TESTED:
                estimate = estimate.without_interval()
            points.append(
                StrategyPoint(run.display_name(name), fmean(words), estimate, mean_pasted(strategy_curves))
            )
    return replace(mean_pasted(list(longest.values())), note=note), points


def _question_pasted(controls: Controls) -> PastedAnswers:
    answers = [0.0]
    words = [0.0]
    empty = controls.find("empty")
    bits = [empty.bits or 0.0 if empty else 0.0]
    for control in controls.controls:
        if control.name == "pasted" and control.bits is not None:
            answers.append(control.answers)
            words.append(control.words)
            bits.append(control.bits)
    return PastedAnswers(answers, words, bits)


def pasted_table(pasted: PastedAnswers, points: Sequence[StrategyPoint]) -> Table:
    """Tabulate strategies and pasted answers, with equivalent numbers of answers as notes."""
    rows: list[tuple[Cell, ...]] = []
    notes = []
    for point in points:
        bits = point.bits
        rows.append((point.strategy, point.words, bits.mean, bits.low, bits.high, bits.n))
        if bits.mean is not None:
            subject = f"On average, {one_line(point.strategy)}"
            notes.append(point.pasted.sentence(subject, point.words, bits.mean, bits.low))
    for answers, words, height in zip(pasted.answers, pasted.words, pasted.bits, strict=True):
        if answers:
            name = f"control: {round(answers, 1):g} answer{'' if answers == 1 else 's'} pasted"
            rows.append((name, words, height, None, None, None))
    if pasted.note:
        notes.append(pasted.note)
    return Table("Bits per answer, against words", PASTE_COLUMNS, tuple(rows), tuple(notes))
