"""Convert one question to the plain JSON that ``question.js`` draws; the head of that file explains the
fields."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from selfreflect.grouping import group_indices
from selfreflect.records import AnswerSet, Failure, Question, Score, Summary, WordDistance
from selfreflect.stats import student_quantile

Grouping = Callable[[Sequence[str]], list[list[int]]]
"""Groups answers that say the same, as indices: a typical one of each first, the largest group first."""

_DECIMALS = 5

_Place = tuple[int, int]
"""(index of the masked-out answer, index of the word in it)"""


class SummaryOutcome(NamedTuple):
    """The outcome of one strategy on one question."""

    name: str
    summary: Summary | None
    score: Score | None
    failure: Failure | None
    """Why the score is missing, if recorded."""


def question_view(
    question: Question,
    answers: AnswerSet | None,
    outcomes: Sequence[SummaryOutcome],
    grouping: Grouping = group_indices,
    *,
    guesses: bool = True,
) -> Any:
    """Convert a question with its answers and the outcome of every strategy.

    Distances are rounded to thousandths, scores are not. Without ``guesses`` the view only says whether there
    are any; :func:`guesses_view` converts them answer by answer.
    """
    texts = answers.answers if answers else ()
    masked = [answer.split() for answer in answers.masked_out] if answers else []
    measured = []
    places: list[set[int]] = [set() for _ in masked]
    for outcome in outcomes:
        distances = _by_place(outcome.score.words if outcome.score else (), masked)
        measured.append(distances)
        for answer, word in distances:
            places[answer].add(word)
    words = [sorted(indices) for indices in places]
    summaries = []
    for outcome, distances in zip(outcomes, measured, strict=True):
        summaries.append(_summary_view(outcome, distances, words, guesses))
    return {
        "id": question.id,
        "text": question.text,
        "kind": question.kind,
        "answers": texts,
        "masked": len(masked),
        "groups": grouping(texts),
        "words": words,
        "summaries": summaries,
    }


def guesses_view(score: Score, answers: AnswerSet, answer: int) -> dict[int, list[Any]]:
    """Convert the guesses for one masked-out answer, by word index, as in a summary's ``guesses``."""
    words = _by_place(score.words, [text.split() for text in answers.masked_out])
    return {word: _tokens(distance) for (place, word), distance in words.items() if place == answer}


def score_interval(score: Score) -> tuple[float, float] | None:
    """Compute the rounded 95% interval of a score, by Student's t over its masked-out answers.

    None without a standard error.
    """
    answers = sum(mean is not None for mean in score.answer_means)
    if score.stderr is None or answers < 2:
        return None
    half = student_quantile(0.975, answers - 1) * score.stderr
    low = max(0.0, score.value - half)
    high = min(1.0, score.value + half)
    return round(low, _DECIMALS), round(high, _DECIMALS)


def _by_place(words: Sequence[WordDistance], masked: Sequence[Sequence[str]]) -> dict[_Place, WordDistance]:
    """Index words by place, leaving out any that point outside the answers, as in a damaged or foreign
    file."""
    places = {}
    for word in words:
        known = 0 <= word.answer < len(masked) and 0 <= word.word < len(masked[word.answer])
        if known and word.distances:
            places[word.answer, word.word] = word
    return places


def _summary_view(
    outcome: SummaryOutcome, measured: dict[_Place, WordDistance], words: list[list[int]], guesses: bool
) -> dict[str, Any]:
    view: dict[str, Any] = {
        "name": outcome.name,
        "text": outcome.summary.text if outcome.summary else None,
        "score": None,
        "stderr": None,
        "interval": None,
        "tasks": None,
        "temperature": None,
        "estimate": None,
        "why": "",
        "warnings": (),
        "distances": None,
        "guesses": None,
    }
    score = outcome.score
    if score:
        view["score"] = score.value
        view["stderr"] = score.stderr
        view["interval"] = score_interval(score)
        view["tasks"] = score.token_tasks
        view["temperature"] = score.temperature
        view["warnings"] = score.warnings
        if score.estimate:
            view["estimate"] = (score.estimate.words_scored, score.estimate.words_total)
    elif outcome.failure:
        view["why"] = f"{outcome.failure.kind}: {outcome.failure.message}"
    if not measured:
        return view
    distances = []
    tokens = []
    for answer, indices in enumerate(words):
        aligned = [measured.get((answer, index)) for index in indices]
        distances.append([word and _thousandths(word.mean) for word in aligned])
        if guesses:
            tokens.append([_tokens(word) for word in aligned])
    view["distances"] = distances
    if any(word.guesses for word in measured.values()):
        view["guesses"] = tokens if guesses else True
    return view


def _tokens(word: WordDistance | None) -> list[Any]:
    """List the distance and the guesses of each judge token of a word."""
    if word is None:
        return []
    if not word.guesses:
        return [(_thousandths(distance), []) for distance in word.distances]
    tokens = []
    for distance, guesses in zip(word.distances, word.guesses, strict=False):
        rows = []
        for guess in guesses:
            chances = (guess.summary, guess.summary_flat, guess.reference, guess.reference_flat)
            rows.append((guess.token, *map(_three_digits, chances)))
        tokens.append((_thousandths(distance), rows))
    return tokens


def _thousandths(distance: float) -> int:
    return round(1000 * min(max(distance, 0.0), 1.0))


def _three_digits(probability: float) -> float:
    return float(f"{probability:.3g}")
