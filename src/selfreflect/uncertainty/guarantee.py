"""Guarantees: thresholds with few wrong answers, sets with a right answer, and detection of drift.

Given how many questions score at or above a threshold fixed beforehand, the wrong ones among them are
binomial. So the thresholds of a grid that a pilot quarter sets are tested one after the other, strict to
permissive, up to the first that fails: only the first false hypothesis of a fixed order can err (fixed
sequence testing, as in Learn then Test, Angelopoulos et al. 2021, arXiv 2110.01052).
"""

from __future__ import annotations

import math
import threading
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from selfreflect.errors import ConfigError, DataError
from selfreflect.grouping import ordered_groups
from selfreflect.stats import CONFIDENCE, Floats, end_of
from selfreflect.text import counted
from selfreflect.uncertainty.assess import Assessment
from selfreflect.uncertainty.classes import members_of
from selfreflect.uncertainty.correctness import Correctness
from selfreflect.uncertainty.features import Samples

PILOT = 4
"""Divisor of the number of questions for the pilot, which sets the grid."""
LEVELS = tuple(round(1 - step / 20, 2) for step in range(1, 21))
"""Quantiles of the pilot's scores that make the grid: 0.95, 0.9, …, 0."""
ROOM = 2
"""Multiple of the minimum number of passing questions that the first threshold should answer."""
_ROUNDING = 1e-9


@lru_cache(maxsize=2**16)
def binomial_tail(wrong: int, answered: int, risk: float) -> float:
    """Compute P(Bin(answered, risk) <= wrong), the p-value of a risk above ``risk``."""
    # at a risk of 0 nothing passes, nor if all answers are wrong
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
    """Compute the one-sided upper bound of a risk (Clopper and Pearson 1934, Biometrika 26, 404-413)."""
    if wrong >= answered:
        return 1.0
    return end_of(lambda risk: binomial_tail(wrong, answered, risk) > 1 - confidence, 0.0, 1.0)


@lru_cache(maxsize=1024)
def fewest_answers(risk: float, confidence: float, wrong: int = 0) -> int:
    """Find the minimum number of answered questions that passes despite ``wrong`` errors."""
    # a range beyond any count: the chance of so few wrong answers falls with the number of answers
    return bisect_left(
        range(2**62), True, key=lambda answered: binomial_tail(wrong, answered, risk) <= 1 - confidence
    )


def fewest_labels(risk: float, confidence: float) -> int:
    """Find the minimum number of labelled questions, pilot included, that passes without errors."""
    # the smallest n of which so many remain without the pilot's n // PILOT
    return (fewest_answers(risk, confidence) - 1) * PILOT // (PILOT - 1) + 1


class ThresholdTest(NamedTuple):
    """Result of testing one threshold."""

    threshold: float
    answered: int
    """Number of questions at or above the threshold."""
    wrong: int
    p_value: float
    coverage: float
    """Share of the tested questions that are answered."""
    bound: float
    """Bound on the share of wrong answers, at the confidence of the search."""


