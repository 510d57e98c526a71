"""Tree attention against loops over paths, by every kernel."""

from __future__ import annotations

import re
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from engine_items import PARENTS, assert_same, expected, scored, tree_of
from hypothesis import given
from hypothesis import strategies as st

from selfreflect.metric.engine import attention as attention_module
from selfreflect.metric.engine import kernels
from selfreflect.metric.engine.attention import (
    Arena,
    Extras,
    Tiles,
    TreeAttention,
    library,
    mapped_empty,
    native,
    serving,
)
from selfreflect.metric.engine.engines import choose_engine
from selfreflect.metric.engine.tree import PrefixTree, pack
from selfreflect.metric.scorer import SelfReflect
from selfreflect.models.local import machine

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
    for context, tree in enumerate(trees):
        truth = by_loops(tree, *data[context], extras)
        assert all(torch.allclose(layer[context], truth, atol=1e-5) for layer in found)


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
    monkeypatch.setattr(attention_module, "native", lambda: None)
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


needs_compiler = pytest.mark.usefixtures("compiler")


@pytest.fixture(scope="module")
def compiler() -> None:
    """Not as this file is imported: not every process of the tests has to compile."""
    if native() is None:
        pytest.skip(str(library()))


afresh = library.__wrapped__


@st.composite
def tiles(draw: st.DrawFn, lanes: int) -> tuple[Tiles, int, list[int]]:
    """Tiles, the queries' heads for each key head, and the lengths of the prefixes."""
    group = draw(st.sampled_from([1, 2, 3, 7, lanes]))
    size = lanes // group
    prefixes = draw(st.lists(st.sampled_from([0, 1, 7, 64, 65, 200]), min_size=1, max_size=3))
    chance = np.random.default_rng(draw(st.integers(0, 99)))
    count = draw(st.integers(0, 5))
    widest = draw(st.sampled_from([1, 5, 64, 70, 130]))
    context = chance.integers(0, len(prefixes), count)
    queries = np.full((count, size), -1, dtype=np.int64)
    seen = np.zeros((count, widest), dtype=np.uint64)
    for tile in range(count):
        real = int(chance.integers(1, size + 1))
        queries[tile, :real] = tile * size + np.arange(real)
        for query in range(real):
            visible = chance.random(widest) < chance.choice([0.05, 0.5])
            visible[0] = True
            seen[tile] |= visible.astype(np.uint64) * np.uint64(((1 << group) - 1) << (query * group))
    made = Tiles(
        context=context,
        before=np.array([chance.integers(0, prefixes[of] + 1) for of in context], dtype=np.int64),
        queries=queries,
        keys=chance.integers(0, 90, (count, widest)),
        count=chance.integers(1, widest + 1, count),
        visible=seen,
        contexts=tuple(range(len(prefixes))),
    )
    return made, group, prefixes


