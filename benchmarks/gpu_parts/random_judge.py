"""Judges with random weights in the shape of real ones, for machines without the models."""

from __future__ import annotations

from pathlib import Path

import torch
import transformers

from selfreflect.bench import DecoderShape
from selfreflect.models.base import Device, DType
from selfreflect.models.judge import Judge
from selfreflect.models.local.loading import CausalLM, pick_device, pick_dtype
from selfreflect.models.local.machine import limit_threads, set_library_defaults
from selfreflect.models.local.pretrained import accumulate_in_float32
from selfreflect.models.smollm2 import model_directory

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
    return Judge(
        CausalLM(
            model=model,
            tokenizer=transformers.AutoTokenizer.from_pretrained(tokenizer or model_directory()),
            name=f"{name}, random weights",
            revision="",
            device=where,
            dtype=str(torch_dtype).removeprefix("torch."),
            window=_WINDOW,
        )
    )
