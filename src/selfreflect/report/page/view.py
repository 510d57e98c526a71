"""Conversion of questions and runs to the JSON that the page's scripts draw.

The head of ``question.js`` explains the fields of a question; a run is a small index and packed chunks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import repeat
from typing import Any

from selfreflect.grouping import merged_groups, spread
from selfreflect.metric.measure import Measure, measure_named, measure_of
from selfreflect.records import (
    AnswerSet,
    Controls,
    Information,
    Measurement,
    Question,
    Score,
    WordDistance,
)
from selfreflect.report.compare import undefined_text
from selfreflect.report.findings import controls_place, value_sentence
from selfreflect.report.measures import run_measures, values_of
from selfreflect.report.page.frame import packed
from selfreflect.report.results import control_text
from selfreflect.report.run_records import RunRecords, SummaryOutcome
from selfreflect.report.words import Mark, MarkKind, marks
from selfreflect.sameness import same_groups
from selfreflect.stats import is_tie, student_quantile

Grouping = Callable[[Sequence[str], str], list[list[int]]]
"""Function that groups equal answers as indices, a typical one first and the largest group first."""

ClaimsOf = Callable[[str, Sequence[str], Mapping[str, str]], Any]
"""Function that converts a question's claims for ``claims.js``; None without claims."""

CHUNK = 32
"""Number of questions per chunk: enough to compress well, and few enough to unpack after a click without
delay."""
# Characters of a question that the list shows and searches.
_LIST_LENGTH = 300
# Reasons without a share, in which bits of words mean nothing.
_WORDLESS = ("known", "worse", "format")

_MARKS: tuple[MarkKind, ...] = ("covered", "missed", "misleading")
# Steps of a mark's strength.
_LEVELS = 10
# (index of the test answer, index of the word in it)
_Place = tuple[int, int]


def run_data(
    scorings: Sequence[RunRecords], grouping: Grouping, claims_of: ClaimsOf | None = None
) -> tuple[dict[str, Any], list[list[str]]]:
    """Build a run's index, and for each judge the packed chunks of questions in the same order.

    The index holds ``label``, and for each question ``[text, kind, spread, id]``. For each judge,
    ``scorings`` hold its ``label``, ``strategies``, ``columns``, their names for people, ``measures`` and
    the cells of each question: for each measure and
    strategy a number and its text, or None. The chunks hold numbers in full; those of further judges only
    what differs from the first.
    """
    main = scorings[0]
    rows: list[tuple[Any, ...]] = []
    index: dict[str, Any] = {"label": main.label, "chunk": CHUNK, "questions": rows, "scorings": []}
    chunks = []
    for scoring in scorings:
        measures = run_measures(scoring)
        cells = question_cells(scoring, measures)
        views = []
        for id_, question in main.questions.items():
            outcomes, controls = scoring.outcomes(id_), scoring.controls.get(id_)
            if scoring is main:
                view = question_view(
                    question,
                    main.answers.get(id_),
                    outcomes,
                    grouping,
                    merged=main.merged_texts(id_),
                    controls=controls,
                    claims_of=claims_of,
                )
                kinds = spread(view["groups"])
                rows.append((question.text[:_LIST_LENGTH], question.kind, kinds and round(kinds, 2), id_))
            else:
                view = _scoring_view(scoring.answers.get(id_), outcomes, controls)
                for summary in view["summaries"]:
                    del summary["text"]  # ``report.js`` takes it from the first
            views.append(view)
        index["scorings"].append(
            {
                "label": scoring.label,
                "strategies": list(scoring.strategies),
                "columns": list(map(scoring.display_name, scoring.strategies)),
                "measures": [_measure_fields(measure) for measure in measures],
                "cells": [cells[id_] for id_ in main.questions],
            }
        )
        chunks.append([packed(views[start : start + CHUNK]) for start in range(0, len(views), CHUNK)])
    return index, chunks


def _measure_fields(measure: Measure) -> dict[str, Any]:
    """Collect a measure's name, digits and direction for the page's list of questions."""
    digits = int(measure.form.strip("z.f") or 0) if measure.form.endswith("f") else 0
    fields = {"share": measure.is_share, "digits": digits, "higher": measure.higher_is_better}
    return {"name": measure.short, **fields}


