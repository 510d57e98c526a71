"""Command ``selfreflect calibrate``: confidences, a guaranteed threshold and sets of answers."""

from __future__ import annotations

import dataclasses
import math
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from msgspec import Struct, to_builtins
from msgspec.structs import asdict, replace

from selfreflect.cli import options as o
from selfreflect.cli.answered import (
    ASKING,
    AskOptions,
    ComparisonOptions,
    FieldOptions,
    StructureOptions,
    by_named_gold,
    further_fields,
    labelled,
    open_method,
    read_parts,
    written_options,
)
from selfreflect.cli.console import check_file, emit, print_notes_first, print_table, say, write_file
from selfreflect.cli.options import Overrides, argument, takes
from selfreflect.errors import ConfigError, DataError, excerpt
from selfreflect.flags import POSITIVE, Flag
from selfreflect.text import counted, exact_percent, listed, name_list, percent
from selfreflect.uncertainty.question import AnsweredQuestion, NoValue, sample_sizes

if TYPE_CHECKING:
    from selfreflect.stats import Floats
    from selfreflect.uncertainty.assess import Assessment, ScoredAnswers
    from selfreflect.uncertainty.calibrator_file import CalibratorFile
    from selfreflect.uncertainty.calibrators import FitMethod, MapQuality
    from selfreflect.uncertainty.guarantee import Guarantee, KeepRule, SetRule

SURE = 0.95
"""Default confidence of a guarantee."""


class CalibratorOptions(Struct, frozen=True, kw_only=True):
    """Options for the estimator, its map, and files of calibrators."""

    estimator: Annotated[
        str | None,
        Flag(
            "--estimator NAME",
            "Estimator to calibrate; wepr also fits its weights.",
            default="modal_share; stated, if no question has two answers; support of claims",
        ),
    ] = None
    method: Annotated[
        Literal["isotonic", "platt", "temperature"] | None,
        Flag(
            "--method",
            "isotonic (any rising map), platt (a logistic curve) or temperature (only for confidences in "
            "[0, 1]). The first two need the calibrate extra.",
            default="isotonic",
        ),
    ] = None
    weights: Annotated[
        Path | None,
        Flag(
            "--weights FILE",
            "Read the weights of wepr from this calibrator. It must be fitted on other questions.",
        ),
    ] = None
    save: Annotated[
        Path | None,
        Flag("--save FILE", "Fit on all labelled questions, at least 50, and save the calibrator."),
    ] = None
    apply: Annotated[
        Path | None,
        Flag("--apply FILE", "Apply a saved calibrator to questions that it was not fitted on."),
    ] = None
    num_answers: Annotated[
        int | None,
        Flag(
            "--num-answers N",
            "Use N answers of each question, drawn at random. Use as many as you will sample later.",
            range=POSITIVE,
        ),
    ] = None


class PromiseOptions(Struct, frozen=True, kw_only=True):
    """Options for the guarantee that shown answers must meet."""

    risk: Annotated[
        float | None,
        Flag(
            "--risk RISK",
            "Find a threshold for this share of errors: at most this share of the answers above it is "
            "wrong, as in 0.05. A quarter of the labelled questions sets the thresholds to try; exact "
            "tests on the others choose among them.",
        ),
    ] = None
    confidence: Annotated[
        float | None,
        Flag("--confidence SHARE", "How sure --risk is to hold, over samples of labels.", default="0.95"),
    ] = None
    set: Annotated[
        float | None,
        Flag(
            "--set COVERAGE",
            "Find sets of answers that contain a right one for this share of questions, as in 0.9. A set has "
            "every class of answers whose share is large enough.",
        ),
    ] = None
    keep: Annotated[
        float | None,
        Flag(
            "--keep SHARE",
            "Find the score above which claims may be kept: for this share of questions, as in 0.9, all kept "
            "claims are right. Needs --claims.",
        ),
    ] = None


