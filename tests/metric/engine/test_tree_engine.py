"""The engines against the oracle, on tiny random models of every kind."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import numpy as np
import oracle
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from selfreflect.metric.distance import total_variation
from selfreflect.metric.engine import arena as kept_module
from selfreflect.metric.engine import attention as attention_module
from selfreflect.metric.engine import tree_engine as engine_module
from selfreflect.metric.engine.arena import Arena, room
from selfreflect.metric.engine.attention import Extras, TreeAttention
from selfreflect.metric.engine.decoder import FusedDecoder, HFDecoder, tree_attention
from selfreflect.metric.engine.native import Native, library, native
from selfreflect.metric.engine.packing import pack
from selfreflect.metric.engine.sequences import SequenceEngine
from selfreflect.metric.engine.tree import PrefixTree, Prompt, build_tree
from selfreflect.metric.engine.tree_engine import RotaryLimitEngine, TreeEngine, choose_engine, distances
from selfreflect.metric.scorer import SelfReflect
from selfreflect.records import Score

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


@dataclass(frozen=True)
class Item:
    question: str
    masked_out: list[str]
    conditioning: list[str]
    summaries: dict[str, str] = field(
        default_factory=lambda: {
            "short": "Radishes.",
            "long": "Maybe kale, or else nothing at all before May.",
        }
    )


ITEMS = {
    "duplicates, stopwords, blanks": Item(
        "What should I plant?",
        ["Radishes grow fast", "Lettuce", "Lettuce", "", " \n", "It is not.", "Lettuce or peas"],
        ["basil or peas", "", "basil or peas"],
    ),
    "unicode and words of many tokens": Item(
        "Question: Qu'est-ce que le kohlrabi\n",
        ["Un légume 🥬 pâle", "球茎甘蓝 _ {x}"],
        ["chou-rave, l'été", "\u202eabc"],
        {"said": "Un légume."},
    ),
    "one answer each": Item("Why", ["Because"], ["So"]),
}


@cache
def expected(metric, name: str) -> dict[str, oracle.OracleScore]:
    item, lm = ITEMS[name], metric.judge.lm
    return oracle.score(
        lm.model, lm.tokenizer, item.question, item.masked_out, item.conditioning, item.summaries
    )


def scored(metric, name: str) -> dict[str, Score]:
    item = ITEMS[name]
    return metric.score(
        item.question, masked_out=item.masked_out, conditioning=item.conditioning, summaries=item.summaries
    )


def by_answer(score: Score) -> list[list[list[float]]]:
    """Distances in the oracle's order: answer -> word -> token."""
    answers = dict.fromkeys(word.answer for word in score.words)
    return [[list(word.distances) for word in score.words if word.answer == answer] for answer in answers]


def assert_same(found: dict[str, Score], truth: dict[str, oracle.OracleScore], tolerance: float) -> None:
    assert list(found) == list(truth)
    for name, score in found.items():
        assert score.value == pytest.approx(truth[name].value, abs=tolerance)
        words = [word for answer in truth[name].distances for word in answer]
        assert [len(word.distances) for word in score.words] == [len(word) for word in words]
        assert score.token_tasks == sum(map(len, words))
        for answer, other in zip(by_answer(score), truth[name].distances, strict=True):
            assert [d for word in answer for d in word] == pytest.approx(
                [d for word in other for d in word], abs=tolerance
            )


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


@pytest.mark.parametrize("budget", [1, 7, 64, 512])
@pytest.mark.parametrize("architecture", ["llama", "mistral", "gemma2", "gpt_oss", "bloom"])
def test_how_much_runs_at_once_changes_nothing(tiny_metric, architecture, budget):
    metric = tiny_metric(architecture)
    name = "unicode and words of many tokens"
    usual, metric.engine.budget = metric.engine.budget, budget
    try:
        found = scored(metric, name)
    finally:
        metric.engine.budget = usual
    for summary, score in scored(metric, name).items():
        assert [d for word in found[summary].words for d in word.distances] == pytest.approx(
            [d for word in score.words for d in word.distances], abs=1e-6
        )


@pytest.mark.parametrize("architecture", ["mistral", "gemma2", "gpt_oss"])
def test_how_many_logits_are_written_out_at_once_changes_nothing(tiny_metric, monkeypatch, architecture):
    metric, name = tiny_metric(architecture), "duplicates, stopwords, blanks"
    written = []
    general = attention_module._general
    monkeypatch.setattr(
        attention_module, "_general", lambda q, *rest: (written.append(q.shape), general(q, *rest))[1]
    )
    for limit in (attention_module.WRITTEN_OUT, 1):
        written.clear()
        monkeypatch.setattr(attention_module, "WRITTEN_OUT", limit)
        assert_same(scored(metric, name), expected(metric, name), 1e-5)
    assert {1} == {batch for batch, *_ in written}  # a block at a time, and of a prefix a row
    assert 1 in {rows for _, _, rows, _ in written}


