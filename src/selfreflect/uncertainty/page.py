"""Page section on estimators as predictors of correctness."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from markupsafe import Markup

from selfreflect.errors import DataError
from selfreflect.plots import (
    CHOICE,
    INK,
    LINE,
    MARK,
    MARKERS,
    QUIET,
    drawing,
    short_name,
    svg,
)
from selfreflect.report.page.frame import (
    EstimatorPanel,
    ShadedAnswer,
    UncertaintyFigure,
    UncertaintyPart,
    unbroken,
)
from selfreflect.stats import CONFIDENCE, Floats, wilson
from selfreflect.table import Cell, Column, Table, to_csv
from selfreflect.uncertainty.assess import Assessment, Prediction, ScoredAnswers
from selfreflect.uncertainty.calibrator_file import find_guarantee
from selfreflect.uncertainty.estimators import ESTIMATORS
from selfreflect.uncertainty.features import UnsureWord, unsure_words
from selfreflect.uncertainty.guarantee import ThresholdSearch, upper_bound
from selfreflect.uncertainty.measures import INTERVALS, definitions
from selfreflect.uncertainty.prediction import BINS, Tally, bin_of, expected_risks
from selfreflect.uncertainty.tables import (
    RANKED_BY,
    assessment_notes,
    conclude,
    doubt_of,
    guarantee_sentence,
    ranking_table,
)


def best_first(rows: Sequence[Prediction]) -> list[Prediction]:
    """Sort estimators by AUROC, missing values last, without baselines."""
    methods = [row for row in rows if not row.baseline]

    def rank(row: Prediction) -> float:
        area = row.measures["auroc"].value if "auroc" in row.measures else None
        return 1.0 if area is None else -area

    return sorted(methods, key=rank)


def best_sentence(rows: Sequence[Prediction]) -> str:
    """Name the best estimator, or explain why none can be ranked; empty without AUROC."""
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
"""Number of rows in a table of coverages."""


def reliability_table(versions: Mapping[str, Sequence[ReliabilityBin]]) -> Table:
    """Tabulate the non-empty bins of a reliability diagram."""
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
    """Tabulate the risk at each tenth of the questions answered."""
    n = len(risks)
    rows: list[tuple[Cell, ...]] = []
    for tenth in range(1, COVERAGES + 1):
        count = max(1, round(n * tenth / COVERAGES))
        # of few questions, two tenths are the same number
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
"""Maximum number of estimators with figures per part, the best first, to limit size and time."""


def uncertainty_part(
    assessment: Assessment,
    correctness: str,
    rows: Sequence[Prediction],
    *,
    name: str = "uncertainty",
    label: str = "",
) -> UncertaintyPart:
    """Build the sentence, table and figures for one kind of correctness.

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
    estimators = [row.estimator for row in best_first(rows) if row.n]
    for estimator in estimators[:PANELS]:
        panel_name = f"{part.name}-{estimator}"
        answers = assessment.labelled_scores(estimator, correctness)
        searches = _searches(assessment, estimator, correctness)
        figures = [
            _reliability(panel_name, estimator, answers),
            _coverage(panel_name, estimator, answers, searches),
        ]
        part.panels.append(EstimatorPanel(estimator, panel_name, figures))
        for figure in figures:
            if figure.table is not None:
                part.csv[figure.name] = to_csv(figure.table)
    if len(estimators) > PANELS:
        part.notes.append(
            f"Figures of the {PANELS} estimators with the highest AUROC; choose with --estimators."
        )
    return part


SHOWN = 20
"""Maximum number of answers with shaded words, the least certain first."""


def shaded_answers(assessment: Assessment) -> list[ShadedAnswer]:
    """Shade the words of judged answers with stored likely tokens."""
    shaded = []
    for samples in assessment.samples:
        question = samples.question
        texts = [question.answers[index] for index in samples.judged_members]
        tokens = question.token_values
        if not (tokens.top_logprobs and tokens.tokens and tokens.logprobs and texts):
            continue
        judged = samples.judged_answer
        # a judged answer may be none of the samples: then the first of its class stands for it
        index = samples.judged_members[texts.index(judged) if judged in texts else 0]
        words = unsure_words(tokens.tokens[index], tokens.logprobs[index], tokens.top_logprobs[index])
        if words:
            shaded.append((max(word.entropy for word in words), question.text or question.id, words))
    shaded.sort(key=lambda entry: -entry[0])
    return [_shaded(text, words) for _, text, words in shaded[:SHOWN]]


