from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from selfreflect.metric.distance import (
    hellinger,
    jensen_shannon,
    kl_divergence,
    top1_disagreement,
    total_variation,
)

finite = st.floats(-60, 60, width=32)
rows = st.integers(2, 9).flatmap(
    lambda size: st.tuples(*[st.lists(finite, min_size=size, max_size=size)] * 2)
)


def distance(p: list[float], q: list[float], temperature: float = 1.0) -> float:
    return total_variation(torch.tensor([p]), torch.tensor([q]), temperature).item()


@pytest.mark.parametrize("temperature", [0.5, 5.0])
def test_two_tokens_differ_by_the_difference_of_their_probabilities(temperature):
    def sigmoid(x):
        return 1 / (1 + math.exp(-x / temperature))

    assert distance([1.5, 0.0], [-0.5, 0.0], temperature) == pytest.approx(
        sigmoid(1.5) - sigmoid(-0.5), abs=1e-7
    )


def test_three_tokens_by_hand():
    p, q = [0.5, 0.25, 0.25], [0.25, 0.25, 0.5]
    assert distance([math.log(x) for x in p], [math.log(x) for x in q]) == pytest.approx(0.25, abs=1e-7)


def test_distributions_without_a_common_token_are_1_apart():
    assert distance([40.0, 0.0, 0.0], [0.0, 40.0, 0.0], 0.5) == pytest.approx(1.0, abs=1e-6)


def test_rounding_over_a_large_vocabulary_does_not_exceed_1():
    torch.manual_seed(0)
    half = 60_000
    p, q = torch.randn(8, 2 * half), torch.randn(8, 2 * half)
    p[:, :half] -= 400
    q[:, half:] -= 400
    found = total_variation(p, q, 1.0)
    assert found.max() <= 1.0
    assert found.min() > 1 - 1e-6


def test_a_high_temperature_brings_everything_together():
    at = [distance([3.0, 0.0, -1.0], [0.0, 2.0, 1.0], temperature) for temperature in (0.5, 5.0, 500.0)]
    assert at[0] > at[1] > at[2]
    assert at[2] < 0.005


def test_each_row_is_one_task_and_the_inputs_stay_as_they_are():
    logits, reference = torch.randn(4, 7), torch.randn(4, 7)
    before = logits.clone(), reference.clone()
    together = total_variation(logits, reference, 5.0)
    assert together.shape == (4,)
    assert together.tolist() == pytest.approx(
        [distance(p, q, 5.0) for p, q in zip(logits.tolist(), reference.tolist(), strict=True)]
    )
    assert torch.equal(logits, before[0])
    assert torch.equal(reference, before[1])


@given(rows, st.sampled_from([0.1, 1.0, 5.0]))
def test_it_is_symmetric_and_between_0_and_1(pair, temperature):
    p, q = pair
    found = distance(p, q, temperature)
    assert 0.0 <= found <= 1.0
    assert distance(q, p, temperature) == pytest.approx(found, abs=1e-6)
    assert distance(p, p, temperature) == 0.0


@given(rows, finite)
def test_adding_a_constant_to_the_logits_changes_nothing(pair, constant):
    p, q = pair
    assert distance([x + constant for x in p], q) == pytest.approx(distance(p, q), abs=2e-5)


# --- the other distances


FORMULAS = {
    "kl": kl_divergence,
    "jensen_shannon": jensen_shannon,
    "hellinger": hellinger,
    "top1": top1_disagreement,
}
HALF, QUARTERS = [1 / 2, 1 / 2], [3 / 4, 1 / 4]


def between(name: str, p: list[float], q: list[float]) -> float:
    """From the probabilities of two distributions; 0 stands for a token that the model rules out."""
    logits = [[math.log(x) if x else -math.inf for x in one] for one in (p, q)]
    return FORMULAS[name](torch.tensor(logits[:1]), torch.tensor(logits[1:]), 1.0).item()


def of_logits(name: str, p: list[float], q: list[float], temperature: float = 1.0) -> float:
    return FORMULAS[name](torch.tensor([p]), torch.tensor([q]), temperature).item()


@pytest.mark.parametrize(
    ("name", "summary", "reference", "expected"),
    [
        ("kl", HALF, QUARTERS, 3 / 4 * math.log(3 / 2) + 1 / 4 * math.log(1 / 2)),
        ("kl", QUARTERS, HALF, 1 / 2 * math.log(2 / 3) + 1 / 2 * math.log(2)),
        ("kl", HALF, [1, 0], math.log(2)),
        ("kl", [1, 0], HALF, math.inf),
        ("kl", [1 / 2, 1 / 2, 0], [1, 0, 0], math.log(2)),
        ("jensen_shannon", [1, 0], [0, 1], 1.0),
        ("jensen_shannon", HALF, [1, 0], 3 / 2 - 3 / 4 * math.log2(3)),  # H(3/4, 1/4) - H(1/2, 1/2) / 2
        ("jensen_shannon", [1 / 2, 1 / 2, 0], [1, 0, 0], 3 / 2 - 3 / 4 * math.log2(3)),
        ("hellinger", [1, 0], [0, 1], 1.0),
        ("hellinger", HALF, [1, 0], math.sqrt(1 - math.sqrt(1 / 2))),
        ("hellinger", QUARTERS, HALF, math.sqrt(1 - math.sqrt(3 / 8) - math.sqrt(1 / 8))),
        ("top1", QUARTERS, [0.51, 0.49], 0.0),
        ("top1", QUARTERS, [0.49, 0.51], 1.0),
        ("top1", QUARTERS, HALF, 0.0),  # of equals the first
    ],
)
def test_closed_forms(name, summary, reference, expected):
    assert between(name, summary, reference) == pytest.approx(expected, abs=2e-7)