@takes("answers", only=("--revision", "--base-url", "--extra-body"), config_file=True, execution=ASKING)
def calibrate_command(
    *,
    source: str = argument(
        "RUN|FILE", "Questions with answers, as `selfreflect uncertainty` reads them.", ...
    ),
    options: CalibratorOptions,
    promise: PromiseOptions,
    comparison: ComparisonOptions,
    asking: AskOptions,
    overrides: Overrides,
    columns: FieldOptions,
    structure: StructureOptions,
    json: o.Json = False,
) -> None:
    """Calibrate an estimator, and find which answers may be shown.

    Shows calibration before and after, cross-fitted: each confidence comes from a map fitted on the other
    four fifths of the questions. --save fits on all questions, --apply reads such a file.

    --risk 0.05 finds the threshold above which at most 5 % of the answers are wrong, with --confidence over
    samples of labelled questions, or says how many more labels are needed. --set 0.9 finds sets of answers
    that contain a right one nine times out of ten, or says why no set can. Both are saved, too. For --risk,
    the estimator wepr needs --weights fitted on other questions.
    """
    if options.apply is not None:
        defaults = CalibratorOptions(apply=options.apply), ComparisonOptions(classes=comparison.classes)
        # the file has its own values for these, so that others would be ignored in silence
        if (options, comparison, promise) != (*defaults, PromiseOptions()):
            raise ConfigError(
                "a saved calibrator already fixes the estimator and its settings",
                code="usage",
                remedy="With {apply} give only {gold}, {column} and models.",
            )
        saved = _read_saved(options.apply, comparison.classes)
        parts = read_parts(source, columns, structure, asking, overrides)
        if saved.reader or parts.reader:
            from selfreflect.uncertainty.claims.labelled import refuse_other_reader

            refuse_other_reader(saved, parts.reader, options.apply)
        _apply(source, parts.questions, saved, parts.without_reader(asking), overrides, json)
        return
    from selfreflect.uncertainty.assess import Assessment
    from selfreflect.uncertainty.classes import DEFAULT

    _check_promise(promise, structure)
    if options.save is not None:
        check_file(options.save, source)
    parts = read_parts(source, columns, structure, asking, overrides, options.num_answers)
    questions, reader, asking = parts.questions, parts.reader, parts.without_reader(asking)
    name = _estimator(options.estimator, questions, reader)
    weights = _weights(options, promise, name, questions)
    if options.save is not None:
        _require_labels(len(questions), promised=_labels_promised(promise))  # before a model is asked
    # not what the asked model says: the file must do without it
    comparison = replace(comparison, classes=comparison.classes or DEFAULT)
    comparison = by_named_gold(questions, comparison, columns)
    with open_method(source, questions, [name], comparison, asking, overrides) as method:
        method = dataclasses.replace(method, weights=(weights.weights or ()) if weights else ())
        assessment = Assessment(questions, [name], method)
    fitting = _Fitting(assessment, name, _only_label(assessment), options, weights, reader, columns, json)
    fitting.say_missing()
    # a threshold or sets need no map: all answers may be right, or too few for folds
    has_map = fitting.has_both_labels or (promise.risk, promise.set, promise.keep) == (None, None, None)
    if has_map and json:
        fitting.show_map()
    guarantee = None if promise.risk is None else fitting.guarantee(promise.risk, promise.confidence)
    rule = None if promise.set is None else fitting.sets(promise.set)
    keep = None if promise.keep is None else fitting.keep(promise.keep)
    if has_map and not json:  # readers want what may be shown first
        fitting.show_map()
    if options.save is not None:
        fitting.write(options.save, source, comparison, guarantee, rule, keep)


