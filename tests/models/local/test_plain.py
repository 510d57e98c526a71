"""The embedded model without transformers: the same numbers, bit by bit, and the same token ids."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from selfreflect.models.local.decode import PromptStates
from selfreflect.models.local.plain import LlamaForCausalLM, PlainTokenizer, read_plain_model
from selfreflect.models.smollm2 import model_directory

TEXTS = [
    "What is the capital of Turkey?",
    "",
    "  two\n\n\tlines  ",
    "Ankara é e\u0301 ﬁ 日本語 🎉\u200b",
    "<|im_start|>user\nHi<|im_end|>\n<|endoftext|>",
]


@pytest.fixture(scope="module")
def folder() -> Path:
    return model_directory()


@pytest.fixture(scope="module")
def library(folder: Path) -> Any:
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()


@pytest.fixture(scope="module")
def plain(folder: Path) -> LlamaForCausalLM:
    return read_plain_model(folder).eval()


@torch.inference_mode()
def test_it_has_the_weights_and_predictions_of_the_library(library: Any, plain: LlamaForCausalLM) -> None:
    weights = dict(plain.named_parameters())
    assert weights.keys() == dict(library.named_parameters()).keys()
    assert all(torch.equal(weight, weights[name]) for name, weight in library.named_parameters())
    ids = torch.randint(3, 40_000, (3, 25), generator=torch.Generator().manual_seed(1))
    assert torch.equal(plain(input_ids=ids).logits, library(input_ids=ids).logits)
    states = plain.get_decoder()(input_ids=ids).last_hidden_state
    assert torch.equal(states, library.get_decoder()(input_ids=ids).last_hidden_state)


@torch.inference_mode()
def test_a_pass_over_padded_prompts_equals_the_library_s_own(library: Any, plain: LlamaForCausalLM) -> None:
    prompts = [tuple(range(5, 5 + length)) for length in (7, 20, 21)]
    logits, _ = PromptStates(plain).compute(prompts)
    for row, prompt in enumerate(prompts):
        truth = library(input_ids=torch.tensor([prompt])).logits[0, -1]
        assert torch.allclose(logits[row], truth, atol=1e-3)


def test_its_tokenizer_is_the_library_s(folder: Path) -> None:
    own, library = PlainTokenizer(folder), AutoTokenizer.from_pretrained(folder)
    for special in (False, True):
        ids = own(TEXTS, add_special_tokens=special).input_ids
        assert ids == library(TEXTS, add_special_tokens=special).input_ids
        for text, tokens in zip(TEXTS, ids, strict=True):
            assert own(text, add_special_tokens=special).input_ids == tokens
            decoded = own.decode(tokens, skip_special_tokens=special)
            assert decoded == library.decode(tokens, skip_special_tokens=special)
    for name in ("bos_token_id", "eos_token_id", "pad_token_id", "model_max_length", "name_or_path"):
        assert getattr(own, name) == getattr(library, name)
    assert len(own) == len(library)
    assert {key: str(one) for key, one in own.added_tokens_decoder.items()} == {
        key: str(one) for key, one in library.added_tokens_decoder.items()
    }


def test_its_chat_template_is_rendered_as_by_the_library(folder: Path) -> None:
    own, library = PlainTokenizer(folder), AutoTokenizer.from_pretrained(folder)
    turns = [{"role": "user", "content": f"{text}\n {{{{ 7 * 7 }}}}"} for text in TEXTS]
    conversations = [turns[:1], [{"role": "system", "content": "Be brief."}, *turns]]
    for prompt in (False, True):
        options: dict[str, Any] = {"add_generation_prompt": prompt, "enable_thinking": False}
        expected = library.apply_chat_template(conversations, tokenize=False, **options)
        assert own.apply_chat_template(conversations, tokenize=False, **options) == expected
