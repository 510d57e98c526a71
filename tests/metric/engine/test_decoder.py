"""Our own layers and transformers' layers give the same, and refuse what they do not know."""

from __future__ import annotations

import pytest
import torch
from engine_items import assert_same, expected, scored

from selfreflect.metric.engine.attention import TreeAttention
from selfreflect.metric.engine.decoder import FusedDecoder, HFDecoder, tree_attention
from selfreflect.metric.engine.engines import TreeEngine
from selfreflect.metric.engine.tree import Prompt, build_tree
from selfreflect.models.local.layers import is_llama

FULL = {"use_sliding_window": False, "sliding_window": None, "layer_types": None}
KNOWN = {"llama": {}, "qwen2": FULL, "qwen3": {}, "mistral": {"sliding_window": None}}


@pytest.mark.parametrize("body", [FusedDecoder, HFDecoder])
@pytest.mark.parametrize("architecture", KNOWN)
def test_every_way_to_run_the_known_decoders_scores_alike(tiny_metric, architecture, body, fused):
    metric = tiny_metric(architecture, **KNOWN[architecture])
    name, usual = "unicode and words of many tokens", metric.engine
    metric.engine = TreeEngine(body(metric.judge.decoder), metric.judge.head, usual.device, fused=fused)
    try:
        assert_same(scored(metric, name), expected(metric, name), 1e-5)
    finally:
        metric.engine = usual


def test_the_known_families_run_by_our_own_layers_unless_they_have_windows(tiny_metric):
    assert {type(tiny_metric(name, **options).engine.decoder) for name, options in KNOWN.items()} == {
        FusedDecoder
    }
    assert {type(tiny_metric(name).engine.decoder) for name in ("qwen2", "mistral", "mixtral", "gemma2")} == {
        HFDecoder
    }


@pytest.mark.parametrize("change", ["adapter", "hook"])
def test_a_decoder_that_was_changed_is_not_run_by_our_own_layers(tiny_judge, change):
    judge = tiny_judge("llama", num_hidden_layers=3)
    layer = judge.decoder.layers[1]
    if change == "adapter":
        layer.mlp.up_proj = torch.nn.Sequential(layer.mlp.up_proj)
    else:
        layer._hf_hook = object()
    assert not is_llama(judge.decoder)


def test_scoring_leaves_the_model_as_it_was(tiny_metric):
    metric = tiny_metric("mistral")
    model, ids = metric.judge.lm.model, torch.arange(3, 80)[None]
    kind = model.config._attn_implementation
    before = model(input_ids=ids).logits
    scored(metric, "one answer each")
    assert model.config._attn_implementation == kind
    assert torch.equal(model(input_ids=ids).logits, before)


def test_a_pass_that_fails_leaves_the_model_as_it_was(tiny_metric):
    metric = tiny_metric("llama")
    kind = metric.judge.lm.model.config._attn_implementation
    with pytest.raises(IndexError):
        metric.engine.states([build_tree([Prompt(ids=(3, 10**6, 5), first=2)])])
    assert metric.judge.lm.model.config._attn_implementation == kind


def test_generation_meanwhile_has_its_usual_attention():
    torch.manual_seed(0)
    q, k, v = torch.randn(3, 1, 4, 5, 8)
    layer = torch.nn.Module()
    layer.is_causal = True
    usual = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    output, _ = tree_attention(layer, q, k, v, None)
    torch.testing.assert_close(output, usual.transpose(1, 2))


@pytest.mark.parametrize(
    "extra",
    [
        {"indices": torch.zeros(3)},
        {"position_bias": torch.zeros(3)},
        {"attention_mask": torch.zeros(1, 4, 2, 2)},
    ],
)
def test_tree_attention_refuses_what_it_does_not_know(extra):
    q = torch.zeros(1, 4, 2, 8)
    layer = torch.nn.Module()
    layer.layer_idx = 0
    with pytest.raises(TypeError, match="does not know what to do with"):
        tree_attention(layer, q, q, q, **{"attention_mask": None, "tree": TreeAttention(), **extra})