def _weights(
    options: CalibratorOptions, promise: PromiseOptions, name: str, questions: Sequence[AnsweredQuestion]
) -> CalibratorFile | None:
    """Read a fitted estimator's weights; None if they are fitted here or not needed.

    Raises:
        ConfigError: an option does not fit the estimator.
        DataError: the file holds no weights, or they were fitted on these questions.
    """
    from selfreflect.uncertainty.calibrator_file import read_calibrator
    from selfreflect.uncertainty.estimators import choose_estimators

    has_weights = choose_estimators([name])[name].inputs is not None
    if options.weights is None:
        if has_weights and options.method is not None:
            raise ConfigError(
                f"{name} cannot be calibrated by another method, because the regression that fits its "
                "weights also calibrates it",
                code="usage",
                remedy="Leave out {method}.",
            )
        if has_weights and promise.risk is not None:
            raise ConfigError(
                f"the weights of {name} are fitted here, and a threshold for a risk must be tested on "
                "questions that no weight was fitted on",
                code="usage",
                remedy="Save the weights with {save} first. Then run this command on other questions "
                "with {weights}.",
            )
        return None
    saved = read_calibrator(options.weights)
    if not has_weights or saved.estimator != name:
        raise ConfigError(
            f"{excerpt(str(options.weights), 200)} contains no weights for {name}", code="usage"
        )
    saved.refuse_overlap(questions)
    saved.refuse_other_samples(questions)
    return saved


def _estimator(name: str | None, questions: Sequence[AnsweredQuestion], reader: str) -> str:
    """Choose the estimator. Raises ConfigError for claims if it does not apply to them."""
    if reader:
        from selfreflect.uncertainty.claims.labelled import SUPPORT, check_estimators

        check_estimators([name or SUPPORT])
        return name or SUPPORT
    if name:
        return name
    # the share of a single answer says nothing
    has_several = any(len(question.answers) > 1 for question in questions)
    is_stated = any(question.confidence is not None for question in questions)
    if is_stated and not has_several:
        return "stated"
    return "modal_share" if any(question.answers for question in questions) else "stated"


def _check_promise(promise: PromiseOptions, structure: StructureOptions) -> None:
    """Refuse impossible levels before reading files or asking a model."""
    from selfreflect.uncertainty.guarantee import check_levels

    if promise.confidence is not None and promise.risk is None:
        raise ConfigError(
            "a confidence is given without the risk that it belongs to",
            code="usage",
            remedy="Add {risk}, such as 0.05.",
        )
    if promise.keep is not None and structure.claims is None:
        raise ConfigError(
            "a threshold for claims needs a reader of claims",
            code="usage",
            remedy="Add {claims} with a reader, such as words.",
        )
    check_levels(**{name: level for name, level in asdict(promise).items() if level is not None})