def _shaded(question: str, words: Sequence[UnsureWord]) -> ShadedAnswer:
    columns = (Column("word"), *(Column(name, ".3f") for name in UnsureWord._fields[1:]))
    notes = ("Entropies are in nats; the entropy of the whole prediction lies between low and high.",)
    table = Table("Words", columns, tuple((word.text.strip(), *word[1:]) for word in words), notes)
    return ShadedAnswer(question, [(word.text, word.level) for word in words], table)


def _reliability(panel: str, estimator: str, answers: ScoredAnswers) -> UncertaintyFigure:
    title = "Is the confidence right?"
    versions, undefined = {}, ""
    if ESTIMATORS[estimator].is_probability:
        versions["as it is"] = reliability(answers.scores, answers.labels)
    calibrated = answers.calibrated()
    if not isinstance(calibrated, str):
        versions["calibrated"] = reliability(calibrated, answers.labels)
    elif versions:
        undefined = f" Not calibrated: {calibrated}."
    else:
        reason = f"{estimator} is not a probability, and {calibrated}"
        return UncertaintyFigure(title, "", Markup(), undefined=reason)
    name = f"{panel}-reliability"
    caption = (
        "Share of correct answers against mean confidence, in 10 bins, with 95 % intervals; on the diagonal "
        "the two are equal. Below: the number of answers in each bin."
    )
    figure = Markup(reliability_figure(name, versions))
    return UncertaintyFigure(title, caption + undefined, figure, reliability_table(versions), name)


RISKS = (0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3)
"""Risks for which the page offers a guarantee."""
_FIRST_RISK = 3


def _searches(assessment: Assessment, estimator: str, correctness: str) -> list[ThresholdSearch]:
    """Search for a guarantee at each risk on the page; empty without questions with equally many answers."""
    try:
        return [find_guarantee(assessment, estimator, correctness, risk, CONFIDENCE)[0] for risk in RISKS]
    except DataError:
        return []


def _slider(panel: str, searches: Sequence[ThresholdSearch], estimator: str) -> Markup:
    """Write the slider that shows the covered share at each risk."""
    lines = [
        Markup('<p class="risk" data-risk="{:g}"{}>{}</p>').format(
            search.risk,
            Markup("" if index == _FIRST_RISK else " hidden"),
            unbroken(guarantee_sentence(search, estimator)),
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
    panel: str, estimator: str, answers: ScoredAnswers, searches: Sequence[ThresholdSearch]
) -> UncertaintyFigure:
    name = f"{panel}-coverage"
    counts = np.arange(1, len(answers.labels) + 1)
    risks = expected_risks(Tally.of(answers.scores, answers.labels))
    # in the best order all right answers come first
    best = np.maximum(0, counts - answers.labels.sum()) / counts
    accuracy = float(answers.labels.mean())
    bounds = {
        search.risk: (test.coverage, test.bound) for search in searches if (test := search.chosen) is not None
    }
    figure = Markup(coverage_figure(name, risks, best, accuracy, bounds))
    if searches:
        figure += _slider(panel, searches, estimator)
    caption = (
        "Share of wrong answers if only the most confident questions are answered. Equal scores "
        "count as the average over all their orders. The band ends at the Clopper-Pearson bound, computed "
        "for each share alone; diamonds are the bounds of thresholds that guarantee a risk, the dark one for "
        "the risk chosen below."
    )
    table = coverage_table(risks, best, accuracy)
    return UncertaintyFigure(
        "How many answers are wrong if unsure ones are left out?", caption, figure, table, name
    )


@dataclass(frozen=True)
class ReliabilityBin:
    """Answers with confidence in one bin; empty bins have no means."""

    low: float
    high: float
    n: int = 0
    confidence: float | None = None
    """Mean confidence."""
    accuracy: float | None = None
    """Share of correct answers, with its 95% Wilson interval."""
    accuracy_low: float | None = None
    accuracy_high: float | None = None

    @property
    def name(self) -> str:
        """The bin as an interval; the last one also contains 1."""
        return f"[{self.low:g}, {self.high:g}{']' if self.high == 1 else ')'}"


def reliability(
    confidences: Sequence[float] | Floats, correct: Sequence[bool] | Floats
) -> list[ReliabilityBin]:
    """Count answers in bins of equal width ``[low, high)``, as in ``ece_10_left``.

    Args:
        confidences: in [0, 1], shape (n,).
        correct: 0 or 1, shape (n,).

    Raises:
        DataError: a confidence is outside [0, 1].
    """
    values = np.asarray(confidences, dtype=np.float64)
    labels = np.asarray(correct, dtype=np.float64)
    if not ((values >= 0) & (values <= 1)).all():
        raise DataError("a reliability diagram needs confidences in [0, 1]")
    bin_numbers = bin_of(values)
    result = []
    for number in range(BINS):
        inside = bin_numbers == number
        numbers: list[Any] = []
        if count := int(inside.sum()):
            accuracy = float(labels[inside].mean())
            numbers = [count, float(values[inside].mean()), accuracy, *wilson(accuracy, count)]
        result.append(ReliabilityBin(number / BINS, (number + 1) / BINS, *numbers))
    return result


_COLOURS = (MARK, QUIET)
_CURVE_POINTS = 200
_BOUND_POINTS = 40


def reliability_figure(name: str, versions: Mapping[str, Sequence[ReliabilityBin]]) -> str:
    """Draw accuracy with intervals against mean confidence, above the number of answers per bin.

    Args:
        versions: up to two ways to calibrate, by name.
    """
    with drawing(name, "page", 4.4) as figure:
        above, below = figure.subplots(2, 1, sharex=True, height_ratios=(3, 1))
        above.plot([0, 1], [0, 1], color=QUIET, linewidth=0.8)
        for index, (label, bins) in enumerate(versions.items()):
            points = [
                (entry.confidence, entry.accuracy, entry.accuracy_low, entry.accuracy_high)
                for entry in bins
                if entry.n
            ]
            x, accuracy, low, high = np.array(points, dtype=np.float64).reshape(-1, 4).T
            above.vlines(x, low, high, color=_COLOURS[index], linewidth=1.2)
            above.plot(
                x,
                accuracy,
                MARKERS[index],
                color=_COLOURS[index],
                markersize=5,
                label=short_name(label),
            )
            # the bars of both versions share a bin, which is 0.1 wide
            width = 0.08 / len(versions)
            low, counts = np.array([(entry.low, entry.n) for entry in bins]).T
            starts = low + 0.01 + index * width
            below.bar(starts, counts, width=width, align="edge", color=_COLOURS[index], linewidth=0)
        above.set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.02), ylabel="share correct")
        below.set(xlabel="confidence", ylabel="answers")
        below.locator_params(axis="y", nbins=3, integer=True)
        for axes in (above, below):
            axes.grid(color=LINE, linewidth=0.6)
            axes.set_axisbelow(True)
        if len(versions) > 1:
            figure.legend(loc="outside upper center", frameon=False, ncols=2, fontsize="small")
        return svg(figure, "page")


