"""Scoring some of the masked words in rounds, until a limit is reached. Decides from numbers; a callback runs
the model.

Every round takes new words for the reference and all summaries that are still in it, so nothing but their
prefixes is computed twice.
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
from selfreflect.metric.sampling.estimation import SampledMean, sampled_mean
from selfreflect.metric.sampling.limits import Limits
from selfreflect.metric.sampling.population import Cost, Population
from selfreflect.records import WordDistance
from selfreflect.stats import student_p

FIRST_ROUND = 32
"""Words at least before distances may end the scoring: fewer say too little of their own spread."""

_TIMED_FIRST = 8
"""Words of the round that finds out how fast the machine is."""

_SAFETY = 0.9
"""Share of the time left that a round may be expected to take."""

Measure = Callable[[Sequence[int], Sequence[int]], Sequence[Sequence[WordDistance]]]
"""(indices of words, indices of summaries) -> for each of those summaries the distances of those words."""


@dataclass
class SequentialResult:
    """What is known of one summary when its scoring ends."""

    size: int = 0
    """Distinct words, see :class:`~selfreflect.metric.sampling.population.Population`."""
    words: dict[int, WordDistance] = field(default_factory=dict)
    stopped: Literal["budget", "standard_error", "race", "paired"] = "budget"
    ordered: tuple[int, ...] = ()
    """Summaries from which this one certainly differs."""

    @property
    def values(self) -> dict[int, float]:
        """Summed distance of each word by its index."""
        return {index: math.fsum(word.distances) for index, word in self.words.items()}

    @property
    def finite(self) -> bool:
        return all(map(math.isfinite, self.values.values()))


class OverBudgetError(Exception):
    """Not even one word can be scored; ``needed`` tokens would do."""

    def __init__(self, needed: int) -> None:
        super().__init__(needed)
        self.needed = needed


class SequentialScoring:
    """One question in rounds.

    Args:
        population: its masked words.
        reference, summaries: the prompts of each context.
        limits: when to stop.
        at_most: words that no summary may exceed, because earlier scores of the question do not either.
        measure: runs the model.
        clock: seconds.
    """

    def __init__(
        self,
        population: Population,
        reference: Sequence[Prompt],
        summaries: Sequence[Sequence[Prompt]],
        limits: Limits,
        measure: Measure,
        *,
        at_most: int | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.population = population
        self.limits = limits
        self.measure = measure
        self.clock = clock
        self.most = population.size if at_most is None else min(at_most, population.size)
        self.outcomes = [
            SequentialResult(stopped="budget" if self.most == population.size else "paired")
            for _ in summaries
        ]
        counted = limits.tokens is not None or limits.seconds is not None
        self._costs = [Cost(population, prompts) for prompts in (reference, *summaries)] if counted else []
        self._undecided = {
            (a, b) for a, b in combinations(range(len(summaries)), 2) if summaries[a] != summaries[b]
        }
        self._pairs = len(self._undecided)
        self._spent = 0
        self._looks = 0

    def run(self) -> list[SequentialResult]:
        """One outcome per summary.

        Raises:
            OverBudgetError: the token budget does not suffice for a single word.
        """
        began, size = self.clock(), 0
        live = list(range(len(self.outcomes)))
        while live and size < self.most:
            after = self._next(size, live, self.clock() - began)
            if after == size:
                for index in live:
                    self.outcomes[index].stopped = "budget"
                break
            known = set(self.population.chosen(size))
            new = [index for index in self.population.chosen(after) if index not in known]
            for index, words in zip(live, self.measure(new, live), strict=True):
                self.outcomes[index].words.update(zip(new, words, strict=True))
                self.outcomes[index].size = after
            size = after
            live = self._still(size, [index for index in live if self.outcomes[index].finite])
        return self.outcomes

    def _next(self, size: int, live: Sequence[int], elapsed: float) -> int:
        """The size of the sample after the next round; ``size`` where the budget allows no more."""
        after = min(self._wanted(size), self.most)
        if size and not self.limits.adaptive:
            return size
        if not self._costs:
            return after
        room = math.inf if self.limits.tokens is None else self.limits.tokens - self._spent
        if self.limits.seconds is not None and size:
            room = min(
                room,
                _SAFETY * (self.limits.seconds - elapsed) * self._spent / elapsed
                if elapsed > 0
                else math.inf,
            )
        added = bisect_right(range(size + 1, after + 1), room, key=lambda one: self._bill(size, one, live))
        if size == added == 0:
            raise OverBudgetError(self._bill(0, 1, live))
        # a few words more are not worth another pass over the contexts
        if added and (size + added == after or added >= size // 8):
            self._spent += self._bill(size, size + added, live)
            return size + added
        return size

    def _wanted(self, size: int) -> int:
        watched = self.limits.standard_error is not None or self.limits.race is not None
        if size == 0 and self.limits.seconds is not None:
            return _TIMED_FIRST
        if watched:
            return max(FIRST_ROUND, len(self.population.strata), 2 * size)
        return self.population.size

    def _bill(self, before: int, after: int, live: Sequence[int]) -> int:
        """Tokens that a round takes at most: the reference and all summaries in it."""
        return sum(self._costs[place].tokens(before, after) for place in (0, *(1 + index for index in live)))

    def _still(self, size: int, live: list[int]) -> list[int]:
        """The summaries that need more words."""
        if size == self.population.size or size < max(FIRST_ROUND, len(self.population.strata)):
            return live
        if (target := self.limits.standard_error) is not None:
            errors = [self._mean(size, self.outcomes[index].values).sampling_error for index in live]
            if all(error is not None and error <= target for error in errors):
                for index in live:
                    self.outcomes[index].stopped = "standard_error"
                return []
        if self.limits.race is not None and self._pairs:
            self._look(size, live, 1 - self.limits.race)
            needed = {
                index for pair in self._undecided if pair[0] in live and pair[1] in live for index in pair
            }
            for index in live:
                if index not in needed:
                    self.outcomes[index].stopped = "race"
            live = [index for index in live if index in needed]
        return live

    def _look(self, size: int, live: Sequence[int], error: float) -> None:
        """Decide the pairs whose order is certain.

        Student's t of the paired difference on the common words, against the order that all words would give.
        Bonferroni over pairs and
        looks: of ``error``, look j may spend 1/(j(j+1)) on all pairs together, which sums to 1 over any
            number of looks. Like any t
        interval it relies on enough words for a nearly normal mean; bounds that do not (Hoeffding-Serfling,
        empirical Bernstein) need thousands of words before they can tell differences of 0.01, more than a
        question has.
        """
        self._looks += 1
        level = error / (self._pairs * self._looks * (self._looks + 1))
        values = {index: self.outcomes[index].values for index in live}
        for a, b in sorted(self._undecided):
            if a not in values or b not in values:
                continue
            difference = self._mean(size, {word: values[a][word] - values[b][word] for word in values[a]})
            spread = difference.sampling_error
            if spread and student_p(difference.mean / spread, difference.degrees) <= level:
                self._undecided.remove((a, b))
                self.outcomes[a].ordered += (b,)
                self.outcomes[b].ordered += (a,)

    def _mean(self, size: int, values: dict[int, float]) -> SampledMean:
        return sampled_mean(self.population.drawn(size, values))