@dataclass(frozen=True)
class _Fitting:
    """An estimator on labelled questions, from which a calibrator is fitted and reported."""

    assessment: Assessment
    estimator: str
    correctness: str
    options: CalibratorOptions
    weights: CalibratorFile | None
    reader: str
    """Reader of claims; empty for other questions."""
    columns: FieldOptions
    json: bool

    @property
    def method(self) -> FitMethod:
        """Name of the map to fit; ``weights`` if the estimator still needs weights."""
        from selfreflect.uncertainty.estimators import ESTIMATORS

        if ESTIMATORS[self.estimator].inputs is not None and self.weights is None:
            return "weights"
        return self.options.method or "isotonic"

    @cached_property
    def answers(self) -> ScoredAnswers:
        """Scores and labels that the map is fitted on."""
        inputs = self.method == "weights"
        return self.assessment.labelled_scores(self.estimator, self.correctness, inputs=inputs)

    @property
    def has_both_labels(self) -> bool:
        """Whether right and wrong answers both exist, and suffice for cross-fitting."""
        from selfreflect.uncertainty.calibrators import FOLDS

        labels = self.answers.labels.tolist()
        return len(set(labels)) == 2 and len(labels) >= FOLDS

    def say_missing(self) -> None:
        """Report the number of questions without a score, by reason."""
        from selfreflect.uncertainty.estimators import ESTIMATORS

        inputs = ESTIMATORS[self.estimator].inputs
        if self.method != "weights" or inputs is None:
            _say_missing(self.assessment.missing(self.estimator, of_answered=True))
            return
        values = map(inputs, self.assessment.samples)
        _say_missing(Counter(value.message for value in values if isinstance(value, NoValue)))

    def show_map(self) -> None:
        """Print cross-fitted confidences, with a warning if leaving out the map is better."""
        from selfreflect.uncertainty.calibrators import cross_fit, map_quality
        from selfreflect.uncertainty.estimators import ESTIMATORS

        scores, labels, groups = self.answers.scores, self.answers.labels, self.answers.groups
        _require_both_labels(labels, self.estimator)
        calibrated = cross_fit(self.method, scores, labels, groups=groups)
        how = f"{self.method}, cross-fitted"
        indices = self.answers.indices
        _show(self.assessment, self.estimator, self.correctness, indices, calibrated, how, self.json)
        is_probability = ESTIMATORS[self.estimator].is_probability
        _say_better(map_quality(self.method, scores, labels, probability=is_probability, groups=groups))

    def guarantee(self, risk: float, confidence: float | None) -> Guarantee | None:
        """Find and report the threshold that guarantees the risk.

        Raises:
            DataError: no threshold qualifies, and one was to be saved.
        """
        from selfreflect.uncertainty.calibrator_file import find_guarantee
        from selfreflect.uncertainty.tables import guarantee_table

        confidence = SURE if confidence is None else confidence
        search, guarantee, sample = find_guarantee(
            self.assessment, self.estimator, self.correctness, risk, confidence
        )
        for count, why in (
            (sample.repeated, "has the same text as another question, or is a field of the same answers"),
            (sample.other_size, "has a different number of answers"),
        ):
            if count:
                say(f"{counted(count, 'question')} left out of the guarantee: each {why}.")
        if self.json:
            first = search.tests[0]
            emit(
                {
                    "guarantee": None if guarantee is None else to_builtins(guarantee),
                    "estimator": self.estimator,
                    "risk": search.risk,
                    "confidence": search.confidence,
                    "n": search.pilot + search.tested,
                    "pilot": search.pilot,
                    "tests": [test._asdict() for test in search.tests],
                    "smallest_risk": first.bound if guarantee is None and first.bound < 1 else None,
                    "labels_needed": search.labels_needed if guarantee is None else 0,
                }
            )
        else:
            print_notes_first(guarantee_table(search, self.estimator))
        if guarantee is None and self.options.save is not None:
            raise DataError(
                f"no threshold of {self.estimator} keeps the share of wrong answers within {search.risk:g} "
                f"with confidence {search.confidence:.12g}; nothing was saved",
                code="no_threshold",
                remedy=f"Label at least about {search.labels_needed:,} more questions, and more if some of "
                "those shown are wrong, or choose a higher {risk} and labels of other questions.",
                labels_needed=search.labels_needed,
            )
        return guarantee

    def sets(self, coverage: float) -> SetRule | None:
        """Find and report the rule for sets of answers.

        Raises:
            DataError: there is none, and it was to be saved.
        """
        from selfreflect.uncertainty.calibrator_file import find_sets
        from selfreflect.uncertainty.guarantee import NoSetRule
        from selfreflect.uncertainty.tables import set_table

        rule = find_sets(self.assessment, self.correctness, coverage)
        if self.json:
            rule_json = None if isinstance(rule, NoSetRule) else to_builtins(rule)
            facts = {"coverage": coverage, "n": rule.n, "unsampled": rule.unsampled}
            emit({"sets": rule_json, **facts, "ceiling": 1 - rule.unsampled / rule.n})
        else:
            print_table(set_table(rule, self.assessment, self.correctness))
        if not isinstance(rule, NoSetRule):
            return rule
        if self.options.save is not None and rule.n < rule.fewest:
            raise DataError(
                "there are too few labels for sets of answers; nothing was saved",
                code="too_few_labels",
                remedy=f"Label at least {rule.fewest:,} questions, or give a lower {{set}}.",
                labels_needed=rule.fewest,
            )
        if self.options.save is not None:
            raise DataError(
                f"the right answer was never sampled for {rule.unsampled} of {rule.n} questions, so sets "
                f"cannot be guaranteed to contain a right answer for {exact_percent(coverage)} of questions; "
                "nothing was saved",
                code="no_set",
                remedy="Draw more answers to each question, or give a lower {set}.",
                ceiling=rule.ceiling,
            )
        return None

    def keep(self, share: float) -> KeepRule | None:
        """Find and report the rule that keeps claims.

        Raises:
            DataError: none is, and the rule was to be saved.
        """
        from selfreflect.uncertainty.calibrator_file import find_kept
        from selfreflect.uncertainty.estimators import ESTIMATORS

        rule = find_kept(self.assessment, self.estimator, self.correctness, share)
        keeps = math.isfinite(rule.threshold) and rule.kept > 0
        # the score of an estimator that falls with confidence is its negative value
        is_rising = ESTIMATORS[self.estimator].confidence
        limit = f"above {rule.threshold:g}" if is_rising else f"below {-rule.threshold:g}"
        if self.json:
            facts = {"share": share, "n": rule.n, "kept": rule.kept}
            emit({"keep": to_builtins(rule) if keeps else None, **facts})
        elif keeps:
            say(
                f"Keep claims with {self.estimator} {limit}, {percent(rule.kept)} of the "
                f"labelled claims: for {exact_percent(share)} of questions all kept claims are right "
                f"({counted(rule.n, 'labelled question')})."
            )
        else:
            say(
                f"No claim can be kept if all have to be right for {exact_percent(share)} of questions: "
                f"wrong claims have the {'highest' if is_rising else 'lowest'} {self.estimator}, or "
                f"{counted(rule.n, 'labelled question')} are too few."
            )
        if keeps:
            return rule
        if self.options.save is not None:
            raise DataError(
                "no claim can be kept; nothing was saved",
                code="no_threshold",
                remedy="Give a lower {keep}, or label claims of more questions.",
            )
        return None

    def write(
        self,
        path: Path,
        source: str,
        comparison: ComparisonOptions,
        guarantee: Guarantee | None,
        rule: SetRule | None,
        keep: KeepRule | None,
    ) -> None:
        """Fit the calibrator on all labelled questions, and write its file."""
        from selfreflect.uncertainty.calibrator_file import fit_file, write_calibrator

        answers = self.answers
        # a weight for each input, and one more
        _require_labels(len(answers.labels), answers.scores.shape[1] + 1 if self.method == "weights" else 0)
        classes = comparison.classes or ""
        calibrator = fit_file(
            self.assessment, self.estimator, self.correctness, self.method, classes, weights=self.weights
        )
        # names of files may hold bytes that are no text
        name = Path(source).resolve().name.encode("utf-8", "replace").decode()
        facts = {"reader": self.reader, "guarantee": guarantee, "sets": rule, "keep": keep}
        facts = {key: value for key, value in facts.items() if value}
        calibrator = replace(calibrator, source=name, fitted=datetime.now(UTC).date(), **facts)
        write_file(path, write_calibrator(calibrator))
        use = "claims FILE --calibrator" if self.reader else "calibrate FILE --apply"
        # other questions have no labels yet, and a named column that is missing is an error
        options = written_options(self.columns, is_labelled=False)
        say(f"Use it on other questions: selfreflect {use} {shlex.quote(str(path))}{options}")


