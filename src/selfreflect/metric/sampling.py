"""Scores from a sample of masked words: drawing, sample size within a budget, and estimation.

Equal test answers are one stratum, because scoring one copy scores them all. Inside a stratum words are
drawn one after the other, with probability proportional to their token tasks: distances grow with tokens, so
the rate per token varies little. The first N words of this order are the sample of size N, so a larger sample
extends a smaller one, and all summaries of a question get the same words.

What the words cannot determine is None, never NaN.
"""

from __future__ import annotations

import hashlib
import math
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, chain

import numpy as np

from selfreflect.metric.engine.tree import PrefixTree, Prompt, build_tree
from selfreflect.metric.inputs import Limits
from selfreflect.metric.prompts import MaskedWord
from selfreflect.records import Sampled, WordDistance
from selfreflect.stats import Floats


@dataclass(frozen=True)
class _Stratum:
    """Equal test answers, with the drawing order of their words."""

    copies: tuple[tuple[int, ...], ...]
    """Indices of the words of each copy."""
    sizes: tuple[int, ...]
    """Number of token tasks of each word of one copy."""
    order: tuple[int, ...]
    """Positions in ``sizes``, in the order of drawing."""

    @property
    def weight(self) -> int:
        return len(self.copies) * sum(self.sizes)


class Population:
    """Strata of one question's masked words, in an order drawn from the seed and the question's id.

    Attributes:
        words, tokens: how many words and token tasks there are, copies counted.
        size: how many distinct words there are: what sample sizes count.
    """

    def __init__(
        self, words: Sequence[MaskedWord], sizes: Sequence[int], seed: int, question_id: str
    ) -> None:
        # not hash(), which differs between processes: the same words on every machine
        digest = hashlib.sha256(f"{seed} {question_id}".encode("utf-8", "surrogatepass")).digest()
        rng = np.random.default_rng(int.from_bytes(digest, "big"))
        # answers that are equal word by word, mask by mask, become copies of one stratum
        indices_of: dict[int, list[int]] = {}
        for index, word in enumerate(words):
            indices_of.setdefault(word.answer, []).append(index)
        # equal answers have equal distances in any context, so their copies need no computation
        copies_of: dict[tuple[tuple[str, str], ...], list[tuple[int, ...]]] = {}
        for indices in indices_of.values():
            text = tuple((words[index].masked, words[index].text) for index in indices)
            copies_of.setdefault(text, []).append(tuple(indices))
        self.strata: list[_Stratum] = []
        for copies in copies_of.values():
            own_sizes = tuple(sizes[index] for index in copies[0])
            order = _random_order(own_sizes, rng)
            self.strata.append(_Stratum(tuple(copies), own_sizes, order))
        # decides which answers get a word where the budget pays for fewer words than answers
        self.stratum_order = _random_order([stratum.weight for stratum in self.strata], rng)
        self._answers = [word.answer for word in words]
        self.words = len(words)
        self.tokens = sum(sizes)
        self.size = sum(len(stratum.sizes) for stratum in self.strata)

    @cached_property
    def _later(self) -> list[int]:
        """Stratum of each draw after the first round, by d'Hondt's rule on token tasks. Independent of the
        random order, so that a sample size chosen by cost favours no words."""
        shares = []
        for index, stratum in enumerate(self.strata):
            # from 2: _later begins after every stratum has its first word
            for rank in range(2, len(stratum.sizes) + 1):
                shares.append((-stratum.weight / rank, index))
        return [index for _, index in sorted(shares)]

    def quotas(self, size: int) -> list[int]:
        """Count each stratum's words in the sample of ``size``."""
        quotas = [0] * len(self.strata)
        for index in self.stratum_order[:size]:
            quotas[index] = 1
        for index in self._later[: max(0, size - len(self.strata))]:
            quotas[index] += 1
        return quotas

    def indices(self, size: int) -> list[int]:
        """List the ascending indices of words in the sample of ``size``, including all copies."""
        indices: list[int] = []
        for stratum, quota in zip(self.strata, self.quotas(size), strict=True):
            for copy in stratum.copies:
                for position in stratum.order[:quota]:
                    indices.append(copy[position])
        return sorted(indices)

    def size_within(self, words: int) -> int:
        """Find the largest sample size of at most ``words`` words, counting copies; at least 1."""
        # a word of an answer that came five times counts as five, so the number of words jumps with the
        # size
        sizes = range(1, self.size + 1)
        return max(1, bisect_right(sizes, words, key=lambda size: len(self.indices(size))))

    def samples(self, size: int, values: Mapping[int, float]) -> list[WordSample]:
        """Group the samples of ``size`` words by answer, with each word's value."""
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
        """Estimate the mean of each sampled test answer, by its index."""
        means = {}
        for index, sample in zip(self.stratum_order, self.samples(size, values), strict=True):
            if sample.values:
                # not the plain mean: large words are drawn more often
                mean = drawn_sum(sample) / sample.total_size
                for copy in self.strata[index].copies:
                    means[self._answers[copy[0]]] = mean
        return means


