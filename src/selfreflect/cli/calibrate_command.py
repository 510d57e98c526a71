"""``selfreflect calibrate``: turn an estimator's values into calibrated confidences."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from msgspec.structs import replace

from selfreflect.cli import settings as o
from selfreflect.cli.answered import ComparisonOptions, FieldOptions, labelled, read_questions
from selfreflect.cli.asking import ASKING, AskOptions, open_method
from selfreflect.cli.console import check_file, emit, print_table, say, write_file
from selfreflect.cli.settings import Overrides, argument, option, takes
from selfreflect.errors import ConfigError, DataError, excerpt
from selfreflect.text import counted, name_list
from selfreflect.uncertainty.question import NoValue, sample_sizes

if TYPE_CHECKING:
    from selfreflect.stats import Floats
    from selfreflect.uncertainty.assess import Assessment
    from selfreflect.uncertainty.calibrator_file import CalibratorFile
    from selfreflect.uncertainty.question import AnsweredQuestion
    from selfreflect.uncertainty.recalibrate import MapQuality


@takes("answers", only=("--revision", "--base-url"), config_file=True, execution=ASKING)
def calibrate_command(
    *,
    source: str = argument(
        "RUN|FILE", "Questions with answers, as `selfreflect uncertainty` reads them.", ...
    ),
    estimator: str | None = option(
        "--estimator NAME", "The estimator. [default: modal_share; stated, if there are no answers]"
    ),
    method: Literal["isotonic", "platt", "temperature"] | None = option(
        "--method",
        "isotonic (any rising map), platt (a logistic curve) or temperature (only for confidences in "
        "[0, 1]). The first two need the calibrate extra. [default: isotonic]",
    ),
    save: Path | None = option(
        "--save FILE", "Fit on all labelled questions, at least 50, and save the calibrator."
    ),
    apply: Path | None = option(
        "--apply FILE", "Apply a saved calibrator, to questions that it was not fitted on."
    ),
    comparison: ComparisonOptions,
    asking: AskOptions,
    overrides: Overrides,
    fields: FieldOptions,
    json: o.Json = False,
) -> None:
    """Calibrate an estimator: confidences that agree with the share of correct answers.

    Shows calibration before and after. Without --apply the confidences are cross-fitted: each comes from a
    map fitted on the other four fifths of the questions. --save fits on all questions; --apply uses such a
    file on other ones and refuses questions that it was fitted on. --json prints each question's confidence.
    """
    if apply is not None:
        is_chosen = any(value is not None for value in (estimator, method, save))
        if is_chosen or comparison != ComparisonOptions(classes=comparison.classes):
            raise ConfigError(
                "--apply takes everything but --gold, --column and models from the saved calibrator"
            )
        saved = _read_saved(apply, comparison.classes)
        _apply(source, read_questions(source, fields), saved, asking, overrides, json)
        return
    from selfreflect.uncertainty.assess import Assessment
    from selfreflect.uncertainty.calibrator_file import fit_file, write_calibrator
    from selfreflect.uncertainty.classes import DEFAULT
    from selfreflect.uncertainty.estimators import ESTIMATORS
    from selfreflect.uncertainty.recalibrate import cross_fit, map_quality

    if save is not None:
        check_file("--save", save, source)
    questions = read_questions(source, fields)
    if save is not None:
        _require_labels(len(questions))  # before a model is asked
    name = estimator or ("modal_share" if any(one.answers for one in questions) else "stated")
    classes = comparison.classes or DEFAULT  # not what this model says: the file must do without it
    comparison = replace(comparison, classes=classes)
    with open_method(source, questions, [name], comparison, asking, overrides) as made_with:
        assessment = Assessment(questions, [name], made_with)
    label = _only_label(assessment)
    indices, scores, labels, _ = assessment.labelled_scores(name, label)
    _say_missing(assessment, name)
    _require_both_labels(labels, name)
    by = method or "isotonic"
    _show(assessment, name, label, indices, cross_fit(by, scores, labels), f"{by}, cross-fitted", json)
    quality = map_quality(by, scores, labels, probability=ESTIMATORS[name].is_probability)
    _say_worse(quality)
    if save is not None:
        _require_labels(len(labels))
        made = fit_file(assessment, name, label, by, classes, comparison.class_order)
        write_file(save, write_calibrator(made))
        say(f"Use it on other questions: selfreflect calibrate FILE --apply {shlex.quote(str(save))}")


def _require_labels(count: int) -> None:
    from selfreflect.uncertainty.calibrator_file import FEWEST_LABELS

    if count < FEWEST_LABELS:
        raise DataError(
            f"{counted(count, 'labelled answer')}: a map that is fitted on fewer than {FEWEST_LABELS} is not "
            "saved, because it may harm. Label more questions; hundreds are better"
        )


def _say_worse(quality: MapQuality) -> None:
    """Say if it is better to do without the map."""
    names = {quality.constant: "always saying the accuracy", quality.unchanged: "no map"}
    for score in quality.worse_than:
        say(
            f"Warning: this map is worse than {names[score]}: Brier score {quality.calibrated:.3f} against "
            f"{score:.3f}, on questions that it was not fitted on."
        )


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
    """Read a saved calibrator, whose class rule the user may have named."""
    from selfreflect.uncertainty.calibrator_file import read_calibrator

    saved = read_calibrator(path)
    if name_list(saved.correctness) != [saved.correctness]:
        raise DataError(
            f"{excerpt(str(path), 200)} is not a saved calibrator: {excerpt(saved.correctness)} is not one "
            "kind of correctness"
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
    """Apply a saved calibrator, and print what it makes of each question."""
    from selfreflect.uncertainty.assess import Assessment
    from selfreflect.uncertainty.estimators import ESTIMATORS

    saved.refuse_overlap(questions)
    if not {*sample_sizes(questions)} <= {*saved.samples}:
        counts, own = (", ".join(map(str, sizes)) for sizes in (saved.samples, sample_sizes(questions)))
        say(
            f"The calibrator was fitted on questions with {counts} answers, and these have {own}: estimators "
            "depend on the number of answers."
        )
    comparison = ComparisonOptions(
        classes=saved.classes,
        class_order=saved.class_order,
        similarity=saved.similarity,
        correctness=saved.correctness,
    )
    name = saved.estimator
    asking = replace(asking, sample_p_true=asking.sample_p_true or not saved.token_probability)
    with open_method(
        source, questions, [name], comparison, asking, overrides, stored_model=saved.model
    ) as method:
        if method.asker is not None and method.asker.model != saved.model:
            raise ConfigError(
                f"the calibrator was fitted with the model {excerpt(saved.model)}, not "
                f"{excerpt(method.asker.model)}"
            )
        assessment = Assessment(questions, [name], method)
    saved.refuse_other_variant(assessment)
    indices, scores = [], []
    for index, value in enumerate(assessment.values[name]):
        if not isinstance(value, NoValue):
            indices.append(index)
            scores.append(ESTIMATORS[name].score(value))
    _say_missing(assessment, name)
    confidences = saved.calibrator(scores)
    _show(assessment, name, saved.correctness, indices, confidences, saved.method, json)


def _refuse_unnamed_classes(saved: CalibratorFile, path: Path, classes: str | None) -> None:
    """Refuse to load a model, or to look it up on the hub, only because a file says so: anybody may have made
    it."""
    if classes is not None and classes != saved.classes:
        raise ConfigError(
            f"the calibrator was fitted with --classes {excerpt(saved.classes)}, not {excerpt(classes)}"
        )
    if saved.classes.startswith("nli:") and classes is None:
        raise ConfigError(
            f"{excerpt(str(path), 200)} names a model that may be looked up on the hub. If it may, add "
            f"--classes {excerpt(saved.classes)}"
        )


def _only_label(assessment: Assessment) -> str:
    names = labelled(assessment)
    if len(names) != 1:
        raise DataError(
            "calibration needs one kind of label: give right answers (--gold), a field 'correct', or one "
            "function with --correctness"
        )
    return names[0]


def _say_missing(assessment: Assessment, estimator: str) -> None:
    for reason, count in assessment.missing(estimator).items():
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
) -> None:
    """Print each confidence as JSON, or a table of calibration before and after."""
    from selfreflect.uncertainty.tables import calibration_table

    if json:
        answers = assessment.answers_of(name)
        for index, confidence in zip(indices, confidences.tolist(), strict=True):
            emit(
                {
                    "id": assessment.questions[index].id,
                    "answer": answers.texts[index],
                    "estimator": name,
                    "value": assessment.values[name][index],
                    "confidence": confidence,
                    "method": how,
                    "correctness": label,
                    "correct": answers.labels[label][index],
                }
            )
        return
    print_table(calibration_table(assessment, name, label, indices, confidences, how))
