"""Tables of estimators and of how well they predict correctness."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean

import numpy as np

from selfreflect.stats import Floats
from selfreflect.table import Cell, Column, Table, interval_text
from selfreflect.text import counted
from selfreflect.uncertainty.assess import Assessment, Prediction, SizedCalibration, present, right_counts
from selfreflect.uncertainty.estimators import ESTIMATORS, Estimator
from selfreflect.uncertainty.measures import INTERVALS, MeasuredValue, definitions, measure_all
from selfreflect.uncertainty.prediction import Tally
from selfreflect.uncertainty.question import NoValue, sample_sizes

BASELINES = {"constant": "constant (base rate)", "isotonic": "isotonic", "length": "length only"}
AFTER = ("ece_10_left", "smooth_ece", "brier", "log_loss", "auroc")
"""What is measured before and after calibration."""


def value_table(assessment: Assessment) -> Table:
    """Every estimator's values over all questions."""
    rows: list[tuple[Cell, ...]] = []
    for name, column in assessment.values.items():
        info = ESTIMATORS[name]
        values = [value for value in column if not isinstance(value, NoValue)]
        numbers: tuple[Cell, ...] = (None, None, None)
        if values:
            numbers = (fmean(values), min(values), max(values))
        facts = (info.direction, f"{info.unit} {range_text(info)}", len(values))
        rows.append((name, *facts, *numbers, assessment.variant(name)))
    columns = (
        Column("estimator"),
        Column("higher is more"),
        Column("unit, range"),
        Column("n", "d"),
        Column("mean", ".3f"),
        Column("lowest", ".3f"),
        Column("highest", ".3f"),
        Column("variant"),
    )
    return Table("Estimators", columns, tuple(rows), tuple(assessment_notes(assessment)))


def range_text(info: Estimator) -> str:
    """Word the declared range as an interval."""
    low = "(-∞" if math.isinf(info.low) else f"[{info.low:g}"
    high = "∞)" if math.isinf(info.high) else f"{info.high:g}]"
    return f"{low}, {high}"


def assessment_notes(assessment: Assessment) -> list[str]:
    """Say what the values were made of, and which are missing for which reason."""
    sizes = sample_sizes(assessment.questions)
    samples = counted(sizes[0], "sample") if len(sizes) == 1 else f"{sizes[0]} to {sizes[-1]} samples"
    notes = [
        f"{counted(len(assessment.questions), 'question')}, {samples} each. Classes: "
        f"{assessment.method.rule.name}. Similarity of eigv, deg, ecc, kle and SAR: "
        f"{assessment.method.similarity}."
    ]
    notes += [f"Classes: {caveat}." for caveat in assessment.method.rule.caveats]
    if assessment.stated_faithfulness is not None:
        value, count = assessment.stated_faithfulness
        notes.append(
            f"cMFG {value:.3f} on {count} questions: how well the stated confidence follows the modal share; "
            "1 is best, about 0.5 is always saying the same."
        )
    for name in assessment.values:
        for reason, count in assessment.missing(name).items():
            notes.append(f"{name}: no value for {counted(count, 'question')}: {reason}.")
    return notes


def row_name(prediction: Prediction) -> str:
    """Name an estimator or a baseline in tables."""
    name = BASELINES.get(prediction.estimator, prediction.estimator)
    return f"{name} ({prediction.of})" if prediction.of else name


def prediction_table(predictions: Sequence[Prediction], accuracy: float, *, explain: bool) -> Table:
    """Show how well estimators predict correctness, with intervals, baselines and the length audit.

    Args:
        explain: whether the notes define the columns.
    """
    names: dict[str, None] = {}
    for row in predictions:
        names |= dict.fromkeys(row.measures)
    columns = [Column("estimator"), Column("n", "d"), *measured_columns(names)]
    columns += [Column("brier isotonic", ".3f"), Column("rho length", "+.2f"), Column("partial rho", "+.2f")]
    columns.append(Column("effect", "+.2f"))
    rows: list[tuple[Cell, ...]] = []
    for row in predictions:
        cells: list[Cell] = [row_name(row), row.n, *measured_cells(row.measures, names)]
        cells.append(row.isotonic["brier"].value if row.isotonic else None)
        audit = row.audit
        cells.append(audit.score_with_length if audit else None)
        cells.append(audit.score_with_correct_at_length if audit else None)
        cells.append(audit.score_effect if audit else None)
        rows.append(tuple(cells))
    first = predictions[0]
    notes = length_notes(predictions)
    notes += _column_notes(predictions, list(names)) if explain else []
    notes += undefined_notes(predictions)
    title = f"Predicting correctness ({first.correctness}): accuracy {accuracy:.3f}"
    return Table(title, tuple(columns), tuple(rows), tuple(notes))


