"""Choosing tokens: the right distribution, the right filters, and random numbers that depend on a sequence's
seed alone."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from selfreflect.models.base import Sampling, seed_for
from selfreflect.models.local.decode import choose, token_likelihoods

CPU = torch.device("cpu")
LOGITS = torch.tensor([2.0, 1.0, 0.5, 0.0, -0.5, -1.0, -2.0, -4.0])


def chi_square(tokens: torch.Tensor, probs: torch.Tensor) -> float:
    expected = probs * len(tokens)
    return float(((torch.bincount(tokens, minlength=len(probs)) - expected) ** 2 / expected).sum())


def sources(*seeds: int) -> list[torch.Generator]:
    return [torch.Generator(CPU).manual_seed(seed) for seed in seeds]


# --- the distribution; with 7 degrees of freedom a right sampler exceeds 36 once in 100,000 times


@pytest.mark.parametrize("temperature", [0.6, 1.0, 2.5])
def test_first_tokens_of_many_sequences_follow_the_softmax(temperature: float) -> None:
    draws = choose(LOGITS.repeat(20_000, 1), Sampling(temperature=temperature), sources(*range(20_000)))
    assert chi_square(draws, torch.softmax(LOGITS / temperature, dim=0)) < 36


def test_temperature_zero_takes_the_likeliest_token() -> None:
    logits = torch.stack([LOGITS, LOGITS.flip(0), LOGITS.roll(3)])
    greedy = Sampling(temperature=0, top_k=2, top_p=0.1, min_p=0.5)
    assert choose(logits, greedy, sources(1, 2, 3)).tolist() == [0, 7, 3]


def test_likelihoods_of_tokens_by_their_definitions() -> None:
    """Self-certainty is KL(uniform, prediction), the mean over the vocabulary of log((1/V) / p)."""
    logits = torch.randn(3, 7, generator=torch.Generator(CPU).manual_seed(0), dtype=torch.float64)
    tokens = [2, 0, 6]
    probs = logits.softmax(-1)
    for place, likelihood in enumerate(token_likelihoods(logits, torch.tensor(tokens))):
        row = probs[place].tolist()
        assert likelihood.logprob == pytest.approx(math.log(row[tokens[place]]), abs=1e-6)
        divergence = sum(math.log((1 / 7) / p) / 7 for p in row)
        assert likelihood.divergence == pytest.approx(divergence, abs=1e-6)
    [flat] = token_likelihoods(torch.zeros(1, 5, dtype=torch.bfloat16), torch.tensor([3]))
    assert flat[:2] == (pytest.approx(-math.log(5)), pytest.approx(0, abs=1e-6))
    [certain] = token_likelihoods(torch.tensor([[50.0, 0.0]]), torch.tensor([0]))
    assert certain.logprob == 0


def test_likely_tokens_and_entropies_of_a_large_vocabulary() -> None:
    """Logits far from 0 and many tokens: the rounding of float32 must not show."""
    logits = (
        torch.randn(4, 50_000, generator=torch.Generator(CPU).manual_seed(0), dtype=torch.float64) * 4 + 30
    )
    logits[3, 10:] = -math.inf
    probs = logits.softmax(-1)
    likelihoods = token_likelihoods(logits, torch.tensor([1, 2, 3, 4]), 5)
    for row, likelihood in zip(probs, likelihoods, strict=True):
        entropy = -torch.special.xlogy(row, row).sum().item()
        assert likelihood.entropy == pytest.approx(entropy, abs=1e-5)
        assert [value for _, value in likelihood.likeliest] == pytest.approx(
            row.topk(5).values.log().tolist(), abs=1e-5
        )
    assert token_likelihoods(logits, torch.tensor([1, 2, 3, 4]))[0].entropy is None


# --- filters


def allowed(logits: list[float], sampling: Sampling) -> list[int]:
    """The tokens that top-k, then top-p among those, then min-p leave, by their definitions and token by
    token."""
    weights = [math.exp(logit / sampling.temperature) for logit in logits]
    order = sorted(range(len(logits)), key=lambda i: -weights[i])
    kept = order[: sampling.top_k] if sampling.top_k else order
    nucleus, mass = [], 0.0
    for i in kept:
        if not nucleus or sampling.top_p >= 1 or mass < sampling.top_p * sum(weights[j] for j in kept):
            nucleus.append(i)
        mass += weights[i]
    return [i for i in nucleus if i == order[0] or weights[i] >= sampling.min_p * weights[order[0]]]


@given(
    numbers=st.lists(st.integers(-40, 40), min_size=1, max_size=12, unique=True),
    scale=st.sampled_from([8, 40]),
    sampling=st.builds(
        Sampling,
        temperature=st.sampled_from([0.3, 1.0, 2.0]),
        top_k=st.integers(0, 14),
        top_p=st.sampled_from([0.0, 0.123, 0.517, 0.9, 0.987, 1.0]),
        min_p=st.sampled_from([0.0, 0.0123, 0.217, 1.0]),
    ),
    seed=st.integers(0, 2**63 - 1),
)
def test_filters_agree_with_their_definitions(
    numbers: list[int], scale: int, sampling: Sampling, seed: int
) -> None:
    logits = [number / scale for number in numbers]
    kept = allowed(logits, sampling)
    for own in range(seed, seed + 10):
        race = torch.empty(len(logits)).exponential_(generator=torch.Generator(CPU).manual_seed(own)).tolist()
        winner = max(kept, key=lambda i: math.exp(logits[i] / sampling.temperature) / race[i])
        assert choose(torch.tensor([logits]), sampling, sources(own)).tolist() == [winner]


@pytest.mark.parametrize("temperature", [0.3, 30.0])
def test_a_nucleus_in_a_vocabulary_of_usual_size_is_small_or_nearly_all_of_it(temperature: float) -> None:
    logits = torch.randn(3_000, generator=torch.Generator(CPU).manual_seed(1)) * 3
    sampling = Sampling(temperature=temperature, top_p=0.9)
    kept = allowed(logits.tolist(), sampling)
    assert len(kept) < 100 or len(kept) > 2_000
    draws = choose(logits.repeat(300, 1), sampling, sources(*range(300))).tolist()
    assert set(draws) <= set(kept)
    assert len(set(draws)) > min(250, len(kept) // 4), "not fewer than the nucleus either"


# --- random numbers


def stream_of(seed: int, steps: int = 30) -> list[int]:
    stream = sources(seed)
    return [choose(LOGITS[None], Sampling(), stream).item() for _ in range(steps)]  # type: ignore[misc]


def test_a_sequence_does_not_notice_its_neighbours() -> None:
    together = sources(5, 6, 7)
    rows = [choose(torch.stack([LOGITS, -LOGITS, LOGITS]), Sampling(), together).tolist() for _ in range(30)]
    assert [row[0] for row in rows] == stream_of(5)
    assert [row[2] for row in rows] == stream_of(7)


def test_seeds_of_steps_are_pinned() -> None:
    """Changing these would change every run that was made with the same seed before."""
    assert seed_for(0, "answers", "q-1") == 8796940587692675489
    assert seed_for(7, "summary", "größe \ud800") == 2519551905611542633


def test_seeds_depend_on_every_part_and_on_their_borders() -> None:
    seeds = [
        seed_for(0),
        seed_for(1),
        seed_for(0, ""),
        seed_for(0, "ab"),
        seed_for(0, "a", "b"),
        seed_for(0, "b", "a"),
        seed_for(0, "a b"),
    ]
    assert len(set(seeds)) == len(seeds)
    assert all(0 <= seed < 2**63 for seed in seeds)
