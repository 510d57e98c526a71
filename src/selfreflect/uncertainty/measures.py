"""The table of measures, and their values with intervals over questions."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from selfreflect.errors import ConfigError, DataError, unknown_name
from selfreflect.removed import PREDICTION as REMOVED
from selfreflect.stats import Floats
from selfreflect.uncertainty import prediction
from selfreflect.uncertainty.prediction import Tally

RESAMPLES = 1_000
FEWEST_RESAMPLED = 10
"""Questions that an interval needs, and where right and wrong answers are ranked, of each: with five of one
kind, intervals that should cover 95% of the time cover 76 to 99%."""
FEWEST_RANKED = 5
"""Right answers, and wrong ones, that a measure of their order needs: a random order separates three of each
in 1 of 20 cases, five in 1 of 252."""
_ROUNDING = 1e-9
_CLEAR = 1.96


@dataclass(frozen=True)
class OutcomeMeasure:
    """How well scores predict which answers are correct, or agree with their share."""

    compute: Callable[[Tally], Floats]
    definition: str
    higher_is_better: bool = False
    probability: bool = False
    """Whether it needs confidences in [0, 1]."""
    undefined: str = ""
    """Why it may have no value."""
    ranks: bool = False
    """Whether its value needs ``FEWEST_RANKED`` answers of each kind."""
    spread: Callable[[Tally], Floats] | None = None
    """Of a sum of absolute deviations: a matrix that turns gaps into them, see :func:`_norm_interval`."""
    has_interval: bool = True
    """False where neither interval covers the truth, because the estimate itself grows with noise."""


ONE_CLASS = "all answers are correct, or all are wrong"
TOO_FEW = f"fewer than {FEWEST_RANKED} right or {FEWEST_RANKED} wrong answers"

MEASURES = {
    "auroc": OutcomeMeasure(
        prediction.auroc,
        "chance that a correct answer scores higher than a wrong one",
        higher_is_better=True,
        undefined=ONE_CLASS,
        ranks=True,
    ),
    "auprc": OutcomeMeasure(
        prediction.auprc,
        "average precision of finding correct answers",
        higher_is_better=True,
        undefined="no answer is correct",
        ranks=True,
    ),
    "auprc_wrong": OutcomeMeasure(
        partial(prediction.auprc, positive="wrong"),
        "average precision of finding wrong answers",
        higher_is_better=True,
        undefined="no answer is wrong",
        ranks=True,
    ),
    "recall_at_fpr_05": OutcomeMeasure(
        prediction.recall_at_fpr,
        "correct answers accepted when 5 % of the wrong ones are",
        higher_is_better=True,
        undefined=ONE_CLASS,
        ranks=True,
    ),
    "aurc": OutcomeMeasure(prediction.aurc, "area under risk against coverage, expected over ties"),
    "e_aurc": OutcomeMeasure(prediction.excess_aurc, "AURC minus that of the best order"),
    "augrc": OutcomeMeasure(prediction.augrc, "area under generalized risk against coverage"),
    "prr": OutcomeMeasure(
        prediction.prr,
        "share of the best order's gain over a random order",
        higher_is_better=True,
        undefined=ONE_CLASS,
        ranks=True,
    ),
    "ece_10_left": OutcomeMeasure(
        prediction.ece,
        "calibration error, 10 bins of equal width, [low, high)",
        probability=True,
        spread=prediction.bin_matrix,
    ),
    "ece_exact": OutcomeMeasure(
        prediction.ece_exact,
        "calibration error, one group for each distinct confidence",
        probability=True,
        has_interval=False,
    ),
    "smooth_ece": OutcomeMeasure(
        prediction.smooth_ece,
        "calibration error, smoothed with a kernel",
        probability=True,
        spread=prediction.smoothing_matrix,
    ),
    "mae": OutcomeMeasure(
        prediction.mean_absolute_error,
        "mean distance of the confidence from 0 or 1, which SaySelf's published code calls ECE",
        probability=True,
    ),
    "brier": OutcomeMeasure(prediction.brier, "mean squared error of the confidence", probability=True),
    "brier_reliability": OutcomeMeasure(
        lambda tally: prediction.brier_parts(tally).reliability,
        "part of the Brier score that calibration can remove",
        probability=True,
        has_interval=False,
    ),
    "brier_resolution": OutcomeMeasure(
        lambda tally: prediction.brier_parts(tally).resolution,
        "how far the accuracy at each confidence is from the overall one",
        higher_is_better=True,
        probability=True,
        has_interval=False,
    ),
    "log_loss": OutcomeMeasure(
        prediction.log_loss,
        f"negative log-likelihood in nats, confidences clipped at {prediction.CLIP:g}",
        probability=True,
    ),
}


@dataclass(frozen=True)
class MeasuredValue:
    """The value of a measure with its 95% interval over questions."""

    value: float | None
    """None if undefined; then ``undefined`` says why."""
    low: float | None
    """None for fewer than ``FEWEST_RESAMPLED`` questions, or right or wrong answers of a measure of order; if
    more than 1 of 20 resamples leaves the measure undefined; if it would have no width; and of measures whose
    intervals do not cover the truth."""
    high: float | None
    n: int
    distinct: int
    """Distinct scores."""
    undefined: str = ""


INTERVALS = (
    "95 %: over questions, by bootstrap; of a calibration error, from bounds on its noise. There is none for "
    f"fewer than {FEWEST_RESAMPLED} questions, or of a measure of order, right or wrong answers."
)


def check_measure(name: str) -> None:
    """Raise ConfigError unless there is a measure of this name."""
    if name in REMOVED:
        raise ConfigError(f"there is no measure {name!r} any more. {REMOVED[name]}")
    if name not in MEASURES:
        raise unknown_name("measure", name, MEASURES)


def definitions(names: Iterable[str]) -> list[str]:
    """Say what measures are, in a line each."""
    return [f"{name}: {MEASURES[name].definition}." for name in names]


def measure(
    name: str, scores: Sequence[float] | Floats, correct: Sequence[bool] | Sequence[int] | Floats
) -> MeasuredValue:
    """Measure scores of answers, where a higher one means more confidence, against 0/1 correctness.

    Raises:
        ConfigError: there is no such measure.
        DataError: a score is NaN, infinite or, for a measure of calibration, outside [0, 1].
    """
    return measure_all([name], Tally.of(scores, correct))[name]


def measure_all(
    names: Sequence[str], tally: Tally, *, resamples: int = RESAMPLES, seed: int = 0
) -> dict[str, MeasuredValue]:
    """Measure several things of the same answers, in the same resamples.

    Raises:
        ConfigError, DataError: as :func:`measure`.
    """
    for name in names:
        check_measure(name)
    number, *kinds = tally.independent
    resampled: dict[str, list[Floats]] = {}
    for name in names:
        smallest = number if MEASURES[name].probability else min(kinds)
        if MEASURES[name].has_interval and smallest >= FEWEST_RESAMPLED:
            resampled[name] = []
    computes = {name: _resampled(MEASURES[name], tally) for name in resampled}
    for block in tally.resamples(resamples, seed) if resampled else ():
        for name, compute in computes.items():
            resampled[name].append(compute(block))
    results = {}
    for name in names:
        info = MEASURES[name]
        value = float(info.compute(tally))
        undefined = info.undefined if math.isnan(value) else ""
        if info.ranks and not undefined and min(kinds) < FEWEST_RANKED:
            undefined = ONE_CLASS if min(kinds) == 0 else TOO_FEW
        low, high = None, None
        if not undefined and name in resampled:
            interval = percentile_interval if info.spread is None else partial(_norm_interval, tally)
            low, high = interval(resampled[name], value)
            if name == "auroc" and value in (0, 1):  # all resamples are equal
                share = least_share(min(kinds))
                low, high = (share, 1.0) if value else (0.0, 1 - share)
        defined = None if undefined else value
        results[name] = MeasuredValue(defined, low, high, tally.n, len(tally.values), undefined)
    return results


def percentile_interval(blocks: Sequence[Floats], value: float) -> tuple[float, float] | tuple[None, None]:
    """Compute the 95% percentile interval of defined resamples; None for too few."""
    if not blocks:
        return None, None
    values = np.concatenate(blocks)
    defined = values[~np.isnan(values)]
    if len(defined) < 0.95 * len(values):
        return None, None
    low, high = np.quantile(defined, [0.025, 0.975])
    if high - low <= _ROUNDING or not low - _ROUNDING <= value <= high + _ROUNDING:
        return None, None
    return float(low), float(high)


def least_share(pairs: float) -> float:
    """The lower 97.5% bound of a chance that held in every one of some independent pairs (Clopper and Pearson
    1934), such as those of a right and a wrong answer, each in one pair."""
    return float(0.025 ** (1 / pairs))


def _resampled(info: OutcomeMeasure, tally: Tally) -> Callable[[Tally], Floats]:
    """Measure each resample, or the distance of its deviations from the observed ones."""
    if info.spread is None:
        return info.compute
    gaps, matrix = prediction.gaps(tally), info.spread(tally)
    return lambda block: np.asarray(np.abs((prediction.gaps(block) - gaps) @ matrix).sum(-1) / block.sizes)


def _norm_interval(
    tally: Tally, blocks: Sequence[Floats], value: float
) -> tuple[float, float] | tuple[None, None]:
    """Compute the 95% interval of a calibration error, an L1 norm of mean deviations.

    The error of noise alone is far above 0, so resamples of the error itself cover no small one. But lengths
    differ at most by the length of the difference of their vectors: the lower end is the value less the 97.5%
    quantile of that, over resamples. The true error is a mean of deviations with fixed signs, whose variance
    is at most the Brier score less its square: the upper end is 1.96 standard errors above the value. In
    simulations it covers 90 to 100%.
    """
    noise = float(np.quantile(np.concatenate(blocks), 0.975))
    variance = max(0.0, float(prediction.brier(tally)) - value**2)
    low, high = max(0.0, value - noise), min(1.0, value + _CLEAR * math.sqrt(variance / tally.independent[0]))
    return (low, high) if high - low > _ROUNDING else (None, None)


def faithfulness(
    confidences: Sequence[float] | Floats, intrinsic: Sequence[float] | Floats, bins: int = prediction.BINS
) -> float:
    """cMFG, conditional mean faithful generation: how well a stated confidence follows the model's own.

    The mean over bins of the intrinsic confidence, such as the share of the modal answer, of the mean of
    1 - abs(stated - intrinsic) in the bin (Yona et al. 2024, arXiv 2405.16908; Liu et al. 2025, arXiv
    2505.24858). Bins are ``[low, high)`` of equal width, and empty ones do not count. Always stating the same
    gives about 0.5 where the intrinsic confidence fills all bins.

    Raises:
        DataError: the lengths differ, there are no values, or one is not in [0, 1].
    """
    says, has = (np.asarray(values, dtype=np.float64) for values in (confidences, intrinsic))
    if says.ndim != 1 or says.shape != has.shape or not len(says):
        raise DataError(
            f"{says.size} stated and {has.size} intrinsic confidences are not pairs, at least one"
        )
    for name, values in (("stated", says), ("intrinsic", has)):
        outside = ~((values >= 0) & (values <= 1))
        if outside.any():
            index = int(np.argmax(outside))
            raise DataError(f"{name} confidence {index} is {values[index]:g}; it must be in [0, 1]")
    bin_numbers = prediction.bin_of(has, bins)
    close = 1 - np.abs(says - has)
    sums, sizes = np.bincount(bin_numbers, close, bins), np.bincount(bin_numbers, minlength=bins)
    nonempty = sizes > 0
    return float((sums[nonempty] / sizes[nonempty]).mean())
