"""Score some of the masked words in rounds until a limit is reached. Decides from numbers; a callback runs
the model.

Every round takes new words, so nothing but prefixes is computed twice.
"""

from __future__ import annotations

import math
import time
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Literal

from selfreflect.metric.engine.tree import Prompt
from selfreflect.metric.limits import Limits
from selfreflect.metric.sampling.estimate import SampledMean, sampled_mean
from selfreflect.metric.sampling.population import Cost, Population
from selfreflect.records import Sampled, WordDistance
from selfreflect.stats import student_p

FIRST_ROUND = 32
"""Minimum words before distances may end the scoring: fewer say too little of their own spread."""

_TIMED_FIRST_ROUND = 8
"""Words of the round that measures how fast the machine is."""

_SAFETY = 0.9
"""Share of the remaining time that a round may be expected to take."""

Measure = Callable[[Sequence[int], Sequence[int]], Sequence[Sequence[WordDistance]]]
"""(indices of words, indices of summaries) -> for each of those summaries the distances of those words."""


@dataclass
class SequentialResult:
    """What is known of one summary when its scoring ends."""

    size: int = 0
    """Distinct words, see :class:`~selfreflect.metric.sampling.population.Population`."""
    distances: dict[int, WordDistance] = field(default_factory=dict)
    """By index of the word."""
    stopped: Literal["budget", "standard_error", "race", "paired"] = "budget"
    ordered: tuple[int, ...] = ()
    """Summaries from which this one certainly differs."""

    @property
    def words(self) -> tuple[WordDistance, ...]:
        """In the order of the question's words."""
        return tuple(self.distances[index] for index in sorted(self.distances))

    @property
    def values(self) -> dict[int, float]:
        """Summed distance of each word by its index."""
        return {index: math.fsum(word.distances) for index, word in self.distances.items()}


class OverBudgetError(Exception):
    """Not even one word can be scored; ``needed`` tokens would suffice."""

    def __init__(self, tokens: int) -> None:
        self.needed = tokens