def coverage_figure(
    name: str, risks: Floats, best: Floats, accuracy: float, guaranteed: Mapping[float, tuple[float, float]]
) -> str:
    """Draw the errors of the k most confident answers, compared with a random order, the best order and the
    bound.

    Args:
        risks, best: for k = 1, …, n.
        guaranteed: by risk the share answered and the bound of the risk there.
    """
    n = len(risks)
    # a point for each of many questions would make the page large, and no difference to the eye
    step = max(1, n // _CURVE_POINTS)
    indices = np.array([*range(0, n - 1, step), n - 1])
    coverage = (indices + 1) / n
    with drawing(name, "page", 3.2) as figure:
        axes = figure.subplots()
        axes.plot([0, 1], [1 - accuracy] * 2, "--", color=QUIET, linewidth=1, label="random order")
        axes.plot(coverage, best[indices], ":", color=INK, linewidth=1.2, label="best order")
        axes.plot(coverage, risks[indices], "-", color=MARK, linewidth=1.6, label="estimator")
        counts = np.unique(np.linspace(1, n, min(n, _BOUND_POINTS)).astype(int))
        bounds = [upper_bound(round(risks[count - 1] * count), int(count), CONFIDENCE) for count in counts]
        axes.fill_between(counts / n, risks[counts - 1], bounds, color=MARK, alpha=0.15, linewidth=0)
        for risk, (share, bound) in guaranteed.items():
            mark = axes.plot([share], [bound], "D", color=INK, markersize=6, gid=f"{CHOICE}{risk:g}")
            mark[0].set_clip_on(False)  # a share of 1 lies on the edge
        axes.set(xlim=(0, 1), ylim=(-0.02, None), xlabel="share of questions answered", ylabel="share wrong")
        axes.grid(color=LINE, linewidth=0.6)
        axes.set_axisbelow(True)
        figure.legend(loc="outside upper center", frameon=False, ncols=3, fontsize="small")
        return svg(figure, "page")