words = st.lists(st.integers(3, 20), min_size=2, max_size=12)


@st.composite
def plans(draw):
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
@given(prompts=plans(), budget=st.sampled_from([1, 5, 100]))
def test_any_tree_of_token_ids_gives_the_model_s_own_logits(tiny_metric, architecture, prompts, budget):
    metric = tiny_metric(architecture)
    model, engine = metric.judge.lm.model, metric.engine
    plan = build_tree(prompts)
    usual, engine.budget = engine.budget, budget
    try:
        with torch.inference_mode():
            found = engine.head(*engine.states([plan]))
    finally:
        engine.budget = usual
    for prompt, rows in zip(prompts, plan.rows, strict=True):
        with torch.inference_mode():
            logits = model(input_ids=torch.tensor([prompt.ids]), use_cache=False).logits[0]
        assert torch.allclose(found[list(rows)], logits[prompt.first - 1 : -1], atol=2e-4)


def test_every_token_of_the_tree_is_computed_once(tiny_metric):
    metric = tiny_metric("llama")
    stem = tuple(range(3, 13))
    plan = build_tree(
        [
            Prompt(ids=(*stem, *rest, 8, 9), first=len(stem) + 3)
            for rest in ((5, 6, 7), (5, 6, 8), (5, 7, 7), (5, 6, 7))
        ]
    )
    fed = []
    hook = metric.judge.decoder.embed_tokens.register_forward_pre_hook(
        lambda _, inputs: fed.append(inputs[0].numel())
    )
    metric.engine.states([plan])
    hook.remove()
    assert sum(fed) == plan.computed_tokens == len((*stem, 5)) + len((6, 7, 8)) + len((8, 8)) + len((7, 7, 8))


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


def test_logits_that_the_head_does_not_reproduce_are_taken_from_the_model(tiny_judge):
    judge = tiny_judge("llama")
    engine = choose_engine(judge.lm.model, judge.decoder, lambda states: judge.head(states) * 1.1)
    assert type(engine) is SequenceEngine
    prompt = Prompt(ids=tuple(range(3, 40)), first=30)
    with torch.inference_mode():
        logits = judge.lm.model(input_ids=torch.tensor([prompt.ids])).logits[0, 29:-1]
        assert torch.allclose(engine.head(*engine.states([build_tree([prompt])])), logits, atol=1e-5)


FULL = {"use_sliding_window": False, "sliding_window": None, "layer_types": None}
KNOWN = {"llama": {}, "qwen2": FULL, "qwen3": {}, "mistral": {"sliding_window": None}}


@pytest.fixture(params=["compiled", "torch's kernel", "written out"])
def fused(request, monkeypatch) -> Iterator[bool]:
    """Each way to compute attention on a CPU, as the engine's setting of that name."""
    if request.param != "compiled":
        monkeypatch.setattr(attention_module, "native", lambda: None)
        yield request.param != "written out"
        return
    if native() is None:
        pytest.skip(str(library()))
    calls = []
    attend = Native.attend
    monkeypatch.setattr(Native, "attend", lambda *arguments: (calls.append(1), attend(*arguments))[1])
    yield True
    extras = request.node.callspec.params.get("extras")
    if extras is None or extras.window is None:  # some windows hide nothing
        assert bool(calls) == (extras is None or extras.plain)


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
    assert {type(tiny_metric(name, **options).engine.body) for name, options in KNOWN.items()} == {
        FusedDecoder
    }
    assert {type(tiny_metric(name).engine.body) for name in ("qwen2", "mistral", "mixtral", "gemma2")} == {
        HFDecoder
    }


def test_a_device_whose_fused_attention_is_wrong_is_served_without_it(tiny_judge, monkeypatch):
    judge = tiny_judge("llama")

    def broken(q, k, v, scale, bias):
        return torch.zeros_like(q), q.new_zeros(q.shape[:-1])

    monkeypatch.setattr(attention_module, "native", lambda: None)
    monkeypatch.setitem(attention_module._PARTIAL, "cpu", broken)
    engine = choose_engine(judge.lm.model, judge.decoder, judge.head)
    assert type(engine) is TreeEngine
    assert not engine.fused


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

    monkeypatch.setattr(torch.ops.aten, "_scaled_dot_product_efficient_attention", kernel)
    monkeypatch.setattr(attention_module, "native", lambda: None)
    monkeypatch.setitem(attention_module._PARTIAL, "cpu", attention_module._partial_cuda)
    judge = tiny_judge("llama")
    engine = choose_engine(judge.lm.model, judge.decoder, judge.head)
    assert engine.fused
    metric = SelfReflect(judge)
    metric.engine = engine
    engine.budget, engine.block = 40, 7
    name = "unicode and words of many tokens"
    assert_same(scored(metric, name), expected(metric, name), 1e-5)


