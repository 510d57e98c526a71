"""Which engine serves which model."""

from __future__ import annotations

import pytest
import torch

from selfreflect.metric.engine import kernels
from selfreflect.metric.engine import native as native_module
from selfreflect.metric.engine.choose import choose_engine
from selfreflect.metric.engine.sequences import SequenceEngine
from selfreflect.metric.engine.tree import Prompt, build_tree
from selfreflect.metric.engine.tree_engine import TreeEngine


def test_logits_that_the_head_does_not_reproduce_are_taken_from_the_model(tiny_judge):
    judge = tiny_judge("llama")
    engine = choose_engine(judge.lm.model, judge.decoder, lambda states: judge.head(states) * 1.1)
    assert type(engine) is SequenceEngine
    prompt = Prompt(ids=tuple(range(3, 40)), first=30)
    with torch.inference_mode():
        logits = judge.lm.model(input_ids=torch.tensor([prompt.ids])).logits[0, 29:-1]
        assert torch.allclose(engine.head(*engine.states([build_tree([prompt])])), logits, atol=1e-5)


def test_a_device_whose_fused_attention_is_wrong_is_served_without_it(tiny_judge, monkeypatch):
    judge = tiny_judge("llama")

    def broken(q, k, v, scale, bias):
        return torch.zeros_like(q), q.new_zeros(q.shape[:-1])

    monkeypatch.setattr(native_module, "native", lambda: None)
    monkeypatch.setitem(kernels.FUSED_KERNELS, "cpu", broken)
    engine = choose_engine(judge.lm.model, judge.decoder, judge.head)
    assert type(engine) is TreeEngine
    assert not engine.fused


@pytest.mark.parametrize("architecture", ["bloom", "mamba", "lfm2"])
def test_whole_sequences_keep_states_and_not_vocabularies(tiny_metric, architecture):
    metric = tiny_metric(architecture)
    states = metric.engine.states([build_tree([Prompt(ids=(3, 4, 5, 6), first=2)])])[0]
    assert states.shape == (2, 48)


def test_a_chunked_attention_is_not_trusted_to_the_tree(tiny_judge):
    judge = tiny_judge("llama", layer_types=("chunked_attention", "full_attention"))
    assert type(choose_engine(judge.lm.model, judge.decoder, judge.head)) is SequenceEngine


def test_a_window_left_over_in_a_config_that_knows_none_does_not_slow_scoring_down(tiny_metric):
    assert type(tiny_metric("llama", sliding_window=64).engine) is TreeEngine