@dataclass(frozen=True)
class ThresholdSearch:
    """Thresholds in test order; the last one failed if the search stopped early."""

    risk: float
    confidence: float
    grid: tuple[float, ...]
    """Grid of thresholds from the start, in descending order."""
    counts: tuple[tuple[int, int], ...]
    """Number of questions at or above each tested threshold, and how many of them are wrong."""
    pilot: int
    """Number of questions that set the grid."""
    tested: int
    """Number of tested questions."""
    skipped: tuple[tuple[float, int, int], ...] = ()
    """Stricter thresholds that too few questions were expected to reach, with counts."""
    expected: tuple[float, ...] = ()
    """Number of tested questions that were expected to reach each skipped threshold, according to the
    pilot."""

    @cached_property
    def tests(self) -> tuple[ThresholdTest, ...]:
        """Tests in order, from strict to permissive."""
        results = zip(self.grid, self.counts, strict=False)
        return tuple(self._test(threshold, *counts) for threshold, counts in results)

    def _test(self, threshold: float, answered: int, wrong: int) -> ThresholdTest:
        p_value = binomial_tail(wrong, answered, self.risk)
        bound = upper_bound(wrong, answered, self.confidence)
        return ThresholdTest(threshold, answered, wrong, p_value, answered / self.tested, bound)

    @property
    def chosen(self) -> ThresholdTest | None:
        """The most permissive threshold before the first failure; None if the first failed."""
        # tests end at the first that fails, so what passed before it counts
        passed = [test for test in self.tests if test.p_value <= 1 - self.confidence]
        return passed[-1] if passed else None

    @property
    def threshold(self) -> float | None:
        """Threshold of :attr:`chosen`, without computing its bound."""
        answered, wrong = self.counts[-1]
        failed = binomial_tail(wrong, answered, self.risk) > 1 - self.confidence
        passed = len(self.counts) - failed
        return self.grid[passed - 1] if passed else None

    @property
    def nearest(self) -> ThresholdTest:
        """First test, or a stricter threshold with fewer missing labels."""
        return min([self.tests[0], *self.untested], key=self._labels_for)

    @cached_property
    def untested(self) -> tuple[ThresholdTest, ...]:
        """Hypothetical tests of the :attr:`skipped` thresholds."""
        return tuple(self._test(*counts) for counts in self.skipped)

    @property
    def enough(self) -> int:
        """Number of tested questions that must be expected to reach the first threshold."""
        return ROOM * fewest_answers(self.risk, self.confidence)

    def expected_of(self, test: ThresholdTest) -> float:
        """Return how many tested questions the pilot expected to reach an :attr:`untested` threshold."""
        return self.expected[self.untested.index(test)]

    @property
    def labels_needed(self) -> int:
        """Further labelled questions that :attr:`nearest` needs, if all are right."""
        return self._labels_for(self.nearest)

    def _labels_for(self, test: ThresholdTest) -> int:
        needs = [(fewest_answers(self.risk, self.confidence, test.wrong), float(test.answered))]
        if test in self.untested:  # it is tested only if enough questions are expected to reach it
            needs.append((self.enough, self.expected_of(test)))
        # only some of further questions are answered, and a part of them goes to the pilot
        lacking = max((answers - known) / (known or 1) for answers, known in needs) * max(1, self.tested)
        return max(0, math.ceil(lacking * PILOT / (PILOT - 1)))


FINEST = 1e-9
"""Smallest distance of a level from 0 and 1; no number of labels suffices for a smaller one."""
_LEVELS = {
    "risk": ("risk", 0.05),
    "confidence": ("confidence", 0.95),
    "set": ("coverage of a set", 0.9),
    "keep": ("share of questions whose kept claims are all right", 0.9),
}
"""Name and example of each level, by parameter."""


def check_levels(**levels: float) -> None:
    """Refuse levels outside (0, 1) with ConfigError."""
    for name, value in levels.items():
        if not FINEST <= value <= 1 - FINEST:
            level, example = _LEVELS[name]
            raise ConfigError(
                f"the {level} must be at least {FINEST:g} and at most 1 - {FINEST:g}, not {value:.12g}",
                code="level",
                remedy=f"Give {{{name}}} as a share, such as {example}.",
            )


