"""Assessment of estimators as predictors of correctness, on common questions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np

from selfreflect.errors import MissingExtraError, unknown_name
from selfreflect.records import Graded
from selfreflect.sources.names import plain_name
from selfreflect.stats import Floats, defined
from selfreflect.uncertainty.asking.asker import Asker
from selfreflect.uncertainty.asking.estimates import AskedEstimates, ask_estimates
from selfreflect.uncertainty.calibrators import FOLDS, cross_fit
from selfreflect.uncertainty.classes import ClassRule
from selfreflect.uncertainty.correctness import DEFAULT, GRADED, Correctness
from selfreflect.uncertainty.estimators import COLUMN, ESTIMATORS, choose_estimators, estimate
from selfreflect.uncertainty.features import SampleList, Samples
from selfreflect.uncertainty.measures import (
    MEASURES,
    LengthAudit,
    MeasuredValue,
    audit_length,
    faithfulness,
    measure_all,
)
from selfreflect.uncertainty.prediction import Tally
from selfreflect.uncertainty.question import AnsweredQuestion, NoValue, with_answers
from selfreflect.uncertainty.relations import SIMILARITIES, make_similarity, prepare, words

MEASURED = ("auroc", "aurc", "prr", "ece_10_left", "smooth_ece", "brier")
"""Default measures."""
CALIBRATED = ("brier", "ece_10_left")
"""Measures of confidences after isotonic calibration."""


@dataclass(frozen=True)
class Method:
    """Rules and models for classes, similarities and labels."""

    rule: ClassRule
    similarity: str = "jaccard"
    """Similarity for eigv, deg, ecc, kle and SAR."""
    correctness: tuple[str, ...] = ()
    asker: Asker | None = None
    """Model for estimators and the judge of correctness, which have no values without a model."""
    weights: tuple[float, ...] = ()
    """Intercept and weights of an estimator that is fitted on labels."""

    def __post_init__(self) -> None:
        if self.similarity not in SIMILARITIES:
            raise unknown_name("similarity", self.similarity, SIMILARITIES)


@dataclass(frozen=True)
class JudgedAnswers:
    """Each question's judged answer, its length and its correctness."""

    texts: list[str | None]
    lengths: list[float | None]
    """Recorded lengths of judged answers, or else numbers of words."""
    labels: dict[str, list[bool | None]] = field(default_factory=dict)
    """Labels by kind of correctness. A person's label applies to the answer that the record judges, and to
    answers with the same spelling."""


class RightCount(NamedTuple):
    """Number of labelled answers that are right by one kind of correctness."""

    right: int
    labelled: int
    wrong_with_gold: int
    """Number of answers called wrong despite containing a right answer."""


class ScoredAnswers(NamedTuple):
    """Answers with both a label and one estimator's value."""

    indices: list[int]
    """Indices of the questions."""
    scores: Floats
    """Scores, higher for more confidence; shape (n,), like ``labels``."""
    labels: Floats
    lengths: list[float | None]
    groups: tuple[str, ...] = ()
    """Groups of dependent answers; empty if all are independent."""

    def with_lengths(self) -> tuple[Floats, Floats, Floats]:
        """Select scores, labels and lengths of answers with known length."""
        indices = present(self.lengths)
        return self.scores[indices], self.labels[indices], np.array(defined(self.lengths), dtype=np.float64)

    def calibrated(self) -> Floats | str:
        """Compute cross-fitted isotonic confidences, or explain why that is impossible."""
        if self.groups and len(set(self.groups)) < FOLDS:
            return f"{len(set(self.groups))} questions are too few for a cross-fitted calibration"
        if len(self.scores) < FOLDS:
            return f"{len(self.scores)} labelled answers are too few for a cross-fitted calibration"
        try:
            return cross_fit("isotonic", self.scores, self.labels, groups=self.groups)
        except MissingExtraError as error:
            return str(error)