def question_cells(run: RunRecords, measures: Sequence[Measure]) -> dict[str, list[list[Any]]]:
    """List a rounded number and its text, or None, by question, measure and strategy."""
    values = {}
    for measure in measures:
        for name in run.strategies:
            values[measure.name, name] = values_of(measure, run, name)
    cells: dict[str, list[list[Any]]] = {}
    for id_ in run.questions:
        cells[id_] = []
        for measure in measures:
            row: list[tuple[float | None, str]] = []
            for outcome in run.outcomes(id_):
                value = values[measure.name, outcome.strategy].of_question(id_)
                if value is None:
                    row.append((None, undefined_text(run, measure, outcome, id_)))
                    continue
                mark = "≈ " if measure.sampled(run.results(measure)[id_, outcome.strategy]) else ""
                row.append((round(value, 6), mark + measure.text(value)))
            cells[id_].append(row)
    return cells


def question_view(
    question: Question,
    answers: AnswerSet | None,
    outcomes: Sequence[SummaryOutcome],
    grouping: Grouping = same_groups,
    *,
    merged: Sequence[Sequence[str]] = (),
    controls: Controls | None = None,
    guesses: bool = True,
    claims_of: ClaimsOf | None = None,
) -> Any:
    """Convert a question with its answers and all strategies' outcomes.

    Distances are rounded to thousandths and bits of words to tenths, scores are not. Without ``guesses`` the
    view only says whether there are any; :func:`guesses_view` converts them answer by answer.
    """
    texts = answers.answers if answers else ()
    summaries = {outcome.strategy: outcome.summary.text for outcome in outcomes if outcome.summary}
    return {
        "id": question.id,
        "text": question.text,
        "kind": question.kind,
        "context": question.context,
        "answers": texts,
        "masked": len(answers.masked_out) if answers else 0,
        "groups": merged_groups(texts, grouping(texts, question.text), merged),
        "merged": len(merged),
        "claims": claims_of(question.text, texts, summaries) if claims_of else None,
        **_scoring_view(answers, outcomes, controls, guesses),
    }


def _scoring_view(
    answers: AnswerSet | None,
    outcomes: Sequence[SummaryOutcome],
    controls: Controls | None,
    guesses: bool = True,
) -> dict[str, Any]:
    """Convert the judge's part of a question's view."""
    masked = list(map(str.split, answers.masked_out)) if answers else []
    references = len(answers.conditioning) if answers else None
    # a word that any summary was measured on has a place in the lists of all, so that they align
    words_by_outcome = []
    indices: list[set[int]] = [set() for _ in masked]
    for outcome in outcomes:
        words_by_place = _by_place(outcome.score.words if outcome.score else (), masked)
        words_by_outcome.append(words_by_place)
        for answer, word in words_by_place:
            indices[answer].add(word)
    words = list(map(sorted, indices))
    summaries = []
    for outcome, words_by_place in zip(outcomes, words_by_outcome, strict=True):
        view = _summary_view(outcome, words_by_place, words, guesses)
        view["information"] = outcome.information and information_view(outcome.information, answers)
        view["bits"] = bits_view(outcome.information, masked, view["text"] or "")
        view["measures"] = list(map(_measurement_view, outcome.measurements))
        view["place"] = None
        if outcome.score is not None:
            view["place"] = controls_place(outcome.score.value, controls, references)
        summaries.append(view)
    return {"words": words, "summaries": summaries, "controls": control_views(controls, outcomes)}


def _measurement_view(measurement: Measurement) -> dict[str, Any]:
    measure = measure_named(measurement.measure)
    cells = dict(zip(measure.columns, measure.cells(measurement), strict=True))
    return {"text": value_sentence(measurement), "cells": cells}


def guesses_view(score: Score, answers: AnswerSet, answer: int) -> dict[int, list[Any]]:
    """Convert the guesses for one test answer by word index, as in a summary's ``guesses``."""
    words = _by_place(score.words, list(map(str.split, answers.masked_out)))
    return {word: _tokens(distance) for (index, word), distance in words.items() if index == answer}


def score_interval(score: Score) -> tuple[float, float] | None:
    """Compute the rounded 95% interval of a score, by Student's t over its test answers. None without a
    standard error."""
    answers = sum(mean is not None for mean in score.answer_means)
    if score.stderr is None or answers < 2:
        return None
    half = student_quantile(0.975, answers - 1) * score.stderr
    return round(max(0.0, score.value - half), 5), round(min(1.0, score.value + half), 5)


def _by_place(words: Sequence[WordDistance], masked: Sequence[Sequence[str]]) -> dict[_Place, WordDistance]:
    """Index words by position, leaving out invalid positions in damaged or foreign files."""
    by_place = {}
    for word in words:
        inside = 0 <= word.answer < len(masked) and 0 <= word.word < len(masked[word.answer])
        if inside and word.distances:
            by_place[word.answer, word.word] = word
    return by_place


