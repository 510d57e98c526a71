"""Distances from kept states, in blocks of rows."""

from __future__ import annotations

import shutil

import numpy as np
import pytest
import torch

from selfreflect.metric.distance import total_variation
from selfreflect.metric.engine import logits as logits_module
from selfreflect.metric.engine.logits import SummaryStates


def test_distances_are_those_of_each_pair():
    torch.manual_seed(0)
    states, reference, weight = torch.randn(9, 5), torch.randn(200, 5), torch.randn(30, 5)
    pairs = np.array([(i % 9, i * 7 % 200) for i in range(150)])  # more than are projected at once
    others = [(states, pairs), (states[:3], pairs[:0]), (states[:3], pairs % 3)]
    states = SummaryStates(lambda rows: rows @ weight.T, reference, others)
    for found, (rows, which) in zip(states.distances(5.0), others, strict=True):
        truth = [
            total_variation((rows[i] @ weight.T)[None], (reference[j] @ weight.T)[None], 5.0).item()
            for i, j in which
        ]
        assert found.tolist() == pytest.approx(truth, abs=1e-6)


def test_the_distance_of_a_gpu_is_compiled_and_tried_before_it_is_used(monkeypatch):
    tried = []

    def compiled(formula, dynamic):
        def fused(logits, reference, temperature):
            tried.append((logits, reference))
            return formula(logits, reference, temperature)

        return fused

    monkeypatch.setattr(torch, "compile", compiled)
    monkeypatch.setattr(torch, "full", lambda shape, value, device: torch.ones(shape) * value)
    fused = logits_module._total_variation_on.__wrapped__(torch.device("cuda", 1))
    logits, reference = torch.randn(2, 5, 40)
    assert torch.equal(fused(logits, reference, 5.0), total_variation(logits, reference, 5.0))
    assert tried[0][0] is not tried[0][1]
    monkeypatch.setattr(torch, "compile", lambda formula, dynamic: broken)
    assert logits_module._total_variation_on.__wrapped__(torch.device("cuda", 1)) is total_variation


def broken(*_):
    raise RuntimeError("no compiler")


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs a C++ compiler")
def test_the_compiled_distance_is_the_plain_one():
    torch.manual_seed(0)
    logits, reference = 5 * torch.randn(2, 40, 1000)
    fused = torch.compile(total_variation, dynamic=True)
    for rows in (3, 40):
        truth = total_variation(logits[:rows], reference[:rows], 5.0)
        assert torch.allclose(fused(logits[:rows], reference[:rows], 5.0), truth, atol=1e-6)