def _random_order(sizes: Sequence[int], rng: np.random.Generator) -> tuple[int, ...]:
    """Order items randomly with probability proportional to size, by an exponential race."""
    arrivals = rng.exponential(size=len(sizes)) / np.array(sizes)
    return tuple(np.argsort(arrivals, kind="stable").tolist())


class Cost:
    """Upper bound on one context's tokens, whichever words are drawn. With the cost of the words drawn, cheap
    words would get into samples more often, and estimates would be biased."""

    def __init__(self, population: Population, prompts: Sequence[Prompt]) -> None:
        whole = build_tree(prompts)
        self._population = population
        self._prefix = len(whole.prefix)
        self._all = whole.computed_tokens
        self._most: list[list[int]] = []
        """Maximum number of tokens below the prefix for any 0, 1, 2, ... words, by stratum."""
        for stratum in population.strata:
            tree = build_tree([prompts[index] for index in stratum.copies[0]])
            # the first word of a stratum also pays for what its prompts share below the common
            # prefix
            first, *rest = _path_lengths(tree)
            first += len(tree.prefix) - self._prefix
            self._most.append(list(accumulate([first, *rest], initial=0)))

    def tokens(self, size: int) -> int:
        """Compute an upper bound on the tokens of a sample of ``size``."""
        if size < len(self._population.strata):
            # any stratum may be drawn, with one word
            first_words = sorted([bounds[1] for bounds in self._most], reverse=True)
            return self._prefix + sum(first_words[:size])
        quotas = self._population.quotas(size)
        bound = sum(bounds[quota] for bounds, quota in zip(self._most, quotas, strict=True))
        # paths of several strata may share nodes, so the sum can exceed the whole tree
        return min(self._prefix + bound, self._all)


def _path_lengths(tree: PrefixTree) -> list[int]:
    """Split a tree into paths, each following the tallest child, and return their lengths, longest first. The
    first n add up to the most nodes that any n prompts can have: in a tree, greedy is optimal."""
    # nodes are in depth-first order: backwards, every child comes before its parent
    tallest = [0] * len(tree.tokens)  # below each node, among the children seen so far
    lengths = []
    for node in reversed(range(len(tree.tokens))):
        length = tallest[node] + 1
        parent = int(tree.parent[node])
        if parent < 0:
            lengths.append(length)
            continue
        if tallest[parent]:
            # two branches meet: the longer one goes on to the parent, the shorter one ends here
            lengths.append(min(length, tallest[parent]))
        tallest[parent] = max(length, tallest[parent])
    return sorted(lengths, reverse=True)


@dataclass(frozen=True)
class WordSample:
    """Words of one test answer, sampled without replacement and proportionally to size."""

    total_size: int
    """Number of token tasks in all words of the answer."""
    count: int
    """Number of words in the answer."""
    copies: int
    """Number of times that the answer occurs."""
    sizes: tuple[int, ...]
    """Number of token tasks of each sampled word, in sampling order."""
    values: tuple[float, ...]
    """Summed distances of each sampled word."""

    @property
    def complete(self) -> bool:
        return len(self.values) == self.count

    @property
    def weight(self) -> int:
        return self.copies * self.total_size

    @property
    def rates(self) -> list[float]:
        """Distance per token task of each sampled word."""
        return [value / size for value, size in zip(self.values, self.sizes, strict=True)]


@dataclass(frozen=True)
class SampledMean:
    """A flat mean over token tasks, estimated from a sample of the words."""

    mean: float
    sampling_error: float | None
    """Standard error relative to the mean over all words of these answers."""
    stderr: float | None
    """Standard error including the spread between answers."""


def sampled_mean(answers: Sequence[WordSample]) -> SampledMean:
    """Estimate the unbiased flat mean over all token tasks from words sampled within answers.

    With a word of every answer, each answer's sum is estimated by :func:`drawn_sum` (stratified sampling;
    Cochran, Sampling Techniques, 3rd ed. 1977, chapter 5). An answer with one sampled word of several borrows
    the variance of all rates, which overstates the error (collapsed strata, 5A.12). ``stderr`` adds the
    spread between answers as in :func:`~selfreflect.stats.clustered_mean`, less the part that sampling words
    contributes to it.

    With fewer words than answers, the first answers have one word each (two-stage sampling, chapter 11): the
    mean is Des Raj's estimator over answers, and both standard errors assume sampling with replacement, which
    overstates them (9A.3).

    Args:
        answers: in the order in which answers are sampled; with at least one word, and finite values.
    """
    rates = np.array(list(chain.from_iterable(answer.rates for answer in answers)))
    token_tasks = sum(answer.weight for answer in answers)
    spread = float(rates.var(ddof=1)) if len(rates) > 1 else None
    # fewer words than answers: the sample is of answers, with a word of each
    if not all(answer.values for answer in answers):
        error = math.sqrt(spread / len(rates)) if spread is not None else None
        return SampledMean(_first_answers(answers) / token_tasks, error, error)
    copies = np.array([answer.copies for answer in answers], dtype=np.float64)
    sums = np.array(list(map(drawn_sum, answers)))
    mean = float(copies @ sums) / token_tasks
    variances = _sum_variances(answers, sums, spread)
    if variances is None:
        return SampledMean(mean, None, None)
    sampling_variance = float(copies**2 @ variances)
    error = math.sqrt(sampling_variance) / token_tasks
    m = float(copies.sum())
    if m < 2:
        # a single answer shows no spread between answers
        return SampledMean(mean, error, None)
    sizes = np.array([answer.total_size for answer in answers])
    # the spread between answers holds the noise of choosing words, which is taken off
    squares = float(copies @ (sums - mean * sizes) ** 2)
    between = max(0.0, m / (m - 1) * squares - float(copies @ variances))
    return SampledMean(mean, error, math.sqrt(between + sampling_variance) / token_tasks)


