"""``selfreflect uncertainty`` and ``selfreflect calibrate``: estimators on answers, and confidences."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from msgspec import Struct
from msgspec.structs import replace

from selfreflect.cli import options as o
from selfreflect.cli.answered import (
    ASKING,
    AskOptions,
    ComparisonOptions,
    FieldOptions,
    StructureOptions,
    field_questions,
    labelled,
    open_method,
    read_questions,
    take_apart,
)
from selfreflect.cli.console import check_file, check_output, emit, print_table, say, write_file
from selfreflect.cli.options import Overrides, argument, option, takes
from selfreflect.errors import ConfigError, DataError, excerpt
from selfreflect.flags import Flag
from selfreflect.sources.files import source_name
from selfreflect.stats import defined
from selfreflect.table import Table
from selfreflect.text import counted, name_list, one_line
from selfreflect.uncertainty.question import AnsweredQuestion, NoValue, sample_sizes

if TYPE_CHECKING:
    from selfreflect.stats import Floats
    from selfreflect.uncertainty.assess import Assessment, Method, Prediction, SizedCalibration
    from selfreflect.uncertainty.calibrator_file import CalibratorFile
    from selfreflect.uncertainty.calibrators import MapQuality
    from selfreflect.uncertainty.question import AnsweredQuestion


# Notes under a table, unless all are wanted.
_MOST_NOTES = 3


class UncertaintyOptions(Struct, frozen=True, kw_only=True):
    """Choice of estimators, measures and sample sizes."""

    estimators: Annotated[
        str | None,
        Flag(
            "--estimators A,B",
            "Estimators. Those that ask a model are only used if they are named: p_true, p_true_samples, "
            "self_evaluation, verbalized, verbalized_top4, verbalized_2s.",
            default="all that the data allow",
        ),
    ] = None
    measures: Annotated[
        str | None,
        Flag(
            "--measures A,B",
            "Measures of prediction, or all.",
            default="auroc, aurc, prr, ece_10_left, smooth_ece, brier",
        ),
    ] = None
    num_answers: Annotated[
        int | None, Flag("--num-answers N", "Use N of each question's answers, drawn at random.")
    ] = None
    sizes: Annotated[
        str | None,
        Flag("--sizes M,M", "Also show how well the modal share is calibrated with M of the answers."),
    ] = None


@takes("answers", only=("--revision", "--base-url", "--extra-body"), config_file=True, execution=ASKING)
def uncertainty_command(
    *,
    source: str = argument(
        "RUN|FILE",
        "Run directory, or JSON, JSONL, CSV, parquet or log of questions with answers; - for stdin.",
        ...,
    ),
    options: UncertaintyOptions,
    comparison: ComparisonOptions,
    asking: AskOptions,
    overrides: Overrides,
    columns: FieldOptions,
    structure: StructureOptions,
    output: list[Path] = option(
        "--output FILE",
        "Write a page with figures (.html), the tables (.md), or all estimators, and in files of their own "
        "bins and coverages (.csv). Can be repeated.",
        [],
    ),
    explain: bool = option("--explain", "Print what each column means, and all notes on the values.", False),
    json: o.Json = False,
) -> None:
    """Estimate uncertainty from stored answers, with every method on the same answers.

    Where right answers or labels are known, shows how well each estimator predicts correctness, with 95 %
    intervals, beside three baselines: always the accuracy, the length of the answer, and the estimator after
    cross-fitted isotonic calibration (needs the calibrate extra). The answer that is judged is the record's
    'response', else the most common spelling of the largest class. Needs no model, except for embedding, and
    for estimators that ask one: --model, or the model of the run. Their replies are kept in the run, or in
    --out DIR, and nothing is asked twice.

    A file has questions and answers in any layout that `selfreflect convert` understands, or a "confidence"
    for each question. It may have "gold", "logprobs" (of each answer's tokens), "tokens", "aliases", "length"
    and "correct", too.
    """
    from selfreflect.uncertainty.assess import Assessment, predictions
    from selfreflect.uncertainty.calibrators import FOLDS
    from selfreflect.uncertainty.fields.tables import field_lines, field_table
    from selfreflect.uncertainty.output import json_lines

    check_output(output, source)
    measure_names = _measure_names(options.measures)
    sizes = list(map(_number, name_list(options.sizes or "")))
    questions = read_questions(source, columns, structured=structure.schema is not None)
    if options.num_answers is not None:
        questions = _with_answers(questions, options.num_answers)
    structured = take_apart(questions, structure)
    questions = [question for item in structured for question in item.questions()] or questions
    if options.estimators:
        names = name_list(options.estimators)
    else:
        names = _available(questions, comparison.similarity)
    with open_method(source, questions, names, comparison, asking, overrides) as method:
        assessment = Assessment(questions, names, method)
        results = {name: predictions(assessment, name, measure_names) for name in labelled(assessment)}
        by_size = _by_size(questions, sizes, method, results)
    for path in output:
        write_output(path, source, assessment, results)
    if json:
        for line in (*field_lines(structured, method.rule), *json_lines(assessment, results, by_size)):
            emit(line)
        return
    if structured:
        print_table(field_table(structured, assessment))
    _print(assessment, results, by_size, explain)
    rows = next(iter(results.values()), [])
    ready = [row.estimator for row in rows if not row.baseline and row.n >= FOLDS]
    if ready and source != "-" and columns == FieldOptions() and not structured:
        say(f"Calibrate one: selfreflect calibrate {shlex.quote(source)} --estimator {ready[0]}")


def _measure_names(text: str | None) -> list[str]:
    from selfreflect.uncertainty.assess import MEASURED
    from selfreflect.uncertainty.measures import MEASURES, check_measure

    if text is None:
        return list(MEASURED)
    names = list(MEASURES) if text == "all" else name_list(text)
    for name in names:
        check_measure(name)
    return names


def _by_size(
    questions: Sequence[AnsweredQuestion], sizes: Sequence[int], method: Method, labels: Iterable[str]
) -> dict[str, list[SizedCalibration]]:
    """Calibrate with fewer answers, by kind of correctness."""
    from selfreflect.uncertainty.assess import calibration_by_size

    if not sizes:
        return {}
    # a person judged one answer, not that of every subset
    return {name: calibration_by_size(questions, sizes, method, name) for name in labels if name != "human"}


def _print(
    assessment: Assessment,
    results: Mapping[str, list[Prediction]],
    by_size: Mapping[str, list[SizedCalibration]],
    explain: bool,
) -> None:
    from selfreflect.uncertainty import tables

    all_tables = [tables.value_table(assessment)]
    if results:
        all_tables.append(tables.right_table(assessment))
    for name, rows in results.items():
        labels = defined(assessment.judged.labels[name])
        all_tables.append(tables.prediction_table(rows, sum(labels) / len(labels), explain=explain))
    for name, sizes in by_size.items():
        all_tables.append(tables.size_table(sizes, name))
    for table in all_tables:
        print_table(table if explain else _without_most_notes(table))
    if not explain:
        say("What the columns mean: add --explain.")


def _without_most_notes(table: Table) -> Table:
    """Keep the first notes of a table, among which are all warnings."""
    surplus = len(table.notes) - _MOST_NOTES
    if surplus <= 0:
        return table
    notes = (*table.notes[:_MOST_NOTES], f"{counted(surplus, 'more note')}: add --explain.")
    return dataclasses.replace(table, notes=notes)


def _available(questions: Sequence[AnsweredQuestion], similarity: str) -> list[str]:
    from selfreflect.uncertainty.estimators import ESTIMATORS
    from selfreflect.uncertainty.hedges import Hedge, read_hedge

    present = set()
    for question in questions:
        present |= {"samples"} if question.answers else set()
        present |= {"logprobs"} if question.logprobs is not None else set()
        present |= {"tokens"} if question.tokens is not None and question.logprobs is not None else set()
        present |= {"self_certainty"} if question.self_certainty is not None else set()
        present |= {"confidence"} if question.confidence is not None else set()
        present |= {ESTIMATORS[name].needs for name in question.values}
        hedge = read_hedge(question.greedy or question.answer or "")
        present |= {"hedge"} if isinstance(hedge, Hedge) else set()
    if "logprobs" not in present and "samples" in present:
        reasons = dict.fromkeys(question.missing_logprobs for question in questions)
        why = "; ".join(filter(None, reasons)) or "--logprobs stores them with the answers of a run"
        say(f"No log-probabilities are stored, so estimators that need them are left out ({why}).")
    if "tokens" in present and similarity != "embedding":
        present.remove("tokens")
        say(
            "token_sar and sar are left out, because they weigh tokens by the similarity of sentences: add "
            "--similarity embedding."
        )
    return [name for name, estimator in ESTIMATORS.items() if estimator.needs in present]


def _with_answers(questions: Sequence[AnsweredQuestion], number: int) -> list[AnsweredQuestion]:
    from selfreflect.uncertainty.assess import subsample

    if number < 1:
        raise ConfigError(
            f"a question has at least 1 answer, not {number}", remedy="Give {num_answers} another value."
        )
    enough = [question for question in questions if len(question.answers) >= number]
    if not enough:
        raise DataError(f"no question has {number} answers")
    if len(enough) < len(questions):
        few = counted(len(questions) - len(enough), "question")
        say(f"{few} with fewer than {counted(number, 'answer')} left out.")
    return [subsample(question, number) for question in enough]


def _number(text: str) -> int:
    if not (text.isdecimal() and len(text) < 10) or int(text) < 1:
        raise ConfigError(f"{text!r} is no number of answers", remedy="Give {sizes} numbers, as in 5,10,20.")
    return int(text)


@takes("answers", only=("--revision", "--base-url", "--extra-body"), config_file=True, execution=ASKING)
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
    columns: FieldOptions,
    structure: StructureOptions,
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
                "a saved calibrator decides how it is made and applied",
                code="usage",
                remedy="With {apply} give only {gold}, {column} and models.",
            )
        saved = _read_saved(apply, comparison.classes)
        questions = field_questions(
            read_questions(source, columns, structured=structure.schema is not None), structure
        )
        _apply(source, questions, saved, asking, overrides, json)
        return
    from selfreflect.uncertainty.assess import Assessment
    from selfreflect.uncertainty.calibrator_file import fit_file, write_calibrator
    from selfreflect.uncertainty.calibrators import cross_fit, map_quality
    from selfreflect.uncertainty.classes import DEFAULT
    from selfreflect.uncertainty.estimators import ESTIMATORS

    if save is not None:
        check_file(save, source)
    questions = field_questions(
        read_questions(source, columns, structured=structure.schema is not None), structure
    )
    if save is not None:
        _require_labels(len(questions))  # before a model is asked
    name = estimator or ("modal_share" if any(question.answers for question in questions) else "stated")
    classes = comparison.classes or DEFAULT  # not what this model says: the file must do without it
    comparison = replace(comparison, classes=classes)
    with open_method(source, questions, [name], comparison, asking, overrides) as made_with:
        assessment = Assessment(questions, [name], made_with)
    label = _only_label(assessment)
    indices, scores, labels, _, groups = assessment.labelled_scores(name, label)
    _say_missing(assessment, name)
    _require_both_labels(labels, name)
    by = method or "isotonic"
    calibrated = cross_fit(by, scores, labels, groups=groups)
    _show(assessment, name, label, indices, calibrated, f"{by}, cross-fitted", json)
    quality = map_quality(by, scores, labels, probability=ESTIMATORS[name].is_probability, groups=groups)
    _say_worse(quality)
    if save is not None:
        _require_labels(len(labels))
        calibrator = fit_file(assessment, name, label, by, classes, comparison.class_order)
        write_file(save, write_calibrator(calibrator))
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
        fitted, new = (", ".join(map(str, sizes)) for sizes in (saved.samples, sample_sizes(questions)))
        say(
            f"The calibrator was fitted on questions with {fitted} answers, and these have {new}: estimators "
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
            f"the calibrator was fitted with the classes {excerpt(saved.classes)}, not {excerpt(classes)}",
            code="other_classes",
        )
    if saved.classes.startswith("nli:") and classes is None:
        raise ConfigError(
            f"{excerpt(str(path), 200)} names a model that may be looked up on the hub",
            code="foreign_code",
            remedy=f"If it may, add {{classes}} {excerpt(saved.classes)}.",
        )


def _only_label(assessment: Assessment) -> str:
    names = labelled(assessment)
    if len(names) != 1:
        raise DataError(
            "calibration needs one kind of label",
            code="no_gold",
            remedy="Give right answers ({gold}), a field 'correct', or one function with {correctness}.",
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


def write_output(
    path: Path, source: str, assessment: Assessment, results: Mapping[str, list[Prediction]]
) -> None:
    """Write a page or tables; ``results`` are predictions by kind of correctness.

    Raises:
        DataError: nothing has a right answer or a label.
    """
    if not results:
        raise DataError(
            f"{path}: without right answers or labels there is nothing to predict",
            code="no_gold",
            remedy="If the right answers are in another field, name it with {gold}.",
        )
    from selfreflect.uncertainty.output import csv_texts, markdown, page

    if path.suffix == ".html":
        write_file(path, page(one_line(source_name(source), 120), assessment, results))
        say(f"Open {path} in a browser.")
    elif path.suffix == ".md":
        write_file(path, markdown(assessment, results))
    else:
        for name, text in csv_texts(assessment, results).items():
            write_file(path.with_stem(path.stem + name), text)
