"""Judges with random weights: in the shape of real ones, and tiny ones.

The weights of tiny ones are large: with the usual ones every prediction is nearly uniform, and a wrong mask
would go unnoticed.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import transformers

from selfreflect.bench import DecoderShape
from selfreflect.models.base import Device, DType
from selfreflect.models.judge import Judge
from selfreflect.models.local.loading import CausalLM, pick_device, pick_dtype
from selfreflect.models.local.machine import limit_threads, set_library_defaults
from selfreflect.models.local.pretrained import accumulate_in_float32
from selfreflect.models.smollm2 import model_directory

if TYPE_CHECKING:
    from gpu_parts.setting import Setting

_WINDOW = 32768

SHAPES = {
    "tiny": DecoderShape(layers=2, hidden=48, heads=4, kv_heads=2, head_dim=12, ffn=64, vocabulary=49152),
    "qwen2.5-7b": DecoderShape(
        layers=28, hidden=3584, heads=28, kv_heads=4, head_dim=128, ffn=18944, vocabulary=152064
    ),
    "llama-3.1-8b": DecoderShape(
        layers=32, hidden=4096, heads=32, kv_heads=8, head_dim=128, ffn=14336, vocabulary=128256
    ),
}
"""Sizes of Llama and Qwen2 decoders. Each vocabulary contains the ids of the embedded model's tokenizer."""


def random_judge(
    name: str, *, device: Device = "auto", dtype: DType = "auto", tokenizer: Path | None = None
) -> Judge:
    """Make a judge with random weights, and the tokenizer of the embedded model or of a model directory.

    Raises:
        BackendError: unknown device.
    """
    shape = SHAPES[name]
    where = pick_device(device)
    torch_dtype = pick_dtype(dtype, where)
    accumulate_in_float32(where)
    set_library_defaults()
    family = transformers.LlamaConfig if name.startswith("llama") else transformers.Qwen2Config
    config = family(
        hidden_size=shape.hidden,
        intermediate_size=shape.ffn,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        vocab_size=shape.vocabulary,
        max_position_embeddings=_WINDOW,
        tie_word_embeddings=name == "tiny",  # as in small models
    )
    torch.manual_seed(0)
    with torch.device(where):
        model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch_dtype).eval()
    if where == "cpu":
        limit_threads()
    return _judge(model, _tokenizer(tokenizer), f"{name}, random weights", where, torch_dtype, _WINDOW)


def _tokenizer(folder: Path | None) -> Any:
    return transformers.AutoTokenizer.from_pretrained(folder or model_directory())


def _judge(model: Any, tokenizer: Any, name: str, device: str, dtype: torch.dtype, window: int) -> Judge:
    return Judge(
        CausalLM(
            model=model,
            tokenizer=tokenizer,
            name=name,
            revision="",
            device=device,
            dtype=str(dtype).removeprefix("torch."),
            window=window,
        )
    )


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
    tokenizer, device = _tokenizer(setting.tokenizer), setting.device.type
    size = VOCABULARY if own_vocabulary else len(tokenizer)
    fields = {**_SIZES, **ARCHITECTURES[architecture], "vocab_size": size}
    config = transformers.CONFIG_MAPPING[architecture](**fields)
    torch.manual_seed(0)
    # written out, because in transformers 5.17 its own choice for Gemma 2 leaves the caps of logits out
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager")
    accumulate_in_float32(device)
    placed = model.to(device, dtype).eval()
    return _judge(placed, tokenizer, architecture, device, dtype, config.max_position_embeddings)
