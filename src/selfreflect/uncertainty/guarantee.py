"""A threshold above which answers are wrong at most at a chosen risk: exact tests in a fixed order.

Given how many questions score at or above a threshold fixed beforehand, the wrong ones among them are
binomial. So the thresholds of a grid that a pilot quarter sets are tested one after the other, strict to
permissive, up to the first that fails: only the first false hypothesis of a fixed order can err (fixed
sequence testing, as in Learn then Test, Angelopoulos et al. 2021, arXiv 2110.01052).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from selfreflect.errors import ConfigError, DataError
from selfreflect.stats import Floats
from selfreflect.text import counted

PILOT = 4
"""Every fourth question sets the grid and its start; the others are tested."""
LEVELS = tuple(round(1 - step / 20, 2) for step in range(1, 21))
"""Quantiles of the pilot's scores that make the grid: 0.95, 0.9, …, 0."""
ROOM = 2
"""The first threshold tested should answer so many times the fewest questions that can pass."""
_STEPS = 60
_ROUNDING = 1e-9


@lru_cache(maxsize=2**16)
def binomial_tail(wrong: int, answered: int, risk: float) -> float:
    """Compute P(Bin(answered, risk) <= wrong), the p-value of "the risk is higher"."""
    if wrong >= answered or risk <= 0:
        return 1.0
    if risk >= 1:
        return 0.0
    counts = np.arange(wrong + 1)
    # the ratio of neighbouring terms, summed as logs: factorials of thousands overflow
    ratios = np.log((answered - counts[:-1]) / (counts[:-1] + 1)) + math.log(risk) - math.log1p(-risk)
    logs = answered * math.log1p(-risk) + np.concatenate([[0.0], np.cumsum(ratios)])
    return min(1.0, float(np.exp(logs).sum()))


@lru_cache(maxsize=1024)
def upper_bound(wrong: int, answered: int, confidence: float) -> float:
    """Compute the one-sided bound of a risk by Clopper and Pearson (1934, Biometrika 26, 404-413)."""
    if wrong >= answered:
        return 1.0
    low, high = 0.0, 1.0
    for _ in range(_STEPS):
        middle = (low + high) / 2
        if binomial_tail(wrong, answered, middle) > 1 - confidence:
            low = middle
        else:
            high = middle
    return high


@lru_cache(maxsize=1024)
def fewest_answers(risk: float, confidence: float, wrong: int = 0) -> int:
    """Find the fewest answered questions that pass with so many wrong ones."""
    level = 1 - confidence
    low, high = wrong, max(1, 2 * wrong)
    while binomial_tail(wrong, high, risk) > level:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        if binomial_tail(wrong, middle, risk) > level:
            low = middle
        else:
            high = middle
    return high


class ThresholdTest(NamedTuple):
    """What the tested questions say of one threshold."""

    threshold: float
    answered: int
    """Questions that score at or above it."""
    wrong: int
    p_value: float
    coverage: float
    """Answered, as a share of the tested questions."""
    bound: float
    """Of the share wrong among the answered, at the confidence of the search."""


@dataclass(frozen=True)
class ThresholdSearch:
    """Thresholds tested in order, the last of which failed if it stopped early."""

    risk: float
    confidence: float
    grid: tuple[float, ...]
    """From the start on, falling."""
    counts: tuple[tuple[int, int], ...]
    """Questions that score at or above each tested threshold, and the wrong ones among them."""
    pilot: int
    """Questions that set the grid."""
    tested: int
    """Questions that the tests are on."""

    @cached_property
    def tests(self) -> tuple[ThresholdTest, ...]:
        """The tests in their order, strict to permissive."""
        tests = []
        for threshold, (answered, wrong) in zip(self.grid, self.counts, strict=False):
            p_value = binomial_tail(wrong, answered, self.risk)
            bound = upper_bound(wrong, answered, self.confidence)
            tests.append(ThresholdTest(threshold, answered, wrong, p_value, answered / self.tested, bound))
        return tuple(tests)

    @property
    def chosen(self) -> ThresholdTest | None:
        """The most permissive threshold before the first failure; None if the first failed."""
        passed = [test for test in self.tests if test.p_value <= 1 - self.confidence]
        return passed[-1] if passed else None

    @property
    def threshold(self) -> float | None:
        """The threshold of :attr:`chosen`, without its bound."""
        answered, wrong = self.counts[-1]
        failed = binomial_tail(wrong, answered, self.risk) > 1 - self.confidence
        passed = len(self.counts) - failed
        return self.grid[passed - 1] if passed else None

    @property
    def labels_needed(self) -> int:
        """Further labelled questions that the first test needs to pass, if none of them is wrong."""
        first = self.tests[0]
        answers = fewest_answers(self.risk, self.confidence, first.wrong) - first.answered
        if answers <= 0:
            return 0
        # only some of further questions are answered, and a part of them goes to the pilot
        coverage = first.coverage or 1 / max(1, self.tested)
        return math.ceil(answers / coverage * PILOT / (PILOT - 1))


