"""Tables of estimators, and of their quality as predictors of correctness."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from typing import NamedTuple

import numpy as np

from selfreflect.stats import Floats, defined
from selfreflect.table import INTERVAL, Cell, Column, Table, interval_text
from selfreflect.text import counted, exact_percent, one_line, percent
from selfreflect.uncertainty.assess import Assessment, Prediction, labelled_answers, present, right_counts
from selfreflect.uncertainty.calibrator_file import CalibratorFile
from selfreflect.uncertainty.estimators import ESTIMATORS, Estimator
from selfreflect.uncertainty.features import modal_share
from selfreflect.uncertainty.guarantee import (
    Guarantee,
    NoSetRule,
    SetRule,
    ThresholdSearch,
    answer_set,
    classes_of,
    is_other_sample,
    right_shares,
)
from selfreflect.uncertainty.measures import FEWEST_RESAMPLED, SHORT, MeasuredValue, definitions, measure_all
from selfreflect.uncertainty.prediction import Tally
from selfreflect.uncertainty.question import NoValue, sample_sizes

BASELINES = {"constant": "constant (base rate)", "length": "length only"}
AFTER = ("ece_10_left", "brier", "auroc")
"""Measures before and after calibration."""
ALSO_AFTER = ("smooth_ece", "log_loss")
"""Further measures, reported below the table for lack of room."""


def value_table(assessment: Assessment) -> Table:
    """Tabulate every estimator's values over all questions."""
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


def modal_shares(assessment: Assessment) -> list[tuple[float, int]]:
    """Pair the share of each answered question's largest class with the question's index."""
    numbered = enumerate(assessment.samples)
    return [(modal_share(samples.labels), index) for index, samples in numbered if samples.question.answers]


LEAST_AGREEING = 10
"""Maximum number of questions in :func:`agreement_table`."""


def agreement_table(assessment: Assessment, shares: Sequence[tuple[float, int]]) -> Table:
    """Tabulate the questions with the least agreement, with their most common answers.

    Args:
        shares: from :func:`modal_shares`.
    """
    rows: list[tuple[Cell, ...]] = []
    for share, index in sorted(shares)[:LEAST_AGREEING]:
        samples = assessment.samples[index]
        question = samples.question
        text, answer = one_line(question.text or question.id, 60), one_line(samples.modal_answer or "", 40)
        rows.append((text, answer, share, len(set(samples.labels)), len(question.answers)))
    columns = (
        Column("question"),
        Column("commonest answer"),
        Column("share %", ".0f", factor=100),
        Column("kinds", "d"),
        Column("answers", "d"),
    )
    return Table("Least agreement first", columns, tuple(rows))


MOST_CONFIDENT = 20
"""Maximum number of questions in :func:`confidence_table`."""


def confidence_table(
    assessment: Assessment,
    estimator: str,
    indices: Sequence[int],
    confidences: Floats,
    promises: Sequence[Mapping[str, object]],
) -> Table:
    """Tabulate the most confident answers, with whether a guarantee lets them be shown.

    Args:
        indices: the questions that ``confidences`` and ``promises`` belong to.
    """
    texts = assessment.answers_of(estimator).texts
    is_guaranteed = bool(promises) and "answered" in promises[0]
    rows: list[tuple[Cell, ...]] = []
    values = [assessment.values[estimator][index] for index in indices]
    scores = np.array([ESTIMATORS[estimator].score(value) for value in values if isinstance(value, float)])
    # several scores have the same confidence, and a guarantee has a threshold of the score
    for position in np.lexsort((-scores, -confidences))[:MOST_CONFIDENT].tolist():
        index = indices[position]
        question = assessment.questions[index]
        text, answer = one_line(question.text or question.id, 60), one_line(texts[index] or "", 40)
        shown = ("yes" if promises[position]["answered"] else "no",) if is_guaranteed else ()
        rows.append((text, answer, values[position], float(confidences[position]), *shown))
    columns = [Column("question"), Column("answer"), Column(estimator, ".3g"), Column("confidence", ".3f")]
    if is_guaranteed:
        columns.append(Column("may be shown"))
    notes = ["confidence: the chance that an answer is right, the number to show with it."]
    if len(indices) > len(rows):
        notes.append(f"These are {len(rows)} of {len(indices):,} answers; --json lists all.")
    return Table("Answers, most confident first", tuple(columns), tuple(rows), tuple(notes))


