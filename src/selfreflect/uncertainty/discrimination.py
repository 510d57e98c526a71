"""Whether correct answers get higher scores than wrong ones. Any finite score will do.

Every function takes a :class:`Tally` and returns one value for each of its resamples, shape (...). NaN marks
a resample without correct or without wrong answers; :mod:`selfreflect.uncertainty.measures` never shows it.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from selfreflect.stats import Floats
from selfreflect.uncertainty.tally import Tally


def auroc(tally: Tally) -> Floats:
    """Chance that a correct answer has a higher score than a wrong one, where a tie counts one half."""
    wrong_below = tally.wrong.cumsum(-1) - tally.wrong / 2
    return _ratio((tally.correct * wrong_below).sum(-1), tally.correct.sum(-1) * tally.wrong.sum(-1))


def auprc(tally: Tally, positive: Literal["correct", "wrong"] = "correct") -> Floats:
    """Average precision: the area below the steps of precision over recall, where equal scores are one step.

    With ``positive="wrong"`` it is that of finding wrong answers by low scores.
    """
    if positive == "correct":
        hits, counts = tally.correct[..., ::-1], tally.counts[..., ::-1]
    else:
        hits, counts = tally.wrong, tally.counts
    precision = hits.cumsum(-1) / np.maximum(counts.cumsum(-1), 1)
    return _ratio((hits * precision).sum(-1), hits.sum(-1))


def recall_at_fpr(tally: Tally, rate: float = 0.05) -> Floats:
    """Share of correct answers accepted where a share ``rate`` of the wrong ones is accepted.

    Within equal scores the curve is a straight line: the expectation over random ties.
    """
    correct, wrong = tally.correct[..., ::-1], tally.wrong[..., ::-1]
    none = np.zeros((*correct.shape[:-1], 1))
    hits = np.concatenate([none, _ratio(correct.cumsum(-1), correct.sum(-1)[..., None])], -1)
    false_alarms = np.concatenate([none, _ratio(wrong.cumsum(-1), wrong.sum(-1)[..., None])], -1)
    last = (false_alarms <= rate).sum(-1, keepdims=True) - 1
    following = np.minimum(last + 1, hits.shape[-1] - 1)
    start, end = (np.take_along_axis(false_alarms, at, -1)[..., 0] for at in (last, following))
    low, high = (np.take_along_axis(hits, at, -1)[..., 0] for at in (last, following))
    part = np.where(end > start, (rate - start) / np.where(end > start, end - start, 1), 0)
    recall = low + part * (high - low)
    both = (correct.sum(-1) > 0) & (wrong.sum(-1) > 0)
    return np.where(both, recall, np.nan)


def _ratio(top: Floats, bottom: Floats) -> Floats:
    """NaN where the denominator is 0."""
    ratio: Floats = np.where(bottom > 0, top / np.where(bottom > 0, bottom, 1), np.nan)
    return ratio