def check_levels(risk: float, confidence: float) -> None:
    """Refuse levels outside of (0, 1) with ConfigError."""
    for name, value in (("risk", risk), ("confidence", confidence)):
        if not 0 < value < 1:
            raise ConfigError(
                f"the {name} must lie between 0 and 1, not {value:g}",
                code="level",
                remedy=f"Write {{{name}}} as a share, such as {0.05 if name == 'risk' else 0.95}.",
            )


def search_threshold(
    pilot: Floats, scores: Floats, wrong: NDArray[np.bool_], risk: float, confidence: float
) -> ThresholdSearch:
    """Test the grid of the pilot's scores on the other questions.

    A question is answered where its score is at least the threshold, so ties are answered together.

    Args:
        pilot: scores of questions that are in no test; their labels are not needed.
        scores: of the tested questions, higher for more confidence; shape (n,).
        wrong: whether the answer is wrong, shape (n,).

    Raises:
        ConfigError: a level is not between 0 and 1.
        DataError: a score is not finite, or there is no score for the pilot or for the tests.
    """
    check_levels(risk, confidence)
    if not len(pilot) or not len(scores):
        labelled = counted(len(pilot) + len(scores), "labelled question")
        enough = math.ceil(fewest_answers(risk, confidence) * PILOT / (PILOT - 1))
        raise DataError(
            f"{labelled} cannot be divided into a pilot and tests",
            code="too_few_labels",
            remedy=f"Label at least {enough}, which pass if all answers are right.",
            labels_needed=enough,
        )
    if not (np.isfinite(pilot).all() and np.isfinite(scores).all()):
        raise DataError("a score is not a finite number", code="score")
    ordered = np.sort(pilot)
    quantiles = (np.array(LEVELS) * (len(pilot) - 1) + _ROUNDING).astype(np.intp)
    grid = np.array(list(dict.fromkeys(ordered[quantiles].tolist())))
    wanted = ROOM * fewest_answers(risk, confidence)
    expected = (len(pilot) - np.searchsorted(ordered, grid)) / len(pilot) * len(scores)
    start = int(np.argmax(expected >= wanted)) if expected[-1] >= wanted else len(grid) - 1
    rising = np.argsort(scores, kind="stable")
    below = np.searchsorted(scores[rising], grid[start:])
    wrong_below = np.concatenate([[0], np.cumsum(wrong[rising])])
    answered = (len(scores) - below).tolist()
    errors = (wrong_below[-1] - wrong_below[below]).tolist()
    counts = []
    for count, error in zip(answered, errors, strict=True):
        counts.append((count, error))
        if binomial_tail(error, count, risk) > 1 - confidence:
            break
    return ThresholdSearch(
        risk, confidence, tuple(grid[start:].tolist()), tuple(counts), len(pilot), len(scores)
    )


def is_pilot(names: Sequence[str]) -> NDArray[np.bool_]:
    """Choose a quarter of the questions by their digests, whatever their order in the file; shape (n,)."""
    chosen = np.zeros(len(names), dtype=np.bool_)
    chosen[np.argsort(np.array(names), kind="stable")[: len(names) // PILOT]] = True
    return chosen


class Guarantee(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """At most ``risk`` of the answers that score ``threshold`` or more are wrong, with ``confidence``.

    The confidence is over the sample of labelled questions. The sentence is about questions drawn as these
    were, answered by the same model, drawn and sorted in the same way.
    """

    risk: float
    confidence: float
    threshold: float
    """Of the estimator's score, of which higher means more confidence, before any calibration."""
    answered: int
    wrong: int
    bound: float
    coverage: float
    grid: tuple[float, ...]
    n: int
    """Labelled questions, with the pilot."""
    samples: int
    """Answers that each question had; a share of other numbers is another score."""
    model: str = ""
    """That drew the answers; empty if the file did not say."""
    pilot: tuple[str, ...]
    """Digests of the questions that set the grid; the other digests of the file are of the tested ones."""
    scores: tuple[float, ...]
    """Of all these questions, rising: new scores are compared with them."""

    def covers(self, score: float) -> bool:
        """Tell whether an answer with this score may be shown."""
        return score >= self.threshold

    @property
    def is_sound(self) -> bool:
        """Whether the numbers fit each other, as those of a file that nobody changed do."""
        if not (0 < self.risk < 1 and 0 < self.confidence < 1 and 0 <= self.wrong <= self.answered < self.n):
            return False
        numbers = (self.threshold, self.bound, self.coverage, *self.grid, *self.scores)
        if not all(map(math.isfinite, numbers)) or self.threshold not in self.grid:
            return False
        passes = binomial_tail(self.wrong, self.answered, self.risk) <= 1 - self.confidence
        return passes and list(self.scores) == sorted(self.scores) and len(self.scores) == self.n