@pytest.mark.parametrize("name", ["kl", "jensen_shannon", "hellinger"])
def test_the_temperature_divides_the_logits(name):
    p, q = [3.0, 0.0, -1.0], [0.0, 2.0, 1.0]
    assert of_logits(name, p, q, 5.0) == pytest.approx(
        of_logits(name, [x / 5 for x in p], [x / 5 for x in q]), abs=1e-7
    )
    assert of_logits(name, p, q, 0.5) > of_logits(name, p, q, 5.0) > of_logits(name, p, q, 500.0)


def test_the_likeliest_token_is_the_same_at_every_temperature():
    assert [of_logits("top1", [3.0, 0.0], [2.9, 3.0], t) for t in (0.01, 1.0, 100.0)] == [1.0, 1.0, 1.0]


@pytest.mark.parametrize("name", FORMULAS)
def test_each_row_of_any_distance_is_one_task_and_the_inputs_stay_as_they_are(name):
    torch.manual_seed(0)
    logits, reference = torch.randn(4, 7), torch.randn(4, 7)
    before = logits.clone(), reference.clone()
    together = FORMULAS[name](logits, reference, 5.0)
    assert together.dtype == torch.float32
    alone = [of_logits(name, p, q, 5.0) for p, q in zip(logits.tolist(), reference.tolist(), strict=True)]
    assert together.tolist() == pytest.approx(alone, abs=1e-7)
    assert torch.equal(logits, before[0])
    assert torch.equal(reference, before[1])


@pytest.mark.parametrize("name", FORMULAS)
def test_damaged_logits_are_no_small_distance(name):
    assert math.isnan(of_logits(name, [math.nan, 0.0], [math.nan, 0.0]))
    assert math.isnan(of_logits(name, [0.0, 1.0], [math.nan, 1.0]))


@pytest.mark.parametrize("temperature", [1.0, 5.0])
def test_a_large_vocabulary_in_float32_agrees_with_the_definitions_in_float64(temperature):
    torch.manual_seed(0)
    logits, reference = 4 * torch.randn(3, 100_000), 4 * torch.randn(3, 100_000)
    near = reference + 1e-3 * logits
    for summary in (logits, near):
        p, q = (torch.softmax(x.double() / temperature, dim=1) for x in (summary, reference))
        m = (p + q) / 2
        truth = {
            "kl": (q * (q / p).log()).sum(1),
            "jensen_shannon": ((p * (p / m).log2()).sum(1) + (q * (q / m).log2()).sum(1)) / 2,
            "hellinger": (((p.sqrt() - q.sqrt()) ** 2).sum(1) / 2).sqrt(),
        }
        for name, expected in truth.items():
            assert FORMULAS[name](summary, reference, temperature).tolist() == pytest.approx(
                expected.tolist(), rel=1e-4, abs=1e-6
            )


moderate = st.floats(-20, 20, width=32)
pairs = st.integers(2, 9).flatmap(
    lambda size: st.tuples(*[st.lists(moderate, min_size=size, max_size=size)] * 2)
)
temperatures = st.sampled_from([0.5, 1.0, 5.0])


@given(pairs, temperatures)
def test_distances_vanish_on_equality_and_keep_their_bounds(pair, temperature):
    p, q = pair
    for name in FORMULAS:
        assert of_logits(name, p, p, temperature) == 0.0
        assert 0.0 <= of_logits(name, p, q, temperature) <= (math.inf if name == "kl" else 1.0)


@given(pairs, temperatures)
def test_all_but_the_divergence_of_one_from_the_other_are_symmetric(pair, temperature):
    p, q = pair
    for name in set(FORMULAS) - {"kl"}:
        assert of_logits(name, p, q, temperature) == pytest.approx(
            of_logits(name, q, p, temperature), abs=1e-5
        )


@given(pairs, temperatures)
def test_the_inequalities_between_them_hold(pair, temperature):
    """Pinsker; Le Cam; Lin's bound of the Jensen-Shannon divergence by the total variation. With room for
    float32."""
    p, q = pair
    variation, root = distance(p, q, temperature), of_logits("hellinger", p, q, temperature)
    assert variation**2 <= of_logits("kl", p, q, temperature) / 2 + 2e-5
    assert root**2 <= variation + 1e-6
    assert variation <= math.sqrt(2) * root + 2e-5
    assert of_logits("jensen_shannon", p, q, temperature) <= variation + 2e-5


@given(pairs, moderate)
def test_adding_a_constant_to_the_logits_changes_no_distance(pair, constant):
    p, q = pair
    for name in set(FORMULAS) - {"top1"}:  # rounding may make two tokens equally likely
        assert of_logits(name, [x + constant for x in p], q) == pytest.approx(
            of_logits(name, p, q), rel=1e-4, abs=5e-4
        )
