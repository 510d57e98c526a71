"""Operations of a tree against closed forms and brute force."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import Qwen2Config

from selfreflect import bench
from selfreflect.bench import DecoderShape, Flops, count_flops, peak_seconds, read_shape
from selfreflect.metric.engine.tree import PrefixTree, Prompt, build_tree
from selfreflect.models.judge import Judge

SHAPE = DecoderShape(layers=3, hidden=10, heads=4, kv_heads=2, head_dim=5, ffn=7, vocabulary=11)
KEY_VALUE, REST = 2 * 10 * 10, 10 * 20 + 20 * 10 + 3 * 10 * 7

PROMPTS = st.lists(
    st.tuples(st.lists(st.integers(0, 2), min_size=2, max_size=7), st.integers(1, 6)).map(
        lambda drawn: Prompt(ids=(9, *drawn[0]), first=min(drawn[1], len(drawn[0])))
    ),
    min_size=1,
    max_size=6,
)


def count_by_hand(tree: PrefixTree) -> int:
    """Token by token and layer by layer."""
    total = 0
    for layer in range(SHAPE.layers):
        last = layer == SHAPE.layers - 1
        for position in range(len(tree.prefix)):
            total += 2 * KEY_VALUE
            if not last:
                total += 2 * REST + 4 * 4 * 5 * (position + 1)
        for node in range(len(tree.tokens)):
            total += 2 * KEY_VALUE
            if not last or node in tree.outputs:
                seen = len(tree.prefix) + len(tree.ancestors(node)) + 1
                total += 2 * REST + 4 * 4 * 5 * seen
    return total + 2 * 10 * 11 * len(tree.outputs)


@given(st.lists(PROMPTS, min_size=1, max_size=3))
def test_trees_cost_the_sum_of_their_nodes(contexts: list[list[Prompt]]) -> None:
    trees = [build_tree(prompts) for prompts in contexts]
    assert count_flops(trees, SHAPE).total == sum(count_by_hand(tree) for tree in trees)


def test_the_shape_of_a_7b_model_with_grouped_queries_is_read_from_its_configuration() -> None:
    config = Qwen2Config(
        hidden_size=3584,
        intermediate_size=18944,
        num_hidden_layers=28,
        num_attention_heads=28,
        num_key_value_heads=4,
        vocab_size=152064,
    )
    shape = read_shape(config)
    assert shape == DecoderShape(
        layers=28, hidden=3584, heads=28, kv_heads=4, head_dim=128, ffn=18944, vocabulary=152064
    )
    assert shape.key_value == [(3584, 512), (3584, 512)]


def test_the_matrices_are_those_of_the_model(tiny_judge: Callable[..., Judge]) -> None:
    for architecture in ("llama", "qwen2", "qwen3", "mistral"):
        judge = tiny_judge(architecture)
        shape = read_shape(judge.lm.model.config)
        assert shape is not None
        modules = judge.decoder.layers[0].modules()
        linears = [module for module in modules if isinstance(module, torch.nn.Linear)]
        sizes = [(module.in_features, module.out_features) for module in linears]
        assert sorted(sizes) == sorted([*shape.key_value, *shape.rest])
        assert shape.layers == len(judge.decoder.layers)
        assert shape.head == (judge.lm.model.lm_head.in_features, judge.lm.model.lm_head.out_features)


def test_the_peak_is_what_one_product_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    size = 64
    shape = DecoderShape(
        layers=1, hidden=size, heads=4, kv_heads=4, head_dim=size // 4, ffn=size, vocabulary=size
    )
    product = 2 * size**3
    device = torch.device("cpu")
    for asked in (Flops(product, 0), Flops(0, product)):
        assert peak_seconds(asked, shape, size, torch.float32, device) > 0
    kernels = itertools.cycle((3.0, 2.0))
    monkeypatch.setattr(bench, "_fastest", lambda *_: next(kernels))
    assert peak_seconds(Flops(product, 0), shape, size, torch.float32, device) == pytest.approx(2)
    head = product * bench.ROWS_OF_LOGITS / size
    assert peak_seconds(Flops(0, head), shape, size, torch.float32, device) == pytest.approx(2)
