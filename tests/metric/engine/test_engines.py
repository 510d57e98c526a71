"""The engines against the oracle, on tiny random models of every kind, and which engine serves which."""

from __future__ import annotations

import pytest
import torch
from engine_items import ITEMS, assert_same, expected, scored
from hypothesis import given, settings
from hypothesis import strategies as st

from selfreflect.errors import JudgeError
from selfreflect.metric.engine import attention as attention_module
from selfreflect.metric.engine import kernels
from selfreflect.metric.engine.attention import TreeAttention
from selfreflect.metric.engine.engines import (
    FusedDecoder,
    HFDecoder,
    RotaryLimitEngine,
    SequenceEngine,
    TreeEngine,
    choose_engine,
    tree_attention,
)
from selfreflect.metric.engine.tree import Prompt, build_tree
from selfreflect.metric.scorer import SelfReflect
from selfreflect.models.local.layers import is_llama

ENGINES = {
    "llama": TreeEngine,
    "qwen2": TreeEngine,
    "qwen3": TreeEngine,
    "mistral": TreeEngine,
    "mixtral": TreeEngine,
    "gemma2": TreeEngine,
    "gemma3_text": TreeEngine,
    "phi3": TreeEngine,
    "phi3 longrope": RotaryLimitEngine,
    "gpt2": TreeEngine,
    "gpt_oss": TreeEngine,
    "cohere": TreeEngine,
    "granite": TreeEngine,
    "bloom": SequenceEngine,  # adds ALiBi to the mask in an attention of its own
    "mamba": SequenceEngine,  # has no attention
    "lfm2": SequenceEngine,  # convolves neighbours in half of its layers
    "qwen2_moe": SequenceEngine,  # hides its window in the mask
}


@pytest.mark.parametrize("name", ITEMS)
@pytest.mark.parametrize("architecture", ENGINES)
def test_scores_equal_the_oracle(tiny_metric, architecture, name):
    metric = tiny_metric(architecture)
    assert type(metric.engine) is ENGINES[architecture]
    truth = expected(metric, name)
    # contexts that could not be told apart would prove nothing
    assert min(score.value for score in truth.values()) > 1e-3
    assert_same(scored(metric, name), truth, 1e-5)


@pytest.mark.parametrize(
    # no mixture of experts: in bfloat16 its router may choose another expert over one rounding, and then no
    # bound holds for a token
    ("architecture", "dtype"),
    [("llama", "bfloat16"), ("llama", "float16"), ("mistral", "bfloat16")],
)
def test_half_precision_takes_the_tree_too(tiny_metric, architecture, dtype):
    metric = tiny_metric(architecture, dtype=dtype)
    assert type(metric.engine) is TreeEngine
    name = "duplicates, stopwords, blanks"
    assert_same(scored(metric, name), expected(metric, name), 1e-2)
    assert scored(metric, name)["long"].judge_dtype == dtype


words = st.lists(st.integers(3, 20), min_size=2, max_size=12)


@st.composite
def trees(draw):
    """Prompts that branch early, late and often, as token ids."""
    stem = tuple(draw(st.lists(st.integers(3, 20), max_size=40)))
    known: list[tuple[int, ...]] = [()]
    prompts = []
    for _ in range(draw(st.integers(1, 6))):
        begun = draw(st.sampled_from(known))
        ids = (*stem, *begun, *draw(words))
        known.append(ids[len(stem) : -1])
        prompts.append(Prompt(ids=ids, first=draw(st.integers(max(1, len(ids) - 3), len(ids) - 1))))
    return prompts


@pytest.mark.parametrize("architecture", ["llama", "mistral", "gemma3_text", "gpt_oss", "bloom"])
@settings(max_examples=20, deadline=None)
@given(prompts=trees(), max_rows=st.sampled_from([1, 5, 100]))
def test_any_tree_of_token_ids_gives_the_model_s_own_logits(tiny_metric, architecture, prompts, max_rows):
    metric = tiny_metric(architecture)
    model, engine = metric.judge.lm.model, metric.engine
    tree = build_tree(prompts)
    usual, engine.max_rows = engine.max_rows, max_rows
    try:
        with torch.inference_mode():
            found = engine.head(*engine.states([tree]))
    finally:
        engine.max_rows = usual
    for prompt, rows in zip(prompts, tree.rows, strict=True):
        with torch.inference_mode():
            logits = model(input_ids=torch.tensor([prompt.ids]), use_cache=False).logits[0]
        assert torch.allclose(found[list(rows)], logits[prompt.first - 1 : -1], atol=2e-4)


def test_every_token_of_the_tree_is_computed_once(tiny_metric):
    metric = tiny_metric("llama")
    stem = tuple(range(3, 13))
    tree = build_tree(
        [
            Prompt(ids=(*stem, *rest, 8, 9), first=len(stem) + 3)
            for rest in ((5, 6, 7), (5, 6, 8), (5, 7, 7), (5, 6, 7))
        ]
    )
    fed = []
    hook = metric.judge.decoder.embed_tokens.register_forward_pre_hook(
        lambda _, inputs: fed.append(inputs[0].numel())
    )
    metric.engine.states([tree])
    hook.remove()
    assert sum(fed) == tree.computed_tokens == len((*stem, 5)) + len((6, 7, 8)) + len((8, 8)) + len((7, 7, 8))


# --- the choice


def test_logits_that_the_head_does_not_reproduce_are_taken_from_the_model(tiny_judge):
    judge = tiny_judge("llama")
    engine = choose_engine(judge.lm.model, judge.decoder, lambda states: judge.head(states) * 1.1)
    assert type(engine) is SequenceEngine
    prompt = Prompt(ids=tuple(range(3, 40)), first=30)
    with torch.inference_mode():
        logits = judge.lm.model(input_ids=torch.tensor([prompt.ids])).logits[0, 29:-1]
        assert torch.allclose(engine.head(*engine.states([build_tree([prompt])])), logits, atol=1e-5)


@torch.no_grad()
def test_a_judge_that_predicts_the_same_whatever_it_reads_is_refused(tiny_judge):
    judge = tiny_judge("llama", max_position_embeddings=97)  # of its own, since it is broken
    judge.lm.model.model.norm.weight.zero_()
    with pytest.raises(JudgeError, match="the same whatever it reads"):
        SelfReflect(judge)


def test_a_device_whose_fused_attention_is_wrong_is_served_without_it(tiny_judge, monkeypatch):
    judge = tiny_judge("llama")

    def broken(q, k, v, scale, bias):
        return torch.zeros_like(q), q.new_zeros(q.shape[:-1])

    monkeypatch.setattr(attention_module, "native", lambda: None)
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
    with pytest.raises(TypeError, match="does not support"):
        tree_attention(layer, q, q, q, **{"attention_mask": None, "tree": TreeAttention(), **extra})
