"""Scores of answers and whether the answers are correct, counted by distinct score.

Every measure reads these counts alone. So ties are explicit, no measure depends on the order of a file, and a
thousand resamples are one array with a row for each.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from selfreflect.errors import DataError
from selfreflect.stats import Floats

_BLOCK = 2**20
"""Counts resampled at a time, so that each temporary array takes about 8 MB."""


@dataclass(frozen=True)
class Tally:
    """G distinct scores, lowest first, of n answers."""

    values: Floats
    """Shape (G,). A higher score means more confidence."""
    counts: Floats
    """Shape (..., G): answers with each score; leading dimensions are resamples. May be 0 in a resample."""
    correct: Floats
    """Shape (..., G): how many of them are correct."""

    @classmethod
    def of(cls, scores: Sequence[float] | Floats, correct: Sequence[bool] | Sequence[int] | Floats) -> Tally:
        """Count scores, where a higher one means more confidence.

        Raises:
            DataError: a score is NaN or infinite, a label is not 0 or 1, the lengths differ, or there are
                none. The message names the index.
        """
        values, labels = score_pairs(scores, correct)
        distinct, group = np.unique(values, return_inverse=True)
        size = len(distinct)
        counts = np.bincount(group, minlength=size).astype(np.float64)
        right = np.bincount(group, labels, minlength=size).astype(np.float64)
        return cls(distinct, counts, right)

    @property
    def n(self) -> int:
        """Answers; the same in every resample."""
        return round(float(self.counts.sum(-1).flat[0]))

    @property
    def wrong(self) -> Floats:
        """Shape (..., G)."""
        return self.counts - self.correct

    @property
    def accuracy(self) -> Floats:
        """Share of correct answers; shape (...)."""
        shares: Floats = self.correct.sum(-1) / self.n
        return shares

    def require_probabilities(self) -> None:
        """Raise DataError unless every score lies in [0, 1]."""
        outside = (self.values < 0) | (self.values > 1)
        if outside.any():
            raise DataError(
                f"{self.values[outside][0]:g} is no probability: this measure needs confidences in [0, 1]"
            )

    def resamples(self, number: int, seed: int) -> Iterator[Tally]:
        """Draw answers with replacement, ``number`` times, in blocks of resamples."""
        size, n = len(self.values), self.n
        cells = np.concatenate([self.correct, self.wrong]).astype(np.intp)
        cell_of = np.repeat(np.arange(2 * size), cells)
        rng = np.random.default_rng(seed)
        rows_at_once = max(1, _BLOCK // max(n, size))
        for start in range(0, number, rows_at_once):
            rows = min(rows_at_once, number - start)
            sample = cell_of[rng.integers(0, n, (rows, n))] + 2 * size * np.arange(rows)[:, None]
            counts = np.bincount(sample.ravel(), minlength=2 * size * rows).reshape(rows, 2, size)
            yield Tally(self.values, counts.sum(1).astype(np.float64), counts[:, 0].astype(np.float64))


def score_pairs(
    scores: Sequence[float] | Floats, correct: Sequence[bool] | Sequence[int] | Floats
) -> tuple[Floats, Floats]:
    """Check scores and labels; two arrays of shape (n,). Raises DataError as :meth:`Tally.of`."""
    values, labels = finite_scores(scores), np.asarray(correct, dtype=np.float64)
    if values.ndim != 1 or values.shape != labels.shape or not len(values):
        raise DataError(f"{values.size} scores and {labels.size} labels are not pairs, at least one")
    _refuse_first((labels != 0) & (labels != 1), labels, "label", "0 or 1")
    return values, labels


def finite_scores(scores: Sequence[float] | Floats) -> Floats:
    """Check scores, of any shape. Raises DataError for the first one that is NaN or infinite."""
    values = np.asarray(scores, dtype=np.float64)
    _refuse_first(~np.isfinite(values), values, "score", "a finite number")
    return values


def _refuse_first(wrong: np.ndarray, values: Floats, what: str, requirement: str) -> None:
    if wrong.any():
        index = int(np.argmax(wrong))
        raise DataError(f"{what} {index} is {values[index]:g}; it must be {requirement}")
