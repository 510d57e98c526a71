"""Forward passes over a model's weights: products, norms, layers of the Llama family.

Products of float32 on a CPU go to oneDNN. torch would call MKL, which uses the widest vectors on Intel's
processors only; with oneDNN, products took half the time on an AMD Zen 5. They
differ by rounding alone. The choice depends on the build of torch, never on a timing, so that scores can be
repeated.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy.typing as npt
import torch
import torch.nn.functional as F

DECODERS = frozenset(("LlamaModel", "MistralModel", "Qwen2Model", "Qwen3Model"))
_HOMES = ("transformers.models.", "selfreflect.models.local.plain")


def input_device(module: Any) -> Any:
    """Find the device for a model's token ids, from its first weights."""
    return next(module.parameters()).device


def output_device(model: Any) -> Any:
    """Find the device for final hidden states, from the vocabulary projection."""
    return model.get_output_embeddings().weight.device


def on_device(numbers: npt.NDArray[Any], device: torch.device) -> torch.Tensor:
    """Copy an array to a device. A copy to a GPU is made from pinned memory and queued like other work; from
    ordinary memory, the host would wait until the GPU is idle."""
    values = torch.from_numpy(numbers)
    if device.type == "cuda":
        return values.pin_memory().to(device, non_blocking=True)
    return values.to(device)


def linear(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None, *, silu: bool = False
) -> torch.Tensor:
    """Compute ``x @ weight.T + bias``, like :func:`torch.nn.functional.linear` up to rounding; no gradients.

    Shapes are x (rows, inner), weight (outer, inner), bias (outer,), and the result's (rows, outer). ``silu``
    applies SiLU to it, in the same kernel if possible.
    """
    product: torch.Tensor
    if len(x) and _use_onednn(x, weight):
        activation = "swish" if silu else "none"
        product = torch.ops.mkldnn._linear_pointwise(x, weight, bias, activation, [], "")
        return product
    product = F.linear(x, weight, bias)
    return F.silu(product, inplace=True) if silu else product


def add_linear(
    total: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None
) -> None:
    """Compute ``total += linear(x, weight, bias)``, fused if that is faster."""
    if _use_onednn(x, weight):
        total += linear(x, weight, bias)
        return
    total.addmm_(x, weight.t())
    if bias is not None:
        total += bias


def _use_onednn(x: torch.Tensor, weight: torch.Tensor) -> bool:
    for tensor in (x, weight):
        if tensor.device.type != "cpu" or tensor.dtype != torch.float32:
            return False
        # the operation of oneDNN has no gradient
        if tensor.requires_grad and torch.is_grad_enabled():
            return False
    return _has_onednn()


@cache
def _has_onednn() -> bool:
    return torch._C._has_mkldnn and hasattr(torch.ops.mkldnn, "_linear_pointwise")


def is_at_home(cls: type) -> bool:
    """Check whether a class belongs to transformers or this package."""
    return cls.__module__.startswith(_HOMES)


def is_llama(decoder: Any) -> bool:
    """Check for a Llama-type decoder without windows, adapters, quantised or missing weights."""
    cls = type(decoder)
    if cls.__name__ not in DECODERS or not is_at_home(cls):
        return False
    for name, module in decoder.named_modules():
        if hasattr(module, "_hf_hook") and not _only_moves(module._hf_hook):
            return False
        if name.endswith("_proj") and type(module) is not torch.nn.Linear:
            return False
    return decoder.config.hidden_act == "silu" and not windowed(decoder.config)


def windowed(config: Any) -> bool:
    """Check whether any layer uses a sliding window."""
    kinds = getattr(config, "layer_types", None)
    if kinds is not None:
        return any(kind != "full_attention" for kind in kinds)
    return hasattr(type(config), "sliding_window") and bool(config.sliding_window)


def _only_moves(hook: Any) -> bool:
    """Check whether an accelerate hook only moves inputs to the module's device."""
    from accelerate.hooks import AlignDevicesHook

    return type(hook) is AlignDevicesHook and not hook.offload


