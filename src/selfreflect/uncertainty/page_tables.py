"""The tables of the page: all estimators in one, and bins and coverages of one estimator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from selfreflect.stats import Floats
from selfreflect.table import Cell, Column, Table
from selfreflect.text import counted
from selfreflect.uncertainty.assess import Assessment, Prediction
from selfreflect.uncertainty.estimators import ESTIMATORS
from selfreflect.uncertainty.length_audit import LengthAudit
from selfreflect.uncertainty.measures import INTERVALS, definitions
from selfreflect.uncertainty.question import sample_sizes
from selfreflect.uncertainty.reliability import ReliabilityBin
from selfreflect.uncertainty.tables import interval_cells, range_text, row_name, undefined_notes

COVERAGES = 10
"""Rows of a table of coverages."""


def overview_table(assessment: Assessment, rows: Sequence[Prediction]) -> Table:
    """Every estimator and baseline, with what it is made of and how well it predicts correctness."""
    measures: dict[str, None] = {}
    calibrated: dict[str, None] = {}
    for row in rows:
        measures |= dict.fromkeys(row.measures)
        calibrated |= dict.fromkeys(row.isotonic)
    columns = [
        Column("estimator"),
        Column("is a"),
        Column("n", "d"),
    ]
    for name in measures:
        columns += [Column(name, ".3f"), Column(f"{name} 95%")]
    for name in calibrated:
        columns += [Column(f"{name} isotonic", ".3f"), Column(f"{name} isotonic 95%")]
    facts = ("range", "higher is more", "samples", "classes", "correctness", "variant")
    columns += list(map(Column, facts))
    samples = sample_numbers(assessment)
    cells = []
    for row in rows:
        numbers: list[Cell] = []
        for name in measures:
            numbers += interval_cells(row.measures.get(name), " to ")
        for name in calibrated:
            numbers += interval_cells(row.isotonic.get(name), " to ")
        name = row_name(row)
        kind = "baseline" if row.baseline else "estimator"
        cells.append((name, kind, row.n, *numbers, *_facts(assessment, row, samples)))
    notes = definitions(measures)
    notes += [INTERVALS, "A baseline is what an estimator should beat."]
    if calibrated:
        notes.append("isotonic: after isotonic calibration on the other four fifths of the questions.")
    notes += undefined_notes(rows)
    notes.append("Measures of calibration are left out where a score is no probability.")
    title = f"Estimators and baselines ({rows[0].correctness})"
    return Table(title, tuple(columns), tuple(cells), tuple(notes))


def _facts(assessment: Assessment, row: Prediction, samples: str) -> tuple[Cell, ...]:
    """Range, direction, samples, classes, correctness and variant."""
    info = ESTIMATORS.get(row.estimator)
    if info is None:
        return None, "confidence", None, None, row.correctness, None
    sampled = info.needs in ("samples", "logprobs", "tokens", "self_certainty")
    made_of = (samples, assessment.method.rule.name) if sampled else (None, None)
    return range_text(info), info.direction, *made_of, row.correctness, assessment.variant(row.estimator)


def sample_numbers(assessment: Assessment) -> str:
    """How many answers each question has."""
    sizes = sample_sizes(assessment.questions)
    return f"{sizes[0]}" if len(sizes) == 1 else f"{sizes[0]} to {sizes[-1]}"


def reliability_table(versions: Mapping[str, Sequence[ReliabilityBin]]) -> Table:
    """The bins of a reliability diagram that hold answers."""
    columns = (
        Column("confidence"),
        Column("bin"),
        Column("n", "d"),
        Column("mean", ".3f"),
        Column("share correct", ".3f"),
        Column("low", ".3f"),
        Column("high", ".3f"),
    )
    rows: list[tuple[Cell, ...]] = []
    for version, bins in versions.items():
        for one in bins:
            if one.n:
                ends = (one.accuracy_low, one.accuracy_high)
                rows.append((version, one.name, one.n, one.confidence, one.accuracy, *ends))
    return Table("Confidence and correctness", columns, tuple(rows), ("low, high: 95% Wilson interval.",))


def length_table(audit: LengthAudit) -> Table:
    """How confidence, correctness and length depend on each other."""
    rows = (
        ("rank correlation of confidence and length", audit.score_with_length),
        ("rank correlation of correctness and length", audit.correct_with_length),
        ("rank correlation of confidence and correctness", audit.score_with_correct),
        ("the same at equal length", audit.score_with_correct_at_length),
        ("the same within groups of answers by length", audit.score_with_correct_within_lengths),
        ("correlation ratio of confidence over these groups", audit.score_between_lengths),
        ("correlation ratio of correctness over these groups", audit.correct_between_lengths),
        ("effect of confidence at equal length", audit.score_effect),
        ("effect of length at equal confidence", audit.length_effect),
    )
    notes = (
        "Effect: by how much the chance of a correct answer rises from the 10th to the 90th percentile, by a "
        "logistic regression on both.",
        "–: too few answers, or one of the two is the same for all.",
    )
    columns = (Column("dependence"), Column("value", "+.2f"))
    return Table(f"Length of {counted(audit.n, 'answer')}", columns, rows, notes)


def coverage_table(risks: Floats, best: Floats, accuracy: float) -> Table:
    """Risk where every tenth of the questions more is answered."""
    n = len(risks)
    rows: list[tuple[Cell, ...]] = []
    for tenth in range(1, COVERAGES + 1):
        count = max(1, round(n * tenth / COVERAGES))
        if rows and rows[-1][1] == count:
            continue
        risk, least = float(risks[count - 1]), float(best[count - 1])
        rows.append((count / n, count, risk, 1 - accuracy, least))
    columns = (
        Column("coverage", ".0%"),
        Column("answered", "d"),
        Column("share wrong", ".3f"),
        Column("random order", ".3f"),
        Column("best order", ".3f"),
    )
    return Table("Risk and coverage", columns, tuple(rows))
