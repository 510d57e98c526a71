"""Scores and answers of one question, in the words that a terminal shows."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass

from selfreflect.grouping import AnswerGroup, answer_groups, most_common, normal_form
from selfreflect.records import Score, WordDistance
from selfreflect.report.overview import estimated_from
from selfreflect.report.run_records import RunRecords


@dataclass(frozen=True)
class WordMean:
    """All occurrences of one word in the masked-out answers."""

    text: str
    mean: float
    """Mean distance over the occurrences; 0 is best."""
    count: int


def grouped_answers(run: RunRecords, question_id: str) -> list[AnswerGroup]:
    """Group the sampled answers of both halves, the largest group first."""
    answers = run.answers.get(question_id)
    return answer_groups(answers.answers) if answers else []


def score_text(score: Score) -> str:
    """Format as ``0.0954 ± 0.0025``, or ``≈0.0954 ± 0.0025 (estimated from 120 of 840 words)``."""
    text = f"{score.value:.4f}"
    if score.stderr is not None:
        text += f" ± {score.stderr:.4f}"
    source = estimated_from(score)
    return f"≈{text} (estimated from {source})" if source else text


def worst_words(words: tuple[WordDistance, ...], limit: int) -> list[WordMean]:
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
    return means[:limit]