def test_the_distance_of_a_gpu_is_compiled_and_tried_before_it_is_used(monkeypatch):
    tried = []

    def compiled(formula, dynamic):
        def fused(logits, reference, temperature):
            tried.append((logits, reference))
            return formula(logits, reference, temperature)

        return fused

    monkeypatch.setattr(torch, "compile", compiled)
    monkeypatch.setattr(torch, "full", lambda shape, value, device: torch.ones(shape) * value)
    fused = engine_module._variation.__wrapped__(torch.device("cuda", 1))
    logits, reference = torch.randn(2, 5, 40)
    assert torch.equal(fused(logits, reference, 5.0), total_variation(logits, reference, 5.0))
    assert tried[0][0] is not tried[0][1]
    monkeypatch.setattr(torch, "compile", lambda formula, dynamic: broken)
    assert engine_module._variation.__wrapped__(torch.device("cuda", 1)) is total_variation


def broken(*_):
    raise RuntimeError("no compiler")


@pytest.mark.parametrize("change", ["adapter", "hook"])
def test_a_decoder_that_was_changed_is_not_run_by_our_own_layers(tiny_judge, change):
    judge = tiny_judge("llama", num_hidden_layers=3)
    layer = judge.decoder.layers[1]
    if change == "adapter":
        layer.mlp.up_proj = torch.nn.Sequential(layer.mlp.up_proj)
    else:
        layer._hf_hook = object()
    assert not FusedDecoder.serves(judge.decoder)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs a C++ compiler")
def test_the_compiled_distance_is_the_plain_one():
    torch.manual_seed(0)
    logits, reference = 5 * torch.randn(2, 40, 1000)
    fused = torch.compile(total_variation, dynamic=True)
    for rows in (3, 40):
        truth = total_variation(logits[:rows], reference[:rows], 5.0)
        assert torch.allclose(fused(logits[:rows], reference[:rows], 5.0), truth, atol=1e-6)


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


def test_distances_are_those_of_each_pair():
    torch.manual_seed(0)
    states, reference, weight = torch.randn(9, 5), torch.randn(200, 5), torch.randn(30, 5)
    pairs = np.array([(i % 9, i * 7 % 200) for i in range(150)])  # more than are projected at once
    others = [(states, pairs), (states[:3], pairs[:0]), (states[:3], pairs % 3)]
    for found, (rows, which) in zip(
        distances(lambda rows: rows @ weight.T, reference, others, 5.0), others, strict=True
    ):
        truth = [
            total_variation((rows[i] @ weight.T)[None], (reference[j] @ weight.T)[None], 5.0).item()
            for i, j in which
        ]
        assert found.tolist() == pytest.approx(truth, abs=1e-6)


def test_tasks_of_all_contexts_fill_blocks_together():
    reference, weight, projected = torch.randn(100, 5), torch.randn(30, 5), []

    def head(rows: torch.Tensor) -> torch.Tensor:
        projected.append(len(rows))
        return rows @ weight.T

    others = [(torch.randn(9, 5), np.array([(i % 9, i) for i in range(90)])) for _ in range(3)]
    distances(head, reference, others, 5.0)
    # rows of the reference, then blocks of the 3 * 64 and 3 * 26 tasks that need them
    assert projected == [64, 64, 64, 64, 36, 64, 14]


def test_a_shelf_keeps_contiguous_copies_many_in_one_piece():
    shelf = Arena()
    values = [torch.full((4, 3), float(i)).T for i in range(40)]
    kept = [shelf.put(value) for value in values]
    other = shelf.put(torch.ones(2, dtype=torch.bfloat16))
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
    held = [room((250_000,), like).fill_(1) for _ in range(10)]
    assert resident() - before > 9_000_000
    held.clear()
    assert resident() - before < 3_000_000


