"""Fitted calibrators on disk, with digests of the questions that they were fitted on."""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import date
from pathlib import Path
from typing import Literal

import msgspec
import numpy as np
from msgspec.structs import asdict

from selfreflect.errors import ConfigError, DataError, excerpt
from selfreflect.text import counted
from selfreflect.uncertainty.asking.estimates import BY_REPLIES
from selfreflect.uncertainty.assess import Assessment
from selfreflect.uncertainty.calibrators import CalibrationMethod, Calibrator, FitMethod, fit
from selfreflect.uncertainty.estimators import ESTIMATORS
from selfreflect.uncertainty.features import PER_RANK
from selfreflect.uncertainty.guarantee import (
    Drawn,
    Guarantee,
    KeepRule,
    NoSetRule,
    SetRule,
    ThresholdSearch,
    fit_sets,
    is_pilot,
    keep_threshold,
    right_shares,
    search_threshold,
)
from selfreflect.uncertainty.question import AnsweredQuestion, list_lengths, sample_sizes

FEWEST_LABELS = 50
"""Minimum number of labelled answers for a map; below it, the map's errors exceed its corrections."""


class CalibratorFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything needed to turn another question's score into the same kind of confidence."""

    format: Literal["selfreflect calibrator"] = "selfreflect calibrator"
    version: Literal[1] = 1
    estimator: str
    classes: str
    class_order: Literal["first"] = "first"
    similarity: str
    correctness: str
    method: CalibrationMethod
    x: tuple[float, ...]
    """Scores of :class:`Calibrator`, like ``y``."""
    y: tuple[float, ...]
    model: str = ""
    """Name of the model that was asked, if any."""
    token_probability: bool = False
    """Whether P(True) was a token's probability rather than a share of responses."""
    n: int
    """Number of labelled questions in the fit."""
    samples: tuple[int, ...]
    """Numbers of answers of these questions."""
    questions: tuple[str, ...]
    """Digests of the questions' ids and texts."""
    source: str | msgspec.UnsetType = msgspec.UNSET
    """Name of the questions' file or run directory."""
    answered_by: str | msgspec.UnsetType = msgspec.UNSET
    """Model that drew the answers, if all questions name the same."""
    fitted: date | msgspec.UnsetType = msgspec.UNSET
    """Date of the fit (UTC)."""
    ranks: int | msgspec.UnsetType = msgspec.UNSET
    """Number of likely tokens per token for an estimator that reads them, since other numbers change
    scores."""
    weights: tuple[float, ...] | msgspec.UnsetType = msgspec.UNSET
    """Intercept and weights of a fitted estimator, whose value is their log-odds."""
    guarantee: Guarantee | msgspec.UnsetType = msgspec.UNSET
    """Threshold above which the risk is bounded, if requested."""
    sets: SetRule | msgspec.UnsetType = msgspec.UNSET
    """Rule for sets of answers, if requested."""
    keep: KeepRule | msgspec.UnsetType = msgspec.UNSET
    """Rule for keeping claims, if requested."""
    reader: str | msgspec.UnsetType = msgspec.UNSET
    """Reader that decided which answers make a claim, for a calibrator of claims."""

    @property
    def calibrator(self) -> Calibrator:
        return Calibrator(self.method, self.x, self.y)

    @property
    def origin(self) -> str:
        """Source and date of the fit, if recorded."""
        parts = [counted(self.n, "label")]
        if self.source:
            parts.append(f"from {excerpt(self.source)}")
        if self.fitted:
            parts.append(f"on {self.fitted}")
        return " ".join(parts)

    def refuse_overlap(self, questions: Sequence[AnsweredQuestion]) -> None:
        """Raise DataError if the calibrator was fitted on one of these questions."""
        fit_digests = set(self.questions)
        for question in questions:
            # either the id or the text: a renamed question is the same one
            if not fit_digests.isdisjoint(digests([question])):
                count = sum(not fit_digests.isdisjoint(digests([candidate])) for candidate in questions)
                texts = {digests([candidate])[-1] for candidate in questions if candidate.text}
                has_new_texts = len(texts) == len(questions) and fit_digests.isdisjoint(texts)
                remedy = (
                    "If only the ids are the same, name a column with different ids: {column} id=NAME."
                    * has_new_texts
                )
                raise DataError(
                    f"{count:,} of {len(questions):,} questions were used to fit this calibrator, such as "
                    f"{excerpt(question.id)}: calibrated confidences would look better than they are. "
                    "Apply it to different questions (with different ids and texts)",
                    remedy=remedy,
                )

    def refuse_other_samples(self, questions: Sequence[AnsweredQuestion]) -> None:
        """Raise DataError if model, number of answers or of likely tokens differ from the fit.

        Questions that lack some answers are no reason, as long as others have them all.
        """
        lengths = list_lengths(questions)
        if self.ranks and lengths and lengths != [self.ranks]:
            raise DataError(
                f"the calibrator was fitted on {self.ranks} likely tokens at each position, but these "
                f"answers have {', '.join(map(str, lengths))}, and {self.estimator} depends on that number",
                code="other_ranks",
            )
        rules = [rule for rule in (self.guarantee, self.sets, self.keep) if rule]
        # earlier files name the model only in what they guarantee
        fitted_on = {model for model in (self.answered_by, *(rule.model for rule in rules)) if model}
        for model in sorted(fitted_on):
            if others := {question.model for question in questions} - {"", model}:
                raise DataError(
                    f"the calibrator was fitted on answers of {excerpt(model)}, but these are answers of "
                    f"{excerpt(min(others))}",
                    code="other_model",
                )
        for rule in rules:
            sizes = sample_sizes(questions)
            if rule.samples not in sizes:
                raise DataError(
                    f"the guarantee holds for questions with {counted(rule.samples, 'answer')}, but these "
                    f"have {', '.join(map(str, sizes))}, and shares depend on that number",
                    code="other_samples",
                )
            fitted = (rule.temperature, rule.top_p)
            sampled = {(question.temperature, question.top_p) for question in questions}
            # None is what a file does not record; it contradicts nothing
            if None not in fitted and sampled - {fitted, (None, None)}:
                raise DataError(
                    "the guarantee holds for answers drawn at temperature "
                    f"{rule.temperature:g} and top-p {rule.top_p:g}, but these were drawn with different "
                    "values",
                    code="other_sampling",
                )

    def refuse_other_variant(self, assessment: Assessment) -> None:
        """Raise ConfigError if the assessment uses another variant of the estimator."""
        is_token = self.estimator not in assessment.by_replies
        # a token's probability and a share of ten replies are other scores
        if self.estimator in BY_REPLIES and self.token_probability != is_token:
            raise ConfigError(
                f"the calibrator was fitted on a different variant of {self.estimator}; the model now gives: "
                f"{assessment.variant(self.estimator)}. Fit the calibrator again"
            )


