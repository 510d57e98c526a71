"""Table of measures, with their values and intervals over questions."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from selfreflect.errors import ConfigError, DataError, unknown_name
from selfreflect.removed import PREDICTION as REMOVED
from selfreflect.stats import CLEAR, Floats, ranks, spearman
from selfreflect.uncertainty import prediction
from selfreflect.uncertainty.prediction import Tally

RESAMPLES = 1_000
FEWEST_RESAMPLED = 10
"""Minimum number of questions for an interval, and of right and of wrong answers for a measure of order: with
five of one kind, intervals that should cover 95% of the time cover 76 to 99%."""
FEWEST_RANKED = 5
"""Minimum number of right and of wrong answers for a measure of order: chance separates three of each in 1 of
20 cases, five in 1 of 252."""
_ROUNDING = 1e-9


@dataclass(frozen=True)
class OutcomeMeasure:
    """Measure of how well scores predict correctness."""

    compute: Callable[[Tally], Floats]
    definition: str
    higher_is_better: bool = False
    probability: bool = False
    """Whether the measure needs confidences in [0, 1]."""
    undefined: str = ""
    """Reason for undefined values."""
    ranks: bool = False
    """Whether the value needs ``FEWEST_RANKED`` answers of each kind."""
    has_interval: bool = True
    """Whether intervals cover the truth; False if the estimate grows with noise."""


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
    "aurc": OutcomeMeasure(prediction.aurc, "area under risk against coverage, expected over ties"),
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
        has_interval=False,
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
        has_interval=False,
    ),
    "mae": OutcomeMeasure(
        prediction.mean_absolute_error,
        "mean distance of the confidence from 0 or 1, which SaySelf's published code calls ECE",
        probability=True,
    ),
    "brier": OutcomeMeasure(prediction.brier, "mean squared error of the confidence", probability=True),
    "log_loss": OutcomeMeasure(
        prediction.log_loss,
        f"negative log-likelihood in nats, confidences clipped at {prediction.CLIP:g}",
        probability=True,
    ),
}


@dataclass(frozen=True)
class MeasuredValue:
    """A measure's value with its 95% interval over questions."""

    value: float | None
    """Value; None if undefined, for the reason in ``undefined``."""
    low: float | None
    """Lower end. It is None for fewer than ``FEWEST_RESAMPLED`` questions (for a measure of order, right or
    wrong answers), if more than 1 of 20 resamples leaves the measure undefined, if the interval would have no
    width, and for measures whose intervals do not cover the truth."""
    high: float | None
    n: int
    distinct: int
    """Number of distinct scores."""
    undefined: str = ""


INTERVALS = (
    "95 %: a bootstrap interval over questions. Calibration errors have no interval. Others need "
    f"{FEWEST_RESAMPLED} questions; for measures of order, {FEWEST_RESAMPLED} right and "
    f"{FEWEST_RESAMPLED} wrong answers."
)


def check_measure(name: str) -> None:
    """Raise ConfigError for an unknown measure."""
    if name in REMOVED:
        raise ConfigError(f"there is no measure {name!r} any more. {REMOVED[name]}")
    if name not in MEASURES:
        raise unknown_name("measure", name, MEASURES)


SHORT = {"ece_10_left": "ece"}
"""Short names of measures for narrow tables."""


def definitions(names: Iterable[str]) -> list[str]:
    """Describe measures in one line each."""
    headings = {name: f"{SHORT[name]} ({name})" if name in SHORT else name for name in names}
    return [f"{heading}: {MEASURES[name].definition}." for name, heading in headings.items()]


def measure(
    name: str, scores: Sequence[float] | Floats, correct: Sequence[bool] | Sequence[int] | Floats
) -> MeasuredValue:
    """Compute a measure of scores (higher for more confidence) against 0/1 correctness.

    Raises:
        ConfigError: there is no such measure.
        DataError: a score is NaN, infinite or, for a measure of calibration, outside [0, 1].
    """
    return measure_all([name], Tally.of(scores, correct))[name]


def measure_all(
    names: Sequence[str], tally: Tally, *, resamples: int = RESAMPLES, seed: int = 0
) -> dict[str, MeasuredValue]:
    """Compute several measures of the same answers, on the same resamples.

    Raises:
        ConfigError, DataError: as :func:`measure`.
    """
    for name in names:
        check_measure(name)
    number, *kinds = tally.independent
    resampled: dict[str, list[Floats]] = {}
    for name in names:
        # fields of one object are right or wrong together, so groups count and not answers
        smallest = number if MEASURES[name].probability else min(kinds)
        if MEASURES[name].has_interval and smallest >= FEWEST_RESAMPLED:
            resampled[name] = []
    # the same resamples for all measures, so that they can be compared
    for block in tally.resamples(resamples, seed) if resampled else ():
        for name, values in resampled.items():
            values.append(MEASURES[name].compute(block))
    results = {}
    for name in names:
        info = MEASURES[name]
        value = float(info.compute(tally))
        undefined = info.undefined if math.isnan(value) else ""
        if info.ranks and not undefined and min(kinds) < FEWEST_RANKED:
            undefined = ONE_CLASS if min(kinds) == 0 else TOO_FEW
        low, high = None, None
        if not undefined and name in resampled:
            low, high = _percentile_interval(resampled[name], value)
            if name == "auroc" and value in (0, 1):  # all resamples are equal
                # Clopper and Pearson's bound of a chance that held in every one of so many independent pairs
                share = 0.025 ** (1 / min(kinds))
                low, high = (share, 1.0) if value else (0.0, 1 - share)
        defined = None if undefined else value
        results[name] = MeasuredValue(defined, low, high, tally.n, len(tally.values), undefined)
    return results