class SequentialScoring:
    """Scores one question in rounds.

    ``reference`` and ``summaries`` are the prompts of each context. No summary gets more than ``max_words``
    scored words, copies counted.
    """

    def __init__(
        self,
        population: Population,
        reference: Sequence[Prompt],
        summaries: Sequence[Sequence[Prompt]],
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
        stopped: Literal["budget", "paired"] = "budget" if self.max_size == population.size else "paired"
        self.results = [SequentialResult(stopped=stopped) for _ in summaries]
        self._costs: list[Cost] = []
        if limits.tokens is not None or limits.seconds is not None:
            self._costs = [Cost(population, prompts) for prompts in (reference, *summaries)]
        self._undecided: set[tuple[int, int]] = set()
        for a, b in combinations(range(len(summaries)), 2):
            if summaries[a] != summaries[b]:
                self._undecided.add((a, b))
        self._pairs = len(self._undecided)
        self._spent = 0
        self._looks = 0

    def run(self) -> list[SequentialResult]:
        """Score words until a limit is reached: one result per summary.

        Raises:
            OverBudgetError: the token budget does not suffice for a single word.
        """
        start = self.clock()
        size = 0
        live = list(range(len(self.results)))
        while live and size < self.max_size:
            next_size = self._next_size(size, live, self.clock() - start)
            if next_size == size:
                for index in live:
                    self.results[index].stopped = "budget"
                break
            old = self.population.indices(size)
            new = sorted(set(self.population.indices(next_size)).difference(old))
            size = next_size
            still_finite = []
            for index, words in zip(live, self.measure(new, live), strict=True):
                result = self.results[index]
                result.distances.update(zip(new, words, strict=True))
                result.size = size
                if all(map(math.isfinite, result.values.values())):
                    still_finite.append(index)
            live = self._drop_finished(size, still_finite)
        return self.results

    def estimate(
        self, result: SequentialResult, names: Sequence[str]
    ) -> tuple[SampledMean, dict[int, float], Sampled]:
        """The score of one summary, estimated from some words, the mean of each answer by its index, and how
        it was estimated. ``names`` are those of all summaries."""
        words = result.words
        mean = self._mean(result.size, result.values)
        estimate = Sampled(
            words_scored=len(words),
            words_total=self.population.words,
            tokens_scored=sum(len(word.distances) for word in words),
            tokens_total=self.population.tokens,
            stderr=mean.sampling_error,
            stopped=result.stopped,
            budget=self.limits.budget,
            standard_error=self.limits.standard_error,
            race=self.limits.race,
            seed=self.limits.seed,
            ordered=tuple(names[index] for index in sorted(result.ordered)),
        )
        return mean, self.population.answer_means(result.size, result.values), estimate

    def _next_size(self, size: int, live: Sequence[int], elapsed: float) -> int:
        """The size of the sample after the next round; ``size`` if the budget allows no more words."""
        if size and not self.limits.adaptive:
            return size
        target = min(self._target_size(size), self.max_size)
        if not self._costs:
            return target
        room = math.inf
        if self.limits.tokens is not None:
            room = self.limits.tokens - self._spent
        if self.limits.seconds is not None and size and elapsed > 0:
            speed = self._spent / elapsed
            room = min(room, _SAFETY * (self.limits.seconds - elapsed) * speed)
        sizes = range(size + 1, target + 1)
        added = bisect_right(sizes, room, key=lambda after: self._round_cost(size, after, live))
        if size == added == 0:
            raise OverBudgetError(self._round_cost(0, 1, live))
        # a few words more are not worth another pass over the contexts
        if added == 0 or (size + added < target and added < size // 8):
            return size
        self._spent += self._round_cost(size, size + added, live)
        return size + added

    def _target_size(self, size: int) -> int:
        if size == 0 and self.limits.seconds is not None:
            return _TIMED_FIRST_ROUND
        if self.limits.standard_error is None and self.limits.race is None:
            return self.population.size
        return max(FIRST_ROUND, len(self.population.strata), 2 * size)

    def _round_cost(self, before: int, after: int, live: Sequence[int]) -> int:
        """Tokens that a round takes at most: the reference and all summaries in it."""
        total = self._costs[0].tokens(before, after)
        for index in live:
            total += self._costs[1 + index].tokens(before, after)
        return total

    def _drop_finished(self, size: int, live: list[int]) -> list[int]:
        if size == self.population.size or size < max(FIRST_ROUND, len(self.population.strata)):
            return live
        target = self.limits.standard_error
        if target is not None:
            errors = [self._mean(size, self.results[index].values).sampling_error for index in live]
            if all(error is not None and error <= target for error in errors):
                for index in live:
                    self.results[index].stopped = "standard_error"
                return []
        if self.limits.race is None or not self._pairs:
            return live
        self._decide_pairs(size, live, 1 - self.limits.race)
        close: set[int] = set()
        for a, b in self._undecided:
            if a in live and b in live:
                close |= {a, b}
        for index in set(live) - close:
            self.results[index].stopped = "race"
        return sorted(close)

    def _decide_pairs(self, size: int, live: Sequence[int], error: float) -> None:
        """Decide the pairs whose order is certain: Student's t of the paired difference on the common words.

        Bonferroni over pairs and looks: of ``error``, look j may spend 1/(j(j+1)) on all pairs together,
        which sums to 1 over any number of looks. Like any t interval it relies on a nearly normal mean.
        Bounds that do not (Hoeffding-Serfling, empirical Bernstein) would need thousands of words to tell
        differences of 0.01, more than a question has.
        """
        self._looks += 1
        level = error / (self._pairs * self._looks * (self._looks + 1))
        values = {index: self.results[index].values for index in live}
        for a, b in sorted(self._undecided):
            if a not in values or b not in values:
                continue
            differences = {word: values[a][word] - values[b][word] for word in values[a]}
            difference = self._mean(size, differences)
            spread = difference.sampling_error
            if spread and student_p(difference.mean / spread, difference.degrees) <= level:
                self._undecided.remove((a, b))
                self.results[a].ordered += (b,)
                self.results[b].ordered += (a,)

    def _mean(self, size: int, values: dict[int, float]) -> SampledMean:
        return sampled_mean(self.population.samples(size, values))