def search_threshold(
    pilot: Floats, scores: Floats, wrong: NDArray[np.bool_], risk: float, confidence: float
) -> ThresholdSearch:
    """Test the grid of pilot scores on the other questions.

    A question is answered where its score is at least the threshold, so ties are answered together.

    Args:
        pilot: scores of questions that are in no test; their labels are not needed.
        scores: of the tested questions, higher for more confidence; shape (n,).
        wrong: whether the answer is wrong, shape (n,).

    Raises:
        ConfigError: a level is not between 0 and 1.
        DataError: a score is not finite, or there is no score for the pilot or for the tests.
    """
    check_levels(risk=risk, confidence=confidence)
    if not len(pilot) or not len(scores):
        labelled = counted(len(pilot) + len(scores), "labelled question")
        enough = fewest_labels(risk, confidence)
        raise DataError(
            f"{labelled}: too few to choose thresholds on some and test them on the others",
            code="too_few_labels",
            remedy=f"Label at least {enough:,}; fewer cannot pass, even if all answers are right.",
            labels_needed=enough,
        )
    if not (np.isfinite(pilot).all() and np.isfinite(scores).all()):
        raise DataError("a score is not a finite number", code="score")
    # the pilot alone sets the grid: if the tested questions did, their errors would not be binomial
    rising_pilot = np.sort(pilot)
    # the rounding keeps 0.95 * 20 from falling below 19
    quantiles = (np.array(LEVELS) * (len(pilot) - 1) + _ROUNDING).astype(np.intp)
    # equal scores give the same threshold more than once
    grid = np.array(list(dict.fromkeys(rising_pilot[quantiles].tolist())))
    # a threshold that few questions reach fails for want of answers, and ends all tests
    wanted = ROOM * fewest_answers(risk, confidence)
    expected = (len(pilot) - np.searchsorted(rising_pilot, grid)) / len(pilot) * len(scores)
    # if none is expected to answer enough, only the most permissive can
    start = int(np.argmax(expected >= wanted)) if expected[-1] >= wanted else len(grid) - 1
    rising = np.argsort(scores, kind="stable")
    below = np.searchsorted(scores[rising], grid)
    wrong_below = np.concatenate([[0], np.cumsum(wrong[rising])])
    answered = (len(scores) - below).tolist()
    errors = (wrong_below[-1] - wrong_below[below]).tolist()
    results = list(zip(answered, errors, strict=True))
    counts = []
    for count, error in results[start:]:
        counts.append((count, error))
        # fixed sequence: after the first failure no later threshold may be used
        if binomial_tail(error, count, risk) > 1 - confidence:
            break
    thresholds = grid.tolist()
    skipped = tuple(
        (threshold, *result) for threshold, result in zip(thresholds[:start], results, strict=False)
    )
    return ThresholdSearch(
        risk=risk,
        confidence=confidence,
        grid=tuple(thresholds[start:]),
        counts=tuple(counts),
        pilot=len(pilot),
        tested=len(scores),
        skipped=skipped,
        expected=tuple(expected[:start].tolist()),
    )


