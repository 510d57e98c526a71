"""Tree attention against loops over paths, by every kernel."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
import torch
from engine_items import PARENTS, assert_same, expected, scored, tree_of

from selfreflect.metric.engine import attention as attention_module
from selfreflect.metric.engine import kernels
from selfreflect.metric.engine import native as native_module
from selfreflect.metric.engine.attention import Arena, TreeAttention, mapped_empty
from selfreflect.metric.engine.engines import choose_engine
from selfreflect.metric.engine.kernels import Extras
from selfreflect.metric.engine.packing import pack
from selfreflect.metric.engine.tree import PrefixTree
from selfreflect.metric.scorer import SelfReflect

EXTRAS = [Extras(), Extras(window=3), Extras(softcap=0.7), Extras(sinks=torch.tensor([0.3, -1.0, 2.0, 0.0]))]


def by_loops(tree: PrefixTree, q, k, v, extras: Extras) -> torch.Tensor:
    """Attention of each row over its prefix and its path, (rows, heads, size): rows are the prefix and then
    the nodes."""
    length = len(tree.prefix)
    paths = [list(range(i + 1)) for i in range(length)]
    paths += [
        [*range(length), *(length + tree.ancestors(node)), length + node] for node in range(len(tree.tokens))
    ]
    out = torch.zeros_like(q)
    for row, path in enumerate(paths):
        path = path[-extras.window :] if extras.window else path
        for head in range(q.shape[1]):
            logits = k[path, head // 2] @ q[row, head] / q.shape[2] ** 0.5
            if extras.softcap:
                logits = extras.softcap * torch.tanh(logits / extras.softcap)
            if extras.sinks is not None:
                logits = torch.cat([logits, extras.sinks[head : head + 1]])
            out[row, head] = torch.softmax(logits, dim=0)[: len(path)] @ v[path, head // 2]
    return out


@pytest.mark.parametrize("extras", EXTRAS, ids=str)
@pytest.mark.parametrize("block", [1, 3, 64])
@pytest.mark.parametrize("max_rows", [1, 4, 10, 11, 100])
def test_tree_attention_over_several_contexts_agrees_with_loops(max_rows, block, extras, fused, monkeypatch):
    monkeypatch.setattr(attention_module, "BLOCK", block)
    torch.manual_seed(0)
    layers, heads, size = 2, 4, 8
    trees = [tree_of(prefix, PARENTS, [1, 2, 7]) for prefix in (6, 0, 2)]
    data = [[torch.randn(len(tree.prefix) + len(PARENTS), n, size) for n in (heads, 2, 2)] for tree in trees]
    found = [[torch.zeros_like(q) for q, _, _ in data] for _ in range(layers)]
    outputs = [[] for _ in trees]
    attention = TreeAttention(fused=fused)
    for batch in pack(trees, max_rows):
        attention.begin(batch)
        rows = [
            torch.cat([part[s.context][at(trees, s)] for s in batch.segments])
            for part in zip(*data, strict=True)
        ]
        for layer in range(layers):
            out = attention.attend(layer, *rows, size**-0.5, extras)
            for s in batch.segments:
                found[layer][s.context][at(trees, s)] = out[s.first_row : s.first_row + s.rows]
        out = attention.attend(layers, rows[0][batch.outputs], *rows[1:], size**-0.5, extras, last=True)
        counts = [len(segment.outputs(segment.start, segment.stop)) for segment in batch.segments]
        for segment, part in zip(batch.segments, out.split(counts), strict=True):
            outputs[segment.context].append(part)
    for context, tree in enumerate(trees):
        truth = by_loops(tree, *data[context], extras)
        assert all(torch.allclose(layer[context], truth, atol=1e-5) for layer in found)
        assert torch.allclose(torch.cat(outputs[context]), truth[len(tree.prefix) + tree.outputs], atol=1e-5)


def at(trees, s) -> list[int]:
    """Where a segment's rows lie in its context: its prefix and then its nodes."""
    length = len(trees[s.context].prefix)
    return [*range(s.prefix), *range(length + s.start, length + s.stop)]