def range_text(info: Estimator) -> str:
    """Format an estimator's declared range as an interval."""
    low = "(-∞" if math.isinf(info.low) else f"[{info.low:g}"
    high = "∞)" if math.isinf(info.high) else f"{info.high:g}]"
    return f"{low}, {high}"


def sample_numbers(assessment: Assessment) -> str:
    """Format the number of answers per question."""
    sizes = sample_sizes(assessment.questions)
    return f"{sizes[0]}" if len(sizes) == 1 else f"{sizes[0]} to {sizes[-1]}"


def assessment_notes(assessment: Assessment) -> list[str]:
    """Describe the sources of values, and reasons for missing ones."""
    notes = [
        f"{counted(len(assessment.questions), 'question')}, answers to each: {sample_numbers(assessment)}. "
        f"Classes: {assessment.method.rule.name}. Similarity of answers: {assessment.method.similarity}."
    ]
    notes += [f"Classes: {caveat}." for caveat in assessment.method.rule.caveats]
    if assessment.stated_faithfulness is not None:
        value, count = assessment.stated_faithfulness
        notes.append(
            f"cMFG {value:.3f} on {count} questions: how well the stated confidence follows the modal share; "
            "1 is best, and always stating the same confidence gives about 0.5."
        )
    for name in assessment.values:
        for reason, count in assessment.missing(name).items():
            notes.append(f"{name}: no value for {counted(count, 'question')}: {reason}.")
    return notes


def meanings(names: Iterable[str]) -> list[str]:
    """Say in one line each what estimators measure."""
    return [f"{name}: {ESTIMATORS[name].meaning}." for name in names if name in ESTIMATORS]


RANKED_BY = ("auroc", "brier")
"""Default measures of :func:`ranking_table`."""


def ranking_table(rows: Sequence[Prediction], correctness: str, names: Sequence[str] = RANKED_BY) -> Table:
    """Tabulate estimators and baselines by how well they predict correctness."""
    measure_columns, cells_by_row = measured([row.measures for row in rows], names)
    columns = [Column("estimator"), Column("n", "d"), *measure_columns]
    columns.append(Column("brier after calibration", ".3f", short="calibrated"))
    cells: list[tuple[Cell, ...]] = []
    for row, numbers in zip(rows, cells_by_row, strict=True):
        numbers.append(row.isotonic["brier"].value if row.isotonic else None)
        cells.append((BASELINES.get(row.estimator, row.estimator), row.n, *numbers))
    how_calibrated = (
        "Calibrated: isotonic, by maps that were fitted on the other four fifths of the questions."
    )
    notes = (
        *([how_calibrated] if any(row.isotonic for row in rows) else []),
        *length_notes(rows),
        *undefined_notes(rows),
    )
    return Table(f"Predicting correctness ({correctness})", tuple(columns), tuple(cells), notes)


def right_table(assessment: Assessment) -> Table:
    """Tabulate the number of right answers by each kind of correctness."""
    rows = []
    for name, count in right_counts(assessment).items():
        rows.append((name, count.right, count.labelled, count.wrong_with_gold))
    columns = (
        Column("correctness"),
        Column("right", "d"),
        Column("of", "d"),
        Column("wrong, but contains a right answer", "d", short="wrong with gold"),
    )
    return Table("What counts as right", columns, tuple(rows))


def undefined_notes(rows: Iterable[Prediction]) -> list[str]:
    """Explain missing numbers, one sentence per reason."""
    reasons: dict[str, dict[str, None]] = {}
    for row in rows:
        for name, measurement in row.measures.items():
            if measurement.undefined:
                reasons.setdefault(measurement.undefined, {})[name] = None
    return _undefined_sentences(reasons)


def _undefined_sentences(reasons: Mapping[str, Iterable[str]]) -> list[str]:
    return [f"Undefined (–), {', '.join(names)}: {reason}." for reason, names in reasons.items()]