def is_pilot(names: Sequence[str]) -> NDArray[np.bool_]:
    """Choose a quarter of the questions by digest, independent of file order; shape (n,)."""
    is_inside = np.zeros(len(names), dtype=np.bool_)
    # digests are as good as random, and do not depend on the order of the file
    is_inside[np.argsort(np.array(names), kind="stable")[: len(names) // PILOT]] = True
    return is_inside


class Drawn(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Sampling settings of answers covered by a guarantee."""

    samples: int
    """Number of answers per question."""
    model: str = ""
    """Model that drew the answers; empty if unknown, and then the next two fields are None."""
    temperature: float | None = None
    top_p: float | None = None


class Guarantee(Drawn, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Guarantee: at most ``risk`` of answers scoring at least ``threshold`` are wrong, with ``confidence``.

    The confidence is over the sample of labelled questions. The sentence is about questions drawn as these
    were, answered by the same model, drawn and sorted in the same way.
    """

    risk: float
    confidence: float
    threshold: float
    """Threshold on the estimator's uncalibrated score, higher for more confidence."""
    answered: int
    wrong: int
    bound: float
    coverage: float
    grid: tuple[float, ...]
    n: int
    """Number of labelled questions, pilot included."""
    pilot: tuple[str, ...]
    """Digests of the pilot's questions; other digests in the file are of tested ones."""
    scores: tuple[float, ...]
    """Scores of all these questions in ascending order, for comparison with new ones."""

    def covers(self, score: float) -> bool:
        """Check whether an answer with this score may be shown."""
        return score >= self.threshold

    @property
    def is_sound(self) -> bool:
        """Whether the threshold passes its test with the file's own counts."""
        # a file may have been edited, so its own counts must pass again
        return (
            0 < self.risk < 1
            and 0 < self.confidence < 1
            and 0 <= self.wrong <= self.answered
            and all(map(math.isfinite, (self.threshold, *self.scores)))
            and binomial_tail(self.wrong, self.answered, self.risk) <= 1 - self.confidence
        )


WINDOW = 100
"""Number of scores compared at a time. Each window is tested once."""
LEVEL = 0.001
"""Probability of a false alarm per window: one in 100,000 questions."""
AGREEING = 3
"""Number of consecutive windows that must agree before the guarantee applies again."""
_LEVEL_OF_RETURN = 0.05


def kolmogorov_smirnov(first: Sequence[float] | Floats, second: Sequence[float] | Floats) -> float:
    """Compute the largest distance between two empirical distributions."""
    samples = np.sort(first), np.sort(second)
    points = np.concatenate(samples)
    # both distributions step at observed scores only
    shares = [np.searchsorted(sample, points, "right") / len(sample) for sample in samples]
    return float(np.abs(shares[0] - shares[1]).max())


def is_other_sample(
    first: Sequence[float] | Floats, second: Sequence[float] | Floats, level: float = LEVEL
) -> bool:
    """Test whether two samples come from different distributions (Smirnov's two-sample test).

    The critical distance is the first term of Smirnov's limit (1948, Ann. Math. Stat. 19, 279-281); ties make
    it conservative. An empty sample differs from none.
    """
    sizes = len(first), len(second)
    if not all(sizes):
        return False
    effective = sizes[0] * sizes[1] / sum(sizes)
    # the first term of Smirnov's limit, solved for the distance
    return kolmogorov_smirnov(first, second) > math.sqrt(math.log(2 / level) / (2 * effective))


class DriftWatch:
    """Drift detector that compares incoming scores with calibration scores.

    A window that differs suspends the guarantee: what it rests on is not what is asked. It applies again
    once ``AGREEING`` windows in a row do not differ, neither each by itself nor, in a stricter test, all
    together: a single window is too small to show that a drift is over.
    """

    def __init__(self, scores: Sequence[float]) -> None:
        self._calibrated = np.array(scores)
        self._window: list[float] = []
        self._agreeing: list[float] = []
        self._lock = threading.Lock()
        self.count = 0
        """Number of scores so far."""
        self.distance: float | None = None
        """Distance of the latest complete window; None before the first."""
        self.has_drifted = False

    def add(self, score: float) -> None:
        """Count a score, and test a completed window."""
        with self._lock:  # answers of several requests are read in threads
            self.count += 1
            self._window.append(score)
            if len(self._window) == WINDOW:
                self._test()
                self._window.clear()

    def _test(self) -> None:
        self.distance = kolmogorov_smirnov(self._calibrated, self._window)
        if is_other_sample(self._calibrated, self._window):
            self.has_drifted = True
            self._agreeing.clear()
        elif self.has_drifted:
            # only the latest windows: earlier ones may still lie within the drift
            self._agreeing = [*self._agreeing, *self._window][-AGREEING * WINDOW :]
            is_long = len(self._agreeing) == AGREEING * WINDOW
            self.has_drifted = not is_long or is_other_sample(
                self._calibrated, self._agreeing, _LEVEL_OF_RETURN
            )


# Decimals of alpha (n + 1): 1 - 0.9 is a little less than 0.1.
_DIGITS = 9


def _rank_of(coverage: float, n: int) -> int:
    """Find the rank of the share that a class needs among n right classes."""
    return math.floor(round((1 - coverage) * (n + 1), _DIGITS))


class SetRule(Drawn, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Rule for sets of answers: classes with at least ``share`` of the samples."""

    coverage: float
    """Minimum frequency of sets that contain a right answer, over new samples and questions."""
    share: float
    n: int
    """Number of labelled questions."""
    unsampled: int
    """Number of questions whose right answer was never drawn."""


class KeepRule(Drawn, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Rule for keeping claims: scores above ``threshold``."""

    share: float
    """Minimum share of questions whose kept claims are all right, over new samples and questions."""
    threshold: float
    n: int
    """Number of labelled questions."""
    kept: float
    """Share of the labelled claims that are kept."""

    def covers(self, score: float) -> bool:
        """Check whether a claim is kept."""
        return score > self.threshold


def keep_threshold(
    scores: Sequence[float], labels: Sequence[float], groups: Sequence[str], share: float
) -> float:
    """Find the score above which all of a new question's claims are right with probability ``share``.

    Of each question counts the highest score of a wrong claim; the threshold is the ceil((n + 1) share)-th
    smallest of these, infinite with too few questions (Mohri and Hashimoto 2024, arXiv 2402.10978). Questions
    must be exchangeable.

    Args:
        scores, labels, groups: of each claim; a label is 1 or 0, and a group is a question.
    """
    # a question without a wrong claim keeps all of its claims at any threshold
    highest = dict.fromkeys(groups, -math.inf)
    for score, label, group in zip(scores, labels, groups, strict=True):
        if not label:
            highest[group] = max(highest[group], score)
    place = math.ceil(round((len(highest) + 1) * share, 9))
    # too few questions: no finite threshold keeps the promise
    return sorted(highest.values())[place - 1] if place <= len(highest) else math.inf


class ClassOfAnswers(msgspec.Struct, frozen=True):
    """Answers with the same meaning, shown by their most common spelling."""

    text: str
    share: float


@dataclass(frozen=True)
class NoSetRule:
    """Reason why sets of sampled answers cannot reach the coverage."""

    coverage: float
    n: int
    unsampled: int

    @property
    def fewest(self) -> int:
        """Minimum number of labelled questions that can guarantee this coverage."""
        return math.ceil(round(1 / (1 - self.coverage) - 1, _DIGITS))

    @property
    def ceiling(self) -> float:
        """Share of questions whose right answer was drawn at all."""
        return 1 - self.unsampled / self.n

    @property
    def surely(self) -> float:
        """Lower bound on the coverage that is possible, with 95 % confidence (Clopper and Pearson)."""
        return 1 - upper_bound(self.unsampled, self.n, CONFIDENCE)


_UNKNOWN = Drawn(samples=0)


def fit_sets(
    right_shares: Sequence[float] | Floats, coverage: float, drawn: Drawn = _UNKNOWN
) -> SetRule | NoSetRule:
    """Choose the share that a class needs to be in the set (LAC: Sadinle et al. 2019, JASA 114, 223-234).

    It is the floor(alpha (n + 1))-th smallest share of the right class, with alpha = 1 - coverage. Over
    samples of n questions the coverage is then at least ``coverage`` on average.

    Args:
        right_shares: of the right class among each question's answers, 0 where it was not drawn; shape (n,).

    Raises:
        ConfigError: ``coverage`` is not between 0 and 1.
        DataError: there are no shares, or one is not in [0, 1].
    """
    check_levels(set=coverage)
    shares = np.sort(np.asarray(right_shares, dtype=np.float64))
    if not len(shares):
        raise DataError("no question has both answers and a right answer", code="no_gold")
    if not ((shares >= 0) & (shares <= 1)).all():
        raise DataError("a share of the right class is not in [0, 1]", code="score")
    n, unsampled = len(shares), int((shares == 0).sum())
    rank = _rank_of(coverage, n)
    # rank 0: too few questions; share 0: the right answer was not drawn often enough
    if rank == 0 or shares[rank - 1] == 0:
        return NoSetRule(coverage, n, unsampled)
    share = float(shares[rank - 1])
    fields = msgspec.structs.asdict(drawn)
    return SetRule(coverage=coverage, share=share, n=n, unsampled=unsampled, **fields)


def classes_of(samples: Samples) -> list[ClassOfAnswers]:
    """List the classes of a question's answers, the largest first."""
    answers = samples.question.answers
    if not answers:
        return []
    groups = ordered_groups(answers, members_of(samples.labels))
    return [ClassOfAnswers(answers[group[0]], len(group) / len(answers)) for group in groups]


def answer_set(rule: SetRule, classes: Sequence[ClassOfAnswers]) -> list[ClassOfAnswers]:
    """Choose the classes of a set; empty if no answer is likely enough."""
    return [entry for entry in classes if entry.share >= rule.share]


def right_shares(assessment: Assessment, correctness: str) -> dict[int, float]:
    """Compute the share of the largest right class, by question index.

    Questions without answers or without a right answer are left out.

    Raises:
        ConfigError: only a person or a model can tell which class is right.
    """
    # a person or a model judged one answer, not every class
    if correctness in ("human", "judge"):
        raise ConfigError(
            "sets of answers need right answers that can be compared with every class of answers, which "
            f"{correctness} does not offer",
            code="no_gold",
            remedy="Give right answers with {gold}, and use {correctness} contains, exact or numeric.",
        )
    function = Correctness(correctness)
    shares = {}
    for index, samples in enumerate(assessment.samples):
        classes = classes_of(samples)
        labels = [function(samples.question, entry.text) for entry in classes]
        if labels and None not in labels:
            # several classes may hold a right answer, and the largest is in the set first
            right = [entry.share for entry, label in zip(classes, labels, strict=True) if label]
            shares[index] = max(right, default=0.0)
    return shares