def _labels_promised(promise: PromiseOptions) -> int:
    """Compute the minimum number of labels that the guarantee needs."""
    from selfreflect.uncertainty.guarantee import fewest_labels

    if promise.risk is None:
        return 0
    return fewest_labels(promise.risk, SURE if promise.confidence is None else promise.confidence)


def _require_labels(count: int, weights: int = 0, promised: int = 0) -> None:
    from selfreflect.uncertainty.calibrator_file import FEWEST_LABELS
    from selfreflect.uncertainty.calibrators import ANSWERS_PER_WEIGHT

    fewest = max(FEWEST_LABELS, weights * ANSWERS_PER_WEIGHT)
    if count < fewest:
        raise DataError(
            f"{counted(count, 'labelled answer')} are too few: a map fitted on fewer than {fewest} may make "
            "confidences worse, so it was not saved",
            code="too_few_labels",
            remedy=f"Label at least {max(fewest, promised):,} questions; hundreds are better.",
            labels_needed=max(fewest, promised),
        )


def _say_better(quality: MapQuality) -> None:
    """Warn about each alternative with a lower Brier score than the fitted map."""
    for name, score in quality.better.items():
        say(
            f"Warning: this map is worse than {_ALTERNATIVES[name]}: Brier score {quality.calibrated:.3f} "
            f"against {score:.3f}, on questions that it was not fitted on."
        )


