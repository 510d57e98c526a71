"""Tiny random judges, one for each way in which architectures differ where the metric's engines look.

The weights are large on purpose: with the usual initialisation every prediction is nearly uniform and a wrong
mask would go unnoticed.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import CONFIG_MAPPING, AutoModelForCausalLM, PreTrainedTokenizerFast

CORPUS = (
    "We now show a text with a missing word. "
    "Fill in the missing word only based on the distribution of answers you gave above.",
    "Please provide only the missing word, not the whole sentence. "
    "You are a friendly chatbot with short and concise answers.",
    "Question: what should a beginner plant first in a small garden? Sample 3 answers to this question.",
    "Radishes or lettuce, because they grow quickly. It is not clear. "
    "You can plant tomatoes and basil in a pot.",
)

OPEN, CLOSE, END = "<|im_start|>", "<|im_end|>", "<|endoftext|>"

_DECODER = {
    "hidden_size": 48,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 12,
    "max_position_embeddings": 2048,
    "initializer_range": 0.3,
    "tie_word_embeddings": False,
}
_ALTERNATING = ["sliding_attention", "full_attention"]

ARCHITECTURES: dict[str, dict[str, Any]] = {
    "llama": {**_DECODER, "attention_bias": True, "mlp_bias": True},
    "qwen2": {**_DECODER, "use_sliding_window": True, "sliding_window": 16, "layer_types": _ALTERNATING},
    "qwen3": _DECODER,
    # the window is far shorter than any prompt and cuts into prefix and tree, yet six layers of it reach back
    # to the summary
    "mistral": {**_DECODER, "sliding_window": 48, "num_hidden_layers": 6},
    "mixtral": {**_DECODER, "num_local_experts": 4, "num_experts_per_tok": 2},
    "gemma2": {
        **_DECODER,
        "num_hidden_layers": 4,
        "sliding_window": 16,
        "attn_logit_softcapping": 5.0,
        "final_logit_softcapping": 3.0,
        "tie_word_embeddings": True,
    },
    "gemma3_text": {
        **_DECODER,
        "sliding_window": 16,
        "layer_types": _ALTERNATING,
        "final_logit_softcapping": 3.0,
    },
    "phi3": {**_DECODER, "pad_token_id": 0},
    "phi3 longrope": {  # some contexts of the tests are longer than 190 tokens, some are not
        **_DECODER,
        "pad_token_id": 0,
        "original_max_position_embeddings": 190,
        "rope_parameters": {
            "rope_type": "longrope",
            "rope_theta": 10000.0,
            "original_max_position_embeddings": 190,
            "short_factor": [1.0] * 6,
            "long_factor": [3.0] * 6,
        },
    },
    "gpt2": {"n_embd": 48, "n_layer": 2, "n_head": 4, "n_positions": 2048, "initializer_range": 0.3},
    "gpt_oss": {
        **_DECODER,
        "sliding_window": 16,
        "layer_types": _ALTERNATING,
        "num_local_experts": 4,
        "num_experts_per_tok": 2,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
    },
    "cohere": {**_DECODER, "logit_scale": 0.5, "pad_token_id": 0},
    "granite": {**_DECODER, "logits_scaling": 2.0, "attention_multiplier": 0.4, "residual_multiplier": 0.7},
    "bloom": {"hidden_size": 48, "n_layer": 2, "n_head": 4, "initializer_range": 0.3},
    "mamba": {
        "hidden_size": 48,
        "num_hidden_layers": 2,
        "state_size": 8,
        "initializer_range": 0.5,
        "time_step_max": 0.01,
    },
    "lfm2": {**_DECODER, "layer_types": ["conv", "full_attention"]},
    "qwen2_moe": {  # applies its window through the mask alone
        **_DECODER,
        "moe_intermediate_size": 32,
        "shared_expert_intermediate_size": 32,
        "num_experts": 4,
        "num_experts_per_tok": 2,
        "use_sliding_window": True,
        "sliding_window": 16,
        "layer_types": _ALTERNATING,
    },
}


def tokenizer(opening: str = OPEN, closing: str = CLOSE, end: str = END) -> PreTrainedTokenizerFast:
    """A byte-level BPE with a ChatML template. Whatever the markers are called, they and all other tokens
    have the same ids."""
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    special = [AddedToken(name, special=True) for name in (end, opening, closing)]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    backend.train_from_iterator(
        CORPUS,
        trainers.BpeTrainer(
            vocab_size=400, special_tokens=special, initial_alphabet=sorted(alphabet), show_progress=False
        ),
    )
    fast = PreTrainedTokenizerFast(tokenizer_object=backend, eos_token=closing, pad_token=end)
    fast.chat_template = (
        "{% for m in messages %}"
        + opening
        + "{{ m['role'] }}\n{{ m['content'] }}"
        + closing
        + "\n{% endfor %}"
        "{% if add_generation_prompt %}" + opening + "assistant\n{% endif %}"
    )
    return fast


def save(folder: Path, architecture: str, *, seed: int = 0, **changes: Any) -> Path:
    """Write a model directory with safetensors weights, as the real loader expects it. ``changes`` go into
    its configuration.

    The first word of ``architecture`` is the model type.
    """
    words = tokenizer()
    markers = {"bos_token_id": None, "eos_token_id": words.eos_token_id, "pad_token_id": words.pad_token_id}
    config = CONFIG_MAPPING[architecture.split()[0]](
        **{**ARCHITECTURES[architecture], "vocab_size": len(words), **markers, **changes}
    )
    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_config(config)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if (
                name.endswith(("bias", "sinks")) and "dt_proj" not in name
            ):  # Mamba's time step keeps its own: it says how much is forgotten
                weight.normal_(std=0.3)
    model.save_pretrained(folder)
    words.save_pretrained(folder)
    return folder


def save_adapter(folder: Path, base: Path, *, seed: int = 0, **changes: Any) -> Path:
    """Write a LoRA adapter of a model directory, with weights that change its predictions. ``changes`` go
    into its configuration."""
    import peft

    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_pretrained(base)
    model = peft.get_peft_model(
        model, peft.LoraConfig(r=4, target_modules="all-linear", task_type="CAUSAL_LM")
    )
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "lora_B" in name:  # zero, which would change nothing
                weight.normal_(std=0.3)
    model.save_pretrained(folder)
    file = folder / "adapter_config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))
    return folder