RANKED_BY = ("auroc", "brier")
"""Measures of :func:`ranking_table` where nobody names others."""


def ranking_table(rows: Sequence[Prediction], correctness: str, names: Sequence[str] = RANKED_BY) -> Table:
    """List estimators and baselines by how well they tell right answers from wrong ones, in few columns."""
    columns = [Column("estimator"), Column("n", "d")]
    for name in names:
        columns += [Column(name, ".3f"), Column("95% CI", ".3f")]
    cells: list[tuple[Cell, ...]] = []
    for row in rows:
        numbers: list[Cell] = []
        for name in names:
            numbers += interval_cells(row.measures.get(name), " to ")
        cells.append((row_name(row), row.n, *numbers))
    notes = (*length_notes(rows), *undefined_notes(rows))
    return Table(f"Predicting correctness ({correctness})", tuple(columns), tuple(cells), notes)


def right_table(assessment: Assessment) -> Table:
    """Count the answers that each kind of correctness calls right."""
    rows = []
    for name, count in right_counts(assessment).items():
        rows.append((name, count.right, count.labelled, count.wrong_with_gold))
    columns = (
        Column("correctness"),
        Column("right", "d"),
        Column("of", "d"),
        Column("wrong, but a right answer stands in it", "d", short="wrong with gold"),
    )
    return Table("What counts as right", columns, tuple(rows))


def undefined_notes(rows: Iterable[Prediction]) -> list[str]:
    """Say which numbers are missing, one sentence for each reason."""
    reasons: dict[str, dict[str, None]] = {}
    for row in rows:
        for name, measurement in row.measures.items():
            if measurement.undefined:
                reasons.setdefault(measurement.undefined, {})[name] = None
    return _undefined_sentences(reasons)


def _undefined_sentences(reasons: Mapping[str, Iterable[str]]) -> list[str]:
    return [f"Undefined (–), {', '.join(names)}: {reason}." for reason, names in reasons.items()]


def _column_notes(predictions: Sequence[Prediction], measures: Sequence[str]) -> list[str]:
    """Define the columns of :func:`prediction_table`."""
    notes = definitions(measures)
    notes += [
        INTERVALS,
        "brier isotonic: after isotonic calibration on the other four fifths.",
        "rho length: rank correlation of confidence and length. partial rho: of confidence and correctness, "
        "at equal length. effect: by how much the chance of being correct rises from the 10th to the 90th "
        "percentile of the score at equal length (partial dependence of a logistic regression on both).",
    ]
    if any(row.of for row in predictions):
        notes.append(
            "isotonic: the named estimator, each confidence from a map fitted on the other four fifths."
        )
    greedy = [row.estimator for row in predictions if row.estimator in ESTIMATORS]
    if greedy := [name for name in greedy if ESTIMATORS[name].of_greedy]:
        notes.append(f"{', '.join(greedy)}: of the greedy answer, if it is stored; so is correctness there.")
    return notes


def length_notes(predictions: Sequence[Prediction]) -> list[str]:
    """Word one sentence on all estimators that depend on length like correctness does."""
    confounded = [row for row in predictions if row.audit and row.audit.confounded]
    if not confounded:
        return []
    names = ", ".join(row.estimator for row in confounded)
    audit = confounded[0].audit
    correlation, ratio = (
        "–" if value is None else format(value, "+.2f")
        for value in (audit and audit.correct_with_length, audit and audit.correct_between_lengths)
    )
    return [
        f"Warning: correctness depends on the length of answers (rank correlation {correlation}, correlation "
        f"ratio {ratio}), and so do {names}. Part of their success or failure may be length alone: see "
        "partial rho and effect, and --json for what is left within groups of equal length."
    ]


