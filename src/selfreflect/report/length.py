"""The length audit: show whether longer summaries score better."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import median

from selfreflect.render.table import Column, Table
from selfreflect.report.run_records import RunRecords
from selfreflect.stats import RankCorrelation, rank_correlation

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


@dataclass(frozen=True)
class LengthAudit:
    """Lengths and scores of one strategy's summaries, for each of ``questions``."""

    strategy: str
    questions: tuple[str, ...]
    words: tuple[int, ...]
    scores: tuple[float, ...]

    @property
    def correlation(self) -> RankCorrelation:
        return rank_correlation(self.words, self.scores)


def length_audit(run: RunRecords) -> list[LengthAudit]:
    """Audit each strategy, in run order."""
    audits = []
    for name in run.strategies:
        values = {id_: value for id_, value in run.values(name).items() if (id_, name) in run.summaries}
        words = tuple(len(run.summaries[id_, name].text.split()) for id_ in values)
        audits.append(LengthAudit(name, tuple(values), words, tuple(values.values())))
    return audits


def length_table(audits: Sequence[LengthAudit]) -> Table:
    """Tabulate the rank correlation of score and length for each strategy."""
    rows = []
    for audit in audits:
        correlation = audit.correlation
        words = float(median(audit.words)) if audit.words else None
        interval = (correlation.low, correlation.high)
        rows.append((audit.strategy, correlation.rho, *interval, correlation.n, words))
    notes = [METHOD]
    better, pairs = _longer_is_better(audits)
    if pairs:
        notes.insert(
            0,
            f"of two summaries of one question, the longer one has the lower (better) score in {better} of "
            f"{pairs} pairs ({better / pairs:.0%})",
        )
    return Table("Score against length of the summary", COLUMNS, tuple(rows), tuple(notes))


def _longer_is_better(audits: Sequence[LengthAudit]) -> tuple[int, int]:
    """Count the pairs of summaries of one question whose longer one scores lower, and all pairs without
    ties."""
    points = []
    for audit in audits:
        pairs_of_audit = zip(audit.words, audit.scores, strict=True)
        points.append(dict(zip(audit.questions, pairs_of_audit, strict=True)))
    better = 0
    pairs = 0
    for a, b in combinations(points, 2):
        for id_ in a.keys() & b.keys():
            words_a, score_a = a[id_]
            words_b, score_b = b[id_]
            if words_a != words_b and score_a != score_b:
                pairs += 1
                better += (words_a > words_b) == (score_a < score_b)
    return better, pairs


def point_table(audits: Sequence[LengthAudit]) -> Table:
    """Tabulate the length and score of every summary, the points of the plot."""
    rows = []
    for audit in audits:
        for id_, words, score in zip(audit.questions, audit.words, audit.scores, strict=True):
            rows.append((id_, audit.strategy, words, score))
    return Table("Length and score of every summary", POINT_COLUMNS, tuple(rows))
