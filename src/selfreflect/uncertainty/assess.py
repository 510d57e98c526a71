"""Apply estimators and correctness functions to the same questions, and measure how well the one predicts the
other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np

from selfreflect.errors import ConfigError, DataError, MissingExtraError
from selfreflect.stats import Floats
from selfreflect.uncertainty.asking.asker import Asker
from selfreflect.uncertainty.asking.estimates import ask_estimates
from selfreflect.uncertainty.classes import ClassRule
from selfreflect.uncertainty.correctness import Correctness
from selfreflect.uncertainty.estimators import ESTIMATORS, choose_estimators, estimate
from selfreflect.uncertainty.features import Samples
from selfreflect.uncertainty.length_audit import LengthAudit, audit_length
from selfreflect.uncertainty.measures import MEASURES, Measurement, faithfulness, measure_all
from selfreflect.uncertainty.question import AnsweredQuestion, NoValue
from selfreflect.uncertainty.recalibrate import FOLDS, cross_fit
from selfreflect.uncertainty.similarity import SIMILARITIES, make_similarity, prepare, words
from selfreflect.uncertainty.tally import Tally

MEASURED = ("auroc", "aurc", "prr", "ece_10_left", "smooth_ece", "brier")
"""What is measured unless a user chooses."""
CALIBRATED = ("brier", "ece_10_left")
"""What is measured of confidences after isotonic calibration."""


Columns = tuple[Floats, Floats, Sequence[float | None]]
"""Scores, labels and lengths of the same answers."""


@dataclass(frozen=True)
class Method:
    """What classes, similarities and labels are made with."""

    rule: ClassRule
    similarity: str = "jaccard"
    """For eigv, deg, ecc and SAR."""
    correctness: tuple[str, ...] = ()
    asker: Asker | None = None
    """The model that estimators and the judge of correctness ask; without it they have no values."""

    def __post_init__(self) -> None:
        if self.similarity not in SIMILARITIES:
            raise ConfigError(f"no similarity {self.similarity!r}. Known: {', '.join(SIMILARITIES)}")


class Assessment:
    """Estimators' values and correctness labels of some questions.

    Raises:
        ConfigError: there is no such estimator or correctness function.
        MissingExtraError: a rule or similarity needs one.
        BackendError: the model that is asked has stopped working.
    """

    def __init__(
        self,
        questions: Sequence[AnsweredQuestion],
        estimators: Sequence[str],
        method: Method,
    ) -> None:
        table = choose_estimators(estimators)
        similarity = make_similarity(method.similarity)
        relevance = similarity if method.similarity == "embedding" else None  # others know no meaning
        functions = [Correctness(name, method.asker) for name in method.correctness]
        method.rule.prepare(questions)
        if any(name in ("eigv", "deg", "ecc", "sentence_sar", "sar") for name in table):
            prepare(similarity, (text for question in questions for text in question.answers))
        sample = partial(Samples, rule=method.rule, similarity=similarity, relevance=relevance)
        samples = list(map(sample, questions))
        counted: frozenset[str] = frozenset()
        names = [name for name, estimator in table.items() if estimator.needs == "model"]
        if names:
            judged = [one.judged_answer for one in samples]
            questions, counted = ask_estimates(names, questions, judged, method.rule, method.asker)
            samples = list(map(sample, questions))
        self.questions = questions
        self.method = method
        self.samples = samples
        self.model = None if method.asker is None else method.asker.model
        """The model that was asked; None without any."""
        self.counted = counted
        """Estimators whose values are shares of a model's replies, because it does not tell probabilities."""
        self.values = {}
        for name, estimator in table.items():
            self.values[name] = [estimate(estimator, one) for one in self.samples]
        self.labels: dict[str, list[bool | None]] = {}
        """Of the judged answers, by kind of correctness."""
        self._greedy_labels: dict[str, list[bool | None]] = {}
        has_greedy = any(estimator.of_greedy for estimator in table.values())
        for function in functions:
            if has_greedy:
                function.prepare([*questions, *questions], [*self.answers, *self._greedy])
                self._greedy_labels[function.name] = self._labelled(function, self._greedy)
            else:
                function.prepare(questions, self.answers)
            self.labels[function.name] = self._labelled(function, self.answers)

    def _labelled(self, function: Correctness, answers: Sequence[str | None]) -> list[bool | None]:
        labels = []
        for question, judged, answer in zip(self.questions, self.answers, answers, strict=True):
            labels.append(function(question, answer, judged))
        return labels

    @cached_property
    def answers(self) -> list[str | None]:
        """The answer of each question that is judged: its response, else its modal answer."""
        return [one.judged_answer for one in self.samples]

    @property
    def _greedy(self) -> list[str | None]:
        """The greedy answer of each question, where it is stored, else the judged one."""
        pairs = zip(self.questions, self.answers, strict=True)
        return [answer if question.greedy is None else question.greedy for question, answer in pairs]

    def answers_of(self, estimator: str) -> list[str | None]:
        """The answer of each question that an estimator speaks of."""
        return self._greedy if ESTIMATORS[estimator].of_greedy else self.answers

    def labels_of(self, estimator: str, correctness: str) -> list[bool | None]:
        """Whether the answers that an estimator speaks of are correct. A person's label is of the judged
        answer alone, and holds for a greedy one with the same spelling."""
        labels = self._greedy_labels if ESTIMATORS[estimator].of_greedy else self.labels
        return labels[correctness]

    @cached_property
    def lengths(self) -> list[float | None]:
        """The length of each judged answer: the record's, else its number of words."""
        return self._lengths(self.answers)

    def lengths_of(self, estimator: str, indices: Sequence[int] | None = None) -> list[float | None]:
        """The length of each answer that an estimator speaks of, or of some of them."""
        lengths = self._lengths(self._greedy) if ESTIMATORS[estimator].of_greedy else self.lengths
        return lengths if indices is None else [lengths[index] for index in indices]

    def _lengths(self, answers: Sequence[str | None]) -> list[float | None]:
        lengths: list[float | None] = []
        for question, answer, judged in zip(self.questions, answers, self.answers, strict=True):
            word_count = None if answer is None else float(len(words(answer)))
            is_known = question.length is not None and answer == judged
            lengths.append(question.length if is_known else word_count)
        return lengths

    @cached_property
    def stated_faithfulness(self) -> tuple[float, int] | None:
        """cMFG of stated confidences against the modal share, and the number of questions with both; None
        without any."""
        pairs = []
        for one in self.samples:
            confidence, share = (estimate(ESTIMATORS[name], one) for name in ("stated", "modal_share"))
            if not isinstance(confidence, NoValue) and not isinstance(share, NoValue):
                pairs.append((confidence, share))
        if not pairs:
            return None
        stated_column, shares = zip(*pairs, strict=True)
        return faithfulness(stated_column, shares), len(pairs)

    def variant(self, estimator: str) -> str:
        """How the estimator's values were computed."""
        info = ESTIMATORS[estimator]
        return info.counted if estimator in self.counted else info.variant

    def missing(self, estimator: str) -> dict[str, int]:
        """How many questions lack a value, by reason. Where messages of one kind differ, as those that quote
        a reply do, the first one stands for all."""
        kinds: dict[str, Counter[str]] = {}
        for value in self.values[estimator]:
            if isinstance(value, NoValue):
                kinds.setdefault(value.reason, Counter())[value.message] += 1
        counts = {}
        for messages in kinds.values():
            first = next(iter(messages))
            counts[first if len(messages) == 1 else f"for example, {first}"] = messages.total()
        return counts

    def labelled_scores(self, estimator: str, correctness: str) -> tuple[list[int], Floats, Floats]:
        """The questions with a value and a label: their indices, scores and labels."""
        indices, scores, labels = [], [], []
        pairs = zip(self.values[estimator], self.labels_of(estimator, correctness), strict=True)
        for index, (value, label) in enumerate(pairs):
            if label is not None and not isinstance(value, NoValue):
                indices.append(index)
                scores.append(ESTIMATORS[estimator].score(value))
                labels.append(float(label))
        return indices, np.array(scores), np.array(labels)


