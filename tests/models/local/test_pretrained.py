"""A model in parts on several devices: the same scores and samples as in one piece, and clear words where it
does not fit.

Parts on several GPUs are stood in for by made-up devices (``placed.py``), with accelerate's own hooks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import tiny
import torch
from placed import devices, dispatched
from transformers import AutoModelForCausalLM

from selfreflect.errors import BackendError, JudgeError
from selfreflect.metric.engine.engines import FusedDecoder, HFDecoder, TreeEngine
from selfreflect.metric.engine.tree import PrefixTree, Prompt, build_tree
from selfreflect.metric.scorer import SelfReflect
from selfreflect.models.base import Message, ModelSpec, Reply, Request, Sampling
from selfreflect.models.judge import Judge
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


def probe() -> PrefixTree:
    return build_tree([Prompt(ids=tuple(range(3, 40)), first=30)])


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


# What cannot be


def test_without_several_gpus_there_is_nothing_to_spread_a_model_over(
    saved: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(JudgeError) as raised:
        Judge.load(saved("llama"), device="cpu", device_map="auto")
    assert (raised.value.code, "{execution.device_map}" in raised.value.remedy) == ("gpus", True)
    seen: dict[int | str, int] = {0: 1000, "cpu": 10**9}
    monkeypatch.setattr("accelerate.utils.get_max_memory", lambda: seen)
    with pytest.raises(BackendError):
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
        match=rf"'m' \(.* GiB\) does not fit into the visible GPUs.* {len(left)} of its parts, such as "
        rf"'{left[0]}'",
    ):
        check_placement("m", model)
    check_placement("m", SimpleNamespace(hf_device_map={"a": 0, "b": 1}))
    check_placement("m", SimpleNamespace())
