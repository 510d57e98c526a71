"""What the estimators say of a model, for a reader who wants one sentence."""

from __future__ import annotations

from statistics import fmean
from typing import NamedTuple

from selfreflect.stats import Floats, defined
from selfreflect.text import counted, percent
from selfreflect.uncertainty.assess import Assessment
from selfreflect.uncertainty.correctness import GRADED
from selfreflect.uncertainty.measures import measure_all
from selfreflect.uncertainty.prediction import Tally
from selfreflect.uncertainty.question import NoValue, graded_by

RISK = 0.1
"""The share of wrong answers that may be given, unless a user chooses."""
SAYS = {
    "stated": "states a confidence of {} on average",
    "modal_share": "repeats its most common answer in {} of its samples",
}
"""How sure a model says it is, by the first of these estimators that has values."""


class Conclusion(NamedTuple):
    """Accuracy, confidence and the use of knowing it. None where a value is undefined."""

    correctness: str
    accuracy: float
    answers: int
    """Those that have a label, or a grade."""
    sure_by: str | None
    """The estimator that says how sure the model is."""
    sure: float | None
    """Its mean."""
    best: str | None
    """The estimator with the highest AUROC."""
    auroc: float | None
    risk: float
    """The share of wrong answers that may be given."""
    answered: float | None
    """Share of the questions that could be answered at this risk, by a threshold on the best estimator."""
    undefined: str
    """Why there is no best estimator; empty if there is one."""

    @property
    def sentence(self) -> str:
        """Word it for a reader who knows none of the measures."""
        parts = [f"the model is right in {percent(self.accuracy)} of {counted(self.answers, 'answer')}"]
        if self.sure is not None and self.sure_by is not None:
            parts.append(f"it {SAYS[self.sure_by].format(percent(self.sure))}")
        if self.best is None or self.auroc is None or self.answered is None:
            parts.append(f"what tells right from wrong best is open: {self.undefined}")
        elif self.auroc <= 0.5:
            parts.append("no estimator tells right from wrong better than chance")
        else:
            parts.append(f"{self.best} tells right from wrong best (AUROC {self.auroc:.2f})")
            share, risk = percent(self.answered), percent(self.risk)
            # chosen on the labels that it is measured with, so other questions may turn out worse
            parts.append(
                f"in hindsight, {share} of these questions could be answered with at most {risk} errors"
            )
        return f"In short ({self.correctness}): {'; '.join(parts)}."


def conclude(assessment: Assessment, correctness: str, risk: float = RISK) -> Conclusion | None:
    """Summarise how well the model knows what it knows; None without a labelled answer.

    Args:
        risk: share of wrong answers that may be given.
    """
    labels = _labels(assessment, correctness)
    if not labels:
        return None
    sure_by = sure = None
    for name in SAYS:
        values = [value for value in assessment.values.get(name, ()) if not isinstance(value, NoValue)]
        if values:
            sure_by, sure = name, fmean(values)
            break
    tallies, aurocs = {}, {}
    undefined = "no estimator has a value"
    for name in assessment.values:
        scored = assessment.labelled_scores(name, correctness)
        if not len(scored.labels):
            continue
        tallies[name] = Tally.of(scored.scores, scored.labels)
        auroc = measure_all(["auroc"], tallies[name], resamples=1)["auroc"]
        if auroc.value is None:
            undefined = auroc.undefined
        else:
            aurocs[name] = auroc.value
    best = max(aurocs, key=aurocs.__getitem__, default=None)
    return Conclusion(
        correctness=correctness,
        accuracy=fmean(labels),
        answers=len(labels),
        sure_by=sure_by,
        sure=sure,
        best=best,
        auroc=None if best is None else aurocs[best],
        risk=risk,
        answered=None if best is None else coverage_at(tallies[best], risk),
        undefined=undefined if best is None else "",
    )


def coverage_at(tally: Tally, risk: float) -> float:
    """Compute the largest share of answers above a threshold of which at most ``risk`` are wrong."""
    given: Floats = tally.counts[::-1].cumsum()
    wrong: Floats = tally.wrong[::-1].cumsum()
    # equal scores are given together or not at all
    allowed = given[wrong <= risk * given + 1e-9]
    return float(allowed.max(initial=0) / tally.n)


def _labels(assessment: Assessment, correctness: str) -> list[bool]:
    """Return the labels of the judged answers; the grades of all answers where a log has them."""
    kind, _, grader = correctness.partition(":")
    if kind != GRADED:
        return defined(assessment.judged.labels[correctness])
    grader = grader or next(iter(graded_by(assessment.questions)), "")
    verdicts = [right for question in assessment.questions for _, right in question.grades.get(grader, ())]
    return defined(verdicts)
