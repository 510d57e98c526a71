"""The length audit: do longer summaries score better? Shown rather than hidden, since a score alone cannot
tell."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import NormalDist, median

import numpy as np

from selfreflect.render.table import Cell, Column, Table
from selfreflect.report.overview import RunRecords
from selfreflect.stats import Floats

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
    "Spearman's rank correlation of score and length in words, below 0 where longer summaries score lower "
    "(better); intervals: 95% Fisher z"
)


@dataclass(frozen=True)
class RankCorrelation:
    """Spearman's rho of ``n`` pairs and its interval. ``rho`` is None where one side does not vary, the ends
    with fewer than 4 pairs."""

    rho: float | None
    low: float | None
    high: float | None
    n: int


@dataclass(frozen=True)
class LengthAudit:
    """Score against length, for the scored summaries of one strategy."""

    strategy: str
    questions: tuple[str, ...]
    words: tuple[int, ...]
    scores: tuple[float, ...]

    @property
    def correlation(self) -> RankCorrelation:
        return rank_correlation(self.words, self.scores)


def length_audit(run: RunRecords) -> list[LengthAudit]:
    """One audit per strategy, in the order of the run."""
    audits = []
    for name in run.strategies:
        values = {id_: value for id_, value in run.values(name).items() if (id_, name) in run.summaries}
        words = tuple(len(run.summaries[id_, name].text.split()) for id_ in values)
        audits.append(LengthAudit(name, tuple(values), words, tuple(values.values())))
    return audits


def length_table(audits: Sequence[LengthAudit]) -> Table:
    """One row per strategy, and in words how the longer of two summaries of one question fares."""
    rows: list[tuple[Cell, ...]] = []
    for audit in audits:
        found = audit.correlation
        rows.append(
            (
                audit.strategy,
                found.rho,
                found.low,
                found.high,
                found.n,
                float(median(audit.words)) if audit.words else None,
            )
        )
    return Table(
        "Score against length of the summary", COLUMNS, tuple(rows), (*_longer_of_two(audits), METHOD)
    )


def point_table(audits: Sequence[LengthAudit]) -> Table:
    """The points behind the plot: one row per scored summary."""
    rows = [
        (id_, audit.strategy, words, score)
        for audit in audits
        for id_, words, score in zip(audit.questions, audit.words, audit.scores, strict=True)
    ]
    return Table("Score and length of every summary", POINT_COLUMNS, tuple(rows))


def rank_correlation(a: Sequence[float], b: Sequence[float]) -> RankCorrelation:
    """Spearman's rho with ties at their mean rank; its interval by Fisher's z with the variance of Bonett and
    Wright (2000), Psychometrika 65, 23-28: (1 + rho^2 / 2) / (n - 3).

    Raises:
        ValueError: where the two differ in length.
    """
    if len(a) != len(b):
        raise ValueError(f"{len(a)} and {len(b)} values are not pairs")
    n = len(a)
    x, y = (ranks(np.asarray(values, dtype=np.float64)) - (n + 1) / 2 for values in (a, b))
    scale = math.sqrt(float(x @ x) * float(y @ y))
    if not scale:
        return RankCorrelation(None, None, None, n)
    rho = max(-1.0, min(1.0, float(x @ y) / scale))
    if n < 4 or abs(rho) == 1:
        return RankCorrelation(rho, None, None, n)
    half = NormalDist().inv_cdf(0.975) * math.sqrt((1 + rho**2 / 2) / (n - 3))
    return RankCorrelation(rho, math.tanh(math.atanh(rho) - half), math.tanh(math.atanh(rho) + half), n)


def ranks(values: Floats) -> Floats:
    """Ranks from 1; equal values share the mean of their ranks."""
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    mean: Floats = (last - (counts - 1) / 2)[place.reshape(-1)]
    return mean


def _longer_of_two(audits: Sequence[LengthAudit]) -> list[str]:
    """How often the longer of two summaries of the same question has the lower score; ties on either side are
    left out."""
    found = [
        dict(zip(audit.questions, zip(audit.words, audit.scores, strict=True), strict=True))
        for audit in audits
    ]
    better = pairs = 0
    for one, other in combinations(found, 2):
        for id_ in one.keys() & other.keys():
            (words, score), (other_words, other_score) = one[id_], other[id_]
            if words != other_words and score != other_score:
                pairs += 1
                better += (words > other_words) == (score < other_score)
    if not pairs:
        return []
    return [
        f"of two summaries of one question the longer has the lower (better) score in {better} of {pairs} pairs ({better / pairs:.0%})"
    ]