def length_notes(predictions: Sequence[Prediction]) -> list[str]:
    """Describe how estimators depend on length as correctness does, one sentence per effect."""
    dependent: dict[str, list[tuple[str, float]]] = {}
    for row in predictions:
        if row.audit is not None and row.audit.dependence is not None:
            cause, _, label_rho = row.audit.dependence
            dependent.setdefault(cause, []).append((row.estimator, label_rho))
    return [
        f"Warning: correctness depends on {cause} (rank correlation {rows[0][1]:+.2f}), and so do "
        f"{', '.join(name for name, _ in rows)}. Part of their success or failure may be due to length "
        "alone; --json has the correlations at equal length."
        for cause, rows in dependent.items()
    ]


def measured(
    rows: Sequence[Mapping[str, MeasuredValue]], names: Iterable[str]
) -> tuple[list[Column], list[list[Cell]]]:
    """Build the columns of measures and their intervals, and each row's cells."""
    columns: list[Column] = []
    cells: list[list[Cell]] = [[] for _ in rows]
    for name in names:
        pairs = [interval_cells(row.get(name)) for row in rows]
        width = 2 if any(interval for _, interval in pairs) else 1
        columns += [Column(name, ".3f", short=SHORT.get(name, "")), Column(INTERVAL, ".3f")][:width]
        for row_cells, pair in zip(cells, pairs, strict=True):
            row_cells += pair[:width]
    return columns, cells


def interval_cells(measurement: MeasuredValue | None) -> tuple[Cell, Cell]:
    """Build the cells of a value and its interval."""
    if measurement is None:
        return None, None
    return measurement.value, interval_text(measurement.low, measurement.high, between=" to ")


def calibration_table(
    assessment: Assessment,
    estimator: str,
    correctness: str,
    indices: Sequence[int],
    confidences: Floats,
    how: str,
) -> Table:
    """Tabulate calibration before and after, over labelled questions.

    Args:
        indices: the questions that ``confidences`` belong to.
    """
    own_labels = assessment.answers_of(estimator).labels[correctness]
    # positions in ``indices`` and ``confidences``, not in the questions
    positions = present([own_labels[index] for index in indices])
    labels = np.array([float(bool(own_labels[indices[position]])) for position in positions])
    columns = [Column("confidence"), Column("mean", ".3f")]
    rows: list[tuple[Cell, ...]] = []
    if not positions:
        rows.append((how, float(confidences.mean()) if len(indices) else None))
        return Table(
            f"Calibration of {estimator}, n = {len(indices):,}",
            tuple(columns),
            tuple(rows),
            (
                "No labels, so nothing to compare with: --gold NAME names the right answers, and "
                "--column correct=NAME labels.",
            ),
        )
    after = confidences[positions]
    versions = {how: after, BASELINES["constant"]: np.full(len(positions), labels.mean())}
    if ESTIMATORS[estimator].is_probability:
        column = assessment.values[estimator]
        before = [value for position in positions if isinstance(value := column[indices[position]], float)]
        versions = {"before": np.array(before), **versions}
    undefined: dict[str, dict[str, None]] = {}
    groups = assessment.groups_of([indices[position] for position in positions])
    names = [*AFTER, *ALSO_AFTER]
    measurements = [measure_all(names, Tally.of(values, labels, groups)) for values in versions.values()]
    measure_columns, cells = measured(measurements, AFTER)
    for (name, values), row, numbers in zip(versions.items(), measurements, cells, strict=True):
        for measure, measurement in row.items():
            if measurement.undefined:
                undefined.setdefault(measurement.undefined, {})[measure] = None
        rows.append((name, float(values.mean()), *numbers))
    columns += measure_columns
    further = []
    for measure in ALSO_AFTER:
        values_by_version = zip(versions, (row[measure].value for row in measurements), strict=True)
        parts = [f"{value:.3f} {name}" for name, value in values_by_version if value is not None]
        further.append(f"{measure}: {'; '.join(parts) or 'undefined'}.")
    notes = [*further, *definitions(names), *_undefined_sentences(undefined)]
    count = f"n = {len(positions):,}"
    title = f"Calibration of {estimator} ({correctness}): accuracy {labels.mean():.3f}, {count}"
    return Table(title, tuple(columns), tuple(rows), tuple(notes))


