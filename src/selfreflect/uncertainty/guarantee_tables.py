"""Tables of what a guarantee and sets of answers promise, and of what they make of other questions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import fmean

from selfreflect.stats import defined
from selfreflect.table import Cell, Column, Table
from selfreflect.text import counted, percent
from selfreflect.uncertainty.answer_sets import NoSetRule, SetRule, answer_set, classes_of, right_shares
from selfreflect.uncertainty.assess import Assessment
from selfreflect.uncertainty.calibrator_file import CalibratorFile
from selfreflect.uncertainty.drift import is_other_sample
from selfreflect.uncertainty.estimators import ESTIMATORS
from selfreflect.uncertainty.guarantee import Guarantee, ThresholdSearch


def guarantee_table(search: ThresholdSearch, estimator: str) -> Table:
    """Tabulate the tests of a search, and say what may be shown or what is missing for that."""
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
    title = f"At most {risk:g} wrong among the answers shown, with confidence {confidence:g}"
    return Table(title, columns, tuple(rows), tuple(_search_notes(search, estimator)))


def threshold_text(estimator: str, threshold: float) -> str:
    """Word a threshold of scores by the estimator's values."""
    info = ESTIMATORS[estimator]
    return f"{estimator} {'≥' if info.confidence else '≤'} {info.score(threshold) + 0.0:.4g}"


def guarantee_sentence(search: ThresholdSearch, estimator: str) -> str:
    """Say what may be shown at a risk, or what that would need."""
    risk, chosen, first = percent(search.risk), search.chosen, search.tests[0]
    if chosen is None:
        more = counted(search.labels_needed, "more labelled question")
        return (
            f"{risk}: no threshold qualifies. The strictest that was tested has {first.wrong} wrong of "
            f"{first.answered} (bound {percent(first.bound, 1)}); about {more} would be needed, if no "
            "further answer shown were wrong."
        )
    return (
        f"{risk}: show answers where {threshold_text(estimator, chosen.threshold)}. At most {risk} of them "
        f"are wrong, with confidence {search.confidence:g} (bound {percent(chosen.bound, 1)}); that answers "
        f"{percent(chosen.coverage, 1)} of the questions."
    )


def _search_notes(search: ThresholdSearch, estimator: str) -> list[str]:
    labelled = counted(search.pilot + search.tested, "labelled question")
    sample = f"{labelled}: {search.pilot} set the thresholds, {search.tested} are tested."
    chosen, first = search.chosen, search.tests[0]
    if chosen is not None:
        return [
            f"Show an answer where {threshold_text(estimator, chosen.threshold)}: at most {search.risk:.4g} "
            f"of those shown are wrong, with confidence {search.confidence:g} over samples of labelled "
            f"questions (bound {chosen.bound:.4f}). That answers {percent(chosen.coverage, 1)} of the "
            "questions.",
            sample,
            "It holds for questions drawn as these were, with answers of the same model, drawn in the same "
            "way; not for each topic by itself. Errors of the labels add to it.",
        ]
    return [
        f"No threshold qualifies. The strictest that was tested, "
        f"{threshold_text(estimator, first.threshold)}, has {first.wrong} wrong of {first.answered}: "
        f"p = {first.p_value:.3g}.",
        f"The smallest risk that it would have passed is its bound, {first.bound:.4f}. For {search.risk:g} "
        f"about {counted(search.labels_needed, 'more labelled question')} would be needed, if none of the "
        "further answers shown were wrong.",
        sample,
    ]


def set_table(rule: SetRule | NoSetRule, assessment: Assessment, correctness: str) -> Table:
    """Tabulate what a rule makes of the questions that it was chosen on, or why there is none."""
    if isinstance(rule, SetRule):
        return _sets_table(rule, assessment, correctness)
    columns = (Column("labelled", "d"), Column("never drawn", "d"), Column("ceiling", ".3f"))
    rows: tuple[tuple[Cell, ...], ...] = ((rule.n, rule.unsampled, rule.ceiling),)
    note = f"With fewer than {rule.fewest} labelled questions nothing can be promised."
    if rule.n >= rule.fewest:
        note = (
            f"Cannot: the right answer was never drawn for {rule.unsampled} of {rule.n} questions, so no set "
            f"of drawn answers holds it more often than {percent(rule.ceiling, 1)} (surely "
            f"{percent(rule.surely, 1)}, with confidence 0.95). More answers to each question raise this "
            "ceiling."
        )
    return Table(_set_title(rule.coverage), columns, rows, (note,))


def _set_title(coverage: float) -> str:
    return f"Sets of answers that hold a right one for {percent(coverage)} of questions"


def _sets_table(rule: SetRule, assessment: Assessment, correctness: str) -> Table:
    """Tabulate the sets of the questions that have as many answers as the rule is for."""
    is_known = correctness in assessment.judged.labels
    shares = right_shares(assessment, correctness) if is_known else {}
    sizes, held = [], []
    for index, samples in enumerate(assessment.samples):
        if len(samples.question.answers) == rule.samples:
            sizes.append(len(answer_set(rule, classes_of(samples))))
            held += [shares[index] >= rule.share] if index in shares else []
    means = (fmean(sizes) if sizes else None, fmean(held) if held else None)
    row = (rule.share, len(sizes), means[0], sizes.count(0), len(held), means[1])
    columns = (
        Column("class share at least", ".3f"),
        Column("questions", "d"),
        Column("mean size", ".2f"),
        Column("empty", "d"),
        Column("labelled", "d"),
        Column("hold a right answer", ".3f"),
    )
    note = "An empty set says that no answer is likely enough."
    return Table(_set_title(rule.coverage), columns, (row,), (note,))


def promise_tables(
    saved: CalibratorFile, assessment: Assessment, indices: Sequence[int], scores: Sequence[float]
) -> list[Table]:
    """Tabulate what a saved guarantee and saved sets make of other questions.

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
    """Count the answers that may be shown, of the questions with as many answers as the labelled ones."""
    questions = assessment.questions
    pairs = [(index, score) for index, score in pairs if len(questions[index].answers) == guarantee.samples]
    shown = [index for index, score in pairs if guarantee.covers(score)]
    column = assessment.answers_of(saved.estimator).labels.get(saved.correctness, [])
    labels = defined(column[index] for index in shown) if column else []
    total = len(questions)
    row = (total, len(shown), len(shown) / total, guarantee.coverage, len(labels), labels.count(False))
    columns = (
        Column("questions", "d"),
        Column("answered", "d"),
        Column("coverage", ".1%"),
        Column("of the labelled", ".1%"),
        Column("labels", "d"),
        Column("wrong", "d"),
    )
    notes = [
        f"Shown where {threshold_text(saved.estimator, guarantee.threshold)}: at most {guarantee.risk:g} of "
        f"them wrong, with confidence {guarantee.confidence:g}, from {guarantee.n} labelled questions."
    ]
    if is_other_sample(guarantee.scores, [score for _, score in pairs]):
        notes.append(
            "Warning: these scores are distributed in another way than those of the labelled questions "
            "(Kolmogorov-Smirnov), so the guarantee does not apply."
        )
    return Table("Guarantee", columns, (row,), tuple(notes))
