"""The compiled attention: equal to softmaxes written out, and compiled once, by whoever has a compiler and a
cache of their own."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from selfreflect.metric.engine.native import Tiles, library, native, serving

needs_compiler = pytest.mark.skipif(native() is None, reason=str(library()))
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
@settings(max_examples=60)
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


def test_no_library_is_kept_on_disk_that_could_be_damaged(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Each process compiles its own: one that was cut off on disk used to end every later process."""
    for name in ("TMPDIR", "XDG_CACHE_HOME", "SELFREFLECT_CACHE"):
        monkeypatch.setenv(name, str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    library.cache_clear()
    try:
        assert not isinstance(library(), str)
        assert list(tmp_path.iterdir()) == []
    finally:
        library.cache_clear()
