"""Estimate the score of a summary from a sample of its words. What the words cannot determine is None, never
NaN."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np

from selfreflect.stats import Floats


@dataclass(frozen=True)
class WordSample:
    """Words sampled from one masked-out answer without replacement, with probability proportional to size."""

    total_size: int
    """Token tasks in all words of the answer."""
    count: int
    """Number of words in the answer."""
    copies: int
    """How often the answer occurs."""
    sizes: tuple[int, ...]
    """Token tasks of each sampled word, in sampling order."""
    values: tuple[float, ...]
    """Summed distances (or differences of distances) of each sampled word."""

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
    """A flat mean over token tasks, estimated from some of the words."""

    mean: float
    sampling_error: float | None
    """Standard error relative to the mean over all words of these answers."""
    stderr: float | None
    """Standard error including the spread between answers."""


def sampled_mean(answers: Sequence[WordSample]) -> SampledMean:
    """Estimate the flat mean over all token tasks, without bias, from words sampled within answers.

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
        return SampledMean(mean, error, None)
    sizes = np.array([answer.total_size for answer in answers])
    squares = float(copies @ (sums - mean * sizes) ** 2)
    between = max(0.0, m / (m - 1) * squares - float(copies @ variances))
    return SampledMean(mean, error, math.sqrt(between + sampling_variance) / token_tasks)


def drawn_sum(answer: WordSample) -> float:
    """Estimate the sum of an answer's values from its sampled words, without bias (Des Raj 1956, J. Am. Stat.
    Assoc. 51, 269-284).

    Draw i estimates the sum as the values drawn before it plus its own rate times the size then left. Draw i
    of N has weight 1/((N-i)(N-i+1)), its inverse variance if all sizes are equal; then the estimate is as
    precise as the mean of a simple random sample. If all words were sampled the sum is exact.
    """
    if answer.complete:
        return math.fsum(answer.values)
    estimates, weights = _draws(answer)
    return float(np.average(estimates, weights=weights))


def _draws(answer: WordSample) -> tuple[Floats, Floats]:
    """Estimates of the sum of an answer's values, one per draw, and their weights."""
    values = np.array(answer.values)
    sizes = np.array(answer.sizes, dtype=np.float64)
    size_left = answer.total_size - (np.cumsum(sizes) - sizes)
    words_left = answer.count - np.arange(1, len(values) + 1)
    estimates = np.cumsum(values) - values + values / sizes * size_left
    return estimates, 1 / (words_left * (words_left + 1.0))


def _sum_variances(answers: Sequence[WordSample], sums: Floats, spread: float | None) -> Floats | None:
    """Variances of each answer's :func:`drawn_sum`; None if one has to borrow a ``spread`` that is None."""
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
            variances[index] = answer.total_size**2 * spread * (1 - 1 / answer.count)
    return variances


def _first_answers(answers: Sequence[WordSample]) -> float:
    """Des Raj's estimate of the sum over all answers, from one word in each of the first answers."""
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
