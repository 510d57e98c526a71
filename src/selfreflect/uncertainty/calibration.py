"""How far confidences are from the share of correct answers. All need confidences in [0, 1].

Every function takes a :class:`Tally` and returns one value for each of its resamples, shape (...).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from selfreflect.stats import Floats
from selfreflect.uncertainty.tally import Tally

BINS = 10
CLIP = 1e-6
"""Log loss takes confidences no closer to 0 and 1 than this, so that one certain mistake is not infinite."""
_WAVES = 200
"""Cosines that smooth calibration error is computed with; enough for bandwidths down to 0.006."""
_FADED = 9.0
"""pi k bandwidth of a cosine that smoothing makes smaller than 1e-17."""


def bin_of(values: Floats, bins: int = BINS) -> NDArray[np.intp]:
    """The bin of equal width that each value in [0, 1] lies in, from 0."""
    inner_edges = np.arange(1, bins) / bins
    return np.searchsorted(inner_edges, values, side="right")


def ece(tally: Tally, bins: int = BINS) -> Floats:
    """Expected calibration error over bins of equal width (Guo et al. 2017, arXiv 1706.04599).

    Bins are ``[low, high)``, and the last also contains 1. The rule matters: confidences are often multiples
    of 0.1, which are the edges.
    """
    tally.require_probabilities()
    error: Floats = np.abs(gaps(tally) @ bin_matrix(tally, bins)).sum(-1) / tally.n
    return error


def bin_matrix(tally: Tally, bins: int = BINS) -> Floats:
    """Which bin each distinct confidence is in, shape (G, bins): turns gaps into the deviations of bins."""
    matrix: Floats = np.eye(bins)[bin_of(tally.values, bins)]
    return matrix


def ece_exact(tally: Tally) -> Floats:
    """Expected calibration error with one group for each distinct confidence.

    Free of bins, and meant for few distinct values: where all differ it is the mean absolute error.
    """
    tally.require_probabilities()
    error: Floats = np.abs(gaps(tally)).sum(-1) / tally.n
    return error


def mean_absolute_error(tally: Tally) -> Floats:
    """Mean distance of each confidence from 1 if its answer is correct and 0 if it is wrong.

    SaySelf's published code (arXiv 2405.20974) calls this ECE. It has no bins, and it is not proper: stating
    0 or 1 pays most even where the true chance is neither.
    """
    tally.require_probabilities()
    error: Floats = (tally.correct * (1 - tally.values) + tally.wrong * tally.values).sum(-1) / tally.n
    return error


def smooth_ece(tally: Tally) -> Floats:
    """Smooth calibration error (Błasiok and Nakkiran 2023, arXiv 2309.12236).

    The residuals are smoothed with a Gaussian kernel that is reflected at 0 and 1; the error is the bandwidth
    that equals the mean absolute value of the smoothed residuals. A reflected Gaussian multiplies the k-th
    cosine by exp(-(pi k bandwidth)^2 / 2), so no residual is rounded to a grid. Below 0.006 it is a bound.
    """
    tally.require_probabilities()
    wave = np.arange(_WAVES)
    grid = (np.arange(_WAVES) + 0.5) / _WAVES
    coefficients = gaps(tally) @ np.cos(np.pi * np.outer(tally.values, wave)) / tally.n
    coefficients[..., 1:] *= 2
    cosines = np.cos(np.pi * np.outer(wave, grid))
    low = np.zeros(coefficients.shape[:-1])
    high = np.ones(coefficients.shape[:-1])
    for _ in range(16):
        bandwidth = (low + high) / 2
        band = slice(int(_FADED / (np.pi * bandwidth.min(initial=1.0))) + 1)
        fading = np.exp(-((np.pi * bandwidth[..., None] * wave[band]) ** 2) / 2)
        larger = np.abs((coefficients[..., band] * fading) @ cosines[band]).mean(-1) > bandwidth
        low, high = np.where(larger, bandwidth, low), np.where(larger, high, bandwidth)
    return np.asarray((low + high) / 2)


def smoothing_matrix(tally: Tally) -> Floats:
    """Turn gaps into the deviations whose absolute sum is the smooth error; shape (G, grid)."""
    wave = np.arange(_WAVES)
    amplitude = np.exp(-((np.pi * float(smooth_ece(tally)) * wave) ** 2) / 2)
    amplitude[1:] *= 2
    grid = (wave + 0.5) / _WAVES
    cosines = np.cos(np.pi * np.outer(wave, grid))
    matrix: Floats = (np.cos(np.pi * np.outer(tally.values, wave)) * amplitude) @ cosines / _WAVES
    return matrix


def brier(tally: Tally) -> Floats:
    """Mean squared difference between confidence and correctness (Brier 1950)."""
    tally.require_probabilities()
    squares = tally.counts * tally.values**2 - 2 * tally.values * tally.correct + tally.correct
    score: Floats = squares.sum(-1) / tally.n
    return score


class BrierParts(NamedTuple):
    """Brier score = reliability - resolution + uncertainty (Murphy 1973, J. Appl. Meteorol. 12, 595-600)."""

    reliability: Floats
    """Mean squared difference between a confidence and the share of correct answers at it."""
    resolution: Floats
    """How far these shares are from the overall accuracy; higher is better."""
    uncertainty: Floats
    """Brier score of always saying the accuracy."""


def brier_parts(tally: Tally) -> BrierParts:
    """Murphy's decomposition, exact, with one group for each distinct confidence."""
    tally.require_probabilities()
    share = tally.correct / np.maximum(tally.counts, 1)
    accuracy = tally.accuracy
    reliability = (tally.counts * (tally.values - share) ** 2).sum(-1) / tally.n
    resolution = (tally.counts * (share - accuracy[..., None]) ** 2).sum(-1) / tally.n
    return BrierParts(reliability, resolution, accuracy * (1 - accuracy))


def log_loss(tally: Tally, clip: float = CLIP) -> Floats:
    """Mean negative log-likelihood in nats, of confidences clipped to [clip, 1 - clip]."""
    tally.require_probabilities()
    confidence = np.clip(tally.values, clip, 1 - clip)
    losses = -tally.correct * np.log(confidence) - tally.wrong * np.log1p(-confidence)
    loss: Floats = losses.sum(-1) / tally.n
    return loss


def gaps(tally: Tally) -> Floats:
    """Sum of confidence minus correctness over the answers with each confidence; shape (..., G)."""
    sums: Floats = tally.counts * tally.values - tally.correct
    return sums
