"""A model in parts on several devices: the same scores and samples as in one piece, and clear words where it
does not fit.

Parts on several GPUs are stood in for by made-up devices (``placed.py``), with accelerate's own hooks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import tiny
import torch
from placed import Placed, devices, dispatched
from tiny_chat import single_threaded
from transformers import AutoModelForCausalLM

from selfreflect.errors import BackendError, JudgeError
from selfreflect.metric.engine.engines import (
    FusedDecoder,
    HFDecoder,
    RotaryLimitEngine,
    SequenceEngine,
    TreeEngine,
)
from selfreflect.metric.engine.tree import PrefixTree, Prompt, build_tree
from selfreflect.metric.scorer import SelfReflect
from selfreflect.models.base import Message, ModelSpec, Reply, Request, Sampling
from selfreflect.models.judge import Judge
from selfreflect.models.local import pretrained
from selfreflect.models.local.generator import HFGenerator
from selfreflect.models.local.loading import CausalLM, load_causal_lm
from selfreflect.models.local.pretrained import check_placement, placement
from selfreflect.records import Score

LAYERS = 4
ITEM: dict[str, Any] = {
    "question": "What should I plant first?",
    "masked_out": ["Radishes grow fast", "Lettuce or peas", "球茎甘蓝 _ {x}"],
    "conditioning": ["basil or peas", "It is not clear"],
    "summaries": {
        "short": "Radishes.",
        "long": "Maybe kale, or else nothing at all before May.",
        "again": "Radishes.",
    },
}


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    with single_threaded():
        yield


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., str]:
    """A model directory; many stop tokens make sequences leave their batch at every step."""

    def save(architecture: str, **changes: Any) -> str:
        kinds = tiny.ARCHITECTURES[architecture].get("layer_types")
        own = {
            "num_hidden_layers": LAYERS,
            "eos_token_id": list(range(100, 150)),
            **({"layer_types": kinds * 2} if kinds else {}),
        }
        return str(tiny.save(tmp_path_factory.mktemp("model"), architecture, **{**own, **changes}))

    return save


def parts(*, tied: bool = False) -> dict[str, str]:
    """Layers on two devices, and the parts around them where each of them is alone."""
    return {
        "model.embed_tokens": "cpu:1",
        **{f"model.layers.{i}": "cpu:1" if 2 * i < LAYERS else "cpu:2" for i in range(LAYERS)},
        "model.norm": "cpu:2",
        "model.rotary_emb": "cpu:3",
        "lm_head": "cpu:1" if tied else "cpu:3",
    }


def in_parts(path: str) -> CausalLM:
    """Not the loaded model itself, which other tests share."""
    model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).eval()
    return replace(
        load_causal_lm(ModelSpec(path, device="cpu")),
        model=dispatched(model, parts(tied=model.config.tie_word_embeddings)),
    )


def values(scores: dict[str, Score]) -> list[float]:
    found = [distance for score in scores.values() for word in score.words for distance in word.distances]
    assert max(found) > 0.01
    return found


def same(found: dict[str, Score], expected: dict[str, Score]) -> None:
    assert values(found) == pytest.approx(values(expected), abs=1e-6)
    assert [score.value for score in found.values()] == pytest.approx(
        [score.value for score in expected.values()], abs=1e-6
    )


# On several devices


def test_tensors_of_two_devices_do_not_meet() -> None:
    with devices() as all_devices:
        one, other = torch.ones(2, 2).to("cpu:1"), torch.ones(2, 2, device="cpu:2")
        assert (type(one), one.device, (one @ one)[0].device) == (
            Placed,
            torch.device("cpu:1"),
            torch.device("cpu:1"),
        )
        for mixed in (
            lambda: one + other,
            lambda: one @ torch.ones(2, 2),
            lambda: one[torch.tensor([0])],
            lambda: one.copy_(other),
        ):
            with pytest.raises(RuntimeError, match="meet in"):
                mixed()
        moved = one.to("cpu:2").mul_(2) + other
        assert moved.cpu().tolist() == [[3.0, 3.0]] * 2
        assert moved.to("cpu:2") is moved
    assert [str(place) for move in all_devices.moves for place in move] == [
        "cpu",
        "cpu:1",
        "cpu:1",
        "cpu:2",
        "cpu:2",
        "cpu",
    ]


BODIES = {"llama": FusedDecoder, "qwen3": FusedDecoder, "gemma2": HFDecoder, "gpt_oss": HFDecoder}


@pytest.mark.parametrize(
    "architecture",
    ["llama", "gemma2", *(pytest.param(name, marks=pytest.mark.slow) for name in ("qwen3", "gpt_oss"))],
)
def test_a_judge_on_several_devices_gives_the_same_scores(
    saved: Callable[..., str], architecture: str
) -> None:
    path = saved(architecture)
    expected = SelfReflect(Judge.load(path, device="cpu")).score(**ITEM)
    with devices():
        metric = SelfReflect(Judge(in_parts(path)))
        engine = metric.engine
        assert type(engine) is TreeEngine
        assert type(engine.decoder) is BODIES[architecture]
        assert engine.fused
        # several passes, which leave keys and values behind for the next
        engine.max_rows, engine.block = 150, 20
        assert engine.states([probe()])[0].device == metric.judge.lm.model.lm_head.weight.device
        same(metric.score(**ITEM), expected)


def test_what_is_kept_of_a_judge_on_several_devices_serves_it_again(
    saved: Callable[..., str], tmp_path: Path
) -> None:
    path = saved("llama")
    expected = SelfReflect(Judge.load(path, device="cpu"), guesses=2).score(**ITEM)
    with devices():
        metric = SelfReflect(Judge(in_parts(path)), guesses=2, cache=tmp_path)
        for _ in range(2):
            found = metric.score(**ITEM)
            same(found, expected)
            assert [word.guesses for word in found["long"].words] == [
                word.guesses for word in expected["long"].words
            ]


def probe() -> PrefixTree:
    return build_tree([Prompt(ids=tuple(range(3, 40)), first=30)])


def test_a_projection_that_is_the_embedding_too_stays_with_it(saved: Callable[..., str]) -> None:
    path = saved("llama", tie_word_embeddings=True)
    expected = SelfReflect(Judge.load(path, device="cpu")).score(**ITEM)
    with devices():
        metric = SelfReflect(Judge(in_parts(path)))
        assert type(metric.engine.decoder) is FusedDecoder  # type: ignore[attr-defined]
        same(metric.score(**ITEM), expected)


@pytest.mark.parametrize("architecture", ["phi3 longrope", "qwen2_moe"])
def test_whole_sequences_on_several_devices(saved: Callable[..., str], architecture: str) -> None:
    path = saved(architecture)
    expected = SelfReflect(Judge.load(path, device="cpu")).score(**ITEM)
    with devices():
        metric = SelfReflect(Judge(in_parts(path)))
        assert type(metric.engine) in (RotaryLimitEngine, SequenceEngine)
        same(metric.score(**ITEM), expected)


def test_rows_move_only_where_the_next_layer_is_elsewhere(saved: Callable[..., str]) -> None:
    path = saved("llama")
    with devices() as all_devices:
        engine = SelfReflect(Judge(in_parts(path))).engine
        all_devices.moves.clear()
        engine.states([probe()])
    between = [f"{here} {there}" for here, there in all_devices.moves if here.index is not None]
    # Positions and rows to the rotary tables, the tables to the first layer; rows and tables to the third;
    # states to the projection.
    assert sorted(between) == sorted(
        ["cpu:1 cpu:3"] * 2 + ["cpu:3 cpu:1"] * 2 + ["cpu:1 cpu:2"] * 3 + ["cpu:2 cpu:3"]
    )


def test_a_body_that_forgets_to_move_rows_on_would_be_noticed(saved: Callable[..., str]) -> None:
    with devices():
        engine = SelfReflect(Judge(in_parts(saved("llama")))).engine
        engine.decoder.layer_devices = [torch.device("cpu:1")] * LAYERS  # type: ignore[attr-defined]
        with pytest.raises(RuntimeError, match=r"cpu:1, cpu:2 meet in"):
            engine.states([probe()])


HOT, GREEDY = Sampling(temperature=1.5, max_new_tokens=12), Sampling(temperature=0, max_new_tokens=12)
REQUESTS = [
    Request(messages=(Message(role="user", content=text),), sampling=sampling, n=n, seed=seed)
    for seed, (text, sampling, n) in enumerate(
        [("Who?", HOT, 6), ("What should I plant first?", HOT, 3), ("Who?", GREEDY, 1)]
    )
]


@pytest.mark.parametrize("architecture", ["llama", "gemma2"])
def test_a_generator_on_several_devices_draws_the_same_texts(
    saved: Callable[..., str], architecture: str
) -> None:
    path = saved(architecture)
    expected = HFGenerator.load(path, device="cpu").generate(REQUESTS)
    lengths = {
        completion.tokens
        for reply in expected
        if isinstance(reply, Reply)
        for completion in reply.completions
    }
    assert len(lengths) > 2, "sequences leave their batch at different steps"
    with devices():
        assert HFGenerator(in_parts(path)).generate(REQUESTS) == expected


def test_it_is_told_where_the_parts_are(saved: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> None:
    """With main memory and disk as the devices."""
    places = {**dict.fromkeys(parts(), "cpu"), "model.norm": "disk"}
    monkeypatch.setattr(pretrained, "placement", lambda *_: {"device_map": places})
    monkeypatch.setattr(pretrained, "check_placement", lambda *_: None)
    told = list[str]()
    load_causal_lm(ModelSpec(saved("llama"), device="cpu", device_map="auto"), told.append)
    assert told[0] == "the model is spread over the devices cpu, disk"


# What cannot be


def test_without_several_gpus_there_is_nothing_to_spread_a_model_over(
    saved: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    message = "--device-map auto needs at least two visible GPUs, and on device 'cpu' there are none"
    with pytest.raises(JudgeError, match=message):
        Judge.load(saved("llama"), device="cpu", device_map="auto")
    with pytest.raises(BackendError, match=message):
        HFGenerator.load(saved("llama"), device="cpu", device_map="auto")
    seen: dict[int | str, int] = {0: 1000, "cpu": 10**9}
    monkeypatch.setattr("accelerate.utils.get_max_memory", lambda: seen)
    with pytest.raises(BackendError, match="on device 'cuda' there is 1"):
        placement("auto", "cuda")
    seen[1] = 2000
    assert placement("auto", "cuda") == {"device_map": "auto", "max_memory": {0: 900, 1: 1800}}
    assert placement(None, "cuda") == {}


def test_a_model_that_does_not_fit_is_not_spilled(saved: Callable[..., str]) -> None:
    """With the CPU as the device that is too small."""
    path = saved("llama")
    model = AutoModelForCausalLM.from_pretrained(path, device_map="auto", max_memory={"cpu": 250_000})
    left = [name for name, place in model.hf_device_map.items() if place == "disk"]
    assert 0 < len(left) < len(model.hf_device_map)
    model.hf_device_map.update({name: 0 for name, place in model.hf_device_map.items() if place == "cpu"})
    with pytest.raises(
        BackendError,
        match=rf"'m' does not fit into the visible GPUs.* {len(left)} parts such as '{left[0]}' are left",
    ):
        check_placement("m", model)
    check_placement("m", SimpleNamespace(hf_device_map={"a": 0, "b": 1}))
    check_placement("m", SimpleNamespace())