def rms_norm(module: Any, x: torch.Tensor) -> torch.Tensor:
    """Normalise ``x`` (..., size) by its root mean square, as ``module`` does."""
    if x.device.type != "cpu" or x.dtype != torch.float32:
        return F.rms_norm(x, x.shape[-1:], module.weight, module.variance_epsilon)
    # A CPU has no kernel for it, and torch would write the squares out.
    mean_square = torch.linalg.vector_norm(x, dim=-1, keepdim=True).square_().div_(x.shape[-1])
    scale = mean_square.add_(module.variance_epsilon).rsqrt_()
    normed: torch.Tensor = (x * scale).mul_(module.weight)
    return normed


class Passed(NamedTuple):
    """Final normed states (rows, tokens, hidden), with all keys and values (rows, KV, tokens, D)."""

    hidden: torch.Tensor
    keys: list[torch.Tensor]
    values: list[torch.Tensor]


def run_layers(
    decoder: Any,
    ids: torch.Tensor,
    positions: torch.Tensor,
    visible: torch.Tensor | None = None,
    before: tuple[Sequence[torch.Tensor], Sequence[torch.Tensor]] | None = None,
) -> Passed:
    """Run the layers of a Llama-type model over tokens (rows, tokens) with transformers' operations.

    Args:
        visible: which keys, those before included, each token sees, (rows, 1, tokens, keys); None for all
            that are not after it.
        before: for each layer the keys and values of tokens before.
    """
    x = decoder.embed_tokens(ids)
    cos, sin = decoder.rotary_emb(x, positions)
    rotary = cos[:, None], sin[:, None]
    all_keys = []
    all_values = []
    for index, layer in enumerate(decoder.layers):
        attn = layer.self_attn
        h = layer.input_layernorm(x)
        queries = _rotated(attn.q_proj(h), attn.head_dim, getattr(attn, "q_norm", None), rotary)
        keys = _rotated(attn.k_proj(h), attn.head_dim, getattr(attn, "k_norm", None), rotary)
        values = _split_heads(attn.v_proj(h), attn.head_dim).transpose(1, 2)
        if before is not None:
            keys = torch.cat([before[0][index], keys], dim=2)
            values = torch.cat([before[1][index], values], dim=2)
        attended = _attend(queries, keys, values, visible, attn.scaling)
        x = x + attn.o_proj(attended.transpose(1, 2).flatten(2))
        x = x + layer.mlp(layer.post_attention_layernorm(x))
        all_keys.append(keys)
        all_values.append(values)
    return Passed(decoder.norm(x), all_keys, all_values)


def _rotated(
    projected: torch.Tensor, size: int, norm: Any, rotary: tuple[torch.Tensor, torch.Tensor]
) -> torch.Tensor:
    """Apply rotary embedding to heads (rows, heads, tokens, D)."""
    heads = _split_heads(projected, size)
    if norm is not None:
        heads = norm(heads)
    heads = heads.transpose(1, 2)
    left, right = heads.chunk(2, dim=-1)
    cos, sin = rotary
    return (heads * cos) + (torch.cat((-right, left), dim=-1) * sin)


def _split_heads(projected: torch.Tensor, size: int) -> torch.Tensor:
    """Split states into heads, (rows, tokens, heads, size)."""
    return projected.view(*projected.shape[:2], -1, size)


def _attend(
    queries: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    visible: torch.Tensor | None,
    scaling: float,
) -> torch.Tensor:
    """Compute the attention of each query, (rows, heads, tokens, D)."""
    if visible is None:
        # torch aligns causal masks at the first key, so that a single query would see no other
        return F.scaled_dot_product_attention(
            queries, keys, values, is_causal=queries.shape[2] > 1, scale=scaling, enable_gqa=True
        )
    group = queries.shape[1] // keys.shape[1]
    if queries.shape[2] == 1:  # then the heads of a group can be its queries
        group_queries = queries.view(len(queries), keys.shape[1], group, -1)
        out = F.scaled_dot_product_attention(group_queries, keys, values, attn_mask=visible, scale=scaling)
        return out.reshape(queries.shape)
    keys = keys.repeat_interleave(group, dim=1)
    values = values.repeat_interleave(group, dim=1)
    return F.scaled_dot_product_attention(queries, keys, values, attn_mask=visible, scale=scaling)
