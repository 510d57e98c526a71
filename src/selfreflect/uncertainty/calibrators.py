"""Calibration of scores by maps fitted on other questions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from selfreflect.errors import DataError, optional
from selfreflect.stats import Floats, end_of
from selfreflect.uncertainty.prediction import CLIP, finite_scores, score_pairs

CalibrationMethod = Literal["isotonic", "platt", "temperature"]
FitMethod = CalibrationMethod | Literal["weights"]
"""Method for a map of scores, or for the weights of a fitted estimator."""
FOLDS = 5


@dataclass(frozen=True)
class Calibrator:
    """A fitted map from scores (higher for more confidence) to confidences in [0, 1]."""

    method: FitMethod
    x: tuple[float, ...]
    """Scores for interpolation, if isotonic. Platt: slope and intercept. Temperature: the temperature.
    Weights: an intercept and a weight for each column."""
    y: tuple[float, ...] = ()
    """Confidences at these scores, if isotonic."""

    def __call__(self, scores: Sequence[float] | Floats) -> Floats:
        """Calibrate scores of shape (n,), or (n, F) for weights.

        Raises:
            DataError: a score is NaN or infinite.
        """
        values = finite_scores(scores)
        if self.method == "isotonic":
            return np.interp(values, self.x, self.y)
        if self.method == "platt":
            slope, intercept = self.x
            return sigmoid(slope * values + intercept)
        if self.method == "weights":
            return sigmoid(self.x[0] + values @ np.array(self.x[1:]))
        return sigmoid(_logits(values) / self.x[0])


def fit(
    method: FitMethod,
    scores: Sequence[float] | Floats,
    correct: Sequence[bool] | Floats,
    groups: Sequence[str] = (),
) -> Calibrator:
    """Fit a calibrator.

    Isotonic: the best non-decreasing map, with a right answer added at the lowest score and a wrong one at
    the highest, so that no confidence is exactly 0 or 1; for equal scores it is Laplace's rule. Platt: a
    logistic curve, with Platt's prior counts, so that separable scores have a finite slope (Platt 1999).
    Temperature: logits divided by one number (Guo et al. 2017, arXiv 1706.04599). Weights: a logistic
    regression on the columns of ``scores``, shape (n, F), in units of their standard deviations, with a
    Gaussian prior on the weights; ``groups`` as in :func:`cross_fit`.

    Raises:
        DataError: a score is NaN or infinite or, for temperature, outside [0, 1]; a label is not 0 or 1; or
            there are fewer than two answers.
        MissingExtraError: scikit-learn is missing.
    """
    if len(correct) < 2:
        raise DataError(f"{len(correct)} labelled answers are too few to fit a calibrator")
    if method == "weights":
        return _fit_weights(finite_scores(scores), np.asarray(correct, dtype=np.float64), groups)
    values, labels = score_pairs(scores, correct)
    if method == "isotonic":
        return _fit_isotonic(values, labels)
    if method == "platt":
        return _fit_platt(values, labels)
    # scores outside [0, 1] have no logits
    if values.min() < 0 or values.max() > 1:
        raise DataError("temperature scaling needs confidences in [0, 1]; use isotonic or platt")
    return Calibrator("temperature", (1 / _best_inverse_temperature(_logits(values), labels),))


def cross_fit(
    method: FitMethod,
    scores: Sequence[float] | Floats,
    correct: Sequence[bool] | Floats,
    *,
    folds: int = FOLDS,
    groups: Sequence[str] = (),
) -> Floats:
    """Calibrate each answer with a map fitted on the other folds; shape (n,).

    Args:
        groups: answers of one group, such as the fields of an object, share a fold. Without it all are
            independent.

    Raises:
        DataError: there are fewer answers than folds.
    """
    values, labels = np.asarray(scores, dtype=np.float64), np.asarray(correct, dtype=np.float64)
    if len(values) < folds:
        raise DataError(
            f"{len(values)} labelled answers are too few for {folds} folds. Give right answers to more "
            "questions; a useful calibration needs hundreds"
        )
    fold = _folds(values, labels, folds, groups)
    calibrated = np.empty(len(values))
    for number in range(folds):
        # no map sees the labels of the answers that it calibrates
        held_out = fold == number
        inner = tuple(np.array(groups)[~held_out].tolist()) if groups else ()
        calibrated[held_out] = fit(method, values[~held_out], labels[~held_out], inner)(values[held_out])
    return calibrated


_VISIBLE = 0.0005
"""Difference of Brier scores visible in three digits."""


class MapQuality(NamedTuple):
    """Brier scores of confidences computed without each answer's own label."""

    calibrated: float
    constant: float
    """Brier score of always stating the accuracy of the other folds."""
    unchanged: float | None
    """Brier score of the unchanged scores; None if they are not probabilities."""

    @property
    def better(self) -> dict[str, float]:
        """Alternatives with a lower score, by field."""
        alternatives = {name: score for name, score in self._asdict().items() if score is not None}
        return {name: score for name, score in alternatives.items() if score < self.calibrated - _VISIBLE}


def map_quality(
    method: FitMethod,
    scores: Floats,
    correct: Floats,
    *,
    probability: bool,
    groups: Sequence[str] = (),
) -> MapQuality:
    """Compare a map with both alternatives to it. Raises the errors of :func:`cross_fit`."""
    calibrated = cross_fit(method, scores, correct, groups=groups)
    fold = _folds(scores, correct, FOLDS, groups)
    # of the other folds as well: its own labels would make the constant look better
    constant = np.array([correct[fold != number].mean() for number in range(FOLDS)])[fold]

    def brier(confidences: Floats) -> float:
        return float(((confidences - correct) ** 2).mean())

    return MapQuality(brier(calibrated), brier(constant), brier(scores) if probability else None)