def fit_file(
    assessment: Assessment,
    estimator: str,
    correctness: str,
    method: FitMethod,
    classes: str,
    *,
    weights: CalibratorFile | None = None,
) -> CalibratorFile:
    """Fit a calibrator on all questions with both value and label.

    Args:
        classes: the rule that the classes of the assessment were made by.
        weights: the file that the weights of the estimator are from; its questions count as fitted on, too.
    """
    answers = assessment.labelled_scores(estimator, correctness, inputs=method == "weights")
    curve = fit(method, answers.scores, answers.labels, answers.groups)
    weights_of_map = msgspec.UNSET if weights is None else weights.weights
    if method == "weights":
        # log-odds that a regression gives need no other map than the logistic curve
        weights_of_map, method, curve = curve.x, "platt", Calibrator("platt", (1.0, 0.0))
    questions = [assessment.questions[index] for index in answers.indices]
    models = {question.model for question in questions}
    return CalibratorFile(
        estimator=estimator,
        classes=classes,
        model=assessment.model or "",
        token_probability=estimator in BY_REPLIES and estimator not in assessment.by_replies,
        similarity=assessment.method.similarity,
        correctness=correctness,
        method=method,
        x=curve.x,
        y=curve.y,
        n=len(questions),
        samples=tuple(sample_sizes(questions)),
        questions=digests(questions) + (weights.questions if weights is not None else ()),
        ranks=_ranks(estimator, questions),
        answered_by=(models.pop() if len(models) == 1 else "") or msgspec.UNSET,
        weights=weights_of_map,
    )


