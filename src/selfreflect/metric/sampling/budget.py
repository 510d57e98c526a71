"""Score as many of the masked words as a budget pays for. Decides from numbers; a callback runs the model.

A budget of tokens is spent in one round. One of time is spent in a few, since only the rounds before tell how
fast the machine is. Every round takes new words, so nothing but prefixes is computed twice.
"""

from __future__ import annotations

import math
import time
from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import Literal

from selfreflect.metric.engine.tree import Prompt
from selfreflect.metric.limits import Limits
from selfreflect.metric.sampling.estimate import SampledMean, sampled_mean
from selfreflect.metric.sampling.population import Cost, Population
from selfreflect.records import Sampled, WordDistance

_TIMED_FIRST_ROUND = 8
"""Words of the round that measures how fast the machine is."""

_SAFETY = 0.9
"""Share of the remaining time that a round may be expected to take."""

Measure = Callable[[Sequence[int]], Sequence[Sequence[WordDistance]]]
"""Indices of words -> for each summary the distances of those words."""


class OverBudgetError(Exception):
    """Not even one word can be scored; ``needed`` tokens would suffice."""

    def __init__(self, tokens: int) -> None:
        self.needed = tokens


class BudgetScoring:
    """Scores one question within a budget, the same words of it for all summaries.

    ``contexts`` are the prompts of the reference and of each summary. No summary gets more than ``max_words``
    scored words, copies counted.
    """

    def __init__(
        self,
        population: Population,
        contexts: Sequence[Sequence[Prompt]],
        limits: Limits,
        measure: Measure,
        *,
        max_words: int | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.population = population
        self.limits = limits
        self.measure = measure
        self.clock = clock
        self.max_size = population.size if max_words is None else population.size_within(max_words)
        self.size = 0
        """Distinct words scored, see :class:`~selfreflect.metric.sampling.population.Population`."""
        self.distances: list[dict[int, WordDistance]] = [{} for _ in contexts[1:]]
        """Of each summary, by index of the word."""
        self.stopped: Literal["budget", "paired"] = "budget"
        self._costs = [Cost(population, prompts) for prompts in contexts]
        self._spent = 0

    def run(self) -> None:
        """Score words until the budget is spent.

        Raises:
            OverBudgetError: the token budget does not suffice for a single word.
        """
        start = self.clock()
        while self.distances and self.size < self.max_size:
            size = self._next_size(self.clock() - start)
            if size == self.size:
                return
            old = self.population.indices(self.size)
            new = sorted(set(self.population.indices(size)).difference(old))
            for distances, words in zip(self.distances, self.measure(new), strict=True):
                distances.update(zip(new, words, strict=True))
            self.size = size
        if self.size < self.population.size:
            self.stopped = "paired"

    def words(self, summary: int) -> tuple[WordDistance, ...]:
        """The scored words of a summary, in the order of the question's words."""
        return tuple(word for _, word in sorted(self.distances[summary].items()))

    def estimate(self, summary: int) -> tuple[SampledMean, dict[int, float], Sampled]:
        """The score of one summary, estimated from some words, the mean of each answer by its index, and how
        it was estimated."""
        values = {index: math.fsum(word.distances) for index, word in self.distances[summary].items()}
        words = self.words(summary)
        mean = sampled_mean(self.population.samples(self.size, values))
        estimate = Sampled(
            words_scored=len(words),
            words_total=self.population.words,
            tokens_scored=sum(len(word.distances) for word in words),
            tokens_total=self.population.tokens,
            stderr=mean.sampling_error,
            stopped=self.stopped,
            budget=self.limits.budget,
            seed=self.limits.seed,
        )
        return mean, self.population.answer_means(self.size, values), estimate

    def _next_size(self, elapsed: float) -> int:
        """The size of the sample after the next round; the present one if the budget allows no more words."""
        size, target, room = self.size, self.max_size, math.inf
        if self.limits.tokens is not None:
            if size:
                return size
            room = self.limits.tokens
        elif size == 0:
            target = min(_TIMED_FIRST_ROUND, target)
        elif elapsed > 0:
            assert self.limits.seconds is not None  # a budget is one or the other
            room = _SAFETY * (self.limits.seconds - elapsed) * self._spent / elapsed
        sizes = range(size + 1, target + 1)
        added = bisect_right(sizes, room, key=lambda after: self._round_cost(size, after))
        if size == added == 0:
            raise OverBudgetError(self._round_cost(0, 1))
        # a few words more are not worth another pass over the contexts
        if added == 0 or (size + added < target and added < size // 8):
            return size
        self._spent += self._round_cost(size, size + added)
        return size + added

    def _round_cost(self, before: int, after: int) -> int:
        """Tokens that a round takes at most: the reference and all summaries in it."""
        return sum(cost.tokens(before, after) for cost in self._costs)