def _summary_view(
    outcome: SummaryOutcome, by_place: dict[_Place, WordDistance], words: list[list[int]], guesses: bool
) -> dict[str, Any]:
    score, failure = outcome.score, outcome.failure
    estimate = score.estimate if score else None
    view: dict[str, Any] = {
        "name": outcome.strategy,
        "text": outcome.summary and outcome.summary.text,
        "score": score and score.value,
        "stderr": score and score.stderr,
        "interval": score and score_interval(score),
        "tasks": score and score.token_tasks,
        "temperature": score and score.temperature,
        "estimate": estimate and (estimate.words_scored, estimate.words_total),
        "why": f"{failure.kind}: {failure.message}" if failure else "",
        "warnings": score.warnings if score else (),
        "distances": None,
        "guesses": None,
    }
    if not by_place:
        return view
    aligned = []
    for answer, indices in enumerate(words):
        aligned.append([by_place.get((answer, index)) for index in indices])
    view["distances"] = [[word and _thousandths(word.mean) for word in row] for row in aligned]
    if any(word.guesses for word in by_place.values()):
        view["guesses"] = [list(map(_tokens, row)) for row in aligned] if guesses else True
    return view


def _tokens(word: WordDistance | None) -> list[Any]:
    """List distance and guesses of each judge token of a word."""
    if word is None:
        return []
    tokens = []
    for distance, guesses in zip(word.distances, word.guesses or repeat(()), strict=False):
        rows = []
        for guess in guesses:
            chances = (guess.summary, guess.summary_flat, guess.reference, guess.reference_flat)
            rows.append((guess.token, *(float(f"{chance:.3g}") for chance in chances)))
        tokens.append((_thousandths(distance), rows))
    return tokens


def _thousandths(distance: float) -> int:
    return round(1000 * min(max(distance, 0.0), 1.0))


def information_view(information: Information, answers: AnswerSet | None) -> dict[str, Any]:
    """Convert the information that a summary recovers, with its sentence."""
    references = len(answers.conditioning) if answers else None
    measure = measure_of(information)
    assert measure is not None
    doubtful = measure.doubtful(information)
    return {
        "sentence": value_sentence(information, references),
        "reader": information.reader,
        "recovered": information.recovered,
        "interval": information.interval,
        "bits": information.bits,
        "available": information.bits_available,
        "undefined": information.undefined,
        "tentative": doubtful and {"text": doubtful.text, "recovered": doubtful.value},
    }


def bits_view(
    information: Information | None, masked: Sequence[Sequence[str]], summary: str
) -> dict[str, Any] | None:
    """Convert marks and bits for every word of every test answer.

    None if they were not kept, belong to other answers, or mean nothing because there is no share.
    """
    if information is None or information.undefined in _WORDLESS or not information.answers:
        return None
    # records of a merged directory may belong to other answers
    if len(information.answers) != len(masked):
        return None
    for words, texts in zip(information.answers, masked, strict=True):
        if words and len(words) != len(texts):
            return None
    codes, told, available = [], [], []
    for answer in information.answers:
        codes.append(list(map(_mark_code, marks(answer, summary))))
        told.append([_tenths(word.told) for word in answer])
        available.append([_tenths(word.available) for word in answer])
    return {"marks": codes, "told": told, "available": available}


def _mark_code(look: Mark) -> int:
    """Encode a word's mark: 0 plain, 1 to 10 covered, 11 to 20 missed, 21 to 30 misleading."""
    if look.kind == "plain":
        return 0
    return _LEVELS * _MARKS.index(look.kind) + max(1, round(_LEVELS * look.strength))


def _tenths(bits: float) -> int:
    return round(10 * bits)


def control_views(controls: Controls | None, outcomes: Sequence[SummaryOutcome]) -> list[dict[str, Any]]:
    """Convert a question's controls, each with the strategies that recover less.

    Shares are relative to the same bits as those of the summaries, and undefined where theirs are.
    """
    if controls is None:
        return []
    # a control has a share only where a summary has one: the judge may know the answers
    shares = {}
    for outcome in outcomes:
        if outcome.information is not None and outcome.information.recovered is not None:
            shares[outcome.strategy] = outcome.information.recovered
    views = []
    for control in controls.controls:
        share = None
        if shares and control.bits is not None and controls.bits_available:
            share = control.bits / controls.bits_available
        name = control_text(control, controls.most_answers)
        beaten = [
            strategy
            for strategy, recovered in shares.items()
            if share is not None and share > recovered and not is_tie(share, recovered)
        ]
        view = {"name": name, "words": control.words, "recovered": share, "score": control.score}
        views.append({**view, "pasted": control.answers, "beats": beaten})
    return views