def _ranks(estimator: str, questions: Sequence[AnsweredQuestion]) -> int | msgspec.UnsetType:
    """Find the number of likely tokens per token that an estimator reads; unset if it reads none.

    Raises:
        DataError: they are not equally many everywhere.
    """
    if ESTIMATORS[estimator].needs != "top_logprobs":
        return msgspec.UNSET
    lengths = list_lengths(questions)
    if len(lengths) > 1:
        raise DataError(
            f"questions differ in how many likely tokens are known ({', '.join(map(str, lengths))}), "
            f"and {estimator} depends on it",
            code="other_ranks",
        )
    return lengths[0] if lengths else msgspec.UNSET


class EvenSample(msgspec.Struct, frozen=True):
    """Distinct labelled questions with equally many answers, as a guarantee requires."""

    indices: tuple[int, ...]
    drawn: Drawn
    repeated: int
    """Number of questions left out because another has their text or group."""
    other_size: int
    """Number of questions left out because of another number of answers."""


def even_sample(questions: Sequence[AnsweredQuestion], indices: Iterable[int]) -> EvenSample:
    """Select the questions with the most common number of answers, each text once.

    Raises:
        DataError: there are none, or their answers are of several models or temperatures.
    """
    indices = list(indices)
    sizes = Counter(len(questions[index].answers) for index in indices)
    if not sizes:
        raise DataError("no question has both a value and a label", code="too_few_labels")
    # of sizes that are equally frequent the larger: its shares vary less
    samples = max(sizes, key=lambda size: (sizes[size], size))
    # the first by its digest, so that the order of the file decides nothing
    by_digest = sorted(indices, key=lambda index: digests([questions[index]]))
    distinct: dict[tuple[str, str], int] = {}
    for index in by_digest:
        question = questions[index]
        if len(question.answers) == samples:
            # questions without a text are told apart by their ids
            text = question.text or f"id\0{question.id}"
            # of questions that depend on each other one is taken, or they are no independent sample
            key = (question.group, "") if question.group else (text, question.context)
            distinct.setdefault(key, index)
    asked = [questions[index] for index in indices]
    drawn = {Drawn(samples=samples, model=q.model, temperature=q.temperature, top_p=q.top_p) for q in asked}
    if len(drawn) > 1:
        raise DataError(
            "the answers come from several models, or were sampled with several settings, but a guarantee "
            "covers only one",
            code="several_models",
        )
    return EvenSample(
        tuple(sorted(distinct.values())),
        drawn.pop(),
        sizes[samples] - len(distinct),
        len(indices) - sizes[samples],
    )


def find_guarantee(
    assessment: Assessment, estimator: str, correctness: str, risk: float, confidence: float
) -> tuple[ThresholdSearch, Guarantee | None, EvenSample]:
    """Find the threshold above which at most ``risk`` of the answers are wrong.

    Raises:
        ConfigError: a level is not between 0 and 1.
        DataError: there are too few labelled questions to divide, or their answers are of several models,
            or different numbers of likely tokens are known.
    """
    answers = assessment.labelled_scores(estimator, correctness)
    _ranks(estimator, [assessment.questions[index] for index in answers.indices])
    sample = even_sample(assessment.questions, answers.indices)
    position_of = {index: position for position, index in enumerate(answers.indices)}
    positions = [position_of[index] for index in sample.indices]
    scores, wrong = answers.scores[positions], answers.labels[positions] == 0
    names = [digests([assessment.questions[index]])[0] for index in sample.indices]
    pilot = is_pilot(names)
    search = search_threshold(scores[pilot], scores[~pilot], wrong[~pilot], risk, confidence)
    best = search.chosen
    if best is None:
        return search, None, sample
    guarantee = Guarantee(
        risk=risk,
        confidence=confidence,
        threshold=best.threshold,
        answered=best.answered,
        wrong=best.wrong,
        bound=best.bound,
        coverage=best.coverage,
        grid=search.grid,
        n=len(scores),
        **asdict(sample.drawn),
        pilot=tuple(np.array(names)[pilot].tolist()),
        scores=tuple(np.sort(scores).tolist()),
    )
    return search, guarantee, sample


