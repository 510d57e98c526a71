"""Labelled claims as separate questions, and calibrators fitted on them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from selfreflect.errors import ConfigError, excerpt, unknown_name
from selfreflect.uncertainty.calibrator_file import CalibratorFile, digests, read_calibrator
from selfreflect.uncertainty.claims.support import Claim, claims_in
from selfreflect.uncertainty.claims.words import WordReader
from selfreflect.uncertainty.estimators import ESTIMATORS
from selfreflect.uncertainty.question import AnsweredQuestion, NoValue

ESTIMATED = tuple(name for name, estimator in ESTIMATORS.items() if estimator.needs == "claim")
"""Estimators that apply to claims."""
SUPPORT = ESTIMATED[0]
"""Estimator that is calibrated by default."""
_NO_VERDICT = NoValue("no_reply", "for no answer is it clear whether it makes the claim")


def check_estimators(names: Iterable[str]) -> None:
    """Refuse an estimator that cannot be applied to claims."""
    for name in names:
        if name not in ESTIMATED:
            raise unknown_name("estimator of claims", name, ESTIMATED)


def claim_questions(reader: WordReader, questions: Sequence[AnsweredQuestion]) -> Iterator[AnsweredQuestion]:
    """Make a question ``QUESTION#N`` of each labelled claim, with the stances as answers.

    Raises:
        BackendError: the model that is asked has stopped working.
    """
    for question in questions:
        labels = {claim.text: claim.correct for claim in question.claims}
        if not question.answers or not labels:
            continue
        claims = claims_in(reader, question.text, list(labels), question.answers)
        for number, (claim, correct) in enumerate(zip(claims, labels.values(), strict=True), 1):
            yield AnsweredQuestion(
                id=f"{question.id}#{number}",
                text=question.text,
                context=question.context,
                temperature=question.temperature,
                top_p=question.top_p,
                answers=tuple(stance for stance in claim.stances if stance is not None),
                answer=claim.text,
                # claims of one question share its answers, so they are no independent labels
                group=question.group or question.id,
                correct=correct,
                model=question.model,
                values=values_of(claim),
            )


def values_of(claim: Claim) -> dict[str, float | NoValue]:
    """Compute the values of ``ESTIMATED`` for a claim."""
    support = claim.support
    share, total = support.share, sum(support)
    return {
        "support": _NO_VERDICT if share is None else share,
        "contradicted": support.contradicts / total if total else _NO_VERDICT,
        "mentioned": _NO_VERDICT if claim.mentioned is None else claim.mentioned,
    }


@dataclass(frozen=True)
class ClaimCalibrator:
    """A map from a claim's support to the share of such claims that are right."""

    saved: CalibratorFile

    @classmethod
    def load(cls, path: Path, reader: str) -> ClaimCalibrator:
        """Load a calibrator fitted on claims by this reader.

        Raises:
            DataError: the file is no calibrator.
            ConfigError: it is none of claims, or of what another reader reads.
        """
        saved = read_calibrator(path)
        refuse_other_reader(saved, reader, path)
        return cls(saved)

    def knows(self, question: str) -> bool:
        """Check whether the calibrator was fitted on claims about this question."""
        asked = AnsweredQuestion(id="", text=question)
        # by text alone: the id of an asked question is not known
        return not set(self.saved.questions).isdisjoint(digests([asked])[1:])

    def rate(self, claim: Claim) -> Claim:
        """Add a claim's calibrated confidence and whether it is kept; unchanged without a value."""
        value = values_of(claim)[self.saved.estimator]
        if isinstance(value, NoValue):
            return claim
        score = ESTIMATORS[self.saved.estimator].score(value)
        keep = self.saved.keep
        # the rule was fitted on this number of verdicts, and shares move with it
        is_kept = keep.covers(score) if keep and sum(claim.support) == keep.samples else None
        return replace(claim, confidence=float(self.saved.calibrator([score])[0]), is_kept=is_kept)

    def caveat(self, answers: int) -> str:
        """Warn if the calibrator was fitted on other numbers of answers; empty otherwise."""
        if answers in self.saved.samples:
            return ""
        sizes = ", ".join(map(str, self.saved.samples))
        return f"the calibrator of claims was fitted on questions with {sizes} answers, not {answers}"


def refuse_other_reader(saved: CalibratorFile, reader: str, path: Path) -> None:
    """Raise ConfigError unless a calibrator is for claims by this reader."""
    if not saved.reader:
        raise ConfigError(
            f"{excerpt(str(path), 200)} calibrates answers, not claims",
            code="estimator",
            remedy="Fit one for claims: selfreflect calibrate FILE --claims words --save NEW.",
        )
    check_estimators([saved.estimator])
    if not reader:
        raise ConfigError(
            f"{excerpt(str(path), 200)} calibrates claims, not answers",
            code="estimator",
            remedy=f"Add {{claims}} {excerpt(saved.reader)}.",
        )
    if saved.reader != reader:
        raise ConfigError(
            f"{excerpt(str(path), 200)} was fitted with the reader {excerpt(saved.reader)}, not "
            f"with {excerpt(reader)}",
            code="other_reader",
        )
