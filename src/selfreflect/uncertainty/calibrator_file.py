"""A fitted calibrator on disk, with the questions that it was fitted on, which it must not be judged by."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Literal

import msgspec

from selfreflect.errors import DataError, excerpt
from selfreflect.uncertainty.estimators import ESTIMATORS
from selfreflect.uncertainty.question import AnsweredQuestion
from selfreflect.uncertainty.recalibrate import CalibrationMethod, Calibrator


class CalibratorFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything that a score of another question needs to become the same kind of confidence."""

    format: Literal["selfreflect calibrator"] = "selfreflect calibrator"
    version: Literal[1] = 1
    estimator: str
    classes: str
    class_order: Literal["first", "components"]
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
        own = set(self.questions)
        for question in questions:
            if not own.isdisjoint(digests([question])):
                count = sum(not own.isdisjoint(digests([one])) for one in questions)
                raise DataError(
                    f"{count} of {len(questions)} questions were used to fit this calibrator, the first is "
                    f"{excerpt(question.id)}: calibrated confidences would look better than they are. "
                    "Apply it to other questions (with other ids and texts)."
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
        rising = all(low <= high for column in (saved.x, saved.y) for low, high in pairwise(column))
        return rising and len(saved.x) == len(saved.y) > 0 and saved.y[0] >= 0 and saved.y[-1] <= 1
    if saved.method == "platt":
        return len(saved.x) == 2 and not saved.y
    estimator = ESTIMATORS.get(saved.estimator)  # an unknown one is refused by its name
    if estimator is not None and not estimator.is_probability:
        return False
    return len(saved.x) == 1 and saved.x[0] > 0 and not saved.y


def write_calibrator(saved: CalibratorFile) -> str:
    """The file's text."""
    return msgspec.json.format(msgspec.json.encode(saved), indent=1).decode() + "\n"