def test_room_that_cannot_be_mapped_is_tensors_like_others(monkeypatch):
    def full(*args: object, **kwargs: object) -> None:
        raise OSError(12, "Cannot allocate memory")

    monkeypatch.setattr(kept_module.mmap, "mmap", full)
    assert room((2, 3), torch.empty(1, dtype=torch.float64)).shape == (2, 3)
    assert room((0, 3), torch.empty(1)).shape == (0, 3)


def test_prefixes_lie_together_by_context_and_states_in_one_piece(tiny_judge, monkeypatch):
    made = []

    def noted(shape, like):
        made.append(room(shape, like))
        return made[-1]

    plans = [plan_of(4, PARENTS, [1, 2, 7]) for _ in range(2)]
    attention = TreeAttention()
    [packed] = pack(plans, 100, 64)
    attention.begin(packed)
    q = torch.randn(len(packed.tokens), 4, 8)
    for layer in range(3):
        attention.attend(layer, q, q[:, :2], q[:, :2], 1.0, Extras())
    pieces = [
        {part.untyped_storage().data_ptr() for layer in range(3) for part in attention.prefix[context, layer]}
        for context in (0, 1)
    ]
    assert [len(piece) for piece in pieces] == [1, 1]
    assert pieces[0] != pieces[1]
    monkeypatch.setattr(engine_module, "room", noted)
    judge = tiny_judge("llama")
    states = TreeEngine(FusedDecoder(judge.decoder), judge.head, torch.device("cpu"), budget=6).states(plans)
    assert {each.data_ptr() for each in states} <= {each.data_ptr() for each in made}


PARENTS = [-1, 0, 1, 0, -1, 4, 5, 4]
EXTRAS = [Extras(), Extras(window=3), Extras(softcap=0.7), Extras(sinks=torch.tensor([0.3, -1.0, 2.0, 0.0]))]


def by_loops(plan: PrefixTree, q, k, v, extras: Extras) -> torch.Tensor:
    """Attention of each row over its prefix and its path, (rows, heads, size): rows are the prefix and then
    the nodes."""
    length = len(plan.prefix)
    paths = [list(range(i + 1)) for i in range(length)]
    paths += [
        [*range(length), *(length + plan.ancestors(node)), length + node] for node in range(len(plan.tokens))
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
@pytest.mark.parametrize("budget", [1, 4, 10, 11, 100])
def test_tree_attention_over_several_contexts_agrees_with_loops(budget, block, extras, fused):
    torch.manual_seed(0)
    layers, heads, size = 2, 4, 8
    plans = [plan_of(prefix, PARENTS, [1, 2, 7]) for prefix in (6, 0, 2)]
    data = [[torch.randn(len(plan.prefix) + len(PARENTS), n, size) for n in (heads, 2, 2)] for plan in plans]
    found = [[torch.zeros_like(q) for q, _, _ in data] for _ in range(layers)]
    wanted = [[] for _ in plans]
    attention = TreeAttention(fused=fused)
    for packed in pack(plans, budget, block):
        attention.begin(packed)
        rows = [
            torch.cat([part[s.context][at(plans, s)] for s in packed.segments])
            for part in zip(*data, strict=True)
        ]
        for layer in range(layers):
            out = attention.attend(layer, *rows, size**-0.5, extras)
            for s in packed.segments:
                found[layer][s.context][at(plans, s)] = out[s.first_row : s.first_row + s.rows]
        out = attention.attend(layers, rows[0][packed.wanted], *rows[1:], size**-0.5, extras, last=True)
        for (context, count), part in zip(
            packed.wanted_of(plans), out.split([n for _, n in packed.wanted_of(plans)]), strict=True
        ):
            assert len(part) == count
            wanted[context].append(part)
    for context, plan in enumerate(plans):
        truth = by_loops(plan, *data[context], extras)
        assert all(torch.allclose(layer[context], truth, atol=1e-5) for layer in found)
        assert torch.allclose(torch.cat(wanted[context]), truth[len(plan.prefix) + plan.wanted], atol=1e-5)


def at(plans, s) -> list[int]:
    """Where a segment's rows lie in its context: its prefix and then its nodes."""
    length = len(plans[s.context].prefix)
    return [*range(s.prefix), *range(length + s.start, length + s.stop)]


def plan_of(prefix: int, parents: list[int], wanted: list[int]) -> PrefixTree:
    depth, end = [], list(range(1, len(parents) + 1))
    for i, above in enumerate(parents):
        depth.append(0 if above < 0 else depth[above] + 1)
        while above >= 0:
            end[above], above = i + 1, parents[above]
    arrays = (np.array(x, dtype=np.int64) for x in (range(len(parents)), depth, parents, end, wanted))
    return PrefixTree(tuple(range(prefix)), *arrays, rows=())


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
