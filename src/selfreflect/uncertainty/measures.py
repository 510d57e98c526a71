"""The table of measures, and their values with intervals over questions."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from selfreflect.errors import DataError, unknown_name
from selfreflect.stats import Floats
from selfreflect.uncertainty import calibration, discrimination, selective
from selfreflect.uncertainty.tally import Tally

RESAMPLES = 1_000
FEWEST_RESAMPLED = 5
"""Fewer questions allow no bootstrap: four have only 35 different resamples."""
_ROUNDING = 1e-9


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


ONE_CLASS = "all answers are correct, or all are wrong"

MEASURES = {
    "auroc": OutcomeMeasure(
        discrimination.auroc,
        "chance that a correct answer scores higher than a wrong one",
        higher_is_better=True,
        undefined=ONE_CLASS,
    ),
    "auprc": OutcomeMeasure(
        discrimination.auprc,
        "average precision of finding correct answers",
        higher_is_better=True,
        undefined="no answer is correct",
    ),
    "auprc_wrong": OutcomeMeasure(
        partial(discrimination.auprc, positive="wrong"),
        "average precision of finding wrong answers",
        higher_is_better=True,
        undefined="no answer is wrong",
    ),
    "recall_at_fpr_05": OutcomeMeasure(
        discrimination.recall_at_fpr,
        "correct answers accepted when 5% of the wrong ones are",
        higher_is_better=True,
        undefined=ONE_CLASS,
    ),
    "aurc": OutcomeMeasure(selective.aurc, "area under risk against coverage, expected over ties"),
    "e_aurc": OutcomeMeasure(selective.excess_aurc, "AURC minus that of the best order"),
    "augrc": OutcomeMeasure(selective.augrc, "area under generalized risk against coverage"),
    "prr": OutcomeMeasure(
        selective.prr,
        "share of the best order's gain over a random order",
        higher_is_better=True,
        undefined=ONE_CLASS,
    ),
    "ece_10_left": OutcomeMeasure(
        calibration.ece, "calibration error, 10 bins of equal width, [low, high)", probability=True
    ),
    "ece_10_right": OutcomeMeasure(
        partial(calibration.ece, edges="right"),
        "calibration error, 10 bins of equal width, (low, high]",
        probability=True,
    ),
    "ece_exact": OutcomeMeasure(
        calibration.ece_exact, "calibration error, one group for each distinct confidence", probability=True
    ),
    "ece_10_mass": OutcomeMeasure(
        calibration.ece_equal_mass, "calibration error, 10 bins with equally many answers", probability=True
    ),
    "smooth_ece": OutcomeMeasure(
        calibration.smooth_ece, "calibration error, smoothed with a kernel", probability=True
    ),
    "mae": OutcomeMeasure(
        calibration.mean_absolute_error,
        "mean distance of the confidence from 0 or 1, which SaySelf's published code calls ECE",
        probability=True,
    ),
    "brier": OutcomeMeasure(calibration.brier, "mean squared error of the confidence", probability=True),
    "brier_reliability": OutcomeMeasure(
        lambda tally: calibration.brier_parts(tally).reliability,
        "part of the Brier score that calibration can remove",
        probability=True,
    ),
    "brier_resolution": OutcomeMeasure(
        lambda tally: calibration.brier_parts(tally).resolution,
        "how far the accuracy at each confidence is from the overall one",
        higher_is_better=True,
        probability=True,
    ),
    "log_loss": OutcomeMeasure(
        calibration.log_loss,
        f"negative log-likelihood in nats, confidences clipped at {calibration.CLIP:g}",
        probability=True,
    ),
}


@dataclass(frozen=True)
class Measurement:
    """The value of a measure with its 95% bootstrap interval over questions."""

    value: float | None
    """None if undefined; then ``undefined`` says why."""
    low: float | None
    """None for fewer than 5 questions, if more than 1 of 20 resamples leaves the measure undefined, or if the
    resamples exclude the value: a calibration error of many small groups grows when answers are repeated."""
    high: float | None
    n: int
    distinct: int
    """Distinct scores."""
    undefined: str = ""


def definitions(names: Iterable[str]) -> list[str]:
    """Say what measures are, in a line each."""
    return [f"{name}: {MEASURES[name].definition}." for name in names]


def measure(
    name: str, scores: Sequence[float] | Floats, correct: Sequence[bool] | Sequence[int] | Floats
) -> Measurement:
    """Measure scores of answers, where a higher one means more confidence, against 0/1 correctness.

    Raises:
        ConfigError: there is no such measure.
        DataError: a score is NaN, infinite or, for a measure of calibration, outside [0, 1].
    """
    return measure_all([name], Tally.of(scores, correct))[name]


def measure_all(
    names: Sequence[str], tally: Tally, *, resamples: int = RESAMPLES, seed: int = 0
) -> dict[str, Measurement]:
    """Measure several things of the same answers, in the same resamples.

    Raises:
        ConfigError, DataError: as :func:`measure`.
    """
    for name in names:
        if name not in MEASURES:
            raise unknown_name("measure", name, MEASURES)
    resampled: dict[str, list[Floats]] = {name: [] for name in names}
    if tally.n >= FEWEST_RESAMPLED:
        for block in tally.resamples(resamples, seed):
            for name in names:
                resampled[name].append(MEASURES[name].compute(block))
    results = {}
    for name in names:
        value = float(MEASURES[name].compute(tally))
        low, high = percentile_interval(resampled[name], value)
        undefined = ""
        if math.isnan(value):
            low = high = None
            undefined = MEASURES[name].undefined
        defined = None if undefined else value
        results[name] = Measurement(defined, low, high, tally.n, len(tally.values), undefined)
    return results


def percentile_interval(blocks: Sequence[Floats], value: float) -> tuple[float, float] | tuple[None, None]:
    """The 95% percentile interval of the resamples that have a value; None where it would say too little."""
    if not blocks:
        return None, None
    values = np.concatenate(blocks)
    defined = values[~np.isnan(values)]
    if len(defined) < 0.95 * len(values):
        return None, None
    low, high = np.quantile(defined, [0.025, 0.975])
    if not low - _ROUNDING <= value <= high + _ROUNDING:
        return None, None
    return float(low), float(high)


def faithfulness(
    stated: Sequence[float] | Floats, intrinsic: Sequence[float] | Floats, bins: int = calibration.BINS
) -> float:
    """cMFG, conditional mean faithful generation: how well a stated confidence follows the model's own.

    The mean over bins of the intrinsic confidence, such as the share of the modal answer, of the mean of
    1 - abs(stated - intrinsic) in the bin (Yona et al. 2024, arXiv 2405.16908; Liu et al. 2025, arXiv
    2505.24858). Bins are ``[low, high)`` of equal width, and empty ones do not count. Always stating the same
    gives about 0.5 where the intrinsic confidence fills all bins.

    Raises:
        DataError: the lengths differ, there are no values, or one is not in [0, 1].
    """
    says, has = (np.asarray(values, dtype=np.float64) for values in (stated, intrinsic))
    if says.ndim != 1 or says.shape != has.shape or not len(says):
        raise DataError(
            f"{says.size} stated and {has.size} intrinsic confidences are not pairs, at least one"
        )
    for name, values in (("stated", says), ("intrinsic", has)):
        outside = ~((values >= 0) & (values <= 1))
        if outside.any():
            index = int(np.argmax(outside))
            raise DataError(f"{name} confidence {index} is {values[index]:g}; it must be in [0, 1]")
    places = calibration.bin_of(has, bins)
    close = 1 - np.abs(says - has)
    sums, sizes = np.bincount(places, close, bins), np.bincount(places, minlength=bins)
    nonempty = sizes > 0
    return float((sums[nonempty] / sizes[nonempty]).mean())
