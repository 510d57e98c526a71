"""Whether scores are still distributed as those that a guarantee was found on."""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence

import numpy as np

from selfreflect.stats import Floats

WINDOW = 100
"""Scores that are compared at a time. Each window is tested once."""
LEVEL = 0.001
"""Chance of an alarm in one window without drift: one in 100,000 questions."""


def kolmogorov_smirnov(first: Sequence[float] | Floats, second: Sequence[float] | Floats) -> float:
    """Compute the largest distance of two empirical distributions."""
    one_sample, other_sample = np.sort(first), np.sort(second)
    points = np.concatenate([one_sample, other_sample])
    shares = [np.searchsorted(sample, points, "right") / len(sample) for sample in (one_sample, other_sample)]
    return float(np.abs(shares[0] - shares[1]).max())


def is_other_sample(
    first: Sequence[float] | Floats, second: Sequence[float] | Floats, level: float = LEVEL
) -> bool:
    """Test whether two samples are of different distributions (Smirnov's two-sample test).

    The critical distance is the first term of Smirnov's limit (1948, Ann. Math. Stat. 19, 279-281); ties make
    it conservative. An empty sample differs from none.
    """
    sizes = len(first), len(second)
    if not all(sizes):
        return False
    effective = sizes[0] * sizes[1] / sum(sizes)
    return kolmogorov_smirnov(first, second) > math.sqrt(math.log(2 / level) / (2 * effective))


class DriftWatch:
    """Compares the scores of questions as they come with those of the calibration.

    Once a window differs, the guarantee is over: what it rests on is not what is asked.
    """

    def __init__(self, scores: Sequence[float]) -> None:
        self._calibrated = np.array(scores)
        self._window: list[float] = []
        self._lock = threading.Lock()
        self.count = 0
        """Scores seen."""
        self.distance: float | None = None
        """Of the latest whole window; None before there is one."""
        self.has_drifted = False

    def add(self, score: float) -> None:
        """Count a score, and test the window that it completes."""
        with self._lock:  # answers of several requests are read in threads
            self.count += 1
            self._window.append(score)
            if len(self._window) == WINDOW:
                self.distance = kolmogorov_smirnov(self._calibrated, self._window)
                self.has_drifted |= is_other_sample(self._calibrated, self._window)
                self._window.clear()
