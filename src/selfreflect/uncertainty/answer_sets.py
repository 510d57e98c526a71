"""Sets of answers that hold the right one at a chosen rate: split conformal on the shares of classes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
import numpy as np

from selfreflect.errors import ConfigError, DataError
from selfreflect.grouping import ordered_groups
from selfreflect.stats import CONFIDENCE, Floats
from selfreflect.uncertainty.assess import Assessment
from selfreflect.uncertainty.classes import members_of
from selfreflect.uncertainty.correctness import Correctness
from selfreflect.uncertainty.features import Samples
from selfreflect.uncertainty.guarantee import upper_bound

# Decimals of alpha (n + 1): 1 - 0.9 is a little less than 0.1.
_ROUNDING = 9


class SetRule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which classes of answers are in a question's set: those that hold ``share`` of the samples or more."""

    coverage: float
    """How often the set holds a right answer, at least, over new samples and questions."""
    share: float
    n: int
    """Labelled questions."""
    samples: int
    """Answers that each question had."""
    unsampled: int
    """Questions whose right answer was never drawn."""
    model: str = ""

    @property
    def is_sound(self) -> bool:
        """Whether the numbers fit each other, as those of a file that nobody changed do."""
        return 0 < self.coverage < 1 and 0 < self.share <= 1 and 0 <= self.unsampled <= self.n


class ClassOfAnswers(msgspec.Struct, frozen=True):
    """Answers that mean the same, by their most common spelling."""

    text: str
    share: float


@dataclass(frozen=True)
class NoSetRule:
    """Why no set of sampled answers holds the right one often enough."""

    coverage: float
    n: int
    unsampled: int

    @property
    def fewest(self) -> int:
        """Labelled questions below which no coverage like this can be promised."""
        return math.ceil(round(1 / (1 - self.coverage) - 1, _ROUNDING))

    @property
    def ceiling(self) -> float:
        """The share of questions whose right answer was drawn at all."""
        return 1 - self.unsampled / self.n

    @property
    def surely(self) -> float:
        """The share that can be covered at least, with 95 % confidence (Clopper and Pearson)."""
        return 1 - upper_bound(self.unsampled, self.n, CONFIDENCE)


def fit_sets(
    right_shares: Sequence[float] | Floats, coverage: float, *, samples: int = 0, model: str = ""
) -> SetRule | NoSetRule:
    """Choose the share that a class needs to be in the set (LAC: Sadinle et al. 2019, JASA 114, 223-234).

    It is the floor(alpha (n + 1))-th smallest share of the right class, with alpha = 1 - coverage. Over
    samples of n questions the coverage is then at least ``coverage`` in the mean.

    Args:
        right_shares: of the right class among each question's answers, 0 where it was not drawn; shape (n,).

    Raises:
        ConfigError: ``coverage`` is not between 0 and 1.
        DataError: there are no shares, or one is not in [0, 1].
    """
    if not 0 < coverage < 1:
        raise ConfigError(
            f"the coverage of a set must lie between 0 and 1, not {coverage:g}",
            code="level",
            remedy="Write {set} as a share, such as 0.9.",
        )
    shares = np.sort(np.asarray(right_shares, dtype=np.float64))
    if not len(shares):
        raise DataError("no question has both answers and a right answer", code="no_gold")
    if not ((shares >= 0) & (shares <= 1)).all():
        raise DataError("a share of the right class is not in [0, 1]", code="score")
    n, unsampled = len(shares), int((shares == 0).sum())
    rank = math.floor(round((1 - coverage) * (n + 1), _ROUNDING))
    if rank == 0 or shares[rank - 1] == 0:
        return NoSetRule(coverage, n, unsampled)
    share = float(shares[rank - 1])
    return SetRule(coverage=coverage, share=share, n=n, samples=samples, unsampled=unsampled, model=model)


def classes_of(samples: Samples) -> list[ClassOfAnswers]:
    """List the classes of a question's answers, the largest first."""
    answers = samples.question.answers
    if not answers:
        return []
    groups = ordered_groups(answers, members_of(samples.labels))
    return [ClassOfAnswers(answers[group[0]], len(group) / len(answers)) for group in groups]


def answer_set(rule: SetRule, classes: Sequence[ClassOfAnswers]) -> list[ClassOfAnswers]:
    """Choose the classes of a set; none where no answer is likely enough."""
    return [entry for entry in classes if entry.share >= rule.share]


def right_shares(assessment: Assessment, correctness: str) -> dict[int, float]:
    """Measure the share of the largest class with a right answer, by the index of the question.

    Questions without answers or without a right answer are left out.

    Raises:
        ConfigError: only a person or a model can tell which class is right.
    """
    if correctness in ("human", "judge"):
        raise ConfigError(
            f"sets need right answers that are compared with every class of answers, not {correctness}",
            code="no_gold",
            remedy="Give right answers with {gold}, and {correctness} contains, exact or numeric.",
        )
    function = Correctness(correctness)
    shares = {}
    for index, samples in enumerate(assessment.samples):
        classes = classes_of(samples)
        labels = [function(samples.question, entry.text) for entry in classes]
        if labels and None not in labels:
            right = [entry.share for entry, label in zip(classes, labels, strict=True) if label]
            shares[index] = max(right, default=0.0)
    return shares
