"""Detail of one question: the model's answers, the summaries with their scores, and the worst words."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass

from selfreflect.errors import DataError, excerpt, nearest
from selfreflect.grouping import AnswerGroup, answer_groups, most_common, normal_form
from selfreflect.records import Failure, Question, Score, Summary, WordDistance
from selfreflect.report.overview import estimated_from
from selfreflect.report.run_records import RunRecords


@dataclass(frozen=True)
class WordMean:
    """All occurrences of one word in the masked-out answers."""

    text: str
    mean: float
    """Mean distance over the occurrences; 0 is best."""
    count: int


@dataclass(frozen=True)
class SummaryDetail:
    strategy: str
    summary: Summary | None
    score: Score | None
    failure: Failure | None
    """Why the score is missing, if recorded."""
    worst_words: tuple[WordMean, ...]
    """The worst predicted of the scored words, worst first; empty if the score was stored without words."""

    @property
    def score_text(self) -> str | None:
        """``0.0954 ± 0.0025``, or ``≈0.0954 ± 0.0025 (estimated from 120 of 840 words)``; None without a
        score."""
        if self.score is None:
            return None
        text = f"{self.score.value:.4f}"
        if self.score.stderr is not None:
            text += f" ± {self.score.stderr:.4f}"
        source = estimated_from(self.score)
        return f"≈{text} (estimated from {source})" if source else text


@dataclass(frozen=True)
class QuestionDetail:
    question: Question
    groups: tuple[AnswerGroup, ...]
    """All sampled answers of both halves, the largest group first."""
    summaries: tuple[SummaryDetail, ...]


def question_detail(run: RunRecords, question_id: str, *, worst: int = 5) -> QuestionDetail:
    """Collect the detail of one question, with at most ``worst`` badly predicted words per summary.

    Raises:
        DataError: the run has no such question.
    """
    question = run.questions.get(question_id)
    if question is None:
        raise DataError(
            f"run {excerpt(run.label)} has no question {excerpt(question_id)}."
            f"{nearest(question_id, list(run.questions))}"
        )
    answers = run.answers.get(question_id)
    groups = answer_groups(answers.answers) if answers else []
    failures = run.failures_by_score()
    details = []
    for name in run.strategies:
        key = (question_id, name)
        score = run.scores.get(key)
        words = worst_words(score.words, worst) if score else ()
        details.append(SummaryDetail(name, run.summaries.get(key), score, failures.get(key), words))
    return QuestionDetail(question, tuple(groups), tuple(details))


def worst_words(words: tuple[WordDistance, ...], limit: int) -> tuple[WordMean, ...]:
    """Find the ``limit`` words with the largest mean distance; case and punctuation make no difference."""
    occurrences = defaultdict(list)
    for word in words:
        if word.distances:
            occurrences[normal_form(word.text)].append(word)
    means = []
    for same in occurrences.values():
        mean = math.fsum(word.mean for word in same) / len(same)
        means.append(WordMean(most_common(word.text for word in same), mean, len(same)))
    means.sort(key=lambda word: (-word.mean, word.text))
    return tuple(means[:limit])