def find_sets(assessment: Assessment, correctness: str, coverage: float) -> SetRule | NoSetRule:
    """Choose the rule for sets of answers that contain a right one. Raises the errors of :func:`fit_sets`."""
    shares = right_shares(assessment, correctness)
    if not shares:
        return fit_sets([], coverage)
    sample = even_sample(assessment.questions, shares)
    of_sample = [shares[index] for index in sample.indices]
    return fit_sets(of_sample, coverage, sample.drawn)


def find_kept(assessment: Assessment, estimator: str, correctness: str, share: float) -> KeepRule:
    """Choose a threshold above which all claims of a question are right; infinite if there is none.

    Raises:
        DataError: no question has labelled claims, or answers are of several models.
    """
    scored = assessment.labelled_scores(estimator, correctness)
    questions = [assessment.questions[index] for index in scored.indices]
    sample = even_sample(assessment.questions, scored.indices)
    places = [
        place for place, question in enumerate(questions) if len(question.answers) == sample.drawn.samples
    ]
    scores, labels = scored.scores[places], scored.labels[places]
    groups = [questions[place].group for place in places]
    threshold = keep_threshold(scores.tolist(), labels.tolist(), groups, share)
    if threshold == -math.inf:  # so many questions have no wrong claim that all are kept
        # every claim may be kept, but a file holds a finite threshold
        threshold = float(scores.min()) - 1
    return KeepRule(
        share=share,
        threshold=threshold,
        n=len(set(groups)),
        kept=float(np.mean(scores > threshold)),
        **asdict(sample.drawn),
    )


def digests(questions: Iterable[AnsweredQuestion]) -> tuple[str, ...]:
    """Hash questions by id and by text, without revealing either."""
    names = []
    for question in questions:
        names.append(f"id\0{question.id}")
        if question.text:
            names.append(f"text\0{question.text}")
    return tuple(hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:16] for name in names)


def read_calibrator(path: Path) -> CalibratorFile:
    """Read a calibrator file.

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
    if part := _unsound_part(saved):
        raise DataError(f"{name} is not a saved calibrator: its numbers do not form a {part}")
    return saved


def _unsound_part(saved: CalibratorFile) -> str:
    """Name the file's part with unusable numbers; empty if all are usable."""
    estimator = ESTIMATORS.get(saved.estimator)  # an unknown one is refused by its name
    if saved.sets and not (0 < saved.sets.share <= 1 and saved.sets.n > 0):
        return "sets of answers"
    if saved.keep and not (0 < saved.keep.share < 1 and math.isfinite(saved.keep.threshold)):
        return "kept claims"
    if saved.guarantee and not saved.guarantee.is_sound:
        return "guarantee"
    weights, has_weights = saved.weights or (), estimator is not None and estimator.inputs is not None
    is_whole = len(weights) == (PER_RANK * (saved.ranks or 0) + 1 if has_weights else 0)
    if saved.method == "isotonic":
        is_whole &= len(saved.x) == len(saved.y) > 0 and min(saved.y) >= 0 and max(saved.y) <= 1
        is_whole &= list(saved.x) == sorted(saved.x)
    elif saved.method == "platt":
        is_whole &= len(saved.x) == 2
    else:
        is_whole &= len(saved.x) == 1 and saved.x[0] > 0
    is_whole &= all(map(math.isfinite, (*saved.x, *saved.y, *weights)))
    return "" if is_whole else f"{saved.method} map"


def write_calibrator(saved: CalibratorFile) -> str:
    """Write a calibrator as text."""
    return msgspec.json.format(msgspec.json.encode(saved), indent=1).decode() + "\n"