def guarantee_table(search: ThresholdSearch, estimator: str) -> Table:
    """Tabulate the tests of a search, with the threshold or the missing labels."""
    rows: list[tuple[Cell, ...]] = []
    for test in search.tests:
        verdict = "passed" if test.p_value <= 1 - search.confidence else "failed"
        share = test.wrong / test.answered if test.answered else None
        numbers = (test.answered, test.wrong, share, test.bound, test.p_value, test.coverage)
        rows.append((threshold_text(estimator, test.threshold), *numbers, verdict))
    columns = (
        Column("shown where"),
        Column("answered", "d"),
        Column("wrong", "d"),
        Column("share wrong", ".3f"),
        Column("bound", ".4f"),
        Column("p", ".4f"),
        Column("coverage", ".0%"),
        Column("test"),
    )
    risk, confidence = search.risk, search.confidence
    title = f"At most {exact_percent(risk)} wrong among the answers shown, with confidence {confidence:.12g}"
    return Table(title, columns, tuple(rows), tuple(_search_notes(search, estimator)))


def threshold_text(estimator: str, threshold: float) -> str:
    """Write a score threshold as a value of the estimator."""
    info = ESTIMATORS[estimator]
    # adding 0.0 makes 0 of a negated zero
    return f"{estimator} {'≥' if info.confidence else '≤'} {info.score(threshold) + 0.0:.4g}"


def guarantee_sentence(search: ThresholdSearch, estimator: str) -> str:
    """Describe the share that may be shown at a risk, or the labels that this requires."""
    risk, best, nearest = exact_percent(search.risk), search.chosen, search.nearest
    if best is not None:
        threshold = threshold_text(estimator, best.threshold)
        return (
            f"{risk}: show answers where {threshold}. At most {risk} of them are wrong, with confidence "
            f"{search.confidence:.12g} over samples of labelled questions (bound "
            f"{percent(best.bound, 1)}); this threshold answers {percent(best.coverage, 1)} of the questions."
        )
    passes = "which passes no risk"
    if nearest in search.untested:
        passes = (
            f"but it was not tested: about {search.expected_of(nearest):.0f} of the tested questions were "
            f"expected to reach it, and a first test takes {search.enough}"
        )
    elif nearest.bound < 1:
        # rounded up: a lower risk would fail
        smallest = percent(math.ceil(1000 * nearest.bound) / 1000, 1)
        passes = f"which passes no risk below {smallest}"
    missing_labels = counted(search.labels_needed, "more labelled question")
    return (
        f"{risk}: no threshold qualifies. {threshold_text(estimator, nearest.threshold)} comes nearest, with "
        f"{nearest.wrong:,} wrong of {nearest.answered:,}, {passes}; about {missing_labels} would be needed "
        "if none of the newly shown answers were wrong."
    )


def _search_notes(search: ThresholdSearch, estimator: str) -> list[str]:
    labelled = counted(search.pilot + search.tested, "labelled question")
    notes = [
        guarantee_sentence(search, estimator),
        f"{labelled}: {search.pilot:,} set the thresholds, {search.tested:,} are tested.",
    ]
    if search.chosen is not None:
        notes.append(
            "It holds for questions drawn as these were, with answers of the same model, drawn in the same "
            "way; not for each topic by itself. Errors in the labels add to it."
        )
    return notes


def set_table(rule: SetRule | NoSetRule, assessment: Assessment, correctness: str) -> Table:
    """Tabulate a rule's sets on its own questions, or the reason for having none."""
    if isinstance(rule, SetRule):
        return _sets_table(rule, assessment, correctness)
    columns = (Column("labelled", "d"), Column("never drawn", "d"), Column("ceiling", ".3f"))
    rows: tuple[tuple[Cell, ...], ...] = ((rule.n, rule.unsampled, rule.ceiling),)
    note = f"With fewer than {rule.fewest} labelled questions nothing can be guaranteed."
    if rule.n >= rule.fewest:
        note = (
            f"No set can do that: the right answer was never drawn for {rule.unsampled} of {rule.n} "
            "questions, so no set of drawn answers can contain it more often than "
            f"{percent(rule.ceiling, 1)} (with confidence 0.95, at least {percent(rule.surely, 1)} is "
            "possible). More answers per question raise this ceiling."
        )
    return Table(_set_title(rule.coverage), columns, rows, (note,))


