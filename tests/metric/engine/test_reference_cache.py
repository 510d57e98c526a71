"""The reference cache: what is found again, what never is, and what happens to files that are damaged, too
many or not allowed."""

from __future__ import annotations

import multiprocessing
import os
import stat
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from selfreflect.metric.engine.reference_cache import ReferenceCache, judge_key, row_keys
from selfreflect.metric.engine.tree import PrefixTree, Prompt, build_tree
from selfreflect.metric.scorer import SelfReflect
from selfreflect.metric.tasks import masked_words, reference_context
from selfreflect.models.judge import Judge

WIDTH = 6
PROMPTS = [
    Prompt(ids=(1, 2, 3, *branch), first=3 + first)
    for branch, first in (((4, 5, 6, 7), 2), ((4, 5, 8, 9), 3), ((4, 8, 9), 1), ((6, 7, 7, 7, 7), 2))
]


def states_of(tree: PrefixTree, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Random rows that belong to their paths, whatever tree these are in."""
    rows = [
        torch.randn(WIDTH, generator=torch.Generator().manual_seed(int.from_bytes(key[:4], "big")))
        for key in row_keys(tree)
    ]
    return torch.stack(rows).to(dtype)


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
    assert cache.get("c", tree) is None
    cache.put("c", tree, states_of(tree, dtype))
    found = cache.get("c", tree)
    assert found.dtype == dtype
    assert torch.equal(found, states_of(tree, dtype))
    assert warned == []


@given(
    first=st.sets(st.sampled_from(range(4)), min_size=1),
    second=st.sets(st.sampled_from(range(4)), min_size=1),
)
def test_any_part_of_what_is_there_is_found_and_nothing_else(tmp_path_factory, first, second):
    cache = ReferenceCache(tmp_path_factory.mktemp("cache"), "judge")
    tree, other = (build_tree([PROMPTS[i] for i in sorted(some)]) for some in (first, second))
    cache.put("c", tree, states_of(tree))
    found = cache.get("c", other)
    if set(row_keys(other)) <= set(row_keys(tree)):
        assert torch.equal(found, states_of(other))
    else:
        assert found is None


def test_rows_are_added(cache):
    for prompt in PROMPTS:
        part = build_tree([prompt])
        cache.put("c", part, states_of(part))
    whole = build_tree(PROMPTS)
    assert torch.equal(cache.get("c", whole), states_of(whole))
    assert len(files(cache)) == 1


def test_rows_that_were_computed_again_replace_the_old_ones(cache):
    part, whole = build_tree(PROMPTS[:1]), build_tree(PROMPTS)
    cache.put("c", part, states_of(part))
    cache.put("c", whole, 1 + states_of(whole))
    assert torch.equal(cache.get("c", part), 1 + states_of(part))


@given(st.lists(st.lists(st.integers(0, 3), min_size=2, max_size=6), min_size=1, max_size=6))
def test_a_row_is_known_by_all_its_tokens_and_by_nothing_else(branches):
    prompts = [Prompt(ids=tuple(ids), first=len(ids) - 1) for ids in branches]
    tree = build_tree(prompts)
    keys = row_keys(tree)
    by_path = {prompt.ids[:-1]: keys[row] for prompt, (row,) in zip(prompts, tree.rows, strict=True)}
    assert len(set(by_path.values())) == len(by_path)
    for prompt in prompts:
        assert row_keys(build_tree([prompt])) == [by_path[prompt.ids[:-1]]]


def test_other_judges_and_contexts_find_nothing(cache):
    tree = build_tree(PROMPTS)
    cache.put("c", tree, states_of(tree))
    assert cache.get("d", tree) is None
    assert ReferenceCache(cache.root, "another judge").get("c", tree) is None


def test_a_file_under_the_name_of_another_context_answers_nothing_wrong(cache):
    tree, other = build_tree(PROMPTS[:2]), build_tree(PROMPTS[2:])
    cache.put("c", tree, states_of(tree))
    [of_c] = files(cache)
    cache.put("d", other, states_of(other))
    [of_d] = set(files(cache)) - {of_c}
    of_d.write_bytes(of_c.read_bytes())
    assert cache.get("d", other) is None


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
    cache.put("c", tree, states_of(tree))
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
    found = cache.get("c", tree)
    # some changes, such as of the order of names, are none
    assert found is None or torch.equal(found, states_of(tree))
    assert len(warned) == (found is None)


def test_a_damaged_file_is_said_once_and_written_again(cache, warned):
    tree, path = stored(cache)
    path.write_bytes(path.read_bytes()[:-1])
    assert cache.get("c", tree) is None
    assert cache.get("c", tree) is None
    assert len(warned) == 1
    assert "damaged" in warned[0]
    cache.put("c", tree, states_of(tree))
    assert torch.equal(cache.get("c", tree), states_of(tree))


def test_states_that_were_exchanged_in_a_sound_file_are_noticed(cache, warned):
    tree, path = stored(cache)
    held = load_file(path)
    save_file({**held, "states": held["states"].flip(0)}, path)
    assert cache.get("c", tree) is None
    assert "checksum" in warned[0]


# --- the directory


def test_files_are_for_their_owner_and_their_names_say_nothing(cache):
    cache.put("What do you think of Anna?", build_tree(PROMPTS), states_of(build_tree(PROMPTS)))
    [path] = files(cache)
    assert stat.S_IMODE(cache.root.stat().st_mode) == 0o700
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert len(path.stem) == 64
    assert set(path.stem) <= set("0123456789abcdef")


def test_the_least_recently_used_go_first(tmp_path):
    tree = build_tree(PROMPTS)
    ReferenceCache(tmp_path / "one", "judge").put("a", tree, states_of(tree))
    [one] = (tmp_path / "one").iterdir()
    cache = ReferenceCache(tmp_path / "cache", "judge", max_bytes=2 * one.stat().st_size)
    cache.put("a", tree, states_of(tree))
    cache.put("b", tree, states_of(tree))
    for age, path in enumerate(files(cache)):
        os.utime(path, (1000 + age, 1000 + age))
    assert cache.get("a", tree) is not None
    cache.put("c", tree, states_of(tree))
    assert [cache.get(name, tree) is not None for name in "abc"] == [True, False, True]


def test_states_that_exceed_the_limit_are_not_kept(tmp_path):
    tree = build_tree(PROMPTS)
    cache = ReferenceCache(tmp_path / "cache", "judge", max_bytes=10)
    cache.put("a", tree, states_of(tree))
    assert not cache.root.exists()


def test_files_of_others_stay_and_abandoned_ones_go(cache):
    tree, path = stored(cache)
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
    cache.put("d", tree, states_of(tree))
    assert foreign.exists()
    assert fresh.exists()
    assert not abandoned.exists()
    assert not path.exists()


def test_a_place_that_cannot_be_written_is_said_once(tmp_path, warned):
    (tmp_path / "file").write_text("")
    cache, tree = ReferenceCache(tmp_path / "file", "judge", warn=warned), build_tree(PROMPTS)
    for context in ("c", "d"):
        assert cache.get(context, tree) is None
        cache.put(context, tree, states_of(tree))
    assert len(warned) == 1
    assert "not kept" in warned[0]


def test_a_full_disk_leaves_nothing_and_what_was_there_is_still_read(cache, warned, monkeypatch):
    tree, path = stored(cache)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    cache.put("d", tree, states_of(tree))
    cache.put("e", tree, states_of(tree))
    assert files(cache) == [path]
    assert len(warned) == 1
    assert "No space left" in warned[0]
    assert torch.equal(cache.get("c", tree), states_of(tree))


def _write(root: Path, number: int) -> None:
    cache, whole = ReferenceCache(root, "judge"), build_tree(PROMPTS)
    for turn in range(15):
        tree = build_tree([PROMPTS[(number + turn) % 4]])
        cache.put("c", tree, states_of(tree))
        found = cache.get("c", whole)
        assert found is None or torch.equal(found, states_of(whole))


def test_several_processes_share_a_directory(tmp_path):
    context = multiprocessing.get_context("fork")
    processes = [context.Process(target=_write, args=(tmp_path, number)) for number in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    assert [process.exitcode for process in processes] == [0, 0, 0]
    [path] = tmp_path.iterdir()
    assert path.suffix == ".safetensors"


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


def test_fewer_masked_out_answers_are_served_by_more(tiny_judge, tmp_path, counted):
    judge = tiny_judge("llama")
    cached(judge, tmp_path).score("What?", summaries={"s": "Radishes."}, **ANSWERS)
    some = {**ANSWERS, "masked_out": ANSWERS["masked_out"][1:]}
    expected = SelfReflect(judge)
    counted.tokens = 0
    truth = expected.score("What?", summaries={"s": "Radishes."}, **some)["s"]
    both, later, counted.tokens = counted.tokens, cached(judge, tmp_path), 0
    found = later.score("What?", summaries={"s": "Radishes."}, **some)["s"]
    assert counted.tokens < 0.7 * both
    assert found.value == pytest.approx(truth.value, abs=1e-6)