class Assessment:
    """Values of estimators and correctness labels for a set of questions.

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
        # a misspelled column is an error, not a file of missing values
        _check_columns(estimators, questions)
        similarity = make_similarity(method.similarity)
        relevance = similarity if method.similarity == "embedding" else None  # others know no meaning
        functions = [Correctness(name, method.asker) for name in method.correctness]
        method.rule.prepare(questions)
        # embedding all texts at once is much faster than question by question
        if any(name in ("eigv", "deg", "ecc", "kle", "sentence_sar", "sar") for name in table):
            prepare(similarity, (text for question in questions for text in question.answers))
        self.questions = questions
        self.method = method
        self.samples = SampleList(
            questions,
            lambda question: Samples(question, method.rule, similarity, relevance, method.weights),
        )
        texts: list[str | None] = []
        self.values: dict[str, list[float | NoValue]] = {name: [] for name in table}
        for samples in self.samples:
            texts.append(samples.judged_answer)
            for name, estimator in table.items():
                self.values[name].append(estimate(estimator, samples))
        self.model: str | None = None
        """Model that was asked; None if no model was."""
        estimates = AskedEstimates({})
        if method.asker is not None:
            self.model = method.asker.model
            names = [name for name, estimator in table.items() if estimator.needs == "model"]
            estimates = ask_estimates(names, questions, texts, method.rule, method.asker)
        self.by_replies = estimates.by_replies
        """Estimators with shares of responses as values, since the model gives no probabilities."""
        # those that ask a model have their values for all questions at once
        self.values |= {name: values for name, values in estimates.values.items() if values}
        self.judged = JudgedAnswers(texts, _lengths(questions, texts, texts))
        """Judged answers: each question's response, or else its modal answer."""
        self.greedy = self.judged
        """Greedy answers, if stored and needed by an estimator, or else the judged answers."""
        versions = [self.judged]
        # greedy answers need labels only if an estimator speaks of them
        if any(estimator.of_greedy for estimator in table.values()):
            pairs = zip(questions, texts, strict=True)
            greedy = [text if question.greedy is None else question.greedy for question, text in pairs]
            self.greedy = JudgedAnswers(greedy, _lengths(questions, greedy, texts))
            versions.append(self.greedy)
        # judged and greedy answers are labelled in one call, so that a model sees one batch
        for function in functions:
            all_texts = [text for version in versions for text in version.texts]
            labels = function.label_all([*questions] * len(versions), all_texts, texts * len(versions))
            for version in versions:
                version.labels[function.name] = labels[: len(questions)]
                labels = labels[len(questions) :]

    def answers_of(self, estimator: str) -> JudgedAnswers:
        """Return the answers that an estimator judges."""
        return self.greedy if ESTIMATORS[estimator].of_greedy else self.judged

    @cached_property
    def stated_faithfulness(self) -> tuple[float, int] | None:
        """cMFG of stated confidences against the modal share, with its number of questions; None if there are
        none."""
        pairs = []
        for samples in self.samples:
            confidence, share = (estimate(ESTIMATORS[name], samples) for name in ("stated", "modal_share"))
            if not isinstance(confidence, NoValue) and not isinstance(share, NoValue):
                pairs.append((confidence, share))
        if not pairs:
            return None
        stated_column, shares = zip(*pairs, strict=True)
        return faithfulness(stated_column, shares), len(pairs)

    def variant(self, estimator: str) -> str:
        """Name the variant that computed the estimator's values."""
        info = ESTIMATORS[estimator]
        return info.replies_variant if estimator in self.by_replies else info.variant

    def missing(self, estimator: str, *, of_answered: bool = False) -> dict[str, int]:
        """Count the questions without a value, by reason.

        Where messages of one kind differ, as those that quote a reply do, the first one stands for all.

        Args:
            of_answered: leave out questions with neither an answer nor a confidence, which a note of their
                file counts.
        """
        kinds: dict[str, Counter[str]] = {}
        for question, value in zip(self.questions, self.values[estimator], strict=True):
            is_answered = question.answers or question.confidence is not None
            if isinstance(value, NoValue) and (is_answered or not of_answered):
                kinds.setdefault(value.reason, Counter())[value.message] += 1
        counts = {}
        for messages in kinds.values():
            first = next(iter(messages))
            counts[first if len(messages) == 1 else f"for example, {first}"] = messages.total()
        return counts

    def groups_of(self, indices: Sequence[int]) -> tuple[str, ...]:
        """Name the groups of dependent answers; empty if all are independent.

        Args:
            indices: the questions of the answers.
        """
        groups = tuple(self.questions[index].group for index in indices)
        return groups if any(groups) else ()

    def labelled_scores(self, estimator: str, correctness: str, *, inputs: bool = False) -> ScoredAnswers:
        """Select the answers with both a value and a label.

        Args:
            inputs: whether the scores are what the weights of a fitted estimator multiply, shape (n, F).
        """
        info = ESTIMATORS[estimator]
        answers = self.answers_of(estimator)
        values: Sequence[float | Floats | NoValue] = self.values[estimator]
        if inputs and info.inputs is not None:
            values = list(map(info.inputs, self.samples))
        indices, scores, labels = [], [], []
        for index, (value, label) in enumerate(zip(values, answers.labels[correctness], strict=True)):
            if label is not None and not isinstance(value, NoValue):
                indices.append(index)
                scores.append(info.score(value) if isinstance(value, float) else value)
                labels.append(label)
        lengths = [answers.lengths[index] for index in indices]
        groups = self.groups_of(indices)
        return ScoredAnswers(indices, np.array(scores), np.array(labels, dtype=np.float64), lengths, groups)


def _check_columns(estimators: Sequence[str], questions: Sequence[AnsweredQuestion]) -> None:
    """Refuse a column estimator whose column no question has."""
    columns = {name: plain_name(name) for question in questions for name in question.columns}
    for name in estimators:
        column = name.removeprefix(COLUMN).partition(":")[0]
        if name.startswith(COLUMN) and plain_name(column) not in columns.values():
            raise unknown_name("column", column, columns)