_ALTERNATIVES = {
    "constant": "always stating the accuracy of the other questions",
    "unchanged": "no map",
}
"""Alternatives to a map, by field of its quality."""


def _require_both_labels(labels: Floats, estimator: str) -> None:
    if not len(labels):
        raise DataError(f"no question has both a value of {estimator} and a label: there is nothing to fit")
    if len(set(labels.tolist())) < 2:
        all_are = "correct" if labels[0] else "wrong"
        raise DataError(
            f"all judged answers of the {counted(len(labels), 'question')} with a value of {estimator} and a "
            f"label are {all_are}: there is nothing to fit"
        )


def _read_saved(path: Path, classes: str | None) -> CalibratorFile:
    """Read a saved calibrator, checking the class rule if the user names one."""
    from selfreflect.uncertainty.calibrator_file import read_calibrator

    saved = read_calibrator(path)
    if name_list(saved.correctness) != [saved.correctness]:
        raise DataError(
            f"{excerpt(str(path), 200)} is not a saved calibrator: {excerpt(saved.correctness)} is not a "
            "single correctness function"
        )
    _refuse_unnamed_classes(saved, path, classes)
    return saved


def _apply(
    source: str,
    questions: Sequence[AnsweredQuestion],
    saved: CalibratorFile,
    asking: AskOptions,
    overrides: Overrides,
    json: bool,
) -> None:
    """Apply a saved calibrator, and print its result for each question."""
    from selfreflect.uncertainty.assess import Assessment
    from selfreflect.uncertainty.estimators import ESTIMATORS
    from selfreflect.uncertainty.tables import confidence_table, promise_tables

    saved.refuse_overlap(questions)
    saved.refuse_other_samples(questions)
    if not {*sample_sizes(questions)} <= {*saved.samples}:
        before, new = (", ".join(map(str, sizes)) for sizes in (saved.samples, sample_sizes(questions)))
        say(
            f"The calibrator was fitted on questions with {before} answers, but these have {new}: estimators "
            "depend on the number of answers."
        )
    say(f"The calibrator was fitted to {saved.origin}.")
    comparison = ComparisonOptions(
        classes=saved.classes, similarity=saved.similarity, correctness=saved.correctness
    )
    name = saved.estimator
    # counted replies and probabilities of tokens are different values, so as it was fitted
    asking = replace(asking, sample_p_true=asking.sample_p_true or not saved.token_probability)
    with open_method(
        source, questions, [name], comparison, asking, overrides, stored_model=saved.model
    ) as method:
        if method.asker is not None and method.asker.model != saved.model:
            raise ConfigError(
                f"the calibrator was fitted with the model {excerpt(saved.model)}, not "
                f"{excerpt(method.asker.model)}"
            )
        method = dataclasses.replace(method, weights=saved.weights or ())
        assessment = Assessment(questions, [name], method)
    saved.refuse_other_variant(assessment)
    indices, scores = [], []
    for index, value in enumerate(assessment.values[name]):
        if not isinstance(value, NoValue):
            indices.append(index)
            scores.append(ESTIMATORS[name].score(value))
    _say_missing(assessment.missing(name, of_answered=True))
    confidences = saved.calibrator(scores)
    promises = _promised(saved, assessment, indices, scores)
    if not json:
        for table in promise_tables(saved, assessment, indices, scores):
            print_notes_first(table)
    _show(assessment, name, saved.correctness, indices, confidences, saved.method, json, promises)
    if not json:
        print_table(confidence_table(assessment, name, indices, confidences, promises))