def _set_title(coverage: float) -> str:
    return f"Sets of answers that contain a right one for {exact_percent(coverage)} of questions"


def _sets_table(rule: SetRule, assessment: Assessment, correctness: str) -> Table:
    """Tabulate the sets of questions with as many answers as the rule requires."""
    is_known = correctness in assessment.judged.labels
    shares = right_shares(assessment, correctness) if is_known else {}
    sizes, covers = [], []
    for index, samples in enumerate(assessment.samples):
        if len(samples.question.answers) == rule.samples:
            sizes.append(len(answer_set(rule, classes_of(samples))))
            covers += [shares[index] >= rule.share] if index in shares else []
    means = (fmean(sizes) if sizes else None, fmean(covers) if covers else None)
    row = (rule.share, len(sizes), means[0], sizes.count(0), len(covers) or None, means[1])
    columns = (
        Column("class share at least", ".3f"),
        Column("questions", "d"),
        Column("mean size", ".2f", shown="answers per set"),
        Column("empty", "d", shown="empty sets"),
        Column("labelled", "d"),
        Column("contain a right answer", ".3f"),
    )
    note = (
        "A set contains the different answers that are likely enough. A set is empty where no answer is "
        "likely enough, so the mean number of answers may be below 1."
    )
    return Table(_set_title(rule.coverage), columns, (row,), (note,))


def promise_tables(
    saved: CalibratorFile, assessment: Assessment, indices: Sequence[int], scores: Sequence[float]
) -> list[Table]:
    """Tabulate a saved guarantee and saved sets on new questions.

    Args:
        indices: the questions that ``scores`` belong to.
    """
    tables = []
    if saved.guarantee:
        pairs = list(zip(indices, scores, strict=True))
        tables.append(_guaranteed_table(saved, saved.guarantee, assessment, pairs))
    if saved.sets:
        tables.append(_sets_table(saved.sets, assessment, saved.correctness))
    return tables


def _guaranteed_table(
    saved: CalibratorFile,
    guarantee: Guarantee,
    assessment: Assessment,
    pairs: Iterable[tuple[int, float]],
) -> Table:
    """Count the answers that may be shown, for questions with the guarantee's number of answers."""
    questions = assessment.questions
    pairs = [(index, score) for index, score in pairs if len(questions[index].answers) == guarantee.samples]
    answered = [index for index, score in pairs if guarantee.covers(score)]
    column = assessment.answers_of(saved.estimator).labels.get(saved.correctness, [])
    labels = defined(column[index] for index in answered if column)
    total = len(questions)
    counts = (len(labels), labels.count(False)) if defined(column) else (None, None)
    row = (total, len(answered), len(answered) / total, guarantee.coverage, *counts)
    columns = (
        Column("questions", "d"),
        Column("answered", "d"),
        Column("coverage", ".1%"),
        Column("of the labelled", ".1%"),
        Column("labels", "d"),
        Column("wrong", "d"),
    )
    notes = [
        f"Shown where {threshold_text(saved.estimator, guarantee.threshold)}: at most "
        f"{exact_percent(guarantee.risk)} of them wrong, with confidence {guarantee.confidence:.12g}, "
        f"from {guarantee.n} labelled questions."
    ]
    if is_other_sample(guarantee.scores, [score for _, score in pairs]):
        notes.append(
            "Warning: these scores have another distribution than the scores of the labelled "
            "questions (Kolmogorov-Smirnov), so the guarantee does not apply."
        )
    return Table("Guarantee", columns, (row,), tuple(notes))


RISK = 0.1
"""Default share of wrong answers that is permitted."""
SAYS = {
    "stated": "states a confidence of {} on average",
    "modal_share": "repeats its most common answer in {} of its samples",
}
"""Phrases for the model's confidence, by the first estimator with values."""


def doubt_of(auroc_low: float | None) -> str:
    """Explain why an AUROC is doubtful, by its interval's lower end; empty if it is clear."""
    if auroc_low is None:
        return f", but an interval needs {FEWEST_RESAMPLED} right and {FEWEST_RESAMPLED} wrong answers"
    return "" if auroc_low > 0.5 else ", but not clearly better than guessing"


