"""How much worse a metric finds one summary than another, over items, and what may be said of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from selfreflect.stats import Estimate, mean_interval, sign_flip_p
from selfreflect.validate.statistics import ALPHA


@dataclass(frozen=True)
class Worsening:
    """By how much something made summaries worse: one difference in
    :meth:`MetricInfo.badness` for each of the items
    that have it, of ``total``."""

    changes: Sequence[float]
    total: int

    @cached_property
    def mean(self) -> Estimate:
        return mean_interval(self.changes, self.total)

    @cached_property
    def direction(self) -> int:
        """1 where the change is clearly for the worse, -1 where it is clearly for the better, else 0, see
        :func:`clear_sign`."""
        return clear_sign(self.mean, self.changes)


def clear_sign(mean: Estimate, values: Sequence[float]) -> int:
    """1 where the mean of the values is clearly above 0, -1 where it is clearly below, else 0.

    Clear is what the reports call clear: the interval leaves out 0 and the sign-flip test agrees, which a
    handful of items never passes.
    """
    if (
        mean.mean is None
        or mean.low is None
        or mean.high is None
        or mean.low <= 0 <= mean.high
        or sign_flip_p(values) > ALPHA
    ):
        return 0
    return 1 if mean.mean > 0 else -1
