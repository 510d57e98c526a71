"""A fitted calibrator on disk, with the questions that it must not be judged by."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from selfreflect.errors import ConfigError, DataError, excerpt
from selfreflect.uncertainty.asking.estimates import BY_REPLIES
from selfreflect.uncertainty.assess import Assessment
from selfreflect.uncertainty.calibrators import CalibrationMethod, Calibrator, fit
from selfreflect.uncertainty.estimators import ESTIMATORS
from selfreflect.uncertainty.question import AnsweredQuestion, sample_sizes
from selfreflect.uncertainty.relations import Order

FEWEST_LABELS = 50
"""Labelled answers that a map needs to be kept: with fewer, its errors are as large as what it corrects."""


class CalibratorFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything that a score of another question needs to become the same kind of confidence."""

    format: Literal["selfreflect calibrator"] = "selfreflect calibrator"
    version: Literal[1] = 1
    estimator: str
    classes: str
    class_order: Order
    similarity: str
    correctness: str
    method: CalibrationMethod
    x: tuple[float, ...]
    """As in :class:`Calibrator`, like ``y``."""
    y: tuple[float, ...]
    model: str = ""
    """The model that was asked, if any."""
    token_probability: bool = False
    """Whether P(True) was the probability of a token, not a share of replies."""
    n: int
    """Labelled questions that it was fitted on."""
    samples: tuple[int, ...]
    """Numbers of answers that these had."""
    questions: tuple[str, ...]
    """Digests of their ids and texts."""

    @property
    def calibrator(self) -> Calibrator:
        return Calibrator(self.method, self.x, self.y)

    def refuse_overlap(self, questions: Sequence[AnsweredQuestion]) -> None:
        """Raise DataError if the calibrator was fitted on one of these questions."""
        fit_digests = set(self.questions)
        for question in questions:
            if not fit_digests.isdisjoint(digests([question])):
                count = sum(not fit_digests.isdisjoint(digests([candidate])) for candidate in questions)
                raise DataError(
                    f"{count} of {len(questions)} questions were used to fit this calibrator, the first is "
                    f"{excerpt(question.id)}: calibrated confidences would look better than they are. "
                    "Apply it to other questions (with other ids and texts)."
                )

    def refuse_other_variant(self, assessment: Assessment) -> None:
        """Raise ConfigError if the assessment has another kind of the estimator: a probability of a token and
        a share of replies are not the same score."""
        is_token = self.estimator not in assessment.by_replies
        if self.estimator in BY_REPLIES and self.token_probability != is_token:
            raise ConfigError(
                f"the calibrator was fitted on another kind of {self.estimator} than the model gives now, "
                f"which is: {assessment.variant(self.estimator)}. Fit it again"
            )


def fit_file(
    assessment: Assessment,
    estimator: str,
    correctness: str,
    method: CalibrationMethod,
    classes: str,
    class_order: Order,
) -> CalibratorFile:
    """Fit a calibrator on all questions with a value and a label.

    Args:
        classes, class_order: the rule that the classes of the assessment were made by.
    """
    answers = assessment.labelled_scores(estimator, correctness)
    curve = fit(method, answers.scores, answers.labels)
    questions = [assessment.questions[index] for index in answers.indices]
    return CalibratorFile(
        estimator=estimator,
        classes=classes,
        class_order=class_order,
        model=assessment.model or "",
        token_probability=estimator in BY_REPLIES and estimator not in assessment.by_replies,
        similarity=assessment.method.similarity,
        correctness=correctness,
        method=method,
        x=curve.x,
        y=curve.y,
        n=len(questions),
        samples=tuple(sample_sizes(questions)),
        questions=digests(questions),
    )


def digests(questions: Iterable[AnsweredQuestion]) -> tuple[str, ...]:
    """Identify questions by id and by text, without repeating either."""
    names = []
    for question in questions:
        names.append(f"id\0{question.id}")
        if question.text:
            names.append(f"text\0{question.text}")
    return tuple(hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:16] for name in names)


def read_calibrator(path: Path) -> CalibratorFile:
    """Read a calibrator.

    Raises:
        DataError: the file cannot be read, or is no calibrator.
    """
    name = excerpt(str(path), 200)
    try:
        saved = msgspec.json.decode(path.read_bytes(), type=CalibratorFile)
    except OSError as error:
        raise DataError(f"{name} cannot be read: {error.strerror}") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise DataError(f"{name} is not a saved calibrator: {error}") from None
    if not _is_sound(saved):
        raise DataError(f"{name} is not a saved calibrator: its numbers are no {saved.method} map")
    return saved


def _is_sound(saved: CalibratorFile) -> bool:
    if not all(map(math.isfinite, (*saved.x, *saved.y))):
        return False
    if saved.method == "isotonic":
        rising = list(saved.x) == sorted(saved.x) and list(saved.y) == sorted(saved.y)
        return rising and len(saved.x) == len(saved.y) > 0 and saved.y[0] >= 0 and saved.y[-1] <= 1
    if saved.method == "platt":
        return len(saved.x) == 2 and not saved.y
    estimator = ESTIMATORS.get(saved.estimator)  # an unknown one is refused by its name
    if estimator is not None and not estimator.is_probability:
        return False
    return len(saved.x) == 1 and saved.x[0] > 0 and not saved.y


def write_calibrator(saved: CalibratorFile) -> str:
    """Write the text of the file."""
    return msgspec.json.format(msgspec.json.encode(saved), indent=1).decode() + "\n"