def _percentile_interval(blocks: Sequence[Floats], value: float) -> tuple[float, float] | tuple[None, None]:
    """Compute the 95% percentile interval of defined resamples; None for too few."""
    values = np.concatenate(blocks)
    defined = values[~np.isnan(values)]
    if len(defined) < 0.95 * len(values):
        return None, None
    low, high = np.quantile(defined, [0.025, 0.975])
    # an interval without width, or beside the value, would mislead
    if high - low <= _ROUNDING or not low - _ROUNDING <= value <= high + _ROUNDING:
        return None, None
    return float(low), float(high)


def faithfulness(confidences: Sequence[float] | Floats, intrinsic: Sequence[float] | Floats) -> float:
    """Compute cMFG, conditional mean faithful generation: how closely stated confidence follows intrinsic
    confidence.

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
            f"{says.size} stated and {has.size} intrinsic confidences were given; their numbers must be "
            "equal and at least one"
        )
    for name, values in (("stated", says), ("intrinsic", has)):
        outside = ~((values >= 0) & (values <= 1))
        if outside.any():
            index = int(np.argmax(outside))
            raise DataError(f"{name} confidence {index} is {values[index]:g}; it must be in [0, 1]")
    bin_numbers = prediction.bin_of(has)
    close = 1 - np.abs(says - has)
    return float(np.mean([close[bin_numbers == number].mean() for number in np.unique(bin_numbers)]))


@dataclass(frozen=True)
class LengthAudit:
    """Rank correlations between length, score and correctness (arXiv 2504.13677); None for constants.

    If score and correctness both follow the length of answers, the score may rank answers well for the
    label's bias alone: long answers get low overlap with a short gold answer, and low likelihoods.
    """

    n: int
    auroc_of_length: float | None
    """AUROC of shorter answers being correct."""
    score_with_length: float | None
    """Spearman's rho of score and length."""
    correct_with_length: float | None
    score_with_correct: float | None
    score_with_correct_at_length: float | None
    """Partial rank correlation of score and correctness at equal length."""
    score_with_middle: float | None
    """Spearman's rho of score and the length rank's distance from the middle, which treats very short and
    very long answers alike."""
    correct_with_middle: float | None
    score_with_correct_at_middle: float | None
    """Partial rank correlation of score and correctness at equal distance from the middle."""

    @property
    def dependence(self) -> tuple[str, float, float] | None:
        """Aspect of length with which both score and correctness clearly correlate, and the two
        correlations."""
        for cause, score_rho, label_rho in (
            ("the length of answers", self.score_with_length, self.correct_with_length),
            (
                "how far the length of answers is from the middle",
                self.score_with_middle,
                self.correct_with_middle,
            ),
        ):
            if score_rho is None or label_rho is None:
                continue
            if min(abs(score_rho), abs(label_rho)) >= CLEAR / math.sqrt(self.n - 1):
                return cause, score_rho, label_rho
        return None

    @property
    def warning(self) -> str:
        """Warning if score and correctness both clearly depend on length, else empty."""
        if self.dependence is None:
            return ""
        cause, score_rho, label_rho = self.dependence
        effect = "flatters" if score_rho * label_rho > 0 else "harms"
        return (
            f"Score and correctness both depend on {cause} (rank correlations "
            f"{score_rho:+.2f} and {label_rho:+.2f}), which {effect} the score. Compare it at equal length."
        )


def audit_length(scores: Floats, correct: Floats, lengths: Floats) -> LengthAudit:
    """Correlate a score and correctness with the lengths of answers, in arrays of shape (n,)."""
    # the baseline: a shorter answer is surer
    area = float(prediction.auroc(Tally.of(-lengths, correct)))
    places = ranks(lengths)
    # short and long answers may be alike, which no rank correlation with length shows
    from_middle = np.abs(places - places.mean())
    return LengthAudit(
        n=len(lengths),
        auroc_of_length=None if math.isnan(area) else area,
        score_with_length=spearman(scores, lengths),
        correct_with_length=spearman(correct, lengths),
        score_with_correct=spearman(scores, correct),
        score_with_correct_at_length=_partial(scores, correct, lengths),
        score_with_middle=spearman(scores, from_middle),
        correct_with_middle=spearman(correct, from_middle),
        score_with_correct_at_middle=_partial(scores, correct, from_middle),
    )


def _partial(x: Floats, y: Floats, given: Floats) -> float | None:
    """Compute the partial rank correlation of ``x`` and ``y`` given ``given``."""
    together, x_given, y_given = spearman(x, y), spearman(x, given), spearman(y, given)
    if together is None or x_given is None or y_given is None:
        return together
    # nothing is left of one of them at equal length
    rest = (1 - x_given**2) * (1 - y_given**2)
    return (together - x_given * y_given) / math.sqrt(rest) if rest > 1e-12 else None
