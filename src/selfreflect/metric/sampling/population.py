"""Which masked words to score under a limit, how many, and what they can cost at most. No model, no tensors.

Equal masked-out answers are one stratum, because scoring one copy scores them all. Inside a stratum words are
drawn one after the other, with probability proportional to their token tasks: distances grow with tokens, so
the rate per token varies little. The first N words of this order are the sample of size N, so a larger sample
extends a smaller one, and all summaries of a question get the same words.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

import numpy as np

from selfreflect.metric.engine.tree import PrefixTree, Prompt, build_tree
from selfreflect.metric.prompts import MaskedWord
from selfreflect.metric.sampling.estimate import WordSample, drawn_sum


@dataclass(frozen=True)
class _Stratum:
    """Masked-out answers that are equal, and the order in which their words are drawn."""

    copies: tuple[tuple[int, ...], ...]
    """For each copy the indices of its words."""
    sizes: tuple[int, ...]
    """Token tasks of each word of one copy."""
    order: tuple[int, ...]
    """Positions in ``sizes``, in the order of drawing."""

    @property
    def weight(self) -> int:
        return len(self.copies) * sum(self.sizes)


class Population:
    """The masked words of one question in strata, and the order in which they are drawn, which derives from
    the seed and the question's id alone. ``sizes`` are the token tasks of each word.

    Attributes:
        words, tokens: how many words and token tasks there are, copies counted.
        size: how many distinct words there are: what sample sizes count.
    """

    def __init__(
        self, words: Sequence[MaskedWord], sizes: Sequence[int], seed: int, question_id: str
    ) -> None:
        digest = hashlib.sha256(f"{seed} {question_id}".encode("utf-8", "surrogatepass")).digest()
        rng = np.random.default_rng(int.from_bytes(digest, "big"))
        indices_of: dict[int, list[int]] = {}
        for index, word in enumerate(words):
            indices_of.setdefault(word.answer, []).append(index)
        copies_of: dict[tuple[tuple[str, str], ...], list[tuple[int, ...]]] = {}
        for indices in indices_of.values():
            text = tuple((words[index].masked, words[index].text) for index in indices)
            copies_of.setdefault(text, []).append(tuple(indices))
        self.strata: list[_Stratum] = []
        for copies in copies_of.values():
            own_sizes = tuple(sizes[index] for index in copies[0])
            order = _random_order(own_sizes, rng)
            self.strata.append(_Stratum(tuple(copies), own_sizes, order))
        self.stratum_order = _random_order([stratum.weight for stratum in self.strata], rng)
        self._answers = [word.answer for word in words]
        self.words = len(words)
        self.tokens = sum(sizes)
        self.size = sum(len(stratum.sizes) for stratum in self.strata)

    @cached_property
    def _later(self) -> list[int]:
        """The stratum of each draw after every stratum has one word, by d'Hondt's rule on their token tasks.
        Independent of the random order, so that a sample size chosen by cost favours no words."""
        shares = []
        for index, stratum in enumerate(self.strata):
            for rank in range(2, len(stratum.sizes) + 1):
                shares.append((-stratum.weight / rank, index))
        return [index for _, index in sorted(shares)]

    def quotas(self, size: int) -> list[int]:
        """Words of each stratum in the sample of ``size``; with fewer words than strata, these are drawn."""
        quotas = [0] * len(self.strata)
        for index in self.stratum_order[:size]:
            quotas[index] = 1
        for index in self._later[: max(0, size - len(self.strata))]:
            quotas[index] += 1
        return quotas

    def indices(self, size: int) -> list[int]:
        """Ascending indices of the words in the sample of ``size``, every copy of them."""
        indices: list[int] = []
        for stratum, quota in zip(self.strata, self.quotas(size), strict=True):
            for copy in stratum.copies:
                for position in stratum.order[:quota]:
                    indices.append(copy[position])
        return sorted(indices)

    def size_within(self, words: int) -> int:
        """The size of the largest sample of at most ``words`` words, copies counted; at least 1."""
        for size in range(self.size, 1, -1):
            if len(self.indices(size)) <= words:
                return size
        return 1

    def samples(self, size: int, values: Mapping[int, float]) -> list[WordSample]:
        """The sample of ``size``, with a value for each word index."""
        quotas = self.quotas(size)
        samples = []
        for index in self.stratum_order:
            stratum = self.strata[index]
            positions = stratum.order[: quotas[index]]
            first = stratum.copies[0]
            samples.append(
                WordSample(
                    total_size=sum(stratum.sizes),
                    count=len(stratum.sizes),
                    copies=len(stratum.copies),
                    sizes=tuple(stratum.sizes[position] for position in positions),
                    values=tuple(values[first[position]] for position in positions),
                )
            )
        return samples

    def answer_means(self, size: int, values: Mapping[int, float]) -> dict[int, float]:
        """The estimated mean of each masked-out answer that has a word in the sample, by its index."""
        means = {}
        for index, sample in zip(self.stratum_order, self.samples(size, values), strict=True):
            if sample.values:
                mean = drawn_sum(sample) / sample.total_size
                for copy in self.strata[index].copies:
                    means[self._answers[copy[0]]] = mean
        return means


def _random_order(sizes: Sequence[int], rng: np.random.Generator) -> tuple[int, ...]:
    """Draw one after the other with probability proportional to size, by an exponential race."""
    arrivals = rng.exponential(size=len(sizes)) / np.array(sizes)
    return tuple(np.argsort(arrivals, kind="stable").tolist())


class Cost:
    """How many tokens one context can cost at most, whichever words chance picks. With the cost of the words
    drawn, cheap words would get into samples more often, and estimates would be biased."""

    def __init__(self, population: Population, prompts: Sequence[Prompt]) -> None:
        whole = build_tree(prompts)
        self._population = population
        self._prefix = len(whole.prefix)
        self._all = whole.computed_tokens
        self._most: list[list[int]] = []
        """For each stratum the most tokens below the prefix that any 0, 1, 2, ... of its words need."""
        for stratum in population.strata:
            tree = build_tree([prompts[index] for index in stratum.copies[0]])
            first, *others = _path_lengths(tree)
            first += len(tree.prefix) - self._prefix
            self._most.append(list(accumulate([first, *others], initial=0)))

    def tokens(self, before: int, after: int) -> int:
        """Upper bound on the tokens of a round that enlarges the sample from ``before`` to ``after``."""
        if before == 0 and after < len(self._population.strata):
            # any stratum may be drawn, with one word
            first_words = sorted([most[1] for most in self._most], reverse=True)
            return self._prefix + sum(first_words[:after])
        bound = self._prefix
        earlier = self._population.quotas(before)
        later = self._population.quotas(after)
        for most, old, new in zip(self._most, earlier, later, strict=True):
            bound += most[min(new - old, len(most) - 1)]
        return min(bound, self._all)


def _path_lengths(tree: PrefixTree) -> list[int]:
    """Lengths of the paths that a tree falls apart into when each node stays with its tallest child, longest
    first. The first n add up to the most nodes that any n prompts can have: in a tree, greedy is optimal."""
    tallest = [0] * len(tree.tokens)  # below each node, among the children seen so far
    lengths = []
    for node in reversed(range(len(tree.tokens))):
        length = tallest[node] + 1
        parent = int(tree.parent[node])
        if parent < 0:
            lengths.append(length)
            continue
        if tallest[parent]:
            lengths.append(min(length, tallest[parent]))
        tallest[parent] = max(length, tallest[parent])
    return sorted(lengths, reverse=True)
