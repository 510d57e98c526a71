"""Everything there is to say about one question: what the model answered, what each summary claims, and where
it fails."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass

from selfreflect.errors import DataError, excerpt, nearest
from selfreflect.grouping import AnswerGroup, answer_groups, most_common, normal_form
from selfreflect.records import Failure, Question, Score, Summary, WordDistance
from selfreflect.report.overview import RunRecords, estimated_from


@dataclass(frozen=True)
class WordMean:
    """A word of the masked-out answers, all its occurrences together."""

    text: str
    mean: float
    """Mean over occurrences of the word's distance; 0 is best."""
    count: int


@dataclass(frozen=True)
class SummaryDetail:
    strategy: str
    summary: Summary | None
    score: Score | None
    failure: Failure | None
    """Why there is no score, where that is recorded."""
    worst_words: tuple[WordMean, ...]
    """The words that the summary predicts worst, worst first, of those that were scored; empty where the
    score was stored without words."""

    @property
    def score_text(self) -> str | None:
        """``0.0954 ± 0.0025``, or ``≈0.0954 ± 0.0025 (estimated from 120 of 840 words)``; None without a
        score."""
        if self.score is None:
            return None
        stderr = "" if self.score.stderr is None else f" ± {self.score.stderr:.4f}"
        source = estimated_from(self.score)
        return (
            f"≈{self.score.value:.4f}{stderr} (estimated from {source})"
            if source
            else f"{self.score.value:.4f}{stderr}"
        )


@dataclass(frozen=True)
class QuestionDetail:
    question: Question
    groups: tuple[AnswerGroup, ...]
    """All sampled answers, both halves together, the most frequent group first; empty where there are no
    answers."""
    summaries: tuple[SummaryDetail, ...]


def question_detail(run: RunRecords, question_id: str, *, worst: int = 5) -> QuestionDetail:
    """One question of a run, with at most ``worst`` badly predicted words for each summary.

    Raises:
        DataError: where the run has no such question.
    """
    question = run.questions.get(question_id)
    if question is None:
        raise DataError(
            f"run {excerpt(run.label)} has no question {excerpt(question_id)}.{nearest(question_id, list(run.questions))}"
        )
    answers = run.answers.get(question_id)
    groups = answer_groups(answers.answers) if answers else []
    behind = run.failure_behind()
    details = []
    for name in run.strategies:
        key = (question_id, name)
        score = run.scores.get(key)
        words = worst_words(score.words, worst) if score else ()
        details.append(SummaryDetail(name, run.summaries.get(key), score, behind.get(key), words))
    return QuestionDetail(question, tuple(groups), tuple(details))


def worst_words(words: tuple[WordDistance, ...], limit: int) -> tuple[WordMean, ...]:
    """The ``limit`` words with the greatest mean distance; spellings that differ only in case or punctuation
    count as one word."""
    occurrences = defaultdict(list)
    for word in words:
        if word.distances:
            occurrences[normal_form(word.text)].append(word)
    means = [
        WordMean(
            most_common(word.text for word in same),
            math.fsum(word.mean for word in same) / len(same),
            len(same),
        )
        for same in occurrences.values()
    ]
    return tuple(sorted(means, key=lambda word: (-word.mean, word.text))[:limit])
