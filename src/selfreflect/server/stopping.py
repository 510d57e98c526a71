"""Adaptive sampling: stops when further samples cannot change the result.

The evidence is money in a game that is fair, or worse, if a claim is wrong (testing by betting: Waudby-Smith
and Ramdas 2024, J. R. Stat. Soc. B 86, 1-27, arXiv 2010.09686). By Ville's inequality the money of such a
game ever grows to ``x`` times the stake with a probability of at most ``1 / x``. So a claim made then is
wrong at most as often, at whatever moment one looks. Which class is the mode is decided by its games against
each other class, one versus one, as in PPR-1v1 (Jain et al. 2022, AISTATS, arXiv 2109.05047).

Adaptive consistency (Aggarwal et al. 2023, arXiv 2305.11860) stops when a Beta posterior of the two leading
counts exceeds 0.95. It stops earlier, but 0.95 is not how often it is right, because it looks after each
sample: at shares of 0.51 and 0.49 it names the wrong class in one of seven cases
(``benchmarks/stopping.py``).

"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from selfreflect.uncertainty.classes import Labels

StopReason = Literal["ahead", "below", "settled", "limit"]
"""``ahead``: within the error, the modal class is the model's most likely one (and its share is at least
``share``). ``below``: within the error, no class has ``share``. ``settled``: the remaining samples cannot
change the modal class (or whether it has ``share``). ``limit``: no samples remain."""

# Which part of the money a player bets each time, and the part of the first money that this
# player has. Half of it is with the player who bets all, because most questions have samples that
# all agree. Our choice: others keep the error too and stop later.
_STAKES = ((0.4, 0.25), (0.8, 0.25), (1.0, 0.5))

# 0.07 * 100 is a little above 7 in floating point
_ROUNDING = 1e-9


@dataclass(frozen=True)
class StoppingRule:
    """Rule for stopping the sampling of a question.

    Samples are taken as independent draws of the model. The bounds hold for any batches and for any number of
    classes, also if it is unknown; classes that merge when later answers arrive are not covered.

    Args:
        fewest: samples before it stops.
        most: samples after which it stops.
        error: probability, at most, that it stops because of ``ahead`` or ``below`` and is wrong.
        share: also decide whether the most likely class has at least this share, below 1. None: only which it
            is.
    """

    fewest: int = 3
    most: int = 20
    error: float = 0.05
    share: float | None = None

    def __call__(self, labels: Sequence[int] | Labels) -> StopReason | None:
        """Return the reason for stopping, or None to continue.

        Args:
            labels: the class of each sample, in sampling order, numbered from 0 in the order of first
                samples; shape (n,).
        """
        classes = np.asarray(labels, dtype=np.intp)
        if len(classes) >= self.most:
            return "limit"
        if len(classes) < max(1, self.fewest):
            return None
        counts = np.bincount(classes)
        if self._proves_below(counts):
            return "below"
        largest, left = int(counts.max()), self.most - len(classes)
        threshold = None if self.share is None else self.share * self.most - _ROUNDING
        if threshold is not None and largest + left < threshold:
            return "settled"
        # each claim has its own proof; both must hold at once
        leads = self._proves_mode(classes, counts)
        reaches = self.share is None or self._proves_share(classes, counts, self.share)
        if leads and reaches:
            return "ahead"
        runner_up = int(np.sort(counts)[-2]) if len(counts) > 1 else 0
        is_mode_settled = leads or largest - runner_up > left
        is_share_settled = reaches or threshold is None or largest >= threshold
        return "settled" if is_mode_settled and is_share_settled else None

    def soonest(self, labels: Sequence[int] | Labels) -> int:
        """Count the further samples before the earliest possible stop.

        Drawing so many at once takes as few samples as drawing them one by one, in fewer calls. 0 if it stops
        now.
        """
        classes = list(map(int, labels))
        size = max(classes, default=-1) + 1

        def can_stop(count: int) -> bool:
            """Check whether ``count`` further samples, all equal or all new, can stop the sampling. If so,
            more can, too."""
            alike = ([label] * count for label in range(size + 1))
            return any(self([*classes, *ending]) for ending in (*alike, range(size, size + count)))

        return bisect_left(range(self.most - len(classes)), True, key=can_stop)

    @property
    def _each_error(self) -> float:
        """Error probability per decision: with a share, class and share may both be wrong."""
        return self.error if self.share is None else self.error / 2

    def _proves_mode(self, classes: Labels, counts: Labels) -> bool:
        """Check whether the leading class has won its betting game against every other class.

        Any class may turn out to lead, so the k-th class that is seen has 2^-k of the error (k from 1), and
        the sample that makes it known does not count.
        """
        leader = int(counts.argmax())
        tail = np.bincount(classes[_first(classes, leader) + 1 :], minlength=len(counts))
        # a game against any rarer class is won by more
        rival = int(np.delete(tail, leader).max(initial=0))
        return self._is_enough(log_wealth(int(tail[leader]), rival, 0.5), leader)

    def _proves_share(self, classes: Labels, counts: Labels, share: float) -> bool:
        """Check whether the leading class's share is proven to reach the threshold."""
        leader = int(counts.argmax())
        tail = classes[_first(classes, leader) + 1 :]
        hits = int((tail == leader).sum())
        return self._is_enough(log_wealth(hits, len(tail) - hits, share), leader)

    def _is_enough(self, log_money: float, leader: int) -> bool:
        # leader counts from 0
        return log_money >= (leader + 1) * math.log(2) - math.log(self._each_error)

    def _proves_below(self, counts: Labels) -> bool:
        """Check whether every class's share is proven to be below the threshold. Only the most likely class
        can make this wrong, so the whole error applies to its share."""
        if self.share is None:
            return False
        largest, total = int(counts.max()), int(counts.sum())
        return log_wealth(total - largest, largest, 1 - self.share) >= -math.log(self._each_error)


def log_wealth(wins: int, losses: int, chance: float) -> float:
    """Compute the log wealth per unit of stake after a game of wins and losses.

    A bet wins with a probability of at most ``chance`` if the claim is wrong. A player who bets the part
    ``f`` multiplies his money by ``1 + f (1 - chance) / chance`` if he wins and by ``1 - f`` if he loses: on
    average by at most 1. The money is the sum over three players; the order of wins and losses makes no
    difference.
    """
    logs = []
    # logarithms, because the money of a long game overflows
    for part, money in _STAKES:
        log = math.log(money) + wins * math.log1p(part * (1 - chance) / chance)
        if losses:
            # who bets all has nothing left after one loss
            log += losses * math.log1p(-part) if part < 1 else -math.inf
        logs.append(log)
    top = max(logs)
    return top + math.log(sum(math.exp(log - top) for log in logs))


def _first(classes: Labels, label: int) -> int:
    # argmax finds the first True
    return int(np.argmax(classes == label))