def right_counts(assessment: Assessment) -> dict[str, RightCount]:
    """Count the right answers by each kind of correctness."""
    contains = Correctness(DEFAULT)
    counts = {}
    for name in assessment.judged.labels:
        right = labelled = hidden = 0
        for answer in labelled_answers(assessment, name):
            labelled += 1
            right += answer.right
            hidden += not answer.right and contains(answer.question, answer.text) is True
        counts[name] = RightCount(right, labelled, hidden)
    return counts


class LabelledAnswer(NamedTuple):
    """An answer that is right or wrong."""

    question: AnsweredQuestion
    text: str | None
    right: bool


def labelled_answers(assessment: Assessment, correctness: str) -> Iterator[LabelledAnswer]:
    """Yield the labelled judged answers, or all answers that a log grades."""
    kind, _, grader = correctness.partition(":")
    judged = assessment.judged
    pairs = zip(assessment.questions, judged.texts, judged.labels[correctness], strict=True)
    for question, judged_text, label in pairs:
        verdicts: Sequence[Graded] = [Graded(None, label)]
        if kind == GRADED:  # tasks in one file have graders of their own
            verdicts = question.grades.get(grader or next(iter(question.grades), ""), ())
        for text, right in verdicts:
            if right is not None:
                yield LabelledAnswer(question, judged_text if text is None else text, right)


def _lengths(
    questions: Sequence[AnsweredQuestion], texts: Sequence[str | None], judged: Sequence[str | None]
) -> list[float | None]:
    """Measure answers by their recorded length, or else in words."""
    lengths: list[float | None] = []
    for question, text, judged_text in zip(questions, texts, judged, strict=True):
        if question.length is not None and text == judged_text:
            lengths.append(question.length)
        else:
            lengths.append(None if text is None else float(len(words(text))))
    return lengths


def present(values: Sequence[object]) -> list[int]:
    """List the indices of values other than None."""
    return [index for index, value in enumerate(values) if value is not None]


@dataclass(frozen=True)
class Prediction:
    """Quality of an estimator or baseline as a predictor of one kind of correctness."""

    estimator: str
    correctness: str
    n: int
    """Number of questions with both value and label."""
    total: int
    measures: dict[str, MeasuredValue]
    isotonic: dict[str, MeasuredValue]
    """Measures after cross-fitted isotonic calibration; empty if that is impossible."""
    audit: LengthAudit | None = None
    baseline: bool = False


def predictions(
    assessment: Assessment, correctness: str, measures: Sequence[str] = MEASURED
) -> list[Prediction]:
    """Evaluate every estimator and two baselines: the base rate, and length alone."""
    results = []
    for name in assessment.values:
        answers = assessment.labelled_scores(name, correctness)
        results.append(_prediction(assessment, name, correctness, measures, answers))
    judged = assessment.judged
    indices = present(judged.labels[correctness])
    if not indices:
        return results
    labels = np.array(defined(judged.labels[correctness]), dtype=np.float64)
    unknown: list[float | None] = [None] * len(labels)
    groups = assessment.groups_of(indices)
    constant = ScoredAnswers(indices, np.full(len(labels), labels.mean()), labels, unknown, groups)
    results.append(_prediction(assessment, "constant", correctness, measures, constant))
    # not every answer has a length, so this baseline may have fewer answers
    base = constant._replace(lengths=[judged.lengths[index] for index in indices])
    _, labels, lengths = base.with_lengths()
    if len(lengths):
        indices_with_length = present(base.lengths)
        groups = tuple(groups[place] for place in indices_with_length) if groups else ()
        shorter = ScoredAnswers(indices_with_length, -lengths, labels, [None] * len(lengths), groups)
        results.append(_prediction(assessment, "length", correctness, measures, shorter))
    return results


def _prediction(
    assessment: Assessment,
    name: str,
    correctness: str,
    measures: Sequence[str],
    answers: ScoredAnswers,
) -> Prediction:
    _, scores, labels, *_ = answers
    baseline = name not in ESTIMATORS
    probability = ESTIMATORS[name].is_probability if not baseline else name == "constant"
    measurements: dict[str, MeasuredValue] = {}
    isotonic: dict[str, MeasuredValue] = {}
    if len(scores):
        # scores that are no probabilities have no calibration error
        usable = [m for m in measures if m not in MEASURES or probability or not MEASURES[m].probability]
        measurements = measure_all(usable, Tally.of(scores, labels, answers.groups))
    if name != "constant" and not isinstance(calibrated := answers.calibrated(), str):
        isotonic = measure_all(CALIBRATED, Tally.of(calibrated, labels, answers.groups))
    columns = answers.with_lengths()
    audit = audit_length(*columns) if len(columns[0]) > 2 else None
    total = len(assessment.questions)
    return Prediction(name, correctness, len(scores), total, measurements, isotonic, audit, baseline)


def subsample(question: AnsweredQuestion, size: int, seed: int = 0) -> AnsweredQuestion:
    """Keep ``size`` random samples in order, chosen by seed."""
    total = len(question.answers)
    indices = sorted(np.random.default_rng(seed).permutation(total)[:size].tolist())
    return with_answers(question, indices)
