"""From the distances of words to the score of one summary."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from selfreflect.records import Sampled, WordDistance
from selfreflect.stats import clustered_mean


@dataclass(frozen=True)
class Aggregate:
    """The score of one summary, from finite distances."""

    value: float
    stderr: float | None
    answer_means: Mapping[int, float]
    """The mean of each masked-out answer that has a scored word, by its index."""
    words: tuple[WordDistance, ...]
    estimate: Sampled | None = None
    """How the score was estimated, if not all words were scored."""


def exact(words: Sequence[WordDistance]) -> Aggregate:
    """The flat mean over the token tasks of all words, and its standard error with answers as clusters."""
    by_answer: dict[int, list[float]] = {}
    for word in words:
        by_answer.setdefault(word.answer, []).extend(word.distances)
    value, stderr = clustered_mean(list(by_answer.values()))
    means = {answer: sum(distances) / len(distances) for answer, distances in by_answer.items()}
    return Aggregate(value, stderr, means, tuple(words))
