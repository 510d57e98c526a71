"""From the distances of words to the score of one summary: exact, or estimated from a sample of the words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from selfreflect.records import Sampled, WordDistance
from selfreflect.stats import clustered_mean, sampled_mean

if TYPE_CHECKING:
    from selfreflect.metric.sampling.limits import Limits
    from selfreflect.metric.sampling.population import Population
    from selfreflect.metric.sampling.sequential import SequentialResult


@dataclass(frozen=True)
class Aggregate:
    """The score of one summary. Distances are finite."""

    value: float
    stderr: float | None
    answer_means: Mapping[int, float]
    """The mean of each masked-out answer that has a scored word, by its index."""
    words: tuple[WordDistance, ...]
    estimate: Sampled | None = None


def exact(words: Sequence[WordDistance]) -> Aggregate:
    """The flat mean over the token tasks of all words, and its standard error with answers as clusters."""
    by_answer: dict[int, list[float]] = {}
    for word in words:
        by_answer.setdefault(word.answer, []).extend(word.distances)
    value, stderr = clustered_mean(list(by_answer.values()))
    means = {answer: sum(distances) / len(distances) for answer, distances in by_answer.items()}
    return Aggregate(value, stderr, means, tuple(words))


def estimated(
    population: Population, result: SequentialResult, limits: Limits, names: Sequence[str]
) -> Aggregate:
    """The same estimated from the words that were scored before a limit was reached.

    Args:
        names: the summaries that were scored together, to which ``result.ordered`` refers.
    """
    words = result.words
    values = result.values
    mean = sampled_mean(population.samples(result.size, values))
    estimate = Sampled(
        words_scored=len(words),
        words_total=population.words,
        tokens_scored=sum(len(word.distances) for word in words),
        tokens_total=population.tokens,
        stderr=mean.sampling_error,
        stopped=result.stopped,
        budget=limits.budget,
        standard_error=limits.standard_error,
        race=limits.race,
        seed=limits.seed,
        ordered=tuple(names[index] for index in sorted(result.ordered)),
    )
    means = population.answer_means(result.size, values)
    return Aggregate(mean.mean, mean.stderr, means, words, estimate)
