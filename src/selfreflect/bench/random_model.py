"""Judges with random weights in the shape of known models, to time an engine without downloading weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from selfreflect.errors import ConfigError, excerpt, nearest
from selfreflect.models.judge import Judge
from selfreflect.models.local.loading import CausalLM, accumulate_in_float32
from selfreflect.models.local.source import pick_device, pick_dtype
from selfreflect.models.local.threads import limit_threads, set_library_defaults
from selfreflect.models.smollm2 import model_directory
from selfreflect.models.spec import Device, DType

_WINDOW = 32768

SHAPES: dict[str, dict[str, Any]] = {
    "tiny": {
        "hidden_size": 48,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "vocab_size": 49152,
        "tie_word_embeddings": True,
    },
    "qwen2.5-7b": {
        "hidden_size": 3584,
        "intermediate_size": 18944,
        "num_hidden_layers": 28,
        "num_attention_heads": 28,
        "num_key_value_heads": 4,
        "vocab_size": 152064,
        "tie_word_embeddings": False,
    },
}
"""Settings of Qwen2 decoders. Each vocabulary contains the ids of the embedded model's tokenizer."""


def random_judge(
    shape: str, *, device: Device = "auto", dtype: DType = "auto", tokenizer: Path | None = None
) -> Judge:
    """Make a judge with random weights, and the tokenizer of the embedded model or of a model directory.

    Raises:
        ConfigError: unknown shape.
        BackendError: unknown device.
    """
    if shape not in SHAPES:
        known = list(SHAPES)
        raise ConfigError(
            f"unknown shape {excerpt(shape)} for --random-model. Choose one of {', '.join(known)}."
            f"{nearest(shape, known)}"
        )
    import transformers

    where = pick_device(device)
    torch_dtype = pick_dtype(dtype, where)
    accumulate_in_float32(where)
    set_library_defaults()
    config = transformers.Qwen2Config(**SHAPES[shape], max_position_embeddings=_WINDOW)
    torch.manual_seed(0)
    with torch.device(where):
        model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch_dtype).eval()
    if where == "cpu":
        limit_threads()
    return Judge(
        CausalLM(
            model=model,
            tokenizer=transformers.AutoTokenizer.from_pretrained(tokenizer or model_directory()),
            name=f"{shape}, random weights",
            revision="",
            device=where,
            dtype=str(torch_dtype).removeprefix("torch."),
            window=_WINDOW,
        )
    )
