"""Comparison of scores with correctness, by counts of distinct scores.

Every function takes a :class:`Tally` and returns one value for each of its resamples, shape (...). So ties
are explicit, the order of a file changes nothing, and a thousand resamples are one array with a row for each.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from selfreflect.errors import DataError
from selfreflect.stats import Floats

# Counts resampled at a time, so that each temporary array takes about 8 MB.
_BLOCK = 2**20
# From so many answers on, with so many at each score, a resample is drawn as counts and not answer by answer.
_MANY_ANSWERS = 5_000
_MANY_AT_A_SCORE = 64


@dataclass(frozen=True)
class Tally:
    """Counts of n answers by G distinct scores, lowest first."""

    values: Floats
    """Distinct scores, shape (G,). A higher score means more confidence."""
    counts: Floats
    """Answers with each score, shape (..., G); leading dimensions are resamples. May be 0 in a resample."""
    correct: Floats
    """Correct answers with each score, shape (..., G)."""
    cells: NDArray[np.intp] | None = None
    """Cell index of each dependent answer, shape (n,): right answers by score, then wrong ones by score."""
    groups: NDArray[np.intp] | None = None
    """Group number of each answer, shape (n,)."""

    @classmethod
    def of(
        cls,
        scores: Sequence[float] | Floats,
        correct: Sequence[bool] | Sequence[int] | Floats,
        groups: Sequence[str] = (),
    ) -> Tally:
        """Count answers by score (higher for more confidence).

        Args:
            groups: of each answer; those of one group, such as the fields of an object, are drawn together.
                Without it all are independent.

        Raises:
            DataError: a score is NaN or infinite, a label is not 0 or 1, the lengths differ, or there are
                none. The message names the index.
        """
        values, labels = score_pairs(scores, correct)
        distinct, group = np.unique(values, return_inverse=True)
        size = len(distinct)
        counts = np.bincount(group, minlength=size).astype(np.float64)
        right = np.bincount(group, labels, minlength=size).astype(np.float64)
        if not groups:
            return cls(distinct, counts, right)
        # right answers at each score, then wrong ones
        cells = group + size * (labels == 0)
        return cls(distinct, counts, right, cells, np.unique(np.array(groups), return_inverse=True)[1])

    @property
    def n(self) -> int:
        """Number of answers, of the first resample if there are several."""
        return round(float(self.sizes.flat[0]))

    @property
    def sizes(self) -> Floats:
        """Answers per resample, which vary if groups are drawn; shape (...)."""
        sizes: Floats = np.asarray(self.counts.sum(-1))
        return sizes

    @property
    def independent(self) -> tuple[int, int, int]:
        """Count independent answers, right ones and wrong ones; dependent answers count once per group."""
        if self.cells is None or self.groups is None:
            return self.n, round(float(self.correct.sum())), round(float(self.wrong.sum()))
        # a group counts as right, and as wrong, if it has such an answer
        right = self.cells < len(self.values)
        kinds = (self.groups, self.groups[right], self.groups[~right])
        whole, correct, wrong = (len(np.unique(kind)) for kind in kinds)
        return whole, correct, wrong

    @property
    def wrong(self) -> Floats:
        """Wrong answers by score; shape (..., G)."""
        return self.counts - self.correct

    @property
    def accuracy(self) -> Floats:
        """Share of correct answers; shape (...)."""
        shares: Floats = self.correct.sum(-1) / self.sizes
        return shares

    def require_probabilities(self) -> None:
        """Raise DataError unless every score lies in [0, 1]."""
        outside = (self.values < 0) | (self.values > 1)
        if outside.any():
            raise DataError(
                f"{self.values[outside][0]:g} is not a probability: this measure needs confidences in [0, 1]"
            )

    def resamples(self, number: int, seed: int) -> Iterator[Tally]:
        """Yield blocks of ``number`` resamples of answers or whole groups, with replacement."""
        size, n = len(self.values), self.n
        if self.cells is not None and self.groups is not None:
            yield from self._resampled_groups(self.cells, self.groups, number, seed)
            return
        cells = np.concatenate([self.correct, self.wrong]).astype(np.intp)
        cell_of = np.repeat(np.arange(2 * size), cells)
        rng = np.random.default_rng(seed)
        draws_counts = n >= max(_MANY_ANSWERS, _MANY_AT_A_SCORE * size)
        rows_at_once = max(1, _BLOCK // (2 * size if draws_counts else max(n, size)))
        for start in range(0, number, rows_at_once):
            rows = min(rows_at_once, number - start)
            if draws_counts:
                counts = rng.multinomial(n, cells / n, rows)
            else:
                # each resample counts in cells of its own, so that one bincount serves all
                sample = cell_of[rng.integers(0, n, (rows, n))] + 2 * size * np.arange(rows)[:, None]
                counts = np.bincount(sample.ravel(), minlength=2 * size * rows)
            counts = counts.reshape(rows, 2, size)
            yield Tally(self.values, counts.sum(1).astype(np.float64), counts[:, 0].astype(np.float64))

    def _resampled_groups(
        self, cells: NDArray[np.intp], groups: NDArray[np.intp], number: int, seed: int
    ) -> Iterator[Tally]:
        width, many = 2 * len(self.values), int(groups.max()) + 1
        rng = np.random.default_rng(seed)
        rows_at_once = max(1, _BLOCK // max(many, width, len(cells)))
        for start in range(0, number, rows_at_once):
            rows = min(rows_at_once, number - start)
            sample = rng.integers(0, many, (rows, many)) + many * np.arange(rows)[:, None]
            times = np.bincount(sample.ravel(), minlength=many * rows).reshape(rows, many)
            # each answer counts as often as its group is drawn
            slots = cells + width * np.arange(rows)[:, None]
            counts = np.bincount(slots.ravel(), times[:, groups].ravel(), width * rows).reshape(rows, 2, -1)
            yield Tally(self.values, counts.sum(1).astype(np.float64), counts[:, 0].astype(np.float64))


def score_pairs(
    scores: Sequence[float] | Floats, correct: Sequence[bool] | Sequence[int] | Floats
) -> tuple[Floats, Floats]:
    """Check scores and labels, two arrays of shape (n,). Raises the errors of :meth:`Tally.of`."""
    values, labels = finite_scores(scores), np.asarray(correct, dtype=np.float64)
    if values.ndim != 1 or values.shape != labels.shape or not len(values):
        raise DataError(
            f"scores and labels must be lists of one length, not empty; these are {values.size} scores and "
            f"{labels.size} labels"
        )
    _refuse_first((labels != 0) & (labels != 1), labels, "label", "0 or 1")
    return values, labels


def finite_scores(scores: Sequence[float] | Floats) -> Floats:
    """Check scores of any shape. Raises DataError for the first one that is NaN or infinite."""
    values = np.asarray(scores, dtype=np.float64)
    _refuse_first(~np.isfinite(values), values, "score", "a finite number")
    return values


def _refuse_first(wrong: np.ndarray, values: Floats, kind: str, requirement: str) -> None:
    if wrong.any():
        index = int(np.argmax(wrong))
        raise DataError(f"{kind} {index} is {values[index]:g}; it must be {requirement}")


def auroc(tally: Tally) -> Floats:
    """Compute AUROC: the chance that a correct answer outscores a wrong one; ties count half."""
    # a tie is half of a win
    wrong_below = tally.wrong.cumsum(-1) - tally.wrong / 2
    return _ratio((tally.correct * wrong_below).sum(-1), tally.correct.sum(-1) * tally.wrong.sum(-1))


def _ratio(top: Floats, bottom: Floats) -> Floats:
    """Divide two arrays, with NaN where the denominator is 0."""
    # NaN, because resamples are arrays; the table of measures says why
    ratio: Floats = np.where(bottom > 0, top / np.where(bottom > 0, bottom, 1), np.nan)
    return ratio


BINS = 10
CLIP = 1e-6
"""Minimum distance of confidences from 0 and 1 in the log loss, to keep it finite."""
# Cosines that smooth calibration error is computed with; enough for bandwidths down to 0.006.
_WAVES = 200
# pi k bandwidth of a cosine that smoothing makes smaller than 1e-17.
_FADED = 9.0


def bin_of(values: Floats) -> NDArray[np.intp]:
    """Find the index of each value's bin among ``BINS`` of equal width on [0, 1]."""
    # side="right": an edge belongs to the bin above it
    inner_edges = np.arange(1, BINS) / BINS
    return np.searchsorted(inner_edges, values, side="right")


