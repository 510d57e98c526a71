from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from selfreflect.metric.distance import total_variation

finite = st.floats(-60, 60, width=32)
rows = st.integers(2, 9).flatmap(
    lambda size: st.tuples(*[st.lists(finite, min_size=size, max_size=size)] * 2)
)


def distance(p: list[float], q: list[float], temperature: float = 1.0) -> float:
    return total_variation(torch.tensor([p]), torch.tensor([q]), temperature).item()


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