def test_the_path_of_a_gpu_meets_what_its_kernel_asks_for(tiny_judge, monkeypatch):
    """The kernel itself needs a GPU; this stand-in is as strict about its arguments and as odd about what it
    returns."""

    def kernel(q, k, v, bias, compute_log_sumexp, dropout_p=0.0, is_causal=False, *, scale=None):
        assert compute_log_sumexp
        assert (dropout_p, is_causal) == (0.0, False)
        assert q.shape[:2] == k.shape[:2] == v.shape[:2]
        logits = scale * q @ k.transpose(2, 3)
        if bias is not None:
            assert bias.shape == logits.shape
            assert bias.dtype == q.dtype
            assert bias.stride(-2) % 8 == 0  # rows must start at round addresses
            logits = logits + bias
        lse = torch.nn.functional.pad(logits.logsumexp(-1), (0, -q.shape[2] % 32), value=float("inf"))
        return torch.softmax(logits, -1) @ v, lse, None, None

    judge = tiny_judge("llama")
    monkeypatch.setattr(torch.ops.aten, "_scaled_dot_product_efficient_attention", kernel)
    monkeypatch.setattr(native_module, "native", lambda: None)
    monkeypatch.setitem(kernels.FUSED_KERNELS, "cpu", kernels.cuda_kernel)
    engine = choose_engine(judge.lm.model, judge.decoder, judge.head)
    assert engine.fused
    metric = SelfReflect(judge)
    metric.engine = engine
    engine.max_rows = 40
    monkeypatch.setattr(attention_module, "BLOCK", 7)
    name = "unicode and words of many tokens"
    assert_same(scored(metric, name), expected(metric, name), 1e-5)


@pytest.mark.parametrize("architecture", ["mistral", "gemma2", "gpt_oss"])
def test_how_many_logits_are_written_out_at_once_changes_nothing(tiny_metric, monkeypatch, architecture):
    metric, name = tiny_metric(architecture), "duplicates, stopwords, blanks"
    written = []
    general = kernels.plain_attention
    monkeypatch.setattr(
        kernels, "plain_attention", lambda q, *rest: (written.append(q.shape), general(q, *rest))[1]
    )
    for limit in (kernels.MAX_LOGITS, 1):
        written.clear()
        monkeypatch.setattr(kernels, "MAX_LOGITS", limit)
        assert_same(scored(metric, name), expected(metric, name), 1e-5)
    assert {1} == {batch for batch, *_ in written}  # a block at a time, and of a prefix a row
    assert 1 in {rows for _, _, rows, _ in written}


# --- buffers that outlive a pass


def test_an_arena_keeps_contiguous_copies_many_in_one_piece():
    arena = Arena()
    values = [torch.full((4, 3), float(i)).T for i in range(40)]
    kept = [arena.copy(value) for value in values]
    other = arena.copy(torch.ones(2, dtype=torch.bfloat16))
    for value in values:
        value.zero_()
    assert all(
        copy.is_contiguous() and copy.shape == (3, 4) and bool((copy == i).all())
        for i, copy in enumerate(kept)
    )
    assert len({copy.untyped_storage().data_ptr() for copy in kept}) == 3
    assert other.dtype == torch.bfloat16
    assert other.tolist() == [1.0, 1.0]


@pytest.mark.skipif(sys.platform != "linux", reason="resident memory is read from /proc")
def test_what_is_kept_goes_back_to_the_system_at_once():
    def resident() -> int:
        return 1024 * int(
            re.search(r"^Rss:\s+(\d+)", Path("/proc/self/smaps_rollup").read_text(), re.MULTILINE)[1]
        )

    like = torch.empty(5_000_000).fill_(1)
    # once these 20 MB are freed, malloc takes what is smaller from the heap, and keeps what is freed there
    del like
    like = torch.empty(0)
    before = resident()
    held = [mapped_empty((250_000,), like).fill_(1) for _ in range(10)]
    assert resident() - before > 9_000_000
    held.clear()
    assert resident() - before < 3_000_000


def test_room_that_cannot_be_mapped_is_tensors_like_others(monkeypatch):
    def full(*args: object, **kwargs: object) -> None:
        raise OSError(12, "Cannot allocate memory")

    monkeypatch.setattr(attention_module.mmap, "mmap", full)
    assert mapped_empty((2, 3), torch.empty(1, dtype=torch.float64)).shape == (2, 3)
    assert mapped_empty((0, 3), torch.empty(1)).shape == (0, 3)
