"""Which masked words to score when not all of them are, how many, and what they can cost at most. No model,
no tensors.

Equal masked-out answers are one stratum that counts as often as it was drawn, because scoring one copy scores
them all. Inside a stratum words are drawn one after the other, each with probability proportional to its
token tasks among the words that are left: a word's distance grows with its tokens, so the rate per token is
what varies, and little. The first N words of this order are the sample of size N, so a larger sample extends
a smaller one, and all summaries of a question get the same words.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, groupby

import numpy as np

from selfreflect.metric.engine.tree import PrefixTree, Prompt, build_tree
from selfreflect.metric.sampling.estimation import WordSample, drawn_sum
from selfreflect.metric.tasks import MaskedWord


@dataclass(frozen=True)
class _Stratum:
    """Masked-out answers that are equal, and the order in which their words are drawn."""

    copies: tuple[tuple[int, ...], ...]
    """For each copy the indices of its words."""
    answers: tuple[int, ...]
    """For each copy its index among the masked-out answers."""
    sizes: tuple[int, ...]
    """Token tasks of each word of one copy."""
    order: tuple[int, ...]
    """Positions in ``sizes``, the first to be drawn in front."""

    @property
    def weight(self) -> int:
        """Token tasks of all copies."""
        return len(self.copies) * sum(self.sizes)


class Population:
    """The masked words of one question in strata, and the order in which they are drawn.

    Args:
        words: all masked words.
        sizes: the token tasks of each.
        seed, question_id: what the order derives from, and nothing else.
    """

    def __init__(
        self, words: Sequence[MaskedWord], sizes: Sequence[int], seed: int, question_id: str
    ) -> None:
        digest = hashlib.sha256(f"{seed} {question_id}".encode("utf-8", "surrogatepass")).digest()
        rng = np.random.default_rng(int.from_bytes(digest, "big"))
        equal: dict[tuple[tuple[str, str], ...], list[tuple[int, ...]]] = {}
        for _, group in groupby(range(len(words)), key=lambda index: words[index].answer):
            copy = tuple(group)
            equal.setdefault(tuple((words[index].masked, words[index].text) for index in copy), []).append(
                copy
            )
        self.strata: list[_Stratum] = []
        for copies in equal.values():
            own = tuple(sizes[index] for index in copies[0])
            self.strata.append(
                _Stratum(tuple(copies), tuple(words[copy[0]].answer for copy in copies), own, _race(own, rng))
            )
        self.answer_order = _race([stratum.weight for stratum in self.strata], rng)
        self.size = sum(len(stratum.sizes) for stratum in self.strata)
        """Distinct words: what sample sizes count."""

    @cached_property
    def _later(self) -> list[int]:
        """The stratum of each draw after every stratum has one word, by d'Hondt's rule: shares follow the
        strata's token tasks.

        It does not depend on the random order, so that a sample size chosen by cost does not favour some
        words.
        """
        shares = [
            (stratum.weight / rank, -index)
            for index, stratum in enumerate(self.strata)
            for rank in range(2, len(stratum.sizes) + 1)
        ]
        return [-index for _, index in sorted(shares, reverse=True)]

    def quotas(self, size: int) -> list[int]:
        """Words of each stratum in the sample of ``size``; with fewer words than strata the strata are drawn
        too."""
        first = [0] * len(self.strata)
        for index in self.answer_order[:size]:
            first[index] = 1
        for index in self._later[: max(0, size - len(self.strata))]:
            first[index] += 1
        return first

    def chosen(self, size: int) -> list[int]:
        """Indices of the words in the sample, every copy of them, in order."""
        picked = zip(self.strata, self.quotas(size), strict=True)
        return sorted(
            copy[place]
            for stratum, quota in picked
            for place in stratum.order[:quota]
            for copy in stratum.copies
        )

    def size_of(self, words: int) -> int:
        """The largest sample that covers at most ``words`` words, copies counted; at least 1, even if its
        copies are more."""
        return next((size for size in range(self.size, 1, -1) if len(self.chosen(size)) <= words), 1)

    def drawn(self, size: int, values: Mapping[int, float]) -> list[WordSample]:
        """The sample with its values (one for each word index), for
        :func:`~selfreflect.metric.sampling.estimation.sampled_mean`."""
        quotas = self.quotas(size)
        found = []
        for index in self.answer_order:
            stratum = self.strata[index]
            places = stratum.order[: quotas[index]]
            found.append(
                WordSample(
                    total_size=sum(stratum.sizes),
                    count=len(stratum.sizes),
                    copies=len(stratum.copies),
                    sizes=tuple(stratum.sizes[place] for place in places),
                    values=tuple(values[stratum.copies[0][place]] for place in places),
                )
            )
        return found

    def answer_means(self, size: int, values: Mapping[int, float]) -> dict[int, float]:
        """The estimated mean of each masked-out answer that has a drawn word, by its index."""
        drawn = zip(self.answer_order, self.drawn(size, values), strict=True)
        means = {index: drawn_sum(draws) / draws.total_size for index, draws in drawn if draws.values}
        return {
            answer: means[index]
            for index, stratum in enumerate(self.strata)
            if index in means
            for answer in stratum.answers
        }


def _race(sizes: Sequence[int], rng: np.random.Generator) -> tuple[int, ...]:
    """A random order: each place goes to one of those left, with probability proportional to size (an
    exponential race)."""
    return tuple(np.argsort(rng.exponential(size=len(sizes)) / np.array(sizes), kind="stable").tolist())


class Cost:
    """How many tokens one context can cost at most, whichever words the chance picks.

    A bound that knew the picks would let cheap words into samples more often than dear ones, and the estimate
    would no longer be unbiased.
    """

    def __init__(self, population: Population, prompts: Sequence[Prompt]) -> None:
        whole = build_tree(prompts)
        self._population = population
        self._prefix = len(whole.prefix)
        self._all = whole.computed_tokens
        self._most: list[list[int]] = []
        for stratum in population.strata:
            plan = build_tree([prompts[index] for index in stratum.copies[0]])
            beyond = len(plan.prefix) - self._prefix
            first, *others = _paths(plan)
            self._most.append(list(accumulate([first + beyond, *others], initial=0)))

    def tokens(self, before: int, after: int) -> int:
        """Upper bound on the tokens of the pass that enlarges a sample from ``before`` to ``after`` words."""
        strata = len(self._population.strata)
        if before == 0 and after < strata:
            return self._prefix + sum(sorted((most[1] for most in self._most), reverse=True)[:after])
        added = [
            b - a
            for a, b in zip(self._population.quotas(before), self._population.quotas(after), strict=True)
        ]
        bound = self._prefix + sum(
            most[min(count, len(most) - 1)] for most, count in zip(self._most, added, strict=True)
        )
        return min(bound, self._all)


def _paths(plan: PrefixTree) -> list[int]:
    """Lengths of the paths that a tree falls apart into when each node stays with its tallest child, longest
    first.

    The first n of them add up to the most nodes that any n prompts can have: taking the longest path again
    and again is optimal in a tree.
    """
    tallest = [0] * len(plan.tokens)
    paths = []
    for node in range(len(plan.tokens) - 1, -1, -1):
        length, above = tallest[node] + 1, int(plan.parent[node])
        shorter = length
        if above >= 0:
            shorter, tallest[above] = sorted((length, tallest[above]))
        if shorter:
            paths.append(shorter)
    return sorted(paths, reverse=True)
