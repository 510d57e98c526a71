"""Prompts that begin alike: the logits of each computed alone, from fewer tokens, in bounded memory."""

from __future__ import annotations

import random
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import tiny
import torch
from transformers import AutoModelForCausalLM

from selfreflect.models.local.decode import Prompt, PromptStates


def tokens(seed: int, count: int) -> Prompt:
    chance = random.Random(seed)
    return tuple(chance.randrange(3, 90) for _ in range(count))


SYSTEM = tokens(1, 40)
CONTEXT = SYSTEM + tokens(2, 50)
PROMPTS = [
    CONTEXT + tokens(3, 5),
    CONTEXT + tokens(4, 20),
    CONTEXT,  # a prompt that another one continues
    SYSTEM + tokens(5, 3),
    SYSTEM + tokens(6, 35),
    tokens(7, 1),
    SYSTEM[:20] + tokens(8, 10),
]

PADDING = 0
"""Which no prompt holds."""


class Counted:
    """A model, how many tokens each pass read, padding apart, and a copy that counts none."""

    def __init__(self, folder: Path, kind: str) -> None:
        whole = {"sliding_window": None} if kind == "mistral" else {}
        path = tiny.save(folder, kind, **whole)
        self.model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).eval()
        self.copy = deepcopy(self.model)
        self.calls: list[int] = []
        self.model.get_input_embeddings().register_forward_pre_hook(self._count)

    def _count(self, module: Any, inputs: tuple[torch.Tensor]) -> None:
        self.calls.append(int((inputs[0] != PADDING).sum()))


def agree(model: Counted, computed: PromptStates, prompts: list[Prompt]) -> None:
    logits, states = computed.compute(prompts)
    for row, prompt in enumerate(prompts):
        with torch.inference_mode():
            truth = model.copy(input_ids=torch.tensor([prompt]), use_cache=True)
        assert torch.allclose(logits[row], truth.logits[0, -1], atol=1e-4)
        for layer, cached in enumerate(truth.past_key_values.layers):
            assert torch.allclose(states.keys[layer][row, :, -len(prompt) :], cached.keys[0], atol=1e-4)
            assert torch.allclose(states.values[layer][row, :, -len(prompt) :], cached.values[0], atol=1e-4)


@pytest.mark.parametrize("kind", ["llama", "mistral", "qwen3"])
def test_prompts_that_begin_alike_are_computed_once_up_to_where_they_part(tmp_path: Path, kind: str) -> None:
    model = Counted(tmp_path, kind)
    computed = PromptStates(model.model)
    agree(model, computed, PROMPTS)
    # system, context, then the ends: the last token of each prompt is needed for its logits
    assert model.calls == [40, 50, 5 + 20 + 1 + 3 + 35 + 1 + 30]


def test_later_calls_continue_the_prompts_of_earlier_ones(tmp_path: Path) -> None:
    model = Counted(tmp_path, "llama")
    computed = PromptStates(model.model)
    agree(model, computed, PROMPTS[:1])
    reply = tokens(9, 12)
    later = [PROMPTS[0], PROMPTS[0] + reply, CONTEXT + reply, SYSTEM + reply]
    model.calls.clear()
    agree(model, computed, later)
    assert model.calls == [1 + 12 + 12 + 12]


def test_what_is_kept_is_bounded_and_the_latest(tmp_path: Path) -> None:
    model = Counted(tmp_path, "llama")
    token = 2 * 2 * 2 * 12 * 4  # keys and values, layers, heads, their size, bytes
    computed = PromptStates(model.model, room=200 * token)
    for seed in range(20, 26):
        computed.compute([tokens(seed, 60), tokens(seed + 10, 30)])
        assert sum(states.size for states in computed._kept.values()) <= computed.room
    assert list(computed._kept) == [tokens(24, 60), tokens(34, 30), tokens(25, 60), tokens(35, 30)]
    for states in computed._kept.values():
        for layer in [*states.keys, *states.values]:
            assert layer.untyped_storage().nbytes() == layer.nbytes, "no part of a larger tensor"
    computed.compute([tokens(40, 201)])
    assert not computed._kept