def _promised(
    saved: CalibratorFile, assessment: Assessment, indices: Sequence[int], scores: Sequence[float]
) -> list[dict[str, object]]:
    """List for each question whether its answer may be shown, and its set of answers."""
    from selfreflect.uncertainty.guarantee import answer_set, classes_of

    lines: list[dict[str, object]] = []
    for index, score in zip(indices, scores, strict=True):
        line: dict[str, object] = {}
        # a promise is about questions with as many answers as the labelled ones
        count = len(assessment.questions[index].answers)
        if saved.guarantee:
            line["answered"] = count == saved.guarantee.samples and saved.guarantee.covers(score)
        if saved.sets:
            entries = answer_set(saved.sets, classes_of(assessment.samples[index]))
            line["set"] = to_builtins(entries) if count == saved.sets.samples else None
        lines.append(line)
    return lines


def _refuse_unnamed_classes(saved: CalibratorFile, path: Path, classes: str | None) -> None:
    """Refuse to load a model that only an untrusted file names."""
    if classes is not None and classes != saved.classes:
        raise ConfigError(
            f"the calibrator was fitted with the classes {excerpt(saved.classes)}, not {excerpt(classes)}",
            code="other_classes",
        )
    if saved.classes.startswith("nli:") and classes is None:
        raise ConfigError(
            f"{excerpt(str(path), 200)} names a model that may have to be downloaded from the hub",
            code="foreign_code",
            remedy=f"To allow that, add {{classes}} {excerpt(saved.classes)}.",
        )


def _only_label(assessment: Assessment) -> str:
    # where there is none, the error says so
    names = labelled(assessment) if assessment.judged.labels else []
    if len(names) != 1:
        fields = [] if names else further_fields(assessment.questions)
        if names:
            raise DataError(
                f"there are several kinds of labels: {listed(names)}",
                code="no_gold",
                remedy="Choose one with {correctness}.",
            )
        quoted = listed([repr(field) for field in fields])
        others = f"; the other fields of the file are {quoted}" if fields else ""
        raise DataError(
            f"nothing says which answers are right{others}",
            code="no_gold",
            remedy="Name the field of the right answers with {gold}, or a field of labels (right or wrong) "
            "with {column} correct=NAME.",
        )
    return names[0]


def _say_missing(missing: Mapping[str, int]) -> None:
    for reason, count in missing.items():
        get = "gets" if count == 1 else "get"
        say(f"{counted(count, 'question')} {get} no confidence: {reason}.")


def _show(
    assessment: Assessment,
    name: str,
    label: str,
    indices: Sequence[int],
    confidences: Floats,
    how: str,
    json: bool,
    promised: Sequence[dict[str, object]] = (),
) -> None:
    """Print confidences as JSON, or a table of calibration before and after."""
    from selfreflect.uncertainty.tables import calibration_table

    if json:
        answers = assessment.answers_of(name)
        for position, (index, confidence) in enumerate(zip(indices, confidences.tolist(), strict=True)):
            emit(
                {
                    "id": assessment.questions[index].id,
                    "question": assessment.questions[index].text,
                    "answer": answers.texts[index],
                    "estimator": name,
                    "value": None if isinstance(value := assessment.values[name][index], NoValue) else value,
                    "confidence": confidence,
                    "method": how,
                    "correctness": label,
                    "correct": answers.labels[label][index],
                    **(promised[position] if promised else {}),
                }
            )
        return
    print_table(calibration_table(assessment, name, label, indices, confidences, how))
