"""Say in sentences what estimators tell about correctness."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property

from selfreflect.stats import Estimate, defined
from selfreflect.text import counted
from selfreflect.uncertainty.assess import Assessment, Prediction
from selfreflect.uncertainty.estimators import ESTIMATORS
from selfreflect.uncertainty.measures import Measurement
from selfreflect.uncertainty.paired import auroc_difference

_CHANCE = 0.5


def best_first(rows: Sequence[Prediction]) -> list[Prediction]:
    """Sort estimators by AUROC; those without one come last, and baselines are left out."""
    methods = [row for row in rows if not row.baseline]
    areas = {row.estimator: _value(row.measures, "auroc") for row in methods}
    return sorted(methods, key=lambda row: (areas[row.estimator] is None, -(areas[row.estimator] or 0)))


class Headline:
    """What the best estimator says of one kind of correctness.

    Args:
        rows: estimators and baselines, at least one with answers.
    """

    def __init__(self, assessment: Assessment, correctness: str, rows: Sequence[Prediction]) -> None:
        self._assessment = assessment
        self._correctness = correctness
        self._rows = {row.estimator: row for row in rows}
        self._ranked = best_first(rows)

    def lead(self) -> str:
        """What was found, in one sentence: discrimination, calibration, and length alone."""
        if not self._ranked:
            return "No estimator was measured."
        best = self._ranked[0]
        if not best.n:
            return "No estimator has a value for a question whose right answer is known."
        area = best.measures.get("auroc")
        if area is None:
            return f"{counted(len(self._ranked), 'estimator')} on {counted(best.n, 'question')}."
        if area.value is None:
            return f"No estimator can be judged by AUROC: {area.undefined}."
        several = f" best of {len(self._ranked)} estimators" if len(self._ranked) > 1 else ""
        verb = f"tells correct from wrong answers{several}"
        if area.low is None or area.low <= _CHANCE:
            verb = f"{verb}, but not clearly better than guessing"
        parts = [f"{best.estimator} {verb}: AUROC {_with_interval(area)}", self._calibration_clause()]
        return f"{'; '.join(filter(None, [*parts, self._length_clause()]))}."

    def about(self) -> list[str]:
        """What the lead rests on."""
        labels = defined(self._assessment.judged.labels[self._correctness])
        share = sum(labels) / len(labels)
        sentences = [
            f"{share:.1%} of the judged answers to {counted(len(labels), 'question')} are correct "
            f"({self._correctness})."
        ]
        beyond = self._beyond_length
        if beyond is not None and beyond.low is not None:
            sentences.append(
                f"The AUROC of {self._ranked[0].estimator} minus that of length alone (shorter is surer) is "
                f"{_signed(beyond.mean)} (95% {_signed(beyond.low)} to {_signed(beyond.high)})."
            )
        if self._ranked:
            sentences.append(self._brier_sentence(self._ranked[0]))
        if len(self._ranked) > 1:
            sentences.append(
                "The best of several looks a little better than it is, because these questions chose it."
            )
        return list(filter(None, sentences))

    @cached_property
    def _beyond_length(self) -> Estimate | None:
        """AUROC of the best estimator minus that of length, on the questions with both."""
        if not self._ranked:
            return None
        answers = self._assessment.labelled_scores(self._ranked[0].estimator, self._correctness)
        scores, labels, lengths = answers.with_lengths()
        return auroc_difference(scores, -lengths, labels) if len(lengths) else None

    def _length_clause(self) -> str:
        if "length" not in self._rows or self._beyond_length is None:
            return ""
        area = _value(self._rows["length"].measures, "auroc")
        if area is None:
            return ""
        verdicts = {0: "not clearly different", 1: "clearly less", -1: "clearly more"}
        verdict = verdicts[self._beyond_length.side_of(0)]
        return f"length alone has an AUROC of {area:.3f}, which is {verdict}"

    def _calibration_clause(self) -> str:
        best = self._ranked[0]
        before, after = _value(best.measures, "ece_10_left"), _value(best.isotonic, "ece_10_left")
        if before is None and after is None:
            return ""
        calibrated = "" if after is None else f"{after:.3f} after calibration on other questions"
        if before is None:
            return f"its calibration error (ECE) is {calibrated}"
        clause = f"its calibration error (ECE) is {before:.3f} as it is"
        return f"{clause} and {calibrated}" if calibrated else clause

    def _brier_sentence(self, best: Prediction) -> str:
        """Compare the squared error with that of always saying the accuracy."""
        constant = self._rows.get("constant")
        base = None if constant is None else _value(constant.measures, "brier")
        if base is None or not best.n:
            return ""
        name = best.estimator
        before, after = best.measures.get("brier"), best.isotonic.get("brier")
        calibrated = "not known after calibration, which needs 5 questions and the calibrate extra"
        if after is not None and after.value is not None:
            calibrated = f"{_with_interval(after)} after calibration"
        end = f"always saying the accuracy has {base:.3f}."
        if not ESTIMATORS[name].is_probability:
            return f"{name} is no probability as it is; its Brier score is {calibrated}; {end}"
        if before is None or before.value is None:
            return f"The Brier score of {name} is {calibrated}; {end}"
        return f"The Brier score of {name} is {_with_interval(before)} as it is and {calibrated}; {end}"


def _value(measures: Mapping[str, Measurement], name: str) -> float | None:
    return measures[name].value if name in measures else None


def _with_interval(measurement: Measurement) -> str:
    interval = ""
    if measurement.low is not None and measurement.high is not None:
        interval = f" (95% {measurement.low:.3f} to {measurement.high:.3f})"
    return f"{measurement.value:.3f}{interval}"


def _signed(value: float | None) -> str:
    return "–" if value is None else f"{value:+.3f}".replace("-", "−")
