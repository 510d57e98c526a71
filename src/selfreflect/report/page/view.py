"""One question as the plain JSON that ``question.js`` draws; the head of that file says what each field
means."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from selfreflect.grouping import group_indices
from selfreflect.records import AnswerSet, Failure, Question, Score, Summary, WordDistance
from selfreflect.stats import student_quantile

Grouping = Callable[[Sequence[str]], list[list[int]]]
"""Answers that say the same as lists of indices, the typical one of each first, the largest list first."""


class SummaryOutcome(NamedTuple):
    """What became of one strategy on one question."""

    name: str
    summary: Summary | None
    score: Score | None
    failure: Failure | None
    """Why there is no score, where that is recorded."""


def question_view(
    question: Question,
    answers: AnswerSet | None,
    outcomes: Sequence[SummaryOutcome],
    grouping: Grouping = group_indices,
    *,
    guesses: bool = True,
) -> Any:
    """One question with its answers and what every strategy made of them. Distances are rounded to
    thousandths, scores are not.

    Without ``guesses`` the view only says whether there are any; :func:`guesses_view` gives them answer by
    answer.
    """
    drawn = answers.answers if answers else ()
    masked = [answer.split() for answer in (answers.masked_out if answers else ())]
    measured = [_by_place(outcome.score.words if outcome.score else (), masked) for outcome in outcomes]
    places: list[set[int]] = [set() for _ in masked]
    for answer, word in (place for found in measured for place in found):
        places[answer].add(word)
    words = [sorted(place) for place in places]
    return {
        "id": question.id,
        "text": question.text,
        "kind": question.kind,
        "answers": drawn,
        "masked": len(masked),
        "groups": grouping(drawn),
        "words": words,
        "summaries": [
            _summary_view(outcome, found, words, guesses)
            for outcome, found in zip(outcomes, measured, strict=True)
        ],
    }


def guesses_view(score: Score, answers: AnswerSet, answer: int) -> dict[int, list[Any]]:
    """What the judge held likely in the masked words of one masked-out answer, by their indices, as in a
    summary's ``guesses``."""
    found = _by_place(score.words, [text.split() for text in answers.masked_out])
    return {word: _tokens(distance) for (place, word), distance in found.items() if place == answer}


def score_interval(score: Score) -> tuple[float, float] | None:
    """The 95 % interval of one score by Student's t over its masked-out answers, rounded; None where it has
    no standard error."""
    answers = sum(mean is not None for mean in score.answer_means)
    if score.stderr is None or answers < 2:
        return None
    half = student_quantile(0.975, answers - 1) * score.stderr
    return round(max(0.0, score.value - half), _DECIMALS), round(min(1.0, score.value + half), _DECIMALS)


_DECIMALS = 5

_Place = tuple[int, int]
"""(index of the masked-out answer, index of the word in it)"""


def _by_place(words: Sequence[WordDistance], masked: Sequence[Sequence[str]]) -> dict[_Place, WordDistance]:
    """Words by place. One that points outside the answers, as a file from elsewhere may hold, has no place to
    be shown at."""
    return {
        (word.answer, word.word): word
        for word in words
        if word.distances and 0 <= word.answer < len(masked) and 0 <= word.word < len(masked[word.answer])
    }


def _summary_view(
    outcome: SummaryOutcome, found: dict[_Place, WordDistance], words: list[list[int]], guesses: bool
) -> dict[str, Any]:
    score, failure = outcome.score, outcome.failure
    aligned = [[found.get((answer, word)) for word in masked] for answer, masked in enumerate(words)]
    recorded = any(word.guesses for word in found.values()) or None
    told = [[_tokens(word) for word in answer] for answer in aligned] if recorded and guesses else recorded
    return {
        "name": outcome.name,
        "text": outcome.summary.text if outcome.summary else None,
        "score": score.value if score else None,
        "stderr": score.stderr if score else None,
        "interval": score_interval(score) if score else None,
        "tasks": score.token_tasks if score else None,
        "temperature": score.temperature if score else None,
        "estimate": (score.estimate.words_scored, score.estimate.words_total)
        if score and score.estimate
        else None,
        "why": f"{failure.kind}: {failure.message}" if failure and not score else "",
        "warnings": score.warnings if score else (),
        "distances": [[word and _thousandths(word.mean) for word in answer] for answer in aligned]
        if found
        else None,
        "guesses": told,
    }


def _tokens(word: WordDistance | None) -> list[Any]:
    if word is None:
        return []
    guesses = word.guesses or ((),) * len(word.distances)
    return [
        (
            _thousandths(distance),
            [
                (g.token, *map(_chance, (g.summary, g.summary_flat, g.reference, g.reference_flat)))
                for g in expected
            ],
        )
        for distance, expected in zip(word.distances, guesses, strict=False)
    ]


def _thousandths(distance: float) -> int:
    return round(1000 * min(max(distance, 0.0), 1.0))


def _chance(probability: float) -> float:
    return float(f"{probability:.3g}")