def drawn_sum(answer: WordSample) -> float:
    """Estimate the unbiased sum of an answer's values from its sampled words (Des Raj 1956, J. Am. Stat.
    Assoc. 51, 269-284).

    Draw i estimates the sum as the values drawn before it plus its own rate times the size then left. Draw i
    of N has weight 1/((N-i)(N-i+1)), its inverse variance if all sizes are equal; then the estimate is as
    precise as the mean of a simple random sample. If all words were sampled the sum is exact.
    """
    # the weight of the last draw of all words would be 1 / 0
    if answer.complete:
        return math.fsum(answer.values)
    # every draw estimates the whole sum; later draws know more of it
    estimates, weights = _draws(answer)
    return float(np.average(estimates, weights=weights))


def _draws(answer: WordSample) -> tuple[Floats, Floats]:
    """Estimate the sum of an answer's values once per draw, with weights."""
    values = np.array(answer.values)
    sizes = np.array(answer.sizes, dtype=np.float64)
    size_left = answer.total_size - (np.cumsum(sizes) - sizes)
    words_left = answer.count - np.arange(1, len(values) + 1)
    estimates = np.cumsum(values) - values + values / sizes * size_left
    return estimates, 1 / (words_left * (words_left + 1.0))


def _sum_variances(answers: Sequence[WordSample], sums: Floats, spread: float | None) -> Floats | None:
    """Compute the variance of each answer's :func:`drawn_sum`; None if a missing ``spread`` is needed."""
    variances = np.zeros(len(answers))
    for index, answer in enumerate(answers):
        n = len(answer.values)
        if answer.complete:
            continue
        if n > 1:
            estimates, weights = _draws(answer)
            variances[index] = np.average((estimates - sums[index]) ** 2, weights=weights) / (n - 1)
        elif spread is None:
            return None
        else:
            # the finite population correction: an answer with one word has no sampling error
            variances[index] = answer.total_size**2 * spread * (1 - 1 / answer.count)
    return variances


def _first_answers(answers: Sequence[WordSample]) -> float:
    """Estimate the sum over all answers from one word of each of the first answers, after Des Raj."""
    estimates = []
    sum_before = 0.0
    weight_left = sum(answer.weight for answer in answers)
    for answer in answers:
        if answer.values:
            rate = answer.rates[0]
            estimates.append(sum_before + rate * weight_left)
            sum_before += rate * answer.weight
            weight_left -= answer.weight
    return math.fsum(estimates) / len(estimates)


class OverBudgetError(Exception):
    """A budget too small for one word; ``needed`` tokens would suffice."""

    def __init__(self, tokens: int) -> None:
        self.needed = tokens


def size_within_budget(
    population: Population, contexts: Iterable[Sequence[Prompt]], tokens: int, largest: int
) -> int:
    """Find the largest sample size, at most ``largest``, that costs at most ``tokens`` in all contexts
    together.

    Args:
        contexts: the prompts of the reference and of each summary.

    Raises:
        OverBudgetError: the budget does not suffice for a single word.
    """
    costs = [Cost(population, prompts) for prompts in contexts]

    def bound(size: int) -> int:
        return sum(cost.tokens(size) for cost in costs)

    # the bound grows with the size, so bisection finds the largest that fits
    size = bisect_right(range(1, largest + 1), tokens, key=bound)
    if not size:
        raise OverBudgetError(bound(1))
    return size


def estimate(
    words: Sequence[WordDistance], population: Population, size: int, limits: Limits
) -> tuple[SampledMean, dict[int, float], Sampled]:
    """Estimate the score of all words from the sample of ``size``.

    Returns:
        The score, the mean of each answer by its index, and a description of the sample.
    """
    sums = [math.fsum(word.distances) for word in words]
    values = dict(zip(population.indices(size), sums, strict=True))
    mean = sampled_mean(population.samples(size, values))
    sample = Sampled(
        words_scored=len(words),
        words_total=population.words,
        tokens_scored=sum(len(word.distances) for word in words),
        tokens_total=population.tokens,
        stderr=mean.sampling_error,
        stopped="budget",
        budget=limits.budget,
        seed=limits.seed,
    )
    return mean, population.answer_means(size, values), sample