def present(values: Sequence[object]) -> list[int]:
    """The places of the values that are not None."""
    return [place for place, value in enumerate(values) if value is not None]


@dataclass(frozen=True)
class Prediction:
    """How well an estimator, or a baseline, predicts one kind of correctness."""

    estimator: str
    correctness: str
    n: int
    """Questions with a value and a label."""
    total: int
    measures: dict[str, Measurement]
    isotonic: dict[str, Measurement]
    """The same scores after cross-fitted isotonic calibration; empty if that is impossible."""
    audit: LengthAudit | None = None
    baseline: bool = False
    of: str = ""
    """The estimator that the isotonic baseline calibrates."""


def predictions(
    assessment: Assessment, correctness: str, measures: Sequence[str] = MEASURED
) -> list[Prediction]:
    """Measure every estimator, and three baselines: the constant base rate, the first estimator after
    cross-fitted isotonic calibration, and length alone (shorter is surer)."""
    results = []
    for name in assessment.values:
        indices, scores, labels = assessment.labelled_scores(name, correctness)
        lengths = assessment.lengths_of(name, indices)
        results.append(_prediction(assessment, name, correctness, measures, (scores, labels, lengths)))
    indices = present(assessment.labels[correctness])
    if not indices:
        return results
    labels = np.array([float(bool(assessment.labels[correctness][i])) for i in indices])
    constant = np.full(len(labels), labels.mean())
    columns: Columns = (constant, labels, [None] * len(labels))
    results.append(_prediction(assessment, "constant", correctness, measures, columns))
    results.append(_isotonic_baseline(assessment, correctness, measures))
    lengths = [assessment.lengths[index] for index in indices]
    places = present(lengths)
    if places:
        shorter = -np.array([lengths[place] for place in places], dtype=np.float64)
        columns = (shorter, labels[places], [None] * len(places))
        results.append(_prediction(assessment, "length", correctness, measures, columns))
    return results


