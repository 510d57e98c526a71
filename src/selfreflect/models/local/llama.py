"""The Llama family, whose layers this package runs itself: which decoders belong to it, and their norm."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

DECODERS = frozenset(("LlamaModel", "MistralModel", "Qwen2Model", "Qwen3Model"))


def is_llama(decoder: Any) -> bool:
    """Whether the family is known, without windows, adapters, quantised or absent weights."""
    cls = type(decoder)
    if cls.__name__ not in DECODERS or not cls.__module__.startswith("transformers.models."):
        return False
    for name, module in decoder.named_modules():
        if hasattr(module, "_hf_hook") and not _only_moves(module._hf_hook):
            return False
        if name.endswith("_proj") and type(module) is not torch.nn.Linear:
            return False
    return decoder.config.hidden_act == "silu" and not windowed(decoder.config)


def check_rotary(model: Any) -> None:
    """Raise ValueError where a configuration turns a part of each head only, which the layers of this family
    cannot: their first pass would fail."""
    decoder: Any = getattr(model, "model", None)
    frequencies = getattr(getattr(decoder, "rotary_emb", None), "inv_freq", None)
    if type(decoder).__name__ not in DECODERS or frequencies is None or not len(decoder.layers):
        return
    size = decoder.layers[0].self_attn.head_dim
    if 2 * len(frequencies) != size:
        raise ValueError(
            f"its rotary embedding turns {2 * len(frequencies)} of the {size} numbers of a head, and this "
            "architecture needs all; remove partial_rotary_factor from config.json, or correct head_dim"
        )


def windowed(config: Any) -> bool:
    """Whether some layers have a sliding window. Some config.json name one that the model never reads."""
    kinds = getattr(config, "layer_types", None)
    if kinds is not None:
        return any(kind != "full_attention" for kind in kinds)
    return hasattr(type(config), "sliding_window") and bool(config.sliding_window)


def _only_moves(hook: Any) -> bool:
    """Whether a hook is one of accelerate's that only moves inputs to the module, whose weights stay put."""
    from accelerate.hooks import AlignDevicesHook

    return type(hook) is AlignDevicesHook and not hook.offload


def rms_norm(module: Any, x: torch.Tensor) -> torch.Tensor:
    """``x`` (..., size), normed by its root mean square as ``module`` does."""
    if x.device.type != "cpu" or x.dtype != torch.float32:
        return F.rms_norm(x, x.shape[-1:], module.weight, module.variance_epsilon)
    # A CPU has no kernel for it, and torch would write the squares out.
    mean_square = torch.linalg.vector_norm(x, dim=-1, keepdim=True).square_().div_(x.shape[-1])
    scale = mean_square.add_(module.variance_epsilon).rsqrt_()
    normed: torch.Tensor = (x * scale).mul_(module.weight)
    return normed
