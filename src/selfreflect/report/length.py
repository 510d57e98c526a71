"""The length audit: show whether longer summaries score better."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations
from statistics import median

from selfreflect.report.run_records import RunRecords
from selfreflect.stats import FEWEST_CORRELATED, Estimate, rank_correlation
from selfreflect.table import Column, Table

_CORRELATION = "+z.2f"
COLUMNS = (
    Column("strategy"),
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
METHOD = (
    "Spearman's rank correlation of score and length in words, below 0 if longer summaries score lower "
    "(better); intervals: 95% Fisher z"
)

Points = Mapping[str, tuple[int, float]]
"""One strategy's summaries by question: length in words, and score."""


def length_audit(run: RunRecords) -> dict[str, Points]:
    """Measure the scored summaries of each strategy."""
    audits: dict[str, Points] = {}
    for name in run.strategies:
        points = {}
        for id_, score in run.strategy_scores(name).items():
            summary = run.summaries.get((id_, name))
            if summary:
                points[id_] = len(summary.text.split()), score.value
        audits[name] = points
    return audits


def length_correlation(points: Points) -> Estimate:
    """Correlate the ranks of length and score."""
    return rank_correlation([words for words, _ in points.values()], [score for _, score in points.values()])


def length_table(audits: Mapping[str, Points]) -> Table:
    """Tabulate the rank correlation of score and length for each strategy."""
    rows = []
    for strategy, points in audits.items():
        rho = length_correlation(points)
        words = float(median(words for words, _ in points.values())) if points else None
        rows.append((strategy, rho.mean, rho.low, rho.high, rho.n, words))
    notes = [METHOD]
    if any(0 < len(points) < FEWEST_CORRELATED for points in audits.values()):
        notes[0] += f"; none with fewer than {FEWEST_CORRELATED} summaries"
    better, pairs = _longer_is_better(audits)
    if pairs:
        notes.insert(
            0,
            f"of two summaries of one question, the longer one has the lower (better) score in {better} of "
            f"{pairs} pairs ({better / pairs:.0%})",
        )
    return Table("Score against length of the summary", COLUMNS, tuple(rows), tuple(notes))


def _longer_is_better(audits: Mapping[str, Points]) -> tuple[int, int]:
    """Count the pairs of summaries of one question whose longer one scores lower, and all pairs without
    ties."""
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
    """Tabulate the length and score of every summary, the points of the plot."""
    rows = []
    for strategy, points in audits.items():
        for id_, (words, score) in points.items():
            rows.append((id_, strategy, words, score))
    return Table("Length and score of every summary", POINT_COLUMNS, tuple(rows))
