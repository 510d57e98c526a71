"""How much worse a metric finds one summary than another, over items."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from selfreflect.stats import Estimate, clear_sign, mean_interval, sign_flip_p

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
        return clear_sign(self.mean, sign_flip_p(self.changes) if self.changes else None)