def ece(tally: Tally) -> Floats:
    """Compute the expected calibration error over bins of equal width (Guo et al. 2017, arXiv 1706.04599).

    Bins are ``[low, high)``, and the last also contains 1. The rule matters: confidences are often multiples
    of 0.1, which are the edges.
    """
    tally.require_probabilities()
    in_bin = np.eye(BINS)[bin_of(tally.values)]  # shape (G, bins)
    error: Floats = np.abs(gaps(tally) @ in_bin).sum(-1) / tally.sizes
    return error


def ece_exact(tally: Tally) -> Floats:
    """Compute the expected calibration error with one group per distinct confidence.

    Free of bins, and meant for few distinct values: where all differ it is the mean absolute error.
    """
    tally.require_probabilities()
    error: Floats = np.abs(gaps(tally)).sum(-1) / tally.sizes
    return error


def mean_absolute_error(tally: Tally) -> Floats:
    """Average the absolute difference between confidence and correctness.

    SaySelf's published code (arXiv 2405.20974) calls this ECE. It has no bins, and it is not proper: stating
    0 or 1 pays most even where the true chance is neither.
    """
    tally.require_probabilities()
    error: Floats = (tally.correct * (1 - tally.values) + tally.wrong * tally.values).sum(-1) / tally.sizes
    return error


