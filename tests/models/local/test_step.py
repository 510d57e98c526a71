"""Decoding steps in C: the model's own logits in any batch, and memory that is used again."""

from __future__ import annotations

from pathlib import Path

import pytest
import tiny
import torch
from transformers import AutoModelForCausalLM

from selfreflect.models.local.decode import LibrarySequences, begin
from selfreflect.models.local.step import FusedSequences, Slots, serves, step_library, why_slow

needs_compiler = pytest.mark.usefixtures("compiled")


@pytest.fixture(scope="module")
def compiled() -> None:
    """Not as this file is imported: not every process of the tests has to compile."""
    if isinstance(step_library(), str):
        pytest.skip(str(step_library()))


PROMPTS = [(5,), tuple(range(3, 83)), (7, 8, 9), tuple(range(3, 83)), (7, 8, 9), (7, 8, 9)]
"""Three prompts of very different lengths, two of which several sequences share."""

NO_WINDOW: dict[str, dict[str, object]] = {
    "mistral": {"sliding_window": None},
    "qwen2": {"use_sliding_window": False, "layer_types": ["full_attention"] * 2},
}


def saved(
    directory: Path, kind: str, dtype: torch.dtype = torch.float32, **changes: object
) -> torch.nn.Module:
    path = tiny.save(directory, kind, **changes)
    return AutoModelForCausalLM.from_pretrained(path, dtype=dtype).eval()


@needs_compiler
@pytest.mark.parametrize("kind", ["llama", "mistral", "qwen2", "qwen3"])
@torch.inference_mode()
def test_every_step_has_the_logits_of_the_model_itself(tmp_path: Path, kind: str) -> None:
    """Over more tokens than one look at the slots and one chunk of keys hold, while sequences end."""
    model = saved(tmp_path, kind, **NO_WINDOW.get(kind, {}))
    for name, bias in model.named_parameters():
        if name.endswith("bias"):  # they begin as zeros
            torch.nn.init.normal_(bias)
    logits, sequences = begin(model, PROMPTS, pad_id=0)
    assert type(sequences) is FusedSequences
    texts = [list(prompt) for prompt in PROMPTS]
    chance = torch.Generator().manual_seed(1)
    for step in range(75):
        for text, row in zip(texts, logits, strict=True):
            truth = model(input_ids=torch.tensor([text])).logits[0, -1]
            assert torch.allclose(row, truth, atol=2e-4), (step, len(text))
        if step in (3, 20, 21):
            left = [i for i in range(len(texts)) if i != 1]
            sequences.keep(left)
            texts = [texts[i] for i in left]
        tokens = torch.randint(3, 90, (len(texts),), generator=chance)
        for text, token in zip(texts, tokens.tolist(), strict=True):
            text.append(token)
        logits = sequences.extend(tokens)


@needs_compiler
@pytest.mark.parametrize("change", ["linear", "llama3", "yarn", "tied", "wide heads"])
@torch.inference_mode()
def test_rotary_variants_shared_matrices_and_heads_wider_than_all_else(tmp_path: Path, change: str) -> None:
    rope: dict[str, object] = {
        "rope_type": change,
        "rope_theta": 10000.0,
        "factor": 4.0,
        "original_max_position_embeddings": 32,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
    }
    options: dict[str, object] = {"rope_parameters": rope}
    if change == "tied":
        options = {"tie_word_embeddings": True}
    elif change == "wide heads":  # together wider than a token's state and the layer between
        options = {"head_dim": 32}
    model = saved(tmp_path, "llama", **options)
    logits, sequences = begin(model, PROMPTS, pad_id=0)
    assert type(sequences) is FusedSequences
    texts = [list(prompt) for prompt in PROMPTS]
    for token in (4, 40, 14):
        for text, row in zip(texts, logits, strict=True):
            truth = model(input_ids=torch.tensor([text])).logits[0, -1]
            assert torch.allclose(row, truth, atol=2e-4)
            text.append(token)
        logits = sequences.extend(torch.full((len(texts),), token))


@needs_compiler
def test_a_sequence_has_the_same_numbers_in_any_batch(tmp_path: Path) -> None:
    model = saved(tmp_path, "llama")
    alone, one = begin(model, [PROMPTS[1]], pad_id=0)
    _, many = begin(model, [PROMPTS[1]] * 50, pad_id=0)
    with torch.inference_mode():
        for token in (4, 40, 14):
            alone = one.extend(torch.tensor([token]))
            together = many.extend(torch.full((50,), token))
            assert torch.equal(together, alone.expand_as(together))


def test_slots_of_sequences_that_ended_are_used_again() -> None:
    slots = Slots(20, 1, (1, 2))
    for _ in range(40):
        slots.append()
    room = len(slots.keys[0])
    assert room <= 2 * 20 * 40
    for left in range(19, 0, -1):
        slots.keep(list(range(1, left + 1)))
        for _ in range(2):
            slots.append()
        taken = [slot for row, count in zip(slots.table, slots.count, strict=True) for slot in row[:count]]
        assert len(set(taken)) == len(taken)
    assert slots.count.tolist() == [40 + 2 * 19]
    assert len(slots.keys[0]) == room


@needs_compiler
@pytest.mark.parametrize(
    "change", ["none", "gemma2", "bfloat16", "window", "qwen2", "dynamic", "adapter", "head", "compiler"]
)
def test_other_models_keep_their_own_layers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    kind = {"gemma2": "gemma2", "window": "mistral", "qwen2": "qwen2"}.get(change, "llama")
    dtype = torch.bfloat16 if change == "bfloat16" else torch.float32
    rope = {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 2.0}
    model = saved(tmp_path, kind, dtype, **({"rope_parameters": rope} if change == "dynamic" else {}))
    if change == "adapter":
        layer = model.model.layers[0]
        layer.mlp.up_proj = torch.nn.Sequential(layer.mlp.up_proj)
    if change == "head":
        model.lm_head = torch.nn.Sequential(model.lm_head)
    if change == "compiler":
        monkeypatch.setattr("selfreflect.models.local.step.step_library", lambda: "no compiler")
    assert serves(model) == (change == "none")
    assert why_slow(model) == ("no compiler" if change == "compiler" else "")
    with torch.inference_mode():
        _, sequences = begin(model, PROMPTS[:2], pad_id=0)
    assert type(sequences) is (FusedSequences if change == "none" else LibrarySequences)
