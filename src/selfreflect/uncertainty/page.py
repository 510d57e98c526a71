"""The part of a page that shows how well estimators predict correctness."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from markupsafe import Markup

from selfreflect.errors import DataError
from selfreflect.report.page.frame import EstimatorPanel, ShadedAnswer, UncertaintyFigure, UncertaintyPart
from selfreflect.stats import CONFIDENCE, Floats
from selfreflect.table import Cell, Column, Table, to_csv
from selfreflect.uncertainty.assess import Assessment, Prediction, ScoredAnswers
from selfreflect.uncertainty.calibrator_file import find_guarantee
from selfreflect.uncertainty.estimators import ESTIMATORS
from selfreflect.uncertainty.features import UnsureWord, unsure_words
from selfreflect.uncertainty.figures import (
    ReliabilityBin,
    coverage_figure,
    reliability,
    reliability_figure,
)
from selfreflect.uncertainty.guarantee import ThresholdSearch
from selfreflect.uncertainty.measures import INTERVALS, definitions
from selfreflect.uncertainty.prediction import Tally, expected_risks
from selfreflect.uncertainty.tables import (
    RANKED_BY,
    assessment_notes,
    conclude,
    doubt_of,
    guarantee_sentence,
    ranking_table,
)


def best_first(rows: Sequence[Prediction]) -> list[Prediction]:
    """Sort estimators by AUROC; those without one come last, and baselines are left out."""
    methods = [row for row in rows if not row.baseline]

    def rank(row: Prediction) -> float:
        area = row.measures["auroc"].value if "auroc" in row.measures else None
        return 1.0 if area is None else -area

    return sorted(methods, key=rank)


def best_sentence(rows: Sequence[Prediction]) -> str:
    """Say which estimator tells right from wrong best, or why none can be ranked; empty without any AUROC."""
    methods = best_first(rows)
    area = methods[0].measures.get("auroc") if methods else None
    if area is None:
        return ""
    if area.value is None:
        return f"No estimator could be ranked: {area.undefined}."
    several = f" best of {len(methods)} estimators" if len(methods) > 1 else ""
    interval = "" if area.low is None else f" (95 % CI {area.low:.2f} to {area.high:.2f})"
    doubt = doubt_of(area.low)
    return f"{methods[0].estimator} tells right from wrong{several}: AUROC {area.value:.2f}{interval}{doubt}."


COVERAGES = 10
"""Rows of a table of coverages."""


def reliability_table(versions: Mapping[str, Sequence[ReliabilityBin]]) -> Table:
    """List the bins of a reliability diagram that hold answers."""
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
        for entry in bins:
            if entry.n:
                ends = (entry.accuracy_low, entry.accuracy_high)
                rows.append((version, entry.name, entry.n, entry.confidence, entry.accuracy, *ends))
    return Table("Confidence and correctness", columns, tuple(rows), ("low, high: 95 % Wilson interval.",))


def coverage_table(risks: Floats, best: Floats, accuracy: float) -> Table:
    """List the risk at each further tenth of the questions answered."""
    n = len(risks)
    rows: list[tuple[Cell, ...]] = []
    for tenth in range(1, COVERAGES + 1):
        count = max(1, round(n * tenth / COVERAGES))
        if rows and rows[-1][1] == count:
            continue
        risk, lowest_risk = float(risks[count - 1]), float(best[count - 1])
        rows.append((count / n, count, risk, 1 - accuracy, lowest_risk))
    columns = (
        Column("coverage", ".0%"),
        Column("answered", "d"),
        Column("share wrong", ".3f"),
        Column("random order", ".3f"),
        Column("best order", ".3f"),
    )
    return Table("Risk and coverage", columns, tuple(rows))


PANELS = 12
"""Estimators whose figures one part holds, the best first: figures are most of the page and of its time."""


@dataclass(frozen=True)
class Curves:
    """Data of the figures of one estimator."""

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
    _, scores, labels, *_ = answers
    versions = {}
    undefined = ""
    if ESTIMATORS[estimator].is_probability:
        versions["as it is"] = reliability(scores, labels)
    calibrated = answers.calibrated()
    if isinstance(calibrated, str):
        undefined = calibrated if versions else f"{estimator} is no probability, and {calibrated}"
    else:
        versions["calibrated"] = reliability(calibrated, labels)
    n = len(labels)
    right = labels.sum()
    best = np.maximum(0, np.arange(1, n + 1) - right) / np.arange(1, n + 1)
    return Curves(versions, undefined, expected_risks(Tally.of(scores, labels)), best, float(labels.mean()))


def all_curves(assessment: Assessment, correctness: str, rows: Sequence[Prediction]) -> dict[str, Curves]:
    """Compute the curves of every estimator with values, the best first."""
    result = {}
    for row in best_first(rows):
        answers = assessment.labelled_scores(row.estimator, correctness)
        if len(answers.scores):
            result[row.estimator] = curves(row.estimator, answers)
    return result


def uncertainty_part(
    assessment: Assessment,
    correctness: str,
    rows: Sequence[Prediction],
    *,
    name: str = "uncertainty",
    label: str = "",
) -> UncertaintyPart:
    """Make the sentence, the table and the figures under one kind of correctness.

    Args:
        rows: from :func:`~selfreflect.uncertainty.assess.predictions`.
        name: identifies it on its page.
        label: tells it from others; may be untrusted.
    """
    conclusion = conclude(assessment, correctness)
    measures = list(dict.fromkeys(measure for row in rows for measure in row.measures))
    ranked = [*best_first(rows), *(row for row in rows if row.baseline)]
    table = ranking_table(ranked, correctness, [name for name in RANKED_BY if name in measures] or measures)
    whole = ranking_table(ranked, f"{correctness}, all measures", measures)
    part = UncertaintyPart(
        name=name,
        label=label or f"Correctness: {correctness}",
        lead=f"{conclusion.finding[0].upper()}{conclusion.finding[1:]}."
        if conclusion
        else f"No answer could be judged ({correctness}).",
        table=table,
        whole=replace(whole, notes=(" ".join(definitions(measures)), INTERVALS)),
        baselines=frozenset(range(sum(not row.baseline for row in rows), len(rows))),
        panels=[],
        notes=assessment_notes(assessment),
        csv={f"{name}-estimators": to_csv(whole)},
    )
    curves_by_name = all_curves(assessment, correctness, rows)
    for estimator, curves in list(curves_by_name.items())[:PANELS]:
        panel = EstimatorPanel(estimator, f"{part.name}-{estimator}", [])
        panel.figures.append(_reliability(panel.name, curves))
        searches = _searches(assessment, estimator, correctness)
        panel.figures.append(_coverage(panel.name, curves, searches, estimator))
        part.panels.append(panel)
        for figure in panel.figures:
            if figure.table is not None:
                part.csv[figure.name] = to_csv(figure.table)
    if len(curves_by_name) > PANELS:
        part.notes.append(
            f"Figures of the {PANELS} estimators with the highest AUROC; choose with --estimators."
        )
    return part


SHOWN = 20
"""Answers whose words are shaded, the least sure first."""


def shaded_answers(assessment: Assessment) -> list[ShadedAnswer]:
    """Shade the words of judged answers whose likely tokens are stored."""
    shaded = []
    for samples in assessment.samples:
        question = samples.question
        texts = [question.answers[index] for index in samples.judged_members]
        if question.top_logprobs is None or not question.tokens or not question.logprobs or not texts:
            continue
        judged = samples.judged_answer
        index = samples.judged_members[texts.index(judged) if judged in texts else 0]
        words = unsure_words(question.tokens[index], question.logprobs[index], question.top_logprobs[index])
        if words:
            shaded.append((max(word.entropy for word in words), question.text or question.id, words))
    shaded.sort(key=lambda entry: -entry[0])
    return [_shaded(text, words) for _, text, words in shaded[:SHOWN]]


def _shaded(question: str, words: Sequence[UnsureWord]) -> ShadedAnswer:
    columns = (Column("word"), *(Column(name, ".3f") for name in UnsureWord._fields[1:]))
    notes = ("Entropies are in nats; low and high hold that of the whole prediction.",)
    table = Table("Words", columns, tuple((word.text.strip(), *word[1:]) for word in words), notes)
    return ShadedAnswer(question, [(word.text, word.level) for word in words], table)


def _reliability(panel: str, curves: Curves) -> UncertaintyFigure:
    title = "Is the confidence right?"
    if not curves.versions:
        return UncertaintyFigure(title, "", Markup(), undefined=curves.undefined)
    name = f"{panel}-reliability"
    caption = (
        "Share of correct answers against mean confidence, in 10 bins, with 95 % intervals; on the line the "
        "two are equal. Below: how many answers each bin holds."
    )
    if curves.undefined:
        caption = f"{caption} Not calibrated: {curves.undefined}."
    figure = Markup(reliability_figure(name, curves.versions))
    return UncertaintyFigure(title, caption, figure, reliability_table(curves.versions), name)


RISKS = (0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3)
"""Risks that the page offers a guarantee for."""
_FIRST_RISK = 3


def _searches(assessment: Assessment, estimator: str, correctness: str) -> list[ThresholdSearch]:
    """Search a guarantee for each risk that the page offers; none where questions are no even sample."""
    try:
        return [find_guarantee(assessment, estimator, correctness, risk, CONFIDENCE)[0] for risk in RISKS]
    except DataError:
        return []


def _slider(panel: str, searches: Sequence[ThresholdSearch], estimator: str) -> Markup:
    """Write the slider with the share that may be shown at each risk."""
    lines = [
        Markup('<p class="risk" data-risk="{:g}"{}>{}</p>').format(
            search.risk,
            Markup("" if index == _FIRST_RISK else " hidden"),
            guarantee_sentence(search, estimator),
        )
        for index, search in enumerate(searches)
    ]
    slider = Markup(
        '<div class="risks"><label for="{0}-risk">Share that may be wrong</label> '
        '<input type="range" id="{0}-risk" min="0" max="{1}" value="{2}" autocomplete="off" disabled>'
        "{3}</div>"
    )
    return slider.format(panel, len(searches) - 1, _FIRST_RISK, Markup("").join(lines))


def _coverage(
    panel: str, curves: Curves, searches: Sequence[ThresholdSearch], estimator: str
) -> UncertaintyFigure:
    name = f"{panel}-coverage"
    bounds = {
        search.risk: (test.coverage, test.bound) for search in searches if (test := search.chosen) is not None
    }
    svg = coverage_figure(
        name, curves.risks.tolist(), curves.best.tolist(), curves.accuracy, guaranteed=bounds
    )
    figure = Markup(svg) + (_slider(panel, searches, estimator) if searches else Markup())
    caption = (
        "Share of wrong answers if only the most confident part of the questions is answered. Equal scores "
        "count as the average over all their orders. The band ends at the bound of Clopper and Pearson for "
        "each share by itself; diamonds are the bounds of thresholds that guarantee a risk, the dark one of "
        "the risk chosen below."
    )
    return UncertaintyFigure(
        "What is wrong if the unsure are left out?", caption, figure, curves.coverage, name
    )