@needs_compiler
@given(
    st.data(),
    st.integers(1, 3),
    st.sampled_from([1, 3, 8, 20, 64, 130, 256]),
    st.sampled_from([0.01, 1.0, 30.0]),
)
def test_every_query_attends_as_written_out(
    data: st.DataObject, key_heads: int, size: int, spread: float
) -> None:
    compiled = native()
    assert compiled
    made, group, lengths = data.draw(tiles(compiled.lanes))
    torch.manual_seed(0)
    query = spread * torch.randn(max(1, made.queries.size), key_heads * group, size)
    local = (torch.randn(90, key_heads, size), torch.randn(90, key_heads, size))
    prefixes = {}
    for context, length in enumerate(lengths):
        if length:
            prefixes[context] = torch.randn(key_heads, length, size), torch.randn(key_heads, length, size)
    assert serving(query, *local) is compiled
    found = compiled.attend(query, local, prefixes, made, size**-0.5)
    for tile, row, head in np.argwhere(
        np.broadcast_to(made.queries[..., None] >= 0, (*made.queries.shape, key_heads * group))
    ).tolist():
        at, lane = int(made.queries[tile, row]), row * group + head % group
        visible = [j for j in range(made.count[tile]) if int(made.visible[tile, j]) >> lane & 1]
        keys, values = (part[made.keys[tile, visible], head // group] for part in local)
        if prefix := prefixes.get(int(made.context[tile])):
            keys, values = (
                torch.cat([old[head // group, : made.before[tile]], new])
                for old, new in zip(prefix, (keys, values), strict=True)
            )
        weights = torch.softmax(keys.double() @ query[at, head].double() * size**-0.5, dim=0)
        assert torch.allclose(
            found[at, head].double(), weights @ values.double(), atol=1e-5 * max(1, spread)
        ), (tile, row, head)


@needs_compiler
@pytest.mark.parametrize("logit", [-3e4, 3e4])
def test_logits_beyond_what_an_exponential_can_hold_are_no_trouble(logit: float) -> None:
    compiled = native()
    assert compiled
    key = torch.tensor([1.0, 1.0, 0.5]).view(3, 1, 1)
    key = key if logit > 0 else key + torch.tensor([0.0, 0.0, 1.0]).view(3, 1, 1)
    value = torch.tensor([2.0, 4.0, 100.0]).view(3, 1, 1)
    tile = Tiles(
        context=np.zeros(1, dtype=np.int64),
        before=np.zeros(1, dtype=np.int64),
        queries=np.array([[0, *[-1] * (compiled.lanes - 1)]]),
        keys=np.array([[0, 1, 2]]),
        count=np.array([3]),
        visible=np.ones((1, 3), dtype=np.uint64),
        contexts=(0,),
    )
    found = compiled.attend(torch.full((1, 1, 1), logit), (key, value), {}, tile, 1.0)
    assert found.item() == 3.0


@needs_compiler
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
@pytest.mark.parametrize("where", [0, 5, 99])
def test_what_is_not_finite_does_not_vanish(bad: float, where: int) -> None:
    compiled = native()
    assert compiled
    key = torch.zeros(100, 1, 4)
    key[where] = bad
    tile = Tiles(
        context=np.zeros(1, dtype=np.int64),
        before=np.zeros(1, dtype=np.int64),
        queries=np.array([[0, *[-1] * (compiled.lanes - 1)]]),
        keys=np.arange(100)[None],
        count=np.array([100]),
        visible=np.ones((1, 100), dtype=np.uint64),
        contexts=(0,),
    )
    found = compiled.attend(torch.ones(1, 1, 4), (key, torch.ones(100, 1, 4)), {}, tile, 1.0)
    assert found.isnan().all()


def test_kinds_and_shapes_that_it_does_not_know_are_refused() -> None:
    if not (compiled := native()):
        pytest.skip(str(library()))
    key = torch.zeros(4, 1, 8)
    assert serving(torch.zeros(2, 1, 8), key, key)
    assert not serving(torch.zeros(2, 1, 8).bfloat16(), key.bfloat16(), key.bfloat16())
    assert not serving(torch.zeros(2, compiled.lanes + 1, 8), key, key)
    assert not serving(torch.zeros(2, 1, 8), key, torch.zeros(4, 1, 4))
    wide = torch.zeros(4, 1, compiled.largest_head + 1)
    assert not serving(wide, wide, wide)


@needs_compiler
def test_the_compiler_may_have_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "gcc -g0")
    assert not isinstance(afresh(), str)


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({"SELFREFLECT_NATIVE": "0"}, "is 0"),
        ({"CC": "/bin/false"}, "compiler failed"),
        ({"CC": "/nowhere/cc"}, "install gcc"),
        ({"CC": "'"}, "install gcc"),
        ({"CC": "true"}, "set TMPDIR"),  # there is nothing to load
    ],
)
def test_without_it_there_is_a_reason(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], said: str
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert said in str(afresh())


def test_a_machine_without_a_compiler_is_told_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setenv("PATH", "")
    assert "install gcc" in str(afresh())


@pytest.fixture
def stored(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The library that a process has left in the cache of the next one, which cannot compile."""
    monkeypatch.setenv("SELFREFLECT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert not isinstance(afresh(), str)
    [file] = (tmp_path / "cache").iterdir()
    monkeypatch.setattr(machine, "_compile", refuse)
    return file


def refuse(*_: object) -> Path:
    raise OSError("no compiler here")


@needs_compiler
def test_a_later_process_takes_the_library_of_the_cache(stored: Path) -> None:
    compiled = afresh()
    assert not isinstance(compiled, str)
    stored.write_bytes(b"")  # whose loss no longer matters
    assert compiled.lanes == native().lanes


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:5000])


def swap(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-1] + b"?")


def open_to_all(file: Path) -> None:
    file.chmod(0o666)


def link(file: Path) -> None:
    file.symlink_to(file.rename(file.with_suffix(".other")))


@needs_compiler
@pytest.mark.parametrize("damage", [cut, swap, open_to_all, link, Path.unlink])
def test_a_library_that_was_damaged_or_that_others_could_have_written_is_not_loaded(
    stored: Path, damage: Callable[[Path], None]
) -> None:
    damage(stored)
    assert "no compiler here" in str(afresh())