def smooth_ece(tally: Tally) -> Floats:
    """Compute the smooth calibration error (Błasiok and Nakkiran 2023, arXiv 2309.12236).

    The residuals are smoothed with a Gaussian kernel that is reflected at 0 and 1; the error is the bandwidth
    that equals the mean absolute value of the smoothed residuals. A reflected Gaussian multiplies the k-th
    cosine by exp(-(pi k bandwidth)^2 / 2), so no residual is rounded to a grid. Below 0.006 it is a bound.
    """
    tally.require_probabilities()
    wave = np.arange(_WAVES)
    grid = (np.arange(_WAVES) + 0.5) / _WAVES
    coefficients = gaps(tally) @ np.cos(np.pi * np.outer(tally.values, wave))
    coefficients /= tally.sizes[..., None]
    # as in a Fourier series all but the constant count twice
    coefficients[..., 1:] *= 2
    cosines = np.cos(np.pi * np.outer(wave, grid))
    low = np.zeros(coefficients.shape[:-1])
    high = np.ones(coefficients.shape[:-1])
    for _ in range(16):
        bandwidth = (low + high) / 2
        # beyond these the kernel leaves nothing of a wave
        band = slice(int(_FADED / (np.pi * bandwidth.min(initial=1.0))) + 1)
        fading = np.exp(-((np.pi * bandwidth[..., None] * wave[band]) ** 2) / 2)
        larger = np.abs((coefficients[..., band] * fading) @ cosines[band]).mean(-1) > bandwidth
        low, high = np.where(larger, bandwidth, low), np.where(larger, high, bandwidth)
    return np.asarray((low + high) / 2)


def brier(tally: Tally) -> Floats:
    """Average the squared difference between confidence and correctness (Brier 1950)."""
    tally.require_probabilities()
    squares = tally.counts * tally.values**2 - 2 * tally.values * tally.correct + tally.correct
    score: Floats = squares.sum(-1) / tally.sizes
    return score