class Conclusion(NamedTuple):
    """Conclusion on accuracy, confidence and the benefit of the best estimator; None if undefined."""

    correctness: str
    accuracy: float
    answers: int
    """Number of answers with a label or grade."""
    questions: int
    """Number of questions that these answers belong to."""
    sure_by: str | None
    """Estimator of the model's confidence."""
    sure: float | None
    """Mean of that estimator."""
    best: str | None
    """The estimator with the highest AUROC."""
    auroc: float | None
    auroc_low: float | None
    """Lower end of its 95 % interval; None if there is no interval."""
    risk: float
    """Permitted share of wrong answers."""
    answered: float | None
    """Share of questions answerable at this risk, by a threshold on the best estimator."""
    undefined: str
    """Reason for a missing best estimator; empty if there is one."""

    @property
    def finding(self) -> str:
        """The conclusion in words for readers new to the measures."""
        answers = counted(self.answers, "answer")
        if self.answers > self.questions:
            answers += f" to {counted(self.questions, 'question')}"
        elif self.questions > 1:
            answers += ", one to each question"
        parts = [f"the model is right in {percent(self.accuracy)} of {answers}"]
        if self.sure is not None and self.sure_by is not None:
            parts.append(f"it {SAYS[self.sure_by].format(percent(self.sure))}")
        if self.best is None or self.auroc is None or self.answered is None:
            parts.append(f"it is not known which estimator tells right from wrong best: {self.undefined}")
        elif self.auroc <= 0.5:
            parts.append("no estimator tells right from wrong better than chance")
        else:
            doubt = doubt_of(self.auroc_low)
            parts.append(f"{self.best} tells right from wrong best (AUROC {self.auroc:.2f}){doubt}")
            share, risk = percent(self.answered), exact_percent(self.risk)
            # chosen on the labels that it is measured with, so other questions may turn out worse
            parts.append(
                f"in hindsight, {share} of these questions could be answered with at most {risk} errors"
            )
        return "; ".join(parts)

    @property
    def sentence(self) -> str:
        """The conclusion as a sentence for the terminal, naming the kind of correctness."""
        return f"In short ({self.correctness}): {self.finding}."


def conclude(assessment: Assessment, correctness: str, risk: float = RISK) -> Conclusion | None:
    """Summarise how well the model knows what it knows; None without labelled answers.

    Args:
        risk: share of wrong answers that may be given.
    """
    right, ids = 0, Counter[str]()
    for answer in labelled_answers(assessment, correctness):
        right += answer.right
        ids[answer.question.id] += 1
    if not ids:
        return None
    sure_by = sure = None
    for name in SAYS:
        values = [value for value in assessment.values.get(name, ()) if not isinstance(value, NoValue)]
        if values:
            sure_by, sure = name, fmean(values)
            break
    tallies, aurocs = {}, {}
    undefined = "no estimator has a value"
    for name in assessment.values:
        answers = assessment.labelled_scores(name, correctness)
        if not len(answers.labels):
            continue
        tallies[name] = Tally.of(answers.scores, answers.labels)
        # without an interval, which only the best one gets
        auroc = measure_all(["auroc"], tallies[name], resamples=1)["auroc"]
        if auroc.value is None:
            undefined = auroc.undefined
        else:
            aurocs[name] = auroc.value
    best = max(aurocs, key=aurocs.__getitem__, default=None)
    interval = None if best is None else measure_all(["auroc"], tallies[best])["auroc"]
    return Conclusion(
        correctness=correctness,
        accuracy=right / ids.total(),
        answers=ids.total(),
        questions=len(ids),
        sure_by=sure_by,
        sure=sure,
        best=best,
        auroc=None if best is None else aurocs[best],
        auroc_low=None if interval is None else interval.low,
        risk=risk,
        answered=None if best is None else coverage_at(tallies[best], risk),
        undefined=undefined if best is None else "",
    )


def coverage_at(tally: Tally, risk: float) -> float:
    """Compute the largest share of answers above a threshold with at most ``risk`` of them wrong."""
    counts: Floats = tally.counts[::-1].cumsum()
    wrong: Floats = tally.wrong[::-1].cumsum()
    # equal scores are given together or not at all
    allowed = counts[wrong <= risk * counts + 1e-9]
    return float(allowed.max(initial=0) / tally.n)
