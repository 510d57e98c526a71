"""The part of a page that shows how well estimators predict correctness."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from markupsafe import Markup

from selfreflect.errors import DataError
from selfreflect.report.page.frame import EstimatorPanel, ShadedAnswer, UncertaintyFigure, UncertaintyPart
from selfreflect.stats import CONFIDENCE, Estimate, Floats, defined
from selfreflect.table import Cell, Column, Table, joined, to_csv
from selfreflect.text import counted, percent
from selfreflect.uncertainty.assess import Assessment, Prediction, ScoredAnswers
from selfreflect.uncertainty.calibrator_file import find_guarantee
from selfreflect.uncertainty.estimators import ESTIMATORS
from selfreflect.uncertainty.features import UnsureWord, unsure_words
from selfreflect.uncertainty.figures import (
    ReliabilityBin,
    coverage_figure,
    dots_step,
    length_figure,
    reliability,
    reliability_figure,
)
from selfreflect.uncertainty.guarantee import ThresholdSearch
from selfreflect.uncertainty.length_audit import LengthAudit
from selfreflect.uncertainty.measures import (
    FEWEST_RESAMPLED,
    INTERVALS,
    RESAMPLES,
    MeasuredValue,
    definitions,
    least_share,
    percentile_interval,
)
from selfreflect.uncertainty.prediction import Tally, auroc, expected_risks
from selfreflect.uncertainty.question import sample_sizes
from selfreflect.uncertainty.tables import (
    assessment_notes,
    guarantee_sentence,
    interval_cells,
    length_notes,
    range_text,
    row_name,
    undefined_notes,
)

_CHANCE = 0.5


def best_first(rows: Sequence[Prediction]) -> list[Prediction]:
    """Sort estimators by AUROC; those without one come last, and baselines are left out."""
    methods = [row for row in rows if not row.baseline]
    areas = {row.estimator: _value(row.measures, "auroc") for row in methods}
    return sorted(methods, key=lambda row: (areas[row.estimator] is None, -(areas[row.estimator] or 0)))


class Headline:
    """Result of the best estimator for one kind of correctness.

    Args:
        rows: estimators and baselines, at least one with answers.
    """

    def __init__(self, assessment: Assessment, correctness: str, rows: Sequence[Prediction]) -> None:
        self._assessment = assessment
        self._correctness = correctness
        self._rows = {row.estimator: row for row in rows}
        self._ranked = best_first(rows)

    def lead(self) -> str:
        """Word the result in one sentence: discrimination, calibration, and length alone."""
        if not self._ranked:
            return "No estimator was measured."
        best = self._ranked[0]
        if not best.n:
            return "No estimator has a value for a question whose right answer is known."
        area = best.measures.get("auroc")
        if area is None:
            return f"{counted(len(self._ranked), 'estimator')} on {counted(best.n, 'question')}."
        if area.value is None:
            return f"No estimator can be judged by AUROC: {area.undefined}."
        several = f" best of {len(self._ranked)} estimators" if len(self._ranked) > 1 else ""
        verb = f"tells correct from wrong answers{several}"
        if area.value <= _CHANCE:
            though = f", though the{several}" if several else ""
            verb = f"tells correct from wrong answers no better than guessing{though}"
        elif area.low is None or area.low <= _CHANCE:
            verb = f"{verb}, but not clearly better than guessing"
        parts = [f"{best.estimator} {verb}: AUROC {_with_interval(area)}", self._calibration_clause()]
        return f"{'; '.join(filter(None, [*parts, self._length_clause()]))}."

    def about(self) -> list[str]:
        """Say what the lead rests on."""
        labels = defined(self._assessment.judged.labels[self._correctness])
        sentences = [f"No answer could be judged ({self._correctness})."]
        if labels:
            share = percent(sum(labels) / len(labels), 1)
            questions = counted(len(labels), "question")
            sentences = [f"{share} of the judged answers to {questions} are correct ({self._correctness})."]
        beyond = self._beyond_length
        if beyond is not None and beyond.low is not None:
            sentences.append(
                f"The AUROC of {self._ranked[0].estimator} minus that of length alone (shorter is surer) is "
                f"{_signed(beyond.mean)} (95 % {_signed(beyond.low)} to {_signed(beyond.high)})."
            )
        if self._ranked:
            sentences.append(self._brier_sentence(self._ranked[0]))
        if len(self._ranked) > 1:
            sentences.append(
                "The best of several looks a little better than it is, because these questions chose it."
            )
        return list(filter(None, sentences))

    @cached_property
    def _beyond_length(self) -> Estimate | None:
        """AUROC of the best estimator minus that of length, on the questions with both."""
        if not self._ranked:
            return None
        answers = self._assessment.labelled_scores(self._ranked[0].estimator, self._correctness)
        scores, labels, lengths = answers.with_lengths()
        return auroc_difference(scores, -lengths, labels) if len(lengths) else None

    def _length_clause(self) -> str:
        if "length" not in self._rows or self._beyond_length is None:
            return ""
        area = _value(self._rows["length"].measures, "auroc")
        if area is None:
            return ""
        verdicts = {0: "not clearly different", 1: "clearly less", -1: "clearly more"}
        verdict = verdicts[self._beyond_length.side_of(0)]
        return f"length alone has an AUROC of {area:.3f}, which is {verdict}"

    def _calibration_clause(self) -> str:
        best = self._ranked[0]
        before, after = _value(best.measures, "ece_10_left"), _value(best.isotonic, "ece_10_left")
        if before is None and after is None:
            return ""
        calibrated = "" if after is None else f"{after:.3f} after calibration on other questions"
        if before is None:
            return f"its calibration error (ECE) is {calibrated}"
        clause = f"its calibration error (ECE) is {before:.3f} as it is"
        return f"{clause} and {calibrated}" if calibrated else clause

    def _brier_sentence(self, best: Prediction) -> str:
        """Compare the squared error with that of always saying the accuracy."""
        constant = self._rows.get("constant")
        base = None if constant is None else _value(constant.measures, "brier")
        if base is None or not best.n:
            return ""
        name = best.estimator
        before, after = best.measures.get("brier"), best.isotonic.get("brier")
        calibrated = "not known after calibration, which needs 5 questions and the calibrate extra"
        if after is not None and after.value is not None:
            calibrated = f"{_with_interval(after)} after calibration"
        end = f"always saying the accuracy has {base:.3f}."
        if not ESTIMATORS[name].is_probability:
            return f"{name} is no probability as it is; its Brier score is {calibrated}; {end}"
        if before is None or before.value is None:
            return f"The Brier score of {name} is {calibrated}; {end}"
        return f"The Brier score of {name} is {_with_interval(before)} as it is and {calibrated}; {end}"


def _value(measures: Mapping[str, MeasuredValue], name: str) -> float | None:
    return measures[name].value if name in measures else None


def _with_interval(measurement: MeasuredValue) -> str:
    interval = ""
    if measurement.low is not None and measurement.high is not None:
        interval = f" (95 % {measurement.low:.3f} to {measurement.high:.3f})"
    return f"{measurement.value:.3f}{interval}"


def _signed(value: float | None) -> str:
    return "–" if value is None else f"{value:+.3f}"


def auroc_difference(
    first_scores: Floats, second_scores: Floats, correct: Floats, *, seed: int = 0
) -> Estimate | None:
    """AUROC of one score minus that of another, in the same resamples of the answers.

    Args:
        first_scores, second_scores, correct: shape (n,); a higher score means more confidence.

    Returns:
        The difference with its 95% bootstrap interval, whose ends are None where there are too few answers.
        None where AUROC is undefined: all answers are correct, or all are wrong.
    """
    n = len(correct)
    columns = [np.unique(scores, return_inverse=True) for scores in (first_scores, second_scores)]

    def difference(weights: Floats) -> float:
        """Compare both scores in a resample, where ``weights`` count each answer."""
        areas = []
        for values, group in columns:
            counts: Floats = np.bincount(group, weights, minlength=len(values)).astype(np.float64)
            right: Floats = np.bincount(group, weights * correct, minlength=len(values)).astype(np.float64)
            areas.append(float(auroc(Tally(values, counts, right))))
        return areas[0] - areas[1]

    value = difference(np.ones(n))
    if np.isnan(value):
        return None
    rng = np.random.default_rng(seed)
    differences = []
    smallest = min(float(correct.sum()), n - float(correct.sum()))
    # with few answers of one kind, an interval does not cover as often as it says
    if smallest >= FEWEST_RESAMPLED:
        for _ in range(RESAMPLES):
            rows = rng.integers(0, n, n)
            differences.append(difference(np.bincount(rows, minlength=n).astype(np.float64)))
    low, high = percentile_interval([np.array(differences)] if differences else [], value)
    if differences and abs(value) == 1:  # so are all resamples
        lowest = 2 * least_share(smallest) - 1
        low, high = (lowest, 1.0) if value > 0 else (-1.0, -lowest)
    return Estimate(value, low, high, n, n)


COVERAGES = 10
"""Rows of a table of coverages."""


def overview_table(assessment: Assessment, rows: Sequence[Prediction]) -> Table:
    """List estimators and baselines, with their inputs and how well they predict correctness."""
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
    columns += [Column("rho length", "+.2f"), Column("partial rho", "+.2f"), Column("effect", "+.2f")]
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
        audit = row.audit
        numbers += [
            audit.score_with_length if audit else None,
            audit.score_with_correct_at_length if audit else None,
            audit.score_effect if audit else None,
        ]
        cells.append((name, kind, row.n, *numbers, *_facts(assessment, row, samples)))
    notes = definitions(measures)
    notes += [INTERVALS, "A baseline is what an estimator should beat."]
    if calibrated:
        notes.append("isotonic: after isotonic calibration on the other four fifths of the questions.")
    if any(row.audit for row in rows):
        notes.append(
            "rho length: rank correlation of confidence and length. partial rho: of confidence and "
            "correctness, at equal length. effect: by how much the chance of being correct rises from the "
            "10th to the 90th percentile of the score at equal length."
        )
    greedy = [row.estimator for row in rows if not row.baseline and ESTIMATORS[row.estimator].of_greedy]
    if greedy:
        notes.append(f"{', '.join(greedy)}: of the greedy answer, if it is stored; so is correctness there.")
    notes += undefined_notes(rows)
    notes.append("Measures of calibration are left out where a score is no probability.")
    title = f"Estimators and baselines ({rows[0].correctness})"
    return Table(title, tuple(columns), tuple(cells), tuple(notes))


def _facts(assessment: Assessment, row: Prediction, samples: str) -> tuple[Cell, ...]:
    info = ESTIMATORS.get(row.estimator)
    if info is None:
        return None, "confidence", None, None, row.correctness, None
    made_of = (samples, assessment.method.rule.name) if info.is_sampled else (None, None)
    return range_text(info), info.direction, *made_of, row.correctness, assessment.variant(row.estimator)


def sample_numbers(assessment: Assessment) -> str:
    """Say how many answers each question has."""
    sizes = sample_sizes(assessment.questions)
    return f"{sizes[0]}" if len(sizes) == 1 else f"{sizes[0]} to {sizes[-1]}"


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


def length_table(audit: LengthAudit) -> Table:
    """List how confidence, correctness and length depend on each other."""
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
        versions["isotonic, cross-fitted"] = reliability(calibrated, labels)
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


def joined_tables(curves_by_name: Mapping[str, Curves]) -> tuple[Table, Table]:
    """Join the bins, and the coverages, of one or more estimators."""
    bins = joined(
        {name: reliability_table(curves.versions) for name, curves in curves_by_name.items()}, "estimator"
    )
    coverages = joined({name: curves.coverage for name, curves in curves_by_name.items()}, "estimator")
    return bins, coverages


def part_without_figures(
    assessment: Assessment,
    correctness: str,
    rows: Sequence[Prediction],
    *,
    name: str = "uncertainty",
    label: str = "",
) -> UncertaintyPart:
    """Make the sentences and the table of questions under one kind of correctness.

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
        baselines=frozenset(index for index, row in enumerate(rows) if row.baseline),
        panels=[],
        notes=[*length_notes(rows), *assessment_notes(assessment)],
        csv={f"{name}-estimators": to_csv(table)},
    )


def uncertainty_part(
    assessment: Assessment, correctness: str, rows: Sequence[Prediction], **names: str
) -> UncertaintyPart:
    """Make the same with figures; arguments as of :func:`part_without_figures`."""
    part = part_without_figures(assessment, correctness, rows, **names)
    curves_by_name = all_curves(assessment, correctness, rows)
    row_of = {row.estimator: row for row in rows}
    for estimator, curves in list(curves_by_name.items())[:PANELS]:
        panel = EstimatorPanel(estimator, f"{part.name}-{estimator}", [])
        panel.figures.append(_reliability(panel.name, curves))
        searches = _searches(assessment, estimator, correctness)
        panel.figures.append(_coverage(panel.name, curves, searches, estimator))
        panel.figures.append(_length(panel.name, assessment, row_of[estimator]))
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
    return ShadedAnswer(question, [(word.text, word.levels) for word in words], table)


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
    """Write what may be shown at each risk, of which a slider shows one."""
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
