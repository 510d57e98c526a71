"""Tiny judges with large random weights: with the usual ones every prediction is nearly uniform, and a wrong
mask would go unnoticed."""

from __future__ import annotations

from typing import Any

import torch
from transformers import CONFIG_MAPPING, AutoModelForCausalLM, AutoTokenizer

from gpu_parts.setting import Setting
from selfreflect.models.judge import Judge
from selfreflect.models.local.loading import CausalLM
from selfreflect.models.local.pretrained import accumulate_in_float32
from selfreflect.models.smollm2 import model_directory

VOCABULARY = 512

_SIZES: dict[str, Any] = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 4096,
    "initializer_range": 0.2,
    "tie_word_embeddings": False,
    "pad_token_id": 0,
    "eos_token_id": None,
    "bos_token_id": None,
}
_ROPE = {"rope_type": "default", "rope_theta": 10000.0}
_LLAMA_ROPE = {
    "rope_type": "llama3",
    "rope_theta": 500000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}

ARCHITECTURES: dict[str, dict[str, Any]] = {
    "qwen2": {},
    "qwen3": {},
    "llama": {"rope_parameters": _LLAMA_ROPE},
    "mistral": {"sliding_window": 24},
    "gemma2": {
        "sliding_window": 24,
        "attn_logit_softcapping": 5.0,
        "final_logit_softcapping": 3.0,
        "tie_word_embeddings": True,
    },
    "gpt_oss": {
        "sliding_window": 24,
        "num_local_experts": 4,
        "num_experts_per_tok": 2,
        "rope_parameters": _ROPE,
    },
    "granite": {"logits_scaling": 2.0, "attention_multiplier": 0.4, "residual_multiplier": 0.7},
}
"""What differs for the engine: biases, norms of heads, scaled rotary frequencies, windows, capped logits,
sinks with experts, scaled logits."""


def tiny_judge(
    setting: Setting, architecture: str, dtype: torch.dtype, *, own_vocabulary: bool = True
) -> Judge:
    """A judge on the setting's device. ``own_vocabulary``: a small one, not the tokenizer's."""
    tokenizer = AutoTokenizer.from_pretrained(setting.tokenizer or model_directory())
    size = VOCABULARY if own_vocabulary else len(tokenizer)
    config = CONFIG_MAPPING[architecture](**{**_SIZES, **ARCHITECTURES[architecture], "vocab_size": size})
    torch.manual_seed(0)
    # written out, because in transformers 5.17 its own choice for Gemma 2 leaves the caps of logits out
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager")
    accumulate_in_float32(setting.device.type)
    return Judge(
        CausalLM(
            model=model.to(setting.device, dtype).eval(),
            tokenizer=tokenizer,
            name=architecture,
            revision="",
            device=setting.device.type,
            dtype=str(dtype).removeprefix("torch."),
            window=config.max_position_embeddings,
        )
    )