def _folds(values: Floats, labels: Floats, folds: int, groups: Sequence[str] = ()) -> NDArray[np.intp]:
    """Assign each answer to a fold.

    Answers are shuffled from the order of scores and labels, and groups from the order of their names, so
    that the order of a file changes nothing.

    Raises:
        DataError: there are fewer groups than folds.
    """
    # answers of a group are right or wrong together, so a group is never divided
    if groups:
        names, group = np.unique(np.array(groups), return_inverse=True)
        if len(names) < folds:
            raise DataError(
                f"the labelled answers belong to {len(names)} questions, which are too few for {folds} folds"
            )
        return np.random.default_rng(0).permutation(len(names))[group] % folds
    fold = np.empty(len(values), dtype=np.intp)
    # sorted before it is shuffled: the order of the file changes nothing
    order = np.lexsort((labels, *np.atleast_2d(values.T)))
    fold[order] = np.random.default_rng(0).permutation(len(values)) % folds
    return fold


def _fit_isotonic(values: Floats, labels: Floats) -> Calibrator:
    with optional("Isotonic calibration", "calibrate"):
        from sklearn.isotonic import IsotonicRegression
    # the added answers keep the ends off 0 and 1
    with_ends = np.append(values, [values.min(), values.max()])
    model = IsotonicRegression(y_min=0, y_max=1).fit(with_ends, np.append(labels, [1, 0]))
    return Calibrator("isotonic", tuple(model.X_thresholds_.tolist()), tuple(model.y_thresholds_.tolist()))


def _fit_platt(values: Floats, labels: Floats) -> Calibrator:
    with optional("Platt calibration", "calibrate"):
        from sklearn.linear_model import LogisticRegression
    right = labels.sum()
    # Platt's targets, (right + 1) / (right + 2) and 1 / (wrong + 2), keep the slope finite
    targets = np.where(labels == 1, (right + 1) / (right + 2), 1 / (len(labels) - right + 2))
    # rounding gives equal values a spread of about 1e-17, and dividing by it an arbitrary slope
    spread = values.max() - values.min()
    centre, scale = values.mean(), values.std() if spread > 1e-12 * np.abs(values).max() else 1.0
    # a target between the classes is one example of each, by weight
    twice = np.concatenate([values, values])[:, None]
    classes = np.repeat([1, 0], len(values))
    model = LogisticRegression(C=1e9).fit(
        (twice - centre) / scale, classes, np.concatenate([targets, 1 - targets])
    )
    slope = float(model.coef_[0, 0]) / scale
    return Calibrator("platt", (float(slope), float(model.intercept_[0] - slope * centre)))


PRIOR_VARIANCES = (0.003, 0.01, 0.03, 0.1, 0.3, 1.0)
"""Prior variances of each weight for unit-variance columns, chosen by cross-validation."""
ANSWERS_PER_WEIGHT = 5
"""Minimum number of labelled answers per weight; with fewer, a fit is discarded
(``benchmarks/one_call.py``)."""


def _fit_weights(columns: Floats, labels: Floats, groups: Sequence[str]) -> Calibrator:
    with optional("A fit of weights", "calibrate"):
        from sklearn.linear_model import LogisticRegression
    means, scales = columns.mean(axis=0), columns.std(axis=0)
    # one prior for all weights needs columns of one scale
    scales = np.where(scales > 1e-12, scales, 1.0)
    scaled = (columns - means) / scales

    def regression(variance: float, rows: NDArray[np.bool_]) -> Any:
        return LogisticRegression(C=variance, max_iter=1000).fit(scaled[rows], labels[rows])

    def loss(variance: float) -> float:
        total = 0.0
        for number in range(FOLDS):
            inside = fold == number
            # a fold whose others are all right, or all wrong, leaves no regression to judge by
            if not inside.any() or len(set(labels[~inside].tolist())) < 2:
                continue
            chances = regression(variance, ~inside).predict_proba(scaled[inside])[:, 1]
            total -= float(np.log(np.where(labels[inside] == 1, chances, 1 - chances)).sum())
        return total

    if len(set(labels.tolist())) < 2:
        raise DataError(
            "weights cannot be fitted: too few of the labelled answers are right, or too few are wrong"
        )
    fold = _folds(columns, labels, FOLDS, groups)
    model = regression(min(PRIOR_VARIANCES, key=loss), np.ones(len(labels), dtype=np.bool_))
    # back to the scale of the columns
    weights = model.coef_[0] / scales
    return Calibrator("weights", (float(model.intercept_[0] - weights @ means), *weights.tolist()))


def _best_inverse_temperature(logits: Floats, labels: Floats) -> float:
    """Minimise the convex log loss by bisecting its derivative."""
    if not logits.any():
        return 1.0  # all confidences are 0.5, which any temperature keeps

    def falls(power: float) -> bool:
        """Check whether the log loss decreases at an inverse temperature; its derivative changes sign
        once."""
        return bool((logits * (sigmoid(10**power * logits) - labels)).sum() <= 0)

    return float(10 ** end_of(falls, -3.0, 3.0))


def _logits(confidences: Floats) -> Floats:
    # 0 and 1 have infinite logits
    clipped = np.clip(confidences, CLIP, 1 - CLIP)
    logits: Floats = np.log(clipped) - np.log1p(-clipped)
    return logits


def sigmoid(logits: Floats) -> Floats:
    """Compute the logistic function of logits of any size."""
    # exp overflows beyond 700
    result: Floats = 1 / (1 + np.exp(-np.clip(logits, -700, 700)))
    return result
