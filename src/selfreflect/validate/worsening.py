"""How much worse a metric finds one summary than another, over items."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from selfreflect.stats import Estimate, mean_interval, sign_flip_p
from selfreflect.validate.statistics import ALPHA

FEWEST = 6
"""On fewer items no sign-flip test can reach p < 0.05: the most extreme of 2^5 patterns and its mirror have
2/32."""


@dataclass(frozen=True)
class Worsening:
    """Changes in :meth:`MetricInfo.badness`, one for each item that has both values, of ``total`` items."""

    changes: Sequence[float]
    total: int

    @cached_property
    def mean(self) -> Estimate:
        return mean_interval(self.changes, self.total)

    @cached_property
    def direction(self) -> int:
        """1 if the change is clearly for the worse, -1 if clearly for the better, else 0."""
        return clear_sign(self.mean, self.changes)


def clear_sign(mean: Estimate, values: Sequence[float]) -> int:
    """1 if the mean of the values is clearly above 0, -1 if clearly below, else 0.

    A mean is clear, as in the reports, if its interval excludes 0 and the sign-flip test agrees.
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