def measured_columns(names: Iterable[str]) -> list[Column]:
    """Make a column for each measure, and one for its interval."""
    columns = []
    for name in names:
        columns += [Column(name, ".3f"), Column("95%")]
    return columns


def measured_cells(measurements: Mapping[str, MeasuredValue], names: Iterable[str]) -> list[Cell]:
    """Fill the cells of :func:`measured_columns`; empty without a measurement."""
    cells: list[Cell] = []
    for name in names:
        cells += interval_cells(measurements.get(name))
    return cells


def interval_cells(measurement: MeasuredValue | None, between: str = "–") -> tuple[Cell, Cell]:
    """Fill the cells of a value and its interval."""
    if measurement is None:
        return None, None
    return measurement.value, interval_text(measurement.low, measurement.high, between=between)


def size_table(results: Sequence[SizedCalibration], correctness: str) -> Table:
    """Tabulate semantic calibration over the number of samples."""
    rows = []
    for result in results:
        ece, brier, auroc = (result.measures[name] for name in ("ece_10_left", "brier", "auroc"))
        constant = result.accuracy * (1 - result.accuracy)
        split = result.split_half_ece
        split_ece = None if split is None else split.value
        row = (
            result.samples,
            result.n,
            result.accuracy,
            result.share,
            result.split_half,
            *interval_cells(ece),
            split_ece,
        )
        rows.append((*row, *interval_cells(brier), constant, *interval_cells(auroc)))
    columns = (
        Column("samples", "d"),
        Column("n", "d"),
        Column("accuracy", ".3f"),
        Column("share", ".3f"),
        Column("split half", ".3f"),
        Column("ece share", ".3f"),
        Column("95%"),
        Column("ece split half", ".3f"),
        Column("brier share", ".3f"),
        Column("95%"),
        Column("brier constant", ".3f"),
        Column("auroc share", ".3f"),
        Column("95%"),
    )
    notes = (
        "Calibrated means that the share equals the accuracy. The share of the largest class is too high for "
        "few samples. The split-half share is not: it is rather too low, where few samples miss the largest "
        "class.",
        "ece: 10 bins of equal width, [low, high).",
    )
    return Table(f"Samples and calibration ({correctness})", columns, tuple(rows), notes)


def calibration_table(
    assessment: Assessment,
    estimator: str,
    correctness: str,
    indices: Sequence[int],
    confidences: Floats,
    how: str,
) -> Table:
    """Tabulate calibration before and after, over questions with a label.

    Args:
        indices: the questions that ``confidences`` belong to.
    """
    own_labels = assessment.answers_of(estimator).labels[correctness]
    # positions in ``indices`` and ``confidences``, not in the questions
    positions = present([own_labels[index] for index in indices])
    labels = np.array([float(bool(own_labels[indices[position]])) for position in positions])
    columns = [Column("confidence"), Column("n", "d"), Column("mean", ".3f")]
    rows: list[tuple[Cell, ...]] = []
    if not positions:
        rows.append((how, len(indices), float(confidences.mean()) if len(indices) else None))
        return Table(
            f"Calibration of {estimator}",
            tuple(columns),
            tuple(rows),
            ("No labels, so nothing to compare with.",),
        )
    after = confidences[positions]
    versions = {how: after, BASELINES["constant"]: np.full(len(positions), labels.mean())}
    if ESTIMATORS[estimator].is_probability:
        column = assessment.values[estimator]
        before = [value for position in positions if isinstance(value := column[indices[position]], float)]
        versions = {"before": np.array(before), **versions}
    undefined: dict[str, dict[str, None]] = {}
    for name, values in versions.items():
        measurements = measure_all(AFTER, Tally.of(values, labels))
        for measure, measurement in measurements.items():
            if measurement.undefined:
                undefined.setdefault(measurement.undefined, {})[measure] = None
        rows.append((name, len(positions), float(values.mean()), *measured_cells(measurements, AFTER)))
    columns += measured_columns(AFTER)
    notes = definitions(AFTER) + _undefined_sentences(undefined)
    title = f"Calibration of {estimator} ({correctness}): accuracy {labels.mean():.3f}"
    return Table(title, tuple(columns), tuple(rows), tuple(notes))