def log_loss(tally: Tally) -> Floats:
    """Average negative log-likelihood in nats, of confidences clipped by ``CLIP``."""
    tally.require_probabilities()
    confidence = np.clip(tally.values, CLIP, 1 - CLIP)
    losses = -tally.correct * np.log(confidence) - tally.wrong * np.log1p(-confidence)
    loss: Floats = losses.sum(-1) / tally.sizes
    return loss


def gaps(tally: Tally) -> Floats:
    """Sum confidence minus correctness over the answers with each confidence; shape (..., G)."""
    sums: Floats = tally.counts * tally.values - tally.correct
    return sums


def aurc(tally: Tally) -> Floats:
    """Compute AURC: the mean over k of the risk of the k most confident answers.

    (Geifman et al. 2019, arXiv 1805.08206.) Among g answers of equal score with e errors, after N answers
    with E errors, the expected risk of N + j is (E + j e/g) / (N + j); its sum over j has a closed form.
    """
    counts, wrong = tally.counts[..., ::-1], tally.wrong[..., ::-1]
    after = counts.cumsum(-1)
    before = after - counts
    errors_before = wrong.cumsum(-1) - wrong
    rate = wrong / np.maximum(counts, 1)
    harmonic = _harmonic(round(float(tally.sizes.max())))
    steps = harmonic[after.astype(np.intp)] - harmonic[before.astype(np.intp)]
    # 1/(b+1) + … + 1/a is a difference of harmonic numbers
    area: Floats = (rate * counts + (errors_before - rate * before) * steps).sum(-1) / tally.sizes
    return area


def expected_risks(tally: Tally) -> Floats:
    """Compute the expected risk of the k most confident answers, k = 1, …, n.

    Its mean is :func:`aurc`. Takes counts without leading dimensions; shape (n,).
    """
    counts, wrong = tally.counts[::-1].astype(np.intp), tally.wrong[::-1]
    rates = np.repeat(wrong / np.maximum(counts, 1), counts)
    risks: Floats = rates.cumsum() / np.arange(1, tally.n + 1)
    return risks


def best_aurc(tally: Tally) -> Floats:
    """Compute the AURC of the ideal order, with every wrong answer last."""
    sizes, right = tally.sizes, tally.correct.sum(-1)
    harmonic = _harmonic(round(float(sizes.max())))
    steps = harmonic[sizes.astype(np.intp)] - harmonic[right.astype(np.intp)]
    area: Floats = (sizes - right - right * steps) / sizes
    return area


def augrc(tally: Tally) -> Floats:
    """Compute AUGRC: errors among the accepted answers as a share of all (Traub et al. 2024, arXiv
    2407.01032).

    It is (1 - AUROC) a (1 - a) + (1 - a)^2 / 2 for accuracy a.
    """
    counts, wrong = tally.counts[..., ::-1], tally.wrong[..., ::-1]
    errors = wrong.cumsum(-1) - wrong / 2
    # ties by expectation: half of an answer's equals come before it
    area: Floats = (counts * errors).sum(-1) / tally.sizes**2
    return area


def prr(tally: Tally) -> Floats:
    """Compute the prediction rejection ratio, the share of the best order's gain over random; 1 is best
    (Malinin and Gales 2021, arXiv 2002.07650).

    NaN where no order gains anything: all answers are correct, or all are wrong.
    """
    risk = 1 - tally.accuracy  # of a random order
    gain = risk - best_aurc(tally)
    mixed = (risk > 0) & (risk < 1)
    gained = np.round(risk - aurc(tally), 12) + 0.0  # equal scores gain nothing, and rounding gives -1e-17
    ratio: Floats = np.where(mixed, gained / np.where(mixed, gain, 1), np.nan)
    return ratio


def _harmonic(n: int) -> Floats:
    """Compute the sums 1 + 1/2 + … + 1/k for k = 0, …, n."""
    return np.concatenate([[0.0], np.cumsum(1 / np.arange(1, n + 1))])