def _isotonic_baseline(assessment: Assessment, correctness: str, measures: Sequence[str]) -> Prediction:
    """Measure the first estimator that has enough values, calibrated on the other folds; undefined where that
    is impossible."""
    for name in assessment.values:
        indices, scores, labels = assessment.labelled_scores(name, correctness)
        if len(labels) < FOLDS:
            continue
        try:
            calibrated = cross_fit("isotonic", scores, labels)
        except MissingExtraError as error:
            return _without_isotonic(assessment, name, correctness, measures, str(error))
        columns = (calibrated, labels, assessment.lengths_of(name, indices))
        return replace(_prediction(assessment, "isotonic", correctness, measures, columns), of=name)
    why = f"isotonic calibration needs {FOLDS} answers with a value and a label"
    return _without_isotonic(assessment, next(iter(assessment.values), ""), correctness, measures, why)


def _without_isotonic(
    assessment: Assessment, name: str, correctness: str, measures: Sequence[str], why: str
) -> Prediction:
    nothing = {measure: Measurement(None, None, None, 0, 0, why) for measure in measures}
    total = len(assessment.questions)
    return Prediction("isotonic", correctness, 0, total, nothing, {}, None, baseline=True, of=name)


PROBABILITIES = ("constant", "isotonic")
"""Baselines that are confidences."""


def _prediction(
    assessment: Assessment,
    name: str,
    correctness: str,
    measures: Sequence[str],
    columns: Columns,
) -> Prediction:
    scores, labels, lengths = columns
    baseline = name not in ESTIMATORS
    probability = name in PROBABILITIES or (not baseline and ESTIMATORS[name].is_probability)
    measurements: dict[str, Measurement] = {}
    isotonic: dict[str, Measurement] = {}
    if len(scores):
        usable = [m for m in measures if m not in MEASURES or probability or not MEASURES[m].probability]
        measurements = measure_all(usable, Tally.of(scores, labels))
    if len(scores) >= FOLDS and name not in PROBABILITIES:
        try:
            isotonic = measure_all(CALIBRATED, Tally.of(cross_fit("isotonic", scores, labels), labels))
        except MissingExtraError:
            isotonic = {}
    audit = None
    places = present(lengths)
    if len(places) > 2:
        audit = audit_length(scores[places], labels[places], [lengths[place] or 0.0 for place in places])
    total = len(assessment.questions)
    return Prediction(name, correctness, len(scores), total, measurements, isotonic, audit, baseline)


@dataclass(frozen=True)
class SizedCalibration:
    """Whether the modal class's share is calibrated with M samples: semantic calibration (Nakkiran et al.
    2025, arXiv 2511.04869)."""

    samples: int
    n: int
    accuracy: float
    share: float
    """Mean share of the modal class; biased upwards for few samples."""
    split_half: float | None
    """Mean split-half share, which is not. None for one sample."""
    measures: dict[str, Measurement]
    """Of the share."""
    split_half_ece: Measurement | None


def calibration_by_size(
    questions: Sequence[AnsweredQuestion], sizes: Sequence[int], method: Method, correctness: str
) -> list[SizedCalibration]:
    """Repeat the assessment with M of the samples of each question that has so many and a label.

    Raises:
        DataError: no question has so many samples and a label.
    """
    results = []
    for size in sizes:
        samples = [subsample(question, size) for question in questions if len(question.answers) >= size]
        own_method = replace(method, correctness=(correctness,))
        assessment = Assessment(samples, ["modal_share", "split_half"], own_method)
        (name,) = assessment.labels
        _, shares, labels = assessment.labelled_scores("modal_share", name)
        if not len(labels):
            raise DataError(f"no question has {size} answers and a label of correctness")
        _, split, _ = assessment.labelled_scores("split_half", name)
        measurements = measure_all(("ece_10_left", "smooth_ece", "brier", "auroc"), Tally.of(shares, labels))
        result = SizedCalibration(
            samples=size,
            n=len(labels),
            accuracy=float(labels.mean()),
            share=float(shares.mean()),
            split_half=float(split.mean()) if len(split) else None,
            measures=measurements,
            split_half_ece=measure_all(["ece_10_left"], Tally.of(split, labels))["ece_10_left"]
            if len(split)
            else None,
        )
        results.append(result)
    return results


def subsample(question: AnsweredQuestion, size: int, seed: int = 0) -> AnsweredQuestion:
    """A random ``size`` of the samples, in their order; which ones depends on the seed and the number of
    samples."""
    total = len(question.answers)
    places = sorted(np.random.default_rng(seed).permutation(total)[:size].tolist())
    columns: dict[str, Any] = {}
    for name in ("answers", "logprobs", "tokens", "self_certainty"):
        column = getattr(question, name)
        if column is not None:
            columns[name] = tuple(column[place] for place in places)
    return replace(question, **columns)
