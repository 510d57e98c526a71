"""The reference cache: what is found again, what never is, and what happens to files that are damaged, too
many or not allowed."""

from __future__ import annotations

import multiprocessing
import os
import stat
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from selfreflect.metric.engine import logits
from selfreflect.metric.engine.logits import ReferenceCache, judge_key
from selfreflect.metric.engine.tree import PrefixTree, Prompt, build_tree
from selfreflect.metric.prompts import masked_words, reference_context
from selfreflect.metric.scorer import SelfReflect
from selfreflect.models.judge import Judge

WIDTH = 6
PROMPTS = [
    Prompt(ids=(1, 2, 3, *branch), first=3 + first)
    for branch, first in (((4, 5, 6, 7), 2), ((4, 5, 8, 9), 3), ((4, 8, 9), 1), ((6, 7, 7, 7, 7), 2))
]


def states_of(tree: PrefixTree, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Random rows that belong to the tree."""
    seed = sum((1 + place) * token for place, token in enumerate(tree.tokens.tolist()))
    return torch.randn(len(tree.outputs), WIDTH, generator=torch.Generator().manual_seed(seed)).to(dtype)


class Warnings(list[str]):
    def __call__(self, message: str) -> None:
        self.append(message)


@pytest.fixture
def warned() -> Warnings:
    return Warnings()


@pytest.fixture
def cache(tmp_path: Path, warned: Warnings) -> ReferenceCache:
    return ReferenceCache(tmp_path / "cache", "judge", warn=warned)


def files(cache: ReferenceCache) -> list[Path]:
    return sorted(cache.root.iterdir())


# --- what is found


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_states_come_back_as_they_were(cache, warned, dtype):
    tree = build_tree(PROMPTS)
    assert cache.get(tree) is None
    cache.put(tree, states_of(tree, dtype))
    found = cache.get(tree)
    assert found.dtype == dtype
    assert torch.equal(found, states_of(tree, dtype))
    assert warned == []


@given(
    first=st.lists(st.sampled_from(range(4)), min_size=1, unique=True),
    second=st.lists(st.sampled_from(range(4)), min_size=1, unique=True),
)
def test_only_the_same_words_are_found(tmp_path_factory, first, second):
    cache = ReferenceCache(tmp_path_factory.mktemp("cache"), "judge")
    tree, other = (build_tree([PROMPTS[i] for i in some]) for some in (first, second))
    cache.put(tree, states_of(tree))
    found = cache.get(other)
    if set(first) == set(second):
        assert torch.equal(found, states_of(other))
    else:
        assert found is None


def test_states_that_were_computed_again_replace_the_old_ones(cache):
    tree = build_tree(PROMPTS)
    cache.put(tree, states_of(tree))
    cache.put(tree, 1 + states_of(tree))
    assert torch.equal(cache.get(tree), 1 + states_of(tree))


def test_other_judges_find_nothing(cache):
    tree = build_tree(PROMPTS)
    cache.put(tree, states_of(tree))
    assert ReferenceCache(cache.root, "another judge").get(tree) is None


def test_a_file_under_the_name_of_another_tree_answers_nothing(cache):
    tree, other = build_tree(PROMPTS[:2]), build_tree(PROMPTS[2:])
    cache.put(tree, states_of(tree))
    [first] = files(cache)
    cache.put(other, states_of(other))
    [second] = set(files(cache)) - {first}
    second.write_bytes(first.read_bytes())
    assert cache.get(other) is None


# --- whose states


def test_a_judge_is_known_by_its_weights_and_settings(tiny_judge):
    judge = tiny_judge("llama")
    others = [
        tiny_judge("llama", seed=1),
        tiny_judge("llama", dtype="bfloat16"),
        Judge(judge.lm, compat="published"),
    ]
    keys = [judge_key(one, one.head) for one in (judge, *others)]
    assert len({*keys, judge_key(judge, torch.Tensor.float)}) == 5  # logits are not hidden states
    again = Judge(judge.lm)
    assert judge_key(again, again.head) == keys[0]


def test_a_changed_weight_or_setting_makes_another_judge(tiny_judge):
    judge = Judge(replace(tiny_judge("llama").lm))
    before = judge_key(judge, judge.head)
    assert judge_key(judge, judge.head) == before
    weight, config = next(judge.lm.model.parameters()), judge.lm.model.config
    old = weight[3, 5].item()
    try:
        with torch.no_grad():
            weight[3, 5] = old + 1e-3
        assert judge_key(judge, judge.head) != before
    finally:
        with torch.no_grad():
            weight[3, 5] = old
    assert judge_key(judge, judge.head) == before
    config.rms_norm_eps, eps = 1e-3, config.rms_norm_eps
    try:
        assert judge_key(judge, judge.head) != before
    finally:
        config.rms_norm_eps = eps


# --- damaged files


def stored(cache: ReferenceCache) -> tuple[PrefixTree, Path]:
    tree = build_tree(PROMPTS)
    cache.put(tree, states_of(tree))
    return tree, files(cache)[0]


@given(data=st.data())
def test_damage_is_never_taken_for_states(tmp_path_factory, data):
    warned = Warnings()
    cache = ReferenceCache(tmp_path_factory.mktemp("cache"), "judge", warn=warned)
    tree, path = stored(cache)
    content = bytearray(path.read_bytes())
    where = data.draw(st.integers(0, len(content) - 1))
    if data.draw(st.booleans(), label="cut"):
        del content[where:]
    else:
        content[where] ^= data.draw(st.integers(1, 255))
    path.write_bytes(content)
    found = cache.get(tree)
    assert found is None
    assert len(warned) == 1


def test_a_damaged_file_is_said_once_and_written_again(cache, warned):
    tree, path = stored(cache)
    path.write_bytes(path.read_bytes()[:-1])
    assert cache.get(tree) is None
    assert cache.get(tree) is None
    assert len(warned) == 1
    assert "damaged" in warned[0]
    cache.put(tree, states_of(tree))
    assert torch.equal(cache.get(tree), states_of(tree))


# --- the directory


def test_files_are_for_their_owner_and_their_names_say_nothing(cache):
    cache.put(build_tree(PROMPTS), states_of(build_tree(PROMPTS)))
    [path] = files(cache)
    assert stat.S_IMODE(cache.root.stat().st_mode) == 0o700
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert len(path.stem) == 64
    assert set(path.stem) <= set("0123456789abcdef")


def test_the_least_recently_used_go_first(tmp_path):
    trees = [build_tree(PROMPTS[:count]) for count in (2, 3, 4)]
    states = torch.zeros(1, WIDTH)
    ReferenceCache(tmp_path / "one", "judge").put(trees[0], states)
    [one] = (tmp_path / "one").iterdir()
    cache = ReferenceCache(tmp_path / "cache", "judge", max_bytes=2 * one.stat().st_size)
    for age, tree in enumerate(trees[:2]):
        cache.put(tree, states)
        [new] = [path for path in files(cache) if path.stat().st_mtime > 2000]
        os.utime(new, (1000 + age, 1000 + age))
    assert cache.get(trees[0]) is not None
    cache.put(trees[2], states)
    assert [cache.get(tree) is not None for tree in trees] == [True, False, True]


def test_states_that_exceed_the_limit_are_not_kept(tmp_path):
    tree = build_tree(PROMPTS)
    cache = ReferenceCache(tmp_path / "cache", "judge", max_bytes=10)
    cache.put(tree, states_of(tree))
    assert not cache.root.exists()


def test_files_of_others_stay_and_abandoned_ones_go(cache):
    _, path = stored(cache)
    foreign, fresh, abandoned = (
        cache.root / "thesis.safetensors",
        cache.root / f"{path.stem}.ab.partial",
        cache.root / f"{path.stem}.cd.partial",
    )
    for file in (foreign, fresh, abandoned):
        file.write_bytes(bytes(1000))
    for file in (foreign, abandoned):
        os.utime(file, (1000, 1000))
    cache.max_bytes = max(path.stat().st_size, 600)
    other = build_tree(PROMPTS[:3])
    cache.put(other, states_of(other))
    assert foreign.exists()
    assert fresh.exists()
    assert not abandoned.exists()
    assert not path.exists()


def test_a_place_that_cannot_be_written_is_said_once(tmp_path, warned):
    (tmp_path / "file").write_text("")
    cache, tree = ReferenceCache(tmp_path / "file", "judge", warn=warned), build_tree(PROMPTS)
    for _ in range(2):
        assert cache.get(tree) is None
        cache.put(tree, states_of(tree))
    assert len(warned) == 1
    assert "not kept" in warned[0]


def test_a_full_disk_leaves_nothing_and_what_was_there_is_still_read(cache, warned, monkeypatch):
    tree, path = stored(cache)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    for count in (2, 3):
        other = build_tree(PROMPTS[:count])
        cache.put(other, states_of(other))
    assert files(cache) == [path]
    assert len(warned) == 1
    assert "No space left" in warned[0]
    assert torch.equal(cache.get(tree), states_of(tree))


def _write(root: Path, number: int) -> None:
    cache = ReferenceCache(root, "judge")
    for turn in range(15):
        tree = build_tree([PROMPTS[(number + turn) % 4]])
        found = cache.get(tree)
        assert found is None or torch.equal(found, states_of(tree))
        cache.put(tree, states_of(tree))


def test_several_processes_share_a_directory(tmp_path):
    context = multiprocessing.get_context("fork")
    processes = [context.Process(target=_write, args=(tmp_path, number)) for number in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(200)
    assert [process.exitcode for process in processes] == [0, 0, 0]
    assert [path.suffix for path in tmp_path.iterdir()] == [".states"] * 4


# --- in the metric


@dataclass
class Counted:
    tokens: int = 0


def cached(judge: Judge, root: Path) -> SelfReflect:
    return SelfReflect(judge, cache=root)


ANSWERS = {
    "masked_out": ["Radishes grow fast.", "Lettuce or peas"],
    "conditioning": ["basil or peas", "Radishes"],
}


@pytest.fixture
def counted(tiny_judge):
    """Tokens that pass through the embedding of the judge."""
    count = Counted()
    layer = tiny_judge("llama").lm.model.get_input_embeddings()
    hook = layer.register_forward_hook(
        lambda _module, arguments, _result: setattr(count, "tokens", count.tokens + arguments[0].numel())
    )
    yield count
    hook.remove()


def test_one_more_summary_costs_only_itself_and_scores_the_same(tiny_judge, tmp_path, counted):
    judge = tiny_judge("llama")
    cached(judge, tmp_path).score("What?", summaries={"first": "Radishes."}, **ANSWERS)
    plain, later = SelfReflect(judge), cached(judge, tmp_path)
    counted.tokens = 0
    expected = plain.score("What?", summaries={"second": "Maybe kale."}, **ANSWERS)
    both, counted.tokens = counted.tokens, 0
    found = later.score("What?", summaries={"second": "Maybe kale."}, **ANSWERS)
    alone, counted.tokens = counted.tokens, 0
    plain.engine.states([reference_tree(judge)])
    assert found["second"].value == pytest.approx(expected["second"].value, abs=1e-6)
    assert counted.tokens > 0
    assert alone == both - counted.tokens


def reference_tree(judge: Judge) -> PrefixTree:
    words = masked_words(ANSWERS["masked_out"])
    context = reference_context("What?", ANSWERS["conditioning"])
    tasks = judge.encode_tasks(
        [context.conversation(word.masked) for word in words], [word.text for word in words]
    )
    return build_tree([Prompt(ids=ids, first=first) for ids, first in tasks])


def test_the_package_need_not_be_installed(tiny_judge, monkeypatch) -> None:
    """It may be imported from a folder on the path."""
    judge = tiny_judge("llama")
    monkeypatch.setattr(logits, "version", missing)
    assert len(judge_key(judge, judge.head)) == 64


def missing(package: str) -> str:
    raise PackageNotFoundError(package)
