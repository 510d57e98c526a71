"""Make the part of a page that shows estimators of uncertainty: sentences, tables and figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from markupsafe import Markup

from selfreflect.report.page.frame import EstimatorPanel, UncertaintyFigure, UncertaintyPart
from selfreflect.stats import Floats
from selfreflect.table import Table, joined, to_csv
from selfreflect.uncertainty.assess import Assessment, Prediction, ScoredAnswers
from selfreflect.uncertainty.estimators import ESTIMATORS
from selfreflect.uncertainty.figures import coverage_figure, dots_step, length_figure, reliability_figure
from selfreflect.uncertainty.headline import Headline, best_first
from selfreflect.uncertainty.page_tables import (
    coverage_table,
    length_table,
    overview_table,
    reliability_table,
)
from selfreflect.uncertainty.reliability import ReliabilityBin, reliability
from selfreflect.uncertainty.selective import expected_risks
from selfreflect.uncertainty.tables import assessment_notes, length_notes
from selfreflect.uncertainty.tally import Tally

PANELS = 12
"""Estimators whose figures one part holds, the best first: figures are most of the page and of its time."""


@dataclass(frozen=True)
class Curves:
    """What the figures of one estimator show."""

    versions: dict[str, list[ReliabilityBin]]
    """Bins of its confidences as they are, if they are probabilities, and after calibration."""
    undefined: str
    """Why there are no versions."""
    risks: Floats
    """Of the k most confident answers, shape (n,)."""
    best: Floats
    accuracy: float

    @property
    def coverage(self) -> Table:
        return coverage_table(self.risks, self.best, self.accuracy)


def curves(estimator: str, answers: ScoredAnswers) -> Curves:
    """Compute reliability and risk of one estimator's scores."""
    _, scores, labels, _ = answers
    versions = {}
    undefined = ""
    if ESTIMATORS[estimator].is_probability:
        versions["as it is"] = reliability(scores, labels)
    calibrated = answers.calibrated()
    if isinstance(calibrated, str):
        undefined = calibrated if versions else f"{estimator} is no probability, and {calibrated}"
    else:
        versions["isotonic, cross-fitted"] = reliability(calibrated, labels)
    n = len(labels)
    right = labels.sum()
    best = np.maximum(0, np.arange(1, n + 1) - right) / np.arange(1, n + 1)
    return Curves(versions, undefined, expected_risks(Tally.of(scores, labels)), best, float(labels.mean()))


def all_curves(assessment: Assessment, correctness: str, rows: Sequence[Prediction]) -> dict[str, Curves]:
    """The curves of every estimator with values, the best first."""
    result = {}
    for row in best_first(rows):
        answers = assessment.labelled_scores(row.estimator, correctness)
        if len(answers.scores):
            result[row.estimator] = curves(row.estimator, answers)
    return result


def joined_tables(every: Mapping[str, Curves]) -> tuple[Table, Table]:
    """The bins, and the coverages, of all estimators, of which there must be one."""
    bins = joined({name: reliability_table(one.versions) for name, one in every.items()}, "estimator")
    coverages = joined({name: one.coverage for name, one in every.items()}, "estimator")
    return bins, coverages


def part_without_figures(
    assessment: Assessment,
    correctness: str,
    rows: Sequence[Prediction],
    *,
    name: str = "uncertainty",
    label: str = "",
) -> UncertaintyPart:
    """Make the sentences and the table on one set of questions and one kind of correctness.

    Args:
        rows: from :func:`~selfreflect.uncertainty.assess.predictions`.
        name: identifies it on its page.
        label: tells it from others; may be untrusted.
    """
    headline = Headline(assessment, correctness, rows)
    table = overview_table(assessment, rows)
    return UncertaintyPart(
        name=name,
        label=label or f"Correctness: {correctness}",
        lead=headline.lead(),
        about=headline.about(),
        table=table,
        baselines=frozenset(place for place, row in enumerate(rows) if row.baseline),
        panels=[],
        notes=[*length_notes(rows), *assessment_notes(assessment)],
        csv={f"{name}-estimators": to_csv(table)},
    )


def uncertainty_part(
    assessment: Assessment, correctness: str, rows: Sequence[Prediction], **names: str
) -> UncertaintyPart:
    """Make the same with figures; arguments as of :func:`part_without_figures`."""
    part = part_without_figures(assessment, correctness, rows, **names)
    every = all_curves(assessment, correctness, rows)
    row_of = {row.estimator: row for row in rows}
    for estimator, one in list(every.items())[:PANELS]:
        panel = EstimatorPanel(estimator, f"{part.name}-{estimator}", [])
        panel.figures.append(_reliability(panel.name, one))
        panel.figures.append(_coverage(panel.name, one))
        panel.figures.append(_length(panel.name, assessment, row_of[estimator]))
        part.panels.append(panel)
        for figure in panel.figures:
            if figure.table is not None:
                part.csv[figure.name] = to_csv(figure.table)
    if len(every) > PANELS:
        part.notes.append(
            f"Figures of the {PANELS} estimators with the highest AUROC; choose with --estimators."
        )
    return part


def _reliability(panel: str, one: Curves) -> UncertaintyFigure:
    title = "Is the confidence right?"
    if not one.versions:
        return UncertaintyFigure(title, "", Markup(), undefined=one.undefined)
    name = f"{panel}-reliability"
    caption = (
        "Share of correct answers against mean confidence, in 10 bins, with 95% intervals; on the line the "
        "two are equal. Below: how many answers each bin holds."
    )
    if one.undefined:
        caption = f"{caption} Not calibrated: {one.undefined}."
    figure = Markup(reliability_figure(name, one.versions))
    return UncertaintyFigure(title, caption, figure, reliability_table(one.versions), name)


def _coverage(panel: str, one: Curves) -> UncertaintyFigure:
    name = f"{panel}-coverage"
    figure = Markup(coverage_figure(name, one.risks.tolist(), one.best.tolist(), one.accuracy))
    caption = (
        "Share of wrong answers if only the most confident part of the questions is answered. Equal scores "
        "count as the average over all their orders."
    )
    return UncertaintyFigure("What is wrong if the unsure are left out?", caption, figure, one.coverage, name)


def _length(panel: str, assessment: Assessment, row: Prediction) -> UncertaintyFigure:
    title = "Does it follow the length?"
    answers = assessment.labelled_scores(row.estimator, row.correctness)
    scores, labels, lengths = answers.with_lengths()
    if not len(lengths):
        return UncertaintyFigure(title, "", Markup(), undefined="no judged answer has a length")
    info = ESTIMATORS[row.estimator]
    values = list(map(info.score, scores.tolist()))
    name = f"{panel}-length"
    axis = f"{row.estimator} ({info.unit})"
    figure = Markup(length_figure(name, values, labels.tolist(), lengths.tolist(), axis))
    table = None if row.audit is None else length_table(row.audit)
    step = dots_step(len(values))
    dots = "one dot per question" if step == 1 else f"one of {step} questions as a dot"
    return UncertaintyFigure(title, f"Higher is more {info.direction}; {dots}.", figure, table, name)
